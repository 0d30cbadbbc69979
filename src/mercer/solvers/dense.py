"""Cholesky factors of dense symmetric matrices: in place, with jitter, with pivots."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.linalg import lapack, solve_triangular

from mercer._stored import stored
from mercer._stored.checks import check_lower
from mercer._typing import FloatArray, IntArray
from mercer.exceptions import JitterWarning, NotPositiveDefiniteError
from mercer.solvers.blas import whiten

__all__ = [
    "MOVING_JITTERS",
    "WEIGHING_JITTERS",
    "CholeskyFactor",
    "PivotedFactor",
    "cholesky_in_place",
    "least_jitter",
    "pivoted_cholesky",
]

_Factor = TypeVar("_Factor")

# Shares of the diagonal that are added, in turn, where a matrix is singular to rounding.
# In a system that is solved, of the largest entry: √eps balances the error of the jitter itself against the rounding
# that it leaves (eps/jitter); ten times the last would be regularisation.
_SOLVING_JITTERS = (0.0, 1.5e-8, 1.5e-7, 1.5e-6)
# In a covariance Λ of rows given a basis, of each k(x, x): first some hundred times its rounding. Λ weighs the rows and
# does not bias the fit, so the jitter may be smaller than for a system that is solved; but not much, as rows of
# enormous weight leave no digits of the others in the sums.
WEIGHING_JITTERS = (0.0, 1e-10, 1e-8, 1e-6)
# In the kernel matrix of points that are moved, of the mean of k(z, z): they may meet on the way, and the smaller the
# jitter, the less the objective is changed where they do.
MOVING_JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)
_BLOCK = 512
_SEMIDEFINITE = 1e-5  # a remainder larger than this share of the diagonal is no rounding, not of float32 either


@stored
@dataclass(frozen=True)
class CholeskyFactor:
    """H + jitter·I = LLᵀ.

    Attributes
    ----------
    lower : array (n, n)
        L in the lower triangle, Fortran-contiguous; what stands above the diagonal is not part of it.
    jitter : float
        The most that was added to a diagonal entry, 0 in regular cases.
    """

    lower: FloatArray
    jitter: float = 0.0

    def check_stored(self) -> None:
        """Refuse a factor that LAPACK cannot take."""
        check_lower(self.lower, len(self.lower), "a factor")

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
            columns = np.eye(width, size - start)  # transposed: rows of the tile
            whiten(columns, self.lower[start:, start:])
            diagonal[start : start + width] = np.einsum("ij,ij->i", columns, columns)
        return diagonal


def least_jitter(
    shares: Sequence[float], factor: Callable[[float], _Factor | None], message: str
) -> tuple[_Factor, float]:
    """Return the factor with the least share of the diagonal added for which there is one, and that share.

    ``factor`` takes a share and returns None if the matrix is still singular. If no share suffices, the message is
    raised as a ``NotPositiveDefiniteError``.
    """
    for share in shares:
        found = factor(share)
        if found is not None:
            return found, share
    raise NotPositiveDefiniteError(message)


def cholesky_in_place(
    matrix: FloatArray, *, spread: FloatArray | None = None, name: str = "the kernel matrix plus noise"
) -> CholeskyFactor:
    """Factor a symmetric matrix (C-contiguous float64, both triangles given) in its own memory.

    Rounding-level loss of definiteness is repaired by the smallest jitter that works, and reported by a
    ``JitterWarning``. A pivot counts as lost below n·eps times its own diagonal entry, so that rows of very different
    scale do not disturb each other.

    Parameters
    ----------
    matrix : array (n, n)
    spread : array (n,) or None
        How jitter is spread over the diagonal, as shares of its largest value there; evenly if None.
    name : str
        What the matrix is, for messages.

    Raises
    ------
    NotPositiveDefiniteError
        If a jitter of 1.5e-6 times the largest diagonal entry does not suffice.
    """
    diagonal = np.diagonal(matrix).copy()
    largest = float(np.max(diagonal, initial=0.0))
    if not np.all(np.isfinite(diagonal)) or np.any(diagonal < 0) or largest == 0:
        raise NotPositiveDefiniteError(_indefinite(name, diagonal))
    unit = largest * (np.ones(len(matrix)) if spread is None else spread)

    def factor(share: float) -> FloatArray | None:
        raised = diagonal + share * unit
        if share:
            _restore(matrix, raised)
        # LAPACK sees the transpose, overwrites its lower triangle, our upper one; our lower one stays as it was.
        lower, info = lapack.dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
        lost = len(matrix) * np.finfo(np.float64).eps * raised
        return lower if info == 0 and np.all(np.diagonal(lower) ** 2 > lost) else None

    lower, share = least_jitter(_SOLVING_JITTERS, factor, _indefinite(name, diagonal))
    jitter = share * largest
    if share:
        warnings.warn(
            f"{name} is singular to rounding; {jitter:.2g} was added to its diagonal. Duplicate rows and "
            "smooth kernels with little or no noise cause this; a larger noise avoids it.",
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
    diagonal = np.diagonal(matrix)
    largest = float(np.max(diagonal, initial=0.0))
    if not np.all(np.isfinite(matrix)) or np.any(diagonal < 0):
        raise NotPositiveDefiniteError(_indefinite(name, diagonal))
    if largest == 0.0 and not np.any(matrix):  # all kernel values vanish: one point is as good as all
        return PivotedFactor(order=np.zeros(1, dtype=np.intp), lower=np.ones((1, 1), order="F"))
    factor, pivots, rank, info = lapack.dpstrf(np.asfortranarray(matrix), lower=1, tol=tolerance * largest)
    _no_illegal_argument(info)
    order = pivots - 1
    if rank < len(matrix):
        # What is left must vanish if the matrix is semi-definite; its sign would show on the diagonal, or beside it.
        rest = matrix[np.ix_(order[rank:], order[rank:])] - factor[rank:, :rank] @ factor[rank:, :rank].T
        if rank == 0 or np.max(np.abs(rest)) > _SEMIDEFINITE * largest:
            raise NotPositiveDefiniteError(_indefinite(name, diagonal))
    return PivotedFactor(order=order[:rank].copy(), lower=np.asfortranarray(np.tril(factor[:rank, :rank])))


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
