r"""One block of rows after the other, compiled.

Within a block no function moves and no matrix is changed. Slots 0..m-1 are the functions before the block, slot m+t is
row t of it; a slot is alive (a function in use), dead, or not yet born. With forgetting,

.. math:: P^{-1} = \sigma M + \tau K_{mm}^{-1}, \qquad M = P_0^{-1} + \sum_j c_j v_jv_j^\top, \qquad
          K_{mm}^{-1} = K_0^{-1} + \sum_j d_j g_jg_j^\top,

where :math:`P_0^{-1}, K_0^{-1}` are those before the block, so that :math:`P^{-1}k` and :math:`K_{mm}^{-1}k` of its
rows are two matrix products at its start and a few vectors per row; the sums are applied at its end. Between blocks
only the upper triangles of K_mm and of large inverses are kept. What happens to a row is in ``rows``, how functions
come and go in ``joining``, what happens to the matrices in ``inverses``.
"""

from __future__ import annotations

from typing import Any

from mercer._jit import jit
from mercer._typing import FloatArray
from mercer.solvers.recursive.block import Block, Data, Matrices
from mercer.solvers.recursive.inverses import apply, error_of_inverse, go_back, multiply, take_diagonal
from mercer.solvers.recursive.rows import learn_rows
from mercer.solvers.recursive.values import Source, fill_values, move_factors

__all__ = ["SPOILT", "learn_blocks"]

# How far K⁻¹(Kz) may be from z, of random signs, before K⁻¹ is computed again; its relative error is then about 1e-9.
SPOILT = 1e-7


@jit
def learn_blocks(block: Block, matrices: Matrices, source: Source, data: Data, start: Any) -> Any:
    """Learn rows of the data, from ``start`` on; return how many.

    These are all, unless K⁻¹ is spoilt, there may be too little room for the next block, or a row of it is too far.
    """
    done, n_rows, at, limits, tally = start, len(data.prior), block.at, block.limits, block.tally[0]
    while done < n_rows:
        m, number = tally.size, min(len(block.projections), n_rows - done)
        if m + number > limits.room < limits.max_basis:
            break
        values = block.table[at.values : at.values + number]
        if not fill_values(block.blas, source, block.columns, values, m, done):
            break
        _open(block, number, data.first + done)
        multiply(block, matrices.P, at.u)
        multiply(block, matrices.K, at.a)
        take_diagonal(block, matrices.P, at.P_diagonal)
        if limits.forgetting < 1.0:
            take_diagonal(block, matrices.K, at.K_diagonal)
        learn_rows(block, matrices, data, done)
        _close(block, source.given.shape[1] - len(source.given) + done)
        _extend_gram(block, matrices.gram, data.prior, done)
        if source.profile != 0:
            move_factors(source.functions, block.moved[: tally.n_moved], block.origins)
        apply(block, matrices.P, at.V, tally.n_V)
        apply(block, matrices.K, at.G, tally.n_G)
        if limits.forgetting < 1.0:
            go_back(matrices.P, matrices.K, tally.size, tally.sigma, tally.tau)
        done += number
        if _is_to_check(tally) and _is_spoilt(block, matrices, data.first + done):
            break
    return done - start


@jit
def _open(block: Block, n_rows: Any, number: Any) -> None:
    """Begin a block of so many rows, the first one of that number, but for their values and products."""
    table, at, tally = block.table, block.at, block.tally[0]
    m = tally.size
    tally.n_before, tally.n_rows, tally.n_V, tally.n_G, tally.sigma, tally.tau = m, n_rows, 0, 0, 1.0, 0.0
    for i in range(m):
        table[at.used, i], block.homes[i] = 1.0, i
    for t in range(n_rows):
        table[at.used, m + t], block.births[m + t] = 0.0, number + t
        for o in range(block.n_outputs):
            table[at.w + o, m + t] = 0.0


@jit
def _close(block: Block, own: Any) -> None:
    """Have newcomers take the places that they found; ``own``: the column of the block's first row among those given.

    A newcomer never comes from a slot before its place. What is moved here is all that is known but the matrices.
    """
    table, at, tally, origins = block.table, block.at, block.tally[0], block.origins
    m = tally.n_before
    for place in range(m):
        origins[place] = place
    for slot in range(m, m + tally.n_rows):
        if table[at.used, slot] > 0.0:
            origins[block.homes[slot]] = slot
    tally.n_moved = 0
    for place in range(tally.size):
        slot = origins[place]
        if slot >= m:
            block.moved[tally.n_moved] = place
            block.columns[place], block.births[place] = own + slot - m, block.births[slot]
            for o in range(block.n_outputs):
                table[at.w + o, place] = table[at.w + o, slot]
            tally.n_moved += 1
    tally.n_changed += tally.n_moved


@jit
def _extend_gram(block: Block, gram: FloatArray, prior: FloatArray, start: Any) -> None:
    """Have the values of newcomers in K_mm, above its diagonal."""
    tally, origins = block.tally[0], block.origins
    for place in block.moved[: tally.n_moved]:
        t = origins[place] - tally.n_before
        for j in range(tally.size):
            if origins[j] < origins[place]:  # of two newcomers the later one has the value
                gram[min(place, j), max(place, j)] = block.table[block.at.values + t, origins[j]]
        gram[place, place] = prior[start + t]


@jit
def _is_to_check(tally: Any) -> Any:
    """Whether K⁻¹ is to be checked: an eighth of the dictionary has changed, or something was seen the last time."""
    return tally.n_changed > 0 and (8 * tally.n_changed >= tally.size or not tally.drift <= 0.1 * SPOILT)


@jit
def _is_spoilt(block: Block, matrices: Matrices, seed: Any) -> Any:
    """Whether K⁻¹ must be computed again."""
    tally, scratch = block.tally[0], block.at.scores
    sizes = (tally.size, block.limits.fixed, seed)
    tally.drift = error_of_inverse(block.blas, matrices, sizes, block.table[scratch : scratch + 3])
    tally.n_changed = 0
    return not tally.drift <= SPOILT
