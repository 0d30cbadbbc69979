import numpy as np
import pytest
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel

from mercer.kernels import Linear, Polynomial


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(20, 3))


def test_linear_is_scikit_learns(rows):
    np.testing.assert_allclose(Linear(2.5)(rows), 2.5 * linear_kernel(rows), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_polynomial_is_scikit_learns(rows, degree):
    expected = 2.5 * polynomial_kernel(rows, degree=degree, gamma=0.3, coef0=2.0)
    np.testing.assert_allclose(Polynomial(degree, 0.3, 2.0, 2.5)(rows), expected, rtol=1e-11, atol=1e-12)


def test_a_polynomial_of_degree_one_without_offset_is_linear(rows):
    np.testing.assert_allclose(Polynomial(1, scale=1.0, offset=0.0)(rows), Linear()(rows), rtol=1e-14)


def test_negative_inner_products_keep_their_sign_in_odd_powers():
    kernel = Polynomial(3, offset=0.0)
    for dtype in (np.float64, np.float32):
        np.testing.assert_array_equal(kernel(np.array([[2.0]], dtype), np.array([[-1.0]], dtype)), [[-8.0]])


def test_an_offset_of_zero_has_no_logarithm():
    assert Polynomial(offset=0.0).get_log_parameters().keys() == {"scale", "amplitude"}
    assert Polynomial(offset=2.0).get_log_parameters().keys() == {"scale", "offset", "amplitude"}
    assert Polynomial(offset=0.0).with_log_parameters({"scale": np.array(1.0)}).offset == 0.0


@pytest.mark.parametrize("kernel", [Linear(0.0), Linear(-1.0), Linear(np.nan), Polynomial(amplitude=0.0)])
def test_an_amplitude_must_be_positive(kernel, rows):
    with pytest.raises(ValueError, match="amplitude must be a finite number above zero"):
        kernel(rows)


@pytest.mark.parametrize("degree", [0, -1, 2.5, True, np.nan, np.inf, "cubic", None])
def test_a_degree_must_be_a_whole_number(degree, rows):
    with pytest.raises(ValueError, match="degree must be a whole number of at least 1"):
        Polynomial(degree)(rows)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, None])
def test_a_scale_must_be_positive(scale, rows):
    with pytest.raises(ValueError, match="scale must be a finite number above zero"):
        Polynomial(scale=scale)(rows)


@pytest.mark.parametrize("offset", [-1.0, np.nan, np.inf, "one", None])
def test_an_offset_must_not_be_negative(offset, rows):
    with pytest.raises(ValueError, match="offset must be a finite number of at least 0"):
        Polynomial(offset=offset)(rows)
