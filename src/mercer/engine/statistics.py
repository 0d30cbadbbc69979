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
from functools import cached_property
from typing import Any

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_finite, check_square, need
from mercer._typing import FloatArray
from mercer.engine.passes import Executor, Pass, Shippable, State, Tile
from mercer.engine.rows import Rows
from mercer.engine.table import ArrayTable, Table
from mercer.engine.weights import effective_number
from mercer.kernels import Kernel, Section
from mercer.solvers.dense import add_gram, mirror, whiten


@dataclass(frozen=True)
class Features(Shippable):
    """Rows ↦ k(rows, points), or k(rows, points) L⁻ᵀ if ``lower`` is given; always float64."""

    kernel: Kernel
    points: FloatArray  # (m, d)
    # (m, m): L, Fortran-contiguous float64; a smaller one whitens the first features alone.
    lower: FloatArray | None = None
    dtype: Any = np.float64  # in which the kernel is computed, before its values are widened

    @property
    def n_features(self) -> int:
        """Columns of a tile."""
        return len(self.points)

    @cached_property
    def _section(self) -> Section:
        return self.kernel.bind(self.points, self.dtype)

    def prepare(self) -> None:
        """Do once what does not depend on the rows, before threads share it."""
        _ = self._section

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Features of a tile of rows, shape (T, m)."""
        if self._section.dtype == np.float64:
            values = self._section.tile(rows, out)
        else:
            values = np.empty((len(rows), self.n_features)) if out is None else out
            values[...] = self._section.tile(rows)
        if self.lower is not None:
            whiten(values[:, : len(self.lower)], self.lower)
        return values


_ALIGNMENT = 8  # numbers: rows of a tile start at multiples of a cache line, which saves BLAS some percent


@dataclass(frozen=True)
class AugmentedPass(Pass[State, State]):
    """A pass that sums products of tiles [φ, y, 1, 0]: one product then sums features and targets alike."""

    features: Features
    n_outputs: int

    @property
    def _used(self) -> int:
        return self.features.n_features + self.n_outputs + 1

    @cached_property
    def _padded(self) -> Features:
        """Features with room behind them."""
        points, width = self.features.points, -(-self._used // _ALIGNMENT) * _ALIGNMENT
        # The room is computed as if it were points: a contiguous tile is worth more than the work. As copies of the
        # median they do not move the points' own, which kernels take for their centre.
        middle = np.median(points, axis=0) if len(points) else np.zeros(points.shape[1])
        return replace(self.features, points=np.concatenate([points, np.tile(middle, (width - len(points), 1))]))

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self._padded.n_features

    def prepare(self) -> None:
        """Bind the kernel to the points."""
        self._padded.prepare()

    def values(self, tile: Tile) -> FloatArray:
        """[φ, y, 1, 0] of a tile, shape (T, width), in its worker's memory."""
        values = self._padded.tile(tile.rows, tile.scratch.array("augmented", (tile.n_rows, self.width)))
        values[:, self.features.n_features : self._used - 1] = tile.targets
        values[:, self._used - 1] = 1.0
        values[:, self._used :] = 0.0
        return values

    def sums(self, total: FloatArray) -> FloatArray:
        """Sums over all tiles without the padding, both triangles; refused if they overflow."""
        return _checked(np.ascontiguousarray(total[: self._used, : self._used]), self.features.n_features)

    @property
    def state_numbers(self) -> int:  # type: ignore[override]
        """Of the accumulator."""
        return self.width**2


def _checked(sums: FloatArray, n_features: int) -> FloatArray:
    """Both triangles of sums of [φ, y, 1], in place, from the upper one; refused if they overflow."""
    mirror(sums)
    if not np.all(np.isfinite(sums)):
        msg = "the sums over the rows overflow: kernel values, y or sample_weight are too large. Scale X or y."
        raise ValueError(msg)
    targets = slice(n_features, -1)
    lost = np.diagonal(sums)[targets] < np.finfo(np.float64).tiny
    if np.any(lost & np.any(sums[:, targets] != 0, axis=0)):
        raise ValueError("squares of y underflow: y or sample_weight is too small. Scale y.")
    return sums


@stored
@dataclass
class NormalStatistics:
    """Sums over rows, which can be added, subtracted and scaled."""

    sums: FloatArray  # (m+p+1, m+p+1): the symmetric matrix of the module's description
    n_features: int  # m
    n_rows: int  # how many rows were summed, whatever their weight
    weight_squares: Sometimes[float] = 0.0  # Σ ω²
    n_relative: Sometimes[int] = 0  # rows that came with weights that are no numbers of equal rows
    is_whitened: bool = False  # whether the features are L⁻¹k_m(x), not k_m(x)

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

    @classmethod
    def of_features(cls, features: FloatArray, table: ArrayTable, *, is_whitened: bool) -> NormalStatistics:
        """Statistics of the rows of a table whose features φ (n, m) are in memory."""
        values = np.column_stack([features, table.targets, np.ones(len(features))])
        squares = float(len(features))
        if table.weights is not None:
            values *= np.sqrt(table.weights[:, np.newaxis])
            squares = float(np.sum(table.weights**2))
        sums, n_features = np.zeros((values.shape[1],) * 2), features.shape[1]
        add_gram(sums, values)
        sums = _checked(sums, n_features)
        return cls(sums, n_features, len(features), squares, is_whitened=is_whitened).weighed_as(table)

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

    @property
    def counted(self) -> bool:
        """Whether all weights are numbers of equal rows; see ``weights``."""
        return self.n_relative == 0

    @property
    def n_targets(self) -> float:
        """How many targets the rows are worth in a likelihood; see ``weights``."""
        return effective_number(self.total_weight, self.weight_squares, counted=self.counted)

    def weighed_as(self, table: Table) -> NormalStatistics:
        """Statistics of rows of this table, whose weights are numbers of equal rows or not."""
        return replace(self, n_relative=0 if table.counted else self.n_rows)

    def __add__(self, other: NormalStatistics) -> NormalStatistics:
        """Statistics of both sets of rows."""
        self._check_alike(other)
        both = replace(self, sums=self.sums.copy())
        both.merge_in_place(other)
        return both

    def __sub__(self, other: NormalStatistics) -> NormalStatistics:
        """Statistics of the rows of self without those of other."""
        self._check_alike(other)
        return replace(
            self,
            sums=self.sums - other.sums,
            n_rows=self.n_rows - other.n_rows,
            weight_squares=max(self.weight_squares - other.weight_squares, 0.0),
            n_relative=max(self.n_relative - other.n_relative, 0),
        )

    def __mul__(self, factor: float) -> NormalStatistics:
        """Statistics with all weights multiplied; the number of rows stays."""
        return replace(self, sums=factor * self.sums, weight_squares=factor * (factor * self.weight_squares))

    __rmul__ = __mul__

    def merge_in_place(self, other: NormalStatistics) -> None:
        """Add the other's sums to one's own, without a third matrix."""
        self._check_alike(other)
        self.sums += other.sums
        self.n_rows += other.n_rows
        self.weight_squares += other.weight_squares
        self.n_relative += other.n_relative

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
            raise ValueError("statistics of different features or outputs, or plain and whitened ones, do not add.")


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
        values = self.values(tile)
        if tile.weights is not None:
            values *= np.sqrt(tile.weights[:, np.newaxis])
        add_gram(state.sums, values)
        state.n_rows += tile.n_rows
        state.weight_squares += tile.n_rows if tile.weights is None else float(np.sum(tile.weights**2))

    def finish(self, state: NormalStatistics) -> NormalStatistics:
        """Both triangles, without the padding."""
        return replace(state, sums=self.sums(state.sums))


def normal_statistics(table: Table, features: Features, *, executor: Executor) -> NormalStatistics:
    """Sum the statistics of all rows in one pass.

    Cost: n·m² multiply-adds and n·m kernel values; an accumulator of m × m per worker and one more, and a tile each.
    """
    return executor.reduce(NormalPass(features, table.n_outputs), table).weighed_as(table)


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
