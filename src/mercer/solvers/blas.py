"""BLAS and LAPACK on tiles without the GIL.

SciPy's wrappers of ``dsyrk``, ``dtrsm`` and ``dpotrf`` hold Python's lock, so threads that call them wait for each
other; NumPy has no product that adds to its output. The same routines are reached here through the addresses that SciPy
publishes for Cython, by ``ctypes``, which lets go of the lock.

Row-major tiles are passed as they lie: to Fortran, a C-contiguous (T, m) array is an m × T matrix.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from mercer._jit import jit
from mercer._typing import FloatArray

__all__ = [
    "add_gram",
    "address",
    "factor_upper",
    "mirror",
    "multiply_symmetric",
    "solve_upper",
    "subtract_products",
    "whiten",
]

_CHAR = ctypes.c_char_p
_INT = ctypes.POINTER(ctypes.c_int)
_DOUBLE = ctypes.POINTER(ctypes.c_double)
_POINTER = ctypes.c_void_p

_SIGNATURES = {
    # uplo, trans, n, k, alpha, a, lda, beta, c, ldc
    "dsyrk": (_CHAR, _CHAR, _INT, _INT, _DOUBLE, _POINTER, _INT, _DOUBLE, _POINTER, _INT),
    # side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc
    "dsymm": (_CHAR, _CHAR, _INT, _INT, _DOUBLE, _POINTER, _INT, _POINTER, _INT, _DOUBLE, _POINTER, _INT),
    # side, uplo, transa, diag, m, n, alpha, a, lda, b, ldb
    "dtrsm": (_CHAR, _CHAR, _CHAR, _CHAR, _INT, _INT, _DOUBLE, _POINTER, _INT, _POINTER, _INT),
    # uplo, n, a, lda, info
    "dpotrf": (_CHAR, _INT, _POINTER, _INT, _INT),
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
    return ctypes.CFUNCTYPE(None, *_SIGNATURES[name])(address(name))


def _int(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _number(value: float) -> Any:
    return ctypes.byref(ctypes.c_double(value))


def add_gram(accumulator: FloatArray, tile: FloatArray, factor: float = 1.0) -> None:
    """Add factor · tileᵀ tile to the upper triangle of the accumulator (float64, C-contiguous); see ``mirror``.

    A float32 tile is widened first: products summed in float32 ruin smooth kernels.
    """
    tile = np.ascontiguousarray(tile, dtype=np.float64)
    n_rows, size = tile.shape
    if n_rows == 0 or size == 0:
        return
    width = _int(size)
    # Fortran's lower triangle is the upper one of a row-major array.
    _routine("dsyrk")(
        b"L", b"N", width, _int(n_rows), _number(factor), tile.ctypes.data, width,
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


def multiply_symmetric(rows: FloatArray, matrix: FloatArray, out: FloatArray) -> None:
    """Fill in rows (T, m) times a symmetric matrix (m, m), of which the upper triangle is read.

    All are float64, the matrix C-contiguous; the rows and their products may be the first columns of wider arrays.
    """
    n_rows, size = rows.shape
    _check_square(matrix, size)
    if n_rows == 0 or size == 0:
        return
    if out.shape != rows.shape:
        msg = f"the products need an array of shape {rows.shape}, got {out.shape}."
        raise ValueError(msg)
    _routine("dsymm")(
        b"L", b"L", _int(size), _int(n_rows), _number(1.0), matrix.ctypes.data, _int(size),
        rows.ctypes.data, _int(_row_stride(rows)), _number(0.0), out.ctypes.data, _int(_row_stride(out)),
    )  # fmt: skip


def whiten(tile: FloatArray, lower: FloatArray) -> None:
    """Replace the tile K (T, m) by K L⁻ᵀ in place.

    K is float64 with contiguous rows (it may be the first columns of a wider array), L (m, m) is lower triangular
    float64 with contiguous columns (it may be a part of a larger matrix).
    """
    n_rows, size = tile.shape
    if n_rows == 0 or size == 0:
        return
    row_stride = tile.strides[0] // 8 if n_rows > 1 else size  # NumPy leaves the stride of a single row open
    column_stride = lower.strides[1] // 8 if size > 1 else 1
    if (
        not (tile.dtype == lower.dtype == np.float64)
        or lower.shape != (size, size)
        or (size > 1 and (tile.strides[1] != 8 or lower.strides[0] != 8))
        or min(row_stride, column_stride) < size
    ):
        msg = "whiten needs a float64 tile with contiguous rows and a float64 factor with contiguous columns."
        raise ValueError(msg)
    _routine("dtrsm")(
        b"L", b"L", b"N", b"N", _int(size), _int(n_rows), _number(1.0),
        lower.ctypes.data, _int(column_stride), tile.ctypes.data, _int(row_stride),
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
        msg = "a tile must be float64 with contiguous rows."
        raise ValueError(msg)
    return stride


def _check_square(matrix: FloatArray, size: int) -> None:
    if matrix.shape != (size, size) or matrix.dtype != np.float64 or not matrix.flags.c_contiguous:
        msg = f"the matrix must be C-contiguous float64 of shape ({size}, {size}), got {matrix.dtype} {matrix.shape}."
        raise ValueError(msg)
