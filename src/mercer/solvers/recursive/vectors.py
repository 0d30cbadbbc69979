"""Rows of a table: vectors over the slots of a block, and sums of products c vvᵀ of them.

A row is passed by its number, and no view of it is taken: that costs as much as the work on a short row does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer._jit import inlined, jit_sum
from mercer._typing import FloatArray
from mercer.solvers.recursive.block import FACTOR

__all__ = ["add_column", "add_multiple", "add_projections", "add_squares", "fill_with_zeros", "product"]


@inlined
def add_multiple(table: FloatArray, target: Any, row: Any, factor: Any, size: Any) -> None:
    """Add a multiple of a row to another."""
    for i in range(size):
        table[target, i] += factor * table[row, i]


@inlined
def product(table: FloatArray, row: Any, other: Any, size: Any) -> Any:
    """The inner product of two rows."""
    total = 0.0
    for i in range(size):
        total += table[row, i] * table[other, i]
    return total


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
def add_projections(table: FloatArray, target: Any, k: Any, first: Any, number: Any, size: Any) -> None:
    """Add Σ c (v·k) v, over a number of vectors, to a row; k is a row, too.

    Four vectors are taken at a time, which stay in the cache between product and sum.
    """
    alone = first + number % 4
    for v in range(first, alone):
        add_multiple(table, target, v, product(table, v, k, size) * table[v, FACTOR], size)
    for v in range(alone, first + number, 4):
        p0, p1, p2, p3 = 0.0, 0.0, 0.0, 0.0
        for i in range(size):
            p0 += table[v, i] * table[k, i]
            p1 += table[v + 1, i] * table[k, i]
            p2 += table[v + 2, i] * table[k, i]
            p3 += table[v + 3, i] * table[k, i]
        _add_four(table, target, v, (p0, p1, p2, p3), size)


@jit_sum
def add_column(table: FloatArray, target: Any, place: Any, first: Any, number: Any, size: Any) -> None:
    """Add column ``place`` of Σ c vvᵀ, over a number of vectors, to a row."""
    alone = first + number % 4
    for v in range(first, alone):
        add_multiple(table, target, v, table[v, place] * table[v, FACTOR], size)
    for v in range(alone, first + number, 4):
        along = (table[v, place], table[v + 1, place], table[v + 2, place], table[v + 3, place])
        _add_four(table, target, v, along, size)


@inlined
def _add_four(table: FloatArray, target: Any, v: Any, along: Any, size: Any) -> None:
    """Add multiples of four vectors, from v on, to a row."""
    p0, p1, p2, p3 = along
    f0, f1, f2, f3 = table[v, FACTOR], table[v + 1, FACTOR], table[v + 2, FACTOR], table[v + 3, FACTOR]
    f0, f1, f2, f3 = p0 * f0, p1 * f1, p2 * f2, p3 * f3
    for i in range(size):
        table[target, i] += f0 * table[v, i] + f1 * table[v + 1, i] + f2 * table[v + 2, i] + f3 * table[v + 3, i]
