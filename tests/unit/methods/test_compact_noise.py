"""The noise of compact models, and rows that are left out, against dense algebra and refitting."""

import numpy as np
import pytest

from mercer import CompactRegressor
from mercer.kernels import Wendland
from mercer.methods import compact_noise
from mercer.solvers.ridge import LeftOut, RidgeProblem
from tests.oracles import worth

KERNEL = Wendland(0.4, amplitude=2.5)


def draw(n=120, seed=0, outputs=1):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(size=(n, 2))
    clean = np.column_stack([np.sin(6 * rows[:, 0]) + 3.0, 5 * np.cos(4 * rows[:, 1])])[:, :outputs]
    return rows, clean + 0.2 * rng.normal(size=clean.shape), rng.uniform(0.3, 3.0, size=n)


def dense_path(model, rows, targets, weights):
    n_targets, matrix = worth(weights), model.kernel_(rows)
    return RidgeProblem.path_of_covariance(matrix, targets, weights, n_targets=n_targets, intercept=model.intercept)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_likelihood_from_the_factor_is_that_from_eigenvalues(intercept, outputs):
    rows, targets, weights = draw(outputs=outputs)
    for noise in (1e-3, 0.1, 10.0):
        model = CompactRegressor(KERNEL, noise=noise, intercept=intercept, solver="cholesky")
        model.fit(rows, targets - 3 * (not intercept), weights)
        expected = dense_path(model, rows, targets - 3 * (not intercept), weights).log_likelihood(noise)
        expected -= outputs * intercept * np.log(np.sum(weights)) / 2  # of contrasts: beside a direction of unit length
        assert model.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_noise_is_the_likeliest_whether_some_rows_start_or_all_decide(weighted, monkeypatch):
    rows, targets, weights = draw(300)
    weights = weights if weighted else np.ones(300)
    model = CompactRegressor(KERNEL, solver="cholesky").fit(rows, targets, weights)
    path = dense_path(model, rows, targets, weights)
    expected = path.likeliest_noise(LeftOut.of_covariance(path, targets, weights, weights))
    assert model.noise_ == pytest.approx(expected, rel=1e-6)
    monkeypatch.setattr(compact_noise, "_DECIDING_ROWS", 80)
    refined = CompactRegressor(KERNEL, solver="cholesky").fit(rows, targets, weights)
    assert refined.noise_ == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("intercept", [False, True])
def test_residuals_left_out_are_those_of_refitting(intercept):
    rows, targets, weights = draw(40)
    targets = targets[:, 0] - 3 * (not intercept)
    options = {"noise": 0.05, "intercept": intercept, "solver": "cholesky"}
    found = CompactRegressor(KERNEL, **options).fit(rows, targets, weights)
    order, calibration = found._sparse_kernel.order, found._calibration()
    for place in range(0, 40, 5):
        out = order[place]
        kept = np.arange(40) != out
        rest = CompactRegressor(KERNEL, **options).fit(rows[kept], targets[kept], weights[kept])
        mean, std = rest.predict(rows[[out]], return_std=True)
        assert calibration.residuals[place, 0] == pytest.approx(targets[out] - mean[0], rel=1e-8)
        variance = (std[0] / rest.scale_) ** 2 + 0.05 / np.mean(weights)
        assert calibration.variances[place] == pytest.approx(variance, rel=1e-8)


def test_a_weight_of_two_is_the_row_twice():
    rows, targets, _ = draw(60)
    weights = np.random.default_rng(1).integers(1, 3, size=60)
    once = CompactRegressor(KERNEL).fit(rows, targets[:, 0], weights)
    twice = CompactRegressor(KERNEL).fit(np.repeat(rows, weights, axis=0), np.repeat(targets[:, 0], weights))
    assert once.noise_ == pytest.approx(twice.noise_, rel=1e-5)
    assert once.scale_ == pytest.approx(twice.scale_, rel=1e-5)
    assert once.loo_error_ == pytest.approx(twice.loo_error_, rel=1e-5)
    assert once.log_marginal_likelihood_ == pytest.approx(twice.log_marginal_likelihood_, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1e3, 1e200])
def test_units_of_the_targets_scale_the_spread_and_not_the_noise(scale):
    rows, targets, _ = draw()
    one, other = (CompactRegressor(KERNEL).fit(rows, factor * targets[:, 0]) for factor in (1.0, scale))
    assert other.noise_ == pytest.approx(one.noise_, rel=1e-6)
    expected = one.predict(rows[:5], return_std=True)[1]
    np.testing.assert_allclose(other.predict(rows[:5], return_std=True)[1] / scale, expected, rtol=1e-6)


def test_without_a_factor_neighbours_tell_what_is_left_out():
    rows, targets, _ = draw(1000)
    exact, local = (
        CompactRegressor(Wendland(0.15), noise=0.1, solver=s).fit(rows, targets) for s in ("cholesky", "cg")
    )
    ratio = local._calibration().residuals / exact._calibration().residuals
    assert np.min(ratio) > 0.999
    assert np.max(ratio) < 1.03
    with pytest.raises(ValueError, match="log_marginal_likelihood_ needs the factor"):
        _ = local.log_marginal_likelihood_


def test_rows_that_decide_are_neighbours():
    rows, targets, _ = draw(6000)
    kernel = CompactRegressor(Wendland(0.05), noise=0.1, solver="cg").fit(rows, targets)._sparse_kernel
    places = compact_noise.patches(kernel, 6000)
    assert 1000 < len(places) <= 1500
    points = rows[kernel.order]
    centre = int(compact_noise.sample_rows(np.arange(6000), 8)[0])
    distances = np.linalg.norm(points - points[centre], axis=1)
    assert set(np.argsort(distances)[:187]) <= set(places)
