"""What happens to an inverse when a block of rows has been learned, and an inverse computed anew."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from mercer._jit import jit
from mercer._typing import FloatArray, IntArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.blas import add_gram, mirror

__all__ = ["apply", "inverse", "lower_factor"]


def apply(matrix: FloatArray, vectors: FloatArray, factors: FloatArray, number: int, source: IntArray) -> None:
    """Move slots of a matrix to their places, and add the sum of c vvᵀ of the first vectors, to its upper triangle.

    Parameters
    ----------
    matrix : array (m, m)
        Symmetric; rows and columns of newcomers are overwritten.
    vectors, factors : arrays (j, s), (j,)
    number : int
        How many of the vectors to add.
    source : array (m,)
        The slot that each place is taken by: another one than its own if a newcomer's.
    """
    positive, negative = _packed(matrix, vectors, factors, number, source)
    add_gram(matrix, positive)
    add_gram(matrix, negative, -1.0)


@jit
def _packed(matrix: FloatArray, vectors: FloatArray, factors: FloatArray, number: Any, source: IntArray) -> Any:
    """Clear the places of newcomers; return the vectors times the roots of their positive and negative factors."""
    for place in range(len(source)):
        if source[place] != place:
            matrix[place] = 0.0
            matrix[:, place] = 0.0
    n_positive = 0
    for j in range(number):
        n_positive += 1 if factors[j] > 0.0 else 0
    positive, negative = np.empty((n_positive, len(source))), np.empty((number - n_positive, len(source)))
    at_positive, at_negative = 0, 0
    for j in range(number):
        root = np.sqrt(np.abs(factors[j]))
        if factors[j] > 0.0:
            for i in range(len(source)):
                positive[at_positive, i] = root * vectors[j, source[i]]
            at_positive += 1
        else:
            for i in range(len(source)):
                negative[at_negative, i] = root * vectors[j, source[i]]
            at_negative += 1
    return positive, negative


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
