import numpy as np
import pytest
from scipy.linalg import cholesky, solve_triangular

from mercer.engine import Features
from mercer.kernels import Gaussian


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(20, 3))


@pytest.fixture
def points():
    return np.random.default_rng(1).normal(size=(6, 3))


@pytest.fixture
def lower(points):
    return np.asfortranarray(cholesky(Gaussian()(points), lower=True))


def test_plain_features_are_kernel_values(rows, points):
    features = Features(Gaussian(), points)
    assert features.n_features == 6
    np.testing.assert_allclose(features.tile(rows), Gaussian()(rows, points), rtol=1e-14)


def test_whitened_features(rows, points, lower):
    expected = solve_triangular(lower, Gaussian()(rows, points).T, lower=True).T
    np.testing.assert_allclose(Features(Gaussian(), points, lower).tile(rows), expected, rtol=1e-10, atol=1e-12)


def test_whitened_features_reproduce_the_kernel_on_the_points(points, lower):
    white = Features(Gaussian(), points, lower).tile(points)
    np.testing.assert_allclose(white @ white.T, Gaussian()(points), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("more", [0, 1, 4])
def test_features_fill_out_and_a_small_factor_whitens_the_first(rows, points, lower, whitened, dtype, more):
    padded = np.vstack([points, np.zeros((more, 3))])
    features = Features(Gaussian(), padded, lower if whitened else None, dtype=dtype)
    out = np.full((20, 6 + more), np.nan)
    assert features.tile(rows, out) is out
    expected = Features(Gaussian(), points, lower if whitened else None).tile(rows)
    # Whitening magnifies the rounding of float32 by the root of the condition number of K_mm.
    magnified = np.linalg.norm(np.linalg.inv(lower), 2) if whitened else 1.0
    np.testing.assert_allclose(out[:, :6], expected, rtol=0, atol=1e-6 * magnified if dtype == np.float32 else 1e-12)
    np.testing.assert_allclose(out[:, 6:], Gaussian()(rows, padded[6:]), rtol=0, atol=1e-6)


def test_float32_features_are_computed_narrow_and_returned_wide(rows, points):
    tile = Features(Gaussian(), points, dtype=np.float32).tile(rows)
    assert tile.dtype == np.float64
    np.testing.assert_array_equal(tile, tile.astype(np.float32))
    np.testing.assert_array_equal(tile, Gaussian().bind(points, np.float32).tile(rows))


def test_the_points_are_bound_once(rows, points, monkeypatch):
    bound = []
    bind = Gaussian.bind
    monkeypatch.setattr(Gaussian, "bind", lambda self, *args: bound.append(1) or bind(self, *args))
    features = Features(Gaussian(), points)
    features.prepare()
    features.tile(rows)
    features.tile(rows[:3])
    assert bound == [1]


def test_one_row_and_one_point(rows, points):
    lower = np.asfortranarray([[2.0]])
    tile = Features(Gaussian(), points[:1], lower).tile(rows[:1])
    np.testing.assert_allclose(tile[:, 0], Gaussian()(rows[:1], points[:1])[:, 0] / 2.0, rtol=1e-14)
