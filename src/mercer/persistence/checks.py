"""Whether the parts of a stored object fit together: shapes, lengths, indices.

Compiled loops and BLAS take these numbers at their word, so an index that is out of range would reach memory that is
not theirs. What is checked here is what they rely on, and what makes a model meaningless if it is wrong: whether its
numbers are good ones is not. Objects are checked by their attributes, before they are made. ``checks_of_models`` has
the rest: the layers above the engine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.exceptions import ArchiveError

__all__ = [
    "PARTS",
    "check_columns",
    "check_compressed",
    "check_elements",
    "check_index",
    "check_kernel",
    "check_permutation",
    "check_shape",
    "check_square",
    "need",
]

_FAR = 1e160  # beyond any coordinate of a grid, which are below 2e150; squares and sums of it with them are numbers
_UNIT = 1.0 + 1e-6  # entries of an orthonormal axis, with rounding


def need(condition: Any, message: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise ArchiveError(message)


def check_shape(array: AnyArray, shape: tuple[int, ...], name: str) -> None:
    """Raise unless the array has that shape."""
    need(array.shape == shape, f"{name} has shape {array.shape}, where {shape} fits the rest.")


def check_square(matrix: FloatArray, size: int, name: str, *, order: str) -> None:
    """Raise unless the matrix is as BLAS takes it: float64, square, contiguous by rows ("C") or columns ("F")."""
    check_shape(matrix, (size, size), name)
    # A part of a larger array, which has neither order, is stored by rows.
    contiguous = matrix.flags.f_contiguous if order == "F" else matrix.flags.c_contiguous or not matrix.flags.forc
    need(matrix.dtype == np.float64 and contiguous, f"{name} is not float64, contiguous in order {order}.")


def check_columns(array: FloatArray, n_rows: int, name: str) -> None:
    """Raise unless the array has two dimensions, so many rows, and at least one column."""
    need(array.ndim == 2 and len(array) == n_rows and array.shape[1], f"{name} has shape {array.shape}.")


def check_index(index: IntArray, size: int, name: str, *, least: int = 0) -> None:
    """Raise unless these are numbers of one dimension in least..size-1."""
    inside = index.ndim == 1 and (not len(index) or (int(index.min()) >= least and int(index.max()) < size))
    need(inside, f"{name} goes beyond {size} entries.")


def check_permutation(order: IntArray, size: int, name: str) -> None:
    """Raise unless the array is a permutation of 0..size-1."""
    check_index(order, size, name)
    need(len(order) == size and len(np.unique(order)) == size, f"{name} is no permutation of {size} rows.")


def check_kernel(kernel: Any, n_features: int) -> None:
    """Raise unless the kernel has numbers for parameters, which fit rows of that width."""
    try:
        fits = not kernel.needs_data
        kernel.check(n_features)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        msg = f"the kernel does not fit: {error}"
        raise ArchiveError(msg) from error
    need(fits and not getattr(kernel, "is_automatic", False), "the kernel of a fitted model has no length scale.")


def check_elements(array: AnyArray) -> None:
    """Raise if bytes do not make elements: truth values other than 0 and 1, text that is not Unicode."""
    if array.dtype.kind == "b" and array.size:
        need(int(array.view(np.uint8).max()) <= 1, "a truth value is neither true nor false.")
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        codes = np.ndarray((array.size, array.dtype.itemsize // 4), dtype=f"{array.dtype.byteorder}u4", buffer=array.T)
        need(int(codes.max()) <= 0x10FFFF, "text is not Unicode.")


def check_compressed(sizes: tuple[int, ...], data: AnyArray, indices: AnyArray, starts: AnyArray) -> None:
    """Raise unless the arrays are those of a sparse matrix; sizes are the number of rows (columns), and of what is in
    them.
    """  # noqa: D205
    for each in (indices, starts):
        need(each.ndim == 1 and each.dtype in (np.int32, np.int64), "a sparse matrix has indices of int32 or int64.")
    need(data.shape == indices.shape and data.dtype.kind == "f", "a sparse matrix has one number for each index.")
    need(len(starts) == sizes[0] + 1, "a sparse matrix has not as many rows as it says.")
    rising = int(starts[0]) == 0 and np.all(starts[1:] >= starts[:-1]) and int(starts[-1]) == len(indices)
    need(rising, "rows of a sparse matrix overlap.")
    check_index(indices, sizes[1], "a sparse matrix")


# ------------------------------------------------------------------------------------------------ part by part


def _expansion(expansion: Any) -> None:
    need(expansion.points.ndim == 2, "the points of an expansion are no table.")
    (m, d), variance = expansion.points.shape, expansion.variance
    check_kernel(expansion.kernel, d)
    check_columns(expansion.coefficients, m, "coefficients of an expansion")
    check_shape(expansion.intercept, (expansion.coefficients.shape[1],), "the intercept of an expansion")
    need(variance is None or len(variance.lower) == m, "the variance of an expansion has other points.")


def _variance(variance: Any) -> None:
    m, root = len(variance.lower), variance.root
    check_square(variance.lower, m, "the factor of a variance", order="F")
    need(root is None or (root.ndim == 2 and root.shape[1] == m), "the root of a variance does not fit its factor.")
    if variance.offset is not None:
        need(root is not None, "a variance has an offset and no root.")
        check_shape(variance.offset, (len(root),), "the offset of a variance")


def _basis(basis: Any) -> None:
    need(basis.points.ndim == 2, "the points of a basis are no table.")
    for name in ("index", "scores"):
        if getattr(basis, name) is not None:
            check_shape(getattr(basis, name), (len(basis.points),), f"{name} of a basis")


def _statistics(statistics: Any) -> None:
    size = len(statistics.sums)
    check_square(statistics.sums, size, "sums", order="C")
    need(0 <= statistics.n_features <= size - 2, f"sums of size {size} do not have {statistics.n_features} features.")
    need(statistics.n_rows >= 0, "sums have fewer than no rows.")


def _conditional(statistics: Any) -> None:
    need(statistics.normal.is_whitened, "sums of a committee are of whitened features.")


def _solution(solution: Any) -> None:
    r = len(solution.mean)
    check_columns(solution.weights, r, "weights")
    check_shape(solution.mean, (r,), "means of features")
    check_shape(solution.intercept, (solution.weights.shape[1],), "the intercept")
    need(solution.root.ndim == 2 and solution.root.shape[1] == r, "the root of a solution does not fit its weights.")


def _cholesky(factor: Any) -> None:
    check_square(factor.lower, len(factor.lower), "a factor", order="F")


def _rules(rules: Any) -> None:
    good = rules.noise > 0 and rules.max_basis >= 1 and 0 < rules.forgetting <= 1 and rules.hidden >= 0
    need(good, "the rules of a recursion are out of range.")


def _recursion(recursion: Any) -> None:
    m, rules = len(recursion.births), recursion.rules
    fixed = int(rules.intercept and recursion.n_seen > 0)
    check_square(recursion.P_inverse, m, "P_inverse", order="C")
    check_square(recursion.K_inverse, m, "K_inverse", order="C")
    check_square(recursion.gram, m, "the kernel matrix of the dictionary", order="C")
    check_columns(recursion.coefficients, m, "coefficients of a recursion")
    for name in (
        "P_inverse",
        "K_inverse",
        "gram",
        "coefficients",
    ):  # the recursion looks for the least of what follows of them
        need(np.all(np.isfinite(getattr(recursion, name))), f"{name} of a recursion has NaN or infinity.")
    need(rules.hidden < recursion.coefficients.shape[1], "all outputs of a recursion are hidden.")
    need(fixed <= m <= rules.max_basis + fixed, "a recursion has more functions than its rules allow.")
    need(recursion.n_seen >= 0, "a recursion has seen fewer than no rows.")
    check_index(recursion.births, max(int(recursion.n_seen), 1), "births", least=-1)


def _learner(learner: Any) -> None:
    recursion = learner.recursion
    m = len(recursion.births) - int(recursion.rules.intercept and recursion.n_seen > 0)
    need(learner.points.ndim == 2, "the dictionary is no table.")
    check_shape(learner.points, (m, learner.points.shape[1]), "the dictionary")
    check_kernel(learner.kernel, learner.points.shape[1])
    need(learner.points.dtype == np.float64, "the dictionary is not float64.")


def _rows(rows: Any) -> None:
    check_shape(rows._array, (rows.n_rows, rows.n_features), "kept rows")
    need(rows._array.dtype.kind in "biuf", "kept rows are no numbers.")
    need(rows.dtype in (np.float32, np.float64), "kept rows are neither float32 nor float64.")


def _cells(cells: Any) -> None:
    n, side = len(cells.points), cells.side
    need(cells.points.ndim == cells.along.ndim == 2, "cells have no points.")
    need(len(cells.along) == n and 1 <= cells.along.shape[1] <= 4, "points of cells lack their projections.")
    for name in ("shape", "low", "side"):
        check_shape(getattr(cells, name), (3,), f"{name} of cells")
    need(np.all(cells.shape >= 1), "cells are fewer than one.")
    number = math.prod(int(each) for each in cells.shape)
    check_shape(cells.starts, (number + 1,), "starts of cells")
    rising = int(cells.starts[0]) == 0 and np.all(np.diff(cells.starts) >= 0) and int(cells.starts[-1]) == n
    need(rising, "cells overlap.")
    need(np.all(side > 0) and np.all(np.abs(cells.low) <= _FAR), "the geometry of cells is none.")
    need(1.0 <= cells.reach <= _FAR, "the reach of cells is out of range.")
    for each in (cells.points, cells.along):
        need(each.dtype == np.float64 and np.all(np.abs(each) <= _FAR), "points of cells are too far away.")


def _all_pairs(pairs: Any) -> None:
    need(pairs._points.ndim == 2 and pairs._points.dtype == np.float64, "points of pairs are no table.")
    n, d = pairs._points.shape
    check_shape(pairs._centre, (d,), "the centre of pairs")
    check_shape(pairs._folded, (n, d + 1), "folded points of pairs")
    need(pairs._folded.dtype == np.float32, "folded points of pairs are not float32.")


def _grid(grid: Any) -> None:
    d, cells = grid.n_features, grid.cells
    need(d == cells.points.shape[1], "a grid has other features than its points.")
    check_permutation(grid.order, len(cells.points), "the order of a grid")
    check_permutation(grid._columns, d, "columns of a grid")
    check_shape(grid._axes, (d, cells.along.shape[1]), "axes of a grid")
    check_shape(grid._centre, (d,), "the centre of a grid")
    pairs = grid._all_pairs
    need(pairs is None or pairs._points.shape == cells.points.shape, "a grid has other points than its pairs.")
    need(np.all(np.abs(grid._axes) <= _UNIT) and np.all(np.abs(grid._centre) <= _FAR), "axes of a grid are too long.")


def _sparse_kernel(kernel: Any) -> None:
    d = kernel._n_features
    need(d == kernel._grid.n_features, "a sparse kernel has other features than its grid.")
    check_kernel(kernel._kernel, d)
    check_shape(kernel._unit, (d,), "units of a sparse kernel")
    check_shape(kernel._centre, (d,), "the centre of a sparse kernel")
    need(kernel._dtype in (np.float32, np.float64), "a sparse kernel is neither float32 nor float64.")


def _gram(gram: Any) -> None:
    need(len(gram.starts) >= 1, "a sparse matrix has no rows.")
    n = len(gram.starts) - 1
    check_compressed((n, n), gram.values, gram.index, gram.starts)


def _sparse_factor(factor: Any) -> None:
    n = len(factor.pivots)
    _unit_lower(factor.lower, factor.pivots)
    check_permutation(factor.order, n, "the order of a factor")
    check_shape(factor.parent, (n,), "the tree of a factor")
    check_index(factor.parent, n, "the tree of a factor", least=-1)
    need(np.all((factor.parent == -1) | (factor.parent > np.arange(n))), "the tree of a factor has a cycle.")


def _incomplete(factor: Any) -> None:
    _unit_lower(factor.lower, factor.pivots)


def _unit_lower(lower: Any, pivots: FloatArray) -> None:
    """By columns, the diagonal first, sorted; one that was just made is checked as one that is read."""
    n = len(pivots)
    check_shape(pivots, (n,), "pivots of a factor")
    need(lower.shape == (n, n), "a factor has not as many pivots as columns.")
    check_compressed((n, n), lower.data, lower.indices, lower.indptr)
    need(np.all(np.diff(lower.indptr) >= 1), "a factor has empty columns.")
    need(np.array_equal(lower.indices[lower.indptr[:-1]], np.arange(n)), "a factor has no diagonal.")
    rising = np.diff(lower.indices) > 0
    rising[lower.indptr[1:-1] - 1] = True  # from one column to the next
    need(np.all(rising), "a factor is not sorted.")


PARTS = {
    "AllPairs": _all_pairs,
    "ArrayRows": _rows,
    "Basis": _basis,
    "BlockRecursion": _recursion,
    "Cells": _cells,
    "CholeskyFactor": _cholesky,
    "ConditionalStatistics": _conditional,
    "Grid": _grid,
    "Incomplete": _incomplete,
    "KernelExpansion": _expansion,
    "NormalStatistics": _statistics,
    "RidgeSolution": _solution,
    "Rules": _rules,
    "SequentialLearner": _learner,
    "SparseFactor": _sparse_factor,
    "SparseGram": _gram,
    "SparseKernel": _sparse_kernel,
    "Variance": _variance,
}
