from functools import partial

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics.pairwise import laplacian_kernel

from mercer.kernels import Function, Gaussian, Linear


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(150, 3))


def test_kernels_of_scikit_learns_gaussian_processes_are_functions(rows):
    np.testing.assert_allclose(Function(RBF(0.7))(rows), Gaussian(0.7)(rows), rtol=1e-11)


def test_the_diagonal_is_read_block_by_block(rows):
    widths = []

    def function(a, b):
        widths.append(max(len(a), len(b)))
        return (a @ b.T) ** 2

    diagonal = Function(function).diagonal(rows)
    np.testing.assert_allclose(diagonal, np.sum(rows**2, axis=1) ** 2, rtol=1e-13)
    assert max(widths) < len(rows)
    assert Function(function).diagonal(rows[:0]).shape == (0,)


def test_the_function_gets_arrays_of_the_tiles_dtype(rows):
    seen = set()

    def function(a, b):
        seen.add((a.dtype, b.dtype))
        return a @ b.T

    Function(function).bind(rows, np.float32).tile(rows)
    assert seen == {(np.dtype(np.float32), np.dtype(np.float32))}


def test_a_wrong_shape_is_refused(rows):
    with pytest.raises(ValueError, match=r"must return an array of shape \(150, 150\), got \(150, 3\)"):
        Function(lambda a, _b: a)(rows)


def test_a_scalar_is_refused(rows):
    with pytest.raises(ValueError, match="must return an array of shape"):
        Function(lambda _a, _b: 1.0)(rows)


@pytest.mark.parametrize("function", [None, 3, "gaussian"])
def test_what_cannot_be_called_is_refused(function, rows):
    with pytest.raises(TypeError, match="function must be callable"):
        Function(function)(rows)


def test_errors_of_the_function_come_through(rows):
    def function(_a, _b):
        raise KeyError("no such kernel")

    with pytest.raises(KeyError, match="no such kernel"):
        Function(function)(rows)


def test_functions_add_and_multiply_with_other_kernels(rows):
    kernel = Function(laplacian_kernel)
    np.testing.assert_allclose(
        (kernel + Linear())(rows), laplacian_kernel(rows) + rows @ rows.T, rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose((kernel * Gaussian())(rows), laplacian_kernel(rows) * Gaussian()(rows), rtol=1e-12)


def test_there_are_no_log_parameters():
    assert Function(laplacian_kernel).get_log_parameters() == {}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_amplitude_multiplies_what_the_function_returns(rows, dtype):
    rows = rows.astype(dtype)
    values = Function(laplacian_kernel, amplitude=2.5)(rows)
    assert values.dtype == dtype
    np.testing.assert_allclose(values, 2.5 * laplacian_kernel(rows), rtol=1e-6)
    np.testing.assert_allclose(Function(laplacian_kernel, amplitude=2.5).diagonal(rows), 2.5)


@pytest.mark.parametrize("amplitude", [0.0, -1.0, np.nan, "large"])
def test_an_amplitude_must_be_positive(rows, amplitude):
    with pytest.raises(ValueError, match="amplitude must be a finite number above zero"):
        Function(laplacian_kernel, amplitude=amplitude)(rows)


def test_resolving_shares_the_function(rows):
    function = RBF(0.7)
    assert Function(function).resolve(rows).function is function


def test_functions_that_are_copies_of_each_other_are_equal():
    assert Function(RBF(0.7)).equals(Function(RBF(0.7)))
    assert not Function(RBF(0.7)).equals(Function(RBF(0.8)))
    assert Function(partial(laplacian_kernel, gamma=0.5)).equals(Function(partial(laplacian_kernel, gamma=0.5)))
    assert not Function(partial(laplacian_kernel, gamma=0.5)).equals(Function(partial(laplacian_kernel, gamma=0.6)))
    assert not Function(lambda a, b: a @ b.T).equals(Function(lambda a, b: a @ b.T))
