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
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning

from mercer._typing import AnyArray, FloatArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted
from mercer.engine import ArrayRows, Rows, Threads, kernel_matrix
from mercer.estimators.classification import OneVsRest, decide, flat_decision
from mercer.estimators.shell import (
    Data,
    all_or_nothing,
    encode_targets,
    make_threads,
    read_data,
    read_rows,
    resolve_kernel,
)
from mercer.estimators.matrix_free import solve_matrix_free
from mercer.expansion import KernelExpansion, Variance
from mercer.kernels import Kernel, Precomputed
from mercer.solvers.dense import CholeskyFactor, cholesky_in_place

__all__ = ["ExactClassifier", "ExactRegressor"]


class _Exact(BaseEstimator, ABC):  # type: ignore[misc]
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
        points = index[:, np.newaxis] if self._precomputed else rows.read(0, rows.n_rows)
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
                f"{result.residual:.1e}, above tol={self.tol:.1e}: the model is not the solution asked for. Raise max_iter, "
                "tol or noise, or use NystromRegressor.",
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
        return self.expansion_.evaluate(self._new_rows(X), executor=make_threads(self))

    def _new_rows(self, X: Any) -> Rows:
        check_is_fitted(self)
        return read_rows(self, X, reset=False)

    def _need_factor(self, what: str) -> CholeskyFactor:
        check_is_fitted(self)
        if self.factor_ is None:
            msg = f"{what} needs the factor of the kernel matrix: fit with solver='cholesky'."
            raise ValueError(msg)
        return self.factor_


class ExactRegressor(RegressorMixin, _Exact):  # type: ignore[misc]
    r"""Kernel regression on the full kernel matrix: Gaussian process, kernel ridge, or LS-SVM.

    Minimises :math:`\sum_i\omega_i(y_i - f(x_i) - b)^2 + \lambda|f|^2` over functions of the kernel's space, which is the
    posterior mean of a Gaussian process with noise variance :math:`\lambda/\omega_i`.

    Time grows with n³ and memory with n² (one matrix); with ``solver="cg"`` with n² per iteration and n.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        A name ("gaussian", "matern", "linear", "polynomial"), a kernel of ``mercer.kernels``, a function of two matrices,
        or "precomputed": X is then the kernel matrix. By name, length scales are the median distance of the rows.
    noise : float, default=0.1
        λ, added to the diagonal of the kernel matrix. 0 interpolates.
    intercept : bool, default=False
        Whether to add a constant b that is not penalised; True gives the LS-SVM.
    solver : {"cholesky", "cg"}, default="cholesky"
        "cg" never stores the kernel matrix; it gives no error bars.
    tol : float, default=1e-6
        Relative residual at which conjugate gradients stop.
    max_iter : int, default=1000
        Iterations after which conjugate gradients give up, with a ``ConvergenceWarning``.
    random_state : int, RandomState or None, default=None
        For the rows of the preconditioner, and for those on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with its parameters as numbers.
    coefficients_ : array (n,) or (n, p)
        Weights of the training rows (those of positive weight).
    intercept_ : float or array (p,)
    jitter_ : float
        What had to be added to the diagonal beyond the noise; 0 in regular cases.
    n_iter_ : int
        Iterations of the solver.
    expansion_ : KernelExpansion
        The model.

    See Also
    --------
    NystromRegressor : The same on a basis of few points, for many rows.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import ExactRegressor
    >>> from mercer.kernels import Gaussian
    >>> X = np.linspace(0, 6, 30)[:, np.newaxis]
    >>> model = ExactRegressor(Gaussian(length_scale=1.0), noise=1e-4).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5], [30.0]], return_std=True)
    >>> mean.round(3), std.round(3)
    (array([0.997, 0.   ]), array([0.005, 1.   ]))
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and targets y (n,) or (n, p); a weight ω divides the noise of its row."""
        self._validate_params()
        with all_or_nothing(self):
            self._fit(read_data(self, X, y, sample_weight, encode=encode_targets, reset=True))
            self._flat = np.ndim(y) == 1
        return self

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the mean, and on request the standard deviation (n,) or the covariance (n, n) of the function.

        They are those of the function without noise, in units in which λ is the noise variance and the kernel's
        amplitude the prior variance. All outputs share them.
        """
        rows = self._new_rows(X)
        mean = self.expansion_.evaluate(rows, executor=make_threads(self))
        mean = mean[:, 0] if self._flat else mean
        if return_cov:
            self._need_factor("return_cov")
            return mean, self.expansion_.covariance(rows, executor=make_threads(self))
        if return_std:
            self._need_factor("return_std")
            return mean, np.sqrt(self.expansion_.variances(rows, executor=make_threads(self)))
        return mean

    def loo_residuals(self) -> FloatArray:
        """Leave-one-out residuals of the training rows, exact and without a second fit; NaN for rows of weight zero.

        Row i without itself is predicted with an error of α_i / M⁻¹_ii, with M the system that was solved: H, bordered by
        ones if there is an intercept. Cost: n³/3.
        """
        diagonal = self._need_factor("loo_residuals").inverse_diagonal()
        if self.intercept:
            # (M⁻¹)_ii = (H⁻¹)_ii - η_i²/s
            diagonal = diagonal - self._eta**2 / np.sum(self._eta)
        residuals = np.full((self._n_rows, self.expansion_.coefficients.shape[1]), np.nan)
        residuals[self._index] = self.expansion_.coefficients / diagonal[:, np.newaxis]
        return residuals[:, 0] if self._flat else residuals

    @property
    def coefficients_(self) -> FloatArray:
        """Weights of the training rows."""
        check_is_fitted(self)
        return self.expansion_.coefficients[:, 0] if self._flat else self.expansion_.coefficients

    @property
    def intercept_(self) -> Any:
        """The constant b."""
        check_is_fitted(self)
        return float(self.expansion_.intercept[0]) if self._flat else self.expansion_.intercept


class ExactClassifier(ClassifierMixin, _Exact):  # type: ignore[misc]
    """Kernel classification on the full kernel matrix: least squares on ±1, one class against the rest.

    With ``intercept=True`` this is the LS-SVM classifier. Parameters are those of ``ExactRegressor``.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        See ``ExactRegressor``, as for the other parameters.
    noise : float, default=0.1
        λ, added to the diagonal of the kernel matrix.
    intercept : bool, default=False
        Whether to add a constant that is not penalised; True gives the LS-SVM.
    solver : {"cholesky", "cg"}, default="cholesky"
        "cg" never stores the kernel matrix.
    tol : float, default=1e-6
        Relative residual at which conjugate gradients stop.
    max_iter : int, default=1000
        Iterations after which conjugate gradients give up, with a ``ConvergenceWarning``.
    random_state : int, RandomState or None, default=None
        For the rows of the preconditioner, and for those on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : array (classes,)
    kernel_ : Kernel
        The kernel with its parameters as numbers.
    jitter_ : float
        What had to be added to the diagonal beyond the noise; 0 in regular cases.
    expansion_ : KernelExpansion
        The model: one output for two classes, one per class for more.

    See Also
    --------
    NystromClassifier : The same on a basis of few points, for many rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mercer import ExactClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> float(round(ExactClassifier(noise=0.1).fit(X, y).score(X, y), 2))
    0.97
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and labels y (n,); a weight ω divides the noise of its row."""
        self._validate_params()
        with all_or_nothing(self):
            encode = OneVsRest()
            self._fit(read_data(self, X, y, sample_weight, encode=encode, reset=True))
            self.classes_ = encode.classes
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Values of the functions, shape (n,) for two classes (positive for the second), else (n, classes)."""
        return flat_decision(self._evaluate(X))

    def predict(self, X: Any) -> AnyArray:
        """Predict the class of each row."""
        return decide(self._evaluate(X), self.classes_)


def _variance(factor: CholeskyFactor | None, eta: FloatArray | None = None) -> Variance | None:
    if factor is None:
        return None
    if eta is None:
        return Variance(lower=factor.lower)
    # var f(x) = k(x,x) - kᵀH⁻¹k + (1 - ηᵀk)²/s, and ηᵀk = (L⁻¹1)ᵀ(L⁻¹k)
    root_s = np.sqrt(np.sum(eta))
    ones = factor.half_solve(np.ones(len(eta)))
    return Variance(lower=factor.lower, root=ones[np.newaxis] / root_s, offset=np.array([1.0 / root_s]))
