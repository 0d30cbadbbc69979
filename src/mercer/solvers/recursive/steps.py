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

from mercer._jit import in_place_least, in_place_sum, wide_vectors
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

_wide: Any = wide_vectors

_OUT_OF_USE = 1e300  # score of slots that cannot be removed


@in_place_sum
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
        scales = (numbers[SIGMA], numbers[TAU], counts[N_V], here)
        along = _combine(state.values, state.u, state.a, t, state.used, state.w, state.V, scales)
        prior = data.prior[row]
        Delta, delta = 1.0 / data.weights[row] + along[0], prior - along[1]
        if not delta >= numbers[LEAST] * prior:
            numbers[LEAST] = delta / prior
        rho = data.targets[row, 0] - along[2]
        about = (counts[N_V], t, here, Delta, rho, counts[SCORED], data.targets, row)
        square = _normal_step(state.values, state.V, state.P_diagonal, state.w, state.by_output, numbers, about)
        slots = counts[BEFORE] + counts[ROWS]
        _fill_with_zeros(state.V, counts[N_V], here, slots)
        state.c[counts[N_V]] = -1.0 / (Delta * numbers[SIGMA])
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
        vectors, sizes = (state.a, t, state.V, counts[N_V] - 1, delta / Delta), (counts[SCORED], limits.fixed, here)
        is_full = counts[SIZE] >= limits.max_basis
        worth = (pivot, gain, limits.tie)
        functions = (state.w, state.by_output, state.P_diagonal, state.used)
        if is_full and _is_least(vectors, functions, state.scratch, sizes, worth):
            continue
        _newcomer(vectors, functions, state.scratch, sizes)
        if is_full:
            place = _weakest(state.scratch, state.P_diagonal, (state.used, state.births, limits.fixed, here), worth)
            if place == here:
                continue
        P_sum, K_sum = (state.V, state.c), (state.G, state.d)
        about_it = (t, here, slots, delta, pivot, limits.forgetting < 1.0)
        _growing_step(P_sum, K_sum, functions, (state.a, state.scratch, state.K_diagonal), (counts, numbers), about_it)
        numbers[COST] -= gain
        if is_full:
            about_it_too = (place, here + 1, slots, limits.forgetting < 1.0)
            _pruning_step(
                before, P_sum, K_sum, functions, (state.scratch, state.K_diagonal), (counts, numbers), about_it_too
            )
            state.homes[here] = state.homes[place]
        else:
            state.homes[here] = counts[SIZE]
            counts[SIZE] += 1


@in_place_sum
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


@in_place_sum
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


@in_place_sum
def _add_projections(
    products: FloatArray, values: FloatArray, t: Any, vectors: FloatArray, factors: FloatArray, span: Any
) -> None:
    """Add Σ c (v·k) v to a row: four vectors at a time, which stay in the cache between product and sum."""
    _wide()
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


@in_place_sum
def _add_four(target: FloatArray, t: Any, vectors: FloatArray, j: Any, factors: Any, size: Any) -> None:
    _wide()
    f0, f1, f2, f3 = factors
    for i in range(size):
        target[t, i] += f0 * vectors[j, i] + f1 * vectors[j + 1, i] + f2 * vectors[j + 2, i] + f3 * vectors[j + 3, i]


@in_place_sum
def _add_column(target: FloatArray, t: Any, sums: Any, span: Any) -> None:
    """Add column ``place`` of Σ c vvᵀ to a row; ``span``: number of vectors, place, size."""
    _wide()
    (vectors, factors), (last, place, size) = sums, span
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


@in_place_sum
def _combine(
    values: FloatArray,
    u: FloatArray,
    a: FloatArray,
    t: Any,
    used: FloatArray,
    w: FloatArray,
    V: FloatArray,
    scales: Any,
) -> Any:
    """Make row ``number`` of V P⁻¹k = (σM + τK⁻¹)k, and a K⁻¹k, zero where no function is in use.

    ``scales`` are σ, τ, number, size. Returns the products of k with both, and with the first coefficients.
    """
    _wide()
    sigma, tau, number, size = scales
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
def _normal_step(
    values: FloatArray,
    V: FloatArray,
    diagonal: FloatArray,
    w: FloatArray,
    by_output: FloatArray,
    numbers: FloatArray,
    row: Any,
) -> Any:
    """Learn a row by its targets: fill in ρ; return |ρ|² of the outputs that count.

    ``row`` are the place of P⁻¹k in V, the row's place in the block, its slot, Δ, ρ of the first output, the number of
    outputs that count, all targets and its number among them.
    """
    _wide()
    number, t, here, Delta, first, n_scored, targets, target = row
    share, along = 1.0 / Delta, first / Delta
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
        along = rho / Delta
        for i in range(here):
            w[o, i] += along * V[number, i]
        by_output[0, o] = rho
        if o < n_scored:
            square += rho * rho
        else:
            numbers[HIDDEN] += rho * along
    numbers[COST] += square / Delta
    return square


@in_place_sum
def _newcomer(vectors: Any, functions: Any, scratch: FloatArray, sizes: Any) -> None:
    """Fill in v = [-a - (δ/Δ)u, 1], and (w + κv)², summed over outputs that count."""
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
def _is_least(vectors: Any, functions: Any, scratch: FloatArray, sizes: Any, worth: Any) -> Any:
    """Whether to remove the newcomer costs least, or as much as anything else: most are, and it takes no division."""
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
    _newcomer(vectors, functions, scratch, sizes)
    for i in range(here):
        v = scratch[0, i]
        above = used[i] * (gain * diagonal[i] + share * v * v - equal * scratch[1, i])
        excess += above if above > 0.0 else 0.0
    return excess == 0.0


@in_place_sum
def _fill_with_zeros(vectors: FloatArray, number: Any, first: Any, last: Any) -> None:
    for i in range(np.uintp(first), np.uintp(last)):  # signed numbers, which may count from the end, are slower
        vectors[number, i] = 0.0


@in_place_sum
def _append(sums: Any, number: Any, scratch: FloatArray, what: Any) -> Any:
    """Append a row of scratch, zeros behind its first entries, and its factor; return how many vectors there are."""
    _wide()
    (vectors, factors), (row, size, slots, factor) = sums, what
    for i in range(size):
        vectors[number, i] = scratch[row, i]
    _fill_with_zeros(vectors, number, size, slots)
    factors[number] = factor
    return number + 1


@in_place_sum
def _growing_step(P_sum: Any, K_sum: Any, functions: Any, vectors: Any, totals: Any, row: Any) -> None:
    """Have v, row 0 of scratch, join.

    ``P_sum`` and ``K_sum`` are vectors and factors of both sums; ``functions`` coefficients, ρ and κ, the diagonal of
    P⁻¹, and which slots are in use; ``vectors`` a, scratch and the diagonal of K⁻¹; ``totals`` counts and numbers;
    ``row`` the row's place in the block, its slot, all slots, δ, pivot, and whether the past is forgotten.
    """
    _wide()
    (w, by_output, P_diagonal, used), (a, scratch, K_diagonal), (counts, numbers) = functions, vectors, totals
    t, here, slots, delta, pivot, forgetful = row
    sigma, tau = numbers[SIGMA], numbers[TAU]
    counts[N_V] = _append(P_sum, counts[N_V], scratch, (0, here + 1, slots, 1.0 / (pivot * sigma)))
    for i in range(here):
        scratch[2, i] = -a[t, i]
    scratch[2, here] = 1.0
    counts[N_G] = _append(K_sum, counts[N_G], scratch, (2, here + 1, slots, 1.0 / delta))
    for o in range(len(w)):
        kappa = by_output[1, o]
        for i in range(here + 1):
            w[o, i] += kappa * scratch[0, i]
        if o >= counts[SCORED]:
            numbers[HIDDEN] -= kappa * kappa * pivot
    _add_squares(P_diagonal, scratch, 0, 1.0 / pivot, here + 1)
    if forgetful:
        counts[N_V] = _append(P_sum, counts[N_V], scratch, (2, here + 1, slots, -tau / (sigma * delta)))
        _add_squares(K_diagonal, scratch, 2, 1.0 / delta, here + 1)
    used[here] = 1.0
    counts[GROWN] += 1


@in_place_sum
def _add_squares(vector: FloatArray, scratch: FloatArray, row: Any, factor: Any, size: Any) -> None:
    _wide()
    for i in range(size):
        vector[i] += factor * scratch[row, i] * scratch[row, i]


@in_place_sum
def _weakest(scratch: FloatArray, diagonal: FloatArray, slots: Any, worth: Any) -> Any:
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
    _wide()
    for i in range(here):
        unused, v = 1.0 - used[i], scratch[0, i]
        scratch[1, i] = scratch[1, i] / (diagonal[i] + factor * v * v + unused) + unused * _OUT_OF_USE


@in_place_least
def _least(scratch: FloatArray, size: Any) -> Any:
    _wide()
    least = _OUT_OF_USE
    for i in range(size):
        least = min(least, scratch[1, i])
    return least


@in_place_sum
def _copy_row(scratch: FloatArray, row: Any, matrix: FloatArray, place: Any, sizes: Any) -> None:
    """Fill in a row of a symmetric matrix, of which the upper triangle is known; zeros in slots beyond it."""
    m, size = sizes
    if place < m:
        for i in range(place):
            scratch[row, i] = matrix[i, place]
        for i in range(np.uintp(place), np.uintp(m)):
            scratch[row, i] = matrix[place, i]
    _fill_with_zeros(scratch, row, m if place < m else 0, size)


@in_place_sum
def _pruning_step(
    before: Matrices, P_sum: Any, K_sum: Any, functions: Any, vectors: Any, totals: Any, what: Any
) -> None:
    """Remove a function: h, row 2 of scratch, is its row of P⁻¹, and g, row 3, its row of K⁻¹.

    ``what`` are its slot, how many slots are taken, all slots, and whether the past is forgotten; see above for others.
    """
    _wide()
    (w, _, P_diagonal, used), (scratch, K_diagonal), (counts, numbers) = functions, vectors, totals
    place, size, slots, forgetful = what
    sigma, tau = numbers[SIGMA], numbers[TAU]
    _copy_row(scratch, 2, before.P, place, (counts[BEFORE], size))
    _copy_row(scratch, 3, before.K, place, (counts[BEFORE], size))
    _add_column(scratch, 2, P_sum, (counts[N_V], place, size))
    _add_column(scratch, 3, K_sum, (counts[N_G], place, size))
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
    _add_squares(P_diagonal, scratch, 2, -1.0 / h_p, size)
    counts[N_G] = _append(K_sum, counts[N_G], scratch, (3, size, slots, -1.0 / g_p))
    counts[N_V] = _append(P_sum, counts[N_V], scratch, (2, size, slots, -1.0 / (h_p * sigma)))
    if forgetful:
        _add_squares(K_diagonal, scratch, 3, -1.0 / g_p, size)
        counts[N_V] = _append(P_sum, counts[N_V], scratch, (3, size, slots, tau / (sigma * g_p)))
    used[place] = 0.0
    counts[PRUNED] += 1
