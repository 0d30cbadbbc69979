"""What happens to an inverse when a block of rows has been learned, and an inverse computed anew."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from mercer._jit import in_place
from mercer._typing import FloatArray, IntArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.blas import mirror
from mercer.solvers.compiled_blas import Routines, add_cross, add_gram, add_product, multiply_symmetric, symmetric_times
from mercer.solvers.recursive.state import BEFORE, FULL, ROWS, SIGMA, SIZE, TAU, Matrices, State

__all__ = [
    "apply",
    "clear_behind",
    "error_of_inverse",
    "go_back",
    "inverse",
    "lower_factor",
    "moved",
    "multiply",
    "multiply_panel",
    "n_panels",
    "take_diagonal",
]

# Odd numbers that spread bits: 2^64 over the golden ratio, and two with which a third of the bits mix well.
_GOLDEN, _LAST_BIT = np.uint64(0x9E3779B97F4A7C15), np.uint64(63)
_SHIFTS = np.uint64(30), np.uint64(27)
_MIXERS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


_PANEL = 64  # columns that are computed together; see ``compiled_blas`` for what parts are good


@in_place
def moved(numbers: IntArray, size: Any, out: IntArray) -> Any:
    """Fill in which of the first numbers are not their own places; return how many."""
    found = 0
    for place in range(size):
        if numbers[place] != place:
            out[found] = place
            found += 1
    return found


@in_place
def multiply(blas: Routines, matrix: FloatArray, values: FloatArray, products: FloatArray, sizes: Any) -> None:
    """Fill in the products of the rows of a block with an inverse; ``sizes``: m, their number, zeros behind them."""
    (m, n_rows, _), slots, stride = sizes, values.shape[1], matrix.shape[1]
    if m <= FULL:
        add_product(blas, values, matrix, products, (n_rows, m, m, slots, stride, slots, False, 0.0))
    else:
        for panel in range(n_panels(m)):
            multiply_panel(blas, matrix, values, products, (m, n_rows, panel))
    clear_behind(products, sizes)


@in_place
def n_panels(m: Any) -> Any:
    """Of so many columns."""
    return -(-m // _PANEL)


@in_place
def multiply_panel(blas: Routines, matrix: FloatArray, values: FloatArray, products: FloatArray, sizes: Any) -> None:
    """Fill in some columns of the products, from the upper triangle of the inverse; ``sizes``: m, rows, which ones."""
    (m, n_rows, panel), slots, stride = sizes, values.shape[1], matrix.shape[1]
    first = panel * _PANEL
    behind = min(first + _PANEL, m)
    number, mine = behind - first, products[:, first:]
    multiply_symmetric(blas, values[:, first:], matrix[first:, first:], mine, (n_rows, number, slots, stride, slots))
    if first > 0:
        above = (n_rows, number, first, slots, stride, slots, False, 1.0)
        add_product(blas, values, matrix[:, first:], mine, above)
    if behind < m:
        beside = (n_rows, number, m - behind, slots, stride, slots, True, 1.0)
        add_product(blas, values[:, behind:], matrix[first:, behind:], mine, beside)


@in_place
def clear_behind(products: FloatArray, sizes: Any) -> None:
    """Fill with zeros what is behind the products; ``sizes`` as of ``multiply``."""
    m, n_rows, n_zeros = sizes
    for t in range(n_rows):
        for j in range(n_zeros):
            products[t, m + j] = 0.0


@in_place
def take_diagonal(matrix: FloatArray, diagonal: FloatArray, counts: IntArray) -> None:
    """Fill in the diagonal of an inverse; empty slots have zeros there."""
    m = counts[BEFORE]
    for i in range(m):
        diagonal[i] = matrix[i, i]
    for i in range(m, m + counts[ROWS]):
        diagonal[i] = 0.0


@in_place
def error_of_inverse(blas: Routines, matrices: Matrices, sizes: Any, scratch: FloatArray) -> Any:
    """The largest entry of K⁻¹(Kz) - z, for a z of random signs; ``sizes``: functions, constant ones, seed."""
    (size, fixed, seed), K, gram = sizes, matrices.K, matrices.gram
    signs, products, result = scratch[0], scratch[1], scratch[2]
    for i in range(size):
        signs[i] = 0.0 if i < fixed else _sign(i, seed)
    symmetric_times(blas, gram, signs, products, (size, gram.shape[1]))
    symmetric_times(blas, K, products, result, (size, K.shape[1]))
    largest = 0.0
    for i in range(fixed, size):
        error = abs(result[i] - signs[i])
        if not error <= largest:
            largest = error
    return largest


@in_place
def _sign(place: Any, seed: Any) -> float:
    """A sign that looks random: a bit of a hash of place and seed."""
    bits = (np.uint64(place) + np.uint64(seed)) * _GOLDEN
    bits = (bits ^ (bits >> _SHIFTS[0])) * _MIXERS[0]
    bits = (bits ^ (bits >> _SHIFTS[1])) * _MIXERS[1]
    return 1.0 if bits >> _LAST_BIT else -1.0


@in_place
def apply(blas: Routines, matrix: FloatArray, sums: Any, slots: Any, room: FloatArray, counts: IntArray) -> None:
    """Move slots of a matrix to their places, and add the sum of c vvᵀ; to its upper triangle, if it is large.

    Parameters
    ----------
    blas : Routines
    matrix : array (q, q)
        Its first rows and columns are in use; those of newcomers are overwritten.
    sums : arrays (j, s), (j,), int
        Vectors, which are moved likewise, factors, how many of them to add.
    slots : arrays (m,), (m,)
        The slot that each place is taken by: another one than its own if a newcomer's; room.
    room : array (j, s)
    counts : array
    """
    (vectors, factors, number), (source, places), size, stride = sums, slots, counts[SIZE], matrix.shape[1]
    n_moved = moved(source, size, places)
    for place in range(counts[BEFORE], size):
        _clear(matrix, place, size)
    for i in range(n_moved):
        _clear(matrix, places[i], size)
    for j in range(number):
        for i in range(n_moved):
            vectors[j, places[i]] = vectors[j, source[places[i]]]
    width = room.shape[1]
    if size <= FULL:
        for j in range(number):
            for i in range(size):
                room[j, i] = factors[j] * vectors[j, i]
        add_cross(blas, matrix, room, vectors, (number, size, stride, width))
    else:
        n_positive = _pack(vectors, factors, number, room, size)
        add_gram(blas, matrix, room, 1.0, (n_positive, size, stride, width))
        add_gram(blas, matrix, room[n_positive:], -1.0, (number - n_positive, size, stride, width))


@in_place
def _clear(matrix: FloatArray, place: Any, size: Any) -> None:
    """Fill a row and a column with zeros; above the diagonal, if the matrix is large."""
    for i in range(place + 1 if size > FULL else size):
        matrix[i, place] = 0.0
    for i in range(np.uintp(place if size > FULL else 0), np.uintp(size)):
        matrix[place, i] = 0.0


@in_place
def _pack(vectors: FloatArray, factors: FloatArray, number: Any, room: FloatArray, size: Any) -> Any:
    """Fill room with the vectors times the roots of their factors, the positive ones first; return their number."""
    n_positive = 0
    for j in range(number):
        n_positive += 1 if factors[j] > 0.0 else 0
    at_positive, at_negative = 0, n_positive
    for j in range(number):
        root = np.sqrt(np.abs(factors[j]))
        if factors[j] > 0.0:
            at, at_positive = at_positive, at_positive + 1
        else:
            at, at_negative = at_negative, at_negative + 1
        for i in range(size):
            room[at, i] = root * vectors[j, i]
    return n_positive


@in_place
def go_back(P: FloatArray, K: FloatArray, state: State) -> None:
    """P⁻¹ = σM + τK⁻¹ after a block; the upper triangles, if they are large."""
    size, sigma, tau = state.counts[SIZE], state.numbers[SIGMA], state.numbers[TAU]
    for i in range(size):
        for j in range(0 if size <= FULL else i, size):
            P[i, j] = sigma * P[i, j] + tau * K[i, j]


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
