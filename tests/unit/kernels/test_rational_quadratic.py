"""The rational quadratic kernel against scikit-learn's, its limit, and the definition at all distances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as gp

from mercer import ExactRegressor
from mercer.kernels import Gaussian, Metric, RationalQuadratic
from tests.kernel_cases import TOLERANCE, Case

shapes = st.one_of(st.integers(1, 200).map(float), st.floats(0.05, 50.0))


@given(st.floats(0.2, 5.0), shapes, st.integers(0, 100))
def test_it_is_scikit_learns(length_scale, shape, seed):
    rng = np.random.default_rng(seed)
    rows, points = rng.normal(size=(9, 3)), rng.normal(size=(5, 3))
    expected = gp.RationalQuadratic(length_scale, shape)(rows, points)
    found = RationalQuadratic(length_scale, shape)(rows, points)
    np.testing.assert_allclose(found, expected, rtol=1e-11 * max(1.0, shape), atol=1e-14)


@pytest.mark.parametrize("shape", [1e6, 1e9, 1e12])
def test_its_limit_is_the_gaussian_kernel(shape):
    rows = np.random.default_rng(0).normal(size=(20, 3))
    np.testing.assert_allclose(RationalQuadratic(shape=shape)(rows), Gaussian()(rows), rtol=1e3 / shape + 1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [0.3, 1.0, 3.0, 20.0, 100.0, 1000.5])
@pytest.mark.parametrize("spread", [1.0, 30.0, 1e3, 1e4])
@pytest.mark.parametrize("apart", [1.0, 1e2, 1e4])
def test_values_of_all_sizes_are_precise_whatever_the_norms(dtype, shape, spread, apart):
    # Unlike exp(-r²/2) it is far from zero at distances of thousands, beside norms that cancel.
    rng = np.random.default_rng(0)
    rows, points = spread * rng.normal(size=(40, 3)), spread * rng.normal(size=(20, 3))
    rows[::2] += apart
    points[::2] += apart
    rows, points = rows.astype(dtype), points.astype(dtype)
    kernel = RationalQuadratic(shape=shape)
    expected = Case(kernel).define(rows.astype(np.float64), points.astype(np.float64))
    assert np.max(np.abs(kernel(rows, points) - expected)) <= TOLERANCE[dtype]


def test_a_metric_and_its_gradients():
    rng = np.random.default_rng(0)
    rows, points, weights = rng.normal(size=(9, 3)), rng.normal(size=(5, 3)), rng.normal(size=(9, 5))
    map_ = rng.normal(size=(3, 2))
    kernel, plain = RationalQuadratic(Metric(map_), shape=1.7), RationalQuadratic(1.0, shape=1.7)
    np.testing.assert_allclose(kernel(rows, points), plain(rows @ map_, points @ map_), rtol=1e-12)
    by_points, by_parameters = kernel.gradients(rows, points, weights)
    mapped, expected = plain.gradients(rows @ map_, points @ map_, weights)
    np.testing.assert_allclose(by_points, mapped @ map_.T, atol=1e-12)
    assert by_parameters["shape"] == pytest.approx(float(expected["shape"]), rel=1e-10)


@pytest.mark.parametrize("shape", [0.0, -1.0, np.inf, np.nan, "a", None])
def test_a_bad_shape_is_refused(shape):
    with pytest.raises(ValueError, match="shape must be a finite number above zero"):
        RationalQuadratic(shape=shape)(np.ones((2, 2)))


def test_a_fit_is_scikit_learns():
    X = np.random.default_rng(0).uniform(0, 5, size=(40, 2))
    y = np.sin(X[:, 0]) + X[:, 1]
    model = ExactRegressor(RationalQuadratic(0.8, shape=0.6), noise=0.1, intercept=False).fit(X, y)
    K = gp.RationalQuadratic(0.8, 0.6)
    np.testing.assert_allclose(model.predict(X + 0.1), K(X + 0.1, X) @ np.linalg.solve(K(X) + 0.1 * np.eye(40), y))
