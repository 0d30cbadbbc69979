r"""What happens to one row within a block, compiled.

The formulas are those of ``reference``. Growing and then pruning the newcomer is the normal step alone, and is known
beforehand: its score would be :math:`\kappa^2\Delta_b`, the others'
:math:`(w_i + \kappa v_i)^2/(P^{-1}_{ii} + v_i^2/\Delta_b)`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mercer._jit import jit_least, jit_sum
from mercer._typing import FloatArray, IntArray

__all__ = [
    "COST",
    "GROWN",
    "HIDDEN",
    "LEAST",
    "N_G",
    "N_V",
    "PRUNED",
    "SCORED",
    "SIGMA",
    "SIZE",
    "TAU",
    "Limits",
    "State",
    "learn_rows",
]

N_V, N_G, SIZE, GROWN, PRUNED, SCORED = range(6)  # of ``counts``
SIGMA, TAU, COST, LEAST, HIDDEN = range(5)  # of ``numbers``
_FOLD = 32  # rows after which vectors are folded into the products of the rows to come
_OUT_OF_USE = 1e300  # score of slots that cannot be removed


class Limits(NamedTuple):
    """The rules, as numbers; a negative ``gain_tol`` asks for novelty alone.

    The first ``fixed`` functions, which count in ``max_basis``, are never removed. Constants of other modules are here,
    too: compiled code that is kept on disk would not notice their change.
    """

    noise: float
    max_basis: int
    fixed: int
    novelty_tol: float
    gain_tol: float
    forgetting: float
    least_novelty: float
    tie: float


class State(NamedTuple):
    """A block of b rows with m functions before it; s = m + b slots.

    Attributes
    ----------
    values : array (b, s)
        Kernel values between the rows and the functions of all slots.
    u, a : arrays (b, s)
        Mk and K⁻¹k of the rows, as far as vectors are folded in.
    w : array (p, s)
    P_diagonal, K_diagonal : arrays (s,)
        Of P⁻¹ and K⁻¹.
    used : array (s,)
        1 for functions in use, else 0.
    births, homes : arrays (s,)
        Row number that each slot came from; its place after the block.
    P0, K0 : arrays (m, m)
        P⁻¹ and K⁻¹ before the block; the upper triangles.
    V, c : arrays (5 b, s), (5 b,)
        Vectors and factors of M.
    G, d : arrays (2 b, s), (2 b,)
        Vectors and factors of K⁻¹.
    counts : array (6,)
        Vectors in V, in G; functions in use; grown; pruned; outputs that count.
    numbers : array (5,)
        σ, τ, ξ; the least novelty seen, as a share of k(x, x); ξ of the outputs that do not count.
    residuals : array (b,)
        |ρ|² of the rows, before they were learned.
    """

    values: FloatArray
    u: FloatArray
    a: FloatArray
    w: FloatArray
    P_diagonal: FloatArray
    K_diagonal: FloatArray
    used: FloatArray
    births: IntArray
    homes: IntArray
    P0: FloatArray
    K0: FloatArray
    V: FloatArray
    c: FloatArray
    G: FloatArray
    d: FloatArray
    counts: IntArray
    numbers: FloatArray
    residuals: FloatArray


@jit_sum
def learn_rows(state: State, limits: Limits, prior: FloatArray, targets: FloatArray, weights: FloatArray) -> None:
    """Learn the rows of a block one after the other."""
    folded_v, folded_g = 0, 0  # vectors that are in u and a
    for t in range(len(state.values)):
        if t % _FOLD == 0 and t > 0:
            _fold(state.values, state.u, state.V[folded_v : state.counts[N_V]], state.c[folded_v:], t)
            _fold(state.values, state.a, state.G[folded_g : state.counts[N_G]], state.d[folded_g:], t)
            folded_v, folded_g = state.counts[N_V], state.counts[N_G]
        if limits.forgetting < 1.0:
            _forget(state, limits, len(state.P0) + t)
        Delta, delta = _project(state, t, (folded_v, folded_g), 1.0 / weights[t], prior[t])
        if delta < state.numbers[LEAST] * prior[t]:
            state.numbers[LEAST] = delta / prior[t]
        least = max(limits.novelty_tol, limits.least_novelty * prior[t])
        _learn(state, limits, t, (Delta, delta, least), targets[t])


@jit_sum
def _fold(values: FloatArray, products: FloatArray, vectors: FloatArray, factors: FloatArray, first: Any) -> None:
    """Account for vectors in the products of the rows that are left."""
    if len(vectors) == 0:
        return
    projections = np.dot(values[first:], vectors.T)
    for j in range(len(vectors)):
        for i in range(len(projections)):
            projections[i, j] *= factors[j]
    products[first:] += np.dot(projections, vectors)


@jit_sum
def _learn(state: State, limits: Limits, t: Any, scalars: Any, target: FloatArray) -> None:
    Delta, delta, least = scalars
    here = len(state.P0) + t  # slot of this row; those behind it are empty
    rho = np.empty(len(state.w))
    square = _normal_step(state, t, here, Delta, target, rho)
    state.residuals[t] = square
    if delta <= least:
        return
    pivot = delta * (limits.noise + delta / Delta)
    gain = square / (limits.noise * Delta + delta) ** 2 * pivot
    if limits.gain_tol >= 0.0 and delta * gain <= limits.gain_tol:
        return
    kappa = rho / (limits.noise * Delta + delta)
    v, ratio, u, a = np.empty(here + 1), delta / Delta, state.u[t], state.a[t]
    for i in range(here):
        v[i] = -a[i] - ratio * u[i]
    v[here] = 1.0
    place = -1
    if state.counts[SIZE] >= limits.max_basis:
        place = _weakest(state, limits, v, kappa, (pivot, gain), here)
        if place == here:
            return
    _growing_step(state, t, here, v, kappa, (delta, pivot))
    state.numbers[COST] -= gain
    if place < 0:
        state.homes[here] = state.counts[SIZE]
        state.counts[SIZE] += 1
    else:
        _pruning_step(state, place, here)


@jit_sum
def _forget(state: State, limits: Limits, here: Any) -> None:
    share = limits.forgetting
    fresh = (1.0 - share) / limits.noise
    state.numbers[SIGMA] *= share
    state.numbers[TAU] = share * state.numbers[TAU] + fresh
    state.numbers[COST] *= share
    state.numbers[HIDDEN] *= share
    for i in range(here):
        state.P_diagonal[i] = share * state.P_diagonal[i] + fresh * state.K_diagonal[i]
    root = np.sqrt(share)
    for o in range(len(state.w)):
        for i in range(here):
            state.w[o, i] *= root


@jit_sum
def _project(state: State, t: Any, folded: Any, Delta: Any, delta: Any) -> Any:
    """Make u and a of a row P⁻¹k and K⁻¹k, on the functions in use; return 1/ω + k·u and k(x, x) - k·a."""
    k, u, a, here = state.values[t], state.u[t], state.a[t], len(state.P0) + t
    _add_projections(a, state.G[folded[1] : state.counts[N_G]], state.d[folded[1] :], k, here)
    _add_projections(u, state.V[folded[0] : state.counts[N_V]], state.c[folded[0] :], k, here)
    _combine(u, a, state.used, (state.numbers[SIGMA], state.numbers[TAU]), here)
    return Delta + _dot(k, u, here), delta - _dot(k, a, here)


@jit_sum
def _add_projections(vector: FloatArray, directions: FloatArray, factors: FloatArray, k: FloatArray, size: Any) -> None:
    """Add Σ c (v·k) v to a vector: four directions at a time, which stay in the cache between product and sum."""
    fours = len(directions) // 4 * 4
    for j in range(0, fours, 4):
        v0, v1, v2, v3 = directions[j], directions[j + 1], directions[j + 2], directions[j + 3]
        p0, p1, p2, p3 = 0.0, 0.0, 0.0, 0.0
        for i in range(size):
            p0 += v0[i] * k[i]
            p1 += v1[i] * k[i]
            p2 += v2[i] * k[i]
            p3 += v3[i] * k[i]
        _add_four(
            vector,
            (v0, v1, v2, v3),
            (p0 * factors[j], p1 * factors[j + 1], p2 * factors[j + 2], p3 * factors[j + 3]),
            size,
        )
    for j in range(fours, len(directions)):
        _add(vector, directions[j], factors[j] * _dot(directions[j], k, size), size)


@jit_sum
def _add_column(vector: FloatArray, directions: FloatArray, factors: FloatArray, place: Any) -> None:
    """Add column ``place`` of Σ c vvᵀ to a vector."""
    fours, size = len(directions) // 4 * 4, len(vector)
    for j in range(0, fours, 4):
        v0, v1, v2, v3 = directions[j], directions[j + 1], directions[j + 2], directions[j + 3]
        f0, f1, f2, f3 = factors[j], factors[j + 1], factors[j + 2], factors[j + 3]
        _add_four(vector, (v0, v1, v2, v3), (f0 * v0[place], f1 * v1[place], f2 * v2[place], f3 * v3[place]), size)
    for j in range(fours, len(directions)):
        _add(vector, directions[j], factors[j] * directions[j, place], size)


@jit_sum
def _add_four(vector: FloatArray, directions: Any, factors: Any, size: Any) -> None:
    (v0, v1, v2, v3), (f0, f1, f2, f3) = directions, factors
    for i in range(size):
        vector[i] += f0 * v0[i] + f1 * v1[i] + f2 * v2[i] + f3 * v3[i]


@jit_sum
def _dot(first: FloatArray, second: FloatArray, size: Any) -> Any:
    total = 0.0
    for i in range(size):
        total += first[i] * second[i]
    return total


@jit_sum
def _add(vector: FloatArray, direction: FloatArray, factor: Any, size: Any) -> None:
    for i in range(size):
        vector[i] += factor * direction[i]


@jit_sum
def _add_squares(vector: FloatArray, direction: FloatArray, factor: Any, size: Any) -> None:
    for i in range(size):
        vector[i] += factor * direction[i] * direction[i]


@jit_sum
def _combine(first: FloatArray, second: FloatArray, used: FloatArray, factors: Any, size: Any) -> None:
    """Make a vector of M one of P⁻¹ = σM + τK⁻¹, both zero where no function is in use."""
    sigma, tau = factors
    for i in range(size):
        second[i] *= used[i]
        first[i] = used[i] * (sigma * first[i]) + tau * second[i]


@jit_sum
def _normal_step(state: State, t: Any, here: Any, Delta: Any, target: FloatArray, rho: FloatArray) -> Any:
    """Fill ρ; return |ρ|² of the outputs that count."""
    k, u = state.values[t], state.u[t]
    square = 0.0
    for o in range(len(state.w)):
        w = state.w[o]
        rho[o] = target[o] - _dot(k, w, here)
        if o < state.counts[SCORED]:
            square += rho[o] * rho[o]
        else:
            state.numbers[HIDDEN] += rho[o] * rho[o] / Delta
        _add(w, u, rho[o] / Delta, here)
    _add_squares(state.P_diagonal, u, -1.0 / Delta, here)
    state.counts[N_V] = _append(state.V, state.c, state.counts[N_V], u, here, -1.0 / (Delta * state.numbers[SIGMA]))
    state.numbers[COST] += square / Delta
    return square


@jit_sum
def _append(vectors: FloatArray, factors: FloatArray, number: Any, vector: FloatArray, size: Any, factor: Any) -> Any:
    """Append a vector, zeros behind its first entries, and its factor; return how many there are."""
    vectors[number, :size] = vector[:size]
    vectors[number, size:] = 0.0
    factors[number] = factor
    return number + 1


@jit_sum
def _growing_step(state: State, t: Any, here: Any, v: FloatArray, kappa: FloatArray, pivots: Any) -> None:
    delta, pivot = pivots
    sigma, tau = state.numbers[SIGMA], state.numbers[TAU]
    state.counts[N_V] = _append(state.V, state.c, state.counts[N_V], v, here + 1, 1.0 / (pivot * sigma))
    g = -state.a[t]
    g[here] = 1.0
    state.counts[N_G] = _append(state.G, state.d, state.counts[N_G], g, here + 1, 1.0 / delta)
    if tau != 0.0:
        state.counts[N_V] = _append(state.V, state.c, state.counts[N_V], g, here + 1, -tau / (sigma * delta))
    for o in range(len(kappa)):
        _add(state.w[o], v, kappa[o], here + 1)
        if o >= state.counts[SCORED]:
            state.numbers[HIDDEN] -= kappa[o] * kappa[o] * pivot
    _add_squares(state.P_diagonal, v, 1.0 / pivot, here + 1)
    _add_squares(state.K_diagonal, g, 1.0 / delta, here + 1)
    state.used[here] = 1.0
    state.counts[GROWN] += 1


@jit_sum
def _weakest(state: State, limits: Limits, v: FloatArray, kappa: FloatArray, worth: Any, here: Any) -> Any:
    """The slot whose removal would cost least after the newcomer's arrival: among equals the newest."""
    (pivot, gain), fixed = worth, limits.fixed
    scores = np.zeros(here)
    for o in range(state.counts[SCORED]):
        _add_square_of_sum(scores, state.w[o], v, kappa[o])
    _finish_scores(scores, v, state.P_diagonal, state.used, 1.0 / pivot)
    limit = min(gain, _least(scores[fixed:])) * (1.0 + limits.tie)
    if gain <= limit:
        return here  # the newest of all
    found = -1
    for i in range(fixed, here):
        if scores[i] <= limit and (found < 0 or state.births[i] > state.births[found]):
            found = i
    return found


@jit_sum
def _add_square_of_sum(scores: FloatArray, first: FloatArray, second: FloatArray, factor: Any) -> None:
    for i in range(len(scores)):
        total = first[i] + factor * second[i]
        scores[i] += total * total


@jit_sum
def _finish_scores(scores: FloatArray, v: FloatArray, diagonal: FloatArray, used: FloatArray, factor: Any) -> None:
    """Divide by the diagonal of P⁻¹ after the newcomer's arrival."""
    for i in range(len(scores)):
        unused = 1.0 - used[i]
        scores[i] = scores[i] / (diagonal[i] + factor * v[i] * v[i] + unused) + unused * _OUT_OF_USE


@jit_least
def _least(scores: FloatArray) -> Any:
    least = _OUT_OF_USE
    for i in range(len(scores)):
        least = min(least, scores[i])
    return least


@jit_sum
def _copy_row(row: FloatArray, matrix: FloatArray, place: Any) -> None:
    """Fill in a row of a symmetric matrix, of which the upper triangle is known."""
    for i in range(place):
        row[i] = matrix[i, place]
    row[place : len(matrix)] = matrix[place, place:]


@jit_sum
def _pruning_step(state: State, place: Any, here: Any) -> None:
    size, m = here + 1, len(state.P0)
    sigma, tau = state.numbers[SIGMA], state.numbers[TAU]
    g, h = np.zeros(size), np.zeros(size)  # rows of K⁻¹ and P⁻¹
    if place < m:
        _copy_row(g, state.K0, place)
        _copy_row(h, state.P0, place)
    _add_column(g, state.G[: state.counts[N_G]], state.d, place)
    _add_column(h, state.V[: state.counts[N_V]], state.c, place)
    _combine(h, g, state.used, (sigma, tau), size)
    g_p, h_p = g[place], h[place]
    for o in range(len(state.w)):
        w = state.w[o]
        factor = w[place] / h_p
        state.numbers[COST if o < state.counts[SCORED] else HIDDEN] += factor * w[place]
        _add(w, h, -factor, size)
        w[place] = 0.0
    _add_squares(state.P_diagonal, h, -1.0 / h_p, size)
    _add_squares(state.K_diagonal, g, -1.0 / g_p, size)
    state.counts[N_G] = _append(state.G, state.d, state.counts[N_G], g, size, -1.0 / g_p)
    state.counts[N_V] = _append(state.V, state.c, state.counts[N_V], h, size, -1.0 / (h_p * sigma))
    if tau != 0.0:
        state.counts[N_V] = _append(state.V, state.c, state.counts[N_V], g, size, tau / (sigma * g_p))
    state.used[place] = 0.0
    state.homes[here] = state.homes[place]
    state.counts[PRUNED] += 1
