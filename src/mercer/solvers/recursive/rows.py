r"""What happens to the rows of a block, compiled.

A newcomer that would be pruned at once changes nothing but what the normal step does, and this is known beforehand: its
score would be :math:`\kappa^2\Delta_b`, the others' :math:`(w_i + \kappa v_i)^2/(P^{-1}_{ii} + v_i^2/\Delta_b)`. New
vectors are made in the next free rows of V and G, where they stay if the newcomer does.
"""

from typing import Any

import numpy as np

from mercer._jit import inlined, jit_sum
from mercer._typing import FloatArray
from mercer.solvers.compiled_blas import PLAIN, TRANSPOSED, add_product
from mercer.solvers.recursive.block import FOLD, PANEL, Block, Data, Matrices, Vectors
from mercer.solvers.recursive.rules import LEAST_NOVELTY, TIE

_OUT_OF_USE = 1e300  # score of slots that are no functions


@jit_sum
def learn_rows(block: Block, before: Matrices, data: Data, start: Any) -> None:
    """Learn the rows of a block, those of the data from ``start`` on, one after the other."""
    rules, tally, noise = block.rules, block.tally[0], block.rules.noise
    folded_V, folded_G = 0, 0  # vectors before these are in u and a
    for t in range(tally.n_rows):
        here, row = tally.n_before + t, start + t  # its slot, the last one that is not empty
        if t > 0 and t % FOLD == 0:
            _fold(block, block.V, (folded_V, tally.n_V), block.u, t)
            _fold(block, block.G, (folded_G, tally.n_G), block.a, t)
            folded_V, folded_G = tally.n_V, tally.n_G
        if rules.forgetting < 1.0:
            _forget(block, here)
        _add_projections(block.u, block.values, t, block.V, (folded_V, tally.n_V), here)
        _add_projections(block.a, block.values, t, block.G, (folded_G, tally.n_G), here)
        # u = P⁻¹k, a = K⁻¹k, Δ = 1/ω + kᵀu, δ = k(x, x) - kᵀa
        k_u, k_a, k_w = _combine(block, tally, t, here)
        prior, Delta = data.prior[row], 1.0 / data.weights[row] + k_u
        delta = prior - k_a
        if not delta >= tally.least_novelty * prior:
            tally.least_novelty = delta / prior
        square, hidden, share = 0.0, 0.0, 1.0 / Delta
        for o in range(len(block.w)):  # ρ = y - kᵀw
            k_w = k_w if o == 0 else _product(block.values, t, block.w, o, here)
            rho = data.targets[row, o] - k_w
            block.steps[o], data.residuals[row, o] = rho * share, rho
            if o < tally.n_scored:
                square += rho * rho
            else:
                hidden += rho * rho
        data.variances[row] = max(delta, 0.0) + noise * k_u
        # P⁻¹ - uuᵀ/Δ, w + (ρ/Δ)u, ξ + ρ²/Δ
        _step(block, tally, -share, here, (-square * share, -hidden * share))
        if not delta > max(rules.novelty_tol, LEAST_NOVELTY * prior):
            continue
        # Δ_b = δ(λ + δ/Δ), κ = ρ/(λΔ + δ); the row saves κ²Δ_b
        pivot, total = delta * (noise + delta / Delta), noise * Delta + delta
        gain = square / total**2 * pivot
        if rules.gain_tol >= 0.0 and delta * gain <= rules.gain_tol * data.units[row]:
            continue
        for o in range(len(block.w)):
            block.steps[o] *= Delta / total
        place = _place_to_take(block, tally, t, delta / Delta, pivot, gain)
        if place < 0:
            continue
        _grow(block, tally, t, delta, pivot, (gain, hidden / total**2 * pivot))
        home = tally.size - 1
        if place < here:
            _prune(block, tally, before, place)
            home = block.homes[place]
        block.homes[here], block.origins[home] = home, here


# ---------------------------------------------------------------------------------------------------- the normal step


@jit_sum
def _fold(block: Block, vectors: Vectors, span: Any, products: FloatArray, t: Any) -> None:
    """Account for a span of vectors in the products of the rows from t on."""
    (first, last), tally, forms = span, block.tally[0], (PLAIN, TRANSPOSED)
    n_rows, slots = tally.n_rows, tally.n_before + tally.n_rows
    new, along = vectors.rows[first:last, :slots], block.projections[: n_rows - t, : last - first]
    add_product(block.blas, forms, block.values[t:n_rows, :slots], new, along, 0.0)
    for i in range(n_rows - t):
        for j in range(last - first):
            along[i, j] *= vectors.factors[first + j]
    add_product(block.blas, (PLAIN, PLAIN), along, new, products[t:n_rows, :slots], 1.0)


@inlined
def _forget(block: Block, here: Any) -> None:
    """P⁻¹ ← φP⁻¹ + (1-φ)K⁻¹/λ,  w ← √φ w,  ξ ← φξ."""
    tally, share = block.tally[0], block.rules.forgetting
    fresh = (1.0 - share) / block.rules.noise
    tally.sigma *= share
    tally.tau = share * tally.tau + fresh
    tally.cost *= share
    tally.hidden_cost *= share
    for i in range(here):
        block.P_diagonal[i] = share * block.P_diagonal[i] + fresh * block.K_diagonal[i]
    for o in range(len(block.w)):
        for i in range(here):
            block.w[o, i] *= np.sqrt(share)


@inlined
def _combine(block: Block, tally: Any, t: Any, size: Any) -> Any:
    """Fill in u = (σM + τK⁻¹)k, as the next vector of V, and a = K⁻¹k, zero where no function is in use.

    Returns the products of k with both, and with the first coefficients.
    """
    n, sigma, tau = tally.n_V, tally.sigma, tally.tau
    k_u, k_a, k_w = 0.0, 0.0, 0.0
    for i in range(size):
        a_i = block.used[i] * block.a[t, i]
        block.V.rows[n, i] = block.used[i] * (sigma * block.u[t, i]) + tau * a_i
        block.a[t, i] = a_i
    for i in range(size):
        k = block.values[t, i]
        k_u += k * block.V.rows[n, i]
        k_a += k * block.a[t, i]
        k_w += k * block.w[0, i]
    return k_u, k_a, k_w


@inlined
def _step(block: Block, tally: Any, factor: Any, size: Any, saved: Any) -> None:
    """P⁻¹ + c vvᵀ, w + fv with an f per output, ξ less what is saved; v, of that size, is in the next free row of V.

    What is saved, f²/c summed over the outputs that count and over the others, is known to more digits before.
    """
    n, v = tally.n_V, block.V.rows
    for o in range(len(block.w)):
        _add_multiple(block.w, o, v, n, block.steps[o], size)
    tally.cost -= saved[0]
    tally.hidden_cost -= saved[1]
    for i in range(size):
        block.P_diagonal[i] += factor * v[n, i] * v[n, i]
    for i in range(np.uintp(size), np.uintp(tally.n_before + tally.n_rows)):  # signed numbers are slower
        v[n, i] = 0.0
    block.V.factors[n] = factor / tally.sigma  # P⁻¹ = σM + τK⁻¹
    tally.n_V += 1


# --------------------------------------------------------------------------------------- functions that come and go


@inlined
def _place_to_take(block: Block, tally: Any, t: Any, ratio: Any, pivot: Any, gain: Any) -> Any:
    """The slot that the newcomer takes: its own, or that of a function to be removed; -1 if it is the weakest itself.

    The weakest is the one whose removal would cost least after the newcomer's arrival: among equals the newest. Fills
    in v = [-a - (δ/Δ)u, 1]; the ratio is δ/Δ, pivot and gain are Δ_b and κ²Δ_b.
    """
    slot, v, scores, fixed = tally.n_before + t, tally.n_V, block.scores, int(block.rules.intercept)
    kappa = block.steps[0]
    for i in range(slot):
        v_i = -block.a[t, i] - ratio * block.V.rows[v - 1, i]
        total = block.w[0, i] + kappa * v_i
        block.V.rows[v, i], scores[i] = v_i, total * total
    block.V.rows[v, slot] = 1.0
    found = slot
    if tally.size == block.rules.max_basis + fixed:
        for o in range(1, tally.n_scored):
            kappa = block.steps[o]
            for i in range(slot):
                total = block.w[o, i] + kappa * block.V.rows[v, i]
                scores[i] += total * total
        excess, share = 0.0, 1.0 / pivot
        for i in range(np.uintp(fixed), np.uintp(slot)):  # most newcomers are the weakest, which takes no division
            v_i = block.V.rows[v, i]
            above = gain * (block.P_diagonal[i] + share * v_i * v_i) - (1.0 + TIE) * scores[i]
            excess += block.used[i] * (above if above > 0.0 else 0.0)
        found = -1
        if excess > 0.0:
            lowest = _OUT_OF_USE
            for i in range(fixed, slot):
                v_i, unused = block.V.rows[v, i], 1.0 - block.used[i]
                scores[i] = scores[i] / (block.P_diagonal[i] + share * v_i * v_i + unused) + unused * _OUT_OF_USE
                lowest = min(lowest, scores[i])
            for i in range(fixed, slot):
                if scores[i] <= lowest * (1.0 + TIE) and (found < 0 or block.births[i] > block.births[found]):
                    found = i
    return found


@inlined
def _grow(block: Block, tally: Any, t: Any, delta: Any, pivot: Any, saved: Any) -> None:
    """P⁻¹ + vvᵀ/Δ_b, w + κv, ξ - κ²Δ_b;  K⁻¹ + ggᵀ/δ with g = [-a, 1]."""
    here, g = tally.n_before + t, tally.n_G
    _step(block, tally, 1.0 / pivot, here + 1, saved)
    for i in range(here):
        block.G.rows[g, i] = -block.a[t, i]
    block.G.rows[g, here] = block.used[here] = 1.0
    _add_to_K(block, tally, 1.0 / delta, here + 1)
    tally.size += 1
    tally.n_grown += 1


@inlined
def _prune(block: Block, tally: Any, before: Matrices, place: Any) -> None:
    """P⁻¹ - hhᵀ/h_i with h its row i, w - (w_i/h_i)h, ξ + w_i²/h_i;  K⁻¹ - ggᵀ/g_i with g its row i."""
    h, g, size = block.V.rows[tally.n_V], block.G.rows[tally.n_G], tally.n_before + tally.n_rows
    _take_row(block.V, tally.n_V, before.P, place, (tally.n_before, size))
    _take_row(block.G, tally.n_G, before.K, place, (tally.n_before, size))
    for i in range(size):
        g[i] *= block.used[i]
        h[i] = block.used[i] * (tally.sigma * h[i]) + tally.tau * g[i]
    scored, hidden = 0.0, 0.0
    for o in range(len(block.w)):
        w_i = block.w[o, place]
        block.steps[o] = -w_i / h[place]
        if o < tally.n_scored:
            scored += w_i * w_i
        else:
            hidden += w_i * w_i
    _step(block, tally, -1.0 / h[place], size, (-scored / h[place], -hidden / h[place]))
    _add_to_K(block, tally, -1.0 / g[place], size)
    for o in range(len(block.w)):
        block.w[o, place] = 0.0
    block.used[place] = 0.0
    tally.size -= 1
    tally.n_pruned += 1


@inlined
def _add_to_K(block: Block, tally: Any, factor: Any, size: Any) -> None:  # noqa: N802  a matrix
    """Add a multiple of ggᵀ to K⁻¹, and nothing to P⁻¹; g, of that size, is in the next free row of G."""
    n, g, slots = tally.n_G, block.G.rows, tally.n_before + tally.n_rows
    for i in range(np.uintp(size), np.uintp(slots)):
        g[n, i] = 0.0
    block.G.factors[n] = factor
    tally.n_G += 1
    if tally.tau > 0.0:
        for i in range(slots):
            block.K_diagonal[i] += factor * g[n, i] * g[n, i]
            block.V.rows[tally.n_V, i] = g[n, i]
        block.V.factors[tally.n_V] = -factor * tally.tau / tally.sigma
        tally.n_V += 1


# -------------------------------------------------------------------------------------------- sums of c vvᵀ


@inlined
def _take_row(vectors: Vectors, number: Any, matrix: FloatArray, place: Any, sizes: Any) -> None:
    """Fill in, as vector of that number, row ``place`` of a matrix (m, m) plus the sum of c vvᵀ of those before it."""
    (m, size), V, c, row = sizes, vectors.rows, vectors.factors, vectors.rows[number]
    for i in range(size):
        row[i] = 0.0
    if place < m:
        first = place - place % PANEL  # of its panel: what is left of it is known above the diagonal only
        for i in range(first):
            row[i] = matrix[i, place]
        for i in range(first, m):
            row[i] = matrix[place, i]
    for v in range(number % 4):
        _add_multiple(V, number, V, v, V[v, place] * c[v], size)
    for v in range(number % 4, number, 4):
        _add_four(V, number, vectors, v, (V[v, place], V[v + 1, place], V[v + 2, place], V[v + 3, place]), size)


@inlined
def _add_projections(out: FloatArray, values: FloatArray, t: Any, vectors: Vectors, span: Any, size: Any) -> None:
    """Add Σ c (v·k) v, over a span of vectors, to row t of ``out``; k is that row of values.

    Four vectors are taken at a time, which stay in the cache between product and sum.
    """
    first, last = span
    V, c, alone = vectors.rows, vectors.factors, first + (last - first) % 4
    for v in range(first, alone):
        _add_multiple(out, t, V, v, _product(V, v, values, t, size) * c[v], size)
    for v in range(alone, last, 4):
        p0, p1, p2, p3 = 0.0, 0.0, 0.0, 0.0
        for i in range(size):
            p0 += V[v, i] * values[t, i]
            p1 += V[v + 1, i] * values[t, i]
            p2 += V[v + 2, i] * values[t, i]
            p3 += V[v + 3, i] * values[t, i]
        _add_four(out, t, vectors, v, (p0, p1, p2, p3), size)


@inlined
def _add_four(out: FloatArray, to: Any, vectors: Vectors, v: Any, along: Any, size: Any) -> None:
    """Add multiples of four vectors, from v on, times their factors, to a row of a table."""
    V, c = vectors.rows, vectors.factors
    f0, f1, f2, f3 = along[0] * c[v], along[1] * c[v + 1], along[2] * c[v + 2], along[3] * c[v + 3]
    for i in range(size):
        out[to, i] += f0 * V[v, i] + f1 * V[v + 1, i] + f2 * V[v + 2, i] + f3 * V[v + 3, i]


@inlined
def _add_multiple(out: FloatArray, to: Any, rows: FloatArray, number: Any, factor: Any, size: Any) -> None:
    """Add a multiple of a row of a table to one of another; no view of it is taken, which costs as much."""
    for i in range(size):
        out[to, i] += factor * rows[number, i]


@inlined
def _product(rows: FloatArray, number: Any, others: FloatArray, other: Any, size: Any) -> Any:
    """The inner product of two rows of tables."""
    total = 0.0
    for i in range(size):
        total += rows[number, i] * others[other, i]
    return total
