"""What happens to the rows of a block, compiled; the formulas are those of ``reference``."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer._jit import always_inline, in_place_sum, wide_vectors
from mercer._typing import FloatArray
from mercer.solvers.compiled_blas import Routines
from mercer.solvers.recursive.changes import is_least, join, newcomer, weakest
from mercer.solvers.recursive.state import (
    BEFORE,
    COST,
    FOLD,
    HIDDEN,
    LEAST,
    N_G,
    N_V,
    ROWS,
    SCORED,
    SIGMA,
    SIZE,
    TAU,
    Data,
    Limits,
    Matrices,
    State,
)
from mercer.solvers.recursive.vectors import add_projections, fill_with_zeros, fold

__all__ = ["learn_rows"]

_inline: Any = always_inline
_wide: Any = wide_vectors


@in_place_sum
def learn_rows(blas: Routines, state: State, before: Matrices, limits: Limits, data: Data, start: Any) -> None:
    """Learn the rows of a block, those of the data from ``start`` on, one after the other."""
    _wide()
    counts, numbers, noise = state.counts, state.numbers, limits.noise
    folded_v, folded_g = 0, 0  # vectors that are in u and a
    for t in range(counts[ROWS]):
        here, row = counts[BEFORE] + t, start + t  # slot of this row; those behind it are empty
        if t > 0 and t % FOLD == 0:
            _fold_both(blas, state, t, (folded_v, folded_g))
            folded_v, folded_g = counts[N_V], counts[N_G]
        if limits.forgetting < 1.0:
            _forget(state.w, state.P_diagonal, state.K_diagonal, numbers, (limits.forgetting, noise, here))
        add_projections(state.a, state.values, t, state.G, state.d, (folded_g, counts[N_G], here))
        add_projections(state.u, state.values, t, state.V, state.c, (folded_v, counts[N_V], here))
        scales = (numbers[SIGMA], numbers[TAU], counts[N_V], here)
        along = _combine((state.values, state.u, state.a, t), state.used, state.w, state.V, scales)
        prior = data.prior[row]
        Delta, delta = 1.0 / data.weights[row] + along[0], prior - along[1]
        share = 1.0 / Delta  # used more than once, lest the compiler divide in the loop over functions instead
        if not delta >= numbers[LEAST] * prior:
            numbers[LEAST] = delta / prior
        rho = data.targets[row, 0] - along[2]
        about = (counts[N_V], t, here, share, rho, counts[SCORED], data.targets, row)
        square = _normal_step(state.values, state.V, (state.P_diagonal, state.w, state.by_output), numbers, about)
        slots = counts[BEFORE] + counts[ROWS]
        fill_with_zeros(state.V, counts[N_V], here, slots)
        state.c[counts[N_V]] = -share / numbers[SIGMA]
        counts[N_V] += 1
        data.residuals[row] = square
        if not delta > max(limits.novelty_tol, limits.least_novelty * prior):
            continue
        pivot = delta * (noise + delta * share)
        gain = square / (noise * Delta + delta) ** 2 * pivot
        if limits.gain_tol >= 0.0 and delta * gain <= limits.gain_tol:
            continue
        for o in range(len(state.w)):
            state.by_output[1, o] = state.by_output[0, o] / (noise * Delta + delta)
        vectors, sizes = (state.a, t, state.V, counts[N_V] - 1, delta * share), (counts[SCORED], limits.fixed, here)
        is_full = counts[SIZE] >= limits.max_basis
        worth = (pivot, gain, limits.tie)
        functions = (state.w, state.by_output, state.P_diagonal, state.used)
        if is_full and is_least(vectors, functions, state.scratch, sizes, worth):
            continue
        newcomer(vectors, functions, state.scratch, sizes)
        place = here  # that the newcomer takes, if it is its own
        if is_full:
            place = weakest(state.scratch, state.P_diagonal, (state.used, state.births, limits.fixed, here), worth)
            if place == here:
                continue
        sums = ((state.V, state.c), (state.G, state.d))
        about_it = (state.homes, t, here, place, slots, delta, pivot, limits.forgetting < 1.0)
        join(before, sums, functions, (state.a, state.scratch, state.K_diagonal), (counts, numbers), about_it)
        numbers[COST] -= gain


@in_place_sum
def _fold_both(blas: Routines, state: State, t: Any, folded: Any) -> None:
    """Have all vectors so far in the products of the rows from t on; ``folded``: how many of V and G are."""
    counts, n_left, width = state.counts, state.counts[ROWS] - t, state.counts[BEFORE] + state.counts[ROWS]
    span = (n_left, t, folded[0], counts[N_V], width)
    fold(blas, state.values, state.u, (state.V, state.c), state.projections, span)
    span = (n_left, t, folded[1], counts[N_G], width)
    fold(blas, state.values, state.a, (state.G, state.d), state.projections, span)


@in_place_sum
def _forget(w: FloatArray, P_diagonal: FloatArray, K_diagonal: FloatArray, numbers: FloatArray, rates: Any) -> None:
    _inline()
    share, noise, here = rates
    fresh = (1.0 - share) / noise
    numbers[SIGMA] *= share
    numbers[TAU] = share * numbers[TAU] + fresh
    numbers[COST] *= share
    numbers[HIDDEN] *= share
    for i in range(here):
        P_diagonal[i] = share * P_diagonal[i] + fresh * K_diagonal[i]
    root = np.sqrt(share)
    for o in range(len(w)):
        for i in range(here):
            w[o, i] *= root


@in_place_sum
def _combine(row: Any, used: FloatArray, w: FloatArray, V: FloatArray, scales: Any) -> Any:
    """Make row ``number`` of V P⁻¹k = (σM + τK⁻¹)k, and a K⁻¹k, zero where no function is in use.

    ``row`` are the tables of k, Mk and a, and its place in them; ``scales`` σ, τ, number, size. Returns the products of
    k with both, and with the first coefficients.
    """
    _inline()
    _wide()
    (values, u, a, t), (sigma, tau, number, size) = row, scales
    along_u, along_a, along_w = 0.0, 0.0, 0.0
    for i in range(size):
        k = values[t, i]
        by_K = used[i] * a[t, i]
        by_P = used[i] * (sigma * u[t, i]) + tau * by_K
        a[t, i], V[number, i] = by_K, by_P
        along_u += k * by_P
        along_a += k * by_K
        along_w += k * w[0, i]
    return along_u, along_a, along_w


@in_place_sum
def _normal_step(values: FloatArray, V: FloatArray, functions: Any, numbers: FloatArray, row: Any) -> Any:
    """Learn a row by its targets: fill in ρ; return |ρ|² of the outputs that count.

    ``functions`` are the diagonal of P⁻¹, coefficients, ρ and κ; ``row`` the place of P⁻¹k in V, the row's place in the
    block, its slot, 1/Δ, ρ of the first output, the number of outputs that count, all targets and the row's number.
    """
    _inline()
    _wide()
    (diagonal, w, by_output), (number, t, here, share, first, n_scored, targets, target) = functions, row
    along = first * share
    for i in range(here):
        u = V[number, i]
        diagonal[i] -= share * u * u
        w[0, i] += along * u
    by_output[0, 0] = first
    square = first * first if n_scored > 0 else 0.0
    if n_scored == 0:
        numbers[HIDDEN] += first * along
    for o in range(1, len(w)):
        rho = targets[target, o]
        for i in range(here):
            rho -= values[t, i] * w[o, i]
        along = rho * share
        for i in range(here):
            w[o, i] += along * V[number, i]
        by_output[0, o] = rho
        if o < n_scored:
            square += rho * rho
        else:
            numbers[HIDDEN] += rho * along
    numbers[COST] += square * share
    return square
