"""Where rows are: arrays, memory maps, sparse matrices, sources of your own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from mercer._stored import stored
from mercer._stored.checks import check_compressed, check_finite, need
from mercer._typing import AnyArray, FloatArray, IntArray

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

    def some_tiles(self, index: IntArray, size: int) -> Iterator[FloatArray]:
        """The given rows in tiles; a source that is read best in order reads through where they are many."""
        for start in range(0, len(index), size):
            yield self.take(index[start : start + size])

    def bounds(self) -> list[int]:
        """Where partitions begin and end."""
        return partition_bounds(self.n_rows)

    def shipped(self, where: Block) -> Rows:
        """The given rows as a source of their own, to be read elsewhere: it ships with no more than it needs."""
        return SomeRows(self, np.arange(where.start, where.stop) if isinstance(where, slice) else where)

    def inputs(self, where: Block, fields: tuple[str, ...]) -> tuple[Any, ...]:
        """What an engine of its own hands to ``put`` before shipped rows can be read elsewhere; usually nothing.

        ``fields`` says what is read of a source.
        """
        return ()

    def put(self, inputs: Sequence[Any]) -> None:  # noqa: B027  most have nothing to put
        """Put in place what an engine hands over."""

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

    def tiles(self, first: int, last: int, size: int) -> Iterator[tuple[int, int, FloatArray]]:
        """Rows first..last of these."""
        starts = range(first, last, size)
        for start, rows in zip(starts, self._rows.some_tiles(self._index[first:last], size), strict=True):
            yield start, start + len(rows), rows

    def take(self, indices: IntArray) -> FloatArray:
        """The given rows of these."""
        return self._rows.take(self._index[indices])

    def shipped(self, where: Block) -> Rows:
        """As the source ships them."""
        return self._rows.shipped(self._index[where])

    def inputs(self, where: Block, fields: tuple[str, ...]) -> tuple[Any, ...]:
        """Those of the source."""
        return self._rows.inputs(self._index[where], fields or ("rows",))

    def put(self, inputs: Sequence[Any]) -> None:
        """Hand them on."""
        self._rows.put(inputs)


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
