r"""What happens to the rows of a block, compiled.

The formulas are those of ``reference``. Growing and then pruning the newcomer is the normal step alone, and is known
beforehand: its score would be :math:`\kappa^2\Delta_b`, the others'
:math:`(w_i + \kappa v_i)^2/(P^{-1}_{ii} + v_i^2/\Delta_b)`.

Functions here take arrays and the number of a row, and no views of rows: taking a view costs as much as the work on a
short row does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer._jit import jit_least, jit_sum
from mercer._typing import FloatArray
from mercer.solvers.compiled_blas import Routines, add_product
from mercer.solvers.recursive.state import (
    BEFORE,
    COST,
    FOLD,
    GROWN,
    HIDDEN,
    LEAST,
    N_G,
    N_V,
    PRUNED,
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

__all__ = ["fold", "learn_rows"]

_OUT_OF_USE = 1e300  # score of slots that cannot be removed


@jit_sum
def learn_rows(blas: Routines, state: State, before: Matrices, limits: Limits, data: Data, start: Any) -> None:
    """Learn the rows of a block, those of the data from ``start`` on, one after the other."""
    counts, numbers, noise = state.counts, state.numbers, limits.noise
    folded_v, folded_g = 0, 0  # vectors that are in u and a
    for t in range(counts[ROWS]):
        here, row = counts[BEFORE] + t, start + t  # slot of this row; those behind it are empty
        if t > 0 and t % FOLD == 0:
            width = counts[BEFORE] + counts[ROWS]
            span_v = (counts[ROWS] - t, t, folded_v, counts[N_V], width)
            span_g = (counts[ROWS] - t, t, folded_g, counts[N_G], width)
            fold(blas, state.values, state.u, (state.V, state.c), state.projections, span_v)
            fold(blas, state.values, state.a, (state.G, state.d), state.projections, span_g)
            folded_v, folded_g = counts[N_V], counts[N_G]
        if limits.forgetting < 1.0:
            _forget(state.w, state.P_diagonal, state.K_diagonal, numbers, (limits.forgetting, noise, here))
        _add_projections(state.a, state.values, t, state.G, state.d, (folded_g, counts[N_G], here))
        _add_projections(state.u, state.values, t, state.V, state.c, (folded_v, counts[N_V], here))
        along_u, along_a = _combine(state.values, state.u, state.a, t, state.used, (numbers[SIGMA], numbers[TAU], here))
        prior = data.prior[row]
        Delta, delta = 1.0 / data.weights[row] + along_u, prior - along_a
        if not delta >= numbers[LEAST] * prior:
            numbers[LEAST] = delta / prior
        about = (t, here, Delta, counts[SCORED], data.targets, row)
        square = _normal_step(state.values, state.u, state.w, state.by_output, numbers, about)
        last = (counts[N_V], t, here, counts[BEFORE] + counts[ROWS], Delta, numbers[SIGMA])
        _record(state.V, state.c, state.P_diagonal, state.u, last)
        counts[N_V] += 1
        data.residuals[row] = square
        if not delta > max(limits.novelty_tol, limits.least_novelty * prior):
            continue
        pivot = delta * (noise + delta / Delta)
        gain = square / (noise * Delta + delta) ** 2 * pivot
        if limits.gain_tol >= 0.0 and delta * gain <= limits.gain_tol:
            continue
        for o in range(len(state.w)):
            state.by_output[1, o] = state.by_output[0, o] / (noise * Delta + delta)
        _newcomer(state.a, state.u, t, delta / Delta, state.scratch, here)
        if counts[SIZE] < limits.max_basis:
            _growing_step(state, t, here, delta, pivot)
            state.homes[here] = counts[SIZE]
            counts[SIZE] += 1
            numbers[COST] -= gain
            continue
        slots = (state.used, state.births, counts[SCORED], limits.fixed, here)
        worth = (pivot, gain, limits.tie)
        place = _weakest(state.scratch, state.w, state.by_output, state.P_diagonal, slots, worth)
        if place < here:
            _growing_step(state, t, here, delta, pivot)
            numbers[COST] -= gain
            _pruning_step(state, before, place, here)


@jit_sum
def fold(blas: Routines, values: FloatArray, products: FloatArray, sums: Any, room: FloatArray, span: Any) -> None:
    """Account for vectors ``first`` to ``last`` in the products of the rows from t on.

    ``span`` are the number of these rows, t, first, last, and the number of slots.
    """
    (vectors, factors), (n_rows, t, first, last, slots) = sums, span
    number, stride, width = last - first, values.shape[1], room.shape[1]
    if number == 0:
        return
    new = vectors[first:]
    add_product(blas, values[t:], new, room, (n_rows, number, slots, stride, stride, width, True, 0.0))
    for i in range(n_rows):
        for j in range(number):
            room[i, j] *= factors[first + j]
    add_product(blas, room, new, products[t:], (n_rows, slots, number, width, stride, stride, False, 1.0))


@jit_sum
def _forget(w: FloatArray, P_diagonal: FloatArray, K_diagonal: FloatArray, numbers: FloatArray, rates: Any) -> None:
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


@jit_sum
def _add_projections(
    products: FloatArray, values: FloatArray, t: Any, vectors: FloatArray, factors: FloatArray, span: Any
) -> None:
    """Add Σ c (v·k) v to a row: four vectors at a time, which stay in the cache between product and sum."""
    first, last, size = span
    alone = first + (last - first) % 4
    for j in range(first, alone):
        along = 0.0
        for i in range(size):
            along += vectors[j, i] * values[t, i]
        along *= factors[j]
        for i in range(size):
            products[t, i] += along * vectors[j, i]
    for j in range(alone, last, 4):
        p0, p1, p2, p3 = 0.0, 0.0, 0.0, 0.0
        for i in range(size):
            k = values[t, i]
            p0 += vectors[j, i] * k
            p1 += vectors[j + 1, i] * k
            p2 += vectors[j + 2, i] * k
            p3 += vectors[j + 3, i] * k
        fours = (p0 * factors[j], p1 * factors[j + 1], p2 * factors[j + 2], p3 * factors[j + 3])
        _add_four(products, t, vectors, j, fours, size)


@jit_sum
def _add_four(target: FloatArray, t: Any, vectors: FloatArray, j: Any, factors: Any, size: Any) -> None:
    f0, f1, f2, f3 = factors
    for i in range(size):
        target[t, i] += f0 * vectors[j, i] + f1 * vectors[j + 1, i] + f2 * vectors[j + 2, i] + f3 * vectors[j + 3, i]


@jit_sum
def _add_column(target: FloatArray, t: Any, vectors: FloatArray, factors: FloatArray, span: Any) -> None:
    """Add column ``place`` of Σ c vvᵀ to a row; ``span``: number of vectors, place, size."""
    last, place, size = span
    alone = last % 4
    for j in range(alone):
        factor = factors[j] * vectors[j, place]
        for i in range(size):
            target[t, i] += factor * vectors[j, i]
    for j in range(alone, last, 4):
        along = (
            factors[j] * vectors[j, place],
            factors[j + 1] * vectors[j + 1, place],
            factors[j + 2] * vectors[j + 2, place],
            factors[j + 3] * vectors[j + 3, place],
        )
        _add_four(target, t, vectors, j, along, size)


@jit_sum
def _combine(values: FloatArray, u: FloatArray, a: FloatArray, t: Any, used: FloatArray, scales: Any) -> Any:
    """Make u and a of a row P⁻¹k = (σM + τK⁻¹)k and K⁻¹k, zero where no function is in use; return k·u and k·a."""
    sigma, tau, size = scales
    along_u, along_a = 0.0, 0.0
    for i in range(size):
        by_K = used[i] * a[t, i]
        by_P = used[i] * (sigma * u[t, i]) + tau * by_K
        a[t, i], u[t, i] = by_K, by_P
        along_u += values[t, i] * by_P
        along_a += values[t, i] * by_K
    return along_u, along_a


@jit_sum
def _normal_step(
    values: FloatArray, u: FloatArray, w: FloatArray, by_output: FloatArray, numbers: FloatArray, row: Any
) -> Any:
    """Learn a row by its targets: fill in ρ; return |ρ|² of the outputs that count.

    ``row`` are the row's place in the block, its slot, Δ, the number of outputs that count, all targets and its number
    among them.
    """
    t, here, Delta, n_scored, targets, number = row
    square = 0.0
    for o in range(len(w)):
        rho = targets[number, o]
        for i in range(here):
            rho -= values[t, i] * w[o, i]
        share = rho / Delta
        for i in range(here):
            w[o, i] += share * u[t, i]
        by_output[0, o] = rho
        if o < n_scored:
            square += rho * rho
        else:
            numbers[HIDDEN] += rho * share
    numbers[COST] += square / Delta
    return square


@jit_sum
def _record(V: FloatArray, c: FloatArray, diagonal: FloatArray, u: FloatArray, row: Any) -> None:
    """Append the normal step to the vectors of P⁻¹; ``row``: their number, t, slot, slots in all, Δ, σ."""
    number, t, here, slots, Delta, sigma = row
    share = 1.0 / Delta
    for i in range(here):
        diagonal[i] -= share * u[t, i] * u[t, i]
        V[number, i] = u[t, i]
    for i in range(here, slots):
        V[number, i] = 0.0
    c[number] = -share / sigma


@jit_sum
def _newcomer(a: FloatArray, u: FloatArray, t: Any, ratio: Any, scratch: FloatArray, here: Any) -> None:
    """Fill in v = [-a - (δ/Δ)u, 1]."""
    for i in range(here):
        scratch[0, i] = -a[t, i] - ratio * u[t, i]
    scratch[0, here] = 1.0


@jit_sum
def _append(vectors: FloatArray, factors: FloatArray, number: Any, scratch: FloatArray, what: Any) -> Any:
    """Append a row of scratch, zeros behind its first entries, and its factor; return how many vectors there are."""
    row, size, slots, factor = what
    for i in range(size):
        vectors[number, i] = scratch[row, i]
    for i in range(size, slots):
        vectors[number, i] = 0.0
    factors[number] = factor
    return number + 1


@jit_sum
def _growing_step(state: State, t: Any, here: Any, delta: Any, pivot: Any) -> None:
    counts, numbers, scratch, w = state.counts, state.numbers, state.scratch, state.w
    sigma, tau, slots = numbers[SIGMA], numbers[TAU], counts[BEFORE] + counts[ROWS]
    counts[N_V] = _append(state.V, state.c, counts[N_V], scratch, (0, here + 1, slots, 1.0 / (pivot * sigma)))
    for i in range(here):
        scratch[1, i] = -state.a[t, i]
    scratch[1, here] = 1.0
    counts[N_G] = _append(state.G, state.d, counts[N_G], scratch, (1, here + 1, slots, 1.0 / delta))
    if tau != 0.0:
        counts[N_V] = _append(state.V, state.c, counts[N_V], scratch, (1, here + 1, slots, -tau / (sigma * delta)))
    for o in range(len(w)):
        kappa = state.by_output[1, o]
        for i in range(here + 1):
            w[o, i] += kappa * scratch[0, i]
        if o >= counts[SCORED]:
            numbers[HIDDEN] -= kappa * kappa * pivot
    _add_squares(state.P_diagonal, scratch, 0, 1.0 / pivot, here + 1)
    _add_squares(state.K_diagonal, scratch, 1, 1.0 / delta, here + 1)
    state.used[here] = 1.0
    counts[GROWN] += 1


@jit_sum
def _add_squares(vector: FloatArray, scratch: FloatArray, row: Any, factor: Any, size: Any) -> None:
    for i in range(size):
        vector[i] += factor * scratch[row, i] * scratch[row, i]


@jit_sum
def _weakest(
    scratch: FloatArray, w: FloatArray, by_output: FloatArray, diagonal: FloatArray, slots: Any, worth: Any
) -> Any:
    """The slot whose removal would cost least after the newcomer's arrival: among equals the newest.

    ``slots`` are ``used``, ``births``, the number of outputs that count, of functions that stay, and of slots;
    ``worth`` the newcomer's pivot and gain, and which scores are equal.
    """
    (used, births, n_scored, fixed, here), (pivot, gain, tie) = slots, worth
    _fill_scores(scratch, w, by_output, n_scored, here)
    _finish_scores(scratch, diagonal, used, 1.0 / pivot, here)
    for i in range(fixed):
        scratch[1, i] = _OUT_OF_USE
    limit = min(gain, _least(scratch, here)) * (1.0 + tie)
    if gain <= limit:
        return here  # the newest of all
    found = here
    for i in range(fixed, here):
        if used[i] > 0.0 and scratch[1, i] <= limit and (found == here or births[i] > births[found]):
            found = i
    return found


@jit_sum
def _fill_scores(scratch: FloatArray, w: FloatArray, by_output: FloatArray, n_scored: Any, here: Any) -> None:
    """(w + κv)², summed over outputs."""
    first = min(n_scored, 1)
    for i in range(here):
        total = first * (w[0, i] + by_output[1, 0] * scratch[0, i])
        scratch[1, i] = total * total
    for o in range(1, n_scored):
        for i in range(here):
            total = w[o, i] + by_output[1, o] * scratch[0, i]
            scratch[1, i] += total * total


@jit_sum
def _finish_scores(scratch: FloatArray, diagonal: FloatArray, used: FloatArray, factor: Any, here: Any) -> None:
    """Divide by the diagonal of P⁻¹ after the newcomer's arrival."""
    for i in range(here):
        unused, v = 1.0 - used[i], scratch[0, i]
        scratch[1, i] = scratch[1, i] / (diagonal[i] + factor * v * v + unused) + unused * _OUT_OF_USE


@jit_least
def _least(scratch: FloatArray, size: Any) -> Any:
    least = _OUT_OF_USE
    for i in range(size):
        least = min(least, scratch[1, i])
    return least


@jit_sum
def _copy_row(scratch: FloatArray, row: Any, matrix: FloatArray, place: Any, sizes: Any) -> None:
    """Fill in a row of a symmetric matrix, of which the upper triangle is known; zeros in slots beyond it."""
    m, size = sizes
    if place < m:
        for i in range(place):
            scratch[row, i] = matrix[i, place]
        for i in range(place, m):
            scratch[row, i] = matrix[place, i]
    for i in range(m if place < m else 0, size):
        scratch[row, i] = 0.0


@jit_sum
def _pruning_step(state: State, before: Matrices, place: Any, here: Any) -> None:
    """Remove a function: h, row 2 of scratch, is its row of P⁻¹, and g, row 3, its row of K⁻¹."""
    counts, numbers, scratch, w = state.counts, state.numbers, state.scratch, state.w
    sigma, tau, size = numbers[SIGMA], numbers[TAU], here + 1
    slots = counts[BEFORE] + counts[ROWS]
    _copy_row(scratch, 2, before.P, place, (counts[BEFORE], size))
    _copy_row(scratch, 3, before.K, place, (counts[BEFORE], size))
    _add_column(scratch, 2, state.V, state.c, (counts[N_V], place, size))
    _add_column(scratch, 3, state.G, state.d, (counts[N_G], place, size))
    for i in range(size):
        scratch[3, i] *= state.used[i]
        scratch[2, i] = state.used[i] * (sigma * scratch[2, i]) + tau * scratch[3, i]
    h_p, g_p = scratch[2, place], scratch[3, place]
    for o in range(len(w)):
        factor = w[o, place] / h_p
        numbers[COST if o < counts[SCORED] else HIDDEN] += factor * w[o, place]
        for i in range(size):
            w[o, i] -= factor * scratch[2, i]
        w[o, place] = 0.0
    _add_squares(state.P_diagonal, scratch, 2, -1.0 / h_p, size)
    _add_squares(state.K_diagonal, scratch, 3, -1.0 / g_p, size)
    counts[N_G] = _append(state.G, state.d, counts[N_G], scratch, (3, size, slots, -1.0 / g_p))
    counts[N_V] = _append(state.V, state.c, counts[N_V], scratch, (2, size, slots, -1.0 / (h_p * sigma)))
    if tau != 0.0:
        counts[N_V] = _append(state.V, state.c, counts[N_V], scratch, (3, size, slots, tau / (sigma * g_p)))
    state.used[place] = 0.0
    state.homes[here] = state.homes[place]
    counts[PRUNED] += 1
