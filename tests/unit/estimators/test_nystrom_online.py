"""When predictions follow from the last solution, and when they are solved for anew."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import mercer
from mercer import NystromClassifier, NystromRegressor
from mercer.kernels import Gaussian
from mercer.methods import frame, online_update
from tests.oracles import assert_close_to_largest as assert_close
from tests.oracles import each_intercept


@pytest.fixture(autouse=True, scope="module")
def _followed_by_small_bases():
    """A few rows are followed on these bases, too, where a new factor would be made in less time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(online_update, "_CROSSING", 1 / 8)
        yield


@pytest.fixture
def model(data, basis):
    rows, targets, _, _ = data
    return NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1).fit(rows[:150], targets[:150])


def follows(model):
    return not model._summary.is_solved_directly


def assert_fitted_to(model, rows, targets, new):
    expected = clone(model).fit(rows, targets)
    for one, other in zip(model.predict(new, return_std=True), expected.predict(new, return_std=True), strict=True):
        assert_close(one, other)


@each_intercept
def test_few_rows_are_followed_many_are_solved_for(data, basis, intercept):
    rows, targets, new, _ = data
    model = NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1, intercept=intercept)
    model.fit(rows[:150], targets[:150])
    assert not follows(model)
    model.partial_fit(rows[150:151], targets[150:151]).partial_fit(rows[151:152], targets[151:152])
    assert follows(model)
    assert_fitted_to(model, rows[:152], targets[:152], new)
    model.forget(rows[:2], targets[:2])
    assert follows(model)
    assert_fitted_to(model, rows[2:152], targets[2:152], new)
    model.partial_fit(rows[152:155], targets[152:155])
    assert not follows(model)
    assert_fitted_to(model, rows[2:155], targets[2:155], new)


def test_the_factor_is_made_anew_when_half_the_rows_have_changed(data, basis):
    rows, targets, new, _ = data
    model = NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1).fit(rows[:20], targets[:20])
    seen = []
    for i in range(20, 34):
        model.partial_fit(rows[i : i + 1], targets[i : i + 1])
        seen.append(follows(model))
    assert seen == [True] * 10 + [False] + [True] * 3
    assert_fitted_to(model, rows[:34], targets[:34], new)


def test_what_the_new_rows_change_of_the_sample_is_in_the_calibration(data, model):
    rows, targets, _, _ = data
    model.partial_fit(rows[150:152], targets[150:152])
    assert follows(model)
    expected = clone(model).fit(rows[:152], targets[:152])
    assert model.loo_error_ == pytest.approx(expected.loo_error_, rel=1e-9)
    assert model.calibration_ == pytest.approx(expected.calibration_, rel=1e-8)
    assert model.log_marginal_likelihood_ == pytest.approx(expected.log_marginal_likelihood_, rel=1e-9)


@pytest.mark.parametrize("change", [{"noise": 0.2}, {"intercept": False}, {"variance": "sor"}, {"noise": "auto"}])
def test_other_settings_are_solved_for(data, model, change):
    rows, targets, new, _ = data
    model.set_params(**change).partial_fit(rows[150:151], targets[150:151])
    assert not follows(model)
    assert_fitted_to(model, rows[:151], targets[:151], new)


def test_a_noise_that_is_chosen_is_chosen_from_all_rows(data, basis):
    rows, targets, _, _ = data
    model = NystromRegressor(Gaussian(0.8), basis=basis).fit(rows[:150], targets[:150])
    model.partial_fit(rows[150:151], targets[150:151])
    assert not follows(model)
    assert model.noise_ == pytest.approx(model.fit(rows[:151], targets[:151]).noise_, rel=1e-6)


def test_a_merged_model_is_solved_for(data, model):
    rows, targets, new, _ = data
    other = NystromRegressor(model.kernel_, basis=model.basis_, noise=0.1).fit(rows[150:], targets[150:])
    model.merge(other)
    assert not follows(model)
    assert_fitted_to(model, rows, targets, new)


def test_plain_sums_are_whitened_once_and_remember_their_rounding(data, basis, monkeypatch):
    monkeypatch.setattr(frame, "_LONG_PASS", 0.0)
    rows, targets, new, _ = data
    model = NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1).fit(rows[:150], targets[:150])
    assert not model._whitened
    least = model._summary._smallest_noise()
    model.partial_fit(rows[150:152], targets[150:152])
    assert model._whitened
    assert follows(model)
    assert model._summary._smallest_noise() == least
    with pytest.raises(ValueError, match="sums that were made for a larger one"):
        model.noise_path([0.1 * least])
    assert_fitted_to(model, rows[:152], targets[:152], new)
    assert_fitted_to(model.forget(rows[:2], targets[:2]), rows[2:152], targets[2:152], new)


def test_rows_go_from_plain_sums_that_were_whitened_on_a_basis_close_to_singular(monkeypatch):
    monkeypatch.setattr(frame, "_LONG_PASS", 0.0)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(2000, 2))
    targets = np.sin(2 * rows[:, 0]) + 0.1 * rng.normal(size=2000)
    model = NystromRegressor(Gaussian(1.0), basis=rows[:60], noise=10.0, intercept=False).fit(rows, targets)
    assert not model._whitened
    model.partial_fit(rows[:1], targets[:1])
    assert model._whitened
    model.forget(rows[1000:], targets[1000:]).forget(rows[:1], targets[:1])
    expected = clone(model).partial_fit(rows[:1000], targets[:1000])
    actual, right = (each.predict(rows[:50], return_std=True) for each in (model, expected))
    assert_close(actual[0], right[0], 1e-5)
    assert_close(actual[1], right[1], 1e-5)


@pytest.mark.parametrize("solved_before", [False, True])
def test_a_stored_model_goes_on(data, model, tmp_path, solved_before):
    rows, targets, new, _ = data
    model.partial_fit(rows[150:151], targets[150:151])
    if solved_before:
        model.predict(new)
    mercer.save(model, tmp_path / "model.mercer")
    for again in (mercer.load(tmp_path / "model.mercer"), pickle.loads(pickle.dumps(model))):
        again.partial_fit(rows[151:152], targets[151:152])
        assert_fitted_to(again, rows[:152], targets[:152], new)


def test_a_refused_batch_leaves_the_model(data, model):
    rows, targets, new, _ = data
    model.partial_fit(rows[150:151], targets[150:151])
    before = model.predict(new)
    with pytest.raises(ValueError, match="overflow"):
        model.partial_fit(rows[151:152], [1e200])
    np.testing.assert_array_equal(model.predict(new), before)
    assert model.n_seen_ == 151


def test_an_outlying_row_of_large_weight_can_come_and_go(data, model):
    rows, targets, new, _ = data
    model.partial_fit(rows[150:151], targets[150:151], [1e4])
    model.predict(new)
    model.forget(rows[150:151], targets[150:151], [1e4])
    mean, std = model.predict(new, return_std=True)
    expected = clone(model).fit(rows[:150], targets[:150])
    np.testing.assert_allclose(mean, expected.predict(new), rtol=0, atol=1e-6)
    np.testing.assert_allclose(std, expected.predict(new, return_std=True)[1], rtol=0, atol=1e-6)


def test_a_model_shrinks_to_one_row_and_grows_again_row_by_row(data, basis):
    rows, targets, new, _ = data
    model = NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1).fit(rows[:6], targets[:6])
    for i in range(1, 6):
        model.forget(rows[i : i + 1], targets[i : i + 1]).predict(new)
    assert_fitted_to(model, rows[:1], targets[:1], new)
    for i in range(1, 6):
        model.partial_fit(rows[i : i + 1], targets[i : i + 1]).predict(new)
    assert_fitted_to(model, rows[:6], targets[:6], new)


def test_a_window_slides_over_the_rows(data, basis):
    rows, targets, new, _ = data
    model = NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1).fit(rows[:50], targets[:50])
    followed = 0
    for i in range(50, 200):
        model.partial_fit(rows[i : i + 1], targets[i : i + 1]).forget(rows[i - 50 : i - 49], targets[i - 50 : i - 49])
        model.predict(new)
        followed += follows(model)
    assert followed > 120
    assert_fitted_to(model, rows[150:], targets[150:], new)


def test_classifiers_follow(data, basis):
    rows, targets, new, _ = data
    labels = np.digitize(targets, [0.5, 1.5])
    options = {"kernel": Gaussian(0.8), "basis": basis, "noise": 0.1}
    model = NystromClassifier(**options).fit(rows[:150], labels[:150])
    model.partial_fit(rows[150:152], labels[150:152])
    assert follows(model)
    expected = NystromClassifier(**options).fit(rows[:152], labels[:152])
    assert_close(model.decision_function(new), expected.decision_function(new))
    assert_close(model.predict_proba(new), expected.predict_proba(new), 1e-6)
