"""Bad rows, targets and weights give an error that names the argument; the model stays as it was."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from mercer import NystromClassifier
from tests.walks import (
    ANSWERS,
    CLASSIFIERS,
    ESTIMATORS,
    LEARN,
    ONLINE,
    REGRESSORS,
    STREAMS,
    SUPERVISED,
    WEIGHTED,
    N,
    assert_refused,
    each_classifier,
    each_estimator,
    each_method,
    output,
    targets_for,
    with_methods,
)

# ------------------------------------------------------------------------------------------------ bad rows


def with_entry(array, value):
    array = np.array(array, dtype=np.float64)
    array[3, ..., -1:] = value
    return array


BAD_ROWS = {
    "nan": (lambda X: with_entry(X, np.nan), ValueError, "X contains NaN"),
    "infinity": (lambda X: with_entry(X, np.inf), ValueError, "X contains infinity"),
    "no rows": (lambda X: X[:0], ValueError, r"0 sample\(s\)"),
    "no features": (lambda X: X[:, :0], ValueError, r"0 feature\(s\)|X has 0 features"),
    "one dimension": (lambda X: X[:, 0], ValueError, "Expected 2D array"),
    "three dimensions": (lambda X: X[:, :, np.newaxis], ValueError, "dim 3"),
    "number": (lambda _: 3.0, ValueError, "Expected 2D array"),
    "strings": (lambda X: X.astype(str).astype(object) + "x", ValueError, r"\bX\b"),
    "text": (lambda _: np.full((N, 3), "text"), ValueError, r"\bX\b"),
    "complex": (lambda X: X + 1j, ValueError, "Complex data not supported"),
    "sparse with NaN": (lambda X: sparse.csr_array(with_entry(X, np.nan)), ValueError, "NaN"),
    "none": (lambda _: None, ValueError, r"\bX\b|Expected 2D array"),
}


@each_method
@pytest.mark.parametrize(("spoil", "error", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows(estimator, method, rows, spoil, error, message):
    y = targets_for(estimator, rows)
    with pytest.raises((error, NotFittedError)):
        getattr(estimator(), method)(spoil(rows), y)
    model = estimator().fit(rows, y)
    assert_refused(model, lambda: getattr(model, method)(spoil(rows), y), rows, error, message)


@each_estimator
@pytest.mark.parametrize(("spoil", "error", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows_to_predict(estimator, rows, spoil, error, message):
    model = estimator().fit(rows, targets_for(estimator, rows))
    assert_refused(model, lambda: output(model, spoil(rows)), rows, error, message)


@with_methods(ESTIMATORS, [*ANSWERS, "partial_fit", "forget"])
@pytest.mark.parametrize("width", [2, 4])
def test_rows_of_another_width(estimator, rows, method, width):
    y = targets_for(estimator, rows)
    model = estimator().fit(rows, y)
    arguments = [np.ones((N, width))] + ([] if method in ANSWERS else [y])
    message = f"X has {width} features, but {estimator.__name__} is expecting 3 features"
    assert_refused(model, lambda: getattr(model, method)(*arguments), rows, ValueError, message)


# --------------------------------------------------------------------------------------------- bad targets

BAD_TARGETS = {
    "none": (lambda _: None, "requires y to be passed"),
    "short": (lambda y: y[:-1], "inconsistent numbers of samples"),
    "long": (lambda y: np.append(y, y[0]), "inconsistent numbers of samples"),
    "empty": (lambda y: y[:0], "inconsistent numbers of samples"),
    "three dimensions": (lambda y: np.ones((N, 2, 2)), r"\by\b.*(1d array|dimensions)|dim 3"),
}
BAD_VALUES = {
    "nan": (lambda y: np.append(y[:-1], np.nan), "y contains NaN"),
    "infinity": (lambda y: np.append(y[:-1], np.inf), "y contains infinity"),
    "strings": (lambda y: np.array(["a", "b"] * (N // 2)), r"\by\b"),
    "complex": (lambda y: y + 1j, "[Cc]omplex"),
    "no outputs": (lambda y: y[:, np.newaxis][:, :0], r"\by\b|0 feature"),
}
BAD_LABELS = {
    "nan": (lambda y: np.append(y[:-1], np.nan).astype(float), "y contains NaN"),
    "infinity": (lambda y: np.append(y[:-1], np.inf).astype(float), "y contains infinity"),
    "continuous": (lambda y: y + 0.5 * np.linspace(0, 1, N), "Unknown label type|not among the classes"),
    "indicator": (lambda y: np.column_stack([y, 1 - y]), "1d array"),
    "unknown type": (lambda y: np.array([None] * N), "[Uu]nknown label type|label"),
}


def assert_targets_refused(estimator, method, rows, spoil, message):
    y = targets_for(estimator, rows)
    model = estimator().fit(rows, y)
    assert_refused(model, lambda: getattr(model, method)(rows, spoil(y)), rows, ValueError, message)


@with_methods(SUPERVISED, LEARN)
@pytest.mark.parametrize(("spoil", "message"), BAD_TARGETS.values(), ids=BAD_TARGETS)
def test_bad_targets(estimator, method, rows, spoil, message):
    assert_targets_refused(estimator, method, rows, spoil, message)


@with_methods(REGRESSORS, LEARN)
@pytest.mark.parametrize(("spoil", "message"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_bad_values_of_targets(estimator, method, rows, spoil, message):
    assert_targets_refused(estimator, method, rows, spoil, message)


@with_methods(CLASSIFIERS, LEARN)
@pytest.mark.parametrize(("spoil", "message"), BAD_LABELS.values(), ids=BAD_LABELS)
def test_bad_labels(estimator, method, rows, spoil, message):
    assert_targets_refused(estimator, method, rows, spoil, message)


@each_classifier
def test_one_class(estimator, rows):
    model = estimator().fit(rows, targets_for(estimator, rows))
    assert_refused(model, lambda: model.fit(rows, np.ones(N)), rows, ValueError, "only one class is present")


@pytest.mark.parametrize("method", ["partial_fit", "forget"])
def test_unknown_labels(rows, method):
    y = targets_for(NystromClassifier, rows)
    model = NystromClassifier(noise=0.1, intercept=False).partial_fit(rows, y)
    unknown = np.append(y[:-1], 7)
    message = r"not among the classes \[0, 1\]: \[7\]"
    assert_refused(model, lambda: getattr(model, method)(rows, unknown), rows, ValueError, message)


@with_methods([cls for cls in REGRESSORS if cls in ONLINE], ["partial_fit", "forget"])
@pytest.mark.parametrize("first", [1, 2])
def test_another_number_of_outputs(estimator, rows, method, first):
    both = np.column_stack([rows[:, 0], rows[:, 1]])
    model = estimator().fit(rows, both[:, :first] if first > 1 else both[:, 0])
    other = both[:, 0] if first > 1 else both
    assert_refused(model, lambda: getattr(model, method)(rows, other), rows, ValueError, "y must have the shape")


# --------------------------------------------------------------------------------------------- bad weights

BAD_WEIGHTS = {
    "nan": (np.append(np.ones(N - 1), np.nan), "sample_weight contains NaN"),
    "infinity": (np.append(np.ones(N - 1), np.inf), "sample_weight contains infinity"),
    "negative": (np.append(np.ones(N - 1), -1.0), "sample_weight"),
    "all zero": (np.zeros(N), "[Ss]ample.weight.*zero"),
    "short": (np.ones(N - 1), "sample_weight"),
    "two dimensions": (np.ones((N, 2)), "[Ss]ample.weight"),
    "strings": (np.array(["a"] * N), "sample_weight"),
}


@with_methods(WEIGHTED, LEARN)
@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_bad_weights(estimator, method, rows, name):
    weights, message = BAD_WEIGHTS[name]
    if issubclass(estimator, STREAMS) and (method, name) == ("partial_fit", "all zero"):
        weights, message = np.zeros(N - 1), "sample_weight"  # a stream goes on without rows that have no weight
    y = targets_for(estimator, rows)
    model = estimator().fit(rows, y)
    call = getattr(model, method)
    assert_refused(model, lambda: call(rows, y, sample_weight=weights), rows, ValueError, message)
