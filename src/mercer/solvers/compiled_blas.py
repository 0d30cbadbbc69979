"""BLAS for compiled code: what takes microseconds must not go through Python.

Matrices are row-major float64 with contiguous rows; they may be parts of larger arrays. To Fortran they are their
transposes. Parts are taken as ``array[a:b, c:d]`` everywhere, so that each function is compiled once: Numba has another
type for ``array[a:b]``.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_info

from mercer._jit import call_fortran, jit
from mercer._typing import FloatArray
from mercer.solvers.dense import address

# Compiled code sees an intrinsic with one argument less than Python's types do.
call_back: Any = call_fortran  # (address, arguments): call a function by its address

LOWER, PLAIN, TRANSPOSED = (np.uint8(ord(letter)) for letter in "LNT")

# OpenBLAS multiplies small matrices without packing them, on machines with AVX-512: up to half as fast again. These
# are its limits: T·q·j, and T·q if the right one is transposed. Elsewhere such parts take longer than the whole.
_WITH_SMALL = {"SkylakeX", "Cooperlake", "SapphireRapids"}
_SMALL, _SMALL_TABLE = 1_000_000, 1200
_LEAST = 8  # rows of a part: with fewer it is not faster


class Routines(NamedTuple):
    """Addresses of dgemm and dsymv; whether to multiply in small parts."""

    gemm: int
    symv: int
    in_parts: bool


@cache
def routines() -> Routines:
    """The routines of SciPy's BLAS."""
    in_parts = any(pool.get("architecture") in _WITH_SMALL for pool in threadpool_info())
    return Routines(address("dgemm"), address("dsymv"), in_parts)


@jit
def stride(array: FloatArray) -> Any:
    """Entries from one row to the next."""
    return array.strides[0] // 8


@jit
def add_product(blas: Routines, forms: Any, left: FloatArray, right: FloatArray, out: FloatArray, keep: Any) -> None:
    """Make out (T, q) ``keep`` times itself plus left (T, j) times right (j, q); nothing is done if j is zero.

    ``forms``: whether left and right are given ``PLAIN`` or ``TRANSPOSED``.
    """
    (of_left, of_right), (n_rows, q) = forms, out.shape
    j = left.shape[0] if of_left == TRANSPOSED else left.shape[1]
    if min(n_rows, j, q) == 0:
        return
    number = n_rows
    if blas.in_parts:
        most = _SMALL // (q * j)
        if of_right == TRANSPOSED:
            most = min(most, _SMALL_TABLE // q)
        if most >= _LEAST:
            number = -(-n_rows // -(-n_rows // most))  # in parts of about equal size
    for t in range(0, n_rows, number):
        rows = left[0:, t:] if of_left == TRANSPOSED else left[t:, 0:]
        sizes, by_left, by_right = (q, min(number, n_rows - t), j), stride(left), stride(right)
        arrays = (right, by_right, rows, by_left, keep, out[t:, 0:], stride(out))
        call_back(blas.gemm, (of_right, of_left, *sizes, 1.0, *arrays))
