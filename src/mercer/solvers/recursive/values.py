"""Kernel values of the rows of a block: looked up, or computed by compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mercer._jit import in_place
from mercer._typing import FloatArray, IntArray
from mercer.solvers.compiled_blas import Routines, add_product, call_back

__all__ = ["Source", "fill_values", "look_up", "move_factors"]


class Source(NamedTuple):
    """Kernel values between n rows and q functions, and among the rows, or what they follow from.

    Attributes
    ----------
    given : array (n, q + n)
        The values, if there is no profile.
    rows : array (n, d)
    width : int
        The number e of factors.
    scaling : int
        Address of a callback that makes left factors of rows: k(x, z) is the profile of l(x)·r(z), and r is l with its
        last two entries exchanged; see ``fill_values`` for its arguments.
    scales : array
    farthest : float
        Rows for which the callback tells a larger number have no factors.
    left : array (room, e)
        Left factors of the rows of a block, to be filled in, as the next one.
    functions : array (e, room)
        Right factors of the functions in use, with room for the rows of two blocks; those of newcomers are filled in.
    far : array (1,)
    profile : int
        Address of a callback, or 0; see ``fill_values`` for its arguments.
    parameters : array
    fixed : int
        Functions, the first ones, that are constant: 1 on all rows.
    """

    given: FloatArray
    rows: FloatArray
    width: int
    scaling: int
    scales: FloatArray
    farthest: float
    left: FloatArray
    functions: FloatArray
    far: FloatArray
    profile: int
    parameters: FloatArray
    fixed: int


def look_up(values: FloatArray) -> Source:
    """Values that are known."""
    table, row = np.empty((0, 0)), np.empty(0)
    return Source(values, table, 0, 0, row, 0.0, table, table, row, 0, row, 0)


@in_place
def fill_values(blas: Routines, source: Source, columns: IntArray, out: FloatArray, spans: Any) -> Any:
    """Fill in the values of rows ``start`` to ``stop``: of m functions, then of the rows from ``first`` on.

    ``spans`` are m, first, start, stop; ``columns`` (m,) tell where the functions' values stand among those given.
    Right factors of rows before ``start`` are known. Returns whether it can be done: no row is too far.
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
        return True
    left, functions, far, width = source.left, source.functions, source.far, source.width
    call_back(source.scaling, (source.rows[start:], n_rows, source.rows.shape[1], source.scales, left, far))
    if not far[0] <= source.farthest:
        return False
    _turn(left, functions, m + start - first, n_rows)
    room, stride = functions.shape[1], out.shape[1]
    add_product(blas, left, functions, out, (n_rows, m + n_own, width, width, room, stride, False, 0.0))
    tile = (out, n_rows, m + n_own, stride)
    call_back(source.profile, (*tile, left, width, functions, room, source.parameters))
    for t in range(n_rows):
        for j in range(source.fixed):
            out[t, j] = 1.0
    return True


@in_place
def _turn(left: FloatArray, functions: FloatArray, place: Any, number: Any) -> None:
    """Fill in the right factors of rows whose left factors are known, as functions from ``place`` on."""
    width = left.shape[1]
    for k in range(width):
        factor = k if k < width - 2 else 2 * width - 3 - k  # the last two are exchanged
        for j in range(number):
            functions[k, place + j] = left[j, factor]


@in_place
def move_factors(functions: FloatArray, slots: IntArray, places: IntArray, sizes: Any) -> None:
    """Have right factors after a block where they belong.

    ``places`` are taken by newcomers, from later slots; ``sizes`` are the number of these places, of functions after
    the block, of slots in it, and of rows that are known behind them.
    """
    n_moved, size, behind, n_rows = sizes
    for k in range(len(functions)):
        for i in range(n_moved):
            functions[k, places[i]] = functions[k, slots[places[i]]]
        for j in range(n_rows):
            functions[k, size + j] = functions[k, behind + j]
