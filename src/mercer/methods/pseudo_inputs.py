"""Sparse Gaussian processes whose basis points, kernel and noise are fitted together: the search."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from mercer._typing import FloatArray
from mercer.basis import Basis
from mercer.engine import ArrayTable, Executor, blas_threads, number_of, row_moments
from mercer.kernels import Kernel
from mercer.methods.committee import Batch, CommitteeSummary
from mercer.methods.frame import Frame, target_shift
from mercer.methods.nystrom import Settings, Summary
from mercer.methods.sparse_objective import SparseObjective
from mercer.model import Calibration, KernelExpansion

_RANGE = np.log(1e4)  # parameters are looked for within this factor of where they start
_FEW_POINTS = 500
_LEAST_NOISE = 1e-6  # times the mean square of the targets
_NOISE_RATIOS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)  # to the prior variance; a search starts from the best of them
# Times the length scales given. With as many points as rows and short length scales any noise looks like a function:
# a search that starts there ends at interpolation. Longer ones are where the noise can be told apart.
_LENGTHS = (2.0, 4.0, 8.0)
_UNDECIDED = 1.0  # nats that the least noise may be worse than the best where nothing tells them apart
_FARTHEST = 100.0  # standard deviations of the rows that a point may move
_STRIDES = 3.0  # per √m: a third of it did better than all of it, and than a tenth, on two data sets


class Freedom(NamedTuple):
    """What a search may change."""

    points: bool
    kernel: bool
    noise: bool


@dataclass(frozen=True)
class PseudoInputFit:
    """The model found, and how."""

    frame: Frame
    noise: float
    expansion: KernelExpansion
    calibration: Calibration | None
    objective: float  # logarithm of the likelihood, or its bound
    n_iter: int
    is_over: bool  # whether the search ended by itself


def fit_pseudo_inputs(
    table: ArrayTable,
    start: Frame,
    *,
    kind: Literal["fitc", "vfe"],
    noise: float | None,
    intercept: bool,
    freedom: Freedom,
    max_iter: int,
    tol: float,
    executor: Executor,
) -> PseudoInputFit:
    """Search from a basis, a kernel and a noise (None for the best of a few); weights of the table are above zero."""
    centred = table.shifted(target_shift(table, intercept=intercept)).targets
    unit, worth = _root_mean_square(centred, table.weights), _weight_of_a_row(table)
    if not 1e-152 < unit < 1e152:
        raise ValueError(f"the targets are of size {unit:.1g}, whose square cannot be a variance: scale them.")
    weights = None if table.weights is None else table.weights / worth
    scaled = ArrayTable(table.rows, centred / unit, weights, relative=not table.counted)
    variance = unit**2 * worth  # the unit of the noise
    objective = SparseObjective(scaled, kind, executor)
    first = _Point(start.kernel * unit**-2, start.basis.points, 1.0 if noise is None else noise / variance)
    if noise is None and not (freedom.kernel and freedom.noise):
        first = _with_best_noise(objective, first)
        noise = first.noise * variance
    best, result = _search(objective, first, freedom, max_iter=max_iter, tol=tol)
    kernel = best.kernel * unit**2 if freedom.kernel else start.kernel
    frame = Frame.build(kernel, Basis(points=best.points, note=start.basis.note), np.dtype(np.float64), steady=True)
    noise = best.noise * variance if noise is None or freedom.noise else noise
    n_rows = objective.n_rows
    expansion, calibration = _model(table, frame, kind=kind, noise=noise, intercept=intercept, executor=executor)
    if freedom.kernel or freedom.noise:  # the units of the targets are in the kernel and the noise
        expansion = replace(expansion, scale=np.ones(table.n_outputs))
    return PseudoInputFit(
        frame=frame,
        noise=noise,
        expansion=expansion,
        calibration=calibration,
        objective=-float(result.fun) * n_rows - n_rows * table.n_outputs * float(np.log(unit)),
        n_iter=int(result.nit),
        is_over=bool(result.success) or int(result.nit) < max_iter,
    )


def _model(
    table: ArrayTable, frame: Frame, *, kind: str, noise: float, intercept: bool, executor: Executor
) -> tuple[KernelExpansion, Calibration | None]:
    if kind == "fitc":
        batch, empty = Batch(table, None, noise), CommitteeSummary.start(frame, table, intercept=intercept)
        seen = empty.plus(batch, executor)
        return seen.expansion, seen.calibration([batch], executor)
    settings = Settings(noise=noise, intercept=intercept, prior=True)
    summary = Summary.start(frame, table, settings).plus(table, executor)
    return summary.solved[0], summary.calibration


def _weight_of_a_row(table: ArrayTable) -> float:
    """What a row counts one for: 1 of counts; of other weights so much that their sum is what they are worth."""
    if table.weights is None or table.counted:
        return 1.0
    return float(np.sum(table.weights)) / number_of(table.weights, counted=False)


def _root_mean_square(targets: FloatArray, weights: FloatArray | None) -> float:
    largest = float(np.max(np.abs(targets), initial=0.0))
    if largest == 0:
        return 1.0
    return largest * float(np.sqrt(np.mean(np.average((targets / largest) ** 2, axis=0, weights=weights))))


class _Point(NamedTuple):
    """Where a search stands."""

    kernel: Kernel
    points: FloatArray
    noise: float


def _search(
    objective: SparseObjective, start: _Point, freedom: Freedom, *, max_iter: int, tol: float
) -> tuple[_Point, OptimizeResult]:
    """L-BFGS on the objective per row; the targets have unit mean square, so that their units do not matter."""
    if not any(freedom):
        value = objective.value(*start) / objective.n_rows
        return start, OptimizeResult(fun=value, nit=0, success=True)
    # Between the passes are products of m x m matrices: while they are small, waking BLAS's threads costs more.
    with blas_threads(1) if len(start.points) <= _FEW_POINTS else nullcontext():
        if freedom.kernel and freedom.noise:
            start = _with_balanced_noise(objective, start)
        found, result = _descend(objective, start, _Coordinates(objective, start, freedom), max_iter=max_iter, tol=tol)
        rest = freedom._replace(points=False)
        if freedom.points and any(rest) and not result.success and result.nit < max_iter:
            # Where a kernel has a cusp, points on rows cannot leave them, and no step that moves points gains.
            steps, coordinates = result.nit, _Coordinates(objective, start._replace(points=found.points), rest)
            found, result = _descend(objective, found, coordinates, max_iter=max_iter - steps, tol=tol)
            result.nit += steps
        return found, result


def _with_balanced_noise(objective: SparseObjective, start: _Point) -> _Point:
    """The start with its best noise and length scales, and the best common factor of kernel and noise.

    A start whose noise is far too small for its kernel and points makes a search flee to a flat function. The noise
    is looked for up to the prior variance only: beyond, noise alone explains everything.
    """
    prior = float(np.mean(start.kernel.diagonal(start.points)))
    if not prior > 0:
        return start
    kernel = start.kernel * (1.0 / prior)
    best, undecided = _best_ratio(objective, kernel, start.points)
    if undecided:
        longer = [_best_ratio(objective, kernel, start.points)[0] for kernel in _stretched(kernel)]
        best = min([best, *longer], key=lambda candidate: candidate[0])
    return best[1]


def _best_ratio(objective: SparseObjective, kernel: Kernel, points: FloatArray) -> tuple[tuple[float, _Point], bool]:
    """The best of the noises with its value, and whether the least of them is as good: then rows tell nothing of it."""
    candidates = []
    for ratio in _NOISE_RATIOS:
        factor, value = objective.best_factor(kernel, points, ratio)
        candidates.append((value, _Point(kernel * factor, points, ratio * factor)))
    best = min(candidates, key=lambda candidate: candidate[0])
    return best, candidates[0][0] - best[0] <= _UNDECIDED


def _stretched(kernel: Kernel) -> list[Kernel]:
    """Kernels of longer length scales."""
    parameters = kernel.get_log_parameters()
    names = [name for name in parameters if name.endswith("length_scale")]
    return [
        kernel.with_log_parameters({**parameters, **{name: parameters[name] + np.log(factor) for name in names}})
        for factor in (_LENGTHS if names else ())
    ]


def _with_best_noise(objective: SparseObjective, start: _Point) -> _Point:
    """The start with the best of a few noises, for the kernel as it is."""
    prior = float(np.mean(start.kernel.diagonal(start.points)))
    noises = [ratio * (prior if prior > 0 else 1.0) for ratio in _NOISE_RATIOS]
    values = [objective.value(start.kernel, start.points, noise) for noise in noises]
    return start._replace(noise=noises[int(np.argmin(values))])


class _Coordinates:
    """What is free of a point, as a vector: positions, logarithms of the kernel's parameters by name, and of the noise.

    Positions are counted in units of √m times the spread of the rows, about: as a point concerns one row in m, the
    objective is then as curved by its position as by a parameter, and L-BFGS needs far fewer steps.
    """

    def __init__(self, objective: SparseObjective, start: _Point, freedom: Freedom) -> None:
        table = objective.table
        self.start, self.freedom = start, freedom
        self.centre, covariance = row_moments(table.rows, table.weights, executor=objective.executor)
        spread = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
        stride = float(np.sqrt(len(start.points))) / _STRIDES
        self.scale = np.where(spread > 0, spread, 1.0) * stride  # the unit of positions

        first, parameters = self.vector(start), start.kernel.get_log_parameters()
        far = {name: np.full(np.shape(value), _RANGE) for name, value in parameters.items()}
        reach = self.pack(np.full(start.points.shape, _FARTHEST / stride), far, _RANGE)
        self.bounds = np.column_stack([first - reach, first + reach])  # least and largest values
        if freedom.noise:
            # log λ at which noise is all there is
            unit = 0.0 if table.weights is None else float(np.log(np.mean(table.weights)))
            self.bounds[-1] = min(first[-1], unit + np.log(_LEAST_NOISE)), max(first[-1], unit + _RANGE)

    def vector(self, at: _Point) -> FloatArray:
        """Coordinates of a point."""
        positions = (at.points - self.centre) / self.scale
        return self.pack(positions, at.kernel.get_log_parameters(), float(np.log(at.noise)))

    def pack(self, points: FloatArray, parameters: dict[str, FloatArray], log_noise: float) -> FloatArray:
        """Those of the given values, or gradients, that are free."""
        names = sorted(self.start.kernel.get_log_parameters()) if self.freedom.kernel else []
        parts = [np.ravel(parameters[name]) for name in names]
        if self.freedom.points:
            parts.insert(0, points.ravel())
        return np.concatenate([*parts, [log_noise]] if self.freedom.noise else parts)

    def unpack(self, x: FloatArray) -> _Point:
        """The point; what is not free is the start's, to the last bit."""
        kernel, points, noise = self.start
        if self.freedom.points:
            moved, x = np.split(x, [points.size])
            points = np.ascontiguousarray(self.centre + moved.reshape(points.shape) * self.scale)
        if self.freedom.kernel:
            values = {}
            for name, value in sorted(kernel.get_log_parameters().items()):
                each, x = np.split(x, [np.size(value)])
                values[name] = each.reshape(np.shape(value))
            kernel = kernel.with_log_parameters(values)
        return _Point(kernel, points, float(np.exp(x[-1])) if self.freedom.noise else noise)


def _descend(
    objective: SparseObjective, start: _Point, coordinates: _Coordinates, *, max_iter: int, tol: float
) -> tuple[_Point, OptimizeResult]:
    """L-BFGS over the coordinates; if a line search fails, the point is what it was before.

    It stops when a step gains less than ``tol``, or than this share of the value if it is above 1.
    """
    reached = coordinates.vector(start)

    def function(x: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective.value_and_gradient(*coordinates.unpack(x))
        packed = coordinates.pack(gradient.points * coordinates.scale, gradient.parameters, gradient.log_noise)
        return value / objective.n_rows, packed / objective.n_rows

    def step(intermediate_result: OptimizeResult) -> None:
        nonlocal reached
        reached = intermediate_result.x.copy()
        if objective.executor.verbose:
            print(f"objective per row: {-intermediate_result.fun:.6g}", flush=True)

    options = {"maxiter": max_iter, "ftol": tol, "gtol": 1e-9, "maxcor": 20, "maxfun": 100 * (max_iter + 1)}
    result = minimize(
        function, reached, jac=True, method="L-BFGS-B", bounds=coordinates.bounds, callback=step, options=options
    )
    if not result.success and result.nit < max_iter:
        result.x, result.fun = reached, function(reached)[0]
    return coordinates.unpack(result.x), result
