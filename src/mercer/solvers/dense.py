"""Cholesky factors of dense symmetric matrices: in place, with jitter, with pivots."""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack, solve_triangular

from mercer._typing import FloatArray, IntArray
from mercer.exceptions import JitterWarning, NotPositiveDefiniteError

__all__ = ["CholeskyFactor", "PivotedFactor", "cholesky_in_place", "pivoted_cholesky"]

_LARGEST_JITTER = 1e-6  # relative to the largest diagonal entry: more would be regularisation, not rounding
_BLOCK = 512


@dataclass(frozen=True)
class CholeskyFactor:
    """H + jitter·I = LLᵀ.

    Attributes
    ----------
    lower : array (n, n)
        L in the lower triangle, Fortran-contiguous; what stands above the diagonal is not part of it.
    jitter : float
        What was added to the diagonal, 0 in regular cases.
    """

    lower: FloatArray
    jitter: float = 0.0

    def solve(self, right: FloatArray) -> FloatArray:
        """H⁻¹ right."""
        solution, info = lapack.dpotrs(self.lower, np.asarray(right, dtype=np.float64), lower=1)
        _no_illegal_argument(info)
        return np.asarray(solution)

    def half_solve(self, right: FloatArray) -> FloatArray:
        """L⁻¹ right."""
        return np.asarray(solve_triangular(self.lower, right, lower=True, check_finite=False))

    def inverse_diagonal(self) -> FloatArray:
        """Diagonal of H⁻¹, as squared column norms of L⁻¹, a block of columns at a time (n³/3 operations)."""
        size = len(self.lower)
        diagonal = np.empty(size)
        for start in range(0, size, _BLOCK):
            width = min(_BLOCK, size - start)
            # Columns start.. of L⁻¹ vanish above row start: solve with the trailing triangle only.
            columns = solve_triangular(
                self.lower[start:, start:], np.eye(size - start, width), lower=True, check_finite=False
            )
            diagonal[start : start + width] = np.einsum("ij,ij->j", columns, columns)
        return diagonal


def cholesky_in_place(matrix: FloatArray, *, name: str = "the kernel matrix plus noise") -> CholeskyFactor:
    """Factor a symmetric matrix (C-contiguous float64, both triangles given) in its own memory.

    Rounding-level loss of definiteness is repaired by the smallest jitter that works, and reported by a
    ``JitterWarning``. A pivot below n·eps times the largest diagonal entry counts as lost.

    Raises
    ------
    NotPositiveDefiniteError
        If a jitter of 1e-6 times the largest diagonal entry does not suffice.
    """
    size = len(matrix)
    diagonal = np.diagonal(matrix).copy()
    largest = float(np.max(diagonal, initial=0.0))
    lost = size * np.finfo(np.float64).eps * largest
    jitter = 0.0
    while True:
        # LAPACK sees the transpose, overwrites its lower triangle, our upper one; our lower one stays as it was.
        lower, info = lapack.dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
        if info == 0 and size and np.min(np.diagonal(lower)) ** 2 > lost:
            break
        jitter = 10.0 * max(jitter, lost)
        if not 0.0 < jitter <= _LARGEST_JITTER * largest:
            raise NotPositiveDefiniteError(_indefinite(name, diagonal))
        _restore(matrix, diagonal + jitter)
    if jitter:
        warnings.warn(
            f"{name} is singular to rounding; {jitter:.2g} was added to its diagonal. Duplicate rows and smooth "
            "kernels with little or no noise cause this; a larger noise avoids it.",
            JitterWarning,
            stacklevel=3,
        )
    return CholeskyFactor(lower=lower, jitter=jitter)


@dataclass(frozen=True)
class PivotedFactor:
    """K[order][:, order] = LLᵀ to rounding, with the rows that K's numerical rank leaves out dropped.

    Attributes
    ----------
    order : array (r,)
        Indices of the rows kept, greatest residual first.
    lower : array (r, r)
        L, Fortran-contiguous, zero above the diagonal.
    """

    order: IntArray
    lower: FloatArray

    @property
    def smallest_pivot(self) -> float:
        """Last pivot relative to the first: how far the last row is from the span of the others."""
        pivots = np.diagonal(self.lower)
        return float((pivots[-1] / pivots[0]) ** 2)


def pivoted_cholesky(
    matrix: FloatArray, *, tolerance: float, name: str = "the kernel matrix of the basis"
) -> PivotedFactor:
    """Factor a symmetric positive semi-definite matrix, greatest pivot first, down to a relative tolerance."""
    largest = float(np.max(np.diagonal(matrix), initial=0.0))
    if not (np.isfinite(largest) and largest > 0):
        raise NotPositiveDefiniteError(_indefinite(name, np.diagonal(matrix)))
    factor, pivots, rank, info = lapack.dpstrf(np.asfortranarray(matrix), lower=1, tol=tolerance * largest)
    _no_illegal_argument(info)
    order = pivots - 1
    if rank < len(matrix):
        _refuse_indefinite(matrix, order, rank, name)
    return PivotedFactor(order=order[:rank].copy(), lower=np.asfortranarray(np.tril(factor[:rank, :rank])))


def _refuse_indefinite(matrix: FloatArray, order: IntArray, rank: int, name: str) -> None:
    # A semi-definite matrix bounds its entries by its diagonal; an indefinite one gives itself away here.
    diagonal = np.diagonal(matrix)
    bound = np.sqrt(np.outer(np.maximum(diagonal[order[rank:]], 0.0), np.maximum(diagonal, 0.0)))
    slack = 1e-6 * np.max(np.abs(diagonal))
    if np.any(diagonal < 0) or np.any(np.abs(matrix[order[rank:]]) > bound + slack):
        raise NotPositiveDefiniteError(_indefinite(name, diagonal))


def _restore(matrix: FloatArray, diagonal: FloatArray) -> None:
    for start in range(0, len(matrix), _BLOCK):
        stop = start + _BLOCK
        block = matrix[start:stop, start:stop]
        block[...] = np.tril(block, -1) + np.tril(block, -1).T
        matrix[start:stop, stop:] = matrix[stop:, start:stop].T
    np.fill_diagonal(matrix, diagonal)


def _indefinite(name: str, diagonal: FloatArray) -> str:
    if not np.all(np.isfinite(diagonal)):
        return f"{name} contains NaN or infinity: the kernel overflows on these rows; scale them."
    return (
        f"{name} is not positive definite (its diagonal lies in [{np.min(diagonal, initial=np.inf):.3g}, "
        f"{np.max(diagonal, initial=-np.inf):.3g}]). Use a positive definite kernel, or a larger noise."
    )


def _no_illegal_argument(info: int) -> None:
    if info < 0:
        msg = f"LAPACK refused its argument number {-info}; this is a defect of mercer, please report it."
        raise RuntimeError(msg)
