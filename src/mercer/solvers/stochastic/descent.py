r"""Stochastic gradient descent on a block of rows, compiled.

Slots 0..m-1 are the terms before the block, oldest first; slot m+t is row t of it. As always the oldest term is
dropped, the terms in use are those of slots ``first`` to m+t that have joined. The model shrinks by 1 - η_tλ before
each row; a common factor takes that up, so that a row costs m multiplications per output.

=======================  ===================  =======  ===========================================================
symbol                   code                 shape    meaning
=======================  ===================  =======  ===========================================================
k(x_t, z_j)              ``values``           (B, s)   kernel values of row t to slots 0..m+t-1
c                        ``coefficients``     (p, s)   coefficients, up to the common factor
f_t(x_t)                 ``predictions``      (B, p)   before the row is learned
b                        ``constants[0]``     (p,)     intercept
ε or ρ                   ``constants[1]``     (p,)     threshold
E                        ``constants[2]``     (p,)     norm of what was dropped, as it would have shrunk since
S                        ``constants[3]``     (p,)     the same of all terms, those that were dropped and the others
abs(f_t)²                ``norms``            (B, p)   before the row is learned, where it is wanted
=======================  ===================  =======  ===========================================================
"""

from typing import Any, NamedTuple

import numpy as np

from mercer._jit import inlined, jit_sum
from mercer._typing import FloatArray, IntArray
from mercer.solvers.stochastic.losses import Loss, next_threshold, slope
from mercer.solvers.stochastic.steps import Steps, first_rate, rate_at, regularization

_LEAST_FACTOR = 1e-100  # of all coefficients, before they are multiplied by it


class Block(NamedTuple):
    """Rows to learn, the terms before them, and what is to be filled in."""

    values: FloatArray  # (B, s)
    prior: FloatArray  # (s,), k(z, z)
    targets: FloatArray  # (B, p)
    weights: FloatArray  # (B,)
    coefficients: FloatArray  # (p, s)
    used: IntArray  # (s,), whether a term is in use
    constants: FloatArray  # (4, p)
    clock: FloatArray  # (3,): rows learned, the largest k(x, x), the largest share η(k(x, x) + 1 + λ) of a step
    predictions: FloatArray  # (B, p)
    slopes: FloatArray  # (p,), scratch
    gram: FloatArray  # (m, m), kernel values among the terms before the block; (0, 0) if norms are not wanted
    squares: FloatArray  # (p,), |f|²
    norms: FloatArray  # (B, p)
    dropped: FloatArray  # (B, p), norms of what was dropped with each row


@jit_sum
def descend(steps: Steps, loss: Loss, block: Block) -> None:
    """Learn the rows of a block, one after the other."""
    m, constant = block.values.shape[1] - block.values.shape[0], 1.0 if steps.intercept else 0.0
    recorded = block.norms.shape[0] > 0
    first, size, factor = 0, m, 1.0
    for t in range(block.values.shape[0]):
        here = m + t
        block.clock[0] += 1.0
        block.clock[1] = max(block.clock[1], block.prior[here])
        start = first_rate(steps, block.clock[1])
        decay = regularization(steps, start)
        rate = rate_at(steps, start, decay, block.clock[0])
        block.clock[2] = max(block.clock[2], rate * (block.prior[here] + constant + decay))
        # A row of weight ω takes a step ω times as long, but not beyond what its own derivative asks for.
        step, room = rate * block.weights[t], block.prior[here] + constant
        if step > rate and step * room > 1.0:
            step = max(rate, 1.0 / room)
        joins = _find_slopes(loss, block, t, (first, here), factor, step)
        shrink = 1.0 - rate * decay
        if recorded:
            _note_norms(block, t, shrink, step, constant)
        factor *= shrink
        if factor < _LEAST_FACTOR:
            _multiply(block.coefficients, (first, here), factor)
            factor = 1.0
        root = np.sqrt(block.prior[here])
        for o in range(block.coefficients.shape[0]):
            change = step * block.slopes[o]
            block.coefficients[o, here] = -change / factor
            block.constants[0, o] -= constant * change
            block.constants[2, o] *= shrink
            block.constants[3, o] = shrink * block.constants[3, o] + abs(change) * root
        if joins:
            block.used[here] = 1
            size += 1
        while size > steps.max_basis or (size > 0 and _is_negligible(steps, block, first, here, factor)):
            while block.used[first] == 0:
                first += 1
            _drop(block, t, (first, here), factor, recorded)
            first += 1
            size -= 1
    _multiply(block.coefficients, (first, block.values.shape[1]), factor)


@inlined
def _find_slopes(loss: Loss, block: Block, t: Any, span: Any, factor: Any, step: Any) -> Any:
    """Predict a row, and fill in the derivatives of its loss; returns whether one of them is not zero."""
    first, here = span
    joins = False
    for o in range(block.coefficients.shape[0]):
        total = 0.0
        for j in range(np.uintp(first), np.uintp(here)):  # signed numbers are slower
            total += block.coefficients[o, j] * block.values[t, j]
        found, threshold = factor * total + block.constants[0, o], block.constants[1, o]
        block.predictions[t, o] = found
        block.slopes[o] = slope(loss.kind, threshold, found, block.targets[t, o])
        if loss.nu > 0.0:
            block.constants[1, o] = next_threshold(loss.kind, threshold, loss.nu, step, block.slopes[o])
        joins = joins or block.slopes[o] != 0.0
    return joins


@inlined
def _multiply(coefficients: FloatArray, span: Any, factor: Any) -> None:
    for o in range(coefficients.shape[0]):
        for j in range(np.uintp(span[0]), np.uintp(span[1])):
            coefficients[o, j] *= factor


@inlined
def _is_negligible(steps: Steps, block: Block, first: Any, here: Any, factor: Any) -> Any:
    """Whether the oldest term, with what was dropped before it, is below its share of all norms in every output."""
    result = steps.truncation > 0.0
    if result:
        oldest = first
        while oldest < here and block.used[oldest] == 0:
            oldest += 1
        root = factor * np.sqrt(block.prior[oldest])
        for o in range(block.coefficients.shape[0]):
            norm = block.constants[2, o] + abs(block.coefficients[o, oldest]) * root
            result = result and norm <= steps.truncation * block.constants[3, o]
    return result


@inlined
def _drop(block: Block, t: Any, span: Any, factor: Any, recorded: Any) -> None:
    """Drop the oldest term, that of slot ``first``."""
    first, here = span
    m, root = block.values.shape[1] - block.values.shape[0], np.sqrt(block.prior[first])
    block.used[first] = 0
    for o in range(block.coefficients.shape[0]):
        c = factor * block.coefficients[o, first]
        block.constants[2, o] += abs(c) * root
        if recorded:  # |f - ck|² = |f|² - 2cf(z) + c²k(z, z)
            total = 0.0
            for j in range(first, here + 1):
                k = block.values[j - m, first] if j >= m and j > first else block.prior[first]
                if j < m and j > first:
                    k = block.gram[first, j]
                total += factor * block.coefficients[o, j] * k
            block.squares[o] = max(block.squares[o] - 2.0 * c * total + c * c * block.prior[first], 0.0)
            block.dropped[t, o] += abs(c) * root
        block.coefficients[o, first] = 0.0


@inlined
def _note_norms(block: Block, t: Any, shrink: Any, step: Any, constant: Any) -> None:
    """|f|² before a row and after it, but for what is dropped: |sf + ck|² = s²|f|² + 2scf(x) + c²k(x, x)."""
    here = block.values.shape[1] - block.values.shape[0] + t
    for o in range(block.coefficients.shape[0]):
        block.norms[t, o] = block.squares[o]
        c = -step * block.slopes[o]
        # the intercept was moved by nothing yet: it is that of the prediction
        f = block.predictions[t, o] - constant * block.constants[0, o]
        block.squares[o] = shrink * shrink * block.squares[o] + 2.0 * shrink * c * f + c * c * block.prior[here]
