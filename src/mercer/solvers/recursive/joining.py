r"""Functions that come and go within a block of rows.

Growing and then pruning the newcomer is the normal step alone, and is known beforehand: its score would be
:math:`\kappa^2\Delta_b`, the others' :math:`(w_i + \kappa v_i)^2/(P^{-1}_{ii} + v_i^2/\Delta_b)`.

New vectors are made in the next free rows of V and G, where they stay if the newcomer does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mercer._jit import inlined, jit_sum
from mercer._typing import FloatArray, IntArray
from mercer.solvers.recursive.block import FACTOR, FULL, KAPPA, Layout, Limits, Matrices
from mercer.solvers.recursive.rules import TIE
from mercer.solvers.recursive.vectors import add_column, add_multiple, add_squares, fill_with_zeros

__all__ = ["Newcomer", "add_to_P", "grow", "place_to_take", "prepare", "prune"]

_OUT_OF_USE = 1e300  # score of slots that are no functions


class Newcomer(NamedTuple):
    """A row that is new and useful: t, its place in the block; its slot; δ; Δ; Δ_b; κ²Δ_b."""

    t: int
    slot: int
    delta: float
    Delta: float
    pivot: float
    gain: float


@inlined
def prepare(table: FloatArray, at: Layout, tally: Any, new: Newcomer) -> None:
    """Make v = [-a - (δ/Δ)u, 1]."""
    u, a, v, ratio = at.V + tally.n_V - 1, at.a + new.t, at.V + tally.n_V, new.delta / new.Delta
    for i in range(new.slot):
        table[v, i] = -table[a, i] - ratio * table[u, i]
        table[at.scores, i] = 0.0
    table[v, new.slot] = 1.0


@jit_sum
def place_to_take(table: FloatArray, at: Layout, tally: Any, limits: Limits, births: IntArray, new: Newcomer) -> Any:
    """The slot that the newcomer takes: its own, or that of a function to be removed; -1 if it is the weakest itself.

    Fills in (w + κv)², summed over the outputs that count.
    """
    v = at.V + tally.n_V
    if tally.size < limits.max_basis:
        return new.slot
    for o in range(tally.n_scored):
        w, kappa = at.w + o, table[at.w + o, KAPPA]
        for i in range(new.slot):
            total = table[w, i] + kappa * table[v, i]
            table[at.scores, i] += total * total
    if _is_weakest(table, at, v, new, limits.fixed):
        return -1
    return _weakest(table, at, v, births, new, limits.fixed)


@inlined
def _is_weakest(table: FloatArray, at: Layout, v: Any, new: Newcomer, fixed: Any) -> Any:
    """Whether removing the newcomer costs least, or as much as anything else: most are, and it takes no division."""
    share, excess = new.gain / new.pivot, 0.0
    for i in range(np.uintp(fixed), np.uintp(new.slot)):
        v_i = table[v, i]
        above = new.gain * table[at.P_diagonal, i] + share * v_i * v_i - (1.0 + TIE) * table[at.scores, i]
        excess += table[at.used, i] * (above if above > 0.0 else 0.0)
    return excess == 0.0


@jit_sum
def _weakest(table: FloatArray, at: Layout, v: Any, births: IntArray, new: Newcomer, fixed: Any) -> Any:
    """The slot whose removal would cost least after the newcomer's arrival: among equals the newest."""
    lowest, found, share = new.gain, -1, 1.0 / new.pivot
    for i in range(np.uintp(fixed), np.uintp(new.slot)):
        diagonal, unused = table[at.P_diagonal, i] + share * table[v, i] * table[v, i], 1.0 - table[at.used, i]
        table[at.scores, i] = table[at.scores, i] / (diagonal + unused) + unused * _OUT_OF_USE
    for i in range(fixed, new.slot):
        lowest = min(lowest, table[at.scores, i])
    limit = lowest * (1.0 + TIE)
    if new.gain <= limit:
        return found  # the newcomer is the newest of all
    for i in range(fixed, new.slot):
        if table[at.scores, i] <= limit and (found < 0 or births[i] > births[found]):
            found = i
    return found


@jit_sum
def grow(table: FloatArray, at: Layout, tally: Any, n_outputs: Any, new: Newcomer) -> None:
    """P⁻¹ + vvᵀ/Δ_b, w + κv, ξ - κ²Δ_b;  K⁻¹ + ggᵀ/δ with g = [-a, 1]."""
    here, v, g = new.slot, at.V + tally.n_V, at.G + tally.n_G
    for o in range(n_outputs):
        kappa = table[at.w + o, KAPPA]
        add_multiple(table, at.w + o, v, kappa, here + 1)
        if o >= tally.n_scored:
            tally.hidden_cost -= kappa * kappa * new.pivot
    tally.cost -= new.gain
    add_to_P(table, at, tally, 1.0 / new.pivot, here + 1)
    for i in range(here):
        table[g, i] = -table[at.a + new.t, i]
    table[g, here] = table[at.used, here] = 1.0
    _add_to_K(table, at, tally, 1.0 / new.delta, here + 1)
    tally.size += 1
    tally.n_grown += 1


@jit_sum
def prune(table: FloatArray, at: Layout, tally: Any, n_outputs: Any, before: Matrices, place: Any) -> None:
    """P⁻¹ - hhᵀ/h_i with h its row i, w - (w_i/h_i)h, ξ + w_i²/h_i;  K⁻¹ - ggᵀ/g_i with g its row i."""
    h, g, size = at.V + tally.n_V, at.G + tally.n_G, tally.n_before + tally.n_rows
    _copy_row(table, h, before.P, place, tally.n_before, size)
    _copy_row(table, g, before.K, place, tally.n_before, size)
    add_column(table, h, place, at.V, tally.n_V, size)
    add_column(table, g, place, at.G, tally.n_G, size)
    for i in range(size):
        table[g, i] *= table[at.used, i]
        table[h, i] = table[at.used, i] * (tally.sigma * table[h, i]) + tally.tau * table[g, i]
    h_i, g_i = table[h, place], table[g, place]
    for o in range(n_outputs):
        w_i = table[at.w + o, place]
        add_multiple(table, at.w + o, h, -w_i / h_i, size)
        table[at.w + o, place] = 0.0
        if o < tally.n_scored:
            tally.cost += w_i * w_i / h_i
        else:
            tally.hidden_cost += w_i * w_i / h_i
    add_to_P(table, at, tally, -1.0 / h_i, size)
    _add_to_K(table, at, tally, -1.0 / g_i, size)
    table[at.used, place] = 0.0
    tally.size -= 1
    tally.n_pruned += 1


@jit_sum
def add_to_P(table: FloatArray, at: Layout, tally: Any, factor: Any, size: Any) -> None:  # noqa: N802  a matrix
    """Add a multiple of vvᵀ to P⁻¹ = σM + τK⁻¹; v, of that size, is in the next free row of V."""
    v = at.V + tally.n_V
    add_squares(table, at.P_diagonal, v, factor, size)
    fill_with_zeros(table, v, size, tally.n_before + tally.n_rows)
    table[v, FACTOR] = factor / tally.sigma
    tally.n_V += 1


@jit_sum
def _add_to_K(table: FloatArray, at: Layout, tally: Any, factor: Any, size: Any) -> None:  # noqa: N802  as above
    """Add a multiple of ggᵀ to K⁻¹, and nothing to P⁻¹; g, of that size, is in the next free row of G."""
    v, g, slots = at.V + tally.n_V, at.G + tally.n_G, tally.n_before + tally.n_rows
    fill_with_zeros(table, g, size, slots)
    table[g, FACTOR] = factor
    tally.n_G += 1
    if tally.tau > 0.0:
        add_squares(table, at.K_diagonal, g, factor, size)
        for i in range(slots):
            table[v, i] = table[g, i]
        table[v, FACTOR] = -factor * tally.tau / tally.sigma
        tally.n_V += 1


@jit_sum
def _copy_row(table: FloatArray, row: Any, matrix: FloatArray, place: Any, m: Any, size: Any) -> None:
    """Fill in row ``place`` of a symmetric matrix, of a large one from its upper triangle; zeros in slots beyond it."""
    if place < m:
        above = place if m > FULL else 0  # entries that are known above the diagonal only
        for i in range(above):
            table[row, i] = matrix[i, place]
        for i in range(np.uintp(above), np.uintp(m)):
            table[row, i] = matrix[place, i]
    fill_with_zeros(table, row, m if place < m else 0, size)
