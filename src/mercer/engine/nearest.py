"""Which of a few points is nearest to each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.engine.executors.base import Executor
from mercer.engine.rows import Rows
from mercer.engine.tiles import tile_rows
from mercer.engine.walk import map_rows

__all__ = ["nearest_points"]


def nearest_points(rows: Rows, points: FloatArray, scale: Any = 1.0, *, executor: Executor) -> IntArray:
    """Number of the nearest point for each row, shape (n,), by distances of x/scale.

    Cost: n·m·d operations, memory of a tile per worker.
    """
    centre = np.mean(points, axis=0)
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
