"""What happens to the rows of a block, compiled; the formulas are those of ``reference``."""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer._jit import jit_sum
from mercer._typing import FloatArray
from mercer.solvers.compiled_blas import add_product, add_product_transposed
from mercer.solvers.recursive.block import FOLD, Block, Data, Layout, Limits, Matrices
from mercer.solvers.recursive.joining import Newcomer, is_weakest, join, prepare, weakest
from mercer.solvers.recursive.rules import LEAST_NOVELTY
from mercer.solvers.recursive.vectors import add_multiple, add_projections, add_squares, fill_with_zeros

__all__ = ["learn_rows"]


@jit_sum
def learn_rows(block: Block, before: Matrices, data: Data, start: Any) -> None:
    """Learn the rows of a block, those of the data from ``start`` on, one after the other."""
    table, at, limits, tally = block.table, block.at, block.limits, block.tally[0]
    c, d, rho, kappa, noise = block.c, block.d, block.rho, block.kappa, limits.noise
    folded_V, folded_G = 0, 0  # vectors that are in u and a
    for t in range(tally.n_rows):
        here, row = tally.n_before + t, start + t  # slot of this row; those behind it are empty
        if t > 0 and t % FOLD == 0:
            _fold(block, at.u + t, at.V + folded_V, c[folded_V : tally.n_V], tally.n_rows - t)
            _fold(block, at.a + t, at.G + folded_G, d[folded_G : tally.n_G], tally.n_rows - t)
            folded_V, folded_G = tally.n_V, tally.n_G
        if limits.forgetting < 1.0:
            _forget(table, at, limits, len(rho), tally, here)
        add_projections(table, at.u + t, at.values + t, c, (at.V, folded_V, tally.n_V, here))
        add_projections(table, at.a + t, at.values + t, d, (at.G, folded_G, tally.n_G, here))
        # u = P⁻¹k, a = K⁻¹k, Δ = 1/ω + kᵀu, δ = k(x, x) - kᵀa
        k_u, k_a, k_w = _combine(table, at, t, tally, here)
        prior, Delta = data.prior[row], 1.0 / data.weights[row] + k_u
        delta = prior - k_a
        if not delta >= tally.least_novelty * prior:
            tally.least_novelty = delta / prior
        square = _normal_step(table, at, tally, data.targets[row], rho, (t, here, 1.0 / Delta, k_w))
        c[tally.n_V] = -1.0 / (Delta * tally.sigma)
        tally.n_V += 1
        data.residuals[row] = square
        if not delta > max(limits.novelty_tol, LEAST_NOVELTY * prior):
            continue
        # Δ_b = δ(λ + δ/Δ), κ = ρ/(λΔ + δ); the row saves κ²Δ_b
        pivot = delta * (noise + delta / Delta)
        gain = square / (noise * Delta + delta) ** 2 * pivot
        if limits.gain_tol >= 0.0 and delta * gain <= limits.gain_tol:
            continue
        for o in range(len(rho)):
            kappa[o] = rho[o] / (noise * Delta + delta)
        new, place = Newcomer(t, here, delta, Delta, pivot, gain), here
        prepare(table, at, tally, new)
        if tally.size >= limits.max_basis:
            if is_weakest(table, at, tally, kappa, new, limits.fixed):
                continue
            place = weakest(table, at, at.V + tally.n_V, block.births, new, limits.fixed)
            if place == here:
                continue
        join(block, before, new, place)


@jit_sum
def _fold(block: Block, products: Any, vectors: Any, factors: FloatArray, n_rows: Any) -> None:
    """Account for vectors, rows of the table from ``vectors`` on, in the products of the last rows of the block.

    ``products`` is the row of the table with those of the first of these rows.
    """
    table, tally, number = block.table, block.tally[0], len(factors)
    slots, behind = tally.n_before + tally.n_rows, block.at.values + tally.n_rows
    if number == 0:
        return
    values, new = table[behind - n_rows : behind, :slots], table[vectors : vectors + number, :slots]
    along = block.projections[:n_rows, :number]
    add_product_transposed(block.blas, values, new, along, 0.0)
    for i in range(n_rows):
        for j in range(number):
            block.projections[i, j] *= factors[j]
    add_product(block.blas, along, new, table[products : products + n_rows, :slots], 1.0)


@jit_sum
def _forget(table: FloatArray, at: Layout, limits: Limits, n_outputs: Any, tally: Any, here: Any) -> None:
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


@jit_sum
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


@jit_sum
def _normal_step(table: FloatArray, at: Layout, tally: Any, target: FloatArray, rho: FloatArray, row: Any) -> Any:
    """P⁻¹ - uuᵀ/Δ, w + (ρ/Δ)u, ξ + ρ²/Δ; fill in ρ, and return |ρ|² of the outputs that count.

    ``row`` are its place in the block, its slot, 1/Δ, and kᵀw of the first output.
    """
    t, here, share, k_w = row
    values, u, square = at.values + t, at.V + tally.n_V, 0.0
    for o in range(len(rho)):
        if o > 0:
            k_w = 0.0
            for i in range(here):
                k_w += table[values, i] * table[at.w + o, i]
        rho[o] = target[o] - k_w
        add_multiple(table, at.w + o, u, rho[o] * share, here)
        if o < tally.n_scored:
            square += rho[o] * rho[o]
        else:
            tally.hidden_cost += rho[o] * rho[o] * share
    tally.cost += square * share
    add_squares(table, at.P_diagonal, u, -share, here)
    fill_with_zeros(table, u, here, tally.n_before + tally.n_rows)
    return square
