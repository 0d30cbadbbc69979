"""What the estimators' shells share: from arguments to rows, targets, kernels and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.random import sample_without_replacement

from mercer._stored import stored
from mercer._stored.checks import check_columns, check_finite, check_shape
from mercer._typing import FloatArray, IntArray
from mercer._validation import check_random_state, check_sample_weight, check_table, check_targets
from mercer.engine import ArrayRows, ArrayTable, Executor, Rows, Threads, given_executor
from mercer.kernels import Kernel, Precomputed, as_kernel

__all__ = [
    "Data",
    "all_or_nothing",
    "check_one_spread",
    "encode_targets",
    "make_executor",
    "read_data",
    "read_rows",
    "resolve_kernel",
    "rows_with_a_say",
]

_MEDIAN_SAMPLE = 1000  # rows from which data-dependent kernel parameters are found

# From y and the number of rows to one column per output, float64: regression targets as they are, labels as ±1; and
# whether predictions are to be one-dimensional.
Encode = Callable[[Any, int], tuple[FloatArray, bool]]


@stored
@dataclass(frozen=True)
class Data:
    """What a fit works on."""

    rows: Rows
    targets: FloatArray  # (n, p)
    weights: FloatArray | None  # (n,)
    flat: bool  # whether y had one dimension

    @property
    def table(self) -> ArrayTable:
        """Rows, targets and weights together."""
        return ArrayTable(self.rows, self.targets, self.weights)

    def check_stored(self) -> None:
        """Refuse targets and weights of other rows."""
        check_columns(self.targets, self.rows.n_rows, "kept targets")
        check_finite(self.targets, "kept targets")
        if self.weights is not None:
            check_shape(self.weights, (self.rows.n_rows,), "kept weights")


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Leave the estimator as it was if the work inside fails or is interrupted."""
    state = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(state)
        raise


def read_data(estimator: Any, X: Any, y: Any, sample_weight: Any, *, encode: Encode, reset: bool) -> Data:
    """Check the arguments of ``fit`` and its kin."""
    rows = read_rows(estimator, X, reset=reset)
    targets, flat = encode(y, rows.n_rows)
    return Data(rows, targets, check_sample_weight(sample_weight, n_rows=rows.n_rows), flat)


def read_rows(estimator: Any, X: Any, *, reset: bool) -> Rows:
    """Check rows given as an array, a data frame or a source of rows; remember (``reset``) or compare their width."""
    if not isinstance(X, Rows):
        return ArrayRows(check_table(estimator, X, reset=reset), checked=not isinstance(X, np.memmap))
    if reset:
        estimator.n_features_in_ = X.n_features
        vars(estimator).pop("feature_names_in_", None)  # a source of rows has no names
    elif X.n_features != estimator.n_features_in_:
        msg = (
            f"X has {X.n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
        raise ValueError(msg)
    return X


def check_one_spread(return_std: bool, return_cov: bool) -> None:
    """Refuse a request for both the standard deviation and the covariance."""
    if return_std and return_cov:
        msg = "return_std and return_cov exclude each other: the standard deviation is on the covariance's diagonal."
        raise ValueError(msg)


def rows_with_a_say(data: Data, noise: float) -> IntArray:
    """Numbers of the rows whose noise λ/ω is finite: those of weight zero have no say."""
    if data.weights is None:
        return np.arange(data.rows.n_rows)
    with np.errstate(over="ignore", divide="ignore"):
        index = np.flatnonzero(np.isfinite(max(noise, 1.0) / data.weights))
    if not len(index):
        msg = "sample_weight is so small that no row has a say: scale it."
        raise ValueError(msg)
    return index


def make_executor(estimator: Any) -> Executor:
    """The executor in use, or threads as ``n_jobs`` and ``verbose`` ask for."""
    executor: Executor | None = given_executor()
    return Threads(estimator.n_jobs, verbose=estimator.verbose) if executor is None else executor


def resolve_kernel(kernel: Any, data: Data, random_state: Any) -> Kernel:
    """Return the kernel with all parameters as numbers, found on a sample of the rows where they depend on data."""
    if isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel == "precomputed"):
        msg = "kernel='precomputed' is for ExactRegressor and ExactClassifier: a basis needs the rows themselves."
        raise ValueError(msg)
    unresolved: Kernel = as_kernel(kernel)
    if not unresolved.needs_data:
        return unresolved.resolve(np.empty((0, data.rows.n_features)))
    positive = np.arange(data.rows.n_rows) if data.weights is None else np.flatnonzero(data.weights)
    if len(positive) > _MEDIAN_SAMPLE:
        chosen = sample_without_replacement(
            len(positive), _MEDIAN_SAMPLE, random_state=check_random_state(random_state)
        )
        positive = positive[np.sort(chosen)]
    weights = None if data.weights is None else data.weights[positive]
    return unresolved.resolve(data.rows.take(positive), weights)


def encode_targets(y: Any, n_rows: int) -> tuple[FloatArray, bool]:
    """Regression targets as columns, shape (n, p), and whether they came as one dimension."""
    targets = check_targets(y, n_rows=n_rows)
    flat = targets.ndim == 1
    return (targets[:, np.newaxis] if flat else targets), flat
