"""Leave-one-out residuals in closed form against a fit without the row, at the same basis and noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mercer
from mercer.kernels import Gaussian, Matern
from tests.oracles import ordinary, rest_without
from tests.strategies import booleans, committee, problems

# Models are poor on purpose; a reduced rank approximation may have negative variances.
pytestmark = pytest.mark.filterwarnings(
    "ignore::mercer.exceptions.GeneralisationWarning", "ignore::mercer.exceptions.NegativeVarianceWarning"
)

NOISE = 0.3
KERNEL = Matern(1.5, nu=1.5)


def regressors(rows):
    basis = rows[:8] + 0.1
    still = {"fit_points": False, "fit_kernel": False, "fit_noise": False}
    labels = np.arange(len(rows)) % 4
    return {
        "committee": lambda **o: mercer.CommitteeRegressor(KERNEL, basis=basis, partition=labels, **o),
        "fitc": lambda **o: mercer.CommitteeRegressor(KERNEL, basis=basis, block_size=1, **o),
        "reduced rank": lambda **o: mercer.ReducedRankRegressor(KERNEL, basis=basis, **o),
        "pseudo fitc": lambda **o: mercer.PseudoInputRegressor(KERNEL, basis=basis, objective="fitc", **still, **o),
        "pseudo vfe": lambda **o: mercer.PseudoInputRegressor(KERNEL, basis=basis, objective="vfe", **still, **o),
    }


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 2))
    targets = np.column_stack([np.sin(2 * rows[:, 0]) + 0.2 * rng.normal(size=30) + 3.0, rows[:, 1] ** 2])
    weights = {
        "none": None,
        "whole": rng.integers(1, 4, size=30).astype(float),
        "relative": rng.uniform(0.1, 3, size=30),
    }
    return rows, targets, weights


def without(model, rows, targets, weights, i):
    """Residual of a row that is left out, or a copy of it, and variance of an ordinary observation there."""
    rest = rest_without(np.ones(len(rows)) if weights is None else weights, i)
    mean, covariance = model.fit(rows, targets, rest).predict(rows[i : i + 1], return_cov=True)
    noise = NOISE if weights is None else NOISE / ordinary(weights)
    return targets[i] - mean[0], covariance[0, 0, 0] / model.scale_[0] ** 2 + noise


@pytest.mark.parametrize("name", ["committee", "fitc", "reduced rank", "pseudo fitc", "pseudo vfe"])
@pytest.mark.parametrize("weighting", ["none", "whole", "relative"])
@pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
def test_rows_that_are_left_out_are_those_of_a_fit_without_them(data, name, weighting, intercept):
    rows, targets, weights = data[0], data[1], data[2][weighting]
    make = regressors(rows)[name]
    model = make(noise=NOISE, intercept=intercept).fit(rows, targets, weights)
    found = model._calibration()
    expected = [without(make(noise=NOISE, intercept=intercept), rows, targets, weights, i) for i in range(len(rows))]
    residuals, variances = map(np.array, zip(*expected, strict=True))
    assert name == "reduced rank" or np.all(variances > 0)
    variances = np.where(variances > 0, variances, np.inf)
    np.testing.assert_allclose(found.residuals, residuals, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.variances, variances, rtol=0, atol=1e-8)
    np.testing.assert_allclose(model.loo_error_**2, np.average(np.square(residuals), axis=0, weights=weights))


@given(problems(smallest=3, kernels=st.sampled_from([Gaussian(1.0), Matern(1.0, nu=0.5)])), booleans, st.data())
def test_a_committee_without_a_row(problem, single, data):
    i = data.draw(st.integers(0, len(problem.rows) - 1))
    labels = np.arange(len(problem.rows)) if single else problem.labels
    found = committee(problem, partition=labels).fit(*problem.data)._calibration()
    rest = rest_without(np.ones(len(problem.rows)) if problem.weights is None else problem.weights, i)
    mean = committee(problem, partition=labels).fit(problem.rows, problem.targets, rest).predict(problem.rows)[i]
    size = np.max(np.abs(problem.targets))
    np.testing.assert_allclose(found.values[i], np.atleast_1d(mean), rtol=0, atol=1e-8 * max(size, 1.0))


def test_a_sample_of_many_rows_is_of_whole_blocks_where_blocks_are_random():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-3, 3, size=(5000, 1))
    targets = np.sin(rows[:, 0]) + 0.1 * rng.normal(size=5000)
    for partition in ("random", "order"):
        model = mercer.CommitteeRegressor(Gaussian(), n_basis=20, block_size=100, partition=partition, random_state=0)
        model.fit(rows, targets)
        assert len(model._calibration().residuals) == 2048
        assert model.loo_error_ == pytest.approx(0.1, rel=0.1)
        assert model.calibration_ == pytest.approx(1.0, abs=0.1)


def test_batches_are_left_out_together(data):
    rows, targets, _ = data
    labels = np.arange(30) >= 12
    whole = mercer.CommitteeRegressor(KERNEL, basis=rows[:6], noise=NOISE, partition=labels).fit(rows, targets)
    parts = mercer.CommitteeRegressor(KERNEL, basis=rows[:6], noise=NOISE)
    parts.partial_fit(rows[:12], targets[:12]).partial_fit(rows[12:], targets[12:])
    expected, found = (np.sort(model._calibration().residuals, axis=0) for model in (whole, parts))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_rows_that_are_not_kept_are_left_out_by_fit_and_missed_afterwards(data):
    rows, targets, _ = data
    options = {"kernel": KERNEL, "basis": rows[:6], "random_state": 0}
    kept = mercer.CommitteeRegressor(**options).fit(rows[:20], targets[:20])
    model = mercer.CommitteeRegressor(**options, keep_rows=False).fit(rows[:20], targets[:20])
    np.testing.assert_array_equal(model.calibration_, kept.calibration_)
    model.partial_fit(rows[20:], targets[20:])
    with pytest.raises(AttributeError, match="calibration_ needs the training rows, which were not kept"):
        _ = model.calibration_


def test_without_noise_there_is_nothing_to_leave_out(data):
    rows, targets, _ = data
    model = mercer.CommitteeRegressor(Matern(1.0, nu=0.5), basis=rows[:6] + 0.1, noise=0.0).fit(rows, targets)
    with pytest.raises(ValueError, match="with a noise above zero"):
        model.predict_interval(rows)
