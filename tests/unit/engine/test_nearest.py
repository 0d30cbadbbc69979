import numpy as np
import pytest
from sklearn import config_context

from mercer.engine import ArrayRows, Threads, nearest_points, nearest_rows
from tests.doubles import GuardedRows


def draw(n=300, m=7, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(m, d))


def by_brute_force(rows, points, scale=1.0):
    differences = (rows[:, np.newaxis].astype(float) - points) / scale
    return np.argmin(np.sum(differences**2, axis=2), axis=1)


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("m", [1, 2, 7, 200])
@pytest.mark.parametrize("d", [1, 3, 20])
def test_the_nearest_point_is_that_of_brute_force(n_jobs, m, d):
    rows, points = draw(m=m, d=d)
    with config_context(working_memory=0.01):
        nearest = nearest_points(ArrayRows(rows), points, executor=Threads(n_jobs))
    assert nearest.dtype == np.intp
    np.testing.assert_array_equal(nearest, by_brute_force(rows, points))


@pytest.mark.parametrize("scale", [0.01, 5.0, np.array([1e-3, 1.0, 1e3]), np.array([4.0, 0.1, 0.1])], ids=str)
def test_distances_are_those_of_scaled_features(scale):
    rows, points = draw()
    nearest = nearest_points(ArrayRows(rows), points, scale, executor=Threads(1))
    np.testing.assert_array_equal(nearest, by_brute_force(rows, points, scale))


def test_scales_matter():
    rows, points = np.array([[0.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 2.0]])
    assert nearest_points(ArrayRows(rows), points, executor=Threads(1)) == [0]
    assert nearest_points(ArrayRows(rows), points, np.array([0.1, 1.0]), executor=Threads(1)) == [1]


def test_ties_go_to_the_first():
    points = np.array([[3.0], [1.0], [1.0], [3.0]])
    rows = np.array([[0.0], [1.0], [2.5], [3.0], [9.0]])
    np.testing.assert_array_equal(nearest_points(ArrayRows(rows), points, executor=Threads(1)), [1, 1, 0, 0, 0])


def test_every_point_is_nearest_to_itself():
    _, points = draw(m=150, d=5)
    nearest = nearest_points(ArrayRows(points), points, executor=Threads(2))
    np.testing.assert_array_equal(nearest, np.arange(150))


@pytest.mark.parametrize("offset", [1e6, -1e9])
def test_a_large_offset_does_not_matter(offset):
    # Distances are exact on this grid, and 0.25 apart at least where they differ; at 1e9, squares of what is not
    # centred would be known to 1e18·eps = 200 only.
    rng = np.random.default_rng(0)
    rows, points = rng.integers(-8, 8, size=(300, 2)) / 2.0, rng.choice(256, size=(7, 1), replace=False)
    points = np.column_stack([points // 16 - 8, points % 16 - 8]) / 2.0 + 0.25
    expected = by_brute_force(rows, points)
    distances = np.sort(np.sum((rows[:, np.newaxis] - points) ** 2, axis=2), axis=1)
    clear = distances[:, 1] > distances[:, 0]  # of ties rounding decides
    nearest = nearest_points(ArrayRows(rows + offset), points + offset, executor=Threads(1))
    np.testing.assert_array_equal(nearest[clear], expected[clear])
    assert np.mean(clear) > 0.5


@pytest.mark.parametrize("m", [2, 7, 31])
@pytest.mark.parametrize("constant", [-1e6, 0.1, 1e150])
def test_a_constant_column_does_not_matter(m, constant):
    rows, points = draw(m=m)
    wider = [np.column_stack([table, np.full(len(table), constant)]) for table in (rows, points)]
    nearest = nearest_points(ArrayRows(wider[0]), wider[1], executor=Threads(1))
    np.testing.assert_array_equal(nearest, by_brute_force(rows, points))


@pytest.mark.parametrize("factor", [1e150, 1e-150])
def test_units_do_not_matter(factor):
    rows, points = draw()
    nearest = nearest_points(ArrayRows(factor * rows), factor * points, executor=Threads(1))
    np.testing.assert_array_equal(nearest, by_brute_force(rows, points))


def test_float32_rows():
    rows, points = draw(n=2000)
    single = rows.astype(np.float32)
    nearest = nearest_points(ArrayRows(single), points, executor=Threads(1))
    np.testing.assert_array_equal(nearest, by_brute_force(single, points))


def test_no_rows():
    rows, points = draw(n=0)
    assert nearest_points(ArrayRows(rows), points, executor=Threads(2)).shape == (0,)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_row_is_read_once_within_the_working_memory(n_jobs):
    table, points = draw(n=3000, m=60)
    rows, budget = GuardedRows(table), 1 << 17
    with config_context(working_memory=budget / (1 << 20)):
        nearest_points(rows, points, executor=Threads(n_jobs))
    assert rows.rows_read == 3000
    assert rows.largest_read * 60 * 8 * n_jobs <= budget


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("scale", [1.0, np.array([1e-3, 1.0, 1e3])], ids=str)
def test_the_nearest_row_is_that_of_brute_force(n_jobs, scale):
    table, points = draw(n=500, m=11)
    rows = GuardedRows(table)
    with config_context(working_memory=0.02):
        nearest = nearest_rows(rows, points, scale, executor=Threads(n_jobs))
    assert rows.largest_read < 250
    np.testing.assert_array_equal(nearest, by_brute_force(points, table, scale))


def test_rows_of_weight_zero_are_nobodys_nearest():
    table, points = draw(n=200, m=11)
    first = nearest_rows(ArrayRows(table), points, executor=Threads(1))
    weights = np.ones(200)
    weights[first] = 0.0
    left = np.flatnonzero(weights)
    second = nearest_rows(ArrayRows(table), points, weights=weights, executor=Threads(2))
    np.testing.assert_array_equal(second, left[by_brute_force(points, table[left])])
