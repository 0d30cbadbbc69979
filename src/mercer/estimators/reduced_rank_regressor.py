"""Regression by the reduced rank approximation."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from mercer._stored import stored
from mercer._stored.checks import check_estimator, check_shape, need
from mercer._typing import FloatArray, RandomState
from mercer._validation import Interval, Real
from mercer.engine import Rows
from mercer.estimators.shell import (
    BASIS_CONSTRAINTS,
    KernelRegressor,
    OnBasis,
    Targets,
    all_or_nothing,
    make_executor,
    read_table,
)
from mercer.exceptions import NegativeVarianceWarning
from mercer.methods.frame import Frame
from mercer.methods.reduced_rank import ROUNDING, ReducedRankVariance, fit_reduced_rank
from mercer.model import KernelExpansion
from mercer.solvers.ridge import RidgeSolution

__all__ = ["ReducedRankRegressor"]


@stored
class ReducedRankRegressor(KernelRegressor, OnBasis, BaseEstimator):
    r"""Reduced rank approximation: n kernels, weighted by a Gram matrix of rank m.

    Solves :math:`(K_{nm}K_{mm}^{-1}K_{mn} + \lambda W^{-1})\,\alpha = y` by the Woodbury formula, and predicts
    :math:`\sum_i\alpha_i k(x, x_i)` with the kernel itself (Williams and Seeger). At the basis points this equals
    ``NystromRegressor``; elsewhere it is usually worse, and slower: it is for comparison.

    Time n·m² to fit, n kernel values per prediction; the training rows are kept. Away from the basis points the
    approximation may give a negative variance: the standard deviation is then NaN, with a ``NegativeVarianceWarning``,
    and the covariance is given as it is.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        A name ("gaussian", "matern", "linear", "polynomial"), a kernel of ``mercer.kernels``, or a function of two
        matrices. By name, length scales are the median distance of the rows.
    n_basis : int, default=500
        m; if there are fewer rows, all are taken.
    basis : str, strategy or array (m, d), default="uniform"
        How basis points are chosen: a name ("uniform"), a strategy of ``mercer.basis``, or the points themselves.
    noise : float, default=0.1
        λ, above zero: the weights are residuals over λ.
    intercept : bool, default=False
        Whether to add a constant b that is not penalised.
    random_state : int, RandomState or None, default=None
        For the choice of the basis, and of the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with its parameters as numbers.
    basis_ : array (rank_, d)
        Basis points in use.
    basis_index_ : array (rank_,) or None
        Their row numbers, where they are rows.
    rank_ : int
        Numerical rank of the basis.
    coefficients_ : array (n,) or (n, p)
        Weights of the training rows (those of positive weight).
    intercept_ : float or array (p,)
    expansion_ : KernelExpansion
        The model.

    See Also
    --------
    NystromRegressor : The same system on m kernels.
    CommitteeRegressor : Accounts for what the basis leaves of the kernel.

    References
    ----------
    C. K. I. Williams, M. Seeger: Using the Nyström method to speed up kernel machines, NIPS 2000. V. Tresp,
    A. Schwaighofer: Scalable kernel systems, ICANN 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import ReducedRankRegressor
    >>> X = np.linspace(0, 6, 200)[:, np.newaxis]
    >>> model = ReducedRankRegressor(n_basis=20, noise=0.01, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.coefficients_.shape, model.predict([[1.5]]).round(2)
    ((200,), array([1.]))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BASIS_CONSTRAINTS,
        "noise": [Interval(Real, 0, None, closed="left")],
    }

    expansion_: KernelExpansion
    _used_frame: Frame
    _solution: RidgeSolution
    _precisions: FloatArray

    def check_stored(self) -> None:
        """Refuse weights and a solution of another expansion or basis."""
        (n, width), n_outputs = self.expansion_.points.shape, self.expansion_.coefficients.shape[1]
        check_estimator(self, n_outputs=n_outputs, n_features=width, flat=self._flat)
        check_shape(self._precisions, (n,), "precisions")
        check_shape(self._solution.mean, (len(self._used_frame.lower),), "means of features")
        need(self._used_frame.basis.points.shape[1] == width, "the basis has other features.")
        need(self._used_frame.kernel.equals(self.expansion_.kernel), "the basis has another kernel.")

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        n_basis: int = 500,
        basis: Any = "uniform",
        noise: float = 0.1,
        intercept: bool = False,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_basis = n_basis
        self.basis = basis
        self.noise = noise
        self.intercept = intercept
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and targets y (n,) or (n, p); weight 2 is the same as the row twice."""
        self._validate_params()
        if self.noise == 0:
            msg = (
                "noise=0 is not possible here: the weights are residuals divided by the noise. Use a small noise, or "
                "NystromRegressor or CommitteeRegressor, which interpolate."
            )
            raise ValueError(msg)
        with all_or_nothing(self):
            targets = Targets()
            table = read_table(self, X, y, sample_weight, encode=targets, reset=True)
            frame = self._choose_frame(table, np.dtype(np.float64))
            self.expansion_, variance = fit_reduced_rank(
                table, frame, noise=float(self.noise), intercept=bool(self.intercept), executor=make_executor(self)
            )
            self._used_frame, self._solution, self._precisions = frame, variance.solution, variance.precisions
            self._flat = targets.flat
        return self

    @property
    def _frame(self) -> Frame:
        return self._used_frame

    def _variance(self) -> ReducedRankVariance:
        return ReducedRankVariance(self._used_frame, self.expansion_.points, self._solution, self._precisions)

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        variances = self._variance().variances(rows, make_executor(self))
        _warn_if_negative(variances)
        return np.sqrt(np.where(variances < 0, np.nan, variances))

    def _covariance(self, rows: Rows) -> FloatArray:
        result, prior = self._variance().covariance(rows, make_executor(self))
        _warn_if_negative(np.diagonal(result) + ROUNDING * prior)
        return result


def _warn_if_negative(variances: FloatArray) -> None:
    negative = int(np.sum(variances < 0))
    if negative:
        warnings.warn(
            f"the reduced rank approximation gives a negative variance for {negative} of {len(variances)} rows, which "
            "lie away from the basis points. NystromRegressor and CommitteeRegressor have proper error bars.",
            NegativeVarianceWarning,
            stacklevel=4,
        )
