"""What all regressors share: targets, predictions with error bars in the units of the targets, intervals."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from mercer._typing import FloatArray, RandomState
from mercer._validation import (
    Integral,
    Real,
    check_is_fitted,
    check_random_state,
    check_sample_weight,
    check_summable,
    check_targets,
)
from mercer.engine import ArrayTable, Rows, kernel_diagonal
from mercer.estimators.shell import Shell, make_executor, on_its_threads, read_rows
from mercer.exceptions import warn
from mercer.model import Calibration, KernelExpansion, Regression
from mercer.model.sampling import MOST_ROWS, draw_jointly


class MeanRegressor(RegressorMixin, Shell):
    """A regressor that ends in an expansion; ``_flat`` tells whether y had one dimension."""

    _flat: bool

    @property
    def outputs_(self) -> Regression:
        """What the columns of the expansion mean."""
        check_is_fitted(self)
        return Regression(self._flat)

    @property
    def coefficients_(self) -> FloatArray:
        """Weights of the expansion's points, shape (m,) or (m, p)."""
        return self.outputs_.predict(self._mean_expansion().coefficients)

    @property
    def intercept_(self) -> Any:
        """The constant b, a number or an array (p,)."""
        return self._by_output(self._mean_expansion().intercept)

    @on_its_threads
    def predict(self, X: Any) -> Any:
        """Predict the targets of each row, (n,) or (n, p)."""
        outputs, rows = self.outputs_, read_rows(self, X, reset=False)
        return outputs.predict(self._evaluate_rows(rows))

    def _read(self, X: Any, y: Any, sample_weight: Any, *, first: bool, classes: Any = None) -> ArrayTable:
        """The table of a first or a later call, whose targets must look like the first."""
        rows = read_rows(self, X, reset=first)
        targets = check_targets(y, n_rows=rows.n_rows)
        check_summable(targets)
        flat = targets.ndim == 1
        columns = Regression(flat).columns(targets)
        if first:
            self._flat = flat
        elif (columns.shape[1], flat) != (self._n_outputs, self._flat):
            shape = "(n,)" if self._flat else f"(n, {self._n_outputs})"
            raise ValueError(
                f"y must have the shape {shape} of the first rows seen; it has {columns.shape[1]} output(s)."
            )
        return ArrayTable(rows, columns, check_sample_weight(sample_weight, n_rows=rows.n_rows))

    def _by_output(self, values: FloatArray) -> Any:
        """A number if y had one dimension, else an array (p,)."""
        return float(values[0]) if self.outputs_.flat else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = True
        return tags


class KernelRegressor(MeanRegressor):
    """A regressor that knows the spread of its predictions."""

    @property
    def scale_(self) -> Any:
        """σ, the prior's standard deviation in units of y, a number or an array (p,); the noise variance is λσ²."""
        return self._by_output(self._scales())

    @property
    def calibration_(self) -> Any:
        """Mean squared standardised leave-one-out residual, a number or an array (p,): 1 if the spread is right."""
        return self._by_output(self._calibrated_attribute("calibration_").mean_square(self._scales()))

    @property
    def loo_error_(self) -> Any:
        """Root of the mean squared leave-one-out residual, a number or an array (p,), from a sample of the rows."""
        return self._by_output(self._calibrated_attribute("loo_error_").error)

    @on_its_threads
    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False
    ) -> FloatArray | tuple[FloatArray, FloatArray]:
        """Predict the mean, and on request the spread of the function (without noise), in the units of y.

        Parameters
        ----------
        X : array (n, d)
        return_std : bool, default=False
            Whether to return the standard deviation, (n,) or (n, p), too.
        return_cov : bool, default=False
            Whether to return the covariance, (n, n) or (n, n, p), too.
        """
        outputs, rows = self.outputs_, read_rows(self, X, reset=False)
        check_one_spread(return_std, return_cov)
        mean = outputs.predict(self._evaluate_rows(rows))
        if return_std:
            return mean, outputs.predict(self._deviations(rows))
        return (mean, self._scaled_covariance(self._covariance(rows))) if return_cov else mean

    @on_its_threads
    def predict_interval(self, X: Any, coverage: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of intervals that hold new observations with a given probability.

        An interval is the mean ± c·s, with s the predicted standard deviation of an observation, and c the quantile of
        leave-one-out residuals in units of theirs (conformal prediction): it covers what was asked for on rows from the
        same distribution, even where the model's own spread is wrong.

        Parameters
        ----------
        X : array (n, d)
        coverage : float, default=0.95
            Between 0 and 1.

        Returns
        -------
        lower, upper : arrays (n,) or (n, p)
        """
        outputs, rows = self.outputs_, read_rows(self, X, reset=False)
        if not (isinstance(coverage, Real) and 0 < coverage < 1):
            raise ValueError(f"coverage must be a number between 0 and 1, got {coverage!r}.")
        calibration, scales = self._covering(), self._scales()
        width, conformal = calibration.quantile(scales, float(coverage))
        if not conformal:
            warn(
                f"{len(calibration.residuals)} rows are too few to find the residual that is exceeded with "
                f"probability {1 - coverage:.2g}: intervals are those of Student's distribution.",
                UserWarning,
            )
        mean, half = self._evaluate_rows(rows).astype(np.float64), width * self._deviations(rows, noise=True)
        return outputs.predict(mean - half), outputs.predict(mean + half)

    @on_its_threads
    def sample_y(self, X: Any, n_samples: int = 1, random_state: RandomState = None, noise: bool = False) -> FloatArray:
        """Draw functions from what is known of them, jointly at the rows of X, in the units of y.

        The draws have the mean and the covariance of ``predict(X, return_cov=True)``; outputs are independent of each
        other.

        Parameters
        ----------
        X : array (n, d)
            At most 4000 rows: their covariance is a dense matrix, whose eigenvectors are computed.
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState or None, default=None
        noise : bool, default=False
            Whether to draw observations: functions plus noise, independent from row to row.

        Returns
        -------
        array (n, n_samples) or (n, p, n_samples)
        """
        outputs, rows = self.outputs_, read_rows(self, X, reset=False)
        if not (isinstance(n_samples, Integral) and n_samples >= 1):
            raise ValueError(f"n_samples must be a whole number of at least 1, got {n_samples!r}.")
        if rows.n_rows > MOST_ROWS:
            raise ValueError(
                f"X has {rows.n_rows} rows: functions are drawn jointly at {MOST_ROWS} rows at the most. Draw at fewer "
                "rows, or independently for each from the mean and standard deviation that predict gives."
            )
        rng, scales = check_random_state(random_state), self._scales()
        mean = self._evaluate_rows(rows).astype(np.float64)
        prior = float(np.max(self._prior_variances(rows)))
        normal = rng.standard_normal((*mean.shape, int(n_samples)))
        drawn = draw_jointly(self._covariance(rows), normal.reshape(len(mean), -1), prior=prior).reshape(normal.shape)
        if noise:
            drawn += np.sqrt(self._observation_noise()) * rng.standard_normal(normal.shape)
        drawn = mean[:, :, np.newaxis] + scales[:, np.newaxis] * drawn
        return np.asarray(drawn[:, 0] if outputs.flat else drawn)

    @on_its_threads
    def log_density(self, X: Any, y: Any) -> FloatArray:
        """Logarithm of the predicted normal density of observations y (n,) or (n, p) at X, shape (n,).

        Outputs are independent: the densities are multiplied.
        """
        outputs, rows = self.outputs_, read_rows(self, X, reset=False)
        targets = outputs.columns(check_targets(y, n_rows=rows.n_rows))
        if targets.shape[1:] != (self._n_outputs,):
            raise ValueError(f"y must have {self._n_outputs} output(s), as in fit; it has {targets.shape[1]}.")
        # No target is known to more digits than it has.
        least = np.maximum(np.finfo(np.float64).eps * np.abs(targets), np.finfo(np.float64).tiny)
        deviations = np.maximum(self._deviations(rows, noise=True), least)
        with np.errstate(over="ignore"):  # of one that a model without a spread excludes: the density is zero
            z = (targets - self._evaluate_rows(rows)) / deviations
            return np.asarray(np.sum(-0.5 * z**2 - np.log(deviations) - 0.5 * np.log(2 * np.pi), axis=1))

    def _scales(self) -> FloatArray:
        return self._mean_expansion().scales

    def _deviations(self, rows: Rows, *, noise: bool = False) -> FloatArray:
        """Standard deviations (n, p) in the units of the targets, of the function or of observations with noise."""
        unit = self._standard_deviations(rows)
        if noise:
            unit = np.sqrt(unit**2 + self._observation_noise())
        return np.asarray(unit[:, np.newaxis] * self._scales())

    def _observation_noise(self) -> float:
        """λ of a new observation: of a row of weight 1, or, if weights are no counts, of their mean."""
        calibration = self._calibration()
        return float(self.noise_) / (1.0 if calibration is None else calibration.ordinary)

    def _scaled_covariance(self, unit: FloatArray) -> FloatArray:
        squares = self._scales() ** 2
        return unit * squares[0] if self.outputs_.flat else unit[:, :, np.newaxis] * squares

    def _calibrated_attribute(self, name: str) -> Calibration:
        """As ``_need_calibration``, with the error that says that there is no such attribute."""
        check_is_fitted(self)
        try:
            return self._need_calibration(name)
        except ValueError as error:
            raise AttributeError(str(error)) from error

    def _need_calibration(self, what: str) -> Calibration:
        check_is_fitted(self)
        calibration = self._calibration()
        if calibration is None or len(calibration.residuals) == 0:
            raise ValueError(
                f"{what} needs leave-one-out residuals, which this model does not have: fit it to two rows or more, "
                "with a noise above zero, by this version of mercer."
            )
        return calibration

    def _covering(self) -> Calibration:
        """The residuals that intervals must cover."""
        return self._need_calibration("predict_interval")

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        """Of the function, (n,), in units of σ."""
        expansion: KernelExpansion = self.expansion_
        return np.sqrt(expansion.variances(rows, executor=make_executor(self)))

    def _prior_variances(self, rows: Rows) -> FloatArray:
        """k(x, x), (n,)."""
        return kernel_diagonal(rows, self._mean_expansion().kernel, executor=make_executor(self))

    def _covariance(self, rows: Rows) -> FloatArray:
        """Of the function, (n, n), in units of σ²."""
        expansion: KernelExpansion = self.expansion_
        return expansion.covariance(rows, executor=make_executor(self))


def check_one_spread(return_std: bool, return_cov: bool) -> None:
    """Refuse a request for both the standard deviation and the covariance."""
    if return_std and return_cov:
        raise ValueError(
            "return_std and return_cov exclude each other: the standard deviation is on the covariance's diagonal."
        )
