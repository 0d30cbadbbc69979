"""Rows of a sparse matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from mercer._stored import stored
from mercer._stored.checks import check_compressed, check_finite
from mercer._typing import FloatArray, IntArray
from mercer.engine.table import Rows

__all__ = ["SparseRows"]


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

    def part(self, start: int, stop: int) -> Rows:
        """The same rows, still sparse."""
        return SparseRows(self._matrix[start:stop])

    def shipped(self, index: IntArray) -> Rows:
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
