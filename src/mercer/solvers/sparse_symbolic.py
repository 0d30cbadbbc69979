"""What is known of a sparse Cholesky factor before its numbers are: the order of elimination, its tree, the fill-in.

References
----------
T. A. Davis, Direct Methods for Sparse Linear Systems, SIAM 2006, chapters 4 and 7.
J. R. Gilbert, E. G. Ng, B. W. Peyton, An efficient algorithm to compute row and column counts for sparse Cholesky
factorization, SIAM J. Matrix Anal. Appl. 15 (1994).
"""

from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import spilu

from mercer._jit import jit, jit_inner
from mercer._typing import IntArray

__all__ = [
    "SUPERLU_NAMES",
    "SYMMETRIC",
    "Ordering",
    "canonical",
    "check_name",
    "count_fill",
    "elimination_tree",
    "inverse_order",
    "ordering_permutation",
]

Ordering: TypeAlias = str | IntArray

# What SuperLU calls the orderings that it knows; the others permute the matrix beforehand.
SUPERLU_NAMES = {"amd": "MMD_AT_PLUS_A", "colamd": "COLAMD", "natural": "NATURAL"}
# A threshold of 0 takes every diagonal pivot that is not exactly zero.
SYMMETRIC: dict[str, Any] = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}


def ordering_permutation(matrix: csr_array, ordering: Ordering) -> IntArray:
    """The fill-reducing permutation, without a numerical factorisation.

    Row k of the permuted matrix is row ``permutation[k]`` of the given one. Time and memory are those of the ordering,
    not of the factor.

    Parameters
    ----------
    matrix : csr_array (n, n)
        Both triangles stored; only where its entries are matters.
    ordering : {"amd", "colamd", "rcm", "natural"} or array (n,)
    """
    n = matrix.shape[0]
    if not isinstance(ordering, str):
        return _permutation(ordering, n)
    check_name(ordering)
    if ordering == "natural" or n == 0:
        return np.arange(n)
    columns = canonical(matrix)
    if ordering == "rcm":
        return np.asarray(reverse_cuthill_mckee(columns, symmetric_mode=True), dtype=np.intp)
    # An incomplete factorisation that drops everything off a dominant diagonal is little more than its ordering.
    pattern = csc_array((np.ones(columns.nnz), columns.indices, columns.indptr), shape=(n, n)) + n * eye_array(n)
    name = SUPERLU_NAMES[ordering]
    incomplete = spilu(csc_array(pattern), drop_tol=1.0, fill_factor=1.0, permc_spec=name, **SYMMETRIC)
    return inverse_order(incomplete.perm_c)


def count_fill(matrix: csr_array, permutation: IntArray) -> int:
    """The number of entries of L for a permutation, diagonal included, if no number cancels to zero.

    Symbolic: the column counts of Gilbert, Ng and Peyton. Time O(nnz·α(n)), α the inverse Ackermann function, and O(n)
    memory besides a copy of the matrix where it has explicit zeros, whatever the size of L.
    """
    columns = canonical(matrix)
    order: IntArray = _permutation(permutation, matrix.shape[0])
    parent, n = elimination_tree(columns, order), len(order)
    post, first, second, third = (np.full(n, -1, dtype=np.int64) for _ in range(4))
    _postorder(parent, post, first, second, third)
    # Renumbered by its postorder the tree has all descendants of a column right before it, and the fill is the same.
    new = inverse_order(post)
    parent = np.where(parent[post] >= 0, new[parent[post]], -1)
    order = order[post]
    counts, first, second, third = (np.full(n, -1, dtype=np.int64) for _ in range(4))
    pattern = (columns.indptr, columns.indices, order, inverse_order(order))
    _column_counts(pattern, parent, counts, (first, second, third, np.arange(n)))
    return int(np.sum(counts))


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


def check_name(ordering: str) -> None:
    """Refuse an ordering that there is not."""
    if ordering not in {*SUPERLU_NAMES, "rcm"}:
        raise ValueError(f"ordering must be 'amd', 'colamd', 'rcm', 'natural' or a permutation, got {ordering!r}.")


def _permutation(order: IntArray, n: int) -> IntArray:
    order = np.asarray(order)
    if order.shape != (n,) or not np.array_equal(np.sort(order), np.arange(n)):
        raise ValueError(f"the ordering must be a permutation of 0, ..., {n - 1}.")
    return order.astype(np.intp)


def inverse_order(order: IntArray) -> IntArray:
    """The place of each row in a permutation."""
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    return rank


def elimination_tree(columns: csc_array, order: IntArray) -> IntArray:
    """Parent of each column of the permuted matrix's factor, -1 at a root."""
    parent, ancestor = np.full(len(order), -1, dtype=np.int64), np.full(len(order), -1, dtype=np.int64)
    _climb((columns.indptr, columns.indices, order, inverse_order(order)), parent, ancestor)
    return parent


@jit
def _climb(pattern: Any, parent: IntArray, ancestor: IntArray) -> None:
    """Parent of column i: the first k > i that it is subtracted from. Both arrays come filled with -1."""
    pointers, rows, order, rank = pattern
    for k in range(len(order)):
        for q in range(pointers[order[k]], pointers[order[k] + 1]):
            i = rank[rows[q]]
            while i != -1 and i < k:  # climb to the root of the tree so far, which becomes a child of k
                above = ancestor[i]
                ancestor[i] = k
                if above == -1:
                    parent[i] = k
                i = above


@jit
def _postorder(parent: IntArray, post: IntArray, child: IntArray, sibling: IntArray, stack: IntArray) -> None:
    """List every column after its descendants. All arrays but the first come filled with -1."""
    for j in range(len(parent) - 1, -1, -1):
        if parent[j] != -1:
            sibling[j], child[parent[j]] = child[parent[j]], j
    done = 0
    for root in range(len(parent)):
        depth = 0 if parent[root] == -1 else -1
        stack[0] = root
        while depth >= 0:
            j = child[stack[depth]]
            if j == -1:
                post[done] = stack[depth]
                done, depth = done + 1, depth - 1
            else:
                child[stack[depth]] = sibling[j]
                depth += 1
                stack[depth] = j


@jit
def _column_counts(pattern: Any, parent: IntArray, counts: IntArray, buffers: Any) -> None:
    """Entries of each column of L, for a postordered tree: row i of L is a subtree of i, of which H gives the leaves.

    A count is the sum over the column's subtree of: leaves found there, minus the meeting points of consecutive ones,
    minus one for each child.
    """
    pointers, rows, order, rank = pattern
    first, largest_first, previous_leaf, ancestor = buffers
    for k in range(len(order)):
        counts[k] = 1 if first[k] == -1 else 0
        j = k
        while j != -1 and first[j] == -1:
            first[j] = k
            j = parent[j]
    for j in range(len(order)):
        if parent[j] != -1:
            counts[parent[j]] -= 1
        for q in range(pointers[order[j]], pointers[order[j] + 1]):
            i = rank[rows[q]]
            if i > j and first[j] > largest_first[i]:  # column j is a leaf of row i
                counts[j] += 1
                if previous_leaf[i] != -1:
                    counts[_meeting_point(ancestor, previous_leaf[i])] -= 1
                largest_first[i], previous_leaf[i] = first[j], j
        if parent[j] != -1:
            ancestor[j] = parent[j]
    for j in range(len(order)):
        if parent[j] != -1:
            counts[parent[j]] += counts[j]


@jit_inner
def _meeting_point(ancestor: IntArray, leaf: Any) -> Any:
    top = leaf
    while ancestor[top] != top:
        top = ancestor[top]
    while leaf != top:  # shorten the way for the next
        leaf, ancestor[leaf] = ancestor[leaf], top
    return top
