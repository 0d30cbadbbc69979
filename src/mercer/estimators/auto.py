"""Regression and classification without settings: kernel, length scales, noise and method come from the data."""

import sys
import time
from abc import abstractmethod
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._stored.checks import need
from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import Integral, Interval, Real, check_is_fitted, check_random_state, parameters
from mercer.engine import ArrayTable, Executor, Rows
from mercer.engine.checkpoint import refuse_checkpoint
from mercer.estimators.classification import CLASS_WEIGHT, KernelClassifier
from mercer.estimators.exact import ExactClassifier, ExactRegressor
from mercer.estimators.nystrom import NystromClassifier, NystromRegressor
from mercer.estimators.regression import KernelRegressor
from mercer.estimators.shell import Shell, make_executor
from mercer.exceptions import OutlierWarning, warn
from mercer.methods.budget import Budget
from mercer.methods.columns import Columns, ColumnsOf
from mercer.methods.outlying import describe_outlying, outlying_targets
from mercer.methods.search import Candidate, judge_on_basis, n_candidates, search_kernel
from mercer.model import Calibration, KernelExpansion
from mercer.model.calibration import sample_rows

_SAMPLE = 10_000  # rows by which columns are scaled
_MOST_RANKED = 100  # features: with more, their ranks are left out
# Shares of the time after which no other kernel is begun: if the model is exact, if it is on a basis; none tried on it.
_EXACT_SEARCH, _SEARCH, _JUDGING = 0.6, 0.4, 0.6
_ENOUGH_TRIED = 0.5  # of the kernels that are planned, in full: of fewer a warning tells
_MOST_COPIES = 0.3  # share of the rows that may repeat others without a warning


@parameters
class AutoMachine(Shell):
    """Parameters and fit that regression and classification share; the model of transformed columns does the rest."""

    time_limit: float = 60.0
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0

    _columns: Columns = field(init=False)
    choice_: dict[str, Any] = field(init=False)
    model_: Any

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "time_limit": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }
    _exact: ClassVar[Any]
    _on_basis: ClassVar[Any]

    def check_stored(self) -> None:
        """Refuse a model of other columns."""
        used = self._columns.used
        need(len(used) == 0 or int(np.max(used)) < self.n_features_in_, "columns of a model are beyond its features.")
        need(self.model_.n_features_in_ == self._columns.n_features, "a model has other columns than it was given.")

    def _fit(self, table: ArrayTable) -> None:
        refuse_checkpoint(type(self).__name__)
        began, rng, executor = time.monotonic(), check_random_state(self.random_state), make_executor(self)
        used = _rows_that_count(table)
        limit, table = float(self.time_limit), _relative(table.subset(used))
        sample = sample_rows(np.arange(table.n_rows), _SAMPLE)
        rows = table.rows.take(sample)
        _warn_of_copies(rows, table.subset(sample).labels)
        self._columns = Columns.of(rows, ranks=table.n_features <= _MOST_RANKED)
        everything = replace(table, rows=ColumnsOf(table.rows, self._columns))
        aside = self._set_aside(everything, used, executor)
        table = _relative(table.subset(np.setdiff1d(np.arange(len(used)), aside, assume_unique=True)))
        shown = replace(table, rows=ColumnsOf(table.rows, self._columns))
        budget = Budget.on_this_machine(limit, getattr(executor, "n_jobs", 1))
        options: dict[str, Any] = {"budget": budget, "rng": rng, "executor": executor, "say": self._say}
        exact = table.n_rows <= budget.exact_rows()
        candidates = search_kernel(shown, deadline=began + (_EXACT_SEARCH if exact else _SEARCH) * limit, **options)
        finished = sum(not each.hurried for each in candidates)
        if not exact:
            candidates = judge_on_basis(shown, candidates, deadline=began + _JUDGING * limit, **options) + candidates
        best = candidates[0]
        model, reason = self._model(best, table.n_rows, budget, rng)
        self.model_ = model.fit(shown.rows, self._given(table), table.weights)
        self._count(everything.subset(aside), table.n_rows)
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
        planned = n_candidates(table.n_rows, shown.n_features)
        if finished < _ENOUGH_TRIED * planned:
            warn(
                f"time_limit={limit:g} s was enough for {finished} of {planned} kernels: the best so far is used.",
                UserWarning,
            )

    def _set_aside(self, table: ArrayTable, used: IntArray, executor: Executor) -> IntArray:
        """Which rows, of these numbers, the model is fitted without: of labels none."""
        return np.empty(0, dtype=np.intp)

    def _count(self, aside: ArrayTable, n_fitted: int) -> None:
        """Note how the model does on rows that it was fitted without."""

    @abstractmethod
    def _given(self, table: ArrayTable) -> Any:
        """Targets or labels, as the user gave them."""

    def _model(self, best: Candidate, n_rows: int, budget: Budget, rng: np.random.RandomState) -> tuple[Any, str]:
        """The model that is fitted to all rows, and why."""
        shared: dict[str, Any] = {
            "random_state": int(rng.randint(2**31 - 1)), "n_jobs": self.n_jobs, "verbose": self.verbose
        }  # fmt: skip
        most = budget.exact_rows()
        if n_rows <= most:
            return self._exact(best.kernel, **shared), f"{best.name}, exactly: {n_rows} rows are at most {most}"
        m = budget.basis_size(n_rows)
        return self._on_basis(best.kernel, n_basis=m, **shared), (
            f"{best.name}, on {m} basis points: {n_rows} rows are more than {most}"
        )

    def _say(self, message: str) -> None:
        if self.verbose:
            print(f"{type(self).__name__}: {message}", file=sys.stderr, flush=True)

    @property
    def noise_(self) -> float:
        """λ in use."""
        check_is_fitted(self)
        return float(self.model_.noise_)

    @property
    def _n_outputs(self) -> int:
        return int(self.model_._n_outputs)

    def _mean_expansion(self) -> KernelExpansion:
        expansion: KernelExpansion = self.model_._mean_expansion()
        return expansion

    def _evaluate_rows(self, rows: Rows) -> FloatArray:
        values: FloatArray = self.model_._evaluate_rows(ColumnsOf(rows, self._columns))
        return values

    def _calibration(self) -> Calibration | None:
        calibration: Calibration | None = self.model_._calibration()
        return calibration


@stored
@parameters
class AutoRegressor(KernelRegressor, AutoMachine):
    """Kernel regression that needs no settings: give it rows and targets.

    Columns are put on a robust scale, and on that of their ranks. Kernels with a length scale for each, and sums of
    two, are found by marginal likelihood on 1000 rows and judged by leave-one-out errors of 3000. Then all rows are
    fitted: exactly up to 6000 of them, else on a basis (subset of representers) of as many points as the time limit and
    the memory allow; for that the best kernels are judged again, with other overall scales and a learned metric.
    The noise is chosen by marginal likelihood, and the spread is calibrated by leave-one-out residuals.

    Parameters
    ----------
    time_limit : float, default=60.0
        Seconds, roughly. It sets the size of the model; the kernel depends on it if it is too short to try all kernels
        in full. If that holds for more than half of them, a warning says so.
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
        Mean squared standardised leave-one-out residual: 1, as ``scale_`` is chosen so. That of ``model_`` tells how
        far its likelihood was off.
    loo_error_ : float or array (p,)
        Root mean squared leave-one-out residual.
    outlying_ : array of int
        Numbers of the rows that the model was fitted without, since their targets are so far from all others that they
        would decide the fit alone. Usually there are none.

    See Also
    --------
    ExactRegressor, NystromRegressor : The models, with settings.

    Notes
    -----
    Only ratios of weights matter, and rows of weight zero are left out. Intervals are for observations that occur as
    often as weights say.

    Least squares follow a target that is a thousand times as large as all others, at the expense of these. Such rows,
    at most 5 % and only if their features do not explain them, are left out of the fit with an ``OutlierWarning``;
    intervals count them, while ``scale_``, ``calibration_`` and ``loo_error_`` are of the others. The threshold depends
    on the tails of the targets: 10 to 10 000 times the deviation from the median that 5 % of them exceed.

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

    model_: ExactRegressor | NystromRegressor = field(init=False)
    outlying_: Sometimes[IntArray] = field(init=False)
    _missed: Sometimes[Calibration | None] = field(init=False)  # outlying rows, as the model predicts them

    _exact = ExactRegressor
    _on_basis = NystromRegressor

    def check_stored(self) -> None:
        """Refuse a model of other columns or outputs."""
        super().check_stored()
        need(self.model_._flat == self._flat, "a model has other outputs than its estimator.")
        missed = vars(self).get("_missed")
        need(missed is None or missed.targets.shape[1] == self._n_outputs, "outlying rows have other outputs.")

    def _given(self, table: ArrayTable) -> Any:
        return table.targets[:, 0] if self._flat else table.targets

    def _set_aside(self, table: ArrayTable, used: IntArray, executor: Executor) -> IntArray:
        aside = outlying_targets(table, executor)
        self.outlying_ = used[aside]
        if len(aside):
            warn(describe_outlying(table.targets, aside, used), OutlierWarning)
        return aside

    def _count(self, aside: ArrayTable, n_fitted: int) -> None:
        calibration, self._missed = self.model_._calibration(), None
        if aside.n_rows == 0 or calibration is None or len(calibration.residuals) == 0:
            return
        variances = self.model_._standard_deviations(aside.rows) ** 2 + self.model_._observation_noise()
        weights = np.ones(aside.n_rows) if aside.weights is None else aside.weights
        # The others may be a sample.
        weights = weights * (len(calibration.residuals) / n_fitted)
        residuals = aside.targets - self.model_._evaluate_rows(aside.rows)
        self._missed = Calibration(aside.targets, residuals, variances, weights, calibration.ordinary)

    def _covering(self) -> Calibration:
        found, missed = super()._covering(), getattr(self, "_missed", None)
        return found if missed is None else Calibration.joined([found, missed])

    def _scales(self) -> FloatArray:
        """Those of the model, calibrated: the mean squared standardised residual is 1."""
        calibration, scales = self.model_._calibration(), self.model_._scales()
        if calibration is None or len(calibration.residuals) == 0:
            return scales
        return np.asarray(scales * np.sqrt(calibration.mean_square(scales)))

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        return self.model_._standard_deviations(ColumnsOf(rows, self._columns))

    def _prior_variances(self, rows: Rows) -> FloatArray:
        return self.model_._prior_variances(ColumnsOf(rows, self._columns))

    def _covariance(self, rows: Rows) -> FloatArray:
        return self.model_._covariance(ColumnsOf(rows, self._columns))


@stored
@parameters
class AutoClassifier(KernelClassifier, AutoMachine):
    """Kernel classification that needs no settings: give it rows and labels.

    As ``AutoRegressor``: least squares on ±1, one class against the rest. Probabilities are fitted to leave-one-out
    values.

    Parameters
    ----------
    time_limit, random_state, n_jobs, verbose
        As in ``AutoRegressor``.
    class_weight : dict, "balanced" or None, default=None
        What the weights of rows are multiplied by: a number for each class, or such numbers that all classes have the
        same total weight.

    Attributes
    ----------
    classes_ : array (classes,)
    model_ : ExactClassifier or NystromClassifier
        The model, of transformed columns.
    choice_ : dict
        What was chosen, why, and what was tried: ``method``, ``reason``, ``kernel``, ``noise``, ``tried``.
    noise_ : float
        λ in use.

    See Also
    --------
    ExactClassifier, NystromClassifier : The models, with settings.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from mercer import AutoClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = AutoClassifier(random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.95
    True
    >>> model.predict_proba(X[:1]).shape
    (1, 3)
    """

    model_: ExactClassifier | NystromClassifier = field(init=False)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**AutoMachine._parameter_constraints, **CLASS_WEIGHT}
    _exact = ExactClassifier
    _on_basis = NystromClassifier

    def check_stored(self) -> None:
        """Refuse a model of other columns or classes."""
        super().check_stored()
        need(np.array_equal(self.model_.classes_, self.classes_), "a model has other classes than its estimator.")

    def _given(self, table: ArrayTable) -> Any:
        return self.classes_[table.labels]


def _warn_of_copies(rows: FloatArray, labels: Any) -> None:
    """Warn if many rows are copies of others: nothing can be learned of new rows from how well copies are predicted."""
    whole = np.ascontiguousarray(np.column_stack([rows, labels]), dtype=np.float64)
    distinct = len(np.unique(whole.view(np.dtype((np.void, whole.strides[0])))))
    if distinct < (1 - _MOST_COPIES) * len(rows):
        warn(
            f"{1 - distinct / len(rows):.0%} of the rows are copies of others. Kernel, noise and intervals are found "
            "by leaving out single rows, whose copies remain: that is right only if new rows are copies as often. If "
            "not, give each row once, with the number of its copies as sample_weight.",
            UserWarning,
        )


def _rows_that_count(table: ArrayTable) -> IntArray:
    """Rows of positive weight, and one of each class that has none, so that the model knows of the class."""
    if table.weights is None:
        return np.arange(table.n_rows)
    used = table.weights > 0
    if table.coding is not None and table.labels is not None:
        codes, first = np.unique(table.labels, return_index=True)
        used[first[~np.isin(codes, table.labels[used])]] = True
    return np.flatnonzero(used)


def _relative(table: ArrayTable) -> ArrayTable:
    """Weights relative to the largest: only ratios matter where all else is chosen, too."""
    return table if table.weights is None else replace(table, weights=table.weights / np.max(table.weights))
