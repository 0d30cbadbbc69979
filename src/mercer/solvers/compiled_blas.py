"""BLAS for compiled code: what takes microseconds must not go through Python.

Matrices are row-major float64 with contiguous rows; they may be parts of larger arrays. To Fortran they are their
transposes. Parts are taken as ``array[a:b, c:d]`` everywhere, so that each function is compiled once: Numba has another
type for ``array[a:b]``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_info

from mercer._jit import call_fortran, jit
from mercer._typing import FloatArray
from mercer.solvers.dense import address

__all__ = [
    "Routines",
    "add_cross",
    "add_gram",
    "add_product",
    "add_product_transposed",
    "call_back",
    "multiply_symmetric",
    "routines",
    "stride",
]

# Compiled code sees an intrinsic with one argument less than Python's types do.
call_back: Any = call_fortran  # (address, arguments): call a function by its address

_L, _N, _T = (np.uint8(ord(letter)) for letter in "LNT")

# OpenBLAS multiplies small matrices without packing them, on machines with AVX-512: up to half as fast again. These
# are its limits: T·q·j, and T·q if the right one is transposed. Elsewhere such parts take longer than the whole.
_WITH_SMALL = {"SkylakeX", "Cooperlake", "SapphireRapids"}
_SMALL, _SMALL_TABLE = 1_000_000, 1200
_DEPTH = 128  # of a part
_LEAST = 8  # rows of a part: with fewer it is not faster
_CACHED = 150_000  # entries of a right matrix that can be read for each part


class Routines(NamedTuple):
    """Addresses of dgemm, dsymm, dsymv, dsyrk; whether to multiply in small parts."""

    gemm: int
    symm: int
    symv: int
    syrk: int
    in_parts: bool


@cache
def routines() -> Routines:
    """The routines of SciPy's BLAS."""
    in_parts = any(pool.get("architecture") in _WITH_SMALL for pool in threadpool_info())
    return Routines(address("dgemm"), address("dsymm"), address("dsymv"), address("dsyrk"), in_parts)


@jit
def stride(array: FloatArray) -> Any:
    """Entries from one row to the next."""
    return array.strides[0] // 8


@jit
def multiply_symmetric(blas: Routines, rows: FloatArray, matrix: FloatArray, out: FloatArray) -> None:
    """Fill in rows (T, m) times a symmetric matrix (m, m), of which the upper triangle is read."""
    n_rows, m = rows.shape
    if n_rows > 0 and m > 0:
        by_matrix, by_rows, by_out = stride(matrix), stride(rows), stride(out)
        call_back(blas.symm, (_L, _L, m, n_rows, 1.0, matrix, by_matrix, rows, by_rows, 0.0, out, by_out))


@jit
def add_gram(blas: Routines, matrix: FloatArray, tile: FloatArray, factor: float) -> None:
    """Add factor · tileᵀ tile, of a tile (j, m), to the upper triangle of a matrix (m, m)."""
    j, m = tile.shape
    if j > 0 and m > 0:
        call_back(blas.syrk, (_L, _N, m, j, factor, tile, stride(tile), 1.0, matrix, stride(matrix)))


@jit
def add_product(blas: Routines, left: FloatArray, right: FloatArray, out: FloatArray, keep: Any) -> None:
    """Make out (T, q) ``keep`` times itself plus left (T, j) times right (j, q); nothing is done if j is zero."""
    (n_rows, j), q = left.shape, out.shape[1]
    if min(n_rows, j, q) == 0:
        return
    number, depth = n_rows, j
    if blas.in_parts and q * j <= _CACHED and n_rows * q * j > _SMALL:
        deep = _part(j, _DEPTH)
        if _SMALL // (q * deep) >= _LEAST:
            number, depth = _part(n_rows, min(_SMALL // (q * deep), n_rows)), deep
    for t in range(0, n_rows, number):
        kept = keep
        for k in range(0, j, depth):
            sizes = (q, min(number, n_rows - t), min(depth, j - k))
            _multiply(blas, _N, sizes, left[t:, k:], right[k:, 0:], (kept, out[t:, 0:]))
            kept = 1.0


@jit
def add_product_transposed(blas: Routines, left: FloatArray, right: FloatArray, out: FloatArray, keep: Any) -> None:
    """Make out (T, q) ``keep`` times itself plus left (T, j) times rightᵀ, of (q, j); see ``add_product``."""
    (n_rows, j), q = left.shape, out.shape[1]
    if min(n_rows, j, q) == 0:
        return
    most, number = min(_SMALL // (q * j), _SMALL_TABLE // q), n_rows
    if blas.in_parts and q * j <= _CACHED and most >= _LEAST:
        number = _part(n_rows, most)
    for t in range(0, n_rows, number):
        sizes = (q, min(number, n_rows - t), j)
        _multiply(blas, _T, sizes, left[t:, 0:], right, (keep, out[t:, 0:]))


@jit
def _multiply(blas: Routines, letter: Any, sizes: Any, left: FloatArray, right: FloatArray, result: Any) -> None:
    keep, out = result
    strides = stride(left), stride(right), stride(out)
    call_back(blas.gemm, (letter, _N, *sizes, 1.0, right, strides[1], left, strides[0], keep, out, strides[2]))


@jit
def add_cross(blas: Routines, matrix: FloatArray, left: FloatArray, right: FloatArray) -> None:
    """Add leftᵀ right, of tiles (j, m), to a matrix (m, m)."""
    j, m = left.shape
    if j == 0 or m == 0:
        return
    number = _part(m, max(_SMALL // (m * j), _LEAST)) if blas.in_parts else m
    by_tile, by_matrix = stride(left), stride(matrix)
    for i in range(0, m, number):
        sizes = (m, min(number, m - i), j)
        arrays = (right, by_tile, left[0:, i:], by_tile, 1.0, matrix[i:, 0:], by_matrix)
        call_back(blas.gemm, (_N, _T, *sizes, 1.0, *arrays))


@jit
def _part(length: Any, most: Any) -> Any:
    """How much of a length to take at once, at the most so much, in parts of about equal size."""
    return -(-length // -(-length // most))
