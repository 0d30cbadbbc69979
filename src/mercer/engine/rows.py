"""Sources of rows. Only the engine reads all rows, a tile at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from mercer._stored import stored
from mercer._stored.checks import check_compressed, check_finite, need
from mercer._typing import AnyArray, FloatArray, IntArray

__all__ = ["ArrayRows", "Rows", "SomeRows", "SparseRows", "as_rows"]


class Rows(ABC):
    """A source of rows, perhaps larger than memory.

    A new kind of source (a file format, a cluster) is a subclass with two methods.

    Attributes
    ----------
    n_rows, n_features : int
    dtype : numpy.dtype
        Type of the tiles, float32 or float64.
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]

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

    def part(self, start: int, stop: int) -> Rows:
        """Rows start..stop as a source of their own, to be read elsewhere: it ships with no more than it needs."""
        return SomeRows(self, np.arange(start, stop))

    def subset(self, index: IntArray) -> Rows:
        """Some of the rows, in this order."""
        return SomeRows(self, index)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.n_rows


@stored
class ArrayRows(Rows):
    """Rows of an array or a memory map of any numeric dtype and order; each tile is converted when it is read.

    Parameters
    ----------
    array : array (n, d)
    checked : bool, default=False
        Whether the values are known to be finite.
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

    def part(self, start: int, stop: int) -> Rows:
        """A slice of the array."""
        return ArrayRows(np.asarray(self._array[start:stop]), checked=self._checked)

    def _finite(self, tile: FloatArray, start: int | None) -> FloatArray:
        if not self._checked and not np.all(np.isfinite(tile)):
            where = "" if start is None else f" (rows {start} to {start + len(tile) - 1})"
            msg = f"Input X contains NaN or infinity{where}."
            raise ValueError(msg)
        return tile


@stored
class SparseRows(Rows):
    """Rows of a SciPy sparse matrix; each tile is made dense when it is read.

    Parameters
    ----------
    matrix : scipy.sparse array or matrix (n, d)
        Finite.
    """

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

    def part(self, start: int, stop: int) -> Rows:
        """The same rows, still sparse."""
        return SparseRows(self._matrix[start:stop])

    def sparse_rows(self, index: IntArray) -> SparseRows:
        """The given rows, still sparse."""
        return SparseRows(self._matrix[index])

    def check_stored(self) -> None:
        """Refuse arrays that are no matrix."""
        check_compressed((len(self._starts) - 1, int(self.n_features)), self._values, self._columns, self._starts)
        check_finite(self._values, "kept rows")

    def rebuild_stored(self) -> None:
        """Make the matrix of its arrays."""
        shape = len(self._starts) - 1, int(self.n_features)
        self.__init__(sparse.csr_array((self._values, self._columns, self._starts), shape=shape))  # type: ignore[misc]


class SomeRows(Rows):
    """Some rows of another source, taken a tile at a time.

    Parameters
    ----------
    rows : Rows
    index : array (n,)
        Their numbers.
    """

    def __init__(self, rows: Rows, index: IntArray) -> None:
        self._rows, self._index = rows, index
        self.n_rows, self.n_features, self.dtype = len(index), rows.n_features, rows.dtype

    def read(self, start: int, stop: int) -> FloatArray:
        """Rows start..stop of these."""
        return self._rows.take(self._index[start:stop])

    def take(self, indices: IntArray) -> FloatArray:
        """The given rows of these."""
        return self._rows.take(self._index[indices])

    def part(self, start: int, stop: int) -> Rows:
        """Rows in memory are shipped themselves; else the source and their numbers are."""
        index = self._index[start:stop]
        if isinstance(self._rows, ArrayRows):
            return ArrayRows(self._rows.take(index), checked=True)
        return self._rows.sparse_rows(index) if isinstance(self._rows, SparseRows) else SomeRows(self._rows, index)

    def subset(self, index: IntArray) -> Rows:
        """Rows of the same source, so that subsets do not nest."""
        return SomeRows(self._rows, self._index[index])


def as_rows(table: Any) -> Rows:
    """Return the argument if it is a source of rows, else a source for it as an array."""
    if isinstance(table, Rows):
        return table
    if sparse.issparse(table):
        return SparseRows(table)
    array = np.asarray(table)
    if array.ndim != 2:
        msg = f"rows must form a two-dimensional array, got {array.ndim} dimension(s)."
        raise ValueError(msg)
    return ArrayRows(array)
