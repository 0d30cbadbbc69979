"""Regression by the reduced rank approximation."""

from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_estimator, check_shape, need
from mercer._typing import FloatArray
from mercer._validation import Interval, Real, StrOptions, check_is_fitted, parameters
from mercer.engine import ArrayTable, Rows
from mercer.estimators.regression import KernelRegressor
from mercer.estimators.shell import BASIS_CONSTRAINTS, OnBasis, Shell, make_executor
from mercer.exceptions import NegativeVarianceWarning, warn
from mercer.methods.frame import Frame
from mercer.methods.reduced_rank import ROUNDING, ReducedRankVariance, fit_reduced_rank
from mercer.model import Calibration, KernelExpansion
from mercer.solvers.ridge import Choice, RidgeSolution


@stored
@parameters
class ReducedRankRegressor(KernelRegressor, OnBasis, Shell):
    r"""Reduced rank approximation: n kernels, weighted by a Gram matrix of rank m.

    Solves :math:`(K_{nm}K_{mm}^{-1}K_{mn} + \lambda W^{-1})\,\alpha = y` by the Woodbury formula, and predicts
    :math:`\sum_i\alpha_i k(x, x_i)` with the kernel itself (Williams and Seeger). At the basis points this equals
    ``NystromRegressor``; elsewhere it is usually worse, and slower: it is for comparison.

    Time n·m² to fit, n kernel values per prediction; the training rows are kept. Away from the basis points the
    approximation may give a negative variance: the standard deviation is then NaN, with a ``NegativeVarianceWarning``,
    and the covariance is given as it is.

    Parameters
    ----------
    kernel, n_basis, basis, intercept, random_state, n_jobs, verbose
        As in ``NystromRegressor``.
    noise : float, "auto", "gcv" or "loo", default="auto"
        As in ``NystromRegressor``, whose distribution of the targets this method shares: "auto" maximises their
        marginal likelihood, "loo" is the leave-one-out error of ``NystromRegressor``. Above zero: the weights are
        residuals over λ.

    Attributes
    ----------
    coefficients_ : array (n,) or (n, p)
        Weights of the training rows (those of positive weight).
    noise_ : float
        λ in use: the one given or chosen.
    kernel_, basis_, basis_index_, rank_, intercept_, scale_, calibration_, loo_error_, expansion_
        As in ``NystromRegressor``; the leave-one-out residuals are this model's own, of up to 256 rows. Those whose
        variance is negative count in ``loo_error_``, but not in ``calibration_`` and intervals.

    See Also
    --------
    NystromRegressor : The same system on m kernels.
    CommitteeRegressor : Accounts for what the basis leaves of the kernel.

    Notes
    -----
    A weight ω divides the noise of its row. Weights that are all whole count equal rows: 2 is the row twice. Of others
    only ratios matter to the noise that is chosen, and to what is said of rows that are left out.

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

    noise: float | Choice = "auto"
    intercept: bool = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BASIS_CONSTRAINTS,
        "noise": [Interval(Real, 0, None, closed="left"), StrOptions({"auto", "gcv", "loo"})],
    }

    expansion_: KernelExpansion = field(init=False)
    _used_frame: Frame = field(init=False)
    _solution: RidgeSolution = field(init=False)
    _precisions: FloatArray = field(init=False)
    _calibrated: Sometimes[Calibration | None] = field(init=False)

    def check_stored(self) -> None:
        """Refuse weights and a solution of another expansion or basis."""
        (n, width), n_outputs = self.expansion_.points.shape, self.expansion_.coefficients.shape[1]
        check_estimator(self, n_outputs=n_outputs, n_features=width)
        check_shape(self._precisions, (n,), "precisions")
        check_shape(self._solution.mean, (len(self._used_frame.lower),), "means of features")
        need(self._used_frame.basis.points.shape[1] == width, "the basis has other features.")
        need(self._used_frame.kernel.equals(self.expansion_.kernel), "the basis has another kernel.")

    def _fit(self, table: ArrayTable) -> None:
        if self._total_noise == 0:
            raise ValueError(
                "noise=0 is not possible here: the weights are residuals divided by the noise. Use a small noise, "
                "or NystromRegressor or CommitteeRegressor, which interpolate."
            )
        frame = self._choose_frame(table, np.dtype(np.float64))
        noise = self._total_noise
        fit = fit_reduced_rank(table, frame, noise=noise, intercept=bool(self.intercept), executor=make_executor(self))
        self.expansion_, self._calibrated = fit.expansion, fit.calibration
        self._used_frame, self._solution, self._precisions = frame, fit.variance.solution, fit.variance.precisions
        self._check_calibration()

    @property
    def noise_(self) -> float:
        """λ in use: the one given or chosen."""
        check_is_fitted(self)
        return self._solution.noise

    def _calibration(self) -> Calibration | None:
        return getattr(self, "_calibrated", None)

    @property
    def _frame(self) -> Frame:
        return self._used_frame

    def _variance(self) -> ReducedRankVariance:
        return ReducedRankVariance(self._used_frame, self.expansion_.points, self._solution, self._precisions)

    def _deviations(self, rows: Rows, *, noise: bool = False) -> FloatArray:
        # The variance of an observation is positive more often than the function's.
        roots = self._roots(rows, self._observation_noise() if noise else 0.0)
        return np.asarray(roots[:, np.newaxis] * self._scales())

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        return self._roots(rows, 0.0)

    def _roots(self, rows: Rows, noise: float) -> FloatArray:
        variances = self._variance().variances(rows, make_executor(self)) + noise
        _warn_if_negative(variances)
        return np.sqrt(np.where(variances < 0, np.nan, variances))

    def _covariance(self, rows: Rows) -> FloatArray:
        result, prior = self._variance().covariance(rows, make_executor(self))
        _warn_if_negative(np.diagonal(result) + ROUNDING * prior)
        return result


def _warn_if_negative(variances: FloatArray) -> None:
    negative = int(np.sum(variances < 0))
    if negative:
        warn(
            f"the reduced rank approximation gives a negative variance for {negative} of {len(variances)} rows, which "
            "lie away from the basis points. NystromRegressor and CommitteeRegressor have proper error bars.",
            NegativeVarianceWarning,
        )
