"""Rows of a table: vectors over the slots of a block, and sums of products c vvᵀ of them.

A row is passed by its number, and no view of it is taken: that costs as much as the work on a short row does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer._jit import inlined, jit_sum
from mercer._typing import FloatArray

__all__ = ["add_column", "add_multiple", "add_projections", "add_squares", "fill_with_zeros"]


@inlined
def add_multiple(table: FloatArray, target: Any, row: Any, factor: Any, size: Any) -> None:
    """Add a multiple of a row to another."""
    for i in range(size):
        table[target, i] += factor * table[row, i]


@inlined
def add_squares(table: FloatArray, target: Any, row: Any, factor: Any, size: Any) -> None:
    """Add the squares of a row, times a factor, to another."""
    for i in range(size):
        table[target, i] += factor * table[row, i] * table[row, i]


@inlined
def fill_with_zeros(table: FloatArray, row: Any, first: Any, last: Any) -> None:
    """Fill some entries of a row with zeros."""
    for i in range(np.uintp(first), np.uintp(last)):  # signed numbers, which may count from the end, are slower
        table[row, i] = 0.0


@jit_sum
def add_projections(table: FloatArray, target: Any, k: Any, factors: FloatArray, span: Any) -> None:
    """Add Σ c (v·k) v to a row: four vectors at a time, which stay in the cache between product and sum.

    ``span`` are the first of all vectors, the first and the last of those to add, and the size.
    """
    vectors, first, last, size = span
    alone = first + (last - first) % 4
    for j in range(first, alone):
        along, v = 0.0, vectors + j
        for i in range(size):
            along += table[v, i] * table[k, i]
        add_multiple(table, target, v, along * factors[j], size)
    for j in range(alone, last, 4):
        p0, p1, p2, p3, v = 0.0, 0.0, 0.0, 0.0, vectors + j
        for i in range(size):
            p0 += table[v, i] * table[k, i]
            p1 += table[v + 1, i] * table[k, i]
            p2 += table[v + 2, i] * table[k, i]
            p3 += table[v + 3, i] * table[k, i]
        four = (p0 * factors[j], p1 * factors[j + 1], p2 * factors[j + 2], p3 * factors[j + 3])
        _add_four(table, target, v, four, size)


@jit_sum
def add_column(table: FloatArray, target: Any, factors: FloatArray, span: Any, place: Any) -> None:
    """Add column ``place`` of Σ c vvᵀ to a row; ``span`` are the first vector, their number, and the size."""
    vectors, number, size = span
    alone = number % 4
    for j in range(alone):
        add_multiple(table, target, vectors + j, factors[j] * table[vectors + j, place], size)
    for j in range(alone, number, 4):
        v = vectors + j
        p0, p1 = factors[j] * table[v, place], factors[j + 1] * table[v + 1, place]
        p2, p3 = factors[j + 2] * table[v + 2, place], factors[j + 3] * table[v + 3, place]
        _add_four(table, target, v, (p0, p1, p2, p3), size)


@inlined
def _add_four(table: FloatArray, target: Any, v: Any, factors: Any, size: Any) -> None:
    """Add multiples of four rows, from v on, to another."""
    f0, f1, f2, f3 = factors
    for i in range(size):
        table[target, i] += f0 * table[v, i] + f1 * table[v + 1, i] + f2 * table[v + 2, i] + f3 * table[v + 3, i]
