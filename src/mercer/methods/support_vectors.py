r"""Support vector machines on a basis: Newton's method in the primal, on features of one pass per step.

With whitened features v and :math:`f(x) = v(x)^\top u + b`,

.. math:: \tfrac12|u|^2 + \sum_i c_i\,\ell(y_i - f(x_i))

has the gradient :math:`u - \sum\beta_iv_i` and a Hessian that sums :math:`\sigma_iv_iv_i^\top` over free rows (see
``margins``). Squared losses are minimised by Newton steps, as many as it takes until the free rows stay the same. For
the others each minimum of the smoothed loss gives the anchors of the next: the augmented Lagrangian method, which
converges to the minimum of the loss itself while σ stays moderate. A step that is too long takes one pass more.

β that sum to zero are feasible in the dual, whose value is
:math:`\sum(\beta_iy_i - \varepsilon|\beta_i|) - \tfrac12|\sum\beta_iv_i|^2` (for squared losses less Σβ²/2σ). Those of
a pass become so when the ones of one sign are scaled. Thus each pass bounds how far its point is from the minimum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from mercer._typing import FloatArray
from mercer.engine import ArrayRows, ArrayTable, Executor
from mercer.engine.executors.threads import working_memory_bytes
from mercer.engine.statistics import NormalPass, NormalStatistics
from mercer.methods.frame import Frame, target_shift
from mercer.methods.left_out_margins import Judges
from mercer.methods.margins import Design, Evaluate, Loss, Pulls, StoreDesign, Sums, anchored
from mercer.model import Calibration, KernelExpansion
from mercer.model.calibration import sample_rows
from mercer.solvers.newton import NewtonSearch

_STORED_SHARE = 0.5  # of the working memory that features may take
_PLAIN_ERROR = 1e-3  # largest share of the least eigenvalue of a Hessian that rounding may be where it is summed plain
# Rows on which a search begins, for each basis point and at least, and how many times as many make that worthwhile.
_BEGINNING, _FEWEST, _WORTHWHILE = 16, 4096, 4
_BEGUN = 1e-3  # duality gap of a beginning
# σk(x, x) above which pieces are many, and a search begins with smaller σ: for squared losses with smaller C, which
# differ by the second number.
_STEEP, _RUNG = 1e2, 1e2
_FLOOR = 1e-3  # share of Σc that the intercept's curvature is given where no row is free, as it then has none
_SETTLED = 0.1  # a smoothed loss is minimised until the next step gains less than this share of the strain
_SHARPER, _EASILY = 4.0, 6  # by what σ grows where a minimum took no more passes than that
# σ/c with which smoothed losses begin, and that they may reach by plain and by whitened sums; 1 smooths over errors as
# large as the targets. Beginning softly, most rows are free, and the first steps good; what is stiffer is rounding.
_SOFT, _STIFF, _STIFFEST = 0.1, 1e2, 1e4
_LARGEST = 1e150  # target whose square, summed over rows, is a number
_ROUNDED = 1e-6  # a duality gap that rounding may leave
_EPSILON = float(np.finfo(np.float64).eps)
_STILL = 64 * _EPSILON  # share of the objective below which a strain is rounding


class Solution(NamedTuple):
    """The functions that were found, and how far they are from the minimum."""

    expansion: KernelExpansion
    support: FloatArray  # number of rows with β > 0 and with β < 0, (p, 2)
    gaps: FloatArray  # duality gaps relative to the objective, (p,)
    objectives: FloatArray  # (p,)
    n_passes: int
    converged: bool
    rounded: bool  # whether it is rounding that ended the search
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
    widths: FloatArray  # errors over which a loss is smoothed at first: all of them, (p,)
    stiffest: float  # what σ/c of smoothed losses may reach, as a multiple of 1/widths
    cost: float  # C

    @classmethod
    def of(cls, table: ArrayTable, frame: Frame, loss: Loss, executor: Executor) -> _Data:
        """Features are stored where there is memory, else computed in each pass, whitened where rounding matters."""
        total = float(table.n_rows if table.weights is None else np.sum(table.weights))
        widths, design = _widths(table, loss), Design.of(NormalPass(frame.features(whitened=True), 0))
        if 8 * table.n_rows * design.width <= _STORED_SHARE * working_memory_bytes():
            features = executor.map(StoreDesign(design), ArrayTable(table.rows))
            table = replace(table, rows=ArrayRows(features, checked=True))
            return cls(table, design.stored(), frame, True, total, widths, _STIFFEST, loss.cost)
        # Entries of K_mnDK_nm are known to eps; whitening divides them by the pivots.
        sigma = loss.cost * (2.0 if loss.squared else _STIFF / float(np.min(widths)))
        rounding = _EPSILON * total * sigma * frame.largest_kernel**2 / frame.smallest_pivot
        if not (frame.kernel.same_diagonal and rounding <= _PLAIN_ERROR):
            return cls(table, design, frame, True, total, widths, _STIFFEST, loss.cost)
        design = Design.of(NormalPass(frame.features(whitened=False), 0))
        stiffest = min(_STIFFEST, _STIFF * _PLAIN_ERROR / rounding)
        return cls(table, design, frame, False, total, widths, stiffest, loss.cost)

    @property
    def steepness(self) -> FloatArray:
        """Ck(x, x) of a row of the mean weight, for errors in units of the widths, (p,)."""
        return self.cost * (self.total / self.table.n_rows) * self.frame.largest_kernel / self.widths

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

    def __init__(self, column: int, start: FloatArray, data: _Data, settings: Settings) -> None:
        self.column = column
        softest = min(_SOFT, _STEEP / float(data.steepness[column]))
        self.sharpness, self._sharpest = softest / data.widths[column], data.stiffest / data.widths[column]
        self._settings, self._floor = settings, _FLOOR * settings.loss.cost * data.total
        self.search, self._n_told = NewtonSearch(start), 0
        self.gap = self.objective = np.inf
        self.is_settled = self.is_done = False

    def receive(self, sums: Sums) -> None:
        """Take the sums at the trial point."""
        position, loss = self.search.trial, self._settings.loss
        gradient, hessian = self._newton(sums, position)
        penalty = 0.5 * float(position[:-1] @ position[:-1])
        self._n_told += 1
        value = penalty + float(sums.totals[0])
        if not self.search.tell(value, gradient, hessian, self._slopes(sums)) and not self.search.is_stuck:
            return
        if self.search.point is position:
            self.hessian, self.support = hessian, sums.support
            self.objective = penalty + float(np.sum(sums.losses))
            self.gap = self.objective - self._dual(sums)
        strain = float(sums.totals[1])
        sharp = self.sharpness >= self._sharpest and strain <= _STILL * self.objective
        still = self.search.is_stuck and (loss.squared or sharp)
        self.is_done = still or self.gap <= self._settings.tol * self.objective
        self.is_settled = self.is_done or self.search.is_stuck
        if not loss.squared:
            self.is_settled |= self.search.decrement <= _SETTLED * strain

    def sharpen(self) -> None:
        """Search on from here, with new anchors."""
        if self._n_told <= _EASILY:
            self.sharpness = min(self.sharpness * _SHARPER, self._sharpest)
        self.search, self._n_told, self.is_settled = NewtonSearch(self.search.point), 0, False

    def _slopes(self, sums: Sums) -> FloatArray:
        """Slopes of the objective at the other lengths of the step."""
        point, along = self.search.point[:-1], self.search.direction[:-1]
        return np.asarray(sums.slopes + point @ along + self.search.lengths * (along @ along))

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

    @property
    def is_converged(self) -> bool:
        """Whether the gap is closed, or the next step of Newton's method on the loss itself would gain nothing."""
        least = max(_ROUNDED * self._settings.tol, _EPSILON) * self.objective
        minimal = self._settings.loss.squared and self.search.decrement <= least
        return self.is_done and (minimal or self.relative_gap <= max(self._settings.tol, _ROUNDED))

    @property
    def relative_gap(self) -> float:
        """Of the objective."""
        return max(self.gap, 0.0) / self.objective if self.objective > 0 else 0.0


@dataclass(eq=False)
class _Fit:
    """Functions that are searched for in the same passes."""

    data: _Data
    functions: list[_Function]
    settings: Settings
    executor: Executor
    n_passes: int = 0
    anchors: FloatArray | None = None  # β of the last minima, (n, a), if there was one

    def run(self) -> None:
        """Pass after pass, until all are done or there were too many."""
        table = self.data.table
        while self.n_passes < self.settings.max_iter and not all(each.is_done for each in self.functions):
            self.n_passes += 1
            searching = [each for each in self.functions if not each.is_settled]
            if searching:
                for function, sums in zip(searching, self._evaluated(searching, table), strict=True):
                    function.receive(self.data.whitened(sums))
                continue
            table = self._moved(table)

    def _evaluated(self, functions: list[_Function], table: ArrayTable) -> list[Sums]:
        searches = [each.search for each in functions]
        directions = self.data.weights(np.array([each.direction for each in searches]))
        steps = np.column_stack([each.lengths - each.length for each in searches])
        what = self._what(functions, [each.trial for each in searches])
        return self.executor.reduce(Evaluate(**what, directions=directions, steps=steps), table)

    def _moved(self, table: ArrayTable) -> ArrayTable:
        """The table with the β of what was found as anchors."""
        if self.anchors is None:
            table = anchored(table, len(self.functions))
            self.anchors = np.asarray(table.labels)[:, -len(self.functions) :]
        going = [each for each in self.functions if not each.is_done]
        what = self._what(going, [each.search.point for each in going])
        self.anchors[:, what["places"]] = self.executor.map(Pulls(**what), table)
        for function in going:
            function.sharpen()
        return table

    def judge(self, judges: Judges) -> None:
        """Let rows that are left out judge the functions."""
        for place, each in enumerate(self.functions):
            anchors = None if self.anchors is None else self.anchors[:, place]
            judges.judge(each.column, each.search.point, each.hessian, self.settings.loss, anchors, each.sharpness)

    def _what(self, functions: list[_Function], positions: list[FloatArray]) -> dict[str, Any]:
        columns = np.array([each.column for each in functions])
        return {
            "design": self.data.design,
            "weights": self.data.weights(np.array(positions)),
            "columns": columns,
            "places": columns - self.functions[0].column,
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
    largest = 0.0 if table.coding is not None else float(np.max(np.abs(table.targets), initial=0.0))
    if largest > _LARGEST:
        raise ValueError(f"the targets go up to {largest:.1g}: their squares overflow. Scale y.")
    data, judges = _Data.of(table, frame, settings.loss, executor), Judges.of(table, frame)
    starts, n_passes = (
        _begin(table, data, settings, executor) if start is None else (_positions(start, frame, shift), 0)
    )
    left, found = replace(settings, max_iter=settings.max_iter - n_passes), []
    for fit in _minimise(data, starts, left, executor):
        fit.judge(judges)
        # without its Hessians
        found += [(f.search.point, f.support, f.relative_gap, f.objective, f.is_converged) for f in fit.functions]
        n_passes = max(n_passes, settings.max_iter - left.max_iter + fit.n_passes)
    positions, support, gaps, objectives, converged = (np.array(each) for each in zip(*found, strict=True))
    w = frame.unwhiten(positions[:, :-1].T)
    return Solution(
        KernelExpansion(frame.kernel, frame.basis.points, w, positions[:, -1] + shift),
        support=support,
        gaps=gaps,
        objectives=objectives,
        n_passes=n_passes,
        converged=bool(np.all(converged)),
        rounded=n_passes < settings.max_iter,
        calibration=judges.calibration(shift),
    )


def _minimise(data: _Data, starts: FloatArray, settings: Settings, executor: Executor) -> Iterator[_Fit]:
    """Search for all functions, as many in the same passes as there is memory for."""
    together = max(1, int(working_memory_bytes() // (4 * 8 * data.design.width**2)))
    for first in range(0, len(starts), together):
        places = range(first, min(first + together, len(starts)))
        fit = _Fit(data, [_Function(j, starts[j], data, settings) for j in places], settings, executor)
        fit.run()
        yield fit


def _begin(table: ArrayTable, data: _Data, settings: Settings, executor: Executor) -> tuple[FloatArray, int]:
    """Positions (p, m + 1) to begin at, and how many passes over all rows they took."""
    used = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights > 0)
    size = max(_BEGINNING * data.design.n_features, _FEWEST)
    if len(used) < _WORTHWHILE * size:
        return _climb(data, settings, executor)
    some = table.subset(sample_rows(used, size))
    share = size / len(used) if some.weights is None else float(np.sum(some.weights)) / data.total
    rough = replace(
        settings, loss=replace(settings.loss, cost=settings.loss.cost / share), tol=max(settings.tol, _BEGUN)
    )
    few = _Data.of(some, data.frame, rough.loss, executor)
    starts, _ = _climb(few, rough, executor)
    return _points(_minimise(few, starts, rough, executor))[0], 0


def _climb(data: _Data, settings: Settings, executor: Executor) -> tuple[FloatArray, int]:
    """Positions by smaller C, each from those of the last, for large C; and how many passes they took."""
    positions: FloatArray = np.zeros((data.table.n_outputs, data.design.n_features + 1))
    steepness, n_passes = max(float(np.max(data.steepness)), 1.0), 0
    n_rungs = int(np.log(steepness) / np.log(_RUNG)) if settings.loss.squared else 0
    for rung in range(n_rungs - 1, 0, -1):
        if settings.max_iter - n_passes >= 2:
            loss = replace(settings.loss, cost=settings.loss.cost / _RUNG**rung)
            half = (settings.max_iter - n_passes) // 2
            rough = replace(settings, loss=loss, tol=max(settings.tol, _BEGUN), max_iter=half)
            positions, taken = _points(_minimise(data, positions, rough, executor))
            n_passes += taken
    return positions, n_passes


def _points(fits: Iterable[_Fit]) -> tuple[FloatArray, int]:
    """Where searches ended (p, m + 1), and how many passes they took."""
    found = [(each.search.point, fit.n_passes) for fit in fits for each in fit.functions]
    return np.array([point for point, _ in found]), max(taken for _, taken in found)


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
