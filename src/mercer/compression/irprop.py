r"""iRprop⁺: resilient back-propagation with weight backtracking, of many independent problems at once.

C. Igel, M. Hüsken: *Empirical evaluation of the improved Rprop learning algorithm* (Neurocomputing 50, 2003). Only the
signs of partial derivatives matter. Each parameter has a step of its own,

============================  ===============================  ================================================
product of the derivative     step Δ                           move
with the one before
============================  ===============================  ================================================
> 0                           min(η⁺ Δ, Δ_max)                 -sign(g) Δ
< 0                           max(η⁻ Δ, Δ_min)                 taken back if the error has grown, else none;
                                                               the derivative counts as zero in the next step
= 0                           as it is                         -sign(g) Δ
============================  ===============================  ================================================

A problem is one row of an array of parameters, with an error of its own; all that are still at work are evaluated
together.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mercer._typing import FloatArray

# The standard constants.
GROW, SHRINK = 1.2, 0.5
# In the caller's units. The first step is the published one; the largest is not (50, in weights of a neural network): a
# vector that leaves the reach of a kernel does not come back.
FIRST, LEAST, LARGEST = 0.0125, 1e-6, 1.0

# From parameters (s, q): errors (s,), gradients (s, q). Of a problem that has ended nothing is asked any more.
Function = Callable[[FloatArray], tuple[FloatArray, FloatArray]]


class Descent(NamedTuple):
    """Where the problems ended: the best parameters (s, q) of each, its error there, and steps of the longest."""

    parameters: FloatArray
    errors: FloatArray
    n_iter: int


def irprop(
    function: Function,
    start: FloatArray,
    *,
    unit: FloatArray | float = 1.0,
    max_iter: int = 100,
    tol: float = 1e-6,
    patience: int = 10,
) -> Descent:
    """Minimise s functions of q parameters from given starts.

    All problems that still move are evaluated together, once per step. ``unit``, of a shape that goes with (s, q), is
    what counts as a large step of each parameter: the first ones are 0.0125 of it, none is larger than it. A problem
    ends if ``patience`` steps have together gained less than the share ``tol`` of its error.
    """
    x = np.array(start, dtype=np.float64)
    steps = FIRST * np.broadcast_to(np.asarray(unit, dtype=np.float64), x.shape)
    values, gradients, moves = np.full(len(x), np.inf), np.zeros_like(x), np.zeros_like(x)
    best, errors = x.copy(), values.copy()
    marks = values.copy()  # the best error when patience was last tried
    moving, iteration = np.full(len(x), fill_value=True), 0
    for iteration in range(1, max_iter + 1):
        values_before, gradients_before = values.copy(), gradients.copy()
        values[moving], found = function(x[moving])
        gradients[moving] = np.where(np.isfinite(found), found, 0.0)  # where a kernel overflows, nothing moves
        better = values < errors
        best[better], errors[better] = x[better], values[better]
        if iteration % patience == 0:
            moving = ~(marks - errors <= tol * np.abs(errors))  # inf - inf counts as moving
            if not np.any(moving):
                break
            marks, gradients[~moving] = errors.copy(), 0.0  # without a gradient a problem stays where it is
        agreement = gradients * gradients_before
        same, turned = agreement > 0, agreement < 0
        np.minimum(steps * GROW, LARGEST * unit, out=steps, where=same)
        np.maximum(steps * SHRINK, LEAST * unit, out=steps, where=turned)
        worse = (values > values_before)[:, np.newaxis]
        moves = np.where(turned, np.where(worse, -moves, 0.0), -np.sign(gradients) * steps)
        x += moves
        gradients[turned] = 0.0
    return Descent(best, errors, iteration)
