"""Neighbours within a distance, against all distances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mercer.engine import neighbours
from mercer.engine.neighbours import Grid
from tests.strategies import examples


def all_squares(rows, points):
    return np.sum((rows[:, np.newaxis] - points[np.newaxis]) ** 2, axis=-1)


def assert_found(grid, found, rows, points, *, upper=False):
    """Each neighbour once, in ascending places, with its distance; with upper only those from the row's place on."""
    squares = all_squares(rows, points)[:, grid.order]
    squares = np.where(np.tri(len(rows), k=-1), 9.0, squares) if upper else squares
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
    assert_grid_finds(grid, points, rows)


def assert_grid_finds(grid, points, rows):
    assert_found(grid, grid.find(rows), rows, points)
    places = np.arange(len(points))
    assert_found(grid, grid.among(0, len(points)), points[grid.order], points, upper=True)
    assert_found(grid, grid.at(places[::3]), points[grid.order[::3]], points)


@settings(max_examples=examples(80), deadline=None)
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
    points = spread * draw(rng, (n_points, n_features), kind) + offset
    rows = np.vstack([points[: n_points // 2], points[-1] + rng.normal(size=(5, n_features))])
    assert_all_found(points, rows)


def draw(rng, shape, kind):
    n_points, n_features = shape
    return {
        "normal": lambda: rng.normal(size=shape),
        "uniform": lambda: rng.uniform(size=shape),
        "lattice": lambda: rng.integers(0, 4, size=shape) / 2.0,
        "clusters": lambda: rng.integers(0, 3, size=shape) + 1e-3 * rng.normal(size=shape),
        "heavy tails": lambda: rng.standard_cauchy(size=shape),
        "low rank": lambda: rng.normal(size=(n_points, 1)) @ rng.normal(size=(1, n_features)),
    }[kind]()


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


def test_few_strangers_are_looked_at():
    """The point of a grid: in a plane not twice as many as there are neighbours; in a subspace of twenty, too."""
    rng = np.random.default_rng(0)
    plane = rng.uniform(0, 40, size=(20_000, 2))
    for points in (plane, plane @ np.linalg.qr(rng.normal(size=(20, 2)))[0].T):
        grid = Grid(points)
        found = grid.among(0, len(points))
        assert grid.all_pairs is None
        assert found.n_looked_at < 2.2 * np.sum(found.counts)


def test_read_only_and_fortran_arrays():
    points = np.asfortranarray(np.random.default_rng(0).normal(size=(50, 4)))
    points.flags.writeable = False
    assert_all_found(points, points[:7])


def test_a_part_of_the_places_has_its_own_rows_of_the_triangle():
    points = np.random.default_rng(0).uniform(0, 6, size=(300, 2))
    grid = Grid(points)
    whole, parts = grid.among(0, 300), [grid.among(0, 120), grid.among(120, 250), grid.among(250, 300)]
    for name in ("counts", "index", "squares"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))


# ------------------------------------------------------------------------------------ where cells do not tell apart


def tiled(points, monkeypatch):
    monkeypatch.setattr(neighbours, "_MANY", 1)
    monkeypatch.setattr(neighbours, "_CROWDED", -1.0)
    return Grid(points)


@pytest.mark.parametrize("kind", ["normal", "uniform", "lattice", "clusters", "low rank"])
@pytest.mark.parametrize(("n_points", "n_features"), [(1, 1), (2, 3), (150, 1), (150, 4), (300, 12), (1100, 5)])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_all_distances_find_the_same(kind, n_points, n_features, offset, monkeypatch):
    rng = np.random.default_rng(n_points)
    # A power of two: whether lattice points are on the edge is then no matter of rounding.
    points = draw(rng, (n_points, n_features), kind) / 2.0 ** (n_features > 3) + offset
    grid = tiled(points, monkeypatch)
    assert grid.all_pairs is not None
    far = points[-1] + np.array([[3.0], [1e5], [1e150], [-1e150]])
    rows = np.vstack([points[: min(n_points, 80)], points[-1] + 0.1 * rng.normal(size=(5, n_features)), far])
    assert_grid_finds(grid, points, rows)
    assert_found(grid, grid.find(rows[:0]), rows[:0], points)


def test_all_distances_and_cells_agree_to_the_bit(monkeypatch):
    points = np.random.default_rng(0).normal(size=(1000, 6))
    cells, everything = Grid(points), tiled(points, monkeypatch)
    assert cells.all_pairs is None is not everything.all_pairs
    for one, other in (
        (cells.among(0, 1000), everything.among(0, 1000)),
        (cells.find(points), everything.find(points)),
    ):
        np.testing.assert_array_equal(one.index, other.index)
        np.testing.assert_array_equal(one.squares, other.squares)


@pytest.mark.parametrize("distance", [1.0, 1.0 - 1e-15, 1.0 + 1e-15, 1.0 - 1e-8, 1.0 + 1e-8])
def test_the_edge_is_as_sharp_for_all_distances(distance, monkeypatch):
    points = np.array([[0.0, 0.0], [distance, 0.0], [50.0, 0.0], [50.0, distance]]) - 30.0
    points[1, 0], points[3, 1] = -30.0 + distance, -30.0 + distance
    grid = tiled(points, monkeypatch)
    assert grid.all_pairs is not None
    assert_grid_finds(grid, points, points)


def test_points_in_many_dimensions_are_all_looked_at():
    rng = np.random.default_rng(0)
    assert Grid(rng.normal(size=(3000, 20)) / 4.0).all_pairs is not None
    assert Grid(rng.uniform(size=(3000, 2)) * 20.0).all_pairs is None
    assert Grid(rng.normal(size=(100, 20)) / 4.0).all_pairs is None  # few, whatever they are


def test_points_that_products_cannot_tell_apart_are_left_to_the_cells(monkeypatch):
    """Products of numbers as large as 1e6 are not known to 1: almost all pairs would have to be judged twice."""
    points = np.random.default_rng(0).uniform(0, 1e6, size=(500, 2))
    points[1::2] = points[::2] + 0.5
    grid = tiled(points, monkeypatch)
    assert grid.all_pairs is None
    assert_grid_finds(grid, points, points)
