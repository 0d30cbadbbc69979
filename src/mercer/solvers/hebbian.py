r"""Sanger's rule: principal directions of vectors that come one after the other.

==================  ====================  =======  ===================================================================
symbol              code                  shape    meaning
==================  ====================  =======  ===================================================================
:math:`v(t)`        ``vectors``           (T, m)   vectors in their order; of row t the first ``sizes[t]`` are given
:math:`W(t)`        ``directions``        (r, m)   one direction per row; the i-th learns once a vector has i entries
:math:`\bar v`      ``centre``            (m,)     mean of the vectors so far, or a given one
:math:`\lambda_i`   ``variances``         (r,)     mean of :math:`y_i^2`, in which the s-th row counts s times
:math:`\sigma^2`    ``counts[SPREAD]``    –        mean squared distance of the vectors so far from their mean
:math:`\eta_i(t)`   ``Gains``             –        gains
==================  ====================  =======  ===================================================================

With :math:`u = v - \bar v` and LT, which sets everything above the diagonal to zero,

.. math:: y = Wu, \qquad W \leftarrow W + \operatorname{diag}(\eta)(y u^\top - \operatorname{LT}[y y^\top] W).

Gains, with :math:`a_t = \tau / (\tau + t)`: constant :math:`\eta_0/\sigma^2` and annealed :math:`\eta_0 a_t/\sigma^2`
(Kim, Franz, Schölkopf 2003), or :math:`\min(\eta_0 a_t/\lambda_i, 1/|u|^2)`, which makes up for small eigenvalues
(Günter, Schraudolph, Vishwanathan 2007). The bound keeps a direction of small variance, which is not orthogonal yet to
one of large variance, from being thrown to its other side: steps of less than :math:`1/|u|^2` do not overshoot.
"""

from typing import Any, NamedTuple

import numpy as np

from mercer._jit import jit_sum
from mercer._typing import FloatArray, IntArray

CONSTANT, ANNEALED, EIGENVALUE = range(3)
N_CENTRED, N_STEPS, SPREAD = range(3)  # vectors in the centre, steps taken, σ²
# Directions have length one, up to some percent by noise. Once |y| is so many times |u|, W has lost that for good: each
# step overshoots by more than the one before.
_DIVERGED = 10.0


class Gains(NamedTuple):
    """Sizes of steps: rule, η₀, and τ in steps."""

    rule: int
    rate: float
    decay: float


def learn_vectors(  # noqa: PLR0917  the state, as compiled code takes it
    vectors: FloatArray,
    sizes: IntArray,
    directions: FloatArray,
    centre: FloatArray,
    variances: FloatArray,
    ages: FloatArray,
    counts: FloatArray,
    gains: Gains,
    *,
    running: bool,
) -> int:
    """Learn vectors (T, m) in their order; all else but ``sizes`` and ``gains`` is changed in place.

    ``running`` says that each vector enters the mean (and σ²) before it is centred by it. Returns how many vectors were
    learned: fewer than all if the directions diverge at the next.

    Cost: 3·r·m multiply-adds per vector.
    """
    r, m = directions.shape
    memory = np.empty((2, m)), np.empty(r)
    return int(_learn(vectors, sizes, directions, centre, variances, ages, counts, gains, running, *memory))


@jit_sum
def _learn(  # noqa: PLR0917
    vectors: FloatArray,
    sizes: IntArray,
    directions: FloatArray,
    centre: FloatArray,
    variances: FloatArray,
    ages: FloatArray,
    counts: FloatArray,
    gains: Gains,
    running: bool,
    rests: FloatArray,
    y: FloatArray,
) -> Any:
    for t in range(vectors.shape[0]):
        m = sizes[t]
        n_directions = min(directions.shape[0], m)
        if running:
            _enter(vectors, t, m, centre, counts)
        # u = v - v̄
        square = 0.0
        for k in range(m):
            u = vectors[t, k] - centre[k]
            rests[0, k] = rests[1, k] = u
            square += u * u
        if not square > 0.0:  # nothing to learn: the first row is the mean of itself
            continue
        # y = Wu
        length = 0.0
        for i in range(n_directions):
            product = 0.0
            for k in range(m):
                product += directions[i, k] * rests[0, k]
            y[i] = product
            length += product * product
        if not length <= _DIVERGED**2 * square:
            return t
        share = gains.decay / (gains.decay + counts[N_STEPS])
        counts[N_STEPS] += 1.0
        for i in range(n_directions):
            ages[i] += 1.0
            variances[i] += 2.0 / (ages[i] + 1.0) * (y[i] * y[i] - variances[i])
            if gains.rule == CONSTANT:
                gain = gains.rate / counts[SPREAD]
            elif gains.rule == ANNEALED:
                gain = gains.rate * share / counts[SPREAD]
            else:
                gain = 1.0 / max(square, variances[i] / (gains.rate * share))
            # The i-th row of the update: η_i y_i (u - Σ_{j≤i} y_j w_j)
            step, weight = gain * y[i], y[i]
            for k in range(m):
                rest = rests[1, k] - weight * directions[i, k]
                rests[1, k] = rest
                directions[i, k] += step * rest
    return vectors.shape[0]


@jit_sum
def _enter(vectors: FloatArray, t: Any, m: Any, centre: FloatArray, counts: FloatArray) -> None:
    """Let a vector enter the mean, and its squared distance σ²."""
    counts[N_CENTRED] += 1.0
    n, square = counts[N_CENTRED], 0.0
    for k in range(m):
        before = vectors[t, k] - centre[k]
        centre[k] += before / n
        square += before * (vectors[t, k] - centre[k])
    counts[SPREAD] += (square - counts[SPREAD]) / n


@jit_sum
def factor_in_order(  # noqa: PLR0917
    residual: FloatArray,
    candidates: IntArray,
    least: FloatArray,
    coordinates: FloatArray,
    origin: IntArray,
    place: IntArray,
    known: FloatArray,
    rounding: FloatArray,
    weights: FloatArray,
) -> Any:
    """Choose rows one after the other that those chosen before do not span: a Cholesky factor that skips rows.

    Parameters
    ----------
    residual : array (T, c)
        Inner products of all rows with the candidates among them.
    candidates : array (c,)
        Their row numbers, rising.
    least : array (T,)
        What the squared distance of a row from the span must exceed.
    coordinates : array (T, room), filled
        Rows in the span of those that were chosen before them; zeros beyond. It comes as zeros.
    origin, place : arrays (room,), filled
        Row numbers of the chosen, and their columns in ``residual``.
    known : array (c, m)
        Weights :math:`K_{mm}^{-1}k_m(x)` of the candidates on the points from which the inner products are residual.
    rounding : array (T,)
        What the squared distance must exceed for each unit of 1 + |a|², with a the weights on all points before.
    weights : array (room,)
        Memory.

    Returns
    -------
    int
        How many were chosen.
    """
    number, following = 0, 0
    for t in range(residual.shape[0]):
        for j in range(number):
            rest = residual[t, place[j]]
            for k in range(j):
                rest -= coordinates[t, k] * coordinates[origin[j], k]
            coordinates[t, j] = rest / coordinates[origin[j], j]
        if following == len(candidates) or candidates[following] != t:
            continue
        pivot = residual[t, following]
        for j in range(number):
            pivot -= coordinates[t, j] * coordinates[t, j]
        if number < coordinates.shape[1] and pivot > least[t]:
            # Cᵀa = c for the chosen, the last first; points known before lose what the chosen take over.
            square = 1.0
            for j in range(number - 1, -1, -1):
                rest = coordinates[t, j]
                for k in range(j + 1, number):
                    rest -= coordinates[origin[k], j] * weights[k]
                weights[j] = rest / coordinates[origin[j], j]
                square += weights[j] * weights[j]
            for k in range(known.shape[1]):
                rest = known[following, k]
                for j in range(number):
                    rest -= weights[j] * known[place[j], k]
                square += rest * rest
        else:
            square = np.inf
        if pivot > rounding[t] * square:
            coordinates[t, number] = np.sqrt(pivot)
            origin[number], place[number] = t, following
            number += 1
        following += 1
    return number
