"""What is taken for numbers, and what is refused by the name of the argument."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest

from mercer import ExactClassifier, ExactRegressor, NystromRegressor, OnlineRegressor
from mercer._validation import check_labels, check_numbers, check_sample_weight, check_targets

N = 12
DAYS = np.datetime64("2020-01-01") + np.arange(N)
HOURS = np.arange(N).astype("timedelta64[h]")
NUMBERS = np.arange(float(N))
MIDNIGHT = dt.datetime(2020, 1, 1)


def objects(*values):
    """An object array of numbers that ends in these values."""
    column = NUMBERS.astype(object)
    column[N - len(values) :] = values
    return column


# Values of one column, and what is said to be found.
NO_NUMBERS = {
    "days": (DAYS, "dates"),
    "nanoseconds": (DAYS.astype("datetime64[ns]"), "dates"),
    "hours": (HOURS, "time differences"),
    "list of days": (list(DAYS), "dates"),
    "list of datetimes": ([MIDNIGHT] * N, "dates"),
    "datetime among objects": (objects(MIDNIGHT), "dates"),
    "day among objects": (objects(dt.date(2020, 1, 1)), "dates"),
    "NumPy's day among objects": (objects(np.datetime64("2020-01-01")), "dates"),
    "timestamp among objects": (objects(pd.Timestamp("2020-01-01")), "dates"),
    "NaT among objects": (objects(pd.NaT), "dates"),
    "time difference among objects": (objects(dt.timedelta(1)), "time differences"),
    "NumPy's time difference among objects": (objects(np.timedelta64(1, "h")), "time differences"),
    "time of day among objects": (objects(dt.time(12)), "times of day"),
    "period among objects": (objects(pd.Period("2020-01")), "dates"),
    "pandas: dates": (pd.Series(DAYS), "dates"),
    "pandas: dates with a time zone": (pd.Series(DAYS).dt.tz_localize("UTC"), "dates"),
    "pandas: time differences": (pd.Series(HOURS), "time differences"),
    "pandas: periods": (pd.Series(DAYS).dt.to_period("D"), "dates"),
    "pandas: categories that are numbers": (pd.Series(NUMBERS).astype("category"), "categories"),
    "pandas: categories": (pd.Series(list("abc") * 4).astype("category"), "categories"),
    "pandas: datetime among objects": (pd.Series(objects(MIDNIGHT)), "dates"),
    "polars: dates": (pl.Series(DAYS.tolist()), "dates"),
    "polars: datetimes": (pl.Series([MIDNIGHT] * N), "dates"),
    "polars: time differences": (pl.Series([dt.timedelta(1)] * N), "time differences"),
    "polars: times of day": (pl.Series([dt.time(12)] * N), "times of day"),
    "polars: categories": (pl.Series(list("abc") * 4, dtype=pl.Categorical), "categories"),
    "polars: one of few": (pl.Series(list("abc") * 4, dtype=pl.Enum(["a", "b", "c"])), "categories"),
}
each_column = pytest.mark.parametrize(("column", "found"), NO_NUMBERS.values(), ids=NO_NUMBERS)


def table(column):
    """A table of numbers and, last, that column, named "when" where columns have names."""
    if isinstance(column, pd.Series):
        return pd.DataFrame({"size": NUMBERS, "when": column})
    if isinstance(column, pl.Series):
        return pl.DataFrame({"size": NUMBERS, "when": column})
    column = np.asarray(column)
    return np.column_stack([column, column])


@each_column
def test_columns_that_hold_no_numbers_are_refused_by_name(column, found):
    X = table(column)
    where = "column 'when' of X" if hasattr(X, "columns") else "X"
    with pytest.raises(TypeError, match=rf"^{where} must hold numbers, got {found} \(.+\): "):
        ExactRegressor(noise=0.1, intercept=False).fit(X, NUMBERS)


@each_column
def test_so_are_targets_and_weights(column, found):
    with pytest.raises(TypeError, match=rf"^y must hold numbers, got {found} \(.+\): "):
        check_targets(column, n_rows=N)
    with pytest.raises(TypeError, match=rf"^sample_weight must hold numbers, got {found} \(.+\): "):
        check_sample_weight(column, n_rows=N)


def test_a_model_of_numbers_refuses_dates_when_it_predicts():
    X = np.column_stack([NUMBERS, NUMBERS])
    model = ExactRegressor(noise=0.1, intercept=False).fit(X, NUMBERS)
    with pytest.raises(TypeError, match="X must hold numbers, got dates"):
        model.predict(np.column_stack([DAYS, DAYS]))
    online = OnlineRegressor(noise=0.1).fit(X, NUMBERS)
    with pytest.raises(TypeError, match="X must hold numbers, got time differences"):
        online.partial_fit(np.column_stack([HOURS, HOURS]), NUMBERS)
    with pytest.raises(TypeError, match="basis must hold numbers, got dates"):
        NystromRegressor(basis=np.column_stack([DAYS, DAYS]), noise=0.1, intercept=False).fit(X, NUMBERS)


def test_columns_of_one_name_are_all_looked_at():
    X = pd.DataFrame(np.column_stack([NUMBERS, NUMBERS]), columns=["a", "a"])
    X.isetitem(1, pd.Series(DAYS))
    with pytest.raises(TypeError, match="column 'a' of X must hold numbers, got dates"):
        check_numbers(X, "X")


@pytest.mark.parametrize(
    "values",
    [
        NUMBERS,
        NUMBERS.astype(np.float32),
        np.arange(N),
        NUMBERS > 3,
        NUMBERS.astype(object),
        list(NUMBERS),
        pd.Series(NUMBERS),
        pd.Series(np.arange(N), dtype="Int64"),
        pl.Series(NUMBERS),
    ],
    ids=lambda values: f"{type(values).__module__.split('.')[0]} {getattr(values, 'dtype', type(values).__name__)}",
)
def test_numbers_are_taken(values):
    np.testing.assert_array_equal(check_targets(values, n_rows=N), np.asarray(values, dtype=np.float64))


# ------------------------------------------------------------------------------------------------------- masked, lazy


@pytest.mark.parametrize("mask", [False, True, NUMBERS > 3], ids=["none", "all", "some"])
def test_masked_arrays_are_refused_by_name(mask):
    masked = np.ma.MaskedArray(NUMBERS, mask)
    X = np.column_stack([NUMBERS, NUMBERS])
    with pytest.raises(TypeError, match=r"^X must be a plain array, got a masked array"):
        ExactRegressor(noise=0.1, intercept=False).fit(np.ma.MaskedArray(X, False), NUMBERS)
    for classifier in (ExactRegressor(noise=0.1, intercept=False), ExactClassifier(noise=0.1, intercept=False)):
        with pytest.raises(TypeError, match=r"^y must be a plain array, got a masked array"):
            classifier.fit(X, masked)
    with pytest.raises(TypeError, match=r"^sample_weight must be a plain array, got a masked array"):
        ExactRegressor(noise=0.1, intercept=False).fit(X, NUMBERS, sample_weight=masked)


def lazy(module, name):
    """An object as another library makes it, that must not be loaded."""

    def load(self, *_):
        raise AssertionError("loaded")

    members = {"__array__": load, "__len__": load, "__iter__": load, "__module__": module, "shape": (N, 2)}
    return type(name, (), members)()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lazy("dask.array.core", "Array"), r"a Dask Array, which would be loaded whole: call {}.compute\(\)"),
        (lazy("dask.dataframe.dask_expr._collection", "DataFrame"), r"a Dask DataFrame.* call {}.compute\(\)"),
        (lazy("dask_expr._collection", "Series"), r"a Dask Series, which would be loaded whole: call {}.compute\(\)"),
        (pl.LazyFrame({"a": NUMBERS, "b": NUMBERS}), r"a Polars LazyFrame.* call {}.collect\(\)"),
    ],
    ids=["array", "frame", "series", "polars"],
)
def test_data_that_would_be_loaded_are_refused_with_what_to_do(value, message):
    X = np.column_stack([NUMBERS, NUMBERS])
    with pytest.raises(TypeError, match="^X is " + message.format("X") + ".* or give a NumPy memory map"):
        ExactRegressor(noise=0.1, intercept=False).fit(value, NUMBERS)
    for model in (ExactRegressor(noise=0.1, intercept=False), ExactClassifier(noise=0.1, intercept=False)):
        with pytest.raises(TypeError, match="^y is " + message.format("y")):
            model.fit(X, value)


# ------------------------------------------------------------------------------------------------------- other errors


@pytest.mark.parametrize(
    "column",
    [NUMBERS + 1j, objects(1j), pd.Series(NUMBERS + 1j), list(NUMBERS + 1j)],
    ids=["array", "objects", "pandas", "list"],
)
def test_complex_numbers_are_refused_by_name(column):
    where = "column 'when' of X" if isinstance(column, pd.Series) else "X"
    with pytest.raises(ValueError, match=f"Complex data not supported: {where} must hold real numbers"):
        ExactRegressor(noise=0.1, intercept=False).fit(table(column), NUMBERS)
    with pytest.raises(ValueError, match="Complex data not supported: y must hold real numbers"):
        check_targets(column, n_rows=N)
    with pytest.raises(ValueError, match="Complex data not supported: sample_weight must hold real numbers"):
        check_sample_weight(column, n_rows=N)


@pytest.mark.parametrize("column", [objects(10**400), [10**400] * N], ids=["objects", "list"])
def test_integers_beyond_floats_are_refused_by_name(column):
    with pytest.raises(ValueError, match=r"^X must hold numbers: .*too large to convert to float"):
        ExactRegressor(noise=0.1, intercept=False).fit(table(column), NUMBERS)
    with pytest.raises(ValueError, match=r"^y must hold numbers: .*too large to convert to float"):
        check_targets(column, n_rows=N)
    with pytest.raises(ValueError, match=r"^sample_weight must hold numbers: .*too large to convert to float"):
        check_sample_weight(column, n_rows=N)
    with pytest.raises(ValueError, match="basis, given as an array, must hold numbers"):
        NystromRegressor(basis=table(column), noise=0.1, intercept=False).fit(
            np.column_stack([NUMBERS, NUMBERS]), NUMBERS
        )


@pytest.mark.parametrize("y", [3.0, np.float64(3.0), np.array(3.0), "three"])
def test_a_scalar_is_no_column_of_targets(y):
    with pytest.raises(ValueError, match=r"^y must hold one target per row, in one dimension or two; got "):
        check_targets(y, n_rows=N)
    with pytest.raises(ValueError, match=r"^y should be a 1d array, got an array of shape \(\)"):
        check_labels(y, n_rows=N)


def test_ragged_tables_are_refused_by_name():
    ragged = [[1.0]] * (N - 1) + [[1.0, 2.0]]
    with pytest.raises(ValueError, match=r"^X must hold numbers: .*inhomogeneous"):
        ExactRegressor(noise=0.1, intercept=False).fit(ragged, NUMBERS)
    with pytest.raises(ValueError, match=r"^y must hold numbers: .*inhomogeneous"):
        check_targets(ragged, n_rows=N)
    with pytest.raises(ValueError, match=r"^y must hold class labels: .*inhomogeneous"):
        check_labels(ragged, n_rows=N)


MISSING = {
    "pd.NA": (objects(pd.NA), "<NA>"),
    "None": (objects(None), "None"),
    "NaN": (objects(float("nan")), "nan"),
    "NaT": (objects(pd.NaT), "NaT"),
    "pandas strings": (pd.Series(["a"] * (N - 1) + [pd.NA], dtype="string"), "<NA>"),
    "pandas categories": (pd.Series(["a"] * (N - 1) + [None], dtype="category"), "nan"),
    "polars strings": (pl.Series(["a"] * (N - 1) + [None]), "None"),
}


@pytest.mark.parametrize(("labels", "found"), MISSING.values(), ids=MISSING)
def test_missing_labels_are_refused_with_their_row(labels, found):
    with pytest.raises(ValueError, match=f"^y must hold a class label for each row, got {found} in row {N - 1}"):
        check_labels(labels, n_rows=N)


def test_missing_numbers_are_refused_by_name():
    with pytest.raises(ValueError, match="Input y contains NaN"):
        check_labels(pd.Series([1] * (N - 1) + [pd.NA], dtype="Int64"), n_rows=N)
    with pytest.raises((TypeError, ValueError), match=r"\by\b"):
        check_targets(objects(pd.NA), n_rows=N)
    with pytest.raises((TypeError, ValueError), match=r"\by\b"):
        check_targets(pl.Series([1.0] * (N - 1) + [None]), n_rows=N)


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(N) % 3,
        np.array(list("abc") * 4),
        pd.Series(list("abc") * 4).astype("category"),
        pd.Series([1, 2, 3] * 4, dtype="Int64"),
        pl.Series(list("abc") * 4, dtype=pl.Categorical),
    ],
    ids=["integers", "strings", "categories", "pandas integers", "polars categories"],
)
def test_labels_are_taken(labels):
    assert len(set(check_labels(labels, n_rows=N))) == 3
