r"""What a least-squares fit on a basis needs from the data: sums that add up.

All of it is one symmetric matrix, the sum over rows of :math:`\omega\,[\phi, y, 1][\phi, y, 1]^\top`, with :math:`\phi`
the features of a row, :math:`y` its targets and :math:`\omega` its weight. The constant carries what an intercept
needs.

==============  ==========================  ==============
block           sum over rows               shape
==============  ==========================  ==============
``gram``        Σ ω φ φᵀ                    (m, m)
``cross``       Σ ω φ [y, 1]ᵀ               (m, p+1)
``moments``     Σ ω [y, 1] [y, 1]ᵀ          (p+1, p+1)
==============  ==========================  ==============
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mercer._stored import stored
from mercer._stored.checks import check_finite, check_square, need
from mercer._typing import FloatArray
from mercer.engine.augmented import AugmentedPass
from mercer.engine.executors.base import Executor
from mercer.engine.features import Features
from mercer.engine.passes import Pass
from mercer.engine.rows import Rows
from mercer.engine.table import ArrayTable, Table
from mercer.engine.tile import Tile
from mercer.solvers.blas import add_gram, mirror, whiten

__all__ = ["NormalPass", "NormalStatistics", "normal_statistics", "row_moments"]


@stored
@dataclass
class NormalStatistics:
    """Sums over rows, which can be added, subtracted and scaled.

    Attributes
    ----------
    sums : array (m+p+1, m+p+1)
        The symmetric matrix of the module's description.
    n_features : int
        m.
    n_rows : int
        How many rows were summed, whatever their weight.
    is_whitened : bool
        Whether the features are L⁻¹k_m(x), not k_m(x).
    """

    sums: FloatArray
    n_features: int
    n_rows: int
    is_whitened: bool = False

    def check_stored(self) -> None:
        """Refuse sums of another size."""
        size = len(self.sums)
        check_square(self.sums, size, "sums", order="C")
        check_finite(self.sums, "sums")
        need(0 <= self.n_features <= size - 2, f"sums of size {size} do not have {self.n_features} features.")
        need(self.n_rows >= 0, "sums have fewer than no rows.")

    @classmethod
    def zeros(cls, n_features: int, n_outputs: int, *, is_whitened: bool = False) -> NormalStatistics:
        """Statistics of no rows."""
        size = n_features + n_outputs + 1
        return cls(np.zeros((size, size)), n_features, n_rows=0, is_whitened=is_whitened)

    @property
    def gram(self) -> FloatArray:
        """Σ ω φ φᵀ, shape (m, m)."""
        return self.sums[: self.n_features, : self.n_features]

    @property
    def cross(self) -> FloatArray:
        """Σ ω φ [y, 1]ᵀ, shape (m, p+1)."""
        return self.sums[: self.n_features, self.n_features :]

    @property
    def moments(self) -> FloatArray:
        """Σ ω [y, 1] [y, 1]ᵀ, shape (p+1, p+1)."""
        return self.sums[self.n_features :, self.n_features :]

    @property
    def total_weight(self) -> float:
        """Σ ω."""
        return float(self.sums[-1, -1])

    def __add__(self, other: NormalStatistics) -> NormalStatistics:
        """Statistics of both sets of rows."""
        self._check_alike(other)
        return replace(self, sums=self.sums + other.sums, n_rows=self.n_rows + other.n_rows)

    def __sub__(self, other: NormalStatistics) -> NormalStatistics:
        """Statistics of the rows of self without those of other."""
        self._check_alike(other)
        return replace(self, sums=self.sums - other.sums, n_rows=self.n_rows - other.n_rows)

    def __mul__(self, factor: float) -> NormalStatistics:
        """Statistics with all weights multiplied; the number of rows stays."""
        return replace(self, sums=factor * self.sums)

    __rmul__ = __mul__

    def merge_in_place(self, other: NormalStatistics) -> None:
        """Add the other's sums to one's own, without a third matrix."""
        self._check_alike(other)
        self.sums += other.sums
        self.n_rows += other.n_rows

    def whitened(self, lower: FloatArray) -> NormalStatistics:
        """Statistics of the features L⁻¹φ, from those of φ."""
        if self.is_whitened:
            return self
        sums = self.sums.copy()
        whiten(sums[:, : self.n_features], lower)  # S L⁻ᵀ
        sums = np.ascontiguousarray(sums.T)
        whiten(sums[:, : self.n_features], lower)  # (L⁻¹ S) L⁻ᵀ
        mirror(sums)
        return replace(self, sums=sums, is_whitened=True)

    def with_targets_shifted(self, shift: FloatArray) -> NormalStatistics:
        """Statistics for the targets y + shift, shift of shape (p,), from those for y."""
        if not np.any(shift):
            return self
        sums = self.sums.copy()
        targets = slice(self.n_features, -1)
        # [φ, y + s, 1] = [φ, y, 1] T: add s times the constant's row and column to the targets'
        sums[:, targets] += np.outer(sums[:, -1], shift)
        sums[targets] += np.outer(shift, sums[-1])
        return replace(self, sums=sums)

    def _check_alike(self, other: NormalStatistics) -> None:
        mine = (self.sums.shape, self.n_features, self.is_whitened)
        if mine != (other.sums.shape, other.n_features, other.is_whitened):
            msg = "statistics of different features or outputs, or plain and whitened ones, do not add."
            raise ValueError(msg)


@dataclass(frozen=True)
class NormalPass(AugmentedPass[NormalStatistics]):
    """Sum [φ, y, 1] [φ, y, 1]ᵀ over the rows."""

    name = "statistics"
    # Each tile makes a pass over the m × m accumulator: with 256 rows and more that pass is small beside the product.
    fewest = 256

    def start(self) -> NormalStatistics:
        """Zeros, with the padding of the tiles."""
        sums = np.zeros((self.width, self.width))
        is_whitened = self.features.lower is not None
        return NormalStatistics(sums, self.features.n_features, n_rows=0, is_whitened=is_whitened)

    def add(self, state: NormalStatistics, tile: Tile) -> None:
        """One symmetric product."""
        values = self.augmented.values(tile)
        if tile.weights is not None:
            values *= np.sqrt(tile.weights[:, np.newaxis])
        add_gram(state.sums, values)
        state.n_rows += tile.n_rows

    def finish(self, state: NormalStatistics) -> NormalStatistics:
        """Both triangles, without the padding."""
        return replace(state, sums=self.augmented.sums(state.sums))


def normal_statistics(table: Table, features: Features, *, executor: Executor) -> NormalStatistics:
    """Sum the statistics of all rows in one pass.

    Cost: n·m² multiply-adds and n·m kernel values; an accumulator of m × m per worker and one more, and a tile each.
    """
    return executor.reduce(NormalPass(features, table.n_outputs), table)


@dataclass(frozen=True)
class _Moments(Pass[FloatArray, tuple[FloatArray, FloatArray]]):
    """Sum ω [x - origin, 1] [x - origin, 1]ᵀ over the rows themselves."""

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
