"""What happens to an inverse when a block of rows has been learned, and an inverse computed anew."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from mercer._jit import jit
from mercer._typing import FloatArray, IntArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.blas import mirror
from mercer.solvers.compiled_blas import Routines, add_cross, add_gram, add_product, multiply_symmetric
from mercer.solvers.recursive.state import BEFORE, FULL, N_G, N_V, ROWS, SIGMA, SIZE, TAU, Data, Limits, State
from mercer.solvers.recursive.steps import learn_rows

__all__ = [
    "care_for",
    "inverse",
    "learn_block",
    "learn_blocks",
    "lower_factor",
    "multiply",
    "open_block",
]


@jit
def learn_blocks(blas: Routines, state: State, before: Any, limits: Limits, data: Data, first: Any) -> None:
    """Learn rows, in blocks; ``before`` are P⁻¹ and K⁻¹, ``first`` is the number of the first row."""
    P, K = before
    for start in range(0, len(data.prior), len(state.values)):
        open_block(state, data, start, first)
        multiply(blas, P, state.values, state.u, state.P_diagonal, state.counts)
        multiply(blas, K, state.values, state.a, state.K_diagonal, state.counts)
        learn_rows(blas, state, before, limits, data, start)
        close_block(state, data, start)
        apply(blas, P, (state.V, state.c, state.counts[N_V]), state.source, state.P_room, state.counts)
        apply(blas, K, (state.G, state.d, state.counts[N_G]), state.source, state.K_room, state.counts)
        if limits.forgetting < 1.0:
            go_back(P, K, state)


@jit
def learn_block(blas: Routines, state: State, ahead: State, before: Any, limits: Limits, rest: Any) -> None:
    """Learn the rows of a block that is open, and open the next one in another state; the inverses stay as they are.

    ``rest`` are the data, where the block starts in them, and the number of their first row.
    """
    data, start, first = rest
    learn_rows(blas, state, before, limits, data, start)
    close_block(state, data, start)
    for place in range(state.counts[SIZE]):
        ahead.births[place], ahead.columns[place] = state.births[place], state.columns[place]
        for o in range(len(state.w)):
            ahead.w[o, place] = state.w[o, place]
    ahead.counts[:], ahead.numbers[:] = state.counts, state.numbers
    if start + state.counts[ROWS] < len(data.prior):
        open_block(ahead, data, start + state.counts[ROWS], first)


@jit
def care_for(blas: Routines, matrix: FloatArray, learned: Any, source: IntArray, ahead: Any) -> None:
    """Apply a block to an inverse, and multiply the rows of the next block, if there are any.

    ``learned`` are vectors, factors, how many, room and counts; ``ahead`` values, products, diagonal and counts.
    """
    vectors, factors, number, room, counts = learned
    values, products, diagonal, next_counts = ahead
    apply(blas, matrix, (vectors, factors, number), source, room, counts)
    if next_counts[N_V] == 0:  # nothing was learned yet: it is open
        multiply(blas, matrix, values, products, diagonal, next_counts)


@jit
def open_block(state: State, data: Data, start: Any, first: Any) -> None:
    """Begin a block, the rows of the data from ``start`` on, but for what they are to the functions before it."""
    values, columns, counts = state.values, state.columns, state.counts
    m, n_rows = counts[SIZE], min(len(values), len(data.prior) - start)
    own = data.values.shape[1] - len(data.prior) + start
    counts[BEFORE], counts[ROWS], counts[N_V], counts[N_G] = m, n_rows, 0, 0
    state.numbers[SIGMA], state.numbers[TAU] = 1.0, 0.0
    n_moved = _moved(columns, m, state.source)
    for t in range(n_rows):
        for j in range(m):
            values[t, j] = data.values[start + t, j]
        for j in range(n_moved):
            values[t, state.source[j]] = data.values[start + t, columns[state.source[j]]]
        for j in range(n_rows):
            values[t, m + j] = data.values[start + t, own + j]
            state.u[t, m + j], state.a[t, m + j] = 0.0, 0.0
        state.births[m + t] = first + start + t
    for i in range(m):
        state.used[i], state.homes[i] = 1.0, i
    state.used[m : m + n_rows] = 0.0
    state.w[:, m : m + n_rows] = 0.0


@jit
def close_block(state: State, data: Data, start: Any) -> None:
    """Have newcomers take the places that they found: fill in ``source``, move coefficients, births and columns."""
    counts, source = state.counts, state.source
    own = data.values.shape[1] - len(data.prior) + start
    m = counts[BEFORE]
    for place in range(counts[SIZE]):
        source[place] = place
    for slot in range(m, m + counts[ROWS]):
        if state.used[slot] > 0.0:
            source[state.homes[slot]] = slot
    for place in range(counts[SIZE]):  # a newcomer never comes from a slot before its place
        slot = source[place]
        if slot >= m:
            state.columns[place] = own + slot - m
        if slot != place:
            state.births[place] = state.births[slot]
            for o in range(len(state.w)):
                state.w[o, place] = state.w[o, slot]


@jit
def _moved(numbers: IntArray, size: Any, out: IntArray) -> Any:
    """Fill in which of the first numbers are not their own places; return how many."""
    found = 0
    for place in range(size):
        if numbers[place] != place:
            out[found] = place
            found += 1
    return found


@jit
def multiply(
    blas: Routines, matrix: FloatArray, values: FloatArray, products: FloatArray, diagonal: FloatArray, counts: IntArray
) -> None:
    """Fill in the products of the rows of a block with an inverse, and its diagonal; empty slots have zeros there."""
    m, n_rows, slots, stride = counts[BEFORE], counts[ROWS], values.shape[1], matrix.shape[1]
    if m <= FULL:
        add_product(blas, values, matrix, products, (n_rows, m, m, slots, stride, slots, False, 0.0))
    else:
        multiply_symmetric(blas, values, matrix, products, (n_rows, m, slots, stride, slots))
    for i in range(m):
        diagonal[i] = matrix[i, i]
    diagonal[m : m + n_rows] = 0.0


@jit
def apply(blas: Routines, matrix: FloatArray, sums: Any, source: IntArray, room: FloatArray, counts: IntArray) -> None:
    """Move slots of a matrix to their places, and add the sum of c vvᵀ; to its upper triangle, if it is large.

    Parameters
    ----------
    blas : Routines
    matrix : array (q, q)
        Its first rows and columns are in use; those of newcomers are overwritten.
    sums : arrays (j, s), (j,), int
        Vectors, which are moved likewise, factors, how many of them to add.
    source : array (m,)
        The slot that each place is taken by: another one than its own if a newcomer's.
    room : array (j, s)
    counts : array
    """
    (vectors, factors, number), size, stride = sums, counts[SIZE], matrix.shape[1]
    moved = np.empty(size, dtype=np.intp)
    moved = moved[: _moved(source, size, moved)]
    for place in range(counts[BEFORE], size):
        matrix[place, :size] = 0.0
        matrix[:size, place] = 0.0
    for place in moved:
        matrix[place, :size] = 0.0
        matrix[:size, place] = 0.0
        for j in range(number):
            vectors[j, place] = vectors[j, source[place]]
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


@jit
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


@jit
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
