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

from mercer._typing import FloatArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted
from mercer.engine import ArrayRows, Rows, kernel_matrix
from mercer.estimators.matrix_free import solve_matrix_free
from mercer.estimators.shell import (
    Data,
    make_threads,
    read_rows,
    resolve_kernel,
)
from mercer.expansion import KernelExpansion, Variance
from mercer.kernels import Kernel, Precomputed
from mercer.solvers.dense import CholeskyFactor, cholesky_in_place

__all__ = ["ExactMachine"]


class ExactMachine(BaseEstimator, ABC):
    """Parameters, fit and evaluation that regression and classification share."""

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._precomputed
        return tags

    @property
    def _precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _fit(self, data: Data) -> None:
        self._check_data(data)
        kernel = Precomputed() if self._precomputed else resolve_kernel(self.kernel, data, self.random_state)
        # A row of weight zero has infinite noise: it has no say, and no coefficient.
        index = np.arange(data.rows.n_rows) if data.weights is None else np.flatnonzero(data.weights)
        rows = ArrayRows(data.rows.take(index).astype(np.float64), checked=True)
        points: FloatArray = index[:, np.newaxis].astype(np.float64) if self._precomputed else rows.read(0, rows.n_rows)
        weights = np.ones(len(index)) if data.weights is None else data.weights[index]
        right = np.column_stack([data.targets[index], np.ones(len(index))])
        factor, solution = self._solve(rows, kernel, points, weights, right)
        nu, eta = solution[:, :-1], solution[:, -1]
        b = eta @ right[:, :-1] / np.sum(eta) if self.intercept else np.zeros(nu.shape[1])
        self.kernel_ = kernel
        self.factor_ = factor
        self.jitter_ = 0.0 if factor is None else factor.jitter
        self.expansion_ = KernelExpansion(
            kernel, points, nu - np.outer(eta, b), b, _variance(factor, eta) if self.intercept else _variance(factor)
        )
        self._eta = eta
        self._index, self._n_rows = index, data.rows.n_rows

    def _solve(
        self, rows: Rows, kernel: Kernel, points: FloatArray, weights: FloatArray, right: FloatArray
    ) -> tuple[CholeskyFactor | None, FloatArray]:
        """Solve H [ν, η] = [y, 1]."""
        threads = make_threads(self)
        if self.solver == "cholesky":
            # H = K + λW⁻¹ = LLᵀ, in the memory of K
            matrix = kernel_matrix(rows, kernel, points, executor=threads)
            matrix[np.diag_indices_from(matrix)] += self.noise / weights
            factor = cholesky_in_place(matrix)
            self.n_iter_ = 1
            return factor, factor.solve(right)
        result = solve_matrix_free(
            rows, kernel, points, right,
            noise=float(self.noise), weights=weights, tol=self.tol, max_iter=self.max_iter,
            random_state=self.random_state, executor=threads,
        )  # fmt: skip
        self.n_iter_ = result.iterations
        if not result.converged:
            warnings.warn(
                f"conjugate gradients stopped after {result.iterations} iterations at a relative residual of "
                f"{result.residual:.1e}, above tol={self.tol:.1e}: the model is not the solution asked for. "
                "Raise max_iter, tol or noise, or use NystromRegressor.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return None, result.value

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

    def _evaluate(self, X: Any) -> FloatArray:
        rows = self._new_rows(X)
        return self.expansion_.evaluate(rows, executor=make_threads(self))

    def _new_rows(self, X: Any) -> Rows:
        check_is_fitted(self)
        return read_rows(self, X, reset=False)

    def _need_factor(self, what: str) -> CholeskyFactor:
        check_is_fitted(self)
        if self.factor_ is None:
            msg = f"{what} needs the factor of the kernel matrix: fit with solver='cholesky'."
            raise ValueError(msg)
        return self.factor_


def _variance(factor: CholeskyFactor | None, eta: FloatArray | None = None) -> Variance | None:
    if factor is None:
        return None
    if eta is None:
        return Variance(lower=factor.lower)
    # var f(x) = k(x,x) - kᵀH⁻¹k + (1 - ηᵀk)²/s, and ηᵀk = (L⁻¹1)ᵀ(L⁻¹k)
    root_s = np.sqrt(np.sum(eta))
    ones = factor.half_solve(np.ones(len(eta)))
    return Variance(lower=factor.lower, root=ones[np.newaxis] / root_s, offset=np.array([1.0 / root_s]))
