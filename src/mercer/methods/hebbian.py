r"""The kernel Hebbian algorithm: kernel PCA of a stream of rows, on a dictionary.

==========================  =======================================  =======
paper                       code                                     shape
==========================  =======================================  =======
:math:`A(t)`                ``directions`` times :math:`L^{-1}`      (r, m)
:math:`\tilde k(x)`         :math:`k_m(x)`, centred by ``centre``    (m,)
:math:`y(t)`                what ``expansion`` evaluates to          (r,)
:math:`\gamma(t)`           ``Gains``                                (r,)
==========================  =======================================  =======

With :math:`K_{mm} = LL^\top`, :math:`v(x) = L^{-1}k_m(x)` are the coordinates of x's feature, projected on the span of
the dictionary, in an orthonormal basis of it. There the algorithm is Sanger's rule on :math:`v(x) - \bar v`, see
``solvers/hebbian.py``. For a row of the dictionary the step is the paper's, :math:`A \leftarrow A + \eta(y e_t^\top -
\operatorname{LT}[yy^\top]A)` with its unit vector :math:`e_t`; for another row :math:`e_t = K_{mm}^{-1}k_m(x)`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import solve_triangular

from mercer._stored import stored
from mercer._stored.checks import check_finite, check_shape, need
from mercer._typing import FloatArray, IntArray
from mercer.engine import ArrayRows, ArrayTable, Executor, Features, Pass, Sequence, Tile, blas_threads, feature_matrix
from mercer.engine.dictionary import Dictionary
from mercer.engine.executors.threads import working_memory_bytes
from mercer.kernels import Kernel
from mercer.model import KernelExpansion
from mercer.solvers.hebbian import N_CENTRED, N_STEPS, SPREAD, Gains, learn_vectors

_NUMBER = 8  # bytes
_ROUNDING = 1e-10  # share of the largest k(x, x) below which a squared distance cannot be told from zero


class Rules(NamedTuple):
    """How the dictionary grows, and how large steps are."""

    max_basis: int
    novelty_tol: float
    gains: Gains


@stored(also=("expansion",))
@dataclass
class HebbianLearner:
    """Components of the rows seen so far; memory m² and m·(d + r), whatever their number."""

    dictionary: Dictionary
    directions: FloatArray  # (r, m)
    centre: FloatArray  # (m,)
    variances: FloatArray  # (r,)
    ages: FloatArray  # (r,): how many steps each direction has taken
    counts: FloatArray  # rows in the centre, steps taken, mean squared distance from the centre
    off_hull: float = 0.0  # largest squared distance of a row from the affine hull of the dictionary, while m ≤ r

    @classmethod
    def start(cls, kernel: Kernel, n_features: int, n_components: int) -> Self:
        """One that has seen nothing."""
        r, dictionary = n_components, Dictionary.empty(kernel, n_features)
        return cls(dictionary, np.empty((r, 0)), np.empty(0), np.zeros(r), np.zeros(r), np.zeros(3))

    def copy(self) -> Self:
        """A learner with the same future that shares nothing that changes."""
        other = copy(self)
        vars(other).pop("expansion", None)
        for name in ("directions", "centre", "variances", "ages", "counts"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def learn(self, rows: FloatArray, rules: Rules) -> None:
        """Learn rows (n, d) in their order: each may join the dictionary, enters the mean, and is learned."""
        rows, start = np.require(rows, np.float64, ["C", "W"]), 0
        with blas_threads(1):
            while start < len(rows):
                some = rows[start : start + self.dictionary.rows_together(rules.max_basis)]
                features, sizes = self.extend(some, rules)
                self._look_beyond(features)
                self._step(features, sizes, rules.gains, running=True)
                start += len(some)

    def extend(self, rows: FloatArray, rules: Rules) -> tuple[FloatArray, IntArray]:
        """Let rows join the dictionary; their coordinates (T, m), and how many of these each knows."""
        found = self.dictionary.learned(rows, most=rules.max_basis, novelty_tol=rules.novelty_tol)
        self.dictionary, features, sizes = found
        r, m = self.directions.shape
        new = len(self.dictionary.points) - m
        if new:
            # The i-th component starts as the i-th coordinate.
            self.directions = np.hstack([self.directions, np.eye(r, m + new)[:, m:]])
            self.centre = np.append(self.centre, np.zeros(new))
        return features, sizes

    def begin(self, moments: FeatureMoments) -> None:
        """Centre by the mean of all rows, which is known beforehand."""
        self.centre, self.counts[SPREAD], self.off_hull = moments.mean, moments.spread, moments.off_hull
        self.counts[N_CENTRED] = moments.n_rows

    def pass_over(self, features: FloatArray, rules: Rules) -> None:
        """Learn features (T, m) of the whole dictionary with the centre as it is."""
        features = np.require(features, np.float64, ["C", "W"])
        self._step(features, np.full(len(features), features.shape[1]), rules.gains, running=False)

    def _step(self, features: FloatArray, sizes: IntArray, gains: Gains, *, running: bool) -> None:
        state = self.directions, self.centre, self.variances, self.ages, self.counts
        done = learn_vectors(features, sizes, *state, gains, running=running)
        if done < len(features):
            u = features[done] - self.centre
            stable = float(self.counts[SPREAD] / (u @ u))
            raise ValueError(
                f"learning_rate={gains.rate:g} is too large: the components diverge at step "
                f"{int(self.counts[N_STEPS]) + 1}. Steps do not overshoot at this row with a learning_rate below "
                f"{stable:.2g}; or choose gain='eigenvalue', whose steps are bounded."
            )

    def _look_beyond(self, features: FloatArray) -> None:
        r, m = self.directions.shape
        if 0 < m <= r:
            self.off_hull = max(self.off_hull, off_hull(features, self.dictionary))

    @property
    def n_seen(self) -> int:
        """Rows in the centre."""
        return int(self.counts[N_CENTRED])

    @property
    def n_steps(self) -> int:
        """Rows learned; each pass counts."""
        return int(self.counts[N_STEPS])

    @property
    def n_components(self) -> int:
        """Components that there are: centred rows span the dictionary's span, or one dimension less."""
        r, m = self.directions.shape
        if m > r:
            return int(r)
        largest = float(np.max(self.dictionary.kernel.diagonal(self.dictionary.points), initial=0.0))
        return int(min(r, max(m - (self.off_hull <= _ROUNDING * largest), 0)))

    @cached_property
    def expansion(self) -> KernelExpansion:
        """Components as functions: w_iᵀ(v(x) - v̄); the first one's start, if there is none yet."""
        directions = self.directions[: max(1, self.n_components)]
        # A = WL⁻¹
        coefficients = solve_triangular(self.dictionary.lower, directions.T, lower=True, trans="T", check_finite=False)
        return KernelExpansion(
            kernel=self.dictionary.kernel,
            points=self.dictionary.points,
            coefficients=np.ascontiguousarray(coefficients),
            intercept=-directions @ self.centre,
        )

    def check_stored(self) -> None:
        """Refuse arrays of other sizes than the dictionary's and each other's."""
        m, r = len(self.dictionary.points), len(self.directions)
        sizes = {"directions": (r, m), "centre": (m,), "variances": (r,), "ages": (r,), "counts": (3,)}
        for name, shape in sizes.items():
            array = getattr(self, name)
            check_shape(array, shape, f"{name} of components")
            check_finite(array, f"{name} of components")
            need(array.dtype == np.float64, f"{name} of components are not float64.")
        need(r >= 1 and self.off_hull >= 0, "there are no components.")
        for name in ("variances", "ages", "counts"):
            need(np.all(getattr(self, name) >= 0), f"{name} of components are negative.")
        expansion = vars(self).get("expansion")
        if expansion is not None:
            check_shape(expansion.intercept, (max(1, self.n_components),), "the intercept of components")
            same = expansion.kernel.equals(self.dictionary.kernel)
            need(same and np.array_equal(expansion.points, self.dictionary.points), "components are of other rows.")


def off_hull(features: FloatArray, dictionary: Dictionary) -> float:
    """Largest squared distance of rows, given by their coordinates, from the affine hull of the dictionary."""
    # The rows of L satisfy Lc = 1, so that the hull is vᵀc = 1.
    c = solve_triangular(dictionary.lower, np.ones(len(dictionary.lower)), lower=True, check_finite=False)
    return float(np.max((features @ c - 1.0) ** 2, initial=0.0) / (c @ c))


# -------------------------------------------------------------------------------------------------- passes over rows


@dataclass
class FeatureMoments:
    """Sums over rows of their coordinates on a dictionary, less those of one of them."""

    origin: FloatArray  # (m,)
    total: FloatArray  # (m,)
    squares: float = 0.0
    n_rows: int = 0
    off_hull: float = 0.0

    def merge_in_place(self, other: FeatureMoments) -> None:
        """Take in other rows."""
        self.total += other.total
        self.squares += other.squares
        self.n_rows += other.n_rows
        self.off_hull = max(self.off_hull, other.off_hull)

    @property
    def mean(self) -> FloatArray:
        """v̄."""
        return np.asarray(self.origin + self.total / self.n_rows)

    @property
    def spread(self) -> float:
        """Mean of |v - v̄|²."""
        deviation = self.total / self.n_rows
        return max(self.squares / self.n_rows - float(deviation @ deviation), 0.0)


@dataclass(frozen=True)
class _OnDictionary:
    """Something computed from coordinates: of rows, or the rows of the table themselves (``features`` None)."""

    dictionary: Dictionary
    features: Features | None

    @property
    def width(self) -> int:
        return 2 * len(self.dictionary.points)

    def prepare(self) -> None:
        if self.features is not None:
            self.features.prepare()

    def coordinates(self, rows: FloatArray) -> FloatArray:
        return rows if self.features is None else self.features.tile(rows)


@dataclass(frozen=True)
class _Moments(_OnDictionary, Pass[FeatureMoments, FeatureMoments]):
    """Mean and spread of coordinates."""

    origin: FloatArray
    n_components: int

    name = "mean"

    def start(self) -> FeatureMoments:
        return FeatureMoments(self.origin, np.zeros(len(self.origin)))

    def add(self, state: FeatureMoments, tile: Tile) -> None:
        features = self.coordinates(tile.rows)
        if len(self.origin) <= self.n_components:
            state.off_hull = max(state.off_hull, off_hull(features, self.dictionary))
        deviations = features - self.origin
        state.total += deviations.sum(axis=0)
        state.squares += float(np.einsum("ij,ij->", deviations, deviations))
        state.n_rows += tile.n_rows


@dataclass(frozen=True)
class _Steps(_OnDictionary, Pass[HebbianLearner, HebbianLearner]):
    """Learn coordinates in the order of the rows, on a dictionary that stays."""

    learner: HebbianLearner
    rules: Rules

    name = "rows learned"

    def start(self) -> HebbianLearner:
        return self.learner

    def add(self, state: HebbianLearner, tile: Tile) -> None:
        with blas_threads(1):
            features = self.coordinates(tile.rows)
        state.pass_over(features, self.rules)


@dataclass(frozen=True)
class _Stream(Pass[HebbianLearner, HebbianLearner]):
    """Learn rows in their order, or (``choose``) only let them join the dictionary."""

    learner: HebbianLearner
    rules: Rules
    choose: bool

    @property
    def name(self) -> str:  # type: ignore[override]
        return "dictionary" if self.choose else "rows learned"

    @property
    def width(self) -> int:
        return min(self.rules.max_basis, 1000) + int(self.learner.dictionary.points.shape[1])

    def start(self) -> HebbianLearner:
        return self.learner

    def add(self, state: HebbianLearner, tile: Tile) -> None:
        if not self.choose:
            state.learn(tile.rows, self.rules)
            return
        rows, start = np.require(tile.rows, np.float64, ["C", "W"]), 0
        with blas_threads(1):
            while start < len(rows) and len(state.dictionary.points) < self.rules.max_basis:
                some = rows[start : start + state.dictionary.rows_together(self.rules.max_basis)]
                state.extend(some, self.rules)
                start += len(some)


def stream(learner: HebbianLearner, table: ArrayTable, rules: Rules, *, verbose: int = 0) -> HebbianLearner:
    """Learn the rows of a table, as they come after those before; returns the learner to go on with."""
    return Sequence(verbose=verbose).reduce(_Stream(learner, rules, choose=False), table)


def pass_over_table(
    learner: HebbianLearner, table: ArrayTable, rules: Rules, *, n_epochs: int, executor: Executor
) -> HebbianLearner:
    """Choose the dictionary in a first pass, find the mean on it, then learn all rows ``n_epochs`` times.

    Returns the learner to go on with; the one that is given may change.

    Cost: per pass n·m·(m + 3r) multiply-adds and n·m kernel values; coordinates (n, m) are kept for all passes where
    they fit in scikit-learn's ``working_memory``, and passes then cost 3n·m·r.
    """
    sequence = Sequence(verbose=executor.verbose)
    learner = sequence.reduce(_Stream(learner, rules, choose=True), table)
    dictionary = learner.dictionary
    if not len(dictionary.points):  # k(x, x) is zero on all rows
        return learner
    features: Features | None = dictionary.features
    if _NUMBER * table.n_rows * len(dictionary.points) <= working_memory_bytes():
        kept = feature_matrix(table.rows, dictionary.features, executor=executor)
        table, features = ArrayTable(ArrayRows(kept, checked=True)), None
    origin = dictionary.lower[0].copy()  # coordinates of the first row
    learner.begin(executor.reduce(_Moments(dictionary, features, origin, len(learner.directions)), table))
    for _ in range(n_epochs):
        learner = sequence.reduce(_Steps(dictionary, features, learner, rules), table)
    return learner
