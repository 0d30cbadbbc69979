r"""Gains of the kernel Hebbian algorithm that adapt themselves, by stochastic meta-descent.

S. Günter, N. N. Schraudolph and S. V. N. Vishwanathan (2007) multiply the eigenvalue-scaled gain of each component by
:math:`e^{\rho_i}`, and move :math:`\rho` along the steps: up while they go the same way, down while they go back and
forth. With :math:`\Gamma = y u^\top - \operatorname{LT}[y y^\top] W`, the direction of a step at u, and B, the fading
derivative of W by :math:`\rho`,

.. math::

    \rho &\leftarrow \rho + \mu\operatorname{diag}(B\Gamma^\top) / \lambda, \qquad
    W \leftarrow W + e^\rho\eta\,\Gamma, \qquad
    B \leftarrow \xi B + e^\rho\eta\,(\Gamma + \Gamma'[\xi B]),

    \Gamma'[D] &= (Du) u^\top - \operatorname{LT}[(Du) y^\top + y (Du)^\top] W - \operatorname{LT}[y y^\top] D.

The division by the variances λ frees μ from the units of the kernel. A step takes 10·r·m multiply-adds; 3·r·m without.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mercer._jit import jit_sum
from mercer._typing import FloatArray
from mercer.methods.hebbian import HebbianLearner, Rules
from mercer.solvers.hebbian import N_STEPS

__all__ = ["COST", "MetaDescent"]

COST = 10 / 3  # operations of a step, as a multiple of those without
_FADING = 0.99  # ξ, as published


class MetaDescent:
    """A learner whose gains adapt themselves; its directions are moved in place."""

    def __init__(self, learner: HebbianLearner, rate: float) -> None:
        self.learner, self.rate = learner, rate
        self.traces = np.zeros_like(learner.directions)
        self.log_gains = np.zeros(len(learner.directions))

    def pass_over(self, features: FloatArray, rules: Rules) -> None:
        """Learn features (T, m), centred by the learner's mean."""
        learner = self.learner
        state = learner.directions, self.traces, self.log_gains, learner.variances, learner.ages, learner.counts
        memory = np.empty((2, features.shape[1])), np.empty((2, len(self.log_gains)))
        _learn(features - learner.centre, *state, rules.gains.rate, rules.gains.decay, self.rate, *memory)
        if not np.all(np.isfinite(learner.directions)):
            raise ValueError("the components diverge.")


@jit_sum
def _learn(  # noqa: PLR0917
    centred: FloatArray,
    directions: FloatArray,
    traces: FloatArray,
    log_gains: FloatArray,
    variances: FloatArray,
    ages: FloatArray,
    counts: FloatArray,
    rate: float,
    decay: float,
    meta_rate: float,
    rests: FloatArray,
    products: FloatArray,
) -> Any:
    r, m = directions.shape
    for t in range(centred.shape[0]):
        square = 0.0
        for k in range(m):
            rests[0, k], rests[1, k] = centred[t, k], 0.0
            square += centred[t, k] ** 2
        # y = Wu and ξBu
        for i in range(r):
            along, trace = 0.0, 0.0
            for k in range(m):
                along += directions[i, k] * centred[t, k]
                trace += traces[i, k] * centred[t, k]
            products[0, i], products[1, i] = along, _FADING * trace
        share = decay / (decay + counts[N_STEPS])
        counts[N_STEPS] += 1.0
        for i in range(r):
            y, change = products[0, i], products[1, i]
            ages[i] += 1.0
            variances[i] += 2.0 / (ages[i] + 1.0) * (y * y - variances[i])
            # u - Σ_{j≤i} y_j w_j, and Σ_{j≤i} (ξb_jᵀu w_j + y_j ξb_j)
            agreement = 0.0
            for k in range(m):
                rests[0, k] -= y * directions[i, k]
                rests[1, k] += change * directions[i, k] + y * _FADING * traces[i, k]
                agreement += traces[i, k] * y * rests[0, k]
            log_gains[i] += meta_rate * agreement / variances[i]
            gain = 1.0 / max(square, variances[i] / (np.exp(log_gains[i]) * rate * share))
            for k in range(m):
                step = y * rests[0, k]
                traces[i, k] = _FADING * traces[i, k] + gain * (step + change * rests[0, k] - y * rests[1, k])
                directions[i, k] += gain * step
