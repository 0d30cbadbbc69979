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

__all__ = ["nearest_points", "nearest_rows"]


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
