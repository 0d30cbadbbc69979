"""The inverses P⁻¹ and K⁻¹ before and after a block of rows, compiled; and an inverse computed again."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from mercer._jit import jit
from mercer._typing import FloatArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.compiled_blas import (
    Routines,
    add_cross,
    add_gram,
    add_product,
    add_product_transposed,
    call_back,
    multiply_symmetric,
    stride,
)
from mercer.solvers.dense import mirror
from mercer.solvers.recursive.block import FACTOR, FULL, Block, Matrices

__all__ = ["apply", "error_of_inverse", "go_back", "inverse", "lower_factor", "multiply", "take_diagonal"]

# Odd numbers that spread bits: 2^64 over the golden ratio, and two with which a third of the bits mix well.
_GOLDEN, _LAST_BIT = np.uint64(0x9E3779B97F4A7C15), np.uint64(63)
_SHIFTS = np.uint64(30), np.uint64(27)
_MIXERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

_PANEL = 64  # columns that are computed together; see ``compiled_blas`` for what parts are good
_L = np.uint8(ord("L"))


@jit
def multiply(block: Block, matrix: FloatArray, products: Any) -> None:
    """Fill in the products of the rows of a block with an inverse, in rows of its table; zeros behind them."""
    table, tally, values, blas = block.table, block.tally[0], block.at.values, block.blas
    m, n_rows = tally.n_before, tally.n_rows
    left, out = table[values : values + n_rows, :m], table[products : products + n_rows, :m]
    if m <= FULL:
        add_product(blas, left, matrix[:m, :m], out, 0.0)
    else:
        for first in range(0, m, _PANEL):
            last = min(first + _PANEL, m)
            columns = out[:, first:last]
            multiply_symmetric(blas, left[:, first:last], matrix[first:last, first:last], columns)
            add_product(blas, left[:, :first], matrix[:first, first:last], columns, 1.0)
            add_product_transposed(blas, left[:, last:], matrix[first:last, last:m], columns, 1.0)
    for t in range(n_rows):
        for j in range(m, m + n_rows):
            table[products + t, j] = 0.0


@jit
def take_diagonal(block: Block, matrix: FloatArray, row: Any) -> None:
    """Fill in the diagonal of an inverse, in a row of the table; empty slots have zeros there."""
    table, tally = block.table, block.tally[0]
    for i in range(tally.n_before + tally.n_rows):
        table[row, i] = matrix[i, i] if i < tally.n_before else 0.0


@jit
def apply(block: Block, matrix: FloatArray, vectors: Any, number: Any) -> None:
    """Move the slots of newcomers to their places in an inverse, and add the sum of c vvᵀ; see ``close_block``.

    ``vectors`` is the first row of v in the block's table. Of a large inverse, the upper triangle is kept.
    """
    table, tally, blas, scaled = block.table, block.tally[0], block.blas, block.at.scaled
    size, moved = tally.size, block.moved[: tally.n_moved]
    for place in moved:
        _clear(matrix, place, size)
        for j in range(vectors, vectors + number):
            table[j, place] = table[j, block.origins[place]]
    part = matrix[:size, :size]
    if size <= FULL:
        for j in range(number):
            for i in range(size):
                table[scaled + j, i] = table[vectors + j, FACTOR] * table[vectors + j, i]
        tile = table[scaled : scaled + number, :size]
        add_cross(blas, part, tile, table[vectors : vectors + number, :size])
    else:
        middle = scaled + _scale(table, vectors, number, scaled, size)
        add_gram(blas, part, table[scaled:middle, :size], 1.0)
        add_gram(blas, part, table[middle : scaled + number, :size], -1.0)


@jit
def _clear(matrix: FloatArray, place: Any, size: Any) -> None:
    """Fill a row and a column with zeros; above the diagonal, if the matrix is large."""
    for i in range(place + 1 if size > FULL else size):
        matrix[i, place] = 0.0
    for i in range(np.uintp(place if size > FULL else 0), np.uintp(size)):
        matrix[place, i] = 0.0


@jit
def _scale(table: FloatArray, vectors: Any, number: Any, scaled: Any, size: Any) -> Any:
    """Fill rows with vectors times the roots of their factors, the positive ones first; return how many these are."""
    n_positive = 0
    for j in range(vectors, vectors + number):
        n_positive += table[j, FACTOR] > 0.0
    row_of_positive, row_of_negative = scaled, scaled + n_positive
    for j in range(vectors, vectors + number):
        root, is_positive = np.sqrt(np.abs(table[j, FACTOR])), table[j, FACTOR] > 0.0
        row = row_of_positive if is_positive else row_of_negative
        for i in range(size):
            table[row, i] = root * table[j, i]
        row_of_positive += is_positive
        row_of_negative += not is_positive
    return n_positive


@jit
def go_back(P: FloatArray, K: FloatArray, size: Any, sigma: Any, tau: Any) -> None:
    """P⁻¹ = σM + τK⁻¹ after a block; the upper triangles, if they are large."""
    for i in range(size):
        for j in range(0 if size <= FULL else i, size):
            P[i, j] = sigma * P[i, j] + tau * K[i, j]


@jit
def error_of_inverse(blas: Routines, matrices: Matrices, sizes: Any, scratch: FloatArray) -> Any:
    """The largest entry of K⁻¹(Kz) - z, for a z of random signs; ``sizes``: functions, constant ones, seed."""
    (size, fixed, seed), K, gram = sizes, matrices.K, matrices.gram
    signs, products, result = scratch[0], scratch[1], scratch[2]
    for i in range(size):
        signs[i] = 0.0 if i < fixed else _sign(i, seed)
    if size > 0:
        call_back(blas.symv, (_L, size, 1.0, gram, stride(gram), signs, 1, 0.0, products, 1))
        call_back(blas.symv, (_L, size, 1.0, K, stride(K), products, 1, 0.0, result, 1))
    largest = 0.0
    for i in range(fixed, size):
        error = abs(result[i] - signs[i])
        if not error <= largest:
            largest = error
    return largest


@jit
def _sign(place: Any, seed: Any) -> float:
    """A sign that looks random: a bit of a hash of place and seed."""
    bits = (np.uint64(place) + np.uint64(seed)) * _GOLDEN
    bits = (bits ^ (bits >> _SHIFTS[0])) * _MIXERS[0]
    bits = (bits ^ (bits >> _SHIFTS[1])) * _MIXERS[1]
    return 1.0 if bits >> _LAST_BIT else -1.0


def inverse(matrix: FloatArray) -> FloatArray:
    """Inverse of a positive definite matrix."""
    if not len(matrix):
        return matrix.copy()
    result = np.ascontiguousarray(dpotri(lower_factor(matrix), lower=1)[0].T)  # the upper triangle, in rows
    mirror(result)
    return result


def lower_factor(matrix: FloatArray) -> FloatArray:
    """L with LLᵀ = matrix, which must be positive definite; what is above the diagonal is zero."""
    lower, info = dpotrf(matrix, lower=1)
    if info != 0:
        msg = "the functions of the dictionary span each other to rounding. Use a larger novelty_tol, or noise."
        raise NotPositiveDefiniteError(msg)
    return np.asarray(lower)
