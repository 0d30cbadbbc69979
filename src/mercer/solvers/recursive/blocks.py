r"""One block of rows after the other, compiled.

Within a block no function moves and no matrix is changed. Slots 0..m-1 are the functions before the block, slot m+t is
row t of it; a slot is alive (a function in use), dead, or not yet born. With forgetting,

.. math:: P^{-1} = \sigma M + \tau K_{mm}^{-1}, \qquad M = P_0^{-1} + \sum_j c_j v_jv_j^\top, \qquad
          K_{mm}^{-1} = K_0^{-1} + \sum_j d_j g_jg_j^\top,

where :math:`P_0^{-1}, K_0^{-1}` are those before the block, so that :math:`P^{-1}k` and :math:`K_{mm}^{-1}k` of its
rows are two matrix products at its start and a few vectors per row; the sums are applied at its end. What happens to a
row is in ``rows``. Of a symmetric matrix panels of columns are kept: rows 0..last of columns first..last. Small ones
are kept whole.
"""

from typing import Any, NamedTuple

import numpy as np

from mercer._jit import inlined, jit
from mercer._typing import FloatArray, IntArray
from mercer.solvers.compiled_blas import LOWER, PLAIN, TRANSPOSED, Routines, add_product, call_back, stride
from mercer.solvers.recursive.block import PANEL, Block, Data, Matrices, Vectors
from mercer.solvers.recursive.rows import learn_rows

# How far K⁻¹(Kz) may be from z, of random signs, before K⁻¹ is computed again; its relative error is then about 1e-9.
SPOILT = 1e-7

_GOLDEN, _LAST_BIT = np.uint64(0x9E3779B97F4A7C15), np.uint64(63)  # 2^64 over the golden ratio

_TABLE, _ROW = np.empty((0, 0)), np.empty(0)


class Source(NamedTuple):
    """Kernel values between n rows and q functions, and among the rows, or what they follow from: see ``Factors``."""

    given: FloatArray = _TABLE  # (n, q + n), the values, if there is no profile
    rows: FloatArray = _TABLE  # (n, d)
    width: int = 0  # the number e of factors
    scaling: int = 0  # address of a callback
    scales: FloatArray = _ROW
    farthest: float = 0.0
    left: FloatArray = _TABLE  # (room, e), left factors of the rows of a block, to be filled in
    functions: FloatArray = _TABLE  # (e, room), right factors of the functions in use, and room for a block's rows
    far: FloatArray = _ROW  # (1,)
    profile: int = 0  # address of a callback, or 0
    parameters: FloatArray = _ROW
    fixed: int = 0  # functions, the first ones, that are constant: 1 on all rows


@jit
def fill_values(blas: Routines, source: Source, columns: IntArray, out: FloatArray, m: Any, start: Any) -> Any:
    """Fill in values (b, m + b) of the b rows from ``start`` on: of m functions, then of the rows themselves.

    ``columns`` tell where the functions' values stand among those given; ``out`` may have more columns. Returns whether
    it can be done: no row is too far.
    """
    n_rows, given, left, functions, width = len(out), source.given, source.left, source.functions, source.width
    n_slots = m + n_rows
    if source.profile == 0:
        own = given.shape[1] - len(given) + start
        for t in range(n_rows):
            for j in range(m):
                out[t, j] = given[start + t, columns[j]]
            for j in range(n_rows):
                out[t, m + j] = given[start + t, own + j]
        return True
    call_back(source.scaling, (source.rows[start:], n_rows, source.rows.shape[1], source.scales, left, source.far))
    if not source.far[0] <= source.farthest:
        return False
    for k in range(width):
        factor = k if k < width - 2 else 2 * width - 3 - k  # the last two are exchanged
        for t in range(n_rows):
            functions[k, m + t] = left[t, factor]
    add_product(blas, (PLAIN, PLAIN), left[:n_rows, :width], functions[:width, :n_slots], out[:, :n_slots], 0.0)
    tile = (out, n_rows, n_slots, stride(out))
    call_back(source.profile, (*tile, left, width, functions, functions.shape[1], source.parameters))
    out[:, : source.fixed] = 1.0
    return True


@jit
def learn_blocks(block: Block, matrices: Matrices, source: Source, data: Data, start: Any) -> Any:
    """Learn rows of the data, from ``start`` on; return how many.

    These are all, unless K⁻¹ is spoilt, there may be too little room for the next block, or a row of it is too far.
    """
    done, n_rows, rules, tally = start, len(data.prior), block.rules, block.tally[0]
    while done < n_rows:
        m, number = tally.size, min(len(block.values), n_rows - done)
        if m + number > tally.room < rules.max_basis + rules.intercept:
            break
        if not fill_values(block.blas, source, block.columns, block.values[:number], m, done):
            break
        _open(block, matrices, number, data.first + done)
        values = block.values[:number, :m]
        multiply(block.blas, values, matrices.P, block.u)
        multiply(block.blas, values, matrices.K, block.a)
        learn_rows(block, matrices, data, done)
        _close(block, source, matrices.gram, data.prior, done)
        apply(block, matrices.P, block.V, tally.n_V)
        apply(block, matrices.K, block.G, tally.n_G)
        if rules.forgetting < 1.0:
            go_back(matrices, tally)
        done += number
        # An eighth of the dictionary has changed, or an error was seen the last time, or there is nothing more to do.
        if tally.n_changed > 0 and (
            8 * tally.n_changed >= tally.size or not tally.drift <= 0.1 * SPOILT or done == n_rows
        ):
            check(block, matrices, data.first + done)
            if not tally.drift <= SPOILT:
                break
    return done - start


@inlined
def _open(block: Block, matrices: Matrices, n_rows: Any, number: Any) -> None:
    """Begin a block of so many rows, the first one of that number, but for their values and products."""
    tally = block.tally[0]
    m = tally.size
    tally.n_before, tally.n_rows, tally.n_V, tally.n_G, tally.sigma, tally.tau = m, n_rows, 0, 0, 1.0, 0.0
    for i in range(m):
        block.used[i], block.homes[i], block.origins[i], block.P_diagonal[i] = 1.0, i, i, matrices.P[i, i]
        if block.rules.forgetting < 1.0:
            block.K_diagonal[i] = matrices.K[i, i]
    for t in range(n_rows):
        block.used[m + t] = block.P_diagonal[m + t] = block.K_diagonal[m + t] = 0.0
        block.births[m + t] = number + t
        for j in range(np.uintp(m), np.uintp(m + n_rows)):
            block.u[t, j] = block.a[t, j] = 0.0
        for o in range(len(block.w)):
            block.w[o, m + t] = 0.0


@inlined
def _close(block: Block, source: Source, gram: FloatArray, prior: FloatArray, start: Any) -> None:
    """Have newcomers, of rows from ``start`` on, take the places that they found, in all but the inverses.

    A newcomer never comes from a slot before its place. K_mm is known above its diagonal.
    """
    tally, origins, given, functions = block.tally[0], block.origins, source.given, source.functions
    m, own = tally.n_before, given.shape[1] - len(given) + start
    tally.n_moved = 0
    for place in range(tally.size):
        slot = origins[place]
        if slot >= m:
            block.moved[tally.n_moved] = place
            block.columns[place], block.births[place] = own + slot - m, block.births[slot]
            for o in range(len(block.w)):
                block.w[o, place] = block.w[o, slot]
            for k in range(len(functions)):
                functions[k, place] = functions[k, slot]
            for j in range(tally.size):
                if origins[j] < slot:  # of two newcomers the later one has the value
                    gram[min(place, j), max(place, j)] = block.values[slot - m, origins[j]]
            gram[place, place] = prior[start + slot - m]
            tally.n_moved += 1
    tally.n_changed += tally.n_moved


@jit
def multiply(blas: Routines, values: FloatArray, matrix: FloatArray, products: FloatArray) -> None:
    """Fill in the products of values (b, m) with an inverse."""
    n_rows, m = values.shape
    for first in range(0, m, PANEL):
        last = min(first + PANEL, m)
        out = products[:n_rows, first:last]
        add_product(blas, (PLAIN, PLAIN), values[:, :last], matrix[:last, first:last], out, 0.0)
        add_product(blas, (PLAIN, TRANSPOSED), values[:, last:], matrix[first:last, last:m], out, 1.0)


@jit
def apply(block: Block, matrix: FloatArray, vectors: Vectors, number: Any) -> None:
    """Move the slots of newcomers to their places in an inverse, and add the sum of c vvᵀ over a number of vectors."""
    tally, rows, scaled = block.tally[0], vectors.rows, block.scaled
    size = tally.size
    for place in block.moved[: tally.n_moved]:
        first = place - place % PANEL
        for i in range(min(first + PANEL, size)):
            matrix[i, place] = 0.0
        for i in range(np.uintp(first), np.uintp(size)):
            matrix[place, i] = 0.0
        for j in range(number):
            rows[j, place] = rows[j, block.origins[place]]
    for j in range(number):
        for i in range(size):
            scaled[j, i] = vectors.factors[j] * rows[j, i]
    for first in range(0, size, PANEL):
        last = min(first + PANEL, size)
        part, forms = matrix[:last, first:last], (TRANSPOSED, PLAIN)
        add_product(block.blas, forms, scaled[:number, :last], rows[:number, first:last], part, 1.0)


@jit
def go_back(matrices: Matrices, tally: Any) -> None:
    """P⁻¹ = σM + τK⁻¹ after a block."""
    P, K, sigma, tau = matrices.P, matrices.K, tally.sigma, tally.tau
    for i in range(tally.size):
        for j in range(i - i % PANEL, tally.size):
            P[i, j] = sigma * P[i, j] + tau * K[i, j]


@jit
def check(block: Block, matrices: Matrices, seed: Any) -> None:
    """Note as drift the largest entry of K⁻¹(Kz) - z, for a z of signs that look random."""
    tally, K, gram, fixed = block.tally[0], matrices.K, matrices.gram, int(block.rules.intercept)
    size, signs, products, result = tally.size, block.scratch[0], block.scratch[1], block.scratch[2]
    for i in range(size):  # n² times the golden ratio is spread evenly between whole numbers
        n = np.uint64(seed + i)
        signs[i] = 0.0 if i < fixed else 1.0 if n * n * _GOLDEN >> _LAST_BIT else -1.0
    call_back(block.blas.symv, (LOWER, size, 1.0, gram, stride(gram), signs, 1, 0.0, products, 1))
    call_back(block.blas.symv, (LOWER, size, 1.0, K, stride(K), products, 1, 0.0, result, 1))
    tally.n_changed, tally.drift = 0, 0.0
    for i in range(fixed, size):
        error = abs(result[i] - signs[i])
        if not error <= tally.drift:
            tally.drift = error
