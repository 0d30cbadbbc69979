"""What happens to the rows of a block, compiled; the formulas are those of ``reference``."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer._jit import inlined, jit_sum
from mercer._typing import FloatArray
from mercer.solvers.compiled_blas import add_product, add_product_transposed
from mercer.solvers.recursive.block import FACTOR, FOLD, KAPPA, RHO, Block, Data, Layout, Limits, Matrices
from mercer.solvers.recursive.joining import Newcomer, add_to_P, grow, place_to_take, prepare, prune
from mercer.solvers.recursive.rules import LEAST_NOVELTY
from mercer.solvers.recursive.vectors import add_multiple, add_projections, product

__all__ = ["learn_rows"]


@jit_sum
def learn_rows(block: Block, before: Matrices, data: Data, start: Any) -> None:
    """Learn the rows of a block, those of the data from ``start`` on, one after the other."""
    table, at, limits, tally, n_outputs = block.table, block.at, block.limits, block.tally[0], block.n_outputs
    priors, targets, weights, residuals = data.prior, data.targets, data.weights, data.residuals
    births, homes = block.births, block.homes
    noise, V, G = limits.noise, at.V, at.G  # vectors before these are in u and a
    for t in range(tally.n_rows):
        here, row, k = tally.n_before + t, start + t, at.values + t  # its slot, the last one that is not empty
        if t > 0 and t % FOLD == 0:
            _fold(block, at.u, V, at.V + tally.n_V - V, t)
            _fold(block, at.a, G, at.G + tally.n_G - G, t)
            V, G = at.V + tally.n_V, at.G + tally.n_G
        if limits.forgetting < 1.0:
            _forget(table, at, tally, limits, n_outputs, here)
        add_projections(table, at.u + t, k, V, at.V + tally.n_V - V, here)
        add_projections(table, at.a + t, k, G, at.G + tally.n_G - G, here)
        # u = P⁻¹k, a = K⁻¹k, Δ = 1/ω + kᵀu, δ = k(x, x) - kᵀa
        k_u, k_a, k_w = _combine(table, at, t, tally, here)
        prior, Delta = priors[row], 1.0 / weights[row] + k_u
        delta = prior - k_a
        if not delta >= tally.least_novelty * prior:
            tally.least_novelty = delta / prior
        for o in range(n_outputs):  # ρ = y - kᵀw
            k_w = k_w if o == 0 else product(table, k, at.w + o, here)
            table[at.w + o, RHO] = targets[row, o] - k_w
        square = _normal_step(table, at, tally, n_outputs, 1.0 / Delta, here)
        residuals[row] = square
        if not delta > max(limits.novelty_tol, LEAST_NOVELTY * prior):
            continue
        # Δ_b = δ(λ + δ/Δ), κ = ρ/(λΔ + δ); the row saves κ²Δ_b
        pivot = delta * (noise + delta / Delta)
        gain = square / (noise * Delta + delta) ** 2 * pivot
        if limits.gain_tol >= 0.0 and delta * gain <= limits.gain_tol:
            continue
        for w in range(at.w, at.w + n_outputs):
            table[w, KAPPA] = table[w, RHO] / (noise * Delta + delta)
        new = Newcomer(t, here, delta, Delta, pivot, gain)
        prepare(table, at, tally, new)
        place = place_to_take(table, at, tally, limits, births, new)
        if place < 0:
            continue
        grow(table, at, tally, n_outputs, new)
        homes[here] = tally.size - 1
        if place < here:
            prune(table, at, tally, n_outputs, before, place)
            homes[here] = homes[place]


@jit_sum
def _fold(block: Block, products: Any, first: Any, number: Any, t: Any) -> None:
    """Account for vectors, from row ``first`` of the table on, in the products of the rows from t on."""
    table, tally, blas, projections = block.table, block.tally[0], block.blas, block.projections
    if number == 0:
        return
    values, n_rows, slots = block.at.values, tally.n_rows, tally.n_before + tally.n_rows
    new, along = table[first : first + number, :slots], projections[: n_rows - t, :number]
    add_product_transposed(blas, table[values + t : values + n_rows, :slots], new, along, 0.0)
    for i in range(n_rows - t):
        for j in range(number):
            projections[i, j] *= table[first + j, FACTOR]
    add_product(blas, along, new, table[products + t : products + n_rows, :slots], 1.0)


@jit_sum
def _forget(table: FloatArray, at: Layout, tally: Any, limits: Limits, n_outputs: Any, here: Any) -> None:
    """P⁻¹ ← φP⁻¹ + (1-φ)K⁻¹/λ,  w ← √φ w,  ξ ← φξ."""
    share, fresh = limits.forgetting, (1.0 - limits.forgetting) / limits.noise
    tally.sigma *= share
    tally.tau = share * tally.tau + fresh
    tally.cost *= share
    tally.hidden_cost *= share
    for i in range(here):
        table[at.P_diagonal, i] = share * table[at.P_diagonal, i] + fresh * table[at.K_diagonal, i]
    for o in range(n_outputs):
        add_multiple(table, at.w + o, at.w + o, np.sqrt(share) - 1.0, here)


@inlined
def _combine(table: FloatArray, at: Layout, t: Any, tally: Any, size: Any) -> Any:
    """Fill in u = (σM + τK⁻¹)k, as the next vector of V, and a = K⁻¹k, zero where no function is in use.

    Returns the products of k with both, and with the first coefficients.
    """
    values, by_M, a, u, sigma, tau = at.values + t, at.u + t, at.a + t, at.V + tally.n_V, tally.sigma, tally.tau
    k_u, k_a, k_w = 0.0, 0.0, 0.0
    for i in range(size):
        k, used = table[values, i], table[at.used, i]
        a_i = used * table[a, i]
        u_i = used * (sigma * table[by_M, i]) + tau * a_i
        table[a, i], table[u, i] = a_i, u_i
        k_u += k * u_i
        k_a += k * a_i
        k_w += k * table[at.w, i]
    return k_u, k_a, k_w


@inlined
def _normal_step(table: FloatArray, at: Layout, tally: Any, n_outputs: Any, share: Any, here: Any) -> Any:
    """P⁻¹ - uuᵀ/Δ, w + (ρ/Δ)u, ξ + ρ²/Δ; return |ρ|² of the outputs that count. ``share`` is 1/Δ."""
    u, square, hidden = at.V + tally.n_V, 0.0, 0.0
    for o in range(n_outputs):
        rho = table[at.w + o, RHO]
        add_multiple(table, at.w + o, u, rho * share, here)
        if o < tally.n_scored:
            square += rho * rho
        else:
            hidden += rho * rho
    tally.cost += square * share
    tally.hidden_cost += hidden * share
    add_to_P(table, at, tally, -share, here)
    return square
