"""Unusual but good: dtypes, layouts and shapes of rows give the right answer."""

import warnings

import numpy as np
import pytest
from sklearn.base import is_classifier

from mercer import CommitteeRegressor, ExactClassifier, ExactRegressor, NystromRegressor
from mercer.exceptions import JitterWarning
from mercer.kernels import Gaussian, Matern
from tests.walks import (
    ESTIMATORS,
    ON_BASIS,
    REGRESSORS,
    SUPERVISED,
    N,
    accepts,
    assert_close,
    each_estimator,
    each_regressor,
    each_supervised,
    each_weighted,
    jitter_where_there_is_no_noise,
    output,
    over,
    targets_for,
    with_noises,
)

# Rows in three or four dimensions are far apart for compact kernels.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.StarvedWarning")

# ------------------------------------------------------------------------------- unusual but good: dtypes


@each_estimator
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, np.int64, np.int8, np.uint16, bool, object, ">f4", "longdouble"]
)
def test_dtypes_of_rows_give_the_model_of_their_values(estimator, rows, dtype):
    y = targets_for(estimator, rows)
    given = rows > 0 if dtype is bool else (3 * np.abs(rows)).astype(dtype)
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


@each_weighted
def test_read_only_arguments_are_left_alone(estimator, rows):
    y, weights = targets_for(estimator, rows), np.linspace(0, 1, N)
    given = [array.copy() for array in (rows, y, weights)]
    for array in given:
        array.flags.writeable = False
    model = estimator().fit(*given)
    np.testing.assert_array_equal(output(model, given[0]), output(estimator().fit(rows, y, weights), rows))


@each_weighted
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
    with jitter_where_there_is_no_noise(estimator, noise):
        model = estimator(noise=noise, intercept=intercept).fit([[1.0, 2.0]], [3.0])
    mean, std = model.predict([[1.0, 2.0], [50.0, 50.0]], return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std))
    if intercept:
        np.testing.assert_allclose(mean, 3.0, rtol=1e-12)
    elif noise != "gcv":
        added = getattr(model, "jitter_", 0.0)  # to what should be noise
        np.testing.assert_allclose(mean, [3.0 / (1.0 + noise + added), 0.0], rtol=1e-12)


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
    with jitter_where_there_is_no_noise(estimator, noise):
        model = estimator(Matern(1.0), noise=noise, intercept=True).fit(rows, y)
    mean, std = model.predict(rows, return_std=True)
    np.testing.assert_allclose(mean, value, rtol=0, atol=1e-8)
    assert np.all(np.isfinite(std))


@over("estimator", [cls for cls in ON_BASIS if cls in SUPERVISED and accepts(cls, {"noise": 0.1})])
def test_fewer_rows_than_basis_points(estimator, rows):
    y = targets_for(estimator, rows)
    model = estimator(n_basis=10_000, noise=0.1, intercept=True).fit(rows, y)
    assert model.rank_ == N
    exact = (ExactClassifier if is_classifier(model) else ExactRegressor)(noise=0.1).fit(rows, y)
    assert_close(output(model, rows), output(exact, rows))


@each_supervised
def test_duplicate_rows(estimator, rows):
    y = targets_for(estimator, rows)
    twice = np.vstack([rows, rows])
    model = estimator(kernel=Gaussian(), noise=0.2).fit(twice, np.concatenate([y, y]))
    assert_close(output(model, rows), output(estimator(kernel=Gaussian(), noise=0.1).fit(rows, y), rows))


@over("estimator", [ExactRegressor, NystromRegressor])
def test_noise_zero_interpolates_without_a_warning(estimator, rows):
    y = targets_for(estimator, rows)
    model = estimator(Matern(1.0, nu=0.5), noise=0.0).fit(rows, y)
    mean, std = model.predict(rows, return_std=True)
    assert_close(mean, y)
    assert np.max(std) < 1e-6  # the root of eps times the condition number, 1e3


@pytest.mark.parametrize("block_size", [1, 7, N])
def test_noise_zero_interpolates_in_a_committee_up_to_the_jitter_of_which_it_warns(rows, block_size):
    y, kernel = targets_for(CommitteeRegressor, rows), Matern(1.0, nu=0.5)
    with jitter_where_there_is_no_noise(CommitteeRegressor, 0):
        model = CommitteeRegressor(kernel, noise=0.0, block_size=block_size, intercept=False).fit(rows, y)
    jitter = model.jitter_
    assert 0 < jitter < 1e-5
    assert model.statistics_.n_singular == model.n_blocks_ == -(-N // block_size)
    mean, std = model.predict(rows, return_std=True)
    # The basis spans all rows, so that Λ = εI whatever the blocks: y - f = ε(K + εI)⁻¹y, and the variance is at most ε.
    # Rounding is eps times the condition number of K, 1e3.
    left = jitter * np.linalg.solve(kernel(rows) + jitter * np.eye(N), y)
    np.testing.assert_allclose(mean, y - left, rtol=0, atol=1e-12 * np.max(np.abs(y)))
    assert np.max((std / model.scale_) ** 2) < jitter + 1e-12


def test_noise_zero_on_equal_rows_of_different_targets_warns_in_the_exact_model(rows):
    twice, y = np.vstack([rows, rows]), np.arange(2.0 * N)
    with pytest.warns(JitterWarning, match="larger noise"):
        model = ExactRegressor(Matern(1.0, nu=0.5), noise=0.0, intercept=False).fit(twice, y)
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
