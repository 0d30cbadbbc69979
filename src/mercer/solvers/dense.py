"""Dense linear algebra: BLAS and LAPACK without Python's lock, and Cholesky factors in place, with jitter, with pivots.

SciPy's wrappers of these routines hold the lock, so that tiles would wait for each other.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from scipy.linalg import cython_blas, cython_lapack, lapack

from mercer._jit import jit
from mercer._stored import stored
from mercer._stored.checks import check_lower
from mercer._typing import FloatArray, IntArray
from mercer.exceptions import JitterWarning, NotPositiveDefiniteError, warn

# How many arguments a routine has; Fortran takes all of them by address.
_N_ARGUMENTS = {
    "dsyrk": 10,  # uplo, trans, n, k, alpha, a, lda, beta, c, ldc
    "dtrsm": 11,  # side, uplo, transa, diag, m, n, alpha, a, lda, b, ldb
    "dpotrf": 5,  # uplo, n, a, lda, info
}


@cache
def address(name: str) -> int:
    """Where a routine lies, for calls from compiled code."""
    library = cython_lapack if name == "dpotrf" else cython_blas
    capsule = library.__pyx_capi__[name]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get_pointer(capsule, get_name(capsule)))


@cache
def _routine(name: str) -> Any:
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * _N_ARGUMENTS[name])(address(name))


def _int(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _number(value: float) -> Any:
    return ctypes.byref(ctypes.c_double(value))


def add_gram(accumulator: FloatArray, tile: FloatArray) -> None:
    """Add tileᵀ tile to the upper triangle of the accumulator (float64, C-contiguous); see ``mirror``.

    A float32 tile is widened first: products summed in float32 ruin smooth kernels.
    """
    tile = np.ascontiguousarray(tile, dtype=np.float64)
    n_rows, size = tile.shape
    if n_rows == 0 or size == 0:
        return
    width = _int(size)
    # Fortran's lower triangle is the upper one of a row-major array.
    _routine("dsyrk")(
        b"L", b"N", width, _int(n_rows), _number(1.0), tile.ctypes.data, width,
        _number(1.0), accumulator.ctypes.data, width,
    )  # fmt: skip


@jit
def mirror(accumulator: FloatArray) -> None:
    """Copy the upper triangle of a square array onto the lower one, in place and in blocks."""
    size, block = accumulator.shape[0], 32
    for first in range(0, size, block):
        for start in range(first, size, block):
            for j in range(start, min(start + block, size)):
                for i in range(first, min(first + block, j)):
                    accumulator[j, i] = accumulator[i, j]


def whiten(tile: FloatArray, lower: FloatArray) -> None:
    """Replace the tile K (T, m) by K L⁻ᵀ in place.

    K is float64 with contiguous rows (it may be the first columns of a wider array), L (m, m) is lower triangular
    float64 with contiguous columns (it may be a part of a larger matrix).
    """
    n_rows, size = tile.shape
    if lower.shape != (size, size):
        raise ValueError(f"a tile of {size} columns is whitened by a factor of that size, got {lower.shape}.")
    if n_rows == 0 or size == 0:
        return
    _routine("dtrsm")(
        b"L", b"L", b"N", b"N", _int(size), _int(n_rows), _number(1.0),
        lower.ctypes.data, _int(_row_stride(lower.T)), tile.ctypes.data, _int(_row_stride(tile)),
    )  # fmt: skip


def subtract_products(matrix: FloatArray, tile: FloatArray) -> None:
    """Subtract V Vᵀ, the products of the tile's rows, from the upper triangle of a matrix (T, T), C-contiguous float64.

    The tile (T, m) is float64 with contiguous rows; it may be the first columns of a wider array.
    """
    n_rows, size = tile.shape
    _check_square(matrix, n_rows)
    if n_rows == 0 or size == 0:
        return
    _routine("dsyrk")(
        b"L", b"T", _int(n_rows), _int(size), _number(-1.0), tile.ctypes.data, _int(_row_stride(tile)),
        _number(1.0), matrix.ctypes.data, _int(n_rows),
    )  # fmt: skip


def factor_upper(matrix: FloatArray) -> bool:
    """Replace the upper triangle of a symmetric matrix (C-contiguous float64) by R with RᵀR = matrix.

    Only that triangle is read and written. Returns False, with the triangle spoilt, if the matrix is not positive
    definite.
    """
    _check_square(matrix, len(matrix))
    info = ctypes.c_int(0)
    if len(matrix):
        _routine("dpotrf")(b"L", _int(len(matrix)), matrix.ctypes.data, _int(len(matrix)), ctypes.byref(info))
    return info.value == 0 and not np.any(np.isnan(np.einsum("ii->i", matrix)))


def solve_upper(upper: FloatArray, tile: FloatArray) -> None:
    """Replace the tile Y (T, m), C-contiguous float64, by R⁻ᵀY in place, with R (T, T) from ``factor_upper``."""
    n_rows, size = tile.shape
    _check_square(upper, n_rows)
    if n_rows == 0 or size == 0:
        return
    # To Fortran, Y is its transpose and R its lower triangle L = Rᵀ: Yᵀ ← YᵀL⁻ᵀ.
    _routine("dtrsm")(
        b"R", b"L", b"T", b"N", _int(size), _int(n_rows), _number(1.0),
        upper.ctypes.data, _int(n_rows), tile.ctypes.data, _int(_row_stride(tile)),
    )  # fmt: skip


def _row_stride(tile: FloatArray) -> int:
    """Numbers from one row to the next."""
    n_rows, size = tile.shape
    stride = tile.strides[0] // 8 if n_rows > 1 else size  # NumPy leaves the stride of a single row open
    if tile.dtype != np.float64 or (size > 1 and tile.strides[1] != 8) or stride < size:
        raise ValueError("a tile must be float64 with contiguous rows, a factor float64 with contiguous columns.")
    return stride


def _check_square(matrix: FloatArray, size: int) -> None:
    if matrix.shape != (size, size) or matrix.dtype != np.float64 or not matrix.flags.c_contiguous:
        msg = f"the matrix must be C-contiguous float64 of shape ({size}, {size}), got {matrix.dtype} {matrix.shape}."
        raise ValueError(msg)


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
_FEW = 128  # columns of an inverse at a time, where memory counts
_SEMIDEFINITE = 1e-5  # a remainder larger than this share of the diagonal is no rounding, not of float32 either


@stored
@dataclass(frozen=True)
class CholeskyFactor:
    """H + jitter·I = LLᵀ."""

    # (n, n): L in the lower triangle, Fortran-contiguous; what stands above the diagonal is not part of it.
    lower: FloatArray
    jitter: float = 0.0  # the most that was added to a diagonal entry, 0 in regular cases

    def check_stored(self) -> None:
        """Refuse a factor that LAPACK cannot take."""
        check_lower(self.lower, len(self.lower), "a factor")

    def solve(self, right: FloatArray) -> FloatArray:
        """H⁻¹ right."""
        return np.asarray(lapack.dpotrs(self.lower, np.asarray(right, dtype=np.float64), lower=1)[0])

    def inverse_entries(self, index: IntArray) -> FloatArray:
        """(H⁻¹)_ii for some i, with n² operations for each."""
        entries = np.empty(len(index))
        for start in range(0, len(index), _FEW):
            some = index[start : start + _FEW]
            columns = np.zeros((len(some), len(self.lower)))
            columns[np.arange(len(some)), some] = 1.0
            whiten(columns, self.lower)
            entries[start : start + _FEW] = np.einsum("ij,ij->i", columns, columns)
        return entries

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


def cholesky_in_place(matrix: FloatArray, *, spread: FloatArray | None = None) -> CholeskyFactor:
    """Factor a symmetric matrix (C-contiguous float64, both triangles given) in its own memory.

    Rounding-level loss of definiteness is repaired by the smallest jitter that works, and reported by a
    ``JitterWarning``. A pivot counts as lost below n·eps times its own diagonal entry, so that rows of very different
    scale do not disturb each other. ``spread`` (n,) says how jitter is spread over the diagonal, as shares of its
    largest value there.
    """
    name = "the kernel matrix plus noise"
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
        warn(
            f"{name} is singular to rounding; {jitter:.2g} was added to its diagonal. Duplicate rows and "
            "smooth kernels with little or no noise cause this; a larger noise avoids it.",
            JitterWarning,
        )
    return CholeskyFactor(lower=lower, jitter=jitter)


@dataclass(frozen=True)
class PivotedFactor:
    """K[order][:, order] = LLᵀ to rounding, with the rows that K's numerical rank leaves out dropped."""

    order: IntArray  # (r,): indices of the rows kept, greatest residual first
    lower: FloatArray  # (r, r): L, Fortran-contiguous, zero above the diagonal


def pivoted_cholesky(matrix: FloatArray, *, tolerance: float) -> PivotedFactor:
    """Factor a symmetric positive semi-definite matrix, greatest pivot first, down to a relative tolerance."""
    name, diagonal = "the kernel matrix of the basis", np.diagonal(matrix)
    largest = float(np.max(diagonal, initial=0.0))
    if not np.all(np.isfinite(matrix)) or np.any(diagonal < 0):
        raise NotPositiveDefiniteError(_indefinite(name, diagonal))
    if largest == 0.0 and not np.any(matrix):  # all kernel values vanish: one point is as good as all
        return PivotedFactor(order=np.zeros(1, dtype=np.intp), lower=np.ones((1, 1), order="F"))
    factor, pivots, rank, _ = lapack.dpstrf(np.asfortranarray(matrix), lower=1, tol=tolerance * largest)
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
