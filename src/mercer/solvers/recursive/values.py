"""Kernel values of the rows of a block: looked up, or computed by compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mercer._jit import jit
from mercer._typing import FloatArray, IntArray
from mercer.solvers.compiled_blas import Routines, add_product, call_back, stride

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
        Left factors of the rows of a block, to be filled in.
    functions : array (e, room)
        Right factors of the functions in use, with room for the rows of a block; those of newcomers are filled in.
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


@jit
def fill_values(blas: Routines, source: Source, columns: IntArray, out: FloatArray, m: Any, start: Any) -> Any:
    """Fill in values (b, m + b) of the b rows from ``start`` on: of m functions, then of the rows themselves.

    ``columns`` tell where the functions' values stand among those given; ``out`` may have more columns. Returns whether
    it can be done: no row is too far.
    """
    n_rows, given, left, functions, width = len(out), source.given, source.left, source.functions, source.width
    n_slots = m + n_rows
    if source.profile == 0:
        own = given.shape[1] - len(given) + start
        for t in range(n_rows):
            for j in range(m):
                out[t, j] = given[start + t, columns[j]]
            for j in range(n_rows):
                out[t, m + j] = given[start + t, own + j]
        return True
    call_back(source.scaling, (source.rows[start:], n_rows, source.rows.shape[1], source.scales, left, source.far))
    if not source.far[0] <= source.farthest:
        return False
    for k in range(width):
        factor = k if k < width - 2 else 2 * width - 3 - k  # the last two are exchanged
        for t in range(n_rows):
            functions[k, m + t] = left[t, factor]
    add_product(blas, left[:n_rows, :width], functions[:width, :n_slots], out[:, :n_slots], 0.0)
    tile = (out, n_rows, n_slots, stride(out))
    call_back(source.profile, (*tile, left, width, functions, functions.shape[1], source.parameters))
    for t in range(n_rows):
        for j in range(source.fixed):
            out[t, j] = 1.0
    return True


@jit
def move_factors(functions: FloatArray, places: IntArray, origins: IntArray) -> None:
    """Have the right factors of newcomers in the places that they take, from later slots."""
    for k in range(len(functions)):
        for place in places:
            functions[k, place] = functions[k, origins[place]]
