import numpy as np
import pytest
from sklearn.metrics.pairwise import linear_kernel

from mercer.kernels import Function, Gaussian, Linear, Matern, Polynomial, Precomputed, Product, Sum
from mercer.kernels.profiles import CUTOFF


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(20, 3))


def test_operators_build_sums_and_products():
    left, right = Gaussian(), Linear()
    total, product = left + right, left * right
    assert type(total) is Sum
    assert type(product) is Product
    assert total.left is product.left is left
    assert total.right is product.right is right


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(amplitude=2.0),
        Matern(amplitude=2.0),
        Linear(2.0),
        Polynomial(amplitude=2.0),
        Function(linear_kernel, amplitude=2.0),
        Gaussian() + Linear(),
        Gaussian() * Linear(),
        (Gaussian() + Linear()) * Matern(),
    ],
    ids=lambda kernel: repr(kernel).split(" at ")[0],
)
@pytest.mark.parametrize("factor", [3, 0.5, np.float64(1.5), np.int64(2)])
def test_a_number_scales_a_kernel(kernel, factor, rows):
    expected = factor * kernel(rows)
    before = kernel(rows)
    for scaled in (factor * kernel, kernel * factor):
        np.testing.assert_allclose(scaled(rows), expected, rtol=1e-14)
        np.testing.assert_allclose(scaled.diagonal(rows), factor * kernel.diagonal(rows), rtol=1e-14)
    np.testing.assert_array_equal(kernel(rows), before)


def test_a_product_is_scaled_though_one_side_is_a_function(rows):
    opaque = Function(lambda a, b: np.exp(-np.abs(a[:, :1] - b[:, 0])))
    for kernel in (opaque * Gaussian(), Gaussian() * opaque):
        np.testing.assert_allclose((2 * kernel)(rows), 2 * kernel(rows), rtol=1e-14)


@pytest.mark.parametrize("factor", [0, -1.0, np.nan, np.inf])
def test_a_factor_must_be_positive(factor):
    with pytest.raises(ValueError, match="factor of a kernel must be a finite number above zero"):
        factor * Gaussian()


@pytest.mark.parametrize("other", ["2", None, [1.0]])
def test_other_operands_are_refused(other):
    with pytest.raises(TypeError):
        Gaussian() + other
    with pytest.raises(TypeError):
        Gaussian() * other
    with pytest.raises(TypeError):
        other * Gaussian()


def test_a_precomputed_kernel_cannot_be_scaled_and_says_what_to_do():
    with pytest.raises(TypeError, match="multiply the kernel matrix itself"):
        2.0 * Precomputed()


def test_parameters_nest():
    kernel = Gaussian() + Linear() * Matern()
    kernel.set_params(left__length_scale=2.0, right__right__nu=2.5, right__left=Polynomial())
    assert kernel.left.length_scale == 2.0
    assert kernel.right.right.nu == 2.5
    assert type(kernel.right.left) is Polynomial


def test_both_sides_are_resolved_and_checked(rows):
    kernel = Gaussian("median") + Linear() * Matern("median")
    resolved = kernel.resolve(rows)
    assert resolved.left.length_scale == resolved.right.right.length_scale > 0
    assert kernel.left.length_scale == "median"
    for wrong in (Gaussian() + Linear(-1.0), Linear(-1.0) * Gaussian()):
        with pytest.raises(ValueError, match="amplitude"):
            wrong.check()
    with pytest.raises(ValueError, match="2 values, but the rows have 3 features"):
        (Linear() + Gaussian([1.0, 2.0])).check(n_features=3)


def test_equality_sees_the_order_and_the_depth():
    assert (Gaussian() + Linear()).equals(Gaussian() + Linear())
    assert not (Gaussian() + Linear()).equals(Linear() + Gaussian())
    assert not (Gaussian() + (Linear() + Matern())).equals((Gaussian() + Linear()) + Matern())
    assert not (Gaussian() + Linear()).equals(Gaussian() * Linear())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_product_flushes_values_below_the_cutoff(dtype):
    rows = np.linspace(0.0, 40.0, 400, dtype=dtype)[:, np.newaxis]
    values = (Gaussian() * Matern(nu=0.5))(rows)
    kept = values[values != 0]
    assert np.min(kept) >= CUTOFF[np.dtype(dtype)]
    assert np.min(kept) < 1e3 * CUTOFF[np.dtype(dtype)]  # nothing above the cutoff was lost


def test_a_product_keeps_small_negative_values():
    value = (Linear(1e-3) * Linear(1.0))(np.array([[1.0]]), np.array([[-2.0]]))
    np.testing.assert_allclose(value, [[4e-3]])
    value = (Linear(1e-3) * Gaussian())(np.array([[1.0]]), np.array([[-1.0]]))
    np.testing.assert_allclose(value, [[-1e-3 * np.exp(-2.0)]])
