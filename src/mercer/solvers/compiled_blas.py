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
    letter = _T if transposed else _N
    if n_rows > 0 and q > 0:
        _call(blas.gemm, (letter, _N, q, n_rows, j, 1.0, right, by_right, left, by_left, keep, out, by_out))


@in_place
def add_cross(blas: Routines, matrix: FloatArray, left: FloatArray, right: FloatArray, sizes: Any) -> None:
    """Add leftᵀ right, of tiles (j, m), to a matrix (m, m); ``sizes`` are j, m and the strides of matrix and tiles."""
    j, m, by_matrix, by_tile = sizes
    if j > 0 and m > 0:
        _call(blas.gemm, (_N, _T, m, m, j, 1.0, right, by_tile, left, by_tile, 1.0, matrix, by_matrix))
