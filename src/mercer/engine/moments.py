"""Mean and covariance of the rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mercer._typing import FloatArray
from mercer.engine.executors.base import Executor
from mercer.engine.rows import Rows
from mercer.engine.tiles import tile_rows
from mercer.engine.walk import ArraySum, reduce_rows

__all__ = ["row_moments"]


def row_moments(rows: Rows, weights: FloatArray | None = None, *, executor: Executor) -> tuple[FloatArray, FloatArray]:
    """Weighted mean (d,) and covariance (d, d) of the rows, in one pass; deviations are from the first that counts."""
    first = 0 if weights is None else int(np.argmax(weights > 0))
    origin = rows.take(np.array([first]))[0].astype(np.float64)
    size = rows.n_features + 1

    def prepare() -> tuple[ArraySum, Callable[[FloatArray, int, int], None]]:
        partial = ArraySum(np.zeros((size, size)))

        def add(block: FloatArray, start: int, stop: int) -> None:
            augmented = np.column_stack([block - origin, np.ones(stop - start)])
            if weights is not None:
                augmented[weights[start:stop] <= 0] = 0.0  # however large
            weighted = augmented if weights is None else weights[start:stop, np.newaxis] * augmented
            partial.value += weighted.T @ augmented

        return partial, add

    tile = tile_rows(3 * size, workers=executor.n_jobs)
    sums = reduce_rows(rows, executor, tile=tile, workers=executor.n_jobs, prepare=prepare, name="moments").value
    sums = sums / sums[-1, -1]
    mean = sums[:-1, -1]
    return origin + mean, sums[:-1, :-1] - np.outer(mean, mean)
