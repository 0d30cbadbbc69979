import numpy as np
import pytest

from mercer.kernels import Gaussian, Precomputed


@pytest.fixture
def matrix():
    return np.random.default_rng(0).normal(size=(6, 9))


@pytest.mark.parametrize("columns", [[0], [8, 0, 3], [2, 2]])
@pytest.mark.parametrize("dtype", [int, np.float64])
def test_points_are_column_numbers(matrix, columns, dtype):
    points = np.array(columns, dtype=dtype)[:, np.newaxis]
    np.testing.assert_array_equal(Precomputed()(matrix, points), matrix[:, columns])


def test_values_of_another_kernel_go_through():
    rows = np.random.default_rng(0).normal(size=(20, 3))
    matrix = Gaussian()(rows)
    everything = np.arange(20.0)[:, np.newaxis]
    np.testing.assert_array_equal(Precomputed()(matrix, everything), matrix)


def test_a_column_that_is_not_there_is_an_error(matrix):
    with pytest.raises(IndexError):
        Precomputed()(matrix, [[9]])


def test_the_diagonal_is_refused_with_the_remedy(matrix):
    with pytest.raises(ValueError, match="pass a kernel and the rows themselves"):
        Precomputed().diagonal(matrix)


def test_gradients_are_refused_with_the_remedy(matrix):
    weights = np.ones((6, 1))
    with pytest.raises(NotImplementedError, match="pass a kernel and the rows themselves"):
        Precomputed().points_gradient(matrix, np.zeros((1, 1)), weights)
    with pytest.raises(NotImplementedError, match="pass a kernel and the rows themselves"):
        Precomputed().parameter_gradient(matrix, np.zeros((1, 1)), weights)
