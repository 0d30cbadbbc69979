r"""Targets so far from all others that they alone would decide a fit by least squares.

With deviations from the median in descending order, :math:`r_1 \ge r_2 \ge \dots`, at most k of n rows, 5 %, are
outlying: those with

.. math:: r_i > r_{k+1}\,e^{H(c + \log(k+1))}, \qquad
    H = \frac1{m-k}\Bigl(k\log\frac{r_{k+1}}{r_{m+1}} + \sum_{i=k+1}^m\log\frac{r_i}{r_{m+1}}\Bigr), \quad m = 2k + 5.

H is Hill's estimate of how heavy the tail is, from rows that are not in question (of the k it is only known that they
are larger): if the tail went on like a power law, one of the k would be beyond that limit with a probability of about
:math:`e^{-c}`. The tails of most laws become lighter further out. What the features explain is not outlying:
candidates that other rows predict are kept.

==================  ==================  ============================================================================
symbol              code                meaning
==================  ==================  ============================================================================
r                   ``deviations``      (n, p) half the distances from the median, so that they do not overflow
k                   ``most``            rows that may be outlying
c                   ``_IMPROBABLE``
r_{k+1}             ``ordinary``        (p,) the largest deviation of the others
==================  ==================  ============================================================================
"""

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine import ArrayRows, ArrayTable, Executor
from mercer.kernels import Matern
from mercer.kernels.median_distance import median_distance
from mercer.methods.exact import fit_exact
from mercer.model.calibration import sample_rows

_FEWEST = 10  # rows, of which it can be said that one is far from the others
_MOST = 0.05  # share of the rows
_IMPROBABLE = 6.0
_LEAST, _LARGEST = 10.0, 1e4  # limits of r_i/r_{k+1}, whatever H is: it is infinite if most targets are equal
_JUDGED, _JUDGING = 200, 800  # rows by which it is found whether features explain candidates
_EXPLAINED = 0.3  # of the logarithm of a deviation: what is predicted, at least, of explained ones
_NUMBER = 1e300
_NAMED = 5  # rows, in a warning


def outlying_targets(table: ArrayTable, executor: Executor) -> IntArray:
    """Numbers of the rows with an outlying target that the features (of a kernel's scale) do not explain."""
    targets = table.targets
    if table.n_rows < _FEWEST:
        return np.empty(0, dtype=np.intp)
    signed = targets / 2 - np.median(targets / 2, axis=0)
    ordinary, far = far_from_others(np.abs(signed))
    index = np.flatnonzero(np.any(far, axis=1))
    if len(index) == 0:
        return index
    judged = sample_rows(index, _JUDGED)
    others = sample_rows(np.setdiff1d(np.arange(table.n_rows), index, assume_unique=True), _JUDGING)
    some = np.union1d(judged, others)
    with np.errstate(over="ignore"):  # infinite ones are cut off
        ratios = np.minimum(np.abs(signed[some]) / ordinary, _NUMBER)
    explained = _are_explained(table, some, np.sign(signed[some]) * np.log1p(ratios), far[some], executor)
    explained = explained[np.isin(some, judged)]
    if len(judged) == len(index):
        return index[~explained]
    return index if np.mean(explained) < 0.5 else index[:0]  # what holds for most of the judged, holds for all


def describe_outlying(targets: FloatArray, index: IntArray, numbers: IntArray) -> str:
    """A warning that names rows, by their numbers among all rows, how far they are, and what to do."""
    deviations = np.abs(targets / 2 - np.median(targets / 2, axis=0))
    ordinary, _ = far_from_others(deviations)
    with np.errstate(over="ignore"):
        ratios = np.max(deviations[index] / ordinary, axis=1)
    order = np.argsort(-ratios, kind="stable")[:_NAMED]
    named = ", ".join(f"{numbers[index[i]]}" for i in order) + (", ..." if len(index) > _NAMED else "")
    return (
        f"{len(index)} of {len(targets)} targets are so far from all others that they would decide the fit alone: up "
        f"to {np.max(ratios):.2g} times as far from the median as 95 % of the rows (row numbers from 0: {named}). The "
        "model is fitted without them, and intervals count them. If they are errors, remove them; if they are right, "
        "fit the logarithm of the targets, or another function of them that does not spread so far."
    )


def far_from_others(deviations: FloatArray) -> tuple[FloatArray, AnyArray]:
    """The largest deviation of those not in question, (p,), and which (n, p) are too far from it."""
    n = len(deviations)
    most = max(1, int(_MOST * n))
    end = min(2 * most + 5, n - 2)
    ordered = -np.sort(-deviations, axis=0)
    ordinary, last = ordered[most], ordered[end]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        known = np.log(ordered[most:end] / last)
        tail = (most * known[0] + np.sum(known, axis=0)) / len(known)
        tail = np.where(last > 0, tail, np.inf)
        ratio = np.exp(np.clip(tail * (_IMPROBABLE + np.log(most + 1)), np.log(_LEAST), np.log(_LARGEST)))
        limit = np.where(ordinary > 0, ordinary * ratio, np.inf)  # of equal targets any other one is far
    return np.where(ordinary > 0, ordinary, 1.0), deviations > limit


def _are_explained(
    table: ArrayTable, some: IntArray, heights: FloatArray, far: AnyArray, executor: Executor
) -> AnyArray:
    """Which of some rows (k,) are predicted by the others to be as far from the median, on a logarithmic scale."""
    rows = table.rows.take(some).astype(np.float64, copy=False)
    fit = fit_exact(
        ArrayTable(ArrayRows(rows, checked=True), heights), Matern(length_scale=median_distance(rows)), noise="auto",
        intercept=True, solver="cholesky", tol=1e-6, max_iter=1000, random_state=None, executor=executor,
    )  # fmt: skip
    if fit.calibration is None or len(fit.calibration.residuals) < len(some):
        return np.zeros(len(some), dtype=bool)
    unexplained = np.abs(fit.calibration.residuals) > (1 - _EXPLAINED) * np.abs(heights)
    return np.asarray(~np.any(far & unexplained, axis=1))
