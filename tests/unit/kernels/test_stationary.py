import numpy as np
import pytest
from sklearn.gaussian_process import kernels as reference

from mercer.kernels import Gaussian, Matern, stationary
from mercer.kernels.median_distance import median_distance
from mercer.kernels.stationary import Stationary

EVERY = [Gaussian, lambda *a, **k: Matern(*a, nu=0.5, **k), Matern, lambda *a, **k: Matern(*a, nu=2.5, **k)]
every_stationary_kernel = pytest.mark.parametrize("make", EVERY, ids=["gaussian", "matern12", "matern32", "matern52"])


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(20, 3))


@pytest.mark.parametrize("length_scale", [0.7, np.array([0.5, 1.0, 2.0])])
def test_gaussian_is_scikit_learns(rows, length_scale):
    np.testing.assert_allclose(Gaussian(length_scale)(rows), reference.RBF(length_scale)(rows), rtol=1e-12)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("length_scale", [0.7, np.array([0.5, 1.0, 2.0])])
def test_matern_is_scikit_learns(rows, nu, length_scale):
    expected = reference.Matern(length_scale, nu=nu)(rows)
    np.testing.assert_allclose(Matern(length_scale, nu=nu)(rows), expected, rtol=1e-11)


@every_stationary_kernel
def test_the_value_at_distance_zero_is_exactly_the_amplitude(make, rows):
    # Equal rows come out of the folded product at a distance of rounding, which a kink at zero would magnify.
    diagonal = np.diagonal(make(0.1, amplitude=2.5)(rows + 1e3))
    smooth = make is Gaussian
    np.testing.assert_allclose(diagonal, 2.5, rtol=1e-8 if smooth else 1e-15)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@every_stationary_kernel
def test_nearly_equal_rows(make, dtype):
    """The error stays that of the exponent, 1e-10 (1e-4), even where a kink takes its root."""
    base = np.random.default_rng(0).normal(size=(8, 4)).astype(dtype)
    steps = np.geomspace(np.finfo(dtype).eps, 1e-1, 30).astype(dtype)
    rows = (base[:, np.newaxis] + steps[:, np.newaxis]).reshape(-1, 4)
    expected = make()(
        np.zeros((1, 1)), np.linalg.norm(rows[:, np.newaxis].astype(float) - base, axis=-1).reshape(-1, 1)
    )
    tolerance = {np.float64: 1e-10, np.float32: 1e-4}[dtype]
    np.testing.assert_allclose(make()(rows, base).ravel(), expected.ravel(), rtol=0, atol=tolerance)


@every_stationary_kernel
def test_scaling_rows_and_length_scale_together_changes_nothing(make, rows):
    for factor in (1e-200, 1e-3, 1e3, 1e200):
        np.testing.assert_allclose(make(2.0 * factor)(factor * rows), make(2.0)(rows), rtol=1e-12)


@every_stationary_kernel
def test_a_number_per_feature_equals_scaled_features(make, rows):
    scales = np.array([0.3, 1.0, 4.0])
    np.testing.assert_allclose(make(scales)(rows), make()(rows / scales), rtol=1e-12)


@every_stationary_kernel
def test_the_gradient_at_a_maximum_is_zero(make):
    points = np.array([[1.0, 2.0]])
    np.testing.assert_array_equal(make().points_gradient(points, points, np.ones((1, 1))), 0)


@every_stationary_kernel
@pytest.mark.parametrize("amplitude", [0, -1.0, np.nan, np.inf, "large", None])
def test_an_amplitude_must_be_positive(make, amplitude, rows):
    kernel = make(amplitude=amplitude)
    with pytest.raises(ValueError, match="amplitude must be a finite number above zero"):
        kernel.check()
    with pytest.raises(ValueError, match="amplitude must be a finite number above zero"):
        kernel(rows)


@every_stationary_kernel
@pytest.mark.parametrize("length_scale", [0, -1.0, np.nan, np.inf, [1.0, 0.0, 1.0], [], np.ones((2, 2)), "mean"])
def test_a_length_scale_must_be_positive(make, length_scale):
    with pytest.raises(ValueError, match="length_scale must be"):
        make(length_scale).check()


@every_stationary_kernel
def test_length_scales_must_fit_the_features(make, rows):
    kernel = make([1.0, 2.0])
    kernel.check()
    with pytest.raises(ValueError, match="length_scale has 2 values, but the rows have 3 features"):
        kernel.check(n_features=3)
    with pytest.raises(ValueError, match="length_scale has 2 values, but the rows have 3 features"):
        kernel(rows)


@pytest.mark.parametrize("nu", [0.0, 1.0, np.inf, None, "3/2"])
def test_matern_smoothness_is_one_of_three(nu, rows):
    with pytest.raises(ValueError, match=r"nu must be 0\.5, 1\.5 or 2\.5"):
        Matern(nu=nu)(rows)


@every_stationary_kernel
def test_median_is_resolved_on_the_sample(make, rows):
    kernel = make("median")
    resolved = kernel.resolve(rows)
    assert kernel.length_scale == "median"
    assert resolved.length_scale == median_distance(rows)
    weights = np.arange(20.0)
    assert kernel.resolve(rows, weights).length_scale == median_distance(rows, weights)


@every_stationary_kernel
def test_an_unresolved_median_says_what_to_do(make, rows):
    with pytest.raises(ValueError, match="resolve"):
        make("median")(rows)


@every_stationary_kernel
def test_the_product_and_the_differences_agree(make, rows, monkeypatch):
    expected = make()(rows)
    monkeypatch.setattr(stationary, "FAR", 0.0)  # every row counts as far
    np.testing.assert_allclose(make()(rows), expected, rtol=1e-11)


def test_a_small_amplitude_brings_no_subnormal_values():
    rows = np.linspace(0.0, 10.0, 200, dtype=np.float32)[:, np.newaxis]
    for kernel in (Gaussian(amplitude=1e-25), Matern(amplitude=1e-25)):
        values = kernel(rows)
        assert np.all((values == 0) | (values >= np.finfo(np.float32).tiny))


def test_stationary_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Stationary()


@every_stationary_kernel
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(make, rows, value):
    rows[3, 1] = value
    with pytest.raises(ValueError, match="finite numbers"):
        make()(rows)
    with pytest.raises(ValueError, match="finite numbers"):
        make()(rows[:2], rows)
