"""Regression without settings: kernel, length scales, noise and method are chosen from the data."""

import sys
import time
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from mercer._stored import stored
from mercer._stored.checks import need
from mercer._typing import FloatArray, RandomState
from mercer._validation import Integral, Interval, Real, check_is_fitted, check_random_state, parameters
from mercer.engine import ArrayTable, Rows
from mercer.estimators.exact import ExactRegressor
from mercer.estimators.nystrom import NystromRegressor
from mercer.estimators.regression import KernelRegressor
from mercer.estimators.shell import make_executor
from mercer.exceptions import warn
from mercer.methods.columns import Columns, ColumnsOf
from mercer.methods.search import Candidate, search_kernel
from mercer.model import Calibration, KernelExpansion
from mercer.model.calibration import sample_rows

_SAMPLE = 10_000  # rows by which columns are scaled
_MOST_RANKED = 100  # features: with more, their ranks are left out
_EXACT_ROWS = 6000  # up to here the exact model takes seconds
_BASIS = ((200_000, 2000), (2_000_000, 1000))  # basis points for so many rows
_FEWEST_BASIS = 500
_SEARCH = 0.6  # share of the time for the choice of the kernel


@stored
@parameters
class AutoRegressor(KernelRegressor):
    """Kernel regression that needs no settings: give it rows and targets.

    Columns are put on a robust scale, and on that of their ranks. A kernel, with a length scale for each feature, is
    found by marginal likelihood on a sample and judged by rows that were held out. Then all rows are fitted: exactly up
    to 6000 of them, else on a basis (subset of representers). The noise is chosen by marginal likelihood, and the
    spread is calibrated by leave-one-out residuals.

    Parameters
    ----------
    time_limit : float, default=60.0
        Seconds. What is chosen depends on it only if it is too short to try everything, which is warned of.
    random_state : int, RandomState or None, default=None
        For the rows by which kernels are judged, and the basis.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 tells what is tried, on standard error.

    Attributes
    ----------
    model_ : ExactRegressor or NystromRegressor
        The model, of transformed columns.
    choice_ : dict
        What was chosen, why, and what was tried: ``method``, ``reason``, ``kernel``, ``noise``, ``tried``.
    scale_ : float or array (p,)
        Standard deviation of the prior, in units of y.
    noise_ : float
        λ in use: the noise variance is λ·scale_².
    calibration_ : float or array (p,)
        Mean squared standardised leave-one-out residual: 1 if the spread is right.
    loo_error_ : float or array (p,)
        Root mean squared leave-one-out residual.

    See Also
    --------
    ExactRegressor, NystromRegressor : The models, with settings.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from mercer import AutoRegressor
    >>> X, y = make_friedman1(400, random_state=0)
    >>> model = AutoRegressor(random_state=0).fit(X[:300], y[:300])
    >>> lower, upper = model.predict_interval(X[300:], coverage=0.9)
    >>> model.score(X[300:], y[300:]) > 0.99
    True
    """

    time_limit: float = 60.0
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0

    _columns: Columns = field(init=False)
    model_: ExactRegressor | NystromRegressor = field(init=False)
    choice_: dict[str, Any] = field(init=False)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "time_limit": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }

    def check_stored(self) -> None:
        """Refuse a model of other columns."""
        used = self._columns.used
        need(len(used) == 0 or int(np.max(used)) < self.n_features_in_, "columns of a model are beyond its features.")
        need(self.model_.n_features_in_ == self._columns.n_features, "a model has other columns than it was given.")
        need(self.model_._flat == self._flat, "a model has other outputs than its estimator.")

    def _fit(self, table: ArrayTable) -> None:
        began, rng, executor = time.monotonic(), check_random_state(self.random_state), make_executor(self)
        limit = float(self.time_limit)
        sample = sample_rows(np.arange(table.n_rows), _SAMPLE)
        self._columns = Columns.of(table.rows.take(sample), ranks=table.n_features <= _MOST_RANKED)
        shown = ArrayTable(ColumnsOf(table.rows, self._columns), table.labels, table.weights)
        candidates = search_kernel(shown, deadline=began + _SEARCH * limit, rng=rng, executor=executor, say=self._say)
        best = candidates[0]
        model, reason = self._model(best, table.n_rows, rng)
        targets = table.targets[:, 0] if self._flat else table.targets
        self.model_ = model.fit(shown.rows, targets, table.weights)
        self.choice_ = {
            "method": type(model).__name__,
            "reason": reason,
            "kernel": best.kernel,
            "noise": float(self.model_.noise_),
            "tried": [
                {"name": each.name, "error": float(np.sqrt(each.error)), "seconds": each.seconds} for each in candidates
            ],
        }
        self._say(f"{reason}; {time.monotonic() - began:.1f} s in all")
        if len(candidates) < 4:
            warn(
                f"time_limit={limit:g} s was enough for {len(candidates)} of 4 kernels: the best of these is used.",
                UserWarning,
            )

    def _model(self, best: Candidate, n_rows: int, rng: np.random.RandomState) -> tuple[Any, str]:
        """The model that is fitted to all rows, and why."""
        shared: dict[str, Any] = {
            "random_state": int(rng.randint(2**31 - 1)), "n_jobs": self.n_jobs, "verbose": self.verbose
        }  # fmt: skip
        if n_rows <= _EXACT_ROWS:
            return ExactRegressor(best.kernel, **shared), (
                f"{best.name}, exactly: {n_rows} rows are at most {_EXACT_ROWS}"
            )
        m = next((size for most, size in _BASIS if n_rows <= most), _FEWEST_BASIS)
        return NystromRegressor(best.kernel, n_basis=m, **shared), (
            f"{best.name}, on {m} basis points: {n_rows} rows are more than {_EXACT_ROWS}"
        )

    def _say(self, message: str) -> None:
        if self.verbose:
            print(f"AutoRegressor: {message}", file=sys.stderr, flush=True)

    @property
    def noise_(self) -> float:
        """λ in use."""
        check_is_fitted(self)
        return float(self.model_.noise_)

    @property
    def _n_outputs(self) -> int:
        return self.model_._n_outputs

    def _mean_expansion(self) -> KernelExpansion:
        return self.model_._mean_expansion()

    def _evaluate_rows(self, rows: Rows) -> FloatArray:
        return self.model_._evaluate_rows(ColumnsOf(rows, self._columns))

    def _scales(self) -> FloatArray:
        """Those of the model, calibrated: the mean squared standardised residual is 1."""
        calibration, scales = self.model_._calibration(), self.model_._scales()
        if calibration is None or len(calibration.residuals) == 0:
            return scales
        return np.asarray(scales * np.sqrt(calibration.mean_square(scales)))

    def _calibration(self) -> Calibration | None:
        return self.model_._calibration()

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        return self.model_._standard_deviations(ColumnsOf(rows, self._columns))

    def _covariance(self, rows: Rows) -> FloatArray:
        return self.model_._covariance(ColumnsOf(rows, self._columns))
