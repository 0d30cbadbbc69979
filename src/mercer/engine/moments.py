"""Mean and covariance of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mercer._typing import FloatArray
from mercer.engine.executors.base import Executor
from mercer.engine.passes import Pass
from mercer.engine.rows import Rows
from mercer.engine.table import ArrayTable
from mercer.engine.tile import Tile

__all__ = ["row_moments"]


@dataclass(frozen=True)
class _Moments(Pass[FloatArray, tuple[FloatArray, FloatArray]]):
    """Sum ω [x - origin, 1] [x - origin, 1]ᵀ."""

    origin: FloatArray

    name = "moments"

    @property
    def width(self) -> int:
        return 3 * (len(self.origin) + 1)  # three arrays of a tile's size are alive at once

    def start(self) -> FloatArray:
        return np.zeros((len(self.origin) + 1,) * 2)

    def add(self, state: FloatArray, tile: Tile) -> None:
        augmented = np.column_stack([tile.rows - self.origin, np.ones(tile.n_rows)])
        if tile.weights is None:
            state += augmented.T @ augmented
        else:
            augmented[tile.weights <= 0] = 0.0  # however large they are
            state += (tile.weights[:, np.newaxis] * augmented).T @ augmented

    def finish(self, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        sums = state / state[-1, -1]
        mean = sums[:-1, -1]
        return self.origin + mean, sums[:-1, :-1] - np.outer(mean, mean)


def row_moments(rows: Rows, weights: FloatArray | None = None, *, executor: Executor) -> tuple[FloatArray, FloatArray]:
    """Weighted mean (d,) and covariance (d, d) of the rows, in one pass; deviations are from the first that counts."""
    first = 0 if weights is None else int(np.argmax(weights > 0))
    origin = rows.take(np.array([first]))[0].astype(np.float64)
    return executor.reduce(_Moments(origin), ArrayTable(rows, weights=weights))
