"""What is known of a sparse Cholesky factor before its numbers are: the order of elimination, its tree, the fill-in.

References
----------
T. A. Davis, Direct Methods for Sparse Linear Systems, SIAM 2006, chapters 4 and 7.
"""

from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import spilu

from mercer._jit import jit
from mercer._typing import IntArray

_SUPERLU_NAMES = {"amd": "MMD_AT_PLUS_A", "colamd": "COLAMD"}
# A threshold of 0 takes every diagonal pivot that is not exactly zero.
SYMMETRIC: dict[str, Any] = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}


def ordering_permutation(matrix: csr_array, ordering: str | IntArray) -> IntArray:
    """The fill-reducing permutation, without a numerical factorisation.

    ``ordering`` is "amd" (minimum degree), "colamd" (SuperLU's column ordering), "rcm" (reverse Cuthill-McKee),
    "natural", or a permutation, which is checked. Row k of the permuted matrix is row ``permutation[k]`` of the given
    one, of which both triangles are stored, and only where its entries are matters.
    """
    n = matrix.shape[0]
    if not isinstance(ordering, str):
        order = np.asarray(ordering)
        if order.shape != (n,) or not np.array_equal(np.sort(order), np.arange(n)):
            raise ValueError(f"the ordering must be a permutation of 0, ..., {n - 1}.")
        return order.astype(np.intp)
    if ordering not in {*_SUPERLU_NAMES, "rcm", "natural"}:
        raise ValueError(f"ordering must be 'amd', 'colamd', 'rcm', 'natural' or a permutation, got {ordering!r}.")
    if ordering == "natural" or n == 0:
        return np.arange(n)
    columns = canonical(matrix)
    if ordering == "rcm":
        return np.asarray(reverse_cuthill_mckee(columns, symmetric_mode=True), dtype=np.intp)
    # An incomplete factorisation that drops everything off a dominant diagonal is little more than its ordering.
    pattern = csc_array((np.ones(columns.nnz), columns.indices, columns.indptr), shape=(n, n)) + n * eye_array(n)
    name = _SUPERLU_NAMES[ordering]
    return inverse(spilu(csc_array(pattern), drop_tol=1.0, fill_factor=1.0, permc_spec=name, **SYMMETRIC).perm_c)


def count_fill(matrix: csr_array, permutation: IntArray, most: int = 2**62) -> int:
    """The number of entries of L for a permutation, diagonal included, if no number cancels to zero.

    Counting ends soon after ``most``. Time O(nnz + the count), memory O(n) where the matrix has no explicit zeros.
    """
    return int(np.sum(elimination_tree(canonical(matrix), ordering_permutation(matrix, permutation), most)[1]))


def canonical(matrix: csr_array) -> csc_array:
    """The matrix by columns, which are its rows: indices sorted and of 32 bits, no duplicates, no explicit zeros."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"the matrix must be square, got shape {matrix.shape}.")
    short = np.int32 if matrix.nnz <= np.iinfo(np.int32).max else np.int64
    indices, pointers = (part.astype(short, copy=False) for part in (matrix.indices, matrix.indptr))
    columns = csc_array((matrix.data, indices, pointers), shape=matrix.shape)
    if not columns.has_canonical_format or not np.all(columns.data):
        columns = columns.copy()
        columns.sum_duplicates()
        columns.eliminate_zeros()
    return columns


def inverse(order: IntArray) -> IntArray:
    """The place of each row in a permutation."""
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    return rank


def elimination_tree(columns: csc_array, order: IntArray, most: int = 2**62) -> tuple[IntArray, IntArray]:
    """Parent of each column of the permuted matrix's factor, -1 at a root, and its entries; counted up to ``most``."""
    parent, mark = np.full(len(order), -1, dtype=np.int64), np.full(len(order), -1, dtype=np.int64)
    counts = np.zeros(len(order), dtype=np.int64)
    _walk_rows((columns.indptr, columns.indices, order, inverse(order)), parent, mark, counts, most)
    return parent, counts


def entries_reached(parent: IntArray, counts: IntArray) -> IntArray:
    """Entries of the columns from each one up to its root, which a solution that starts there reads."""
    reached = np.array(counts, dtype=np.int64)
    _sum_paths(parent, reached)
    return reached


@jit
def _walk_rows(pattern: Any, parent: IntArray, mark: IntArray, counts: IntArray, most: Any) -> None:
    """Visit the entries of L row by row: row k is a subtree of k, of which the entries of H are the leaves.

    The parent of column i is the first k > i with an entry in it. Parents and marks come filled with -1, counts with 0.
    """
    pointers, rows, order, rank = pattern
    count = 0
    for k in range(len(order)):
        mark[k] = k
        counts[k] += 1
        count += 1
        for q in range(pointers[order[k]], pointers[order[k] + 1]):
            i = rank[rows[q]]
            while i < k and mark[i] != k:
                if parent[i] == -1:
                    parent[i] = k
                mark[i] = k
                counts[i] += 1
                count += 1
                i = parent[i]
        if count > most:
            break


@jit
def _sum_paths(parent: IntArray, sums: IntArray) -> None:
    """Add to each column's number those of all columns above it, in place; parents come later."""
    for j in range(len(parent) - 1, -1, -1):
        if parent[j] >= 0:
            sums[j] += sums[parent[j]]
