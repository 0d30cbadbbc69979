"""The inverses P⁻¹ and K⁻¹ before and after a block of rows, compiled; and an inverse computed again.

Of a symmetric matrix panels of columns are kept: rows 0..last of columns first..last. Small ones are kept whole.
"""

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from mercer._jit import jit
from mercer._typing import FloatArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.compiled_blas import LOWER, PLAIN, TRANSPOSED, Routines, add_product, call_back, stride
from mercer.solvers.dense import mirror
from mercer.solvers.recursive.block import PANEL, Block, Matrices, Vectors

# How far K⁻¹(Kz) may be from z, of random signs, before K⁻¹ is computed again; its relative error is then about 1e-9.
SPOILT = 1e-7

_GOLDEN, _LAST_BIT = np.uint64(0x9E3779B97F4A7C15), np.uint64(63)  # 2^64 over the golden ratio


@jit
def multiply(blas: Routines, values: FloatArray, matrix: FloatArray, products: FloatArray) -> None:
    """Fill in the products of values (b, m) with an inverse."""
    n_rows, m = values.shape
    for first in range(0, m, PANEL):
        last = min(first + PANEL, m)
        out = products[:n_rows, first:last]
        add_product(blas, (PLAIN, PLAIN), values[:, :last], matrix[:last, first:last], out, 0.0)
        add_product(blas, (PLAIN, TRANSPOSED), values[:, last:], matrix[first:last, last:m], out, 1.0)


@jit
def apply(block: Block, matrix: FloatArray, vectors: Vectors, number: Any) -> None:
    """Move the slots of newcomers to their places in an inverse, and add the sum of c vvᵀ over a number of vectors."""
    tally, rows, scaled = block.tally[0], vectors.rows, block.scaled
    size = tally.size
    for place in block.moved[: tally.n_moved]:
        first = place - place % PANEL
        for i in range(min(first + PANEL, size)):
            matrix[i, place] = 0.0
        for i in range(np.uintp(first), np.uintp(size)):
            matrix[place, i] = 0.0
        for j in range(number):
            rows[j, place] = rows[j, block.origins[place]]
    for j in range(number):
        for i in range(size):
            scaled[j, i] = vectors.factors[j] * rows[j, i]
    for first in range(0, size, PANEL):
        last = min(first + PANEL, size)
        part, forms = matrix[:last, first:last], (TRANSPOSED, PLAIN)
        add_product(block.blas, forms, scaled[:number, :last], rows[:number, first:last], part, 1.0)


@jit
def go_back(matrices: Matrices, tally: Any) -> None:
    """P⁻¹ = σM + τK⁻¹ after a block."""
    P, K, sigma, tau = matrices.P, matrices.K, tally.sigma, tally.tau
    for i in range(tally.size):
        for j in range(i - i % PANEL, tally.size):
            P[i, j] = sigma * P[i, j] + tau * K[i, j]


@jit
def check(block: Block, matrices: Matrices, seed: Any) -> None:
    """Note as drift the largest entry of K⁻¹(Kz) - z, for a z of signs that look random."""
    tally, K, gram, fixed = block.tally[0], matrices.K, matrices.gram, int(block.rules.intercept)
    size, signs, products, result = tally.size, block.scratch[0], block.scratch[1], block.scratch[2]
    for i in range(size):  # n² times the golden ratio is spread evenly between whole numbers
        n = np.uint64(seed + i)
        signs[i] = 0.0 if i < fixed else 1.0 if n * n * _GOLDEN >> _LAST_BIT else -1.0
    call_back(block.blas.symv, (LOWER, size, 1.0, gram, stride(gram), signs, 1, 0.0, products, 1))
    call_back(block.blas.symv, (LOWER, size, 1.0, K, stride(K), products, 1, 0.0, result, 1))
    tally.n_changed, tally.drift = 0, 0.0
    for i in range(fixed, size):
        error = abs(result[i] - signs[i])
        if not error <= tally.drift:
            tally.drift = error


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
