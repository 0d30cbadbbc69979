"""Sparse Gaussian processes whose basis points, kernel and noise are fitted together: the search."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from mercer._typing import FloatArray
from mercer.basis import Basis
from mercer.engine import ArrayTable, Executor, blas_threads, row_moments
from mercer.kernels import Kernel
from mercer.methods.committee import Batch, CommitteeSummary
from mercer.methods.frame import Frame, target_shift
from mercer.methods.nystrom import Settings, Summary
from mercer.methods.sparse_objective import SparseObjective
from mercer.model import KernelExpansion

_RANGE = np.log(1e4)  # parameters are looked for within this factor of where they start
_FEW_POINTS = 500
_LEAST_NOISE = 1e-6  # times the mean square of the targets
_NOISE_RATIOS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)  # to the prior variance; a search starts from the best of them
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
    objective: float  # logarithm of the likelihood, or its bound
    n_iter: int
    is_over: bool  # whether the search ended by itself


def fit_pseudo_inputs(
    table: ArrayTable,
    start: Frame,
    *,
    kind: Literal["fitc", "vfe"],
    noise: float,
    intercept: bool,
    freedom: Freedom,
    max_iter: int,
    tol: float,
    executor: Executor,
) -> PseudoInputFit:
    """Search from a basis, a kernel and a noise; weights of the table are above zero."""
    centred = table.shifted(target_shift(table, intercept=intercept)).targets
    unit = _root_mean_square(centred, table.weights)
    if not 1e-152 < unit < 1e152:
        raise ValueError(f"the targets are of size {unit:.1g}, whose square cannot be a variance: scale them.")
    scaled = ArrayTable(table.rows, centred / unit, table.weights)
    objective = SparseObjective(scaled, kind, executor)
    first = _Point(start.kernel * unit**-2, start.basis.points, noise * unit**-2)
    best, result = _search(objective, first, freedom, max_iter=max_iter, tol=tol)
    kernel = best.kernel * unit**2 if freedom.kernel else start.kernel
    frame = Frame.build(kernel, Basis(points=best.points, note=start.basis.note), np.dtype(np.float64), steady=True)
    noise = best.noise * unit**2 if freedom.noise else noise
    n_rows = objective.n_rows
    return PseudoInputFit(
        frame=frame,
        noise=noise,
        expansion=_expansion(table, frame, kind=kind, noise=noise, intercept=intercept, executor=executor),
        objective=-float(result.fun) * n_rows - n_rows * table.n_outputs * float(np.log(unit)),
        n_iter=int(result.nit),
        is_over=bool(result.success) or int(result.nit) < max_iter,
    )


def _expansion(
    table: ArrayTable, frame: Frame, *, kind: str, noise: float, intercept: bool, executor: Executor
) -> KernelExpansion:
    if kind == "fitc":
        summary = CommitteeSummary.start(frame, table, intercept=intercept)
        return summary.plus(Batch(table, None, noise), executor).expansion
    settings = Settings(noise=noise, intercept=intercept, prior=True)
    return Summary.start(frame, table, settings).plus(table, executor).solved[0]


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
    """The start with its best noise, and the best common factor of kernel and noise.

    A start whose noise is far too small for its kernel and points makes a search flee to a flat function. The noise
    is looked for up to the prior variance only: beyond, noise alone explains everything.
    """
    prior = float(np.mean(start.kernel.diagonal(start.points)))
    if not prior > 0:
        return start
    kernel, points = start.kernel * (1.0 / prior), start.points
    factors, values = zip(*(objective.best_factor(kernel, points, noise) for noise in _NOISE_RATIOS), strict=True)
    best = int(np.argmin(values))
    factor = float(factors[best])
    return _Point(kernel * factor, points, _NOISE_RATIOS[best] * factor)


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
