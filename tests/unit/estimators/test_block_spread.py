"""Committees, pseudo-inputs and reduced rank by default: noise, intercept, spread in the units of the targets."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from mercer import CommitteeRegressor, ExactRegressor, NystromRegressor, PseudoInputRegressor, ReducedRankRegressor
from mercer.exceptions import GeneralisationWarning, JitterWarning
from mercer.kernels import Gaussian

REGRESSORS = {
    "committee": lambda **o: CommitteeRegressor(n_basis=40, block_size=50, random_state=0, **o),
    "fitc": lambda **o: CommitteeRegressor(n_basis=40, block_size=1, random_state=0, **o),
    "reduced rank": lambda **o: ReducedRankRegressor(n_basis=40, random_state=0, **o),
    "pseudo": lambda **o: PseudoInputRegressor(n_basis=15, random_state=0, **o),
    "pseudo fitc": lambda **o: PseudoInputRegressor(
        n_basis=25, objective="fitc", fit_points=False, random_state=0, **o
    ),
}
# Of reduced rank, away from the basis.
negative_variances = pytest.mark.filterwarnings("ignore::mercer.exceptions.NegativeVarianceWarning")
each = pytest.mark.parametrize("make", REGRESSORS.values(), ids=REGRESSORS)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(400, 2))
    return rows, np.sin(2 * rows[:, 0]) + rows[:, 1] + 0.2 * rng.normal(size=400)


@each
def test_defaults_are_good_and_honest(make, data):
    rows, targets = data
    model = make().fit(rows[:300], targets[:300])
    assert np.sqrt(np.mean((model.predict(rows[300:]) - targets[300:]) ** 2)) < 0.25
    assert 0.02 < model.noise_ * model.scale_**2 < 0.06  # 0.04
    assert 0.7 < model.calibration_ < 1.4
    lower, upper = model.predict_interval(rows[300:], coverage=0.9)
    assert 0.8 <= np.mean((lower <= targets[300:]) & (targets[300:] <= upper)) <= 0.97
    assert np.mean(model.log_density(rows[300:], targets[300:])) > 0.0


@negative_variances
@each
@pytest.mark.parametrize("unit", [1e-3, 1e3])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_units_and_offsets_of_the_targets_do_not_matter(make, data, unit, offset):
    rows, targets = data[0][:150], data[1][:150]
    expected_mean, expected_std = make().fit(rows, targets).predict(data[0][150:], return_std=True)
    mean, std = make().fit(rows, unit * (targets + offset)).predict(data[0][150:], return_std=True)
    # A search ends where its tolerance lets it.
    tolerance = 1e-3 if make in (REGRESSORS["pseudo"], REGRESSORS["pseudo fitc"]) else 1e-6
    np.testing.assert_allclose(mean / unit - offset, expected_mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(std / unit, expected_std, rtol=0, atol=tolerance)


@negative_variances
@each
def test_several_outputs_have_a_spread_each(make, data):
    rows, targets = data[0][:150], data[1][:150]
    model = make().fit(rows, np.column_stack([targets, 5 * targets]))
    mean, std = model.predict(rows[:9], return_std=True)
    _, covariance = model.predict(rows[:9], return_cov=True)
    assert (mean.shape, std.shape, covariance.shape) == ((9, 2), (9, 2), (9, 9, 2))
    known = np.isfinite(std)
    np.testing.assert_allclose(np.diagonal(covariance).T[known], std[known] ** 2, rtol=1e-6)
    assert np.shape(model.calibration_) == np.shape(model.loo_error_) == np.shape(model.scale_) == (2,)


def test_a_committee_takes_the_noise_of_the_exact_process(data):
    rows, targets = data
    exact = ExactRegressor(random_state=0).fit(rows, targets)
    for choice in ("auto", "gcv", "loo"):
        model = CommitteeRegressor(exact.kernel_, n_basis=40, noise=choice, random_state=0).fit(rows, targets)
        assert model.noise_ == pytest.approx(exact.set_params(noise=choice).fit(rows, targets).noise_, rel=1e-6)
    # One block has the likelihood of the exact process, and with it its scale.
    whole = CommitteeRegressor(exact.kernel_, n_basis=40, random_state=0).fit(rows, targets)
    assert whole.scale_ == pytest.approx(exact.set_params(noise="auto").fit(rows, targets).scale_, rel=1e-6)


def test_the_first_rows_choose_the_noise(data):
    rows, targets = data
    first = CommitteeRegressor(n_basis=40, random_state=0).fit(rows[:100], targets[:100])
    model = CommitteeRegressor(n_basis=40, random_state=0).partial_fit(rows[:100], targets[:100])
    model.partial_fit(rows[100:], 3 * targets[100:])
    assert model.noise_ == first.noise_
    assert model.set_params(noise=0.5).partial_fit(rows[:9], targets[:9]).noise_ == 0.5


def test_reduced_rank_takes_the_noise_of_the_subset_of_representers(data):
    rows, targets = data
    nystrom = NystromRegressor(n_basis=40, random_state=0).fit(rows, targets)
    model = ReducedRankRegressor(n_basis=40, random_state=0).fit(rows, targets)
    assert (model.noise_, model.scale_) == pytest.approx((nystrom.noise_, nystrom.scale_))


def test_transduction_has_the_scale_of_the_model(data):
    rows, targets = data
    model = CommitteeRegressor(n_basis=40, random_state=0).fit(rows[:300], targets[:300])
    exact = ExactRegressor(model.kernel_, noise=model.noise_).fit(rows[:300], targets[:300])
    mean, std = model.predict(rows[300:], return_std=True, transduce=True, batch_size=7)
    expected_mean, expected_std = exact.predict(rows[300:], return_std=True)  # one block is the exact process
    np.testing.assert_allclose(mean, expected_mean, rtol=0, atol=1e-7)
    np.testing.assert_allclose(std, expected_std, rtol=0, atol=1e-7)


def test_a_weight_of_two_is_the_row_twice_in_scale_and_likelihood(data):
    rows, targets = data[0][:60], data[1][:60]
    weights = np.random.default_rng(1).integers(1, 4, size=60)
    again = np.repeat(np.arange(60), weights)
    labels = np.arange(60) % 3
    options = {"kernel": Gaussian(), "basis": rows[:10], "noise": 0.1}
    weighted = CommitteeRegressor(**options, partition=labels).fit(rows, targets, weights)
    repeated = CommitteeRegressor(**options, partition=labels[again]).fit(rows[again], targets[again])
    assert weighted.scale_ == pytest.approx(repeated.scale_, rel=1e-9)
    assert weighted.log_marginal_likelihood_ == pytest.approx(repeated.log_marginal_likelihood_, rel=1e-9)


@pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")
@pytest.mark.parametrize("least", [1.0, 1e-12])
def test_weights_that_drown_all_others_are_told(least):
    # Against 70 digits: errors of the mean up to twice its size (weights 1e-12 and 1e12, noise 1e-4).
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(30, 2))
    weights = np.where(rng.random(30) < 0.5, least, 1e12)
    model = CommitteeRegressor(Gaussian(), basis=rows[:6], noise=1e-4, partition=np.arange(30) % 3)
    with pytest.warns(JitterWarning, match=r"a noise of 1e-16 \(noise over sample_weight\) is so small"):
        model.fit(rows, np.sin(2 * rows[:, 0]), weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error", JitterWarning)
        model.fit(rows, np.sin(2 * rows[:, 0]), 1e-12 * weights)


@pytest.mark.parametrize("objective", ["vfe", "fitc"])
@pytest.mark.parametrize("seed", [0, 1])
def test_as_many_points_as_rows_and_short_length_scales_do_not_end_at_interpolation(objective, seed):
    rows, targets = make_friedman1(300, n_features=6, noise=0.5, random_state=seed)
    model = PseudoInputRegressor(
        Gaussian(np.std(rows, axis=0)), n_basis=300, fit_points=False, objective=objective, intercept=False
    ).fit(rows, targets)
    best = {0: -309.97, 1: -347.26}[seed]  # scikit-learn's, from a start at twice the length scales
    assert model.objective_value_ > best - 0.5
    assert 0.15 < model.noise_ < 0.35  # 0.25


def test_a_model_that_does_not_generalise_says_so(data):
    rows, targets = data[0][:100], np.random.default_rng(1).normal(size=100)
    with pytest.warns(GeneralisationWarning, match="the model does not generalise"):
        CommitteeRegressor(Gaussian(0.3), basis=rows[:50], noise=1e-6).fit(rows, targets)
    with pytest.warns(GeneralisationWarning):
        ReducedRankRegressor(Gaussian(0.3), basis=rows[:50], noise=1e-6).fit(rows, targets)


@pytest.mark.parametrize("objective", ["vfe", "fitc"])
def test_pseudo_inputs_whose_kernel_or_noise_is_given(data, objective):
    rows, targets = data[0][:150], data[1][:150]
    options = {"kernel": Gaussian(1.0), "basis": rows[:20], "objective": objective, "fit_points": False}
    only_noise = PseudoInputRegressor(**options, fit_kernel=False).fit(rows, targets)
    assert only_noise.scale_ == 1.0
    assert 0.01 < only_noise.noise_ < 0.2
    nothing = PseudoInputRegressor(**options, fit_kernel=False, fit_noise=False, noise=0.05).fit(rows, targets)
    scaled = PseudoInputRegressor(**options, fit_kernel=False, fit_noise=False, noise=0.05).fit(rows, 1e3 * targets)
    assert scaled.scale_ == pytest.approx(1e3 * nothing.scale_, rel=1e-9)
    chosen = PseudoInputRegressor(**options, fit_kernel=False, fit_noise=False).fit(rows, targets)
    assert 1e-3 <= chosen.noise_ <= 1.0
