"""Unusual but good: huge and tiny rows, targets, weights and kernels give the right answer or are refused."""

import warnings

import numpy as np
import pytest

from mercer import OnlineRegressor, ReducedRankRegressor
from mercer.exceptions import JitterWarning, NotPositiveDefiniteError
from mercer.kernels import Gaussian, Linear, Polynomial
from tests.walks import (
    COMPACT,
    REGRESSORS,
    N,
    assert_close,
    assert_refused,
    each_regressor,
    each_supervised,
    output,
    over,
    regressors_with_any_kernel,
    targets_for,
    with_any_kernel,
    with_noises,
)

# Rows in three or four dimensions are far apart for compact kernels.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.StarvedWarning")

LESS_THAN_LEAST_SQUARES = (*COMPACT, OnlineRegressor, ReducedRankRegressor)


# ------------------------------------------------------------------------------ unusual but good: scales

SCALES = pytest.mark.parametrize("scale", [1e150, 1e-150, 1e30, 1e-30])


@each_supervised
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


@regressors_with_any_kernel  # others warn that rows are alone, and refuse rows so far away
def test_rows_that_are_infinitely_far_from_each_other(estimator, rows):
    # With a length scale of 1 every row is alone: f(x_i) = y_i / (1 + λ)
    y = targets_for(estimator, rows)
    model = estimator(Gaussian(1.0), noise=0.1, intercept=False).fit(1e150 * rows, y)
    assert_close(model.predict(1e150 * rows), y / 1.1)


@over(
    "estimator", [cls for cls in REGRESSORS if not issubclass(cls, (*COMPACT, OnlineRegressor, ReducedRankRegressor))]
)
def test_linear_kernel_on_huge_rows_is_least_squares(estimator, rows):
    y = targets_for(estimator, rows)
    expected = rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitterWarning)  # noise 0.1 is nothing beside 1e300
        model = estimator(Linear(), noise=0.1, intercept=False).fit(1e150 * rows, y)
    assert_close(model.predict(1e150 * rows), expected, 1e-6)


def test_kernel_values_whose_squares_overflow_are_refused_by_a_recursion(rows):
    model = OnlineRegressor(Linear()).fit(rows, rows[:, 0])
    assert_refused(model, lambda: model.fit(1e150 * rows, rows[:, 0]), rows, ValueError, "overflow .* Scale X")
    assert_refused(model, lambda: model.partial_fit(1e150 * rows, rows[:, 0]), rows, ValueError, "overflow .* Scale X")
    assert_refused(model, lambda: model.partial_fit(rows, 1e200 * rows[:, 0]), rows, ValueError, "overflow. Scale y")


def test_a_noise_that_rounding_drowns_is_refused_by_the_reduced_rank_approximation(rows):
    # Weights are residuals over the noise: rounding of y, 1e-16, over 0.1 and times kernel values of 1e300.
    y = targets_for(ReducedRankRegressor, rows)
    model = ReducedRankRegressor(Linear(), noise=0.1).fit(rows, y)
    message = "noise=0.1 is too small for 40 rows.*or more, or NystromRegressor"
    assert_refused(model, lambda: model.fit(1e150 * rows, y), rows, ValueError, message)


@regressors_with_any_kernel
@pytest.mark.parametrize("scale", [1e-150, 1e-200, 0.0])
def test_linear_kernel_on_tiny_rows_is_zero(estimator, rows, scale):
    model = estimator(Linear(), noise=0.1, intercept=False).fit(scale * rows, targets_for(estimator, rows))
    np.testing.assert_allclose(model.predict(scale * rows), 0.0, atol=1e-200)


@with_any_kernel
def test_kernels_that_overflow_are_refused(estimator, rows):
    y = targets_for(estimator, rows)
    with pytest.raises((NotPositiveDefiniteError, ValueError), match="overflow"):
        estimator(Polynomial(degree=3)).fit(1e150 * rows, y)


@each_regressor
def test_float32_rows_with_targets_beyond_float32(estimator, rows):
    y = targets_for(estimator, rows)
    single = rows.astype(np.float32)
    mean = estimator(Gaussian(), noise=0.1).fit(single, 1e50 * y).predict(single)
    assert_close(mean / 1e50, estimator(Gaussian(), noise=0.1).fit(single, y).predict(single), 1e-4)


@with_any_kernel
@pytest.mark.parametrize("kernel", [lambda a, b: np.full((len(a), len(b)), np.nan), lambda a, b: -Gaussian()(a, b)])
def test_kernels_that_are_no_kernels_are_refused(estimator, rows, kernel):
    y = targets_for(estimator, rows)
    model = estimator(kernel=Gaussian()).fit(rows, y)
    before = output(model, rows)
    with pytest.raises(NotPositiveDefiniteError, match="kernel"):
        model.set_params(kernel=kernel).fit(rows, y)
    np.testing.assert_array_equal(output(model, rows), before)
