"""Regression problems for laws: hypothesis draws sizes, kernels, noises, partitions and seeds."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from mercer.kernels import Gaussian, Linear, Matern
from tests import oracles
from tests.given_noise import CommitteeRegressor

KERNELS = [
    Gaussian(1.0),
    Gaussian(0.7, amplitude=2.0),
    Matern(1.0, nu=0.5),
    Matern(1.5, nu=1.5, amplitude=0.5),
    Matern(2.0, nu=2.5),
    Gaussian() + Linear(0.5),
]

seeds = st.integers(0, 2**32 - 1)
kernels = st.sampled_from(KERNELS)
noises = st.sampled_from([1e-2, 0.1, 1.0, 30.0])
booleans = st.booleans()


def examples(number):
    """This many examples of a test where others have 50, and fewer in the same proportion where others have fewer."""
    return max(1, number * settings().max_examples // 50)


@dataclass(frozen=True)
class Problem:
    """A kernel, a noise, and whatever else a fit on a basis needs."""

    kernel: Any
    noise: float
    intercept: bool
    rows: np.ndarray  # (n, d), some of them equal
    targets: np.ndarray  # (n,) or (n, 2)
    weights: np.ndarray | None  # (n,)
    basis: np.ndarray  # (m, d), some of them rows, some equal
    labels: np.ndarray  # (n,): blocks
    new: np.ndarray  # (q, d)

    @property
    def options(self):
        """Arguments that all estimators have."""
        return {"kernel": self.kernel, "noise": self.noise, "intercept": self.intercept, "n_jobs": 1}

    @property
    def data(self):
        return self.rows, self.targets, self.weights

    def part(self, index):
        """The same with some of the rows, in their order."""
        weights = None if self.weights is None else self.weights[index]
        rows, targets, labels = self.rows[index], self.targets[index], self.labels[index]
        return replace(self, rows=rows, targets=targets, weights=weights, labels=labels)

    def dense(self, oracle, new=None, **options):
        """The model of an oracle at new inputs."""
        new = self.new if new is None else new
        common = {"noise": self.noise, "weights": self.weights, "intercept": self.intercept}
        return oracle(rows=self.rows, targets=self.targets, new=new, kernel=self.kernel, **common, **options)

    def rounding(self, expected, basis, new=None):
        """Rounding of a model on a basis, where it depends on Q between all rows and new inputs."""
        points = np.vstack([self.rows, self.new if new is None else new])
        error = oracles.projection_rounding(self.kernel, basis, points, points)
        return expected.rounding(cross=error, system=error)

    def left_out(self, kept, given):
        """The most that k(z, z) of a basis point exceeds what the points in use span of it; 0 if all are in use."""
        if len(kept) == len(np.unique(given, axis=0)):
            return 0.0
        v = oracles.projector(self.kernel, kept)(given)
        left = np.max(self.kernel.diagonal(given) - np.sum(v**2, axis=1))
        return max(left, 0.0) + oracles.projection_rounding(self.kernel, kept, given, given)

    @property
    def largest_kernel(self):
        return float(np.max(self.kernel.diagonal(np.vstack([self.rows, self.basis, self.new]))))


def draw_regression(draw, smallest, largest):
    """A generator of random numbers for the rest, rows (some of them equal) and targets (n,)."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(smallest, largest)), draw(st.integers(1, 3))
    rows = rng.normal(size=(n, d))
    if draw(booleans):
        rows = np.round(rows, 1)
        rows[rng.integers(n)] = rows[rng.integers(n)]
    targets = np.sin(2 * rows[:, 0]) + 0.3 * rng.normal(size=n) + draw(st.sampled_from([0.0, 10.0]))
    return rng, rows, targets


@st.composite
def problems(draw, *, smallest=2, largest=30, kernels=kernels):
    rng, rows, targets = draw_regression(draw, smallest, largest)
    n, d = rows.shape
    if draw(booleans):
        targets = np.column_stack([targets, rows[:, -1] ** 2 - 3.0])
    elsewhere = 2 * rng.normal(size=(draw(st.integers(1, 12)), d))
    kind = draw(st.sampled_from(["elsewhere", "rows", "both", "duplicates"]))
    basis = {
        "elsewhere": elsewhere,
        "rows": rows[::2],
        "both": np.vstack([elsewhere, rows[::3]]),
        "duplicates": np.vstack([elsewhere, elsewhere[:1]]),
    }[kind]
    return Problem(
        kernel=draw(kernels),
        noise=draw(noises),
        intercept=draw(booleans),
        rows=rows,
        targets=targets,
        weights=rng.uniform(0.1, 3.0, size=n) if draw(booleans) else None,
        basis=basis,
        labels=rng.integers(draw(st.integers(1, min(n, 8))), size=n),
        new=2 * rng.normal(size=(10, d)),
    )


def committee(problem, **options):
    """A committee whose blocks are the problem's labels, on its basis."""
    return CommitteeRegressor(**{**problem.options, "basis": problem.basis, "partition": problem.labels, **options})
