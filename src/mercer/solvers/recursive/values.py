"""Kernel values of the rows of a block: looked up, or computed by compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mercer._jit import in_place
from mercer._typing import FloatArray, IntArray
from mercer.solvers.compiled_blas import Routines, add_product, call_back

__all__ = ["Source", "fill_values", "look_up", "take_factors"]


class Source(NamedTuple):
    """Kernel values between n rows and q functions, and among the rows, or what they follow from.

    Attributes
    ----------
    given : array (n, q + n)
        The values, if there is no profile.
    left : array (n, e)
        The rows as factors: k(x, z) is the profile of l(x)·r(z), and r is l with its last two entries exchanged.
    functions : array (e, room)
        Right factors of the functions in use, with room for the rows of two blocks; those of newcomers are filled in.
    profile : int
        Address of a callback, or 0; see ``fill_values`` for its arguments.
    parameters : array
    fixed : int
        Functions, the first ones, that are constant: 1 on all rows.
    """

    given: FloatArray
    left: FloatArray
    functions: FloatArray
    profile: int
    parameters: FloatArray
    fixed: int


def look_up(values: FloatArray) -> Source:
    """Values that are known."""
    return Source(values, np.empty((0, 1)), np.empty((1, 0)), 0, np.empty(0), 0)


@in_place
def fill_values(blas: Routines, source: Source, columns: IntArray, out: FloatArray, spans: Any) -> None:
    """Fill in the values of rows ``start`` to ``stop``: of m functions, then of the rows from ``first`` on.

    ``spans`` are m, first, start, stop; ``columns`` (m,) tell where the functions' values stand among those given.
    """
    m, first, start, stop = spans
    n_rows, n_own, given = stop - start, stop - first, source.given
    if source.profile == 0:
        own = given.shape[1] - len(given) + first
        for t in range(n_rows):
            for j in range(m):
                out[t, j] = given[start + t, columns[j]]
            for j in range(n_own):
                out[t, m + j] = given[start + t, own + j]
        return
    functions, left = source.functions, source.left[start:]
    width, room, stride = left.shape[1], functions.shape[1], out.shape[1]
    for j in range(n_own):
        take_factors(source, m + j, first + j)
    add_product(blas, left, functions, out, (n_rows, m + n_own, width, width, room, stride, False, 0.0))
    tile = (out, n_rows, m + n_own, stride)
    call_back(source.profile, (*tile, left, width, functions, room, source.parameters))
    for t in range(n_rows):
        for j in range(source.fixed):
            out[t, j] = 1.0


@in_place
def take_factors(source: Source, place: Any, row: Any) -> None:
    """Fill in the right factors of a function that is a row."""
    width = source.left.shape[1]
    for k in range(width - 2):
        source.functions[k, place] = source.left[row, k]
    source.functions[width - 2, place] = source.left[row, width - 1]
    source.functions[width - 1, place] = source.left[row, width - 2]
