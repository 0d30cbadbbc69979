"""Which kernel suits the data: candidates fitted by marginal likelihood on some rows, judged by others.

The first candidate has one length scale for all features. From its parameters the second starts, with a length scale
per feature, and from there the same of other smoothness. Each is fitted on at most ``DECIDING_ROWS`` rows and judged by
the squared error on as many others; where there are too few rows for that, by their leave-one-out error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mercer._typing import IntArray
from mercer.engine import ArrayRows, ArrayTable, Executor
from mercer.kernels import Kernel, Matern
from mercer.kernels.stationary import median_distance
from mercer.methods.exact import fit_exact
from mercer.methods.likelihood import DECIDING_ROWS, maximise_likelihood

_FEWEST_HELD_OUT = 100  # with fewer the error of a candidate is too uncertain, and rows are left out one by one
_STEPS = 60  # of the search with a length scale per feature
_MORE_STEPS = 15  # of those that start from its result


@dataclass(frozen=True)
class Candidate:
    """A kernel that was tried."""

    name: str
    kernel: Kernel
    noise: float
    error: float  # mean squared, in units of the targets' variance, averaged over the outputs
    seconds: float


@dataclass(frozen=True)
class Judge:
    """Rows by which candidates are fitted, and rows by which they are judged (none: they are left out one by one)."""

    fitted: ArrayTable
    held_out: ArrayTable | None
    executor: Executor

    @classmethod
    def of(cls, table: ArrayTable, rng: np.random.RandomState, executor: Executor) -> Judge:
        """Draw the rows, of positive weight."""
        used = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights > 0)
        order = rng.permutation(used)
        fitted, judging = order[:DECIDING_ROWS], order[DECIDING_ROWS : 2 * DECIDING_ROWS]
        held_out = _in_memory(table, judging) if len(judging) >= _FEWEST_HELD_OUT else None
        return cls(_in_memory(table, fitted), held_out, executor)

    def error(self, kernel: Kernel, noise: float) -> float:
        """Mean squared error of the exact model of the rows that are fitted."""
        fit = fit_exact(
            self.fitted, kernel, noise=noise, intercept=True, solver="cholesky",
            tol=1e-6, max_iter=1000, random_state=None, executor=self.executor,
        )  # fmt: skip
        if self.held_out is None:
            return 1.0 if fit.calibration is None else fit.calibration.relative_error()
        targets, weights = self.held_out.targets, self.held_out.weights
        residuals = targets - fit.expansion.evaluate(self.held_out.rows, executor=self.executor)
        spread = np.average((targets - np.average(targets, axis=0, weights=weights)) ** 2, axis=0, weights=weights)
        used = spread > 0
        errors = np.average(residuals**2, axis=0, weights=weights)
        return float(np.mean(errors[used] / spread[used])) if np.any(used) else 0.0


def search_kernel(
    table: ArrayTable,
    *,
    deadline: float,
    rng: np.random.RandomState,
    executor: Executor,
    say: Callable[[str], None],
) -> list[Candidate]:
    """Candidates, the best first; at least one, whatever the deadline (of ``time.monotonic()``)."""
    judge = Judge.of(table, rng, executor)
    rows, targets = judge.fitted.rows.read(0, judge.fitted.n_rows), judge.fitted.targets
    weights = np.ones(len(rows)) if judge.fitted.weights is None else judge.fitted.weights
    used = np.ptp(targets, axis=0) > 0 if len(targets) else np.zeros(targets.shape[1], dtype=bool)
    tried: list[Candidate] = []

    def try_out(name: str, start: Kernel, noise: float, max_iter: int) -> Candidate:
        began = time.monotonic()
        kernel = start
        if np.any(used) and len(rows) > 2:
            unit = targets[:, used] / np.std(targets[:, used], axis=0)
            found = maximise_likelihood(start, rows, unit, weights, noise=noise, max_iter=max_iter, deadline=deadline)
            kernel, noise = found.kernel, found.noise
        tried.append(Candidate(name, kernel, noise, judge.error(kernel, noise), time.monotonic() - began))
        say(f"{name}: error {np.sqrt(tried[-1].error):.3f}, {tried[-1].seconds:.1f} s")
        return tried[-1]

    first = try_out("matern 3/2, one length scale", Matern(length_scale=median_distance(rows[:1000])), 0.1, 20)
    per_feature = np.full(rows.shape[1], float(first.kernel.length_scale))
    options = [("matern 3/2, a length scale per feature", 1.5, _STEPS)]
    options += [(f"matern {name}, a length scale per feature", nu, _MORE_STEPS) for name, nu in _OTHERS]
    noise = first.noise
    for name, nu, steps in options:
        if time.monotonic() > deadline:
            break
        found = try_out(name, Matern(length_scale=per_feature, nu=nu), max(noise, 1e-6), steps)
        if nu == 1.5:
            per_feature, noise = np.asarray(found.kernel.length_scale), found.noise
    return sorted(tried, key=lambda candidate: candidate.error)


_OTHERS = (("5/2", 2.5), ("1/2", 0.5))


def _in_memory(table: ArrayTable, index: IntArray) -> ArrayTable:
    some = table.subset(np.sort(index))
    rows = some.rows.read(0, some.n_rows).astype(np.float64)
    return ArrayTable(ArrayRows(rows, checked=True), some.targets, some.weights)
