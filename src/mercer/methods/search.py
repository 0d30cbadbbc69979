"""Which kernel suits the data: candidates fitted by marginal likelihood on some rows, judged by leave-one-out errors.

The first candidate has one length scale for all features. From its parameters the second starts, with a length scale
per feature, and from there the same of other smoothness, and sums of two, which follow a trend and what is left of it.
Each is fitted on at most ``DECIDING_ROWS`` rows and judged on three times as many: by errors of the exact model at
rows that it leaves out. If the model of all rows is to have a basis, the best are tried with one, on more rows: with
other overall scales, since a basis follows a smoother function better, and with a metric learned from gradients.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.basis.uniform import draw_rows
from mercer.engine import ArrayRows, ArrayTable, Executor, Threads, blas_threads
from mercer.engine.executors.crew import Crew, Tick
from mercer.kernels import Kernel, Matern, Stationary
from mercer.kernels.median_distance import median_distance
from mercer.methods.budget import Budget
from mercer.methods.exact import fit_exact
from mercer.methods.likelihood import DECIDING_ROWS, maximise_likelihood
from mercer.methods.metric_search import LEARNING_ROWS, fit_and_judge, refine_metric, rows_in_memory

_JUDGING_ROWS = 3 * DECIDING_ROWS  # by an exact model for each candidate
_JUDGING, _ON_BASIS = 0.05, 0.06  # shares of the time that may take, and a candidate on a basis
_FEW_ROWS = 500  # with which a search begins, at an eighth of the cost
# Steps with few rows, then with all that decide.
_COMMON, _EACH, _CLOSE, _SUMS = (15, 0), (40, 25), (10, 10), (25, 15)
_LEAST_START = 1e-6  # of the noise: from less, the likelihood is too flat to come back
_BASIS = 1000  # points, by which kernels are judged for a model on a basis
_FINALISTS = 3
_STRETCH = 2.0  # between the overall scales that are tried
_ROUNDS = 2  # of learning a metric
_SPREAD = 2.0  # of the logarithms of length scales, before the targets are seen
_WIDER = 4.0  # the length scales of a trend, relative to the others', at the start


@dataclass(frozen=True)
class Candidate:
    """A kernel that was tried."""

    name: str
    kernel: Kernel
    noise: float
    error: float  # mean squared, in units of the targets' variance, averaged over the outputs
    seconds: float
    hurried: bool = False  # whether its search was stopped by its share of the time


def _first(scales: FloatArray) -> Kernel:
    return Matern(length_scale=scales, nu=1.5)


# From length scales, the kernels that are tried, and steps of the search: the most promising first.
_OTHERS: dict[str, tuple[Callable[[FloatArray], Kernel], tuple[int, int]]] = {
    "matern 3/2 + matern 5/2": (
        lambda scales: _first(scales) + Matern(length_scale=_WIDER * scales, nu=2.5), _SUMS,
    ),
    "matern 1/2": (lambda scales: Matern(length_scale=scales, nu=0.5), _CLOSE),
    "matern 5/2": (lambda scales: Matern(length_scale=scales, nu=2.5), _CLOSE),
    "matern 1/2 + matern 5/2": (
        lambda scales: Matern(length_scale=scales, nu=0.5) + Matern(length_scale=scales, nu=2.5), _SUMS,
    ),
}  # fmt: skip
_MOST_SHARE = 0.5  # of the time that is left, for the kernel from whose length scales the others start
_FEWEST_SCALES = 10  # length scales that are taken to be there, at least, as the shape and the noise are chosen, too
_ROWS_PER_SCALE = 5  # that it takes to tell length scales of features apart


def n_candidates(n_rows: int, n_features: int) -> int:
    """How many kernels are to be tried: of few rows or many features only one, with a length scale for all."""
    return 2 + len(_OTHERS) if n_rows >= _ROWS_PER_SCALE * max(n_features, _FEWEST_SCALES) else 1


def search_kernel(
    table: ArrayTable,
    *,
    deadline: float,
    budget: Budget,
    rng: np.random.RandomState,
    executor: Executor,
    say: Callable[[str], None],
) -> list[Candidate]:
    """Candidates, the best first; at least one, whatever the deadline (of ``time.monotonic()``)."""
    used = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights > 0)
    order, judging = rng.permutation(used), min(_JUDGING_ROWS, max(_FEW_ROWS, budget.exact_rows(_JUDGING)))
    fitted, judged = _in_memory(table, order[:DECIDING_ROWS]), _in_memory(table, order[:judging])
    rows, targets = fitted.rows.read(0, fitted.n_rows), fitted.targets
    weights = np.ones(len(rows)) if fitted.weights is None else fitted.weights
    unit = _standardised(targets)
    tried: list[Candidate] = []

    few = slice(None, None, -(-len(rows) // _FEW_ROWS) or 1)  # rows may be in some order
    planned = n_candidates(len(used), rows.shape[1])

    def fit(
        kernel: Kernel, noise: float, max_iter: int, some: slice, deadline: float, tick: Tick
    ) -> tuple[Kernel, float, bool]:
        varied = unit[some][:, np.ptp(unit[some], axis=0) > 0]
        if not varied.shape[1] or len(varied) <= 2:
            return kernel, noise, False
        relative = max(noise / float(np.mean(kernel.diagonal(rows))), _LEAST_START)
        with blas_threads(1):  # on a thousand rows more of them gain little, and lose much on a busy machine
            found = maximise_likelihood(
                kernel, rows[some], varied, weights[some], counted=table.counted,
                noise=relative, spread=_SPREAD, max_iter=max_iter, deadline=deadline,
                say=lambda _: tick(0),
            )  # fmt: skip
        return found.kernel, found.noise, found.stopped

    def try_out(
        name: str, start: Kernel, noise: float, steps: tuple[int, int], *,
        executor: Executor = executor, at_once: int = 1, tick: Tick = lambda _: None,
    ) -> Candidate:  # fmt: skip
        began = time.monotonic()
        share = max(min(1.0, at_once / max(planned - len(tried), 1)), _MOST_SHARE if len(tried) == 1 else 0.0)
        until = began + share * (deadline - began) if deadline < np.inf else deadline
        kernel, noise, hurried = fit(start, noise, steps[0], few, until, tick)
        if steps[1] and not hurried:
            kernel, noise, hurried = fit(kernel, noise, steps[1], slice(None), until, tick)
        error = _left_out_error(judged, kernel, noise, executor)
        tried.append(Candidate(name, kernel, noise, error, time.monotonic() - began, hurried))
        say(f"{name}: error {np.sqrt(error):.3f}, {tried[-1].seconds:.1f} s")
        return tried[-1]

    common = Matern(length_scale=median_distance(rows))
    best = try_out("matern 3/2, one length scale", common, 0.1, _COMMON)
    scales = np.full(rows.shape[1], float(best.kernel.length_scale))
    if planned > 1 and time.monotonic() < deadline:
        best = try_out("matern 3/2", _first(scales), best.noise, _EACH)
        scales, noise = np.asarray(best.kernel.length_scale), best.noise
        at_once = min(len(_OTHERS), getattr(executor, "n_jobs", 1))

        def follow(name: str, tick: Tick) -> None:
            (start, steps), alone = _OTHERS[name], Threads(1) if at_once > 1 else executor
            if time.monotonic() < deadline:
                try_out(name, start(scales), noise, steps, executor=alone, at_once=at_once, tick=tick)

        # On a thousand rows more threads of BLAS gain little: kernels share the processors instead.
        Crew(follow, lambda _: None, list(_OTHERS), lambda _: None).run(
            at_once, ahead=len(_OTHERS), hold=blas_threads(1) if at_once > 1 else nullcontext()
        )
    return sorted(tried, key=_by_error)


def judge_on_basis(
    table: ArrayTable,
    candidates: list[Candidate],
    *,
    deadline: float,
    budget: Budget,
    rng: np.random.RandomState,
    executor: Executor,
    say: Callable[[str], None],
) -> list[Candidate]:
    """The best candidates, as they are and with other metrics, by their errors on a basis; the best first."""
    some = rows_in_memory(table, LEARNING_ROWS, rng)
    n_basis = min(_BASIS, budget.basis_size(some.n_rows, _ON_BASIS))
    index = draw_rows(some.n_rows, n_basis, some.weights, rng)
    points = some.rows.take(index)
    tried: list[Candidate] = []

    def try_out(name: str, kernel: Kernel) -> Candidate:
        began = time.monotonic()
        _, noise, error = fit_and_judge(some, kernel, points, executor=executor)
        tried.append(Candidate(f"{name}, on a basis", kernel, noise, error, time.monotonic() - began))
        say(f"{name}, on {len(points)} points: error {np.sqrt(error):.3f}, {tried[-1].seconds:.1f} s")
        return tried[-1]

    for candidate in candidates[:_FINALISTS]:
        if tried and time.monotonic() > deadline:
            break
        best = try_out(candidate.name, candidate.kernel)
        while time.monotonic() < deadline:
            wider = try_out(candidate.name, _stretched(best.kernel, _STRETCH))
            if wider.error >= best.error:
                break
            best = wider
    plain = [each for each in sorted(tried, key=_by_error) if isinstance(each.kernel, Stationary)]
    if plain and time.monotonic() < deadline:
        began, start = time.monotonic(), plain[0]
        learned = refine_metric(
            some, start.kernel, n_basis=n_basis, rounds=_ROUNDS, deadline=deadline, rng=rng, executor=executor, say=say,
        )[0]  # fmt: skip
        name = f"{start.name}, learned metric"
        tried.append(Candidate(name, learned.kernel, learned.noise, learned.error, time.monotonic() - began))
    return sorted(tried, key=_by_error)


def _by_error(candidate: Candidate) -> float:
    return candidate.error


def _stretched(kernel: Kernel, factor: float) -> Kernel:
    """The kernel with all length scales multiplied."""
    return kernel.with_log_parameters(
        {
            name: value + np.log(factor)
            for name, value in kernel.get_log_parameters().items()
            if name.endswith("length_scale")
        }
    )


def _standardised(targets: FloatArray) -> FloatArray:
    """Targets with a standard deviation of one, without those that are constant; of any size."""
    if len(targets) == 0:
        return targets[:, :0]
    centred = targets - targets[0]
    largest = np.max(np.abs(centred), axis=0)
    centred = centred[:, largest > 0] / largest[largest > 0]
    return np.asarray(centred / np.std(centred, axis=0))


def _left_out_error(table: ArrayTable, kernel: Kernel, noise: float, executor: Executor) -> float:
    """Mean squared leave-one-out error of the exact model, in units of the targets' variance."""
    fit = fit_exact(
        table, kernel, noise=noise, intercept=True, solver="cholesky",
        tol=1e-6, max_iter=1000, random_state=None, executor=executor,
    )  # fmt: skip
    return 1.0 if fit.calibration is None else fit.calibration.relative_error()


def _in_memory(table: ArrayTable, index: IntArray) -> ArrayTable:
    some = table.subset(np.sort(index))
    rows = some.rows.read(0, some.n_rows).astype(np.float64)
    return ArrayTable(ArrayRows(rows, checked=True), some.targets, some.weights, relative=not table.counted)
