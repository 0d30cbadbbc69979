"""The one door to scikit-learn's checks, and to what they let through: dates, masked arrays, data not in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from sklearn.utils.validation import _is_fitted as is_fitted

from mercer._typing import AnyArray, FloatArray

__all__ = [
    "HasMethods",
    "Integral",
    "Interval",
    "Real",
    "StrOptions",
    "check_is_fitted",
    "check_labels",
    "check_numbers",
    "check_random_state",
    "check_sample_weight",
    "check_table",
    "check_targets",
    "is_fitted",
    "parameters",
]


_Class = TypeVar("_Class", bound=type)

_SIZES = (1e-152, 1e152)  # of the largest weight: squares of smaller and larger numbers, and sums of them, are none
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def parameters(cls: _Class) -> _Class:
    """Make ``__init__`` of the parameters that an estimator annotates: keywords, stored as they are given.

    What ``fit`` sets is no parameter: ``state: State = field(init=False)``.
    """
    dataclass(eq=False, repr=False, kw_only=True)(cls)
    return cls


def check_table(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Check a table of rows, and record (``reset``) or compare its width and column names; a sparse one stays sparse.

    Its dtype stays as it is, so that integers, float32 and memory maps are not copied: the engine converts each tile.
    The values of a memory map are not read here; the engine checks them as it meets them.
    """
    if not reset and _is_plain(X, estimator):
        return X
    with _naming("X"):
        table = validate_data(
            estimator,
            check_numbers(X, "X"),
            reset=reset,
            accept_sparse=("csr", "csc", "coo"),
            dtype="numeric",
            order=None,
            ensure_all_finite=not isinstance(X, np.memmap),
        )
    return table if issparse(table) else np.asarray(table)


def _is_plain(X: Any, estimator: Any) -> bool:
    """Whether X is an array that scikit-learn would take as it is: its checks take longer than one prediction."""
    with np.errstate(over="ignore", invalid="ignore"):  # numbers too large to sum are left to scikit-learn, too
        return bool(
            type(X) is np.ndarray
            and X.ndim == 2
            and X.dtype in _FLOATS
            and len(X) > 0
            and X.shape[1] == estimator.n_features_in_
            and not hasattr(estimator, "feature_names_in_")
            and np.isfinite(np.sum(X))
        )


def check_targets(y: Any, *, n_rows: int) -> FloatArray:
    """Check regression targets: finite numbers, one row each; returns float64 of shape (n,) or (n, p)."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")
    with _naming("y"):
        numbers = check_numbers(y, "y")
        if np.ndim(numbers) == 0:
            raise ValueError(f"y must hold one target per row, in one dimension or two; got {y!r}.")
        targets = check_array(numbers, dtype=np.float64, ensure_2d=False, ensure_min_samples=0, input_name="y")
    if targets.ndim > 2:
        raise ValueError(f"y must have one or two dimensions, got {targets.ndim}.")
    check_consistent_length(range(n_rows), targets)
    return np.asarray(targets)


def check_labels(y: Any, *, n_rows: int) -> AnyArray:
    """Check class labels: one per row; returns shape (n,)."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")
    _refuse_elsewhere(y, "y")
    with _naming("y", "class labels"):
        labels = np.asarray(column_or_1d(y, warn=True))
        for row, label in enumerate(labels) if labels.dtype.kind == "O" else ():
            # None, NaN and NaT, which are not equal to themselves, and pd.NA, of which that is not known
            if label is None or type(label).__name__ == "NAType" or bool(label != label):  # noqa: PLR0124
                raise ValueError(f"y must hold a class label for each row, got {label!r} in row {row}.")
        if labels.dtype.kind == "f":
            check_array(labels, ensure_2d=False, input_name="y")  # no NaN and no infinity among labels
        check_classification_targets(labels)
    check_consistent_length(range(n_rows), labels)
    return labels


def check_sample_weight(sample_weight: Any, *, n_rows: int) -> FloatArray | None:
    """Check weights: finite, none negative, not all zero, the largest of a size that has a square; None stays None."""
    if sample_weight is None:
        return None
    stand_in = np.empty((n_rows, 0))  # only its length is looked at
    with _naming("sample_weight"):
        given = check_numbers(sample_weight, "sample_weight")
        weights = _check_sample_weight(given, stand_in, dtype=np.float64, ensure_non_negative=True)
    if not np.any(weights > 0):
        raise ValueError("sample_weight must not be zero for all rows.")
    if not _SIZES[0] <= np.max(weights) <= _SIZES[1]:
        raise ValueError(
            f"sample_weight goes up to {np.max(weights):.3g}, whose square is no number: scale it to a mean of 1."
        )
    return np.asarray(weights)


# ------------------------------------------------------------------------------------------------- what is no number

# How the names of types begin (NumPy's, pandas', Arrow's and Polars'), what such values are, and what to do about it.
_CODE = "encode them as numbers, for example by scikit-learn's OneHotEncoder"
_SINCE = "turn them into numbers, for example of days since a date"
_UNIT = "divide them by a unit, for example np.timedelta64(1, 'h')"
_PARTS = "pass real and imaginary parts as features of their own"
_NO_NUMBERS = (
    ("timedelta", "time differences", _UNIT),
    ("duration", "time differences", _UNIT),
    ("date", "dates", _SINCE),  # datetime64, datetime, date32
    ("timestamp", "dates", _SINCE),
    ("period", "dates", _SINCE),
    ("nattype", "dates", _SINCE),  # of pandas' NaT
    ("time", "times of day", _SINCE),
    ("categor", "categories", _CODE),
    ("enum", "categories", _CODE),
    ("complex", "complex numbers", _PARTS),
)
# Modules of classes that stand for data not in memory: whose they are, and the method that loads them.
_LAZY = {"dask": ("Dask", "compute"), "dask_expr": ("Dask", "compute"), "polars.lazyframe": ("Polars", "collect")}


def check_numbers(values: Any, name: str) -> Any:
    """Refuse what would be taken for numbers in silence; lists and their like come back as arrays, all else as it is.

    Dates, time differences, categories, masked arrays, and data that would have to be loaded are a ``TypeError``;
    complex numbers are a ``ValueError``.
    """
    if type(values) is np.ndarray and values.dtype.kind in "fiub":  # one row is predicted in microseconds
        return values
    _refuse_elsewhere(values, name)
    if not (hasattr(values, "dtype") or hasattr(values, "dtypes") or isinstance(values, (str, bytes, type(None)))):
        with _naming(name):
            values = np.asarray(values)
    for where, dtype in _types(values, name):
        for beginning, found, remedy in _NO_NUMBERS:
            if dtype.lower().startswith(beginning):
                if found == "complex numbers":  # in scikit-learn's words
                    raise ValueError(f"Complex data not supported: {where} must hold real numbers; {remedy}.")
                raise TypeError(f"{where} must hold numbers, got {found} ({dtype}): {remedy}.")
    return values


def _types(values: Any, name: str) -> Iterator[tuple[str, str]]:
    """Where there are values of which type: those of each column of a data frame, and of Python objects."""
    if hasattr(values, "columns") and hasattr(values, "dtypes"):
        for i, (title, dtype) in enumerate(zip(values.columns, values.dtypes, strict=True)):
            where = f"column {title!r} of {name}"
            yield where, str(dtype)
            if str(dtype).lower() == "object":
                yield from _types(values.iloc[:, i] if hasattr(values, "iloc") else values[:, i], where)
    elif hasattr(values, "dtype"):
        yield name, str(values.dtype)
        if str(values.dtype).lower() == "object":
            yield from ((name, kind.__name__) for kind in set(map(type, np.ravel(np.asarray(values)))))


def _refuse_elsewhere(values: Any, name: str) -> None:
    """Refuse masked arrays, whose masks would be ignored, and data that would be loaded whole."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(
            f"{name} must be a plain array, got a masked array: drop the masked entries, or replace them by numbers "
            f"({name}.filled(number))."
        )
    module = type(values).__module__
    for home, (library, method) in _LAZY.items():
        if module == home or module.startswith(f"{home}."):
            raise TypeError(
                f"{name} is a {library} {type(values).__name__}, which would be loaded whole: "
                f"call {name}.{method}() if it fits in memory, or give a NumPy memory map (np.load with mmap_mode='r')."
            )


_OTHER_REASONS = (
    "could not convert",
    "must be a string or a real number",
    "arrays of bytes/strings",
    "inhomogeneous",
    "setting an array element with a sequence",
    "too large to convert",
    "Unknown label type",
)


@contextmanager
def _naming(argument: str, what: str = "numbers") -> Iterator[None]:
    """Say which argument could not be converted, which scikit-learn and NumPy leave out."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        message = str(error)
        if any(phrase in message for phrase in _OTHER_REASONS) and not message.startswith(f"{argument} must"):
            kind = TypeError if isinstance(error, TypeError) else ValueError
            remedy = f"; {_CODE}" if message.startswith("could not convert string") else ""
            raise kind(f"{argument} must hold {what}: {message}{remedy}") from error
        raise
