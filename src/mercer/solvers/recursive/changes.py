r"""Functions that come and go within a block of rows.

Growing and then pruning the newcomer is the normal step alone, and is known beforehand: its score would be
:math:`\kappa^2\Delta_b`, the others' :math:`(w_i + \kappa v_i)^2/(P^{-1}_{ii} + v_i^2/\Delta_b)`.
"""

from __future__ import annotations

from typing import Any

from mercer._jit import always_inline, in_place_least, in_place_sum, wide_vectors
from mercer._typing import FloatArray
from mercer.solvers.recursive.state import (
    BEFORE,
    COST,
    GROWN,
    HIDDEN,
    N_G,
    N_V,
    PRUNED,
    SCORED,
    SIGMA,
    SIZE,
    TAU,
    Matrices,
)
from mercer.solvers.recursive.vectors import add_column, add_squares, append, copy_row

__all__ = ["is_least", "join", "newcomer", "weakest"]

_inline: Any = always_inline
_wide: Any = wide_vectors

_OUT_OF_USE = 1e300  # score of slots that cannot be removed


@in_place_sum
def join(before: Matrices, sums: Any, functions: Any, vectors: Any, totals: Any, row: Any) -> None:
    """Have the newcomer take a place of its own, or that of a function, which is removed.

    ``sums`` are those of P⁻¹ and of K⁻¹, vectors and factors; ``functions`` coefficients, ρ and κ, the diagonal of P⁻¹,
    and which slots are in use; ``vectors`` a, scratch, with the newcomer's v in row 0, and the diagonal of K⁻¹;
    ``totals`` counts and numbers; ``row`` homes, and its place in the block, its slot, the slot to be removed, or the
    same if none, all slots, δ, pivot, and whether the past is forgotten.
    """
    (homes, t, here, place, slots, delta, pivot, forgetful), (counts, _) = row, totals
    _growing_step(sums, functions, vectors, totals, (t, here, slots, delta, pivot, forgetful))
    if place < here:
        _pruning_step(before, sums, functions, vectors, totals, (place, here + 1, slots, forgetful))
        homes[here] = homes[place]
    else:
        homes[here] = counts[SIZE]
        counts[SIZE] += 1


@in_place_sum
def is_least(vectors: Any, functions: Any, scratch: FloatArray, sizes: Any, worth: Any) -> Any:
    """Whether to remove the newcomer costs least, or as much as anything else: most are, and it takes no division."""
    _inline()
    _wide()
    (w, by_output, diagonal, used), (n_scored, fixed, here), (pivot, gain, tie) = functions, sizes, worth
    share, equal, excess = gain / pivot, 1.0 + tie, 0.0
    if n_scored == 1 and fixed == 0:  # nothing has to be kept
        (a, t, V, number, ratio), kappa = vectors, by_output[1, 0]
        for i in range(here):
            v = -a[t, i] - ratio * V[number, i]
            total = w[0, i] + kappa * v
            above = used[i] * (gain * diagonal[i] + share * v * v - equal * total * total)
            excess += above if above > 0.0 else 0.0
        return excess == 0.0
    newcomer(vectors, functions, scratch, sizes)
    for i in range(here):
        v = scratch[0, i]
        above = used[i] * (gain * diagonal[i] + share * v * v - equal * scratch[1, i])
        excess += above if above > 0.0 else 0.0
    return excess == 0.0


@in_place_sum
def newcomer(vectors: Any, functions: Any, scratch: FloatArray, sizes: Any) -> None:
    """Fill in v = [-a - (δ/Δ)u, 1], and (w + κv)², summed over outputs that count."""
    _inline()
    _wide()
    (a, t, V, number, ratio), (w, by_output, _, _), (n_scored, fixed, here) = vectors, functions, sizes
    kappa, first = by_output[1, 0], min(n_scored, 1)
    for i in range(here):
        v = -a[t, i] - ratio * V[number, i]
        total = first * (w[0, i] + kappa * v)
        scratch[0, i], scratch[1, i] = v, total * total
    scratch[0, here] = 1.0
    for o in range(1, n_scored):
        kappa = by_output[1, o]
        for i in range(here):
            total = w[o, i] + kappa * scratch[0, i]
            scratch[1, i] += total * total
    for i in range(fixed):
        scratch[1, i] = _OUT_OF_USE


@in_place_sum
def weakest(scratch: FloatArray, diagonal: FloatArray, slots: Any, worth: Any) -> Any:
    """The slot whose removal would cost least after the newcomer's arrival: among equals the newest.

    ``slots`` are ``used``, ``births``, the number of functions that stay, and of slots; ``worth`` the newcomer's pivot
    and gain, and which scores are equal.
    """
    (used, births, fixed, here), (pivot, gain, tie) = slots, worth
    _finish_scores(scratch, diagonal, used, 1.0 / pivot, here)
    limit = min(gain, _least(scratch, here)) * (1.0 + tie)
    if gain <= limit:
        return here  # the newest of all
    found = here
    for i in range(fixed, here):
        if used[i] > 0.0 and scratch[1, i] <= limit and (found == here or births[i] > births[found]):
            found = i
    return found


@in_place_sum
def _finish_scores(scratch: FloatArray, diagonal: FloatArray, used: FloatArray, factor: Any, here: Any) -> None:
    """Divide by the diagonal of P⁻¹ after the newcomer's arrival."""
    _inline()
    _wide()
    for i in range(here):
        unused, v = 1.0 - used[i], scratch[0, i]
        scratch[1, i] = scratch[1, i] / (diagonal[i] + factor * v * v + unused) + unused * _OUT_OF_USE


@in_place_least
def _least(scratch: FloatArray, size: Any) -> Any:
    _inline()
    _wide()
    least = _OUT_OF_USE
    for i in range(size):
        least = min(least, scratch[1, i])
    return least


@in_place_sum
def _growing_step(sums: Any, functions: Any, vectors: Any, totals: Any, row: Any) -> None:
    """Have v, row 0 of scratch, join; ``row`` are its place in the block, slot, all slots, δ, pivot, forgetful."""
    _inline()
    _wide()
    (w, by_output, P_diagonal, used), (a, scratch, K_diagonal), (counts, numbers) = functions, vectors, totals
    P_sum, K_sum = sums
    t, here, slots, delta, pivot, forgetful = row
    sigma, tau = numbers[SIGMA], numbers[TAU]
    counts[N_V] = append(P_sum, counts[N_V], scratch, (0, here + 1, slots, 1.0 / (pivot * sigma)))
    for i in range(here):
        scratch[2, i] = -a[t, i]
    scratch[2, here] = 1.0
    counts[N_G] = append(K_sum, counts[N_G], scratch, (2, here + 1, slots, 1.0 / delta))
    for o in range(len(w)):
        kappa = by_output[1, o]
        for i in range(here + 1):
            w[o, i] += kappa * scratch[0, i]
        if o >= counts[SCORED]:
            numbers[HIDDEN] -= kappa * kappa * pivot
    add_squares(P_diagonal, scratch, 0, 1.0 / pivot, here + 1)
    if forgetful:
        counts[N_V] = append(P_sum, counts[N_V], scratch, (2, here + 1, slots, -tau / (sigma * delta)))
        add_squares(K_diagonal, scratch, 2, 1.0 / delta, here + 1)
    used[here] = 1.0
    counts[GROWN] += 1


@in_place_sum
def _pruning_step(before: Matrices, sums: Any, functions: Any, vectors: Any, totals: Any, what: Any) -> None:
    """Remove a function: h, row 2 of scratch, is its row of P⁻¹, and g, row 3, its row of K⁻¹.

    ``what`` are its slot, how many slots are taken, all slots, and whether the past is forgotten.
    """
    _inline()
    _wide()
    (w, _, P_diagonal, used), (_, scratch, K_diagonal), (counts, numbers) = functions, vectors, totals
    P_sum, K_sum = sums
    place, size, slots, forgetful = what
    sigma, tau = numbers[SIGMA], numbers[TAU]
    copy_row(scratch, 2, before.P, place, (counts[BEFORE], size))
    copy_row(scratch, 3, before.K, place, (counts[BEFORE], size))
    add_column(scratch, 2, P_sum, (counts[N_V], place, size))
    add_column(scratch, 3, K_sum, (counts[N_G], place, size))
    for i in range(size):
        scratch[3, i] *= used[i]
        scratch[2, i] = used[i] * (sigma * scratch[2, i]) + tau * scratch[3, i]
    h_p, g_p = scratch[2, place], scratch[3, place]
    for o in range(len(w)):
        factor = w[o, place] / h_p
        numbers[COST if o < counts[SCORED] else HIDDEN] += factor * w[o, place]
        for i in range(size):
            w[o, i] -= factor * scratch[2, i]
        w[o, place] = 0.0
    add_squares(P_diagonal, scratch, 2, -1.0 / h_p, size)
    counts[N_G] = append(K_sum, counts[N_G], scratch, (3, size, slots, -1.0 / g_p))
    counts[N_V] = append(P_sum, counts[N_V], scratch, (2, size, slots, -1.0 / (h_p * sigma)))
    if forgetful:
        add_squares(K_diagonal, scratch, 3, -1.0 / g_p, size)
        counts[N_V] = append(P_sum, counts[N_V], scratch, (3, size, slots, tau / (sigma * g_p)))
    used[place] = 0.0
    counts[PRUNED] += 1
