"""Which of a few points is nearest to each row, which row to each point, and how far neighbours are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine.passes import Executor, Pass, RowPass, Tile
from mercer.engine.rows import Rows
from mercer.engine.table import ArrayTable

_FAR = 1e150  # squares of it are numbers


@dataclass(frozen=True)
class _FromPoints:
    """A pass over rows and points (m, d), both less the centre of the points and in units of a scale."""

    points: FloatArray
    scale: Any

    @cached_property
    def centre(self) -> FloatArray:
        return np.asarray(np.median(self.points, axis=0))  # exact for a constant column, however large

    @cached_property
    def scaled_points(self) -> FloatArray:
        return self.scaled(self.points)

    @cached_property
    def squares(self) -> FloatArray:
        return np.asarray(np.einsum("ij,ij->i", self.scaled_points, self.scaled_points))

    @property
    def width(self) -> int:
        return sum(self.points.shape)

    def scaled(self, rows: FloatArray) -> FloatArray:
        return np.asarray((rows - self.centre) / self.scale)


class _NearestPoint(_FromPoints, RowPass):
    name, dtype, shape = "nearest points", np.intp, ()

    def apply(self, tile: Tile, out: AnyArray) -> None:
        # argmin |x - z|² = argmin |z|²/2 - x·z
        np.argmin(self.squares / 2 - self.scaled(tile.rows) @ self.scaled_points.T, axis=1, out=out)


def nearest_points(rows: Rows, points: FloatArray, scale: Any = 1.0, *, executor: Executor) -> IntArray:
    """Number of the nearest point for each row, shape (n,), by distances of x/scale.

    Cost: n·m·d operations, memory of a tile per worker.
    """
    return executor.map(_NearestPoint(points, scale), ArrayTable(rows))


_Nearest: TypeAlias = tuple[FloatArray, IntArray]  # distances and numbers of the nearest rows so far


class _NearestRow(_FromPoints, Pass[_Nearest, IntArray]):
    name = "nearest rows"

    def start(self) -> _Nearest:
        return np.full(len(self.points), np.inf), np.zeros(len(self.points), dtype=np.intp)

    def add(self, state: _Nearest, tile: Tile) -> None:
        x = self.scaled(tile.rows)
        distances = np.einsum("ij,ij->i", x, x)[:, np.newaxis] / 2 - x @ self.scaled_points.T
        if tile.weights is not None:
            distances[tile.weights <= 0] = np.inf
        best = np.argmin(distances, axis=0)
        self.merge(state, (distances[best, np.arange(len(best))], best + tile.first))

    def merge(self, state: _Nearest, other: _Nearest) -> _Nearest:
        closer = other[0] < state[0]
        state[0][closer], state[1][closer] = other[0][closer], other[1][closer]
        return state

    def finish(self, state: _Nearest) -> IntArray:
        return state[1]


def nearest_rows(
    rows: Rows, points: FloatArray, scale: Any = 1.0, *, weights: FloatArray | None = None, executor: Executor
) -> IntArray:
    """Number of the nearest row (of positive weight) to each point, shape (m,), by distances of x/scale."""
    return executor.reduce(_NearestRow(points, scale), ArrayTable(rows, weights=weights))


@dataclass(frozen=True)
class _SmallestSquares(_FromPoints, Pass[list[FloatArray], FloatArray]):
    """The smallest squared distances that are not zero; a state has those of each partition."""

    most: int

    name = "distances"

    def start(self) -> list[FloatArray]:
        return [np.empty(0)]

    def add(self, state: list[FloatArray], tile: Tile) -> None:
        with np.errstate(over="ignore"):
            x = np.clip(self.scaled(tile.rows), -_FAR, _FAR)
        scale = np.einsum("ij,ij->i", x, x)[:, np.newaxis] + self.squares
        squares = scale - 2.0 * x @ self.scaled_points.T
        squares[squares < 64.0 * np.finfo(np.float64).eps * scale] = 0.0  # rounding
        largest = np.max(state[0]) if len(state[0]) == self.most else np.inf
        state.append(squares[(squares > 0) & (squares < largest)])
        state[:] = [self.finish(state)]

    def finish(self, state: list[FloatArray]) -> FloatArray:
        squares = np.concatenate(state)
        return np.partition(squares, self.most - 1)[: self.most] if len(squares) > self.most else squares


def neighbour_distance(rows: Rows, sample: FloatArray, n_neighbours: int, *, executor: Executor) -> float:
    """Distance within which rows of the sample have so many others on average, not counting those equal to them.

    Twice the largest distance, if there are not so many; 1 if all rows are equal. Cost: n·q·d for q rows in the sample.
    """
    sample, most = np.asarray(sample, dtype=np.float64), n_neighbours * len(sample)
    unit = float(np.max(np.abs(sample - np.median(sample, axis=0)), initial=0.0)) or 1.0  # whose square is a number
    squares = executor.reduce(_SmallestSquares(sample, unit, most), ArrayTable(rows))
    if not len(squares):
        return 1.0
    distance = unit * float(np.sqrt(np.max(squares)))
    return distance if len(squares) == most else 2.0 * distance
