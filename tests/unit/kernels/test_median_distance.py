import numpy as np
import pytest
from scipy.spatial.distance import pdist

from mercer.kernels.median_distance import median_distance


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(30, 3))


def test_it_is_the_median_of_the_pairwise_distances(rows):
    distances = np.sort(pdist(rows))  # 435 of them, so the median is one of them
    assert median_distance(rows) == pytest.approx(distances[217], rel=1e-14)


def test_an_even_number_of_distances_takes_one_of_the_middle_two():
    rows = np.array([[0.0], [1.0], [3.0], [7.0]])  # distances 1 2 3 4 6 7
    assert median_distance(rows) in (3.0, 4.0)


def test_equal_rows_do_not_count():
    rows = np.array([[0.0], [1.0], [3.0]])
    repeated = np.repeat(rows, 50, axis=0)
    assert median_distance(repeated) == median_distance(rows) == 2.0


def test_weight_two_is_the_row_twice(rows):
    weights = np.random.default_rng(1).integers(0, 4, size=len(rows))
    repeated = np.repeat(rows, weights, axis=0)
    assert median_distance(rows, weights.astype(float)) == pytest.approx(median_distance(repeated), rel=1e-14)


@pytest.mark.parametrize("rows", [np.zeros((1, 2)), np.ones((5, 2)), np.zeros((2, 0))])
def test_without_two_distinct_rows_it_is_one(rows):
    assert median_distance(rows) == 1.0


def test_without_two_distinct_weighted_rows_it_is_one(rows):
    weights = np.zeros(len(rows))
    weights[0] = 1.0
    assert median_distance(rows, weights) == 1.0


@pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e-3, 1e3, 1e200, 1e300])
def test_it_scales_with_the_rows(rows, factor):
    assert median_distance(factor * rows) == pytest.approx(factor * median_distance(rows), rel=1e-12, abs=0)


def test_float32_and_integer_rows(rows):
    assert median_distance(rows.astype(np.float32)) == pytest.approx(median_distance(rows), rel=1e-6)
    assert median_distance(np.array([[0], [2], [6]])) == 4.0
