"""The one door to scikit-learn's checks."""

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from mercer._typing import AnyArray, FloatArray

__all__ = [
    "Integral",
    "Interval",
    "Real",
    "StrOptions",
    "check_is_fitted",
    "check_labels",
    "check_random_state",
    "check_sample_weight",
    "check_table",
    "check_targets",
]


def check_table(estimator: Any, X: Any, *, reset: bool) -> AnyArray:
    """Check a table of rows, and record (``reset``) or compare its width and column names.

    Its dtype stays as it is, so that integers, float32 and memory maps are not copied: the engine converts each tile.
    The values of a memory map are not read here; the engine checks them as it meets them.
    """
    with _naming("X"):
        table = validate_data(
            estimator, X, reset=reset, dtype="numeric", order=None, ensure_all_finite=not isinstance(X, np.memmap)
        )
    return np.asarray(table)


def check_targets(y: Any, *, n_rows: int) -> FloatArray:
    """Check regression targets: finite numbers, one row each; returns float64 of shape (n,) or (n, p)."""
    if y is None:
        msg = "requires y to be passed, but the target y is None."
        raise ValueError(msg)
    with _naming("y"):
        targets = check_array(y, dtype=np.float64, ensure_2d=False, ensure_min_samples=0, input_name="y")
    if targets.ndim > 2:
        msg = f"y must have one or two dimensions, got {targets.ndim}."
        raise ValueError(msg)
    _check_length("y", len(targets), n_rows)
    return np.asarray(targets)


def check_labels(y: Any, *, n_rows: int) -> AnyArray:
    """Check class labels: one per row; returns shape (n,)."""
    if y is None:
        msg = "requires y to be passed, but the target y is None."
        raise ValueError(msg)
    labels = np.asarray(column_or_1d(y, warn=True))
    if labels.dtype.kind == "f":
        check_array(labels, ensure_2d=False, input_name="y")  # no NaN and no infinity among labels
    check_classification_targets(labels)
    _check_length("y", len(labels), n_rows)
    return labels


def check_sample_weight(sample_weight: Any, *, n_rows: int) -> FloatArray | None:
    """Check weights: finite, none negative, not all zero; None stays None."""
    if sample_weight is None:
        return None
    stand_in = np.empty((n_rows, 0))  # only its length is looked at
    with _naming("sample_weight"):
        weights = _check_sample_weight(sample_weight, stand_in, dtype=np.float64, ensure_non_negative=True)
    if not np.any(weights > 0):
        msg = "sample_weight must not be zero for all rows."
        raise ValueError(msg)
    return np.asarray(weights)


_NOT_NUMBERS = ("could not convert", "must be a string or a real number", "arrays of bytes/strings")


@contextmanager
def _naming(argument: str) -> Iterator[None]:
    """Say which argument could not be converted to numbers, which scikit-learn leaves out."""
    try:
        yield
    except (TypeError, ValueError) as error:
        message = str(error)
        if any(phrase in message for phrase in _NOT_NUMBERS):
            msg = f"{argument} must hold numbers: {message}"
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(msg) from error
        raise


def _check_length(name: str, length: int, n_rows: int) -> None:
    if length != n_rows:
        check_consistent_length([None] * n_rows, [None] * length)
        msg = f"{name} has {length} rows, X has {n_rows}."  # pragma: no cover  the line above has raised
        raise ValueError(msg)
