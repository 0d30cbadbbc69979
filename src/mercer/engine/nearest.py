"""Which of a few points is nearest to each row, and which row to each point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.engine.executors.base import Executor
from mercer.engine.rows import Rows
from mercer.engine.tiles import tile_rows
from mercer.engine.walk import map_rows, reduce_rows

__all__ = ["nearest_points", "nearest_rows", "neighbour_distance"]

_FAR = 1e150  # squares of it are numbers


def nearest_points(rows: Rows, points: FloatArray, scale: Any = 1.0, *, executor: Executor) -> IntArray:
    """Number of the nearest point for each row, shape (n,), by distances of x/scale.

    Cost: n·m·d operations, memory of a tile per worker.
    """
    centre = np.median(points, axis=0)  # exact for a constant column, however large
    scaled = (points - centre) / scale
    halves = np.einsum("ij,ij->i", scaled, scaled) / 2
    result = np.empty(rows.n_rows, dtype=np.intp)

    def prepare() -> Callable[[FloatArray, IntArray], None]:
        def function(block: FloatArray, target: IntArray) -> None:
            # argmin |x - z|² = argmin |z|²/2 - x·z
            np.argmin(halves - ((block - centre) / scale) @ scaled.T, axis=1, out=target)

        return function

    tile = tile_rows(len(points) + rows.n_features, workers=executor.n_jobs)
    map_rows(rows, executor, tile=tile, prepare=prepare, out=result, name="nearest points")
    return result


@dataclass
class _Nearest:
    """The nearest row so far to each point."""

    distances: FloatArray
    index: IntArray

    def merge_in_place(self, other: _Nearest) -> None:
        closer = other.distances < self.distances
        self.distances[closer], self.index[closer] = other.distances[closer], other.index[closer]


def nearest_rows(
    rows: Rows, points: FloatArray, scale: Any = 1.0, *, weights: FloatArray | None = None, executor: Executor
) -> IntArray:
    """Number of the nearest row (of positive weight) to each point, shape (m,), by distances of x/scale."""
    centre = np.median(points, axis=0)  # exact for a constant column, however large
    scaled = (points - centre) / scale

    def prepare() -> tuple[_Nearest, Callable[[FloatArray, int, int], None]]:
        partial = _Nearest(np.full(len(points), np.inf), np.zeros(len(points), dtype=np.intp))

        def add(block: FloatArray, start: int, stop: int) -> None:
            x = (block - centre) / scale
            distances = np.einsum("ij,ij->i", x, x)[:, np.newaxis] / 2 - x @ scaled.T
            if weights is not None:
                distances[weights[start:stop] <= 0] = np.inf
            best = np.argmin(distances, axis=0)
            partial.merge_in_place(_Nearest(distances[best, np.arange(len(points))], best + start))

        return partial, add

    tile = tile_rows(len(points) + rows.n_features, workers=executor.n_jobs)
    return reduce_rows(rows, executor, tile=tile, workers=executor.n_jobs, prepare=prepare, name="nearest rows").index


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

    def merge_in_place(self, other: _Smallest) -> None:
        self.add(other.squares)
        self.largest = max(self.largest, other.largest)


def neighbour_distance(rows: Rows, sample: FloatArray, n_neighbours: int, *, executor: Executor) -> float:
    """Distance within which rows of the sample have so many others on average, not counting those equal to them.

    Twice the largest distance, if there are not so many; 1 if all rows are equal. Cost: n·q·d for q rows in the sample.
    """
    sample = np.asarray(sample, dtype=np.float64)
    centre = np.median(sample, axis=0)
    unit = float(np.max(np.abs(sample - centre), initial=0.0)) or 1.0  # whose square is a number
    centred = (sample - centre) / unit
    norms = np.einsum("ij,ij->i", centred, centred)
    rounding = 64.0 * np.finfo(np.float64).eps

    def prepare() -> tuple[_Smallest, Callable[[FloatArray, int, int], None]]:
        partial = _Smallest(n_neighbours * len(sample), np.empty(0))

        def add(block: FloatArray, _start: int, _stop: int) -> None:
            with np.errstate(over="ignore"):
                x = np.clip((block - centre) / unit, -_FAR, _FAR)
            scale = np.einsum("ij,ij->i", x, x)[:, np.newaxis] + norms
            squares = scale - 2.0 * x @ centred.T
            squares[squares < rounding * scale] = 0.0
            partial.add(squares.ravel())

        return partial, add

    tile = tile_rows(len(sample) + rows.n_features, workers=executor.n_jobs)
    found = reduce_rows(rows, executor, tile=tile, workers=executor.n_jobs, prepare=prepare, name="distances")
    if len(found.squares) == found.most:
        return unit * float(np.sqrt(np.max(found.squares)))
    return 2.0 * unit * float(np.sqrt(found.largest)) if found.largest > 0 else 1.0
