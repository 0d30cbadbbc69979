"""Sparse Gaussian processes whose basis points, kernel and noise are fitted together: the search."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import OptimizeResult

from mercer._typing import FloatArray
from mercer.basis import Basis
from mercer.engine import ArrayTable, Executor, blas_threads, row_moments
from mercer.kernels import Kernel
from mercer.methods.committee import Batch, CommitteeSummary
from mercer.methods.descent import Descent
from mercer.methods.frame import Frame, target_shift
from mercer.methods.nystrom import Settings, Summary
from mercer.methods.sparse_objective import SparseObjective
from mercer.model import KernelExpansion

__all__ = ["Freedom", "PseudoInputFit", "fit_pseudo_inputs"]

_DTYPE = np.dtype(np.float64)
_RANGE = np.log(1e4)  # parameters are looked for within this factor of where they start
_FEW_POINTS = 500
_LEAST_NOISE = 1e-6  # times the mean square of the targets
_NOISE_RATIOS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)  # to the prior variance; a search starts from the best of them
_FARTHEST = 100.0  # standard deviations of the rows that a point may move


@dataclass(frozen=True)
class Freedom:
    """What a search may change."""

    points: bool
    kernel: bool
    noise: bool


@dataclass(frozen=True)
class PseudoInputFit:
    """The model found, and how.

    Attributes
    ----------
    frame : Frame
    noise : float
    expansion : KernelExpansion
    objective : float
        Logarithm of the likelihood, or its bound.
    n_iter : int
    is_over : bool
        Whether the search ended by itself.
    """

    frame: Frame
    noise: float
    expansion: KernelExpansion
    objective: float
    n_iter: int
    is_over: bool


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
        msg = f"the targets are of size {unit:.1g}, whose square cannot be a variance: scale them."
        raise ValueError(msg)
    scaled = ArrayTable(table.rows, centred / unit, table.weights)
    search = _Search(
        objective=SparseObjective(scaled, kind, executor),
        start=_Point(start.kernel * unit**-2, start.basis.points, noise * unit**-2),
        freedom=freedom,
    )
    best, result = search.run(max_iter=max_iter, tol=tol)
    kernel = best.kernel * unit**2 if freedom.kernel else start.kernel
    frame = Frame.build(kernel, Basis(points=best.points, note=start.basis.note), _DTYPE, steady=True)
    noise = best.noise * unit**2 if freedom.noise else noise
    n_rows = search.objective.n_rows
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


def _stride(n_points: int) -> float:
    return float(np.sqrt(n_points)) / 3.0  # a third did better than all of it, and than a tenth, on two data sets


@dataclass(frozen=True)
class _Point:
    """Where a search stands."""

    kernel: Kernel
    points: FloatArray
    noise: float

    def __mul__(self, factor: float) -> _Point:
        return _Point(self.kernel * factor, self.points, self.noise * factor)


@dataclass(frozen=True)
class _Search:
    """L-BFGS over positions and logarithms, on the objective per row.

    The targets have unit mean square, so that their units do not matter. Positions are counted in units of √m times the
    spread of the rows, about: as a point concerns one row in m, the objective is then as curved by its position as by a
    parameter, and L-BFGS needs far fewer steps.
    """

    objective: SparseObjective
    start: _Point
    freedom: Freedom

    def run(self, *, max_iter: int, tol: float) -> tuple[_Point, OptimizeResult]:
        start, n = self.start, self.objective.n_rows
        if not (self.freedom.points or self.freedom.kernel or self.freedom.noise):
            value = self.objective.value(start.kernel, start.points, start.noise) / n
            return start, OptimizeResult(fun=value, nit=0, success=True)
        # Between the passes are products of m x m matrices: while they are small, waking BLAS's threads costs more.
        with blas_threads(1) if len(start.points) <= _FEW_POINTS else nullcontext():
            if self.freedom.kernel and self.freedom.noise:
                start = self._with_balanced_noise()
            centre, scale = self._units()
            first = self._pack(
                (start.points - centre) / scale, start.kernel.get_log_parameters(), float(np.log(start.noise))
            )

            def function(x: FloatArray) -> tuple[float, FloatArray]:
                point = self._unpack(x, centre, scale)
                value, gradient = self.objective.value_and_gradient(point.kernel, point.points, point.noise)
                return value / n, self._pack(gradient.points * scale, gradient.parameters, gradient.log_noise) / n

            descent = Descent(function, self._bounds(first), tol=tol, verbose=self.objective.executor.verbose)
            result = descent.run(first, max_iter, n_positions=start.points.size if self.freedom.points else 0)
            return self._unpack(result.x, centre, scale), result

    def _with_balanced_noise(self) -> _Point:
        """The start with its best noise, and the best common factor of kernel and noise.

        A start whose noise is far too small for its kernel and points makes a search flee to a flat function. The noise
        is looked for up to the prior variance only: beyond, noise alone explains everything.
        """
        kernel, points = self.start.kernel, self.start.points
        prior = float(np.mean(kernel.diagonal(points)))
        if not prior > 0:
            return self.start
        kernel, noises = kernel * (1.0 / prior), _NOISE_RATIOS
        factors, values = zip(*(self.objective.best_factor(kernel, points, noise) for noise in noises), strict=True)
        best = int(np.argmin(values))
        return _Point(kernel, points, noises[best]) * float(factors[best])

    def _units(self) -> tuple[FloatArray, FloatArray]:
        """Origin and unit of the positions, (d,) each."""
        objective = self.objective
        table = objective.table
        mean, covariance = row_moments(table.rows, table.weights, executor=objective.executor)
        spread = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
        return mean, np.where(spread > 0, spread, 1.0) * _stride(len(self.start.points))

    def _bounds(self, first: FloatArray) -> list[tuple[float, float]]:
        free = self.start.points.size if self.freedom.points else 0
        reach = np.full(len(first), _RANGE)
        reach[:free] = _FARTHEST / _stride(len(self.start.points))
        low, high = first - reach, first + reach
        if self.freedom.noise:
            weights = self.objective.table.weights
            unit = 0.0 if weights is None else float(np.log(np.mean(weights)))  # log λ at which noise is all there is
            low[-1], high[-1] = min(first[-1], unit + np.log(_LEAST_NOISE)), max(first[-1], unit + _RANGE)
        return list(zip(low, high, strict=True))

    def _pack(self, points: FloatArray, parameters: dict[str, FloatArray], log_noise: float) -> FloatArray:
        parts = [points.ravel()] if self.freedom.points else []
        if self.freedom.kernel:
            parts += [np.ravel(parameters[name]) for name in self._names]
        if self.freedom.noise:
            parts.append(np.array([log_noise]))
        return np.concatenate(parts)

    def _unpack(self, x: FloatArray, centre: FloatArray, scale: FloatArray) -> _Point:
        (kernel, points, noise), at = (self.start.kernel, self.start.points, self.start.noise), 0
        if self.freedom.points:
            points, at = np.ascontiguousarray(centre + x[: points.size].reshape(points.shape) * scale), points.size
        if self.freedom.kernel:
            values = {}
            for name in self._names:
                shape = np.shape(kernel.get_log_parameters()[name])
                size = int(np.prod(shape))
                values[name], at = x[at : at + size].reshape(shape), at + size
            kernel = kernel.with_log_parameters(values)
        if self.freedom.noise:
            noise = float(np.exp(x[-1]))
        return _Point(kernel, points, noise)

    @property
    def _names(self) -> list[str]:
        return sorted(self.start.kernel.get_log_parameters())
