"""Which of a few points is nearest to each row, and which row to each point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine.passes import Executor, Pass, RowPass, Tile
from mercer.engine.table import ArrayTable, Rows

__all__ = ["nearest_points", "nearest_rows", "neighbour_distance"]

_FAR = 1e150  # squares of it are numbers


@dataclass(frozen=True)
class _Metric:
    """Points (m, d) less their centre, in units of a scale."""

    centre: FloatArray
    scale: Any
    points: FloatArray

    @classmethod
    def of(cls, points: FloatArray, scale: Any) -> _Metric:
        centre = np.median(points, axis=0)  # exact for a constant column, however large
        return cls(centre, scale, (points - centre) / scale)

    @property
    def width(self) -> int:
        return sum(self.points.shape)

    def scaled(self, rows: FloatArray) -> FloatArray:
        return np.asarray((rows - self.centre) / self.scale)


@dataclass(frozen=True)
class _NearestPoint(RowPass):
    metric: _Metric
    halves: FloatArray  # |z|²/2

    name, dtype, shape = "nearest points", np.intp, ()

    @property
    def width(self) -> int:
        return self.metric.width

    def apply(self, tile: Tile, out: AnyArray) -> None:
        # argmin |x - z|² = argmin |z|²/2 - x·z
        np.argmin(self.halves - self.metric.scaled(tile.rows) @ self.metric.points.T, axis=1, out=out)


def nearest_points(rows: Rows, points: FloatArray, scale: Any = 1.0, *, executor: Executor) -> IntArray:
    """Number of the nearest point for each row, shape (n,), by distances of x/scale.

    Cost: n·m·d operations, memory of a tile per worker.
    """
    metric = _Metric.of(points, scale)
    halves = np.einsum("ij,ij->i", metric.points, metric.points) / 2
    return executor.map(_NearestPoint(metric, halves), ArrayTable(rows))


@dataclass
class _Nearest:
    """The nearest row so far to each point."""

    distances: FloatArray
    index: IntArray

    def merge_in_place(self, other: _Nearest) -> None:
        closer = other.distances < self.distances
        self.distances[closer], self.index[closer] = other.distances[closer], other.index[closer]


@dataclass(frozen=True)
class _NearestRow(Pass[_Nearest, IntArray]):
    metric: _Metric

    name = "nearest rows"

    @property
    def width(self) -> int:
        return self.metric.width

    def start(self) -> _Nearest:
        number = len(self.metric.points)
        return _Nearest(np.full(number, np.inf), np.zeros(number, dtype=np.intp))

    def add(self, state: _Nearest, tile: Tile) -> None:
        x = self.metric.scaled(tile.rows)
        distances = np.einsum("ij,ij->i", x, x)[:, np.newaxis] / 2 - x @ self.metric.points.T
        if tile.weights is not None:
            distances[tile.weights <= 0] = np.inf
        best = np.argmin(distances, axis=0)
        state.merge_in_place(_Nearest(distances[best, np.arange(len(best))], best + tile.first))

    def finish(self, state: _Nearest) -> IntArray:
        return state.index


def nearest_rows(
    rows: Rows, points: FloatArray, scale: Any = 1.0, *, weights: FloatArray | None = None, executor: Executor
) -> IntArray:
    """Number of the nearest row (of positive weight) to each point, shape (m,), by distances of x/scale."""
    return executor.reduce(_NearestRow(_Metric.of(points, scale)), ArrayTable(rows, weights=weights))


@dataclass
class _Smallest:
    """The smallest squared distances so far that are not zero, and the largest of all."""

    most: int
    squares: FloatArray
    largest: float = 0.0

    def add(self, squares: FloatArray) -> None:
        self.largest = max(self.largest, float(np.max(squares, initial=0.0)))
        bound = np.max(self.squares) if len(self.squares) == self.most else np.inf
        squares = np.concatenate([self.squares, squares[(squares > 0) & (squares < bound)]])
        self.squares = np.partition(squares, self.most - 1)[: self.most] if len(squares) > self.most else squares


@dataclass(frozen=True)
class _SmallestDistances(Pass[_Smallest, _Smallest]):
    metric: _Metric
    n_neighbours: int

    name = "distances"

    @property
    def width(self) -> int:
        return self.metric.width

    def start(self) -> _Smallest:
        return _Smallest(self.n_neighbours * len(self.metric.points), np.empty(0))

    def add(self, state: _Smallest, tile: Tile) -> None:
        centred, rounding = self.metric.points, 64.0 * np.finfo(np.float64).eps
        with np.errstate(over="ignore"):
            x = np.clip(self.metric.scaled(tile.rows), -_FAR, _FAR)
        scale = np.einsum("ij,ij->i", x, x)[:, np.newaxis] + np.einsum("ij,ij->i", centred, centred)
        squares = scale - 2.0 * x @ centred.T
        squares[squares < rounding * scale] = 0.0
        state.add(squares.ravel())

    def merge(self, state: _Smallest, other: _Smallest) -> _Smallest:
        state.add(other.squares)
        state.largest = max(state.largest, other.largest)
        return state


def neighbour_distance(rows: Rows, sample: FloatArray, n_neighbours: int, *, executor: Executor) -> float:
    """Distance within which rows of the sample have so many others on average, not counting those equal to them.

    Twice the largest distance, if there are not so many; 1 if all rows are equal. Cost: n·q·d for q rows in the sample.
    """
    sample = np.asarray(sample, dtype=np.float64)
    unit = float(np.max(np.abs(sample - np.median(sample, axis=0)), initial=0.0)) or 1.0  # whose square is a number
    found = executor.reduce(_SmallestDistances(_Metric.of(sample, unit), n_neighbours), ArrayTable(rows))
    if len(found.squares) == found.most:
        return unit * float(np.sqrt(np.max(found.squares)))
    return 2.0 * unit * float(np.sqrt(found.largest)) if found.largest > 0 else 1.0
