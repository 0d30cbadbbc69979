"""BLAS on tiles without the GIL.

SciPy's wrappers of ``dsyrk`` and ``dtrsm`` hold Python's lock, so threads that call them wait for each other; NumPy has
no product that adds to its output. The same routines are reached here through the addresses that SciPy publishes for
Cython, by ``ctypes``, which lets go of the lock.

Row-major tiles are passed as they lie: to Fortran, a C-contiguous (T, m) array is an m × T matrix.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_blas

from mercer._typing import FloatArray

__all__ = ["add_gram", "mirror", "whiten"]

_CHAR = ctypes.c_char_p
_INT = ctypes.POINTER(ctypes.c_int)
_DOUBLE = ctypes.POINTER(ctypes.c_double)
_POINTER = ctypes.c_void_p

_SIGNATURES = {
    # uplo, trans, n, k, alpha, a, lda, beta, c, ldc
    "dsyrk": (_CHAR, _CHAR, _INT, _INT, _DOUBLE, _POINTER, _INT, _DOUBLE, _POINTER, _INT),
    # side, uplo, transa, diag, m, n, alpha, a, lda, b, ldb
    "dtrsm": (_CHAR, _CHAR, _CHAR, _CHAR, _INT, _INT, _DOUBLE, _POINTER, _INT, _POINTER, _INT),
}


@cache
def _routine(name: str) -> Any:
    capsule = cython_blas.__pyx_capi__[name]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get_pointer(capsule, get_name(capsule))
    return ctypes.CFUNCTYPE(None, *_SIGNATURES[name])(address)


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


def mirror(accumulator: FloatArray) -> None:
    """Copy the upper triangle of a square array onto the lower one, in place and in blocks."""
    size, block = len(accumulator), 256
    for start in range(0, size, block):
        stop = min(start + block, size)
        diagonal = accumulator[start:stop, start:stop]
        diagonal[...] = np.triu(diagonal) + np.triu(diagonal, 1).T
        accumulator[stop:, start:stop] = accumulator[start:stop, stop:].T


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
