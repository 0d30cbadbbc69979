"""Noise, spread and intervals without settings: what scaling does, leave-one-out by refitting, coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercer import ExactRegressor, NystromRegressor
from mercer.exceptions import GeneralisationWarning
from mercer.kernels import Gaussian, Matern

BOTH = pytest.mark.parametrize("estimator", [ExactRegressor, NystromRegressor])


def draw(n=80, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-2, 2, size=(n, 2))
    return rows, np.sin(2 * rows[:, 0]) + rows[:, 1] + noise * rng.normal(size=n)


@BOTH
@given(
    seed=st.integers(0, 50),
    factor=st.sampled_from([1e-6, 0.1, 1e3, 1e9]),
    shift=st.sampled_from([-100.0, 0.0, 5.0]),
    unit=st.sampled_from([1e-3, 1.0, 1e4]),
)
def test_units_of_targets_and_rows_change_predictions_and_spread_accordingly(estimator, seed, factor, shift, unit):
    rows, y = draw(40, seed)
    new = draw(10, seed + 1)[0]
    model = estimator("matern", random_state=0).fit(rows, y)
    other = estimator("matern", random_state=0).fit(unit * rows, factor * (y + shift))
    (mean, std), (other_mean, other_std) = (
        each.predict(x, return_std=True) for each, x in ((model, new), (other, unit * new))
    )
    tolerance = 1e-5 * np.ptp(y)
    np.testing.assert_allclose(other_mean / factor - shift, mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(other_std / factor, std, rtol=0, atol=tolerance)
    for end, other_end in zip(model.predict_interval(new, 0.8), other.predict_interval(unit * new, 0.8), strict=True):
        np.testing.assert_allclose(other_end / factor - shift, end, rtol=0, atol=10 * tolerance)


@BOTH
@pytest.mark.parametrize("intercept", [False, True])
def test_residuals_that_are_left_out_are_those_of_refitting(estimator, intercept):
    rows, y = draw(40)
    weights = np.random.default_rng(1).uniform(0.2, 1.0, size=40)
    extra = {"basis": rows[:15]} if estimator is NystromRegressor else {}
    options = {"kernel": Gaussian(1.0), "noise": 0.2, "intercept": intercept} | extra
    calibration = estimator(**options).fit(rows, y, weights)._calibration()
    for i in range(0, 40, 3):
        rest = np.arange(40) != i
        refitted = estimator(**options).fit(rows[rest], y[rest], weights[rest])
        residual = y[i] - refitted.predict(rows[i : i + 1])[0]
        variance = refitted.expansion_.variances(rows[i : i + 1])[0] + 0.2 / np.mean(weights)
        assert calibration.residuals[i, 0] == pytest.approx(residual, rel=1e-8, abs=1e-8)
        assert calibration.variances[i] == pytest.approx(variance, rel=1e-8)


@BOTH
@pytest.mark.parametrize("choice", ["auto", "loo", "gcv"])
def test_whole_weights_are_repetitions_for_the_chosen_noise(estimator, choice):
    rows, y = draw(60)
    counts = np.random.default_rng(2).integers(1, 3, size=60)
    extra = {"basis": rows[:20]} if estimator is NystromRegressor else {}
    options = {"kernel": Matern(1.0), "noise": choice} | extra
    weighted = estimator(**options).fit(rows, y, counts)
    again = np.repeat(np.arange(60), counts)
    repeated = estimator(**options).fit(rows[again], y[again])
    assert weighted.noise_ == pytest.approx(repeated.noise_, rel=1e-4)
    assert weighted.scale_ == pytest.approx(repeated.scale_, rel=1e-4)
    assert weighted.calibration_ == pytest.approx(repeated.calibration_, rel=1e-4)


@BOTH
def test_all_rows_as_basis_choose_the_noise_of_the_exact_model(estimator):
    rows, y = draw(60)
    exact = ExactRegressor(Matern(1.0)).fit(rows, y)
    other = estimator(Matern(1.0), **({"basis": rows} if estimator is NystromRegressor else {})).fit(rows, y)
    assert other.noise_ == pytest.approx(exact.noise_, rel=1e-6)
    assert other.scale_ == pytest.approx(exact.scale_, rel=1e-6)


@BOTH
@pytest.mark.parametrize("law", ["normal", "heavy", "skewed"])
def test_intervals_cover_on_exchangeable_data_from_any_law(estimator, law):
    rng = np.random.default_rng(3)
    rows = rng.uniform(-2, 2, size=(3000, 2))
    noise = {"normal": rng.normal, "heavy": lambda size: rng.standard_t(2, size=size), "skewed": rng.exponential}[law]
    y = np.sin(2 * rows[:, 0]) + (0.1 + np.abs(rows[:, 1])) * noise(size=3000)
    model = estimator("matern", random_state=0).fit(rows[:1000], y[:1000])
    for coverage in (0.5, 0.9, 0.95):
        lower, upper = model.predict_interval(rows[1000:], coverage)
        covered = np.mean((lower <= y[1000:]) & (y[1000:] <= upper))
        # Four standard deviations of the share of 2000 rows, and of the quantile of 1000.
        assert abs(covered - coverage) < 4 * np.sqrt(coverage * (1 - coverage) * (1 / 2000 + 1 / 1000))


@BOTH
def test_densities_are_those_of_the_predicted_normal(estimator):
    rows, y = draw(60)
    model = estimator(Matern(1.0), noise=0.1).fit(rows, np.column_stack([y, 10 * y]))
    mean, std = model.predict(rows, return_std=True)
    total = np.sqrt(std**2 + 0.1 * model.scale_**2)
    targets = np.column_stack([y, 10 * y]) + 0.1
    expected = np.sum(-0.5 * ((targets - mean) / total) ** 2 - np.log(total * np.sqrt(2 * np.pi)), axis=1)
    np.testing.assert_allclose(model.log_density(rows, targets), expected, rtol=1e-10)


def test_a_model_that_does_not_generalise_says_so():
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(200, 10)), rng.normal(size=200)
    with pytest.warns(GeneralisationWarning, match="does not generalise"):
        NystromRegressor(Gaussian(20.0), n_basis=150, noise=1e-9, random_state=0).fit(rows, y)


@pytest.mark.filterwarnings("error::mercer.exceptions.GeneralisationWarning")
@BOTH
def test_a_model_that_generalises_does_not_say_so(estimator):
    rows, y = draw(60)
    for offset in (0.0, 1e3):
        estimator(Matern(1.0)).fit(rows, y + offset)
        estimator(Matern(1.0), noise=0.1).fit(rows, y + offset)


def test_few_rows_have_intervals_of_students_distribution():
    rows, y = draw(12)
    with pytest.warns(UserWarning, match="12 rows are too few"):
        lower, upper = ExactRegressor(Matern(1.0), noise=0.1).fit(rows, y).predict_interval(rows, 0.99)
    assert np.all(np.isfinite(lower) & (lower < upper))


@pytest.mark.parametrize("coverage", [0.0, 1.0, -1, "most", np.nan])
def test_a_coverage_that_is_none_is_refused(coverage):
    rows, y = draw(30)
    with pytest.raises(ValueError, match="coverage must be a number between 0 and 1"):
        ExactRegressor(Matern(1.0)).fit(rows, y).predict_interval(rows, coverage)


def test_rows_that_were_added_merged_and_forgotten_calibrate_as_those_of_a_fit():
    rows, y = draw(90)
    options = {"kernel": Matern(1.0), "basis": rows[:20]}
    whole = NystromRegressor(**options).fit(rows[30:], y[30:])
    first = NystromRegressor(**options).partial_fit(rows[:50], y[:50]).partial_fit(rows[50:70], y[50:70])
    first.merge(NystromRegressor(**options).fit(rows[70:], y[70:])).forget(rows[:30], y[:30])
    assert first.noise_ == pytest.approx(whole.noise_, rel=1e-5)
    assert first.calibration_ == pytest.approx(whole.calibration_, rel=1e-5)
    assert first.loo_error_ == pytest.approx(whole.loo_error_, rel=1e-5)


def test_a_target_that_a_constant_model_excludes_has_no_density():
    X = np.arange(30.0)[:, np.newaxis]
    model = ExactRegressor(Gaussian(3.0)).fit(X, np.full(30, 0.1))
    inside, outside = model.log_density([[4.5], [4.5]], [0.1, 0.2])
    assert inside > 0
    assert outside == -np.inf or outside < -1e6
