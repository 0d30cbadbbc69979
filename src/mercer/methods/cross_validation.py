r"""Errors of held-out rows for many noises, from sums over the rows.

Rows that are in the training and test sets of the same splits form a group. With S the sums of a group, a training set
has the sums :math:`\sum S` over its groups: nothing is subtracted, so no digits cancel. From
:math:`A = Q\Theta Q^\top` of a training set (centred at its means for an intercept), :math:`z = (\Theta + \lambda)^{-1}
Q^\top c` are the weights in the eigenvectors' coordinates, and a test set has the squared error

.. math:: \sum\omega(y - f)^2 = q^\top C q, \qquad C = M^\top S M, \quad
    [Q^\top(v - \bar v), y - \bar y] = [v, y, 1]\,M,

with :math:`q = [-z, 1]`. C is known to some roundings of its trace, which :math:`|q|^2` multiplies. Where that is
visible beside the error, or the loss is no square, held-out rows are read once more.

==================  ==================  ===============  =======================================================
symbol              code                shape            meaning
==================  ==================  ===============  =======================================================
v̄, ȳ                ``problem.mean``    (m,), (p,)       means of the training set; zero without an intercept
S                   ``sums``            (m+p+1,)²        sums of a test set, ω [v, y, 1][v, y, 1]ᵀ
z                   ``weights``         (g, m, p)        weights at g noises
==================  ==================  ===============  =======================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer.engine import ArrayTable, Executor, NormalStatistics, available_memory, grouped, statistics_of_groups
from mercer.methods.frame import Frame, target_shift
from mercer.methods.held_out_rows import HeldOutRows
from mercer.methods.splits import Splits
from mercer.model import OneVsRest
from mercer.solvers.ridge import RidgePath, likely_noises

_EPS = float(np.finfo(np.float64).eps)
_VISIBLE = 1e-8  # share of an error that the rounding of sums may have before the rows are read


@dataclass(frozen=True)
class PathScores:
    """Errors of held-out rows for many noises.

    Attributes
    ----------
    noises : array (g,)
    errors : array (k, g, p)
        Weighted mean error of the held-out rows of each split, at each noise, of each output (p is 1 for
        ``loss="zero_one"``).
    units : array (p,)
        What errors of different outputs are divided by before they are averaged: the variances of the targets.
    """

    noises: FloatArray
    errors: FloatArray
    units: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Mean over the splits, (g, p)."""
        return np.asarray(np.mean(self.errors, axis=0))

    @property
    def standard_error(self) -> FloatArray:
        """Standard error of ``mean``, as if the splits were independent, (g, p)."""
        return _standard_error(self.errors)

    @property
    def best_noise(self) -> float:
        """The noise of the least mean error, averaged over the outputs in their units; the largest of equal ones."""
        mean = np.mean(self._joint, axis=0)
        return float(np.max(self.noises[mean == np.min(mean)]))

    @property
    def one_standard_error_noise(self) -> float:
        """The largest noise whose mean error is within one standard error of the least: as good, and smoother."""
        mean = np.mean(self._joint, axis=0)
        best = int(np.argmin(mean))
        return float(np.max(self.noises[mean <= mean[best] + _standard_error(self._joint)[best]]))

    @property
    def _joint(self) -> FloatArray:
        return np.asarray(np.mean(self.errors / self.units, axis=2))


def _standard_error(errors: FloatArray) -> FloatArray:
    return np.asarray(np.std(errors, axis=0, ddof=1) / np.sqrt(len(errors)))


def cross_validate(
    table: ArrayTable,
    frame: Frame,
    splits: Splits,
    noises: FloatArray | None,
    *,
    intercept: bool,
    coding: OneVsRest | None = None,
    executor: Executor,
) -> PathScores:
    """Errors of held-out rows: squared, or with a ``coding`` whether the class is wrong, for which rows are read again.

    Cost: that of one fit, an accumulator of m × m for each group, and for each split one eigendecomposition and as much
    again for its test set.
    """
    shift = target_shift(table, intercept=intercept)
    table = table.shifted(shift)
    sums = _sums(table, frame, splits, executor)
    total = reduce(NormalStatistics.__add__, sums)
    problem = frame.problem(total, shift, intercept=intercept)
    if noises is None:
        noises = likely_noises(float(np.trace(problem.gram)) / problem.n_targets)
    found = [
        _Split.of(frame, shift, sums, train, test, noises, intercept=intercept)
        for train, test in zip(splits.train.T, splits.test.T, strict=True)
    ]
    totals = np.array([split.total_weight for split in found])[:, np.newaxis, np.newaxis]

    def by_rows(which: Any, coding: OneVsRest | None) -> FloatArray:
        weights = tuple(split.weights[:, which] for split in found)
        constants = np.array([split.constants[which] for split in found])
        work = HeldOutRows(frame.features(whitened=True), weights, constants, splits.test, shift, coding)
        return executor.reduce(work, grouped(table, splits.groups))

    if coding is not None:
        return PathScores(noises, by_rows(slice(None), coding) / totals, np.ones(1))
    errors = np.array([split.squares for split in found])
    unclear = np.any([split.rounding > _VISIBLE * split.squares for split in found], axis=(0, 2))
    if np.any(unclear):
        errors[:, unclear] = by_rows(unclear, None)
    units = problem.squares / problem.total_weight
    return PathScores(noises, errors / totals, np.where(units > 0, units, 1.0))


def _sums(table: ArrayTable, frame: Frame, splits: Splits, executor: Executor) -> list[NormalStatistics]:
    n_groups, available = len(splits.train), available_memory()
    needed = 8 * n_groups * (len(frame.lower) + table.n_outputs + 1) ** 2
    if available is not None and needed > available:
        raise ValueError(
            f"cv makes {n_groups} groups of rows that its splits treat alike, whose sums take {needed / 1e9:.1f} GB of "
            f"memory, where {available / 1e9:.1f} GB are free: use fewer splits or basis points, or disjoint test sets "
            "(KFold, not ShuffleSplit). To leave out single rows, fit with noise='loo'."
        )
    features = frame.features(whitened=True)
    return statistics_of_groups(table, features, splits.groups, n_groups, executor=executor)


@dataclass(frozen=True)
class _Split:
    """Models of one training set, and what the sums of the test set say about them."""

    weights: FloatArray  # (m, g, p): on the whitened features
    constants: FloatArray  # (g, p)
    squares: FloatArray  # (g, p): Σ ω(y - f)² of the test set
    rounding: FloatArray  # (g, p): of squares
    total_weight: float  # of the test set

    @classmethod
    def of(
        cls, frame: Frame, shift: FloatArray, sums: list[NormalStatistics], train: Any, test: Any, noises: FloatArray,
        *, intercept: bool,
    ) -> _Split:  # fmt: skip
        trained, tested = (
            reduce(NormalStatistics.__add__, [sums[group] for group in np.flatnonzero(part)]) for part in (train, test)
        )
        for each, name in ((trained, "training"), (tested, "test")):
            if each.total_weight <= 0:
                raise ValueError(f"sample_weight is zero for all rows of a {name} set of cv.")
        path = frame.problem(trained, shift, intercept=intercept).path()
        z = np.array([path.inverse(float(noise))[:, np.newaxis] * path.projections for noise in noises])
        weights = np.einsum("ij,gjp->igp", path.eigenvectors, z, optimize=True)
        constants = path.problem.target_mean - np.einsum("i,igp->gp", path.problem.mean, weights)
        squares, rounding = _held_out(path, z, tested)
        return cls(weights, constants, squares, rounding, tested.total_weight)


def _held_out(path: RidgePath, z: FloatArray, tested: NormalStatistics) -> tuple[FloatArray, FloatArray]:
    """Squared errors (g, p) of a test set, and their rounding."""
    problem, Q, p = path.problem, path.eigenvectors, z.shape[2]
    m = len(Q)
    # [Qᵀ(v - v̄), y - ȳ] = [v, y, 1] M
    M = np.zeros((m + p + 1, m + p))
    M[:m, :m], M[m:-1, m:] = Q, np.eye(p)
    M[-1] = np.concatenate([-problem.mean @ Q, -problem.target_mean])
    C = M.T @ (tested.sums @ M)
    # qᵀCq with q = [-z, 1]
    B, d, s = C[:m, :m], C[:m, m:], np.diagonal(C)[m:]
    squares = s - 2 * np.einsum("gip,ip->gp", z, d) + np.einsum("gip,gip->gp", z, np.einsum("ij,gjp->gip", B, z))
    # |q|² times the trace, each output in its own units; √m roundings of the two products by M
    norms = np.linalg.norm(z, axis=1) * np.sqrt(np.trace(tested.gram))
    rounding = np.sqrt(len(M)) * _EPS * (norms + np.sqrt(np.diagonal(tested.moments)[:-1])) ** 2
    return np.maximum(squares, 0.0), rounding
