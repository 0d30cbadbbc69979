"""BLAS for compiled code: what takes microseconds must not go through Python.

Matrices are row-major float64 with contiguous rows, which may be the first columns of wider arrays; ``stride`` is the
number of entries from one row to the next. To Fortran they are their transposes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mercer._jit import call_fortran, in_place
from mercer._typing import FloatArray
from mercer.solvers.blas import address

__all__ = [
    "Routines",
    "add_cross",
    "add_gram",
    "add_product",
    "call_back",
    "multiply_symmetric",
    "routines",
    "symmetric_times",
]

# Compiled code sees an intrinsic with one argument less than Python's types do.
_call: Any = call_fortran

_L, _N, _T = (np.uint8(ord(letter)) for letter in "LNT")

# OpenBLAS multiplies small matrices without packing them, on machines with AVX-512: up to half as fast again. These
# are its limits: T·q·j, and T·q if the right one is transposed. Elsewhere such parts take about as long as the whole.
_SMALL, _SMALL_TABLE = 1_000_000, 1200
_DEPTH = 128  # of a part
_LEAST = 8  # rows of a part: with fewer it is not faster
_CACHED = 150_000  # entries of a right matrix that can be read for each part


class Routines(NamedTuple):
    """Addresses of dgemm, dsymm, dsymv, dsyrk."""

    gemm: int
    symm: int
    symv: int
    syrk: int


@cache
def routines() -> Routines:
    """The routines of SciPy's BLAS."""
    return Routines(*(address(name) for name in ("dgemm", "dsymm", "dsymv", "dsyrk")))


@in_place
def call_back(address: int, arguments: Any) -> None:
    """Call a function of ours by its address."""
    _call(address, arguments)


@in_place
def multiply_symmetric(blas: Routines, rows: FloatArray, matrix: FloatArray, out: FloatArray, sizes: Any) -> None:
    """Fill in rows (T, m) times a symmetric matrix (m, m), of which the upper triangle is read.

    ``sizes`` are T, m and the strides of rows, matrix and out.
    """
    n_rows, m, by_rows, by_matrix, by_out = sizes
    if n_rows > 0 and m > 0:
        _call(blas.symm, (_L, _L, m, n_rows, 1.0, matrix, by_matrix, rows, by_rows, 0.0, out, by_out))


@in_place
def symmetric_times(blas: Routines, matrix: FloatArray, vector: FloatArray, out: FloatArray, sizes: Any) -> None:
    """Fill in a symmetric matrix (m, m), of which the upper triangle is read, times a vector; ``sizes``: m, stride."""
    m, by_matrix = sizes
    if m > 0:
        _call(blas.symv, (_L, m, 1.0, matrix, by_matrix, vector, 1, 0.0, out, 1))


@in_place
def add_gram(blas: Routines, matrix: FloatArray, tile: FloatArray, factor: float, sizes: Any) -> None:
    """Add factor · tileᵀ tile, of a tile (j, m), to the upper triangle of a matrix; ``sizes``: j, m, both strides."""
    j, m, by_matrix, by_tile = sizes
    if j > 0 and m > 0:
        _call(blas.syrk, (_L, _N, m, j, factor, tile, by_tile, 1.0, matrix, by_matrix))


@in_place
def add_product(blas: Routines, left: FloatArray, right: FloatArray, out: FloatArray, options: Any) -> None:
    """Make out (T, q) ``keep`` times itself plus left (T, j) times right (j, q), or (q, j) if it is ``transposed``.

    ``options`` are T, q, j, the strides of left, right and out, ``transposed`` and ``keep``.
    """
    n_rows, q, j, by_left, by_right, by_out, transposed, keep = options
    if n_rows == 0 or q == 0:
        return
    number, depth = n_rows, max(j, 1)
    if q * j <= _CACHED and (n_rows * q * j > _SMALL or transposed):
        deep = depth if transposed else _part(depth, _DEPTH)
        most = min(_SMALL // (q * deep), _SMALL_TABLE // q if transposed else n_rows)
        if most >= _LEAST:
            number, depth = _part(n_rows, most), deep
    letter = _T if transposed else _N
    for t in range(0, n_rows, number):
        rows, products, kept = left[t:], out[t:], keep
        for k in range(0, max(j, 1), depth):
            here = (letter, _N, q, min(number, n_rows - t), min(depth, j - k), 1.0)
            _call(blas.gemm, (*here, right[k:], by_right, rows[:, k:], by_left, kept, products, by_out))
            kept = 1.0


@in_place
def add_cross(blas: Routines, matrix: FloatArray, left: FloatArray, right: FloatArray, sizes: Any) -> None:
    """Add leftᵀ right, of tiles (j, m), to a matrix (m, m); ``sizes`` are j, m and the strides of matrix and tiles."""
    j, m, by_matrix, by_tile = sizes
    if j == 0 or m == 0:
        return
    number = _part(m, max(_SMALL // (m * j), _LEAST))
    for i in range(0, m, number):
        here = (m, min(number, m - i), j)
        _call(blas.gemm, (_N, _T, *here, 1.0, right, by_tile, left[:, i:], by_tile, 1.0, matrix[i:], by_matrix))


@in_place
def _part(length: Any, most: Any) -> Any:
    """How much of a length to take at once, at the most so much, in parts of about equal size."""
    return -(-length // -(-length // most))
