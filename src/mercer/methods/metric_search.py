"""A stationary kernel whose metric is learned in rounds, which are judged by leave-one-out errors.

A round starts from the best kernel so far. The gradients of the function fitted with it propose steps of its metric
(``metric``). The best of them is tried with other overall scales, by factors of two for as long as that helps.

The first round that does not make the squared error smaller by 2 % ends the search: a metric has seen the rows by which
it is judged, so smaller gains may be none.

All models have the same basis points. They are fitted to mapped rows, with ℓ = 1.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.base import clone

from mercer._typing import FloatArray, IntArray
from mercer.basis import Basis
from mercer.basis.uniform import draw_rows
from mercer.engine import ArrayRows, ArrayTable, Executor
from mercer.kernels import Kernel, Metric, Stationary
from mercer.kernels.median_distance import median_distance
from mercer.kernels.stationary import centre_of
from mercer.methods.frame import Frame
from mercer.methods.metric import metric_steps
from mercer.methods.nystrom import Settings, Summary
from mercer.model import KernelExpansion

LEARNING_ROWS = 20_000  # by which metrics are learned and compared
_MEDIAN_ROWS = 1000
_FACTOR, _MOST_FACTORS = 2.0, 3  # between overall scales, and how many of them in one direction
_BETTER = 0.98  # of the squared error: what a round must reach, and another overall scale


@dataclass(frozen=True)
class MetricTrial:
    """A kernel that was tried; its error is the mean squared leave-one-out error in units of that of the mean."""

    round: int
    kernel: Stationary
    noise: float
    error: float


def refine_metric(
    table: ArrayTable,
    kernel: Stationary,
    *,
    n_basis: int,
    rounds: int,
    deadline: float,
    rng: np.random.RandomState,
    executor: Executor,
    say: Callable[[str], None],
    others: Sequence[Stationary] = (),
    diagonal: bool = False,
) -> list[MetricTrial]:
    """Trials, the chosen one first; those of round 0 have the kernel's own metric, at some overall scales.

    ``others`` are kernels of the same formula and amplitude with other metrics: the best of all is where it starts.
    At least one model is fitted, and none is begun after the deadline (of ``time.monotonic()``). Rows beyond
    ``LEARNING_ROWS`` are left out. Cost: some ten fits on ``n_basis`` points for each round.
    """
    table = rows_in_memory(table, LEARNING_ROWS, rng)
    index = draw_rows(table.n_rows, n_basis, None, rng)
    search = _Search(table, index, clone(kernel).set_params(length_scale=1.0), executor, deadline, say)
    best = search.fit(_map(kernel, table.n_features), 0)
    for other in others:
        tried = best if search.is_late else search.fit(_map(other, table.n_features), 0)
        best = tried if tried.trial.error < best.trial.error else best
    best = search.best_scale(best, 0)
    for number in range(1, rounds + 1):
        found = None if search.is_late else search.round(best, number, diagonal=diagonal)
        if found is None or not found.trial.error < _BETTER * best.trial.error:
            break
        best = found
    return sorted(search.trials, key=lambda each: (each is not best.trial, each.error))


@dataclass(frozen=True)
class _Fit:
    trial: MetricTrial
    map: FloatArray  # A, (d, r)
    expansion: KernelExpansion  # of mapped rows


@dataclass
class _Search:
    table: ArrayTable
    index: IntArray  # of the basis points
    shape: Stationary
    executor: Executor
    deadline: float
    say: Callable[[str], None]
    trials: list[MetricTrial] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows = self.table.rows.read(0, self.table.n_rows)
        self.unit = spreads(rows)
        self.centred = rows - centre_of(rows)

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.deadline

    def fit(self, A: FloatArray, number: int) -> _Fit:
        """Fit to mapped rows, and leave rows out one by one."""
        mapped = ArrayRows(self.centred @ A, checked=True)
        table = replace(self.table, rows=mapped)
        expansion, noise, error = fit_and_judge(table, self.shape, mapped.take(self.index), executor=self.executor)
        kernel = clone(self.shape).set_params(length_scale=Metric(A * self.unit[:, np.newaxis], self.unit))
        trial = MetricTrial(number, kernel, noise, error)
        self.trials.append(trial)
        self.say(f"metric, round {number}: noise {noise:.2g}, leave-one-out error {np.sqrt(trial.error):.4g}")
        return _Fit(trial, A, expansion)

    def best_scale(self, best: _Fit, number: int) -> _Fit:
        """The fit, or a better one of other overall scale."""
        start = best
        for factor in (_FACTOR, 1 / _FACTOR):
            for _ in range(_MOST_FACTORS):
                tried = best if self.is_late else self.fit(best.map / factor, number)
                if not tried.trial.error < _BETTER * best.trial.error:
                    break
                best = tried
            if best is not start:  # so the other direction does not help
                break
        return best

    def round(self, start: _Fit, number: int, *, diagonal: bool) -> _Fit | None:
        """The best step from here; None if the function does not change."""
        products = start.expansion.gradient_product(
            self.centred @ start.map, self.table.weights, executor=self.executor
        )
        best, size = None, self._distance(start.map)
        for step in metric_steps(products, diagonal=diagonal):
            A = start.map @ step
            if best is None or not self.is_late:
                tried = self.fit(A * (size / self._distance(A)), number)
                best = tried if best is None or tried.trial.error < best.trial.error else best
        return None if best is None else self.best_scale(best, number)

    def _distance(self, A: FloatArray) -> float:
        """Median distance of mapped rows."""
        return median_distance(self.centred[:: -(-len(self.centred) // _MEDIAN_ROWS)] @ A)


def fit_and_judge(
    table: ArrayTable, kernel: Kernel, points: FloatArray, *, executor: Executor
) -> tuple[KernelExpansion, float, float]:
    """The model on these points with the likeliest noise, that noise, and the leave-one-out error; without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bad candidate is one that is not taken
        frame = Frame.build(kernel, Basis(points=points), np.dtype(np.float64))
        settings = Settings(noise="auto", intercept=True, prior=True)
        summary = Summary.start(frame, table, settings, once=executor).plus(table, executor)
        (expansion, noise), calibration = summary.solved, summary.calibration
    error = np.inf if calibration is None else calibration.relative_error()
    return expansion, noise, error if np.isfinite(error) else np.inf


def _map(kernel: Stationary, n_features: int) -> FloatArray:
    """A of the kernel's metric or length scales."""
    kernel.check(n_features)
    metric = kernel.metric
    return np.diag(kernel.inverse_scale(n_features)) if metric is None else metric.matrix


def rows_in_memory(table: ArrayTable, most: int, rng: np.random.RandomState) -> ArrayTable:
    """Rows of positive weight, at most so many, as float64."""
    some = table.subset(draw_rows(table.n_rows, most, table.weights, rng))
    rows = some.rows.read(0, some.n_rows).astype(np.float64, copy=False)
    return replace(some, rows=ArrayRows(rows, checked=True))


def spreads(rows: FloatArray) -> FloatArray:
    """Standard deviations of the inputs; 1 for constant ones."""
    _, exponents = np.frexp(np.max(np.abs(rows), axis=0))
    spread = np.std(np.ldexp(rows, -exponents), axis=0)  # of a size of one, so that squares are numbers
    return np.where(spread <= 1e-12, 1.0, np.ldexp(spread, exponents))
