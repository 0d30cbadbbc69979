"""What the exact estimators share: parameters, fit and what is reported."""

from __future__ import annotations

import warnings
from abc import ABC
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from mercer._stored.checks import check_estimator, check_index, check_shape, need
from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted
from mercer.engine import ArrayTable
from mercer.estimators.shell import make_executor
from mercer.kernels import Kernel, Precomputed
from mercer.methods.exact import Iteration, fit_exact
from mercer.methods.frame import resolve_kernel
from mercer.model import KernelExpansion
from mercer.solvers.conjugate_gradient import IterativeSolution
from mercer.solvers.dense import CholeskyFactor

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

    def _fit(self, table: ArrayTable, *, keep_factor: bool) -> None:
        self._check_table(table)
        kernel = Precomputed() if self._precomputed else resolve_kernel(self.kernel, table, self.random_state)
        fit = fit_exact(
            table, kernel, noise=float(self.noise), intercept=bool(self.intercept), solver=self.solver,
            iteration=Iteration(float(self.tol), int(self.max_iter), self.random_state), executor=make_executor(self),
        )  # fmt: skip
        self._warn_of(fit.iterative)
        self.kernel_ = kernel
        self.jitter_ = 0.0 if fit.factor is None else fit.factor.jitter
        self.n_iter_ = 1 if fit.iterative is None else fit.iterative.iterations
        self.expansion_ = fit.expansion if keep_factor else replace(fit.expansion, variance=None)
        self._factor = fit.factor if keep_factor else None
        self._eta, self._index, self._n_rows = fit.eta, fit.index, table.n_rows

    def _warn_of(self, result: IterativeSolution | None) -> None:
        if result is not None and not result.converged:
            warnings.warn(
                f"conjugate gradients stopped after {result.iterations} iterations at a relative residual of "
                f"{result.residual:.1e}, above tol={self.tol:.1e}: the model is not the solution asked for. "
                "Raise max_iter, tol or noise, or use NystromRegressor.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _check_table(self, table: ArrayTable) -> None:
        if self._precomputed and table.n_features != table.n_rows:
            msg = (
                "with kernel='precomputed' X must be the square kernel matrix of the training rows, "
                f"got shape ({table.n_rows}, {table.n_features})."
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
