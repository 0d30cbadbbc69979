"""The noise path and the choice of the noise by generalised cross-validation."""

import numpy as np
import pytest

from mercer import NystromRegressor
from mercer.kernels import Gaussian, Matern
from tests.oracles import assert_close_to_largest as assert_close
from tests.oracles import each_intercept, each_weighting


@each_intercept
@each_weighting
def test_noise_path_equals_single_fits(data, basis, intercept, weighted):
    rows, targets, _, weights = data
    both = np.column_stack([targets, targets**2])
    weights = weights if weighted else None
    noises = [1e-6, 1e-2, 1.0, 100.0]
    options = {"kernel": Gaussian(0.8), "basis": basis, "intercept": intercept}
    path = NystromRegressor(**options).fit(rows, both, weights).noise_path(noises)
    assert path.coefficients.shape == (4, 16, 2)
    for noise, coefficients, b in zip(noises, path.coefficients, path.intercepts, strict=True):
        single = NystromRegressor(**options, noise=noise).fit(rows, both, weights)
        assert_close(coefficients, single.coefficients_)
        np.testing.assert_allclose(b, single.intercept_, rtol=1e-8, atol=1e-12)


def test_noise_path_does_not_inherit_the_rounding_that_the_fitted_noise_allowed():
    # With noise=1000 plain sums are precise enough; a path down to 1e-6 needs whitened ones.
    rng = np.random.default_rng(0)
    basis, rows = rng.uniform(-2, 2, size=(60, 2)), rng.uniform(-2, 2, size=(2000, 2))
    targets = np.sin(2 * rows[:, 0]) + 0.1 * rng.normal(size=2000)
    path = (
        NystromRegressor(Gaussian(), basis=basis, noise=1000.0, intercept=False)
        .fit(rows, targets)
        .noise_path([1e-2, 1e-6])
    )
    for noise, coefficients in zip(path.noises, path.coefficients, strict=True):
        single = NystromRegressor(Gaussian(), basis=basis, noise=noise, intercept=False).fit(rows, targets)
        features = single.kernel_(rows, single.basis_)
        assert_close(features @ coefficients[:, 0], features @ single.coefficients_)


def smoother_gcv(kernel, basis, rows, targets, noise, *, intercept):
    """Scores from the smoother matrix S: n⁻¹|(I - S)y|²/(1 - tr S/n)², summed over the outputs."""
    features, penalty = kernel(rows, basis), noise * kernel(basis)
    if intercept:
        features, penalty = np.column_stack([features, np.ones(len(rows))]), np.pad(penalty, (0, 1))
    smoother = features @ np.linalg.solve(features.T @ features + penalty, features.T)
    n = len(rows)
    residuals = targets - smoother @ targets
    return np.sum(residuals**2) / n / (1 - np.trace(smoother) / n) ** 2, np.trace(smoother)


@each_intercept
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_gcv_equals_the_score_of_the_dense_smoother(data, basis, intercept, outputs, method):
    rows, targets, _, _ = data
    targets = np.column_stack([targets, targets**2])[:, :outputs]
    kernel, noises = Matern(1.0, nu=1.5), np.logspace(-4, 3, 8)
    model = getattr(NystromRegressor(kernel, basis=basis, intercept=intercept, noise=0.1), method)(rows, targets)
    path = model.noise_path(noises)
    for noise, score, freedom in zip(noises, path.gcv, path.degrees_of_freedom, strict=True):
        expected_score, expected_freedom = smoother_gcv(kernel, basis, rows, targets, noise, intercept=intercept)
        assert score == pytest.approx(expected_score, rel=1e-8)
        assert freedom == pytest.approx(expected_freedom, rel=1e-8)


@each_intercept
def test_gcv_chooses_the_noise_of_the_least_score(data, basis, intercept):
    rows, targets, _, _ = data
    kernel = Matern(1.0, nu=1.5)
    model = NystromRegressor(kernel, basis=basis, noise="gcv", intercept=intercept).fit(rows, targets)
    chosen, _ = smoother_gcv(kernel, basis, rows, targets, model.noise_, intercept=intercept)
    grid = [smoother_gcv(kernel, basis, rows, targets, g, intercept=intercept)[0] for g in np.logspace(-4, 3, 100)]
    assert chosen <= min(grid) * (1 + 2e-6)  # scores within a millionth are equal, and the largest noise wins
    # ... and the model is the one of that noise.
    single = NystromRegressor(kernel, basis=basis, noise=model.noise_, intercept=intercept).fit(rows, targets)
    assert_close(model.coefficients_, single.coefficients_)


@each_intercept
def test_gcv_of_whole_weights_is_that_of_repeated_rows(data, basis, intercept):
    rows, targets, _, _ = data
    counts = np.random.default_rng(1).integers(0, 4, size=200)
    repeated = np.repeat(np.arange(200), counts)
    options = {"kernel": Matern(1.0, nu=1.5), "basis": basis, "intercept": intercept}
    noises = np.logspace(-3, 2, 6)
    weighted = NystromRegressor(**options).fit(rows, targets, counts).noise_path(noises)
    expected = NystromRegressor(**options).fit(rows[repeated], targets[repeated]).noise_path(noises)
    np.testing.assert_allclose(weighted.gcv, expected.gcv, rtol=1e-8)


@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1e6, 1e150])
def test_gcv_does_not_depend_on_the_units_of_the_targets(data, basis, scale):
    rows, targets, _, _ = data
    options = {"kernel": Matern(1.0, nu=1.5), "basis": basis, "noise": "gcv"}
    expected = NystromRegressor(**options).fit(rows, targets).noise_
    # The minimum is flat: a noise that is off by 1e-4 has a score that is off by 1e-8.
    assert NystromRegressor(**options).fit(rows, scale * targets).noise_ == pytest.approx(expected, rel=1e-4)


def test_gcv_is_chosen_again_after_partial_fit(data, basis):
    rows, targets, _, _ = data
    model = NystromRegressor(Gaussian(0.8), basis=basis, noise="gcv", intercept=False).partial_fit(
        rows[:50], targets[:50]
    )
    first = model.noise_
    model.partial_fit(rows[50:], targets[50:])
    whole = NystromRegressor(Gaussian(0.8), basis=basis, noise="gcv", intercept=False).fit(rows, targets)
    assert model.noise_ != first
    assert model.noise_ == pytest.approx(whole.noise_, rel=1e-4)


@pytest.mark.parametrize("bad", [[-1.0], [np.nan], [np.inf], [[1.0, 2.0]]])
def test_noise_path_refuses_what_is_no_noise(data, bad):
    rows, targets, _, _ = data
    with pytest.raises(ValueError, match="noises must be"):
        NystromRegressor(n_basis=10, noise=0.1, intercept=False).fit(rows, targets).noise_path(bad)
