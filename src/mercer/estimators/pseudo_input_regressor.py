"""Regression on pseudo-inputs: basis points, kernel and noise fitted together."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from mercer._stored import stored
from mercer._stored.checks import check_estimator
from mercer._typing import FloatArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions
from mercer.basis import Basis
from mercer.engine import ArrayTable, SomeRows, blas_threads, row_moments
from mercer.estimators.committee_summary import Batch, CommitteeSummary
from mercer.estimators.descent import Descent
from mercer.estimators.frame import Frame
from mercer.estimators.nystrom_summary import Settings, Summary
from mercer.estimators.on_basis import BASIS_CONSTRAINTS, OnBasis
from mercer.estimators.regression import KernelRegressor
from mercer.estimators.shell import (
    Data,
    all_or_nothing,
    encode_targets,
    make_executor,
    read_data,
    rows_with_a_say,
)
from mercer.estimators.sparse_objective import SparseObjective
from mercer.kernels import Kernel
from mercer.model import KernelExpansion

__all__ = ["PseudoInputRegressor"]

_DTYPE = np.dtype(np.float64)
_RANGE = np.log(1e4)  # parameters are looked for within this factor of where they start
_FEW_POINTS = 500
_LEAST_NOISE = 1e-6  # times the mean square of the targets
_NOISE_RATIOS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)  # to the prior variance; a search starts from the best of them
_FARTHEST = 100.0  # standard deviations of the rows that a point may move


@stored
class PseudoInputRegressor(KernelRegressor, OnBasis, BaseEstimator):
    r"""Sparse Gaussian process whose basis points, kernel and noise are fitted together.

    Maximises, by L-BFGS with exact gradients, the marginal likelihood of the FITC approximation (Snelson and
    Ghahramani), or the variational lower bound of the exact marginal likelihood (Titsias), over the positions of m
    basis points, the kernel's parameters and the noise.

    Time n·m² per step, for two passes over the rows (a third, to sum k(x, x), for the bound); seven passes before the
    first step; memory m² per thread and n.

    Parameters
    ----------
    kernel : str or kernel, default="gaussian"
        Where the parameters start: a name ("gaussian", "matern", "linear", "polynomial") or a kernel of
        ``mercer.kernels`` that has gradients. Parameters are looked for within a factor of 10 000. One length scale per
        feature is fitted if the kernel has an array of them.
    n_basis : int, default=100
        m; if there are fewer rows, all are taken.
    basis : str, strategy or array (m, d), default="uniform"
        Where the basis points start.
    objective : {"vfe", "fitc"}, default="vfe"
        The variational bound, which does not overfit as points are added, or the marginal likelihood of FITC, whose
        variances may follow noise that differs between inputs.
    noise : float, default=0.1
        Where λ starts; above zero. If kernel and noise are both fitted, the search begins with the best noise for the
        kernel and with the best common factor of the two: neither this value nor the units of the targets matter. What
        is found is at least 1e-6 of the targets' mean square.
    fit_points, fit_kernel, fit_noise : bool, default=True
        What is fitted.
    intercept : bool, default=False
        Whether to add a constant b that is not penalised. The objective is then that of the targets less their mean.
    max_iter : int, default=300
        Most steps of L-BFGS.
    tol : float, default=1e-5
        Stop when a step gains less than this per row (or than this share of the objective, if it is above 1 per row),
        or when no step gains more than rounding.
    random_state : int, RandomState or None, default=None
        For the choice of the first basis, and of the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel as fitted.
    basis_ : array (rank_, d)
        Basis points as fitted; points that have met others are left out.
    noise_ : float
        λ as fitted; add it to the variance of the function for that of an observation.
    objective_value_ : float
        Log marginal likelihood (of FITC) or its lower bound.
    n_iter_ : int
        Steps of L-BFGS.
    rank_, coefficients_, intercept_, expansion_
        As for ``NystromRegressor``.

    See Also
    --------
    NystromRegressor : Basis points that stay where they are; much faster.

    References
    ----------
    E. Snelson, Z. Ghahramani: Sparse Gaussian processes using pseudo-inputs, NIPS 2005. M. K. Titsias: Variational
    learning of inducing variables in sparse Gaussian processes, AISTATS 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import PseudoInputRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, size=(500, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=500)
    >>> model = PseudoInputRegressor(n_basis=8, random_state=0).fit(X, y)
    >>> bool(0.008 < model.noise_ < 0.012)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BASIS_CONSTRAINTS,
        "objective": [StrOptions({"fitc", "vfe"})],
        "noise": [Interval(Real, 0, None, closed="neither")],
        "fit_points": ["boolean"],
        "fit_kernel": ["boolean"],
        "fit_noise": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }

    noise_: float
    n_iter_: int
    objective_value_: float
    expansion_: KernelExpansion
    _fitted_frame: Frame

    def check_stored(self) -> None:
        """Refuse an expansion on another basis."""
        points, n_outputs = self.expansion_.points, self.expansion_.coefficients.shape[1]
        check_estimator(self, n_outputs=n_outputs, n_features=points.shape[1], flat=self._flat)
        self._fitted_frame.check_expansion(self.expansion_, n_outputs)

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        n_basis: int = 100,
        basis: Any = "uniform",
        objective: Literal["vfe", "fitc"] = "vfe",
        noise: float = 0.1,
        fit_points: bool = True,
        fit_kernel: bool = True,
        fit_noise: bool = True,
        intercept: bool = False,
        max_iter: int = 300,
        tol: float = 1e-5,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_basis = n_basis
        self.basis = basis
        self.objective = objective
        self.noise = noise
        self.fit_points = fit_points
        self.fit_kernel = fit_kernel
        self.fit_noise = fit_noise
        self.intercept = intercept
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and targets y (n,) or (n, p).

        A row of weight ω counts as ω rows; for ``objective="fitc"`` the weight divides the noise of its row.
        """
        self._validate_params()
        with all_or_nothing(self):
            data = read_data(self, X, y, sample_weight, encode=encode_targets, reset=True)
            self._fit(_with_a_say(data, float(self.noise)), self._choose_frame(data, _DTYPE))
            self._flat = data.flat
        return self

    @property
    def _frame(self) -> Frame:
        return self._fitted_frame

    def _fit(self, data: Data, start: Frame) -> None:
        mean = np.average(data.targets, axis=0, weights=data.weights) if self.intercept else 0.0
        centred = data.targets - mean
        unit = _root_mean_square(centred, data.weights)
        if not 1e-152 < unit < 1e152:
            msg = f"the targets are of size {unit:.1g}, whose square cannot be a variance: scale them."
            raise ValueError(msg)
        search = _Search(
            objective=SparseObjective(
                ArrayTable(data.rows, centred / unit, data.weights), self.objective, make_executor(self)
            ),
            start=_Point(start.kernel * unit**-2, start.basis.points, float(self.noise) * unit**-2),
            fit_points=self.fit_points,
            fit_kernel=self.fit_kernel,
            fit_noise=self.fit_noise,
        )
        best, result = search.run(max_iter=int(self.max_iter), tol=float(self.tol), verbose=int(self.verbose))
        kernel = best.kernel * unit**2 if self.fit_kernel else start.kernel
        points = Basis(points=best.points, note=start.basis.note)
        self._fitted_frame = Frame.build(kernel, points, _DTYPE, steady=True)
        self.noise_ = best.noise * unit**2 if self.fit_noise else float(self.noise)
        self.n_iter_ = int(result.nit)
        n_values = search.objective.n_rows * data.targets.shape[1]
        self.objective_value_ = -float(result.fun) * search.objective.n_rows - n_values * float(np.log(unit))
        self.expansion_ = self._expansion(data)
        # A line search that fails has reached the rounding of the objective, however steep it is there: where points
        # meet rows, the likelihood of FITC has ridges too narrow to climb any further.
        if not result.success and result.nit >= self.max_iter:
            message = f"the objective still grew after {result.nit} steps: raise max_iter, or tol."
            warnings.warn(message, ConvergenceWarning, stacklevel=3)

    def _expansion(self, data: Data) -> Any:
        threads, intercept = make_executor(self), bool(self.intercept)
        if self.objective == "fitc":
            summary = CommitteeSummary.start(self._fitted_frame, data, intercept=intercept)
            return summary.plus(Batch(data, None, self.noise_), threads).expansion
        settings = Settings(noise=self.noise_, intercept=intercept, prior=True)
        return Summary.start(self._fitted_frame, data, settings, once=False).plus(data, threads).solved[0]


def _with_a_say(data: Data, noise: float) -> Data:
    used = rows_with_a_say(data, noise)
    if len(used) == data.rows.n_rows:
        return data
    assert data.weights is not None
    return Data(SomeRows(data.rows, used), data.targets[used], data.weights[used], data.flat)


def _root_mean_square(targets: FloatArray, weights: FloatArray | None) -> float:
    largest = float(np.max(np.abs(targets), initial=0.0))
    if largest == 0:
        return 1.0
    return largest * float(np.sqrt(np.mean(np.average((targets / largest) ** 2, axis=0, weights=weights))))


def _stride(n_points: int) -> float:
    return float(np.sqrt(n_points)) / 3.0  # a third did better than all of it, and than a tenth, on two data sets


@dataclass(frozen=True)
class _Point:
    """Where the search stands."""

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
    fit_points: bool
    fit_kernel: bool
    fit_noise: bool

    def run(self, *, max_iter: int, tol: float, verbose: int) -> tuple[_Point, OptimizeResult]:
        start, n = self.start, self.objective.n_rows
        if not (self.fit_points or self.fit_kernel or self.fit_noise):
            value = self.objective.value(start.kernel, start.points, start.noise) / n
            return start, OptimizeResult(fun=value, nit=0, success=True)
        # Between the passes are products of m x m matrices: while they are small, waking BLAS's threads costs more.
        with blas_threads(1) if len(start.points) <= _FEW_POINTS else nullcontext():
            if self.fit_kernel and self.fit_noise:
                start = self._with_balanced_noise()
            centre, scale = self._units()
            first = self._pack(
                (start.points - centre) / scale, start.kernel.get_log_parameters(), float(np.log(start.noise))
            )

            def function(x: FloatArray) -> tuple[float, FloatArray]:
                point = self._unpack(x, centre, scale)
                value, gradient = self.objective.value_and_gradient(point.kernel, point.points, point.noise)
                return value / n, self._pack(gradient.points * scale, gradient.parameters, gradient.log_noise) / n

            descent = Descent(function, self._bounds(first), tol=tol, verbose=verbose)
            result = descent.run(first, max_iter, n_positions=start.points.size if self.fit_points else 0)
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
        free = self.start.points.size if self.fit_points else 0
        reach = np.full(len(first), _RANGE)
        reach[:free] = _FARTHEST / _stride(len(self.start.points))
        low, high = first - reach, first + reach
        if self.fit_noise:
            weights = self.objective.table.weights
            unit = 0.0 if weights is None else float(np.log(np.mean(weights)))  # log λ at which noise is all there is
            low[-1], high[-1] = min(first[-1], unit + np.log(_LEAST_NOISE)), max(first[-1], unit + _RANGE)
        return list(zip(low, high, strict=True))

    def _pack(self, points: FloatArray, parameters: dict[str, FloatArray], log_noise: float) -> FloatArray:
        parts = [points.ravel()] if self.fit_points else []
        if self.fit_kernel:
            parts += [np.ravel(parameters[name]) for name in self._names]
        if self.fit_noise:
            parts.append(np.array([log_noise]))
        return np.concatenate(parts)

    def _unpack(self, x: FloatArray, centre: FloatArray, scale: FloatArray) -> _Point:
        (kernel, points, noise), at = (self.start.kernel, self.start.points, self.start.noise), 0
        if self.fit_points:
            points, at = np.ascontiguousarray(centre + x[: points.size].reshape(points.shape) * scale), points.size
        if self.fit_kernel:
            values = {}
            for name in self._names:
                shape = np.shape(kernel.get_log_parameters()[name])
                size = int(np.prod(shape))
                values[name], at = x[at : at + size].reshape(shape), at + size
            kernel = kernel.with_log_parameters(values)
        if self.fit_noise:
            noise = float(np.exp(x[-1]))
        return _Point(kernel, points, noise)

    @property
    def _names(self) -> list[str]:
        return sorted(self.start.kernel.get_log_parameters())
