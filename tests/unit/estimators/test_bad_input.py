"""Bad input gives a right answer or an error that names the argument; the fitted state is never left half-changed."""

import inspect
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.exceptions import NotFittedError

import mercer
from mercer import ExactRegressor, NystromClassifier, NystromRegressor
from mercer.exceptions import JitterWarning, NotPositiveDefiniteError
from mercer.kernels import Gaussian, Linear, Matern, Polynomial

N = 40


def public_estimators():
    members = [getattr(mercer, name) for name in mercer.__all__]
    return [member for member in members if inspect.isclass(member) and issubclass(member, BaseEstimator)]


ESTIMATORS = public_estimators()
REGRESSORS = [cls for cls in ESTIMATORS if not is_classifier(cls())]
CLASSIFIERS = [cls for cls in ESTIMATORS if is_classifier(cls())]
ONLINE = [cls for cls in ESTIMATORS if hasattr(cls, "partial_fit")]
LEARN = [(cls, method) for cls in ESTIMATORS for method in ("fit", "partial_fit", "forget") if hasattr(cls, method)]


def over(name, values):
    return pytest.mark.parametrize(name, values, ids=lambda v: v.__name__ if inspect.isclass(v) else str(v))


def pairs(names, values):
    """Parametrize over the combinations that exist: a case that does not apply is not a test."""
    ids = [f"{cls.__name__}-{value}" for cls, value in values]
    return pytest.mark.parametrize(names, values, ids=ids)


def with_methods(classes, methods):
    existing = [(cls, method) for cls in classes for method in methods if hasattr(cls, method)]
    return pairs(("estimator", "method"), existing)


def with_noises(classes, noises):
    """GCV is a choice of those with a noise path."""
    accepted = [(cls, noise) for cls in classes for noise in noises if noise != "gcv" or hasattr(cls, "noise_path")]
    return pairs(("estimator", "noise"), accepted)


each_estimator = over("estimator", ESTIMATORS)
each_regressor = over("estimator", REGRESSORS)
each_classifier = over("estimator", CLASSIFIERS)
each_online = over("estimator", ONLINE)
each_method = pytest.mark.parametrize(
    ("estimator", "method"), LEARN, ids=[f"{cls.__name__}.{method}" for cls, method in LEARN]
)


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(N, 3))


def targets_for(estimator, rows):
    values = rows[:, 0] + np.sin(2 * rows[:, 1])
    return np.where(values > 0, 1, 0) if is_classifier(estimator()) else values


def output(model, rows):
    return model.decision_function(rows) if is_classifier(model) else model.predict(rows)


def assert_close(actual, expected, tolerance=1e-8):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * max(1e-300, np.max(np.abs(expected))))


def assert_refused(model, call, rows, error, message):
    """The call fails with that message and leaves the model as it was, to the bit."""
    attributes, before = dict(vars(model)), output(model, rows)
    with pytest.raises(error, match=message):
        call()
    assert vars(model).keys() == attributes.keys()
    np.testing.assert_array_equal(output(model, rows), before)


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
    "sparse": (sparse.csr_array, TypeError, "Sparse data was passed for X"),
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
    assert_refused(model, lambda: model.predict(spoil(rows)), rows, error, message)


@with_methods(ESTIMATORS, ["predict", "partial_fit", "forget"])
@pytest.mark.parametrize("width", [2, 4])
def test_rows_of_another_width(estimator, rows, method, width):
    y = targets_for(estimator, rows)
    model = estimator().fit(rows, y)
    arguments = [np.ones((N, width))] + ([] if method == "predict" else [y])
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


@each_method
@pytest.mark.parametrize(("spoil", "message"), BAD_TARGETS.values(), ids=BAD_TARGETS)
def test_bad_targets(estimator, method, rows, spoil, message):
    y = targets_for(estimator, rows)
    model = estimator().fit(rows, y)
    assert_refused(model, lambda: getattr(model, method)(rows, spoil(y)), rows, ValueError, message)


@with_methods(REGRESSORS, ["fit", "partial_fit", "forget"])
@pytest.mark.parametrize(("spoil", "message"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_bad_values_of_targets(estimator, method, rows, spoil, message):
    y = targets_for(estimator, rows)
    model = estimator().fit(rows, y)
    assert_refused(model, lambda: getattr(model, method)(rows, spoil(y)), rows, ValueError, message)


@with_methods(CLASSIFIERS, ["fit", "partial_fit", "forget"])
@pytest.mark.parametrize(("spoil", "message"), BAD_LABELS.values(), ids=BAD_LABELS)
def test_bad_labels(estimator, method, rows, spoil, message):
    y = targets_for(estimator, rows)
    model = estimator().fit(rows, y)
    assert_refused(model, lambda: getattr(model, method)(rows, spoil(y)), rows, ValueError, message)


@each_classifier
def test_one_class(estimator, rows):
    model = estimator().fit(rows, targets_for(estimator, rows))
    assert_refused(model, lambda: model.fit(rows, np.ones(N)), rows, ValueError, "only one class is present")


@pytest.mark.parametrize("method", ["partial_fit", "forget"])
def test_unknown_labels(rows, method):
    y = targets_for(NystromClassifier, rows)
    model = NystromClassifier().partial_fit(rows, y)
    unknown = np.append(y[:-1], 7)
    message = r"not among the classes \[0, 1\]: \[7\]"
    assert_refused(model, lambda: getattr(model, method)(rows, unknown), rows, ValueError, message)


@pytest.mark.parametrize("method", ["partial_fit", "forget"])
@pytest.mark.parametrize("first", [1, 2])
def test_another_number_of_outputs(rows, method, first):
    both = np.column_stack([rows[:, 0], rows[:, 1]])
    model = NystromRegressor().fit(rows, both[:, :first] if first > 1 else both[:, 0])
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


@each_method
@pytest.mark.parametrize(("weights", "message"), BAD_WEIGHTS.values(), ids=BAD_WEIGHTS)
def test_bad_weights(estimator, method, rows, weights, message):
    y = targets_for(estimator, rows)
    model = estimator().fit(rows, y)
    call = getattr(model, method)
    assert_refused(model, lambda: call(rows, y, sample_weight=weights), rows, ValueError, message)


# ------------------------------------------------------------------------------------------ bad parameters

BAD_PARAMETERS = [
    ("noise", -1.0, "noise"),
    ("noise", np.nan, "noise"),
    ("noise", np.inf, "noise"),
    ("noise", "much", "noise"),
    ("noise", None, "noise"),
    ("intercept", "yes", "intercept"),
    ("n_jobs", 0, "n_jobs"),
    ("n_jobs", 1.5, "n_jobs"),
    ("solver", "lu", "solver"),
    ("tol", 0.0, "tol"),
    ("max_iter", 0, "max_iter"),
    ("n_basis", 0, "n_basis"),
    ("n_basis", 2.5, "n_basis"),
    ("variance", "fitc", "variance"),
    ("random_state", "seed", "random_state"),
    ("kernel", "rbf", "kernel must be one of 'gaussian'"),
    ("kernel", Gaussian, "kernel must be one of"),
    ("kernel", None, "kernel must be one of"),
    ("kernel", Gaussian(-1.0), "length_scale"),
    ("kernel", Gaussian([1.0, 2.0]), "length_scale has 2 values, but the rows have 3 features"),
    ("kernel", Gaussian("mean"), "length_scale"),
    ("kernel", Gaussian(amplitude=0.0), "amplitude"),
    ("kernel", Matern(nu=1.0), "nu must be 0.5, 1.5 or 2.5"),
    ("kernel", lambda a, b: np.ones((1, 1)), "the kernel function must return an array of shape"),
    ("basis", np.ones((4, 2)), r"basis.*shape \(m, 3\)"),
    ("basis", np.full((4, 3), np.nan), "basis.*NaN"),
    ("basis", "kmeans", "basis must be one of 'uniform'"),
    ("basis", None, "basis must be one of 'uniform'"),
]


PARAMETER_CASES = [(cls, *case) for cls in ESTIMATORS for case in BAD_PARAMETERS if case[0] in cls().get_params()]


@pytest.mark.parametrize(
    ("estimator", "name", "value", "message"),
    PARAMETER_CASES,
    ids=[f"{cls.__name__}-{name}-{index}" for index, (cls, name, *_) in enumerate(PARAMETER_CASES)],
)
def test_bad_parameters(estimator, rows, name, value, message):
    y = targets_for(estimator, rows)
    model = estimator()
    model.set_params(**{name: value})
    with pytest.raises(ValueError, match=message):
        model.fit(rows, y)
    assert not hasattr(model, "expansion_")
    fitted = estimator().fit(rows, y)
    before = output(fitted, rows)
    with pytest.raises(ValueError, match=message):
        fitted.set_params(**{name: value}).fit(rows, y)
    assert_close(output(fitted.set_params(**{name: estimator().get_params()[name]}), rows), before, 0.0)


@each_online
@pytest.mark.parametrize(
    "change", [{"noise": 10.0}, {"intercept": True}, {"variance": "sor"}, {"noise": -1.0}, {"noise": "gcv"}], ids=str
)
def test_what_was_fitted_does_not_depend_on_when_it_was_first_used(estimator, rows, change):
    # Solving is put off until it is needed: a change of parameters in between must count always or never.
    y = targets_for(estimator, rows)
    used, unused = (estimator().partial_fit(rows, y) for _ in range(2))
    output(used, rows)
    np.testing.assert_array_equal(output(unused.set_params(**change), rows), output(used.set_params(**change), rows))


# -------------------------------------------------------------------------------------------- not fitted


@with_methods(ESTIMATORS, ["predict", "decision_function", "forget", "noise_path", "loo_residuals"])
def test_not_fitted(estimator, rows, method):
    arguments = {"forget": (rows, targets_for(estimator, rows)), "noise_path": ([1.0],), "loo_residuals": ()}
    with pytest.raises(NotFittedError, match=estimator.__name__):
        getattr(estimator(), method)(*arguments.get(method, (rows,)))


@each_estimator
def test_fitted_attributes_are_missing_before_fit(estimator, rows):
    unfitted, fitted = estimator(), estimator().fit(rows, targets_for(estimator, rows))
    attributes = [name for name in dir(fitted) if name.endswith("_") and not name.startswith("_")]
    assert {"kernel_", "expansion_"} <= set(attributes)
    assert [name for name in attributes if hasattr(unfitted, name)] == []


# -------------------------------------------------------------------------------------- merge and forget


def merge_pair(first=None, second=None, *, estimator=NystromRegressor, rows, y=None, other_y=None):
    base = {"kernel": Gaussian(), "basis": rows[:10]}
    y = targets_for(estimator, rows) if y is None else y
    a = estimator(**base | (first or {})).fit(rows, y)
    b = estimator(**base | (second or {})).fit(rows, y if other_y is None else other_y)
    return a, b


def test_merge_of_different_kernels(rows):
    a, b = merge_pair(second={"kernel": Gaussian(2.0)}, rows=rows)
    assert_refused(a, lambda: a.merge(b), rows, ValueError, "different kernels")
    c, d = merge_pair(second={"kernel": Matern()}, rows=rows)
    assert_refused(c, lambda: c.merge(d), rows, ValueError, "different kernels")


def test_merge_of_different_bases(rows):
    a, b = merge_pair(second={"basis": rows[10:20]}, rows=rows)
    assert_refused(a, lambda: a.merge(b), rows, ValueError, "different bases.*basis=first.basis_")


def test_merge_of_different_outputs(rows):
    a, b = merge_pair(rows=rows, y=rows[:, 0], other_y=rows[:, :2])
    assert_refused(a, lambda: a.merge(b), rows, ValueError, "different numbers of outputs")


def test_merge_of_different_classes(rows):
    labels = np.arange(N) % 3
    a, b = merge_pair(estimator=NystromClassifier, rows=rows, y=labels, other_y=labels + 1)
    assert_refused(a, lambda: a.merge(b), rows, ValueError, "different classes")


def test_merge_of_other_things(rows):
    a, _ = merge_pair(rows=rows)
    exact = ExactRegressor().fit(rows, rows[:, 0])
    for other in (exact, None, a.statistics_):
        assert_refused(a, lambda other=other: a.merge(other), rows, ValueError, "cannot merge a")
    assert_refused(a, lambda: a.merge(clone(a)), rows, NotFittedError, "not fitted")
    with pytest.raises(NotFittedError):
        clone(a).merge(a)


@each_online
def test_forget_of_more_rows_than_were_seen(estimator, rows):
    y = targets_for(estimator, rows)
    model = estimator().fit(rows[:30], y[:30])
    assert_refused(model, lambda: model.forget(rows, y), rows, ValueError, "cannot forget 40 rows of 30 seen")


@each_online
def test_forget_twice(estimator, rows):
    y = targets_for(estimator, rows)
    model = estimator().fit(rows, y).forget(rows[:25], y[:25])
    assert_refused(model, lambda: model.forget(rows[:25], y[:25]), rows, ValueError, "cannot forget 25 rows of 15")


@each_online
def test_forget_of_rows_with_more_weight_than_was_seen(estimator, rows):
    y = targets_for(estimator, rows)
    model = estimator(kernel=Gaussian()).fit(rows, y)
    call = lambda: model.forget(rows[:5], y[:5], np.full(5, 100.0))  # noqa: E731
    assert_refused(model, call, rows, ValueError, "were not seen")


def test_forget_of_as_many_rows_as_were_seen_but_of_others(rows):
    model = NystromRegressor(Gaussian()).fit(rows, rows[:, 0])
    # Far rows of target zero: no sum of squares becomes negative, but what is left is not nothing.
    call = lambda: model.forget(rows + 100.0, np.zeros(N))  # noqa: E731
    assert_refused(model, call, rows, ValueError, "not seen")


# ----------------------------------------------------------------------------------------- interruptions


@each_method
def test_an_interrupted_call_changes_nothing(estimator, method, rows):
    y = targets_for(estimator, rows)
    calls = {"left": 10**9}

    def kernel(a, b):
        calls["left"] -= 1
        if calls["left"] < 0:
            raise KeyboardInterrupt
        return Gaussian()(a, b)

    model = estimator(kernel=kernel).fit(rows, y)
    before = output(model, rows)
    for allowed in range(12):
        calls["left"] = allowed
        try:
            getattr(model, method)(rows[:20], y[:20])
        except KeyboardInterrupt:
            calls["left"] = 10**9
            np.testing.assert_array_equal(output(model, rows), before)
        else:
            calls["left"] = 10**9
            break
    else:
        pytest.fail("twelve calls of the kernel were not enough")
    assert allowed > 0, "the call was interrupted at least once"


# ------------------------------------------------------------------------------- unusual but good: dtypes


@each_estimator
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, np.int64, np.int8, np.uint16, bool, object, ">f4", "longdouble"]
)
def test_dtypes_of_rows_give_the_model_of_their_values(estimator, rows, dtype):
    y = targets_for(estimator, rows)
    given = (3 * np.abs(rows)).astype(dtype)
    values = given.astype(np.float64)
    expected = output(estimator(kernel=Gaussian()).fit(values, y), values)
    # Kernels of float32 rows are computed in float32, to 1e-4 of the function's size at worst.
    tolerance = 1e-4 if dtype in {np.float32, ">f4"} else 1e-12
    assert_close(output(estimator(kernel=Gaussian()).fit(given, y), given), expected, tolerance)


@each_estimator
@pytest.mark.parametrize(
    "arrange",
    [np.asfortranarray, lambda a: np.repeat(a, 2, axis=0)[::2], lambda a: a[::-1][::-1], lambda a: a.tolist()],
    ids=["fortran", "strided", "reversed", "list"],
)
def test_layouts_give_the_same_model(estimator, rows, arrange):
    y = targets_for(estimator, rows)
    expected = output(estimator().fit(rows, y), rows)
    np.testing.assert_array_equal(output(estimator().fit(arrange(rows), arrange(y)), arrange(rows)), expected)


@each_estimator
def test_read_only_arguments_are_left_alone(estimator, rows):
    y, weights = targets_for(estimator, rows), np.linspace(0, 1, N)
    given = [array.copy() for array in (rows, y, weights)]
    for array in given:
        array.flags.writeable = False
    model = estimator().fit(*given)
    np.testing.assert_array_equal(output(model, given[0]), output(estimator().fit(rows, y, weights), rows))


@each_estimator
def test_arguments_are_not_written_to_nor_kept(estimator, rows):
    y, weights = targets_for(estimator, rows), np.linspace(0, 1, N)
    given = [array.copy() for array in (rows, y, weights)]
    model = estimator().fit(*given)
    before = output(model, rows)
    for array, original in zip(given, (rows, y, weights), strict=True):
        np.testing.assert_array_equal(array, original)
        array[...] = 0
    np.testing.assert_array_equal(output(model, rows), before)


@each_regressor
def test_integer_and_boolean_targets(estimator, rows):
    for y in (np.arange(N), np.arange(N) % 2 == 0, np.arange(N).astype(object)):
        expected = estimator().fit(rows, y.astype(np.float64)).predict(rows)
        np.testing.assert_array_equal(estimator().fit(rows, y).predict(rows), expected)


# ------------------------------------------------------------------------------ unusual but good: shapes

NOISES = [0.1, 0.0, "gcv"]


@with_noises(REGRESSORS, NOISES)
@pytest.mark.parametrize("intercept", [False, True])
def test_one_row(estimator, noise, intercept):
    model = estimator(noise=noise, intercept=intercept).fit([[1.0, 2.0]], [3.0])
    mean, std = model.predict([[1.0, 2.0], [50.0, 50.0]], return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std))
    if intercept:
        np.testing.assert_allclose(mean, 3.0, rtol=1e-12)
    elif noise != "gcv":
        np.testing.assert_allclose(mean, [3.0 / (1.0 + noise), 0.0], rtol=1e-12)


@each_estimator
def test_one_feature(estimator, rows):
    y = targets_for(estimator, rows)
    model = estimator(kernel=Matern(1.0, nu=0.5)).fit(rows[:, :1], y)
    padded = np.column_stack([rows[:, 0], np.zeros(N)])
    assert_close(output(model, rows[:, :1]), output(estimator(kernel=Matern(1.0, nu=0.5)).fit(padded, y), padded))


@each_estimator
@pytest.mark.parametrize("constant", [0.0, 1.0, -1e6, 1e150])
@pytest.mark.parametrize("kernel", ["gaussian", "matern"])
def test_constant_columns_do_not_matter_to_stationary_kernels(estimator, rows, constant, kernel):
    y = targets_for(estimator, rows)
    wider = np.column_stack([rows, np.full(N, constant)])
    assert_close(output(estimator(kernel).fit(wider, y), wider), output(estimator(kernel).fit(rows, y), rows))


@with_noises(ESTIMATORS, NOISES)
@pytest.mark.parametrize("intercept", [False, True])
def test_all_rows_equal(estimator, rows, noise, intercept):
    same = np.repeat(rows[:1], N, axis=0)
    y = targets_for(estimator, rows)
    model = estimator(noise=noise, intercept=intercept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitterWarning)  # the kernel matrix has rank one
        model.fit(same, y)
    average = np.mean(np.where(y > 0, 1.0, -1.0) if is_classifier(model) else y)
    if intercept:
        assert_close(output(model, same[:1]), [average], 1e-4)
    elif noise != "gcv":
        # n/(n + λ) of the mean; what stands in for a missing noise is 1e-6 at most
        np.testing.assert_allclose(output(model, same[:1]), [average * N / (N + noise)], rtol=1e-4)


@with_noises(REGRESSORS, NOISES)
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_targets(estimator, rows, noise, value):
    y = np.full(N, value)
    mean, std = estimator(Matern(1.0), noise=noise, intercept=True).fit(rows, y).predict(rows, return_std=True)
    np.testing.assert_allclose(mean, value, rtol=0, atol=1e-8)
    assert np.all(np.isfinite(std))


@each_online
def test_fewer_rows_than_basis_points(estimator, rows):
    y = targets_for(estimator, rows)
    model = estimator(n_basis=10_000).fit(rows, y)
    assert model.rank_ == N
    exact = getattr(mercer, estimator.__name__.replace("Nystrom", "Exact"))().fit(rows, y)
    assert_close(output(model, rows), output(exact, rows))


@each_estimator
def test_duplicate_rows(estimator, rows):
    y = targets_for(estimator, rows)
    twice = np.vstack([rows, rows])
    model = estimator(kernel=Gaussian(), noise=0.2).fit(twice, np.concatenate([y, y]))
    assert_close(output(model, rows), output(estimator(kernel=Gaussian(), noise=0.1).fit(rows, y), rows))


@each_regressor
def test_noise_zero_interpolates_without_a_warning(estimator, rows):
    y = targets_for(estimator, rows)
    model = estimator(Matern(1.0, nu=0.5), noise=0.0).fit(rows, y)
    mean, std = model.predict(rows, return_std=True)
    assert_close(mean, y)
    assert np.max(std) < 1e-6  # the root of eps times the condition number, 1e3


def test_noise_zero_on_equal_rows_of_different_targets_warns_in_the_exact_model(rows):
    twice, y = np.vstack([rows, rows]), np.arange(2.0 * N)
    with pytest.warns(JitterWarning, match="larger noise"):
        model = ExactRegressor(Matern(1.0, nu=0.5), noise=0.0).fit(twice, y)
    # What was added may be 1e-6 of the diagonal at most; the mean is off by no more than that times |α|.
    np.testing.assert_allclose(model.predict(rows), (y[:N] + y[N:]) / 2, rtol=1e-3)


@pytest.mark.parametrize("intercept", [False, True])
def test_noise_zero_on_a_basis_is_least_squares(rows, intercept):
    y = rows[:, 0] ** 2
    kernel, basis = Matern(1.0, nu=0.5), rows[:8]
    model = NystromRegressor(kernel, basis=basis, noise=0.0, intercept=intercept).fit(rows, y)
    features = np.column_stack([kernel(rows, basis), np.ones((N, int(intercept)))])
    expected = features @ np.linalg.lstsq(features, y, rcond=None)[0]
    assert_close(model.predict(rows), expected)


# ------------------------------------------------------------------------------ unusual but good: scales

SCALES = pytest.mark.parametrize("scale", [1e150, 1e-150, 1e30, 1e-30])


@each_estimator
@SCALES
@pytest.mark.parametrize("kernel", ["gaussian", "matern"])
def test_units_of_the_rows_do_not_matter_with_median_length_scales(estimator, rows, scale, kernel):
    y = targets_for(estimator, rows)
    expected = output(estimator(kernel, intercept=True).fit(rows, y), rows)
    assert_close(output(estimator(kernel, intercept=True).fit(scale * rows, y), scale * rows), expected)


@with_noises(REGRESSORS, [0.1, "gcv"])
@SCALES
@pytest.mark.parametrize("intercept", [False, True])
def test_units_of_the_targets_do_not_matter(estimator, noise, rows, scale, intercept):
    options = {"noise": noise, "intercept": intercept}
    y = targets_for(estimator, rows) + 0.3 * np.random.default_rng(1).normal(size=N)
    expected = estimator(**options).fit(rows, y).predict(rows)
    # GCV is flat at its minimum: the noise it chooses is known to the root of rounding.
    tolerance = 1e-6 if noise == "gcv" else 1e-10
    assert_close(estimator(**options).fit(rows, scale * y).predict(rows) / scale, expected, tolerance)


@each_regressor
@SCALES
def test_units_of_the_weights_do_not_matter_beside_the_noise(estimator, rows, scale):
    y, weights = targets_for(estimator, rows), np.linspace(0.5, 2.0, N)
    expected = estimator(Gaussian(), noise=0.1).fit(rows, y, weights).predict(rows)
    assert_close(estimator(Gaussian(), noise=0.1 * scale).fit(rows, y, scale * weights).predict(rows), expected)


@each_regressor
def test_rows_that_are_infinitely_far_from_each_other(estimator, rows):
    # With a length scale of 1 every row is alone: f(x_i) = y_i / (1 + λ)
    y = targets_for(estimator, rows)
    model = estimator(Gaussian(1.0), noise=0.1).fit(1e150 * rows, y)
    assert_close(model.predict(1e150 * rows), y / 1.1)


@each_regressor
def test_linear_kernel_on_huge_rows_is_least_squares(estimator, rows):
    y = targets_for(estimator, rows)
    expected = rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitterWarning)  # noise 0.1 is nothing beside 1e300
        model = estimator(Linear()).fit(1e150 * rows, y)
    assert_close(model.predict(1e150 * rows), expected, 1e-6)


@each_regressor
@pytest.mark.parametrize("scale", [1e-150, 1e-200, 0.0])
def test_linear_kernel_on_tiny_rows_is_zero(estimator, rows, scale):
    model = estimator(Linear(), noise=0.1).fit(scale * rows, targets_for(estimator, rows))
    np.testing.assert_allclose(model.predict(scale * rows), 0.0, atol=1e-200)


@each_estimator
def test_kernels_that_overflow_are_refused(estimator, rows):
    y = targets_for(estimator, rows)
    with pytest.raises((NotPositiveDefiniteError, ValueError), match="overflow"):
        estimator(Polynomial(degree=3)).fit(1e150 * rows, y)


@each_regressor
def test_float32_rows_with_targets_beyond_float32(estimator, rows):
    y = targets_for(estimator, rows)
    single = rows.astype(np.float32)
    mean = estimator(Gaussian()).fit(single, 1e50 * y).predict(single)
    assert_close(mean / 1e50, estimator(Gaussian()).fit(single, y).predict(single), 1e-4)


@each_estimator
@pytest.mark.parametrize("kernel", [lambda a, b: np.full((len(a), len(b)), np.nan), lambda a, b: -Gaussian()(a, b)])
def test_kernels_that_are_no_kernels_are_refused(estimator, rows, kernel):
    y = targets_for(estimator, rows)
    model = estimator(kernel=Gaussian()).fit(rows, y)
    before = output(model, rows)
    with pytest.raises(NotPositiveDefiniteError, match="kernel"):
        model.set_params(kernel=kernel).fit(rows, y)
    np.testing.assert_array_equal(output(model, rows), before)
