"""Neighbours within a distance, against all distances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mercer.engine.neighbours import Grid


def all_squares(rows, points):
    return np.sum((rows[:, np.newaxis] - points[np.newaxis]) ** 2, axis=-1)


def assert_found(grid, found, rows, points):
    """Each neighbour once, in ascending places, with its distance."""
    squares = all_squares(rows, points)[:, grid.order]
    np.testing.assert_array_equal(found.counts, np.sum(squares < 1.0, axis=1))
    starts = np.concatenate([[0], np.cumsum(found.counts)])
    for i in range(len(rows)):
        index = found.index[starts[i] : starts[i + 1]]
        np.testing.assert_array_equal(index, np.flatnonzero(squares[i] < 1.0))
        np.testing.assert_allclose(found.squares[starts[i] : starts[i + 1]], squares[i, index], rtol=1e-12, atol=1e-15)
    assert found.n_looked_at >= np.sum(found.counts)


def assert_all_found(points, rows):
    grid = Grid(points)
    np.testing.assert_array_equal(np.sort(grid.order), np.arange(len(points)))
    assert_found(grid, grid.find(rows), rows, points)
    places = np.arange(len(points))
    assert_found(grid, grid.among(0, len(points)), points[grid.order], points)
    assert_found(grid, grid.at(places[::3]), points[grid.order[::3]], points)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_points=st.integers(1, 200),
    n_features=st.integers(1, 9),
    spread=st.sampled_from([0.0, 1e-3, 0.3, 1.0, 5.0, 100.0, 1e6]),
    kind=st.sampled_from(["normal", "uniform", "lattice", "clusters", "heavy tails", "low rank"]),
    offset=st.sampled_from([0.0, -7.0, 1e6]),
)
def test_all_neighbours_are_found(seed, n_points, n_features, spread, kind, offset):
    rng = np.random.default_rng(seed)
    shape = (n_points, n_features)
    points = {
        "normal": lambda: rng.normal(size=shape),
        "uniform": lambda: rng.uniform(size=shape),
        "lattice": lambda: rng.integers(0, 4, size=shape) / 2.0,
        "clusters": lambda: rng.integers(0, 3, size=shape) + 1e-3 * rng.normal(size=shape),
        "heavy tails": lambda: rng.standard_cauchy(size=shape),
        "low rank": lambda: rng.normal(size=(n_points, 1)) @ rng.normal(size=(1, n_features)),
    }[kind]()
    points = spread * points + offset
    rows = np.vstack([points[: n_points // 2], points[-1] + rng.normal(size=(5, n_features))])
    assert_all_found(points, rows)


@pytest.mark.parametrize("distance", [1.0, 1.0 - 1e-15, 1.0 + 1e-15, 0.5, 0.0])
def test_on_the_edge(distance):
    points = np.array([[0.0, 0.0, 0.0], [distance, 0.0, 0.0], [10.0, 0.0, 0.0], [20.0, 3.0, 1.0]])
    assert_all_found(points, points)


def test_rows_far_from_all_points_have_no_neighbours():
    grid = Grid(np.random.default_rng(0).normal(size=(100, 3)))
    found = grid.find(np.array([[1e150, 0.0, 0.0], [-1e150, -1e150, 1e150], [50.0, 0.0, 0.0]]))
    assert not np.any(found.counts)
    assert len(found.index) == 0


def test_equal_points_are_each_others_neighbours():
    assert_all_found(np.ones((300, 2)), np.ones((2, 2)))


def test_no_points():
    found = Grid(np.empty((0, 3))).find(np.zeros((2, 3)))
    np.testing.assert_array_equal(found.counts, [0, 0])


def test_few_strangers_are_looked_at():
    """The point of a grid: in a plane not twice as many as there are neighbours; in a subspace of twenty, too."""
    rng = np.random.default_rng(0)
    plane = rng.uniform(0, 40, size=(20_000, 2))
    for points in (plane, plane @ np.linalg.qr(rng.normal(size=(20, 2)))[0].T):
        found = Grid(points).among(0, len(points))
        assert found.n_looked_at < 2 * np.sum(found.counts)


def test_read_only_and_fortran_arrays():
    points = np.asfortranarray(np.random.default_rng(0).normal(size=(50, 4)))
    points.flags.writeable = False
    assert_all_found(points, points[:7])
