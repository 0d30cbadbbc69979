"""What is done with leave-one-out residuals, on residuals whose law is known."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from mercer.model import Calibration


def made(extra, *, n=2000, p=1, seed=0, weights=None):
    """Normal residuals with variances σ_o²(v + extra/ω)."""
    rng = np.random.default_rng(seed)
    variances = rng.gamma(0.5, size=n) + 1e-3
    weights = np.ones(n) if weights is None else weights(rng, n)
    spread = np.sqrt(variances + extra / np.minimum(weights, 1.0))[:, np.newaxis] * np.arange(1, p + 1)
    return Calibration(rng.normal(size=(n, p)), spread * rng.normal(size=(n, p)), variances, weights)


@pytest.mark.parametrize("extra", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("p", [1, 3])
def test_noise_that_the_model_does_not_know_is_found(extra, p):
    found = made(extra, p=p).extra_noise()
    assert found == pytest.approx(extra, rel=0.25, abs=1e-3)


def test_the_noise_is_the_likeliest():
    calibration = made(0.3, p=2, weights=lambda rng, n: rng.uniform(0.2, 1.0, n))

    def misfit(parameters):
        extra, *scales = np.exp(parameters)
        variances = calibration.variances + extra / calibration.weights
        logarithms = norm.logpdf(calibration.residuals, scale=np.sqrt(variances)[:, np.newaxis] * scales)
        return -np.sum(calibration.weights[:, np.newaxis] * logarithms)

    best = minimize(misfit, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-7, "maxiter": 5000})
    assert calibration.extra_noise() == pytest.approx(np.exp(best.x[0]), rel=1e-3)
    scales = np.exp(best.x[1:])
    np.testing.assert_allclose(calibration.with_noise(np.exp(best.x[0])).mean_square(scales), 1.0, rtol=1e-4)


@pytest.mark.parametrize("factor", [1e-150, 1e150])
def test_units_do_not_matter(factor):
    calibration = made(0.3)
    scaled = Calibration(
        factor * calibration.targets, factor * calibration.residuals, calibration.variances, calibration.weights
    )
    assert scaled.extra_noise() == pytest.approx(calibration.extra_noise(), rel=1e-6)


def test_residuals_that_vanish_ask_for_no_noise():
    calibration = made(0.0, p=2)
    nothing = Calibration(calibration.targets, 0.0 * calibration.residuals, calibration.variances, calibration.weights)
    assert nothing.extra_noise() == 0.0
    assert Calibration(np.zeros((0, 1)), np.zeros((0, 1)), np.zeros(0), np.zeros(0)).extra_noise() == 0.0
