"""Sums of products c vvᵀ that are not yet applied to a matrix: vectors in the rows of a table, and their factors.

Functions here take tables and the number of a row, and no views of rows: taking a view costs as much as the work on a
short row does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer._jit import always_inline, in_place_sum, wide_vectors
from mercer._typing import FloatArray
from mercer.solvers.compiled_blas import Routines, add_product
from mercer.solvers.recursive.state import FULL

__all__ = ["add_column", "add_projections", "add_squares", "append", "copy_row", "fill_with_zeros", "fold"]

_inline: Any = always_inline
_wide: Any = wide_vectors


@in_place_sum
def fold(blas: Routines, values: FloatArray, products: FloatArray, sums: Any, room: FloatArray, span: Any) -> None:
    """Account for vectors ``first`` to ``last`` in the products of the rows from t on.

    ``span`` are the number of these rows, t, first, last, and the number of slots.
    """
    (vectors, factors), (n_rows, t, first, last, slots) = sums, span
    number, stride, width = last - first, values.shape[1], room.shape[1]
    if number == 0:
        return
    new = vectors[first:]
    add_product(blas, values[t:], new, room, (n_rows, number, slots, stride, stride, width, True, 0.0))
    for i in range(n_rows):
        for j in range(number):
            room[i, j] *= factors[first + j]
    add_product(blas, room, new, products[t:], (n_rows, slots, number, width, stride, stride, False, 1.0))


@in_place_sum
def add_projections(
    products: FloatArray, values: FloatArray, t: Any, vectors: FloatArray, factors: FloatArray, span: Any
) -> None:
    """Add Σ c (v·k) v to a row: four vectors at a time, which stay in the cache between product and sum."""
    _inline()
    _wide()
    first, last, size = span
    alone = first + (last - first) % 4
    for j in range(first, alone):
        along = 0.0
        for i in range(size):
            along += vectors[j, i] * values[t, i]
        along *= factors[j]
        for i in range(size):
            products[t, i] += along * vectors[j, i]
    for j in range(alone, last, 4):
        p0, p1, p2, p3 = 0.0, 0.0, 0.0, 0.0
        for i in range(size):
            k = values[t, i]
            p0 += vectors[j, i] * k
            p1 += vectors[j + 1, i] * k
            p2 += vectors[j + 2, i] * k
            p3 += vectors[j + 3, i] * k
        fours = (p0 * factors[j], p1 * factors[j + 1], p2 * factors[j + 2], p3 * factors[j + 3])
        _add_four(products, t, vectors, j, fours, size)


@in_place_sum
def _add_four(target: FloatArray, t: Any, vectors: FloatArray, j: Any, factors: Any, size: Any) -> None:
    _inline()
    _wide()
    f0, f1, f2, f3 = factors
    for i in range(size):
        target[t, i] += f0 * vectors[j, i] + f1 * vectors[j + 1, i] + f2 * vectors[j + 2, i] + f3 * vectors[j + 3, i]


@in_place_sum
def add_column(target: FloatArray, t: Any, sums: Any, span: Any) -> None:
    """Add column ``place`` of Σ c vvᵀ to a row; ``span``: number of vectors, place, size."""
    _inline()
    _wide()
    (vectors, factors), (last, place, size) = sums, span
    alone = last % 4
    for j in range(alone):
        factor = factors[j] * vectors[j, place]
        for i in range(size):
            target[t, i] += factor * vectors[j, i]
    for j in range(alone, last, 4):
        along = (
            factors[j] * vectors[j, place],
            factors[j + 1] * vectors[j + 1, place],
            factors[j + 2] * vectors[j + 2, place],
            factors[j + 3] * vectors[j + 3, place],
        )
        _add_four(target, t, vectors, j, along, size)


@in_place_sum
def append(sums: Any, number: Any, scratch: FloatArray, what: Any) -> Any:
    """Append a row of scratch, zeros behind its first entries, and its factor; return how many vectors there are."""
    _inline()
    _wide()
    (vectors, factors), (row, size, slots, factor) = sums, what
    for i in range(size):
        vectors[number, i] = scratch[row, i]
    fill_with_zeros(vectors, number, size, slots)
    factors[number] = factor
    return number + 1


@in_place_sum
def fill_with_zeros(vectors: FloatArray, number: Any, first: Any, last: Any) -> None:
    """Fill some entries of a row with zeros."""
    _inline()
    for i in range(np.uintp(first), np.uintp(last)):  # signed numbers, which may count from the end, are slower
        vectors[number, i] = 0.0


@in_place_sum
def add_squares(vector: FloatArray, scratch: FloatArray, row: Any, factor: Any, size: Any) -> None:
    """Add the squares of a row of scratch, times a factor."""
    _inline()
    _wide()
    for i in range(size):
        vector[i] += factor * scratch[row, i] * scratch[row, i]


@in_place_sum
def copy_row(scratch: FloatArray, row: Any, matrix: FloatArray, place: Any, sizes: Any) -> None:
    """Fill in a row of a symmetric matrix, of a large one from its upper triangle; zeros in slots beyond it."""
    _inline()
    m, size = sizes
    if place < m:
        above = place if m > FULL else 0  # entries that are known above the diagonal only
        for i in range(above):
            scratch[row, i] = matrix[i, place]
        for i in range(np.uintp(above), np.uintp(m)):
            scratch[row, i] = matrix[place, i]
    fill_with_zeros(scratch, row, m if place < m else 0, size)
