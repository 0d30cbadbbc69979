"""Sparse Gaussian processes whose basis points, kernel and noise are fitted together: the search."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from mercer._typing import AnyArray, FloatArray
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
    return Summary.start(frame, table, settings, once=False).plus(table, executor).solved[0]


def _root_mean_square(targets: FloatArray, weights: FloatArray | None) -> float:
    largest = float(np.max(np.abs(targets), initial=0.0))
    if largest == 0:
        return 1.0
    return largest * float(np.sqrt(np.mean(np.average((targets / largest) ** 2, axis=0, weights=weights))))


@dataclass(frozen=True)
class _Point:
    """Where a search stands."""

    kernel: Kernel
    points: FloatArray
    noise: float

    def __mul__(self, factor: float) -> _Point:
        return _Point(self.kernel * factor, self.points, self.noise * factor)


def _search(
    objective: SparseObjective, start: _Point, freedom: Freedom, *, max_iter: int, tol: float
) -> tuple[_Point, OptimizeResult]:
    """L-BFGS on the objective per row; the targets have unit mean square, so that their units do not matter."""
    n = objective.n_rows
    if not any(freedom):
        value = objective.value(start.kernel, start.points, start.noise) / n
        return start, OptimizeResult(fun=value, nit=0, success=True)
    # Between the passes are products of m x m matrices: while they are small, waking BLAS's threads costs more.
    with blas_threads(1) if len(start.points) <= _FEW_POINTS else nullcontext():
        if freedom.kernel and freedom.noise:
            start = _with_balanced_noise(objective, start)
        coordinates = _Coordinates.of(objective.table, start, freedom, objective.executor)

        def function(x: FloatArray) -> tuple[float, FloatArray]:
            at = coordinates.unpack(x)
            value, gradient = objective.value_and_gradient(at.kernel, at.points, at.noise)
            by_points = gradient.points * coordinates.scale
            return value / n, coordinates.pack(by_points, gradient.parameters, gradient.log_noise) / n

        first = coordinates.first()
        free, bounds = coordinates.limits(first, objective.table.weights)
        descend = partial(_descend, function, bounds=bounds, tol=tol, verbose=objective.executor.verbose)
        result = descend(first, free, max_iter=max_iter)
        free[: start.points.size] = False
        if freedom.points and np.any(free) and not result.success and result.nit < max_iter:
            # Where a kernel has a cusp, points on rows cannot leave them, and no step that moves points gains.
            steps = result.nit
            result = descend(result.x, free, max_iter=max_iter - steps)
            result.nit += steps
        return coordinates.unpack(result.x), result


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
    return _Point(kernel, points, _NOISE_RATIOS[best]) * float(factors[best])


@dataclass(frozen=True)
class _Coordinates:
    """A point as a vector: positions, logarithms of the kernel's parameters by name, and of the noise.

    Positions are counted in units of √m times the spread of the rows, about: as a point concerns one row in m, the
    objective is then as curved by its position as by a parameter, and L-BFGS needs far fewer steps.
    """

    start: _Point
    freedom: Freedom
    centre: FloatArray  # (d,), origin of the positions
    scale: FloatArray  # (d,), their unit
    stride: float  # of the unit, in spreads of the rows

    @classmethod
    def of(cls, table: ArrayTable, start: _Point, freedom: Freedom, executor: Executor) -> _Coordinates:
        """Find the origin and unit of positions in the rows."""
        mean, covariance = row_moments(table.rows, table.weights, executor=executor)
        spread = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
        stride = float(np.sqrt(len(start.points))) / _STRIDES
        return cls(start, freedom, mean, np.where(spread > 0, spread, 1.0) * stride, stride)

    def first(self) -> FloatArray:
        """Where the search starts."""
        positions = (self.start.points - self.centre) / self.scale
        return self.pack(positions, self.start.kernel.get_log_parameters(), float(np.log(self.start.noise)))

    def pack(self, points: FloatArray, parameters: dict[str, FloatArray], log_noise: float) -> FloatArray:
        """Positions, free or not, parameters if they are, and the noise."""
        names = sorted(self.start.kernel.get_log_parameters()) if self.freedom.kernel else []
        values = [np.ravel(parameters[name]) for name in names]
        return np.concatenate([points.ravel(), *values, [log_noise]])

    def unpack(self, x: FloatArray) -> _Point:
        """The point; what is not free is the start's, to the last bit."""
        kernel, points, noise = self.start.kernel, self.start.points, self.start.noise
        at = points.size
        if self.freedom.points:
            points = np.ascontiguousarray(self.centre + x[:at].reshape(points.shape) * self.scale)
        if self.freedom.kernel:
            values = {}
            for name, value in sorted(kernel.get_log_parameters().items()):
                values[name], at = x[at : at + np.size(value)].reshape(np.shape(value)), at + np.size(value)
            kernel = kernel.with_log_parameters(values)
        return _Point(kernel, points, float(np.exp(x[-1])) if self.freedom.noise else noise)

    def limits(self, first: FloatArray, weights: FloatArray | None) -> tuple[AnyArray, FloatArray]:
        """Which coordinates are free, shape (k,), and their least and largest values (k, 2)."""
        n_positions = self.start.points.size
        n_each = [n_positions, len(first) - n_positions - 1, 1]
        reach = np.repeat([_FARTHEST / self.stride, _RANGE, _RANGE], n_each)
        low, high = first - reach, first + reach
        unit = 0.0 if weights is None else float(np.log(np.mean(weights)))  # log λ at which noise is all there is
        low[-1], high[-1] = min(first[-1], unit + np.log(_LEAST_NOISE)), max(first[-1], unit + _RANGE)
        return np.repeat(self.freedom, n_each), np.column_stack([low, high])


def _descend(
    function: Callable[[FloatArray], tuple[float, FloatArray]],
    first: FloatArray,
    free: AnyArray,
    *,
    bounds: FloatArray,
    max_iter: int,
    tol: float,
    verbose: int,
) -> OptimizeResult:
    """L-BFGS over the free coordinates; if a line search fails, x is what it was before.

    It stops when a step gains less than ``tol``, or than this share of the value if it is above 1.
    """
    reached = first[free]

    def whole(x: FloatArray) -> FloatArray:
        at = first.copy()
        at[free] = x
        return at

    def part(x: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = function(whole(x))
        return value, gradient[free]

    def step(intermediate_result: OptimizeResult) -> None:
        nonlocal reached
        reached = intermediate_result.x.copy()
        if verbose:
            print(f"objective per row: {-intermediate_result.fun:.6g}", flush=True)

    options = {"maxiter": max_iter, "ftol": tol, "gtol": 1e-9, "maxcor": 20, "maxfun": 100 * (max_iter + 1)}
    result = minimize(part, reached, jac=True, method="L-BFGS-B", bounds=bounds[free], callback=step, options=options)
    if not result.success and result.nit < max_iter:
        result.x, result.fun = reached, part(reached)[0]
    result.x = whole(result.x)
    return result
