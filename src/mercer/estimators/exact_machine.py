r"""The full kernel system: Gaussian process, kernel ridge and LS-SVM regression and classification.

===========  ==================  ==========  =============================
symbol       code                shape       meaning
===========  ==================  ==========  =============================
H            ``matrix``          (n, n)      K + λW⁻¹
α            ``coefficients``    (n, p)      weights of the rows
η, ν         ``eta``, ``nu``     (n,), (n, p)  H⁻¹1 and H⁻¹y
b            ``intercept``       (p,)        intercept of the LS-SVM
===========  ==================  ==========  =============================

Without an intercept :math:`\alpha = H^{-1}y`. With one (the LS-SVM), two solves give :math:`s = 1^\top\eta`,
:math:`b = \eta^\top y/s` and :math:`\alpha = \nu - \eta b`.
"""

from __future__ import annotations

import warnings
from abc import ABC
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from mercer._stored.checks import check_estimator, check_index, check_shape, need
from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted
from mercer.engine import ArrayRows, Rows, kernel_matrix
from mercer.estimators.matrix_free import solve_matrix_free
from mercer.estimators.shell import (
    Data,
    make_executor,
    resolve_kernel,
    rows_with_a_say,
)
from mercer.kernels import Kernel, Precomputed
from mercer.model import KernelExpansion, Variance
from mercer.solvers.dense import CholeskyFactor, cholesky_in_place

__all__ = ["ExactMachine"]


class ExactMachine(BaseEstimator, ABC):
    """Parameters, fit and evaluation that regression and classification share."""

    kernel_: Kernel
    jitter_: float
    n_iter_: int
    expansion_: KernelExpansion
    _factor: CholeskyFactor | None
    _eta: FloatArray | None
    _index: IntArray
    _n_rows: int

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": "no_validation",  # type: ignore[dict-item]  # checked, with a message of its own, by as_kernel
        "noise": [Interval(Real, 0, None, closed="left")],
        "intercept": ["boolean"],
        "solver": [StrOptions({"cholesky", "cg"})],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        noise: float = 0.1,
        intercept: bool = False,
        solver: Literal["cholesky", "cg"] = "cholesky",
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.intercept = intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def check_stored(self) -> None:
        """Refuse a factor and row numbers that are not those of the expansion."""
        (m, width), kernel = self.expansion_.points.shape, self.expansion_.kernel
        if isinstance(kernel, Precomputed):
            numbers = self.expansion_.points[:, 0].astype(np.intp)
            need(np.all(numbers == self.expansion_.points[:, 0]), "rows of the kernel matrix have no numbers.")
            check_index(numbers, self.n_features_in_, "rows of the kernel matrix")
        check_estimator(
            self,
            n_outputs=self.expansion_.coefficients.shape[1],
            n_features=None if isinstance(kernel, Precomputed) else width,
            flat=getattr(self, "_flat", False),
        )
        need(self.kernel_.equals(kernel), "a model has another kernel than its expansion.")
        need(self._factor is None or len(self._factor.lower) == m, "the factor of a model has other points.")
        check_shape(self._index, (m,), "row numbers")
        check_index(self._index, self._n_rows, "row numbers")
        need(self._eta is None or self._eta.shape == (m,), "the solution for the intercept has other points.")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._precomputed
        return tags

    @property
    def _precomputed(self) -> bool:
        return isinstance(self.kernel, Precomputed) or (isinstance(self.kernel, str) and self.kernel == "precomputed")

    def _fit(self, data: Data, *, keep_factor: bool) -> None:
        self._check_data(data)
        kernel = Precomputed() if self._precomputed else resolve_kernel(self.kernel, data, self.random_state)
        index = rows_with_a_say(data, float(self.noise))
        weights = np.ones(len(index)) if data.weights is None else data.weights[index]
        targets = data.targets[index]
        # The model moves with a constant added to y: without y's offset nothing is lost to it.
        shift = np.average(targets, axis=0, weights=weights) if self.intercept else np.zeros(targets.shape[1])
        right = np.column_stack([targets - shift, np.ones(len(index))] if self.intercept else [targets])
        rows, points = self._points(data.rows, index)
        factor, solution, iterations = self._solve(rows, kernel, points, weights, right)
        eta = solution[:, -1] if self.intercept else None
        nu = solution[:, :-1] if self.intercept else solution
        b = np.zeros(nu.shape[1]) if eta is None else eta @ right[:, :-1] / np.sum(eta)
        coefficients = nu if eta is None else nu - np.outer(eta, b)
        variance = _variance(factor, eta) if keep_factor else None
        self.kernel_ = kernel
        self.jitter_ = 0.0 if factor is None else factor.jitter
        self.n_iter_ = iterations
        self.expansion_ = KernelExpansion(kernel, points, coefficients, b + shift, variance)
        self._factor = factor if keep_factor else None
        self._eta, self._index, self._n_rows = eta, index, data.rows.n_rows

    def _points(self, rows: Rows, index: IntArray) -> tuple[Rows, FloatArray]:
        """The rows that have a say, and the points of the expansion: the same, or their numbers if precomputed."""
        if self._precomputed:
            kept = rows if len(index) == rows.n_rows else ArrayRows(rows.take(index), checked=True)
            return kept, index[:, np.newaxis].astype(np.float64)
        points = rows.take(index).astype(np.float64, copy=False)
        return ArrayRows(points, checked=True), points

    def _solve(
        self, rows: Rows, kernel: Kernel, points: FloatArray, weights: FloatArray, right: FloatArray
    ) -> tuple[CholeskyFactor | None, FloatArray, int]:
        """Solve H [ν, η] = [y, 1], or Hα = y; also returns the number of iterations."""
        threads = make_executor(self)
        if self.solver == "cholesky":
            # H = K + λW⁻¹ = LLᵀ, in the memory of K
            matrix = kernel_matrix(rows, kernel, points, executor=threads)
            spread = _jitter_spread(np.diagonal(matrix), float(self.noise), weights)
            matrix[np.diag_indices_from(matrix)] += self.noise / weights
            factor = cholesky_in_place(matrix, spread=spread)
            return factor, factor.solve(right), 1
        result = solve_matrix_free(
            rows, kernel, points, right,
            noise=float(self.noise), weights=weights, tol=self.tol, max_iter=self.max_iter,
            random_state=self.random_state, executor=threads,
        )  # fmt: skip
        if not result.converged:
            warnings.warn(
                f"conjugate gradients stopped after {result.iterations} iterations at a relative residual of "
                f"{result.residual:.1e}, above tol={self.tol:.1e}: the model is not the solution asked for. "
                "Raise max_iter, tol or noise, or use NystromRegressor.",
                ConvergenceWarning,
                stacklevel=5,
            )
        return None, result.value, result.iterations

    def _check_data(self, data: Data) -> None:
        if self._precomputed and data.rows.n_features != data.rows.n_rows:
            msg = (
                "with kernel='precomputed' X must be the square kernel matrix of the training rows, "
                f"got shape ({data.rows.n_rows}, {data.rows.n_features})."
            )
            raise ValueError(msg)
        if self.solver == "cg" and self.noise == 0:
            msg = "noise must be above zero with solver='cg'; use solver='cholesky' to interpolate."
            raise ValueError(msg)

    def _need_factor(self, what: str) -> CholeskyFactor:
        check_is_fitted(self)
        if self._factor is None:
            msg = f"{what} needs the factor of the kernel matrix: fit with solver='cholesky'."
            raise ValueError(msg)
        return self._factor


def _jitter_spread(diagonal: FloatArray, noise: float, weights: FloatArray) -> FloatArray:
    """Shares of jitter in proportion to the noise, lest it changes what rows weigh."""
    if not np.all(np.isfinite(diagonal)):
        return np.ones(len(diagonal))  # refused where the matrix is factored
    unit = np.max(diagonal * weights) / weights
    return np.asarray(unit / np.max(diagonal + noise / weights))


def _variance(factor: CholeskyFactor | None, eta: FloatArray | None = None) -> Variance | None:
    if factor is None:
        return None
    if eta is None:
        return Variance(lower=factor.lower)
    # var f(x) = k(x,x) - kᵀH⁻¹k + (1 - ηᵀk)²/s, and ηᵀk = (L⁻¹1)ᵀ(L⁻¹k)
    root_s = np.sqrt(np.sum(eta))
    ones = factor.half_solve(np.ones(len(eta)))
    return Variance(lower=factor.lower, root=ones[np.newaxis] / root_s, offset=np.array([1.0 / root_s]))
