"""Weights, targets and offsets over many orders of magnitude: right, or refused by name, never wrong in silence."""

import re
import warnings

import numpy as np
import pytest

from mercer import (
    AutoRegressor,
    CommitteeRegressor,
    CompactRegressor,
    ExactClassifier,
    ExactRegressor,
    NystromRegressor,
    NystromSVR,
    OnlineRegressor,
    ReducedRankRegressor,
)
from mercer.exceptions import GeneralisationWarning, JitterWarning
from mercer.kernels import Gaussian, Matern, Polynomial
from tests.walks import REGRESSORS, over


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 2))
    return rows, np.sin(2 * rows[:, 0]) + 0.1 * rng.normal(size=200) + 5.0, rng.normal(size=(40, 2))


# ------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Matern(1.0)], ids=str)
@pytest.mark.parametrize("weight", [1e6, 1e12])
def test_conjugate_gradients_with_one_row_of_enormous_weight(data, kernel, weight):
    rows, targets, _ = data
    weights = np.ones(200)
    weights[0] = weight
    options = {"noise": 1e-6, "intercept": True, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GeneralisationWarning)  # of the direct solution: 1e-6 is too little
        expected = ExactRegressor(kernel, solver="cholesky", **options).fit(rows, targets, weights)
    model = ExactRegressor(kernel, solver="cg", **options).fit(rows, targets, weights)  # or a ConvergenceWarning
    np.testing.assert_allclose(model.predict(rows), expected.predict(rows), rtol=0, atol=1e-4)


@pytest.mark.parametrize("power", [-8, -4, 4, 8])
def test_forgotten_rows_of_other_weight_leave_the_rest(data, power):
    rows, targets, new = data
    make = lambda: NystromRegressor(Gaussian(1.0), basis=rows[::10], noise=0.1)  # noqa: E731
    gone = (rows[150:], targets[150:], np.full(50, 10.0**power))
    model = make().partial_fit(rows[:150], targets[:150]).partial_fit(*gone).forget(*gone)
    expected = make().partial_fit(rows[:150], targets[:150])
    for answer, right in zip(model.predict(new, return_std=True), expected.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(answer, right, rtol=0, atol=1e-5)


@pytest.mark.parametrize("noise", [0.1, "auto"])
def test_forgetting_is_refused_where_no_digits_of_the_rest_are_left(data, noise):
    rows, targets, new = data
    gone = (rows[150:], targets[150:], np.full(50, 1e14))
    model = NystromRegressor(Gaussian(1.0), basis=rows[::10], noise=noise).partial_fit(rows[:150], targets[:150])
    model.partial_fit(*gone)
    before = model.predict(new)
    with pytest.raises(ValueError, match=r"times the weight of the others, whose digits are lost.*anew"):
        model.forget(*gone)
    np.testing.assert_array_equal(model.predict(new), before)


def test_forgetting_in_two_steps_remembers_the_rounding(data):
    rows, targets, _ = data
    gone = (rows[150:], targets[150:], np.full(50, 1e11))
    model = NystromRegressor(Gaussian(1.0), basis=rows[::10], noise=0.1).partial_fit(rows[:150], targets[:150])
    model.partial_fit(*gone).forget(*(each[:25] for each in gone))
    with pytest.raises(ValueError, match=r"too small for what is left of sums.*anew"):
        model.forget(*(each[25:] for each in gone))
    model.noise = 1e4
    model.forget(*(each[25:] for each in gone))


def test_forgetting_rows_of_enormous_targets_is_refused(data):
    rows, targets, _ = data
    model = NystromRegressor(Gaussian(1.0), basis=rows[::10], noise=0.1).partial_fit(rows[:150], targets[:150])
    model.partial_fit(rows[150:], 1e9 * targets[150:])
    with pytest.raises(ValueError, match=r"targets so large that the digits of the others' are lost"):
        model.forget(rows[150:], 1e9 * targets[150:])


def test_what_is_left_without_weight_is_the_prior(data):
    rows, targets, new = data
    weights = np.where(np.arange(200) < 150, 0.0, 3.0)
    model = NystromRegressor(Gaussian(1.0), basis=rows[::10], noise=0.1).partial_fit(rows, targets, weights)
    model.forget(rows[150:], targets[150:], weights[150:])
    np.testing.assert_array_equal(model.predict(new), 0.0)


@pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")
@pytest.mark.parametrize("block_size", [1, 50, 200])
def test_a_committee_warns_of_weights_over_24_orders_of_magnitude_and_takes_12(data, block_size):
    rows, targets, _ = data
    powers = np.random.default_rng(1).uniform(-6, 6, 200)
    options = {"basis": rows[::6], "block_size": block_size, "noise": 0.1, "random_state": 0}
    with pytest.warns(JitterWarning, match=r"weights of a smaller range"):
        CommitteeRegressor(Matern(1.0), **options).fit(rows, targets, 10.0 ** (2 * powers))
    model = CommitteeRegressor(Matern(1.0), **options).fit(rows, targets, 10.0**powers)
    if block_size == 200:  # one block: the exact process at the basis points
        exact = ExactRegressor(Matern(1.0), noise=0.1).fit(rows, targets, 10.0**powers)
        np.testing.assert_allclose(model.predict(rows[::6]), exact.predict(rows[::6]), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "estimator", [ExactRegressor(), NystromRegressor(), OnlineRegressor(), ExactClassifier()], ids=str
)
@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_weights_whose_squares_are_no_numbers_are_refused(data, estimator, size):
    rows, targets, _ = data
    with pytest.raises(ValueError, match=r"sample_weight goes up to .*scale it to a mean of 1"):
        estimator.fit(rows, targets > 5, np.full(200, size))


# ------------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize("noise", ["auto", "gcv", "loo", 0.1])
@pytest.mark.parametrize("scale", [1e-309, 1e-300, 1e-160, 1e160, 1e300])
def test_targets_whose_squares_are_no_numbers(data, noise, scale):
    rows, targets, new = data
    expected = ExactRegressor(Gaussian(1.0), noise=noise).fit(rows, targets)
    model = ExactRegressor(Gaussian(1.0), noise=noise).fit(rows, scale * targets)
    assert model.noise_ == pytest.approx(expected.noise_, rel=1e-6)
    for answer, right in zip(model.predict(new, return_std=True), expected.predict(new, return_std=True), strict=True):
        np.testing.assert_allclose(answer / scale, right, rtol=1e-6)
    assert model.scale_ / scale == pytest.approx(expected.scale_)
    assert model.loo_error_ / scale == pytest.approx(expected.loo_error_)
    np.testing.assert_allclose(model.predict_interval(new)[0] / scale, expected.predict_interval(new)[0], rtol=1e-6)


@pytest.mark.parametrize("cls", [NystromRegressor, CommitteeRegressor, ReducedRankRegressor])
@pytest.mark.parametrize(("scale", "what"), [(1e-160, "underflow"), (1e-300, "underflow"), (1e160, "overflow")])
def test_sums_of_squares_that_are_no_numbers_are_refused(data, cls, scale, what):
    rows, targets, _ = data
    with pytest.raises(ValueError, match=what + ".*Scale"):
        cls(n_basis=20).fit(rows, scale * targets)


@pytest.mark.parametrize(
    "estimator", [AutoRegressor(), ExactRegressor(), CompactRegressor(), OnlineRegressor()], ids=str
)
def test_targets_whose_sums_are_no_numbers_are_refused(data, estimator):
    rows, targets, _ = data
    with pytest.raises(ValueError, match=r"y goes up to 1.*overflow. Scale y"):
        estimator.fit(rows, 1e307 * targets / np.max(np.abs(targets)))


def test_support_vectors_of_targets_whose_squares_are_no_numbers_are_refused(data):
    rows, targets, _ = data
    with pytest.raises(ValueError, match=r"overflow. Scale y"):
        NystromSVR(n_basis=20).fit(rows, 1e160 * targets)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_length_scales_by_likelihood_do_not_depend_on_the_size_of_targets(data, scale):
    rows, targets, _ = data
    expected = ExactRegressor(Gaussian("ard")).fit(rows, targets).kernel_
    found = ExactRegressor(Gaussian("ard")).fit(rows, scale * targets).kernel_
    np.testing.assert_allclose(found(rows), expected(rows), atol=1e-3)


# ------------------------------------------------------------------------------------------------- offsets


@over("estimator", [cls for cls in REGRESSORS if "Compact" not in cls.__name__ and "Auto" not in cls.__name__])
def test_a_polynomial_of_inputs_far_from_zero_warns(data, estimator):
    rows, targets, _ = data
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator(Polynomial(3)).fit(rows + 1e4, targets)
    message = r"lie up to 1e\+04 from zero, which leaves a Polynomial kernel \d independent functions of at least 10"
    assert any(re.search(message, str(each.message)) for each in caught)


@pytest.mark.parametrize("offset", [0.0, 3.0])
@pytest.mark.parametrize("degree", [1, 2, 5])
def test_a_polynomial_of_inputs_near_zero_does_not(data, degree, offset):
    rows, targets, _ = data
    ExactRegressor(Polynomial(degree), noise=1e5).fit(rows + offset, targets)
    ExactRegressor(Polynomial(degree), noise=1e5).fit(rows[:1], targets[:1])


# -------------------------------------------------------------------------------------------------- dtypes


def test_float64_rows_after_float32_ones_keep_their_digits(data):
    rows, targets, _ = data
    rows = rows + 1e5  # where float32 knows two digits behind the point
    single = rows[:100].astype(np.float32)
    first = NystromRegressor(Gaussian(1.0), n_basis=10, noise=0.1, intercept=False, random_state=0)
    second = NystromRegressor(
        Gaussian(1.0), basis=first.partial_fit(single, targets[:100]).basis_, noise=0.1, intercept=False
    )
    alone = first.statistics_.sums.copy()
    added = first.partial_fit(rows[100:], targets[100:]).statistics_.sums - alone
    np.testing.assert_allclose(added, second.partial_fit(rows[100:], targets[100:]).statistics_.sums, atol=1e-9)
    first.forget(rows[100:], targets[100:])
    np.testing.assert_allclose(first.statistics_.sums, alone, atol=1e-9)


@pytest.mark.parametrize("cls", [CommitteeRegressor, OnlineRegressor])
def test_others_take_float32_rows_for_the_numbers_they_are(data, cls):
    rows, targets, new = data
    single, options = (rows[:100] + 1e5).astype(np.float32), {"noise": 0.1}
    rest = (rows[100:] + 1e5, targets[100:])
    model = cls(Gaussian(1.0), **options).partial_fit(single, targets[:100]).partial_fit(*rest)
    double = cls(Gaussian(1.0), **options).partial_fit(single.astype(np.float64), targets[:100]).partial_fit(*rest)
    np.testing.assert_allclose(model.predict(new + 1e5), double.predict(new + 1e5), rtol=1e-9)
