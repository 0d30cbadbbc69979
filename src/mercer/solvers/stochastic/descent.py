r"""Stochastic gradient descent on a block of rows, compiled.

Slots 0..m-1 are the terms before the block, oldest first; slot m+t is row t of it. As always the oldest term is
dropped, the terms in use are those of slots ``first`` to m+t that have joined. The model shrinks by 1 - η_tλ before
each row; a common factor takes that up, so that a row costs m multiplications per output. The mean over late models,

.. math:: \bar f_{t+1} = (1 - a_t) \bar f_t + a_t f_{t+1}, \qquad a_t = 1/(1 + \min(t - 1, \text{max\_basis})/10),

has coefficients gD + hC where f has sC: a row changes g, h, s, and the entries of C and D of its own term.

=======================  ===================  =======  ===========================================================
symbol                   code                 shape    meaning
=======================  ===================  =======  ===========================================================
k(x_t, z_j)              ``values``           (B, s)   kernel values of row t to slots 0..m+t-1
C, D                     ``coefficients``,    (p, s)   coefficients of the model and of the mean, up to factors
                         ``means``
s, g, h                  ``factors``          (3,)     these factors
f_t(x_t)                 ``predictions``      (B, p)   before the row is learned
mean f_t(x_t)            ``mean_predictions`` (B, p)   the same of the mean
b, its mean              ``constants[0, 4]``  (p,)     intercept
ε or ρ, its mean         ``constants[1, 5]``  (p,)     threshold
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
from mercer.solvers.stochastic.steps import Steps, first_rate, mean_share, rate_at, regularization

_LEAST_FACTOR = 1e-100  # of all coefficients, before they are multiplied by it


class Block(NamedTuple):
    """Rows to learn, the terms before them, and what is to be filled in."""

    values: FloatArray  # (B, s)
    prior: FloatArray  # (s,), k(z, z)
    targets: FloatArray  # (B, p)
    weights: FloatArray  # (B,)
    asked: int  # so many of the outputs, the first, decide which terms join and which are dropped
    coefficients: FloatArray  # (p, s)
    means: FloatArray  # (p, s)
    factors: FloatArray  # (3,)
    used: IntArray  # (s,), whether a term is in use
    constants: FloatArray  # (6, p)
    clock: FloatArray  # (3,): rows learned, the largest k(x, x), the largest share η(k(x, x) + 1 + λ) of a step
    predictions: FloatArray  # (B, p)
    mean_predictions: FloatArray  # (B, p)
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
    first, size = 0, m
    block.factors[:] = 1.0, 1.0, 0.0
    for t in range(block.values.shape[0]):
        here = m + t
        share = mean_share(steps, block.clock[0])
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
        joins = _find_slopes(loss, block, t, (first, here), step)
        shrink = 1.0 - rate * decay
        if recorded:
            _note_norms(block, t, shrink, step, constant)
        if block.factors[0] < _LEAST_FACTOR or 0.0 < block.factors[1] < _LEAST_FACTOR:
            _multiply(block, (first, here))
        _step(steps, block, here, (shrink, step, constant), share)
        if joins:
            block.used[here] = 1
            size += 1
        while size > steps.max_basis or (size > 0 and _is_negligible(steps, block, first, here)):
            while block.used[first] == 0:
                first += 1
            _drop(block, t, (first, here), recorded)
            first += 1
            size -= 1
    _multiply(block, (first, block.values.shape[1]))


@inlined
def _find_slopes(loss: Loss, block: Block, t: Any, span: Any, step: Any) -> Any:
    """Predict a row, and fill in the derivatives of its loss; returns whether one that is asked for is not zero."""
    first, here = span
    scale, old, new = block.factors
    joins = False
    for o in range(block.coefficients.shape[0]):
        total, mean = 0.0, 0.0
        for j in range(np.uintp(first), np.uintp(here)):  # signed numbers are slower
            total += block.coefficients[o, j] * block.values[t, j]
            mean += block.means[o, j] * block.values[t, j]
        found, threshold = scale * total + block.constants[0, o], block.constants[1, o]
        block.predictions[t, o] = found
        block.mean_predictions[t, o] = old * mean + new * total + block.constants[4, o]
        block.slopes[o] = slope(loss.kind, threshold, found, block.targets[t, o])
        if loss.nu > 0.0:
            block.constants[1, o] = next_threshold(loss.kind, threshold, loss.nu, step, block.slopes[o])
        joins = joins or (o < block.asked and block.slopes[o] != 0.0)
    if not joins:  # hidden outputs do not learn from rows that are not kept
        block.slopes[:] = 0.0
    return joins


@inlined
def _step(steps: Steps, block: Block, here: Any, by: Any, share: Any) -> None:
    """Shrink the model, add the term of a row, and move the mean by that share."""
    shrink, step, constant = by
    scale, old, new = block.factors
    root = np.sqrt(block.prior[here])
    # s ← (1 - ηλ)s, g ← (1 - a)g, h ← (1 - a)h + as; before the first row D is zero, whatever g
    whole = share >= 1.0
    block.factors[0] = scale * shrink
    block.factors[1] = 1.0 if whole and steps.average else (1.0 - share) * old
    block.factors[2] = (1.0 - share) * new + share * scale * shrink
    for o in range(block.coefficients.shape[0]):
        change = step * block.slopes[o]
        block.coefficients[o, here] = -change / block.factors[0]
        # gD + hC = 0 before, so that the mean has a share of the term
        block.means[o, here] = 0.0 if whole else -new / old * block.coefficients[o, here]
        block.constants[0, o] -= constant * change
        block.constants[2, o] *= shrink
        block.constants[3, o] = shrink * block.constants[3, o] + abs(change) * root
        for i in range(2):
            block.constants[4 + i, o] += share * (block.constants[i, o] - block.constants[4 + i, o])


@inlined
def _multiply(block: Block, span: Any) -> None:
    """Apply the factors."""
    scale, old, new = block.factors
    for o in range(block.coefficients.shape[0]):
        for j in range(np.uintp(span[0]), np.uintp(span[1])):
            block.means[o, j] = old * block.means[o, j] + new * block.coefficients[o, j]
            block.coefficients[o, j] *= scale
    block.factors[:] = 1.0, 1.0, 0.0


@inlined
def _is_negligible(steps: Steps, block: Block, first: Any, here: Any) -> Any:
    """Whether the oldest term, with what was dropped before it, is below its share of all norms in every output."""
    result = steps.truncation > 0.0
    if result:
        oldest = first
        while oldest < here and block.used[oldest] == 0:
            oldest += 1
        root = block.factors[0] * np.sqrt(block.prior[oldest])
        for o in range(block.asked):
            norm = block.constants[2, o] + abs(block.coefficients[o, oldest]) * root
            result = result and norm <= steps.truncation * block.constants[3, o]
    return result


@inlined
def _drop(block: Block, t: Any, span: Any, recorded: Any) -> None:
    """Drop the oldest term, that of slot ``first``."""
    (first, here), factor = span, block.factors[0]
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
        block.means[o, first] = 0.0


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
