"""Whole weights count equal rows; of all others only ratios matter to what is chosen and to how it is judged."""

import numpy as np
import pytest

import mercer
from mercer.engine.weights import are_counts, effective_number, left_out_parts
from mercer.kernels import Matern, Wendland

KERNEL = Matern(1.0, nu=1.5)
MODELS = {
    "exact": lambda **o: mercer.ExactRegressor(KERNEL, **o),
    "nystrom": lambda **o: mercer.NystromRegressor(KERNEL, n_basis=150, random_state=0, **o),
    "committee": lambda **o: mercer.CommitteeRegressor(KERNEL, n_basis=60, random_state=0, **o),
    "reduced rank": lambda **o: mercer.ReducedRankRegressor(KERNEL, n_basis=60, random_state=0, **o),
    "compact": lambda **o: mercer.CompactRegressor(Wendland(3.0), **o),
}
# A reduced rank approximation may have negative variances.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.NegativeVarianceWarning")
each_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def draw(n=300, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-3, 3, size=(n, 2))
    return rows, np.sin(rows[:, 0]) + 0.3 * rng.normal(size=n), rng


def test_whole_numbers_are_counts():
    assert are_counts(None)
    assert are_counts(np.array([0.0, 1.0, 3.0]))
    assert not are_counts(np.array([1.0, 2.5]))


def test_counts_are_worth_their_sum_and_other_weights_their_ratios():
    weights = np.array([1.0, 2.0, 3.0])
    assert effective_number(6.0, 14.0, counted=True) == 6.0
    for unit in (1e-200, 0.1, 10.0):
        scaled = unit * weights
        found = effective_number(np.sum(scaled), np.sum(scaled**2), counted=False)
        assert found == pytest.approx(36.0 / 14.0) or unit == 1e-200  # whose squares are zero
    np.testing.assert_array_equal(left_out_parts(weights, counted=True), 1.0)
    np.testing.assert_array_equal(left_out_parts(weights, counted=False), weights)


@each_model
@pytest.mark.parametrize("noise", ["auto", "loo"])
def test_weights_that_are_no_counts_do_not_look_like_copies(make, noise):
    rows, targets, rng = draw()
    weights = rng.uniform(1.0, 10.0, size=300)
    model = make(noise=noise).fit(rows[:200], targets[:200], weights[:200])
    plain = make(noise=noise).fit(rows[:200], targets[:200])
    errors = [np.sqrt(np.mean((targets[200:] - each.predict(rows[200:])) ** 2)) for each in (model, plain)]
    assert errors[0] < 1.1 * errors[1]
    low, high = model.predict_interval(rows[200:], coverage=0.9)
    known = np.isfinite(low)  # unless a variance is negative
    assert np.mean((low <= targets[200:]) & (targets[200:] <= high), where=known) > 0.78
    assert 0.8 * plain.loo_error_ < model.loo_error_ < 1.25 * plain.loo_error_
    assert 0.5 < model.calibration_ < 2.0


@each_model
@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_only_their_ratios_matter(make, unit):
    rows, targets, rng = draw(120)
    weights = rng.uniform(1.0, 10.0, size=120)
    one, other = (make().fit(rows, targets, factor * weights) for factor in (1.0, unit))
    assert other.noise_ == pytest.approx(unit * one.noise_, rel=1e-4)
    assert other.loo_error_ == pytest.approx(one.loo_error_, rel=1e-4)
    np.testing.assert_allclose(other.predict(rows[:9]), one.predict(rows[:9]), rtol=0, atol=1e-4)
    np.testing.assert_allclose(other.predict_interval(rows[:9]), one.predict_interval(rows[:9]), rtol=1e-3, atol=1e-3)


def test_class_weights_are_no_counts_even_if_they_are_whole():
    rows, values, _ = draw(200)
    labels = values > 0.5
    whole = mercer.ExactClassifier(KERNEL, class_weight={False: 1, True: 3}).fit(rows, labels)
    other = mercer.ExactClassifier(KERNEL, class_weight={False: 1, True: 3 + 1e-9}).fit(rows, labels)
    assert whole.noise_ == pytest.approx(other.noise_, rel=1e-6)


def test_statistics_of_both_kinds_add_and_subtract():
    rows, targets, rng = draw(200)
    weights = rng.uniform(1.0, 10.0, size=100)
    model = mercer.NystromRegressor(KERNEL, n_basis=20, random_state=0).partial_fit(rows[:100], targets[:100])
    plain = model.noise_
    model.partial_fit(rows[100:], targets[100:], weights)
    assert not model._summary.statistics.counted
    model.forget(rows[100:], targets[100:], weights)
    assert model._summary.statistics.counted
    assert model.noise_ == pytest.approx(plain, rel=1e-6)
