r"""Support vector machines on a basis: Newton's method in the primal, on features of one pass per step.

With whitened features v and :math:`f(x) = v(x)^\top u + b`,

.. math:: \tfrac12|u|^2 + \sum_i c_i\,\ell(y_i - f(x_i))

has the gradient :math:`u - \sum\beta_iv_i` and a Hessian that sums :math:`\sigma_iv_iv_i^\top` over free rows (see
``margins``). Squared losses are minimised by Newton steps, as many as it takes until the free rows stay the same. For
the others each minimum of the smoothed loss gives the anchors of the next: the augmented Lagrangian method, which
converges to the minimum of the loss itself while σ stays moderate.

β that sum to zero are feasible in the dual, whose value is
:math:`\sum(\beta_iy_i - \varepsilon|\beta_i|) - \tfrac12|\sum\beta_iv_i|^2` (for squared losses less Σβ²/2σ). Those of
a pass become so when the ones of one sign are scaled. Thus each pass bounds how far its point is from the minimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from mercer._typing import FloatArray, IntArray
from mercer.engine import ArrayRows, ArrayTable, Coding, Executor, left_out_parts, relative_weights, unit_of
from mercer.engine.executors.threads import working_memory_bytes
from mercer.engine.statistics import NormalPass, NormalStatistics
from mercer.methods.frame import Frame, target_shift
from mercer.methods.margins import Design, Evaluate, Loss, Pulls, StoreDesign, Sums, row_terms
from mercer.model import Calibration, KernelExpansion
from mercer.model.calibration import SAMPLE, sample_rows
from mercer.solvers.newton import NewtonSearch

_STORED_SHARE = 0.5  # of the working memory that features may take
_PLAIN_ERROR = 1e-3  # largest share of the least eigenvalue of a Hessian that rounding may be where it is summed plain
# Rows on which a search begins, for each basis point and at least, and how many times as many make that worthwhile.
_BEGINNING, _FEWEST, _WORTHWHILE = 16, 4096, 4
_BEGUN = 1e-3  # duality gap of that beginning
_FLOOR = 1e-3  # share of Σc that the intercept's curvature is given where no row is free, as it then has none
_SETTLED = 0.1  # a smoothed loss is minimised until the next step gains less than this share of the strain
_SHARPER, _EASILY = 4.0, 6  # by what σ grows where a minimum took no more passes than that
_STIFF = 100.0  # σ/c that smoothed losses may reach
_LARGEST = 1e150  # target whose square, summed over rows, is a number
_ENOUGH = 200  # rows by which a model is judged
_ROUNDED = 1e-6  # a duality gap that rounding may leave


class Solution(NamedTuple):
    """The functions that were found, and how far they are from the minimum."""

    expansion: KernelExpansion
    support: FloatArray  # number of rows with β > 0 and with β < 0, (p, 2)
    gaps: FloatArray  # duality gaps relative to the objective, (p,)
    objectives: FloatArray  # (p,)
    n_passes: int
    converged: bool
    calibration: Calibration


@dataclass(frozen=True)
class Settings:
    """How to search."""

    loss: Loss
    intercept: bool
    tol: float  # relative duality gap
    max_iter: int  # passes


@dataclass(frozen=True, eq=False)
class _Data:
    """Rows with targets, and the features that are computed from them."""

    table: ArrayTable
    design: Design
    frame: Frame
    is_whitened: bool  # whether features are v, not k
    total: float  # Σ ω

    @classmethod
    def of(cls, table: ArrayTable, frame: Frame, loss: Loss, executor: Executor) -> _Data:
        """Features are stored where there is memory, else computed in each pass, whitened where it matters."""
        total = float(table.n_rows if table.weights is None else np.sum(table.weights))
        design = Design.of(NormalPass(frame.features(whitened=True), 0))
        if 8 * table.n_rows * design.width <= _STORED_SHARE * working_memory_bytes():
            features = executor.map(StoreDesign(design), ArrayTable(table.rows))
            table = replace(table, rows=ArrayRows(features, checked=True))
            return cls(table, design.stored(), frame, is_whitened=True, total=total)
        # Entries of K_mnDK_nm are known to eps; whitening divides them by the pivots.
        stiffest = 2.0 * loss.cost * (1.0 if loss.squared else _STIFF)
        rounding = np.finfo(np.float64).eps * total * stiffest * frame.largest_kernel**2 / frame.smallest_pivot
        whitened = not (frame.kernel.same_diagonal and rounding <= _PLAIN_ERROR)
        return cls(table, Design.of(NormalPass(frame.features(whitened=whitened), 0)), frame, whitened, total)

    def weights(self, positions: FloatArray) -> FloatArray:
        """Coefficients (width, a) of the features, for positions (a, m + 1)."""
        m, weights = self.design.n_features, np.zeros((self.design.width, len(positions)))
        u = positions[:, :m].T
        weights[:m] = u if self.is_whitened else self.frame.unwhiten(u)
        weights[m] = positions[:, m]
        return weights

    def whitened(self, sums: Sums) -> Sums:
        """Sums of v from those of k."""
        if self.is_whitened:
            return sums
        m = self.design.n_features
        pulls = sums.pulls.copy()
        pulls[:, :m] = solve_triangular(self.frame.lower, pulls[:, :m].T, lower=True, check_finite=False).T
        hessian = NormalStatistics(sums.hessian, m, 0).whitened(self.frame.lower).sums
        return sums._replace(pulls=pulls, hessian=hessian)


class _Function:
    """The search for one function: Newton steps, and where the loss is smoothed, one search after the other."""

    def __init__(self, column: int, start: FloatArray, sharpness: float, total_cost: float, settings: Settings) -> None:
        self.column, self.sharpness = column, sharpness
        self._settings, self._floor = settings, _FLOOR * total_cost
        self.search, self._n_told = NewtonSearch(start), 0
        self.gap = self.objective = np.inf
        self.is_settled = self.is_done = False

    def receive(self, sums: Sums) -> None:
        """Take the sums at the trial point."""
        position, loss = self.search.trial, self._settings.loss
        gradient, hessian = self._newton(sums, position)
        penalty = 0.5 * float(position[:-1] @ position[:-1])
        self._n_told += 1
        if not self.search.tell(penalty + float(sums.totals[0]), gradient, hessian) and not self.search.is_stuck:
            return
        if self.search.point is position:
            self.hessian, self.support = hessian, sums.support
            self.objective = penalty + float(np.sum(sums.losses))
            self.gap = self.objective - self._dual(sums)
        strain = float(sums.totals[1])
        still = self.search.is_stuck and (loss.squared or strain <= _ROUNDED * self._settings.tol * self.objective)
        self.is_done = still or self.gap <= self._settings.tol * self.objective
        self.is_settled = self.is_done or self.search.is_stuck
        if not loss.squared:
            self.is_settled |= self.search.decrement <= _SETTLED * strain

    def sharpen(self) -> None:
        """Search on from here, with new anchors."""
        if self._n_told <= _EASILY:
            self.sharpness *= _SHARPER
        self.search, self._n_told, self.is_settled = NewtonSearch(self.search.point), 0, False

    def _newton(self, sums: Sums, position: FloatArray) -> tuple[FloatArray, FloatArray]:
        gradient, hessian = -np.sum(sums.pulls, axis=0), sums.hessian.copy()
        gradient[:-1] += position[:-1]
        hessian[np.diag_indices(len(position) - 1)] += 1.0
        if self._settings.intercept:
            hessian[-1, -1] += self._floor if hessian[-1, -1] == 0 else 0.0
        else:
            gradient[-1] = hessian[-1, :-1] = hessian[:-1, -1] = 0.0
            hessian[-1, -1] = 1.0
        return gradient, hessian

    def _dual(self, sums: Sums) -> float:
        """Value of the dual at β that sum to zero."""
        shares = np.ones(2)
        if self._settings.intercept:
            totals = np.abs(sums.pulls[:, -1])
            shares = np.min(totals) / np.where(totals > 0, totals, 1.0)
        value = float(shares @ sums.gains)
        if self._settings.loss.squared:
            value -= float(shares**2 @ sums.losses)
        return value - 0.5 * float(np.sum((shares @ sums.pulls[:, :-1]) ** 2))

    def solve(self, right: FloatArray) -> FloatArray:
        """H⁻¹ right, H as it was at the minimum."""
        return np.asarray(cho_solve(cho_factor(self.hessian, lower=True), right))

    @property
    def is_converged(self) -> bool:
        """Whether the gap is closed, or the next step of Newton's method on the loss itself would gain nothing."""
        minimal = (
            self._settings.loss.squared and self.search.decrement <= _ROUNDED * self._settings.tol * self.objective
        )
        return self.is_done and (minimal or self.relative_gap <= max(self._settings.tol, _ROUNDED))

    @property
    def relative_gap(self) -> float:
        """Of the objective."""
        return max(self.gap, 0.0) / self.objective if self.objective > 0 else 0.0


@dataclass(frozen=True, eq=False)
class _Anchored(Coding):
    """Targets with anchors behind them, of labels that hold both."""

    inner: Coding
    n_functions: int

    @property
    def n_columns(self) -> int:
        return 2 * self.n_functions

    def columns(self, codes: FloatArray) -> FloatArray:  # type: ignore[override]
        return np.column_stack([self.inner.columns(codes[:, 0].astype(np.intp)), codes[:, 1:]])


def _anchored(table: ArrayTable, anchors: FloatArray) -> ArrayTable:
    """The table with anchors (n, p) behind its targets."""
    if table.coding is None:
        return replace(table, labels=np.column_stack([table.targets, anchors]), shift=None)
    labels = np.column_stack([np.asarray(table.labels, dtype=np.float64), anchors])
    return replace(table, labels=labels, coding=_Anchored(table.coding, table.n_outputs))


@dataclass(eq=False)
class _Fit:
    """Functions that are searched for in the same passes."""

    data: _Data
    functions: list[_Function]
    settings: Settings
    executor: Executor
    n_passes: int = 0

    @cached_property
    def anchors(self) -> FloatArray:
        """β of the last minimum, (n, p)."""
        return np.zeros((self.data.table.n_rows, self.data.table.n_outputs))

    def run(self) -> None:
        """Pass after pass, until all are done or there were too many."""
        table = self.data.table
        while self.n_passes < self.settings.max_iter and not all(each.is_done for each in self.functions):
            self.n_passes += 1
            searching = [each for each in self.functions if not each.is_settled]
            if searching:
                what = self._what(searching, [each.search.trial for each in searching])
                found: list[Sums] = self.executor.reduce(Evaluate(**what), table)
                for function, sums in zip(searching, found, strict=True):
                    function.receive(self.data.whitened(sums))
                continue
            table = self._moved(table)

    def _moved(self, table: ArrayTable) -> ArrayTable:
        """The table with the β of what was found as anchors."""
        going = [each for each in self.functions if not each.is_done]
        what = self._what(going, [f.search.point for f in going])
        self.anchors[:, what["columns"]] = self.executor.map(Pulls(**what), table)
        for function in going:
            function.sharpen()
        return _anchored(self.data.table, self.anchors)

    def _what(self, functions: list[_Function], positions: list[FloatArray]) -> dict[str, Any]:
        return {
            "design": self.data.design,
            "weights": self.data.weights(np.array(positions)),
            "columns": np.array([each.column for each in functions]),
            "sharpness": np.array([each.sharpness for each in functions]),
            "n_columns": self.data.table.n_outputs,
            "loss": self.settings.loss,
        }


def fit_support_vectors(
    table: ArrayTable, frame: Frame, settings: Settings, *, executor: Executor, start: KernelExpansion | None = None
) -> Solution:
    """Fit a function to each column of the targets, from an expansion on this basis if one is given."""
    shift = _shift(table, settings)
    table = table.shifted(shift)
    largest = float(np.max(np.abs(table.targets), initial=0.0))
    if largest > _LARGEST:
        raise ValueError(f"the targets go up to {largest:.1g}: their squares overflow. Scale y.")
    starts = _beginning(table, frame, settings, executor) if start is None else _positions(start, frame, shift)
    fits = _minimise(table, frame, starts, settings, executor)
    functions = [each for fit in fits for each in fit.functions]
    positions = np.array([each.search.point for each in functions])
    gaps = np.array([each.relative_gap for each in functions])
    expansion = KernelExpansion(
        frame.kernel, frame.basis.points, frame.unwhiten(positions[:, :-1].T), positions[:, -1] + shift
    )
    return Solution(
        expansion,
        support=np.array([each.support for each in functions]),
        gaps=gaps,
        objectives=np.array([each.objective for each in functions]),
        n_passes=max(fit.n_passes for fit in fits),
        converged=all(each.is_converged for each in functions),
        calibration=_calibration(table, frame, fits, shift),
    )


def _minimise(
    table: ArrayTable, frame: Frame, starts: FloatArray, settings: Settings, executor: Executor
) -> list[_Fit]:
    """Search for all functions, as many in the same passes as there is memory for."""
    data = _Data.of(table, frame, settings.loss, executor)
    together = max(1, int(working_memory_bytes() // (4 * 8 * data.design.width**2)))
    widths, fits = _widths(table, settings.loss), []
    for first in range(0, len(starts), together):
        functions = [
            _Function(j, starts[j], 1.0 / widths[j], settings.loss.cost * data.total, settings)
            for j in range(first, min(first + together, len(starts)))
        ]
        fits.append(_Fit(data, functions, settings, executor))
        fits[-1].run()
    return fits


def _beginning(table: ArrayTable, frame: Frame, settings: Settings, executor: Executor) -> FloatArray:
    """Positions (p, m + 1) by some of the rows, where there are many; else zeros."""
    m = len(frame.lower)
    used = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights > 0)
    size = max(_BEGINNING * m, _FEWEST)
    zeros = np.zeros((table.n_outputs, m + 1))
    if len(used) < _WORTHWHILE * size:
        return zeros
    some = table.subset(sample_rows(used, size))
    share = float(np.sum(some.weights) / np.sum(table.weights)) if some.weights is not None else size / len(used)  # type: ignore[arg-type]
    loss = replace(settings.loss, cost=settings.loss.cost / share)
    fits = _minimise(some, frame, zeros, replace(settings, loss=loss, tol=max(settings.tol, _BEGUN)), executor)
    return np.array([each.search.point for fit in fits for each in fit.functions])


def _positions(start: KernelExpansion, frame: Frame, shift: FloatArray) -> FloatArray:
    """[u, b] of an expansion on the basis: u = Lᵀw."""
    return np.column_stack([(frame.lower.T @ start.coefficients).T, start.intercept - shift])


def _shift(table: ArrayTable, settings: Settings) -> FloatArray:
    """What is subtracted from the targets of a regression, so that their offset costs no digits."""
    return target_shift(table, intercept=settings.intercept and not settings.loss.one_sided)


def _widths(table: ArrayTable, loss: Loss) -> FloatArray:
    """Errors over which a loss is smoothed at first, (p,): all of them."""
    if loss.one_sided or loss.squared:
        return np.ones(table.n_outputs)
    spread = np.sqrt(np.average(table.targets**2, axis=0, weights=table.weights))
    return np.where(spread > 0, spread, 1.0)


def _calibration(table: ArrayTable, frame: Frame, fits: list[_Fit], shift: FloatArray) -> Calibration:
    r"""Values of a sample of the rows by functions that do not know them.

    While the same rows are free, taking a row away moves its value to f - βg/(1 - σg), g = [v, 1]ᵀH⁻¹[v, 1] (the second
    term for free rows only): for squared losses that is ridge regression's, for the others the span of the support
    vectors (Chapelle and Vapnik 2000). Rows with β = 0 do not matter to the function.
    """
    index = _judges(table, frame)
    sample = table.subset(index)
    targets, weights = sample.targets, np.ones(len(index)) if sample.weights is None else sample.weights
    rows = frame.features(whitened=True).tile(sample.rows.read(0, len(index)))
    features = np.column_stack([rows, np.ones(len(index))])
    residuals = np.empty_like(targets)
    part = left_out_parts(weights, counted=table.counted) / weights
    for fit in fits:
        for each in fit.functions:
            j = [each.column]
            anchors = 0.0 if fit.settings.loss.squared else fit.anchors[index][:, j]
            errors = targets[:, j] - (features @ each.search.point)[:, np.newaxis]
            costs = fit.settings.loss.cost * weights[:, np.newaxis]
            terms = row_terms(errors, targets[:, j], costs, anchors, fit.settings.loss, np.array([each.sharpness]))
            g = np.einsum("ij,ji->i", features, each.solve(features.T))
            left = 1.0 - part * (terms.free * terms.stiffness)[:, 0] * g
            residuals[:, each.column] = errors[:, 0] + part * terms.pulls[:, 0] * g / np.where(left > 0, left, np.nan)
    known = np.all(np.isfinite(residuals), axis=1)
    return Calibration(
        (targets + shift)[known], residuals[known], np.ones(int(np.sum(known))),
        relative_weights(weights, counted=table.counted)[known], unit_of(weights, counted=table.counted),
    )  # fmt: skip


def _judges(table: ArrayTable, frame: Frame) -> IntArray:
    """Some rows, without those of the basis, which it represents better than new ones, if enough others are left."""
    used = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights > 0)
    others = used if frame.basis.index is None else np.setdiff1d(used, frame.basis.index)
    return sample_rows(others if len(others) >= _ENOUGH else used, SAMPLE)
