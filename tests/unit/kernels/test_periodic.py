"""The periodic kernel against scikit-learn's, and its gradients against complex steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import ExpSineSquared

from mercer import ExactRegressor
from mercer.kernels import Periodic


@given(st.floats(0.1, 10.0), st.floats(0.3, 3.0), st.integers(0, 100))
def test_for_one_feature_it_is_scikit_learns(period, length_scale, seed):
    rng = np.random.default_rng(seed)
    rows, points = rng.normal(size=(9, 1)), rng.normal(size=(5, 1))
    expected = ExpSineSquared(length_scale, period)(rows, points)
    np.testing.assert_allclose(Periodic(period, length_scale)(rows, points), expected, rtol=1e-10, atol=1e-13)


@given(st.integers(1, 5), st.integers(0, 100))
def test_it_is_a_product_over_the_features_and_definite_in_any_dimension(d, seed):
    rng = np.random.default_rng(seed)
    rows, period, scale = 3 * rng.normal(size=(30, d)), rng.uniform(0.5, 3, d), rng.uniform(0.5, 3, d)
    K = Periodic(period, scale)(rows)
    factors = [ExpSineSquared(scale[j], period[j])(rows[:, [j]]) for j in range(d)]
    np.testing.assert_allclose(K, np.prod(factors, axis=0), rtol=1e-10, atol=1e-13)
    assert np.min(np.linalg.eigvalsh(K)) > -1e-12


def test_scikit_learns_of_several_features_is_not_definite():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    assert np.min(np.linalg.eigvalsh(ExpSineSquared(1.0, 1.0)(rows))) < -1e-3


def test_periods_cost_no_digits():
    rows = np.linspace(0, 1, 9)[:, np.newaxis]
    kernel = Periodic(0.25, 0.8)  # a power of two: rows that are 2^40 periods away are represented exactly
    far = np.round(rows * 2**10) / 2**10 + 2.0**38
    np.testing.assert_allclose(kernel(far, far - 2.0**38), kernel(far - 2.0**38), rtol=1e-13)


def by_complex_steps(rows, points, weights, period, scale, amplitude):
    """Gradients by the points and by log period, log scale, log amplitude, without truncation or cancellation."""

    def total(z, p, s, a):
        angles = np.pi * (rows[:, np.newaxis] - z[np.newaxis]) / p
        return np.sum(weights * a * np.exp(-2 * np.sum((np.sin(angles) / s) ** 2, axis=-1)))

    h, d = 1e-30, rows.shape[1]
    grown = [np.exp(1j * h * np.eye(d)[j]) for j in range(d)]
    by_points = np.empty_like(points)
    for i, j in np.ndindex(points.shape):
        moved = points.astype(complex)
        moved[i, j] += 1j * h
        by_points[i, j] = total(moved, period, scale, amplitude).imag / h
    return by_points, {
        "period": np.array([total(points, period * g, scale, amplitude).imag / h for g in grown]),
        "length_scale": np.array([total(points, period, scale * g, amplitude).imag / h for g in grown]),
        "amplitude": total(points, period, scale, amplitude * np.exp(1j * h)).imag / h,
    }


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_gradients(shift):
    rng = np.random.default_rng(0)
    rows, points, weights = rng.normal(size=(11, 3)), rng.normal(size=(5, 3)), rng.normal(size=(11, 5))
    period, scale = np.array([0.3, 1.0, 2.5]), np.array([0.4, 1.0, 2.0])
    by_points, by_parameters = by_complex_steps(rows, points, weights, period, scale, 1.7)
    found = Periodic(period, scale, 1.7).gradients(rows + shift, points + shift, weights)
    tolerance = 1e-11 * max(1.0, shift)  # the shifted rows are rounded
    np.testing.assert_allclose(found[0], by_points, rtol=0, atol=tolerance * np.max(np.abs(by_points)))
    for name, expected in by_parameters.items():
        np.testing.assert_allclose(found[1][name], expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


@pytest.mark.parametrize("name", ["period", "length_scale"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, "median", [], [[1.0]], [1.0, 0.0], None])
def test_bad_parameters_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"{name} must be finite and above zero"):
        Periodic(**{name: value})(np.ones((2, 2)))
    with pytest.raises(ValueError, match=f"{name} has 3 values, but the rows have 2 features"):
        Periodic(**{name: [1.0, 2.0, 3.0]})(np.ones((2, 2)))


def test_a_season_is_continued():
    x = np.linspace(0, 30, 200)[:, np.newaxis]
    season = np.sign(np.sin(x[:, 0])) + np.cos(2 * x[:, 0])
    model = ExactRegressor(Periodic(2 * np.pi, 0.5), noise=1e-3).fit(x, season)
    far = x + 100 * 2 * np.pi
    np.testing.assert_allclose(model.predict(far), model.predict(x), atol=1e-8)
