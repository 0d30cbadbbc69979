"""Rows and tables: where rows are; and rows with targets and weights, in partitions that can be read on their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
from scipy import sparse

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_columns, check_compressed, check_finite, check_shape, need
from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine.passes import Scratch, Tile
from mercer.engine.weights import are_counts

# Rows that belong together: next to each other, or anywhere.
Block = slice | IntArray

# Partitions decide how sums are nested, so their number depends on the rows alone, not on the workers. There are
# enough for many workers, and few enough that starting and merging a sum is small beside the sum itself.
_PARTITION_ROWS, _FEWEST_ROWS = 8192, 1024
_FEWEST_PARTITIONS, _MOST_PARTITIONS = 8, 64


class Rows(ABC):
    """A source of rows, perhaps larger than memory.

    A new kind of source (a file format, a cluster) is a subclass with two methods.
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]  # of the tiles, float32 or float64

    @abstractmethod
    def read(self, start: int, stop: int) -> FloatArray:
        """Rows start..stop, as a C-contiguous array of ``dtype``, checked for NaN and infinity."""

    @abstractmethod
    def take(self, indices: IntArray) -> FloatArray:
        """The given rows, for a sample or a basis: memory grows with their number."""

    def tiles(self, first: int, last: int, size: int) -> Iterator[tuple[int, int, FloatArray]]:
        """Rows first..last in tiles (start, stop, rows); a source that reads in large pieces cuts them up here."""
        for start in range(first, last, size):
            stop = min(start + size, last)
            yield start, stop, self.read(start, stop)

    def shipped(self, where: Block) -> Rows:
        """The given rows as a source of their own, to be read elsewhere: it ships with no more than it needs."""
        return SomeRows(self, np.arange(where.start, where.stop) if isinstance(where, slice) else where)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.n_rows


@stored
class ArrayRows(Rows):
    """Rows of an array (n, d) or a memory map of any numeric dtype and order; each tile is converted when it is read.

    ``checked`` says that the values are known to be finite.
    """

    _array: AnyArray
    _checked: bool

    def __init__(self, array: AnyArray, *, checked: bool = False) -> None:
        self._array, self._checked = array, checked
        self.n_rows, self.n_features = array.shape
        self.dtype = np.dtype(np.float32 if array.dtype == np.float32 else np.float64)

    def check_stored(self) -> None:
        """Refuse what is no table of numbers."""
        need(self._array.ndim == 2 and self._array.dtype.kind in "biuf", "kept rows are no table of numbers.")
        need(not self._checked or np.all(np.isfinite(self._array)), "kept rows have NaN or infinity.")

    def rebuild_stored(self) -> None:
        """Set what follows from the array."""
        self.__init__(self._array, checked=self._checked)  # type: ignore[misc]

    def read(self, start: int, stop: int) -> FloatArray:
        """Rows start..stop, a view where dtype and order allow it."""
        return self._finite(np.ascontiguousarray(self._array[start:stop], dtype=self.dtype), start)

    def take(self, indices: IntArray) -> FloatArray:
        """Return a copy of the given rows."""
        return self._finite(np.ascontiguousarray(self._array[indices], dtype=self.dtype), None)

    def shipped(self, where: Block) -> Rows:
        """A slice of the array, or a copy of the given rows."""
        if isinstance(where, slice):
            return ArrayRows(np.asarray(self._array[where]), checked=self._checked)
        return ArrayRows(self.take(where), checked=True)

    def _finite(self, tile: FloatArray, start: int | None) -> FloatArray:
        if not self._checked and not np.all(np.isfinite(tile)):
            where = "" if start is None else f" (rows {start} to {start + len(tile) - 1})"
            raise ValueError(f"Input X contains NaN or infinity{where}.")
        return tile


@stored
class SparseRows(Rows):
    """Rows of a SciPy sparse matrix (n, d) of finite values; each tile is made dense when it is read."""

    _values: FloatArray
    _columns: IntArray
    _starts: IntArray
    n_features: int

    def __init__(self, matrix: Any) -> None:
        self.dtype = np.dtype(np.float32 if matrix.dtype == np.float32 else np.float64)
        self._matrix = sparse.csr_array(matrix, dtype=self.dtype)
        self._values, self._columns, self._starts = self._matrix.data, self._matrix.indices, self._matrix.indptr
        self.n_rows, self.n_features = matrix.shape

    def read(self, start: int, stop: int) -> FloatArray:
        """Rows start..stop, dense."""
        return np.asarray(self._matrix[start:stop].toarray(), dtype=self.dtype)

    def take(self, indices: IntArray) -> FloatArray:
        """The given rows, dense."""
        return np.asarray(self._matrix[indices].toarray(), dtype=self.dtype)

    def shipped(self, where: Block) -> Rows:
        """The given rows, still sparse."""
        return SparseRows(self._matrix[where])

    def check_stored(self) -> None:
        """Refuse arrays that are no matrix."""
        check_compressed((len(self._starts) - 1, int(self.n_features)), self._values, self._columns, self._starts)
        check_finite(self._values, "kept rows")

    def rebuild_stored(self) -> None:
        """Make the matrix of its arrays."""
        shape = len(self._starts) - 1, int(self.n_features)
        self.__init__(sparse.csr_array((self._values, self._columns, self._starts), shape=shape))  # type: ignore[misc]


class SomeRows(Rows):
    """Some rows of another source, given by their numbers (n,), and taken a tile at a time."""

    def __init__(self, rows: Rows, index: IntArray) -> None:
        self._rows, self._index = rows, index
        if isinstance(rows, SomeRows):  # rows of its source, so that subsets do not nest
            self._rows, self._index = rows._rows, rows._index[index]
        self.n_rows, self.n_features, self.dtype = len(index), rows.n_features, rows.dtype

    def read(self, start: int, stop: int) -> FloatArray:
        """Rows start..stop of these."""
        return self._rows.take(self._index[start:stop])

    def take(self, indices: IntArray) -> FloatArray:
        """The given rows of these."""
        return self._rows.take(self._index[indices])

    def shipped(self, where: Block) -> Rows:
        """As the source ships them."""
        return self._rows.shipped(self._index[where])


class Coding(ABC):
    """How class codes become targets."""

    @property
    @abstractmethod
    def n_columns(self) -> int:
        """Number of targets, p."""

    @abstractmethod
    def columns(self, codes: IntArray) -> FloatArray:
        """Targets (T, p) of rows with these codes."""


class Part(ABC):
    """Some rows of a table, which a worker reads, here or elsewhere: it pickles with its rows, not with the table."""

    n_rows: int
    first: int  # number of its first row in the table

    @abstractmethod
    def tiles(self, size: int, scratch: Scratch) -> Iterator[Tile]:
        """The rows in tiles of at most so many (tables whose tiles are given disregard it)."""


class Table(ABC):
    """Rows with their targets and weights, perhaps larger than memory."""

    n_rows: int
    n_features: int
    n_outputs: int
    has_given_tiles: bool = False  # whether tiles are blocks of rows that must be seen together
    counted: bool = True  # whether weights are numbers of equal rows: see ``weights``
    is_array: bool = False  # whether any number of rows can be had without reading and joining tiles

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """The partitions, in order; at least one."""

    def n_tiles(self, size: int) -> int:
        """How many tiles of this size there are, about."""
        return -(-self.n_rows // size)

    def longest_tile(self, size: int) -> int:
        """Most rows of a tile if tiles of this size are asked for."""
        return min(size, self.n_rows)

    def tiles(self, size: int) -> Iterator[Tile]:
        """All rows in their order."""
        scratch = Scratch()
        return chain.from_iterable(part.tiles(size, scratch) for part in self.parts())


@stored
@dataclass(eq=False)
class ArrayTable(Table):
    """Rows from any source, with targets and weights that are arrays."""

    rows: Rows  # (n, d)
    labels: AnyArray | None = None  # targets (n, p), or class codes (n,) if there is a coding; None for rows alone
    weights: FloatArray | None = None  # (n,)
    coding: Coding | None = None  # makes targets of codes, a tile at a time
    shift: FloatArray | None = None  # (p,), subtracted from the targets
    relative: Sometimes[bool] = False  # whether weights only say how much rows matter, even if they are whole numbers

    def __post_init__(self) -> None:
        self.counted = not self.relative and are_counts(self.weights)
        self.n_rows, self.n_features, self.dtype = self.rows.n_rows, self.rows.n_features, self.rows.dtype
        self.is_array = isinstance(self.rows, ArrayRows)
        if self.coding is not None:
            self.n_outputs = self.coding.n_columns
        else:
            self.n_outputs = 0 if self.labels is None else int(self.labels.shape[-1])

    def check_stored(self) -> None:
        """Refuse targets and weights of other rows."""
        n_rows = self.rows.n_rows
        need(self.coding is None, "kept targets are class codes.")
        if self.labels is not None:
            check_columns(self.labels, n_rows, "kept targets")
            check_finite(self.labels, "kept targets")
        if self.weights is not None:
            check_shape(self.weights, (n_rows,), "kept weights")
        need(self.shift is None or self.shift.shape == (self.n_outputs,), "kept targets have another shift.")

    def parts(self) -> Sequence[Part]:
        """Spans of rows, by their number alone."""
        bounds = partition_bounds(self.n_rows)
        return [_Span(self, start, stop, start) for start, stop in pairwise(bounds)]

    def tiles(self, size: int) -> Iterator[Tile]:
        """All rows in their order."""
        return _Span(self, 0, self.n_rows, 0).tiles(size, Scratch())

    def tile(self, where: Block, rows: FloatArray, scratch: Scratch, first: int = 0) -> Tile:
        """The rows of a block, which were read, with their targets and weights."""
        weights = None if self.weights is None else self.weights[where]
        return Tile(rows, self._targets(where, len(rows)), weights, first, scratch)

    def _targets(self, where: Block, n_rows: int) -> FloatArray:
        if self.labels is None:
            return np.empty((n_rows, 0))
        labels = self.labels[where]
        targets = labels if self.coding is None else self.coding.columns(labels)
        return targets if self.shift is None else targets - self.shift

    @property
    def targets(self) -> FloatArray:
        """All targets (n, p), for methods that keep that many numbers anyway."""
        return self._targets(slice(0, self.n_rows), self.n_rows)

    def shifted(self, shift: FloatArray) -> ArrayTable:
        """The table with targets less a constant (p,)."""
        if not np.any(shift):
            return self
        return replace(self, shift=shift if self.shift is None else self.shift + shift)

    def subset(self, index: IntArray) -> ArrayTable:
        """Some of the rows, in this order."""
        if len(index) == self.n_rows and np.array_equal(index, np.arange(self.n_rows)):
            return self
        return self._part(SomeRows(self.rows, index), index)

    def shipped(self, where: Block) -> ArrayTable:
        """The rows of a block as a table of their own, which ships with no more than it needs."""
        return self._part(self.rows.shipped(where), where)

    def _part(self, rows: Rows, where: Block) -> ArrayTable:
        labels = None if self.labels is None else self.labels[where]
        weights = None if self.weights is None else self.weights[where]
        return replace(self, rows=rows, labels=labels, weights=weights, relative=not self.counted)


@dataclass(eq=False)
class _Span(Part):
    """Rows start to stop of an array table."""

    table: ArrayTable
    start: int
    stop: int
    first: int  # number of the first row in the table from which this one was taken

    def __post_init__(self) -> None:
        self.n_rows = self.stop - self.start

    def tiles(self, size: int, scratch: Scratch) -> Iterator[Tile]:
        offset = self.first - self.start
        for start, stop, rows in self.table.rows.tiles(self.start, self.stop, size):
            yield self.table.tile(slice(start, stop), rows, scratch, start + offset)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Span, (self.table.shipped(slice(self.start, self.stop)), 0, self.n_rows, self.first)


def partition_bounds(n_rows: int) -> list[int]:
    """Where the partitions of so many rows begin and end."""
    wanted = min(max(n_rows // _PARTITION_ROWS, _FEWEST_PARTITIONS), _MOST_PARTITIONS)
    number = max(1, min(wanted, n_rows // _FEWEST_ROWS))
    return [n_rows * i // number for i in range(number + 1)]


def as_rows(table: Any) -> Rows:
    """Return the argument if it is a source of rows, else a source for it as an array."""
    if isinstance(table, Rows):
        return table
    if sparse.issparse(table):
        return SparseRows(table)
    array = np.asarray(table)
    if array.ndim != 2:
        raise ValueError(f"rows must form a two-dimensional array, got {array.ndim} dimension(s).")
    return ArrayRows(array)
