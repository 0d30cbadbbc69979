r"""Cholesky factors of sparse symmetric matrices.

.. math:: PHP^\top = LDL^\top

with L unit lower triangular and D diagonal. SuiteSparse's CHOLMOD does the work where scikit-sparse is installed,
SciPy's SuperLU in symmetric mode otherwise. Either is asked for its numbers once and then let go: what is kept are
plain arrays, which can be pickled, shared by threads, and take 12 bytes per entry of L.

=========  ===========  ==========================================================================
symbol     code         meaning
=========  ===========  ==========================================================================
P          order        PHPᵀ = H[order][:, order]; rank is the inverse permutation
L          lower        by columns, sorted: the unit diagonal is the first entry of each
D          pivots       positive, or there is no factor
parent     parent       of a column in the elimination tree, -1 at a root
=========  ===========  ==========================================================================

References
----------
T. A. Davis, Direct Methods for Sparse Linear Systems, SIAM 2006, chapters 3 and 4.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csc_matrix, csr_array
from scipy.sparse.linalg import splu

from mercer._jit import jit, jit_inner
from mercer._stored import stored
from mercer._stored.checks import check_index, check_permutation, check_shape, check_unit_lower, need
from mercer._typing import FloatArray, IntArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.sparse_symbolic import SYMMETRIC, canonical, elimination_tree, inverse, ordering_permutation

_WIDTH = 4  # rows that half_norms solves for at once: they share the reading of L


@stored
@dataclass(frozen=True)
class SparseFactor:
    """PHPᵀ = LDLᵀ; ``fill_in`` has the entries of L for each entry of H's lower triangle, diagonals included."""

    lower: csc_array  # (n, n)
    pivots: FloatArray  # (n,)
    order: IntArray  # (n,)
    parent: IntArray  # (n,)
    fill_in: float

    def check_stored(self) -> None:
        """Refuse what compiled loops cannot walk along."""
        n = len(self.pivots)
        check_unit_lower(self.lower, self.pivots)
        check_permutation(self.order, n, "the order of a factor")
        check_shape(self.parent, (n,), "the tree of a factor")
        check_index(self.parent, n, "the tree of a factor", least=-1)
        need(np.all((self.parent == -1) | (self.parent > np.arange(n))), "the tree of a factor has a cycle.")

    @property
    def log_determinant(self) -> float:
        """The logarithm of det H."""
        return float(np.sum(np.log(self.pivots)))

    def solve(self, right: FloatArray) -> FloatArray:
        """H⁻¹ right, for a vector (n,) or columns (n, p); 4·nnz·p operations."""
        columns = right[:, np.newaxis] if right.ndim == 1 else right
        x = np.ascontiguousarray(columns[self.order], dtype=np.float64)  # a copy
        solve_in_place(self.lower, self.pivots, x)
        solution = np.empty_like(x)
        solution[self.order] = x
        return solution.reshape(np.shape(right))

    def inverse_entries(self, index: IntArray) -> FloatArray:
        """Entries H⁻¹_ii of the inverse's diagonal, (k,); each costs what a row of ``half_norms`` does."""
        pointers = np.arange(len(index) + 1)
        return self.half_norms(csr_array((np.ones(len(index)), index, pointers), shape=(len(index), len(self.pivots))))

    def half_norms(self, rows: csr_array) -> FloatArray:
        """kᵀH⁻¹k = |D^(-1/2) L⁻¹ P k|² for each sparse row k.

        Only columns of L that the row reaches in the elimination tree are touched. Threads may share the factor.
        """
        n, norms = len(self.pivots), np.zeros(rows.shape[0])
        rank, filled = inverse(self.order), np.flatnonzero(np.diff(rows.indptr))  # norms of empty rows are zero
        # Rows solved for together should reach the same columns: neighbours in the tree have nearby ranks.
        first = np.minimum.reduceat(rank[rows.indices], rows.indptr[filled]) if len(filled) else filled
        sequence = filled[np.argsort(first, kind="stable")]
        tree = (self.parent, np.full(n, -1, dtype=np.int64), np.empty(n, dtype=np.int64))
        factor = (self.lower.indptr, self.lower.indices, self.lower.data, self.pivots)
        given = (rows.indptr, rows.indices, rows.data.astype(np.float64, copy=False), rank, sequence)
        _half_norms(factor, tree, given, np.zeros((n, _WIDTH)), norms)
        return norms


def sparse_cholesky(matrix: csr_array, *, ordering: str | IntArray = "amd") -> SparseFactor:
    """Factor a sparse symmetric positive definite matrix (n, n), float64, of which both triangles are stored.

    The cost is that of the fill-in, which the ordering decides (see ``ordering_permutation``): for points in the plane
    about n^1.5 operations and n·log n entries; ``count_fill`` counts the entries before. Besides L, SuperLU needs about
    three times its memory while it works. A pivot that is not positive by more than the rounding error of its own row
    raises ``NotPositiveDefiniteError``.
    """
    columns = canonical(matrix)
    diagonal = columns.diagonal()
    if not np.all(np.isfinite(columns.data)):
        raise NotPositiveDefiniteError("the sparse matrix contains NaN or infinity: scale its rows.")
    if np.min(diagonal, initial=np.inf) <= 0:
        raise NotPositiveDefiniteError(_indefinite(float(np.min(diagonal))))
    order = ordering_permutation(columns, ordering)
    lower, pivots, after = _factored(csc_array(columns[order][:, order]))
    order = order[after]
    # The computed pivot is that of a matrix whose diagonal entry differs by eps for each entry in its row of L.
    lost = np.finfo(np.float64).eps * np.bincount(lower.indices, minlength=len(diagonal)) * diagonal[order]
    if np.any(pivots <= lost):
        raise NotPositiveDefiniteError(_indefinite(float(np.min(pivots))))
    # The tree of H's pattern, not of the numbers in L: one that cancels to zero would cut a branch off.
    parent, _ = elimination_tree(columns, order)
    entries = (columns.nnz + len(diagonal)) // 2
    return SparseFactor(lower, pivots, order, parent, lower.nnz / max(entries, 1))


def solve_in_place(lower: csc_array, pivots: FloatArray, x: FloatArray) -> None:
    """Overwrite x (n, p) by (LDLᵀ)⁻¹x."""
    _solve_lower(lower.indptr, lower.indices, lower.data, x)
    x /= pivots[:, np.newaxis]
    _solve_upper(lower.indptr, lower.indices, lower.data, x)


# --------------------------------------------------------------------------------------------------- the backends


def _factored(columns: csc_array) -> tuple[csc_array, FloatArray, IntArray]:
    """L, D, and the order in which the backend eliminates: it may move columns, as long as that makes no fill."""
    if columns.shape[0] == 0:
        return columns, np.empty(0), np.arange(0)
    try:
        from sksparse import cholmod  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return _by_superlu(columns)
    return _by_cholmod(cholmod, columns)


def _by_superlu(columns: csc_array) -> tuple[csc_array, FloatArray, IntArray]:
    try:
        factor = splu(columns, permc_spec="NATURAL", **SYMMETRIC)
    except RuntimeError as error:  # "Factor is exactly singular"
        raise NotPositiveDefiniteError(_indefinite(0.0)) from error
    # Only a diagonal pivot that is exactly zero is passed over for one below it.
    if not np.array_equal(factor.perm_r, factor.perm_c):
        raise NotPositiveDefiniteError(_indefinite(0.0))
    # SciPy copies both triangles out when asked for either: the pivots cost as much as all of L, so take all of it now.
    lower, pivots = factor.L, factor.U.diagonal()
    lower.sort_indices()
    return lower, pivots, inverse(factor.perm_c)


# Run with scikit-sparse 0.4.16 on SuiteSparse 5.12; of 0.5, which needs SuiteSparse 7, there is a double in the tests.
def _by_cholmod(cholmod: ModuleType, columns: csc_array) -> tuple[csc_array, FloatArray, IntArray]:
    try:
        if hasattr(cholmod, "cho_factor"):  # 0.5
            lower, after = cholmod.cholesky(columns, lower=True, order="natural")
        else:  # 0.4 warns of csc_array; a supernodal factor is LLᵀ: to make LDLᵀ of it would take as long again
            factor = cholmod.cholesky(csc_matrix(columns), ordering_method="natural", mode="supernodal")
            lower, after = factor.L(), factor.P()
    except cholmod.CholmodNotPositiveDefiniteError as error:
        raise NotPositiveDefiniteError(_indefinite(None)) from error
    lower = csc_array(lower, copy=True)
    lower.sort_indices()
    roots = lower.diagonal()
    lower.data /= np.repeat(roots, np.diff(lower.indptr))
    return lower, roots**2, np.asarray(after)


def _indefinite(pivot: float | None) -> str:
    found = "CHOLMOD met one that is not positive" if pivot is None else f"the smallest is {pivot:.3g}"
    return (
        f"the sparse matrix is not positive definite: of its pivots {found}. Use a larger noise, or a kernel that is "
        "guaranteed to be positive definite in the dimension of the data, and rows in float64."
    )


# ---------------------------------------------------------------------------------------------------- compiled loops


@jit
def _solve_lower(pointers: IntArray, rows: IntArray, values: FloatArray, x: FloatArray) -> None:
    """Overwrite x (n, p) by L⁻¹x, for unit lower L by columns, its diagonal first in each."""
    for j in range(x.shape[0]):
        for q in range(pointers[j] + 1, pointers[j + 1]):
            for c in range(x.shape[1]):
                x[rows[q], c] -= values[q] * x[j, c]


@jit
def _solve_upper(pointers: IntArray, rows: IntArray, values: FloatArray, x: FloatArray) -> None:
    """Overwrite x (n, p) by L⁻ᵀx, for L as in ``_solve_lower``."""
    for j in range(x.shape[0] - 1, -1, -1):
        for q in range(pointers[j] + 1, pointers[j + 1]):
            for c in range(x.shape[1]):
                x[j, c] -= values[q] * x[rows[q], c]


@jit
def _half_norms(factor: Any, tree: Any, given: Any, x: FloatArray, norms: FloatArray) -> None:
    """Four rows at a time: scatter them into x, which is zero before and after, and solve where they reach."""
    pointers, rows, values, rank, sequence = given
    for start in range(0, len(sequence), _WIDTH):
        group, count = sequence[start : start + _WIDTH], np.int64(0)
        for c in range(len(group)):
            for q in range(pointers[group[c]], pointers[group[c] + 1]):
                x[rank[rows[q]], c] += values[q]
                count = _reach(tree, rank[rows[q]], start, count)
        reached = tree[2][:count]
        _sort(reached)  # descendants first; and the order of a row's sums does not depend on the rows beside it
        _solve_reached(factor, reached, x, group, norms)


@jit_inner
def _sort(numbers: IntArray) -> None:
    """Shell's sort: the paths of ``_reach`` ascend already, and NumPy's takes half a second to compile."""
    gap = 1
    while gap < len(numbers) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, len(numbers)):
            number, j = numbers[i], i
            while j >= gap and numbers[j - gap] > number:
                numbers[j] = numbers[j - gap]
                j -= gap
            numbers[j] = number
        gap //= 3


@jit_inner
def _reach(tree: Any, node: Any, stamp: Any, count: Any) -> Any:
    """List the path from a node up to the root, or to the first one that is listed."""
    parent, mark, listed = tree
    while node != -1 and mark[node] != stamp:
        listed[count], mark[node] = node, stamp
        node, count = parent[node], count + 1
    return count


@jit_inner
def _solve_reached(factor: Any, reached: IntArray, x: FloatArray, group: IntArray, norms: FloatArray) -> None:
    pointers, rows, values, pivots = factor
    for j in reached:
        # Names, and all reading before all writing: the compiler then knows that the four do not depend on each other.
        x0, x1, x2, x3 = x[j, 0], x[j, 1], x[j, 2], x[j, 3]
        for q in range(pointers[j] + 1, pointers[j + 1]):
            i, value = rows[q], values[q]
            y0, y1, y2, y3 = x[i, 0] - value * x0, x[i, 1] - value * x1, x[i, 2] - value * x2, x[i, 3] - value * x3
            x[i, 0], x[i, 1], x[i, 2], x[i, 3] = y0, y1, y2, y3
        for c in range(len(group)):
            norms[group[c]] += x[j, c] ** 2 / pivots[j]
        x[j, :] = 0.0
