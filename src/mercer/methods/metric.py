r"""Steps of a metric by the gradients of a function that was fitted with it.

The metric is a map A of the inputs, z = Aᵀx, and the function is fitted on z.

==================  ================  =========  ==========================================================
symbol              code              shape      meaning
==================  ================  =========  ==========================================================
G                   ``products``      (r, r)     mean of ∇f∇fᵀ over rows, by z
M                   ``gradients``     (r, r)     (1-ρ) G/(tr G/r) + ρ I
C                   ``correlations``  (r, r)     D⁻¹MD⁻¹, D² the diagonal of M
==================  ================  =========  ==========================================================

The next map is AM^{1/2}: its metric AMAᵀ is, but for ρ, the mean of ∇f∇fᵀ by x (recursive feature machines). With M = I
the metric stays as it is; this is what to expect of a function drawn from the prior, whose G is proportional to I. So
shorter steps are means of M and I: their geometric mean M^{1/2}, or (C + I)/2, which turns axes and leaves the length
scales along them as they are.

References
----------
A. Radhakrishnan, D. Beaglehole, P. Pandit, M. Belkin (2024). Mechanism for feature learning in neural networks and
backpropagation-free machine learning models. Science 383, 1461-1467.
"""

import numpy as np

from mercer._typing import FloatArray

SHARE = 1e-3  # ρ: no direction loses more than this in one step, so that it can come back


def metric_steps(products: FloatArray, *, diagonal: bool = False) -> list[FloatArray]:
    """By what the map may be multiplied, the longest step first; nothing if the function does not change."""
    r, largest = len(products), float(np.max(np.abs(products), initial=0.0))
    if not (np.isfinite(largest) and largest > 0):
        return []
    gradients = products / largest  # so that no product of huge gradients overflows
    gradients = np.diag(np.diagonal(gradients)) if diagonal else gradients
    gradients = (1.0 - SHARE) * (r / np.trace(gradients)) * gradients + SHARE * np.eye(r)
    steps = [_power(gradients, 1 / 2), _power(gradients, 1 / 4)]
    if not diagonal:
        sizes = np.sqrt(np.diagonal(gradients))
        correlations = gradients / np.outer(sizes, sizes)
        steps.append(_power((correlations + np.eye(r)) / 2, 1 / 2))
    return steps


def _power(matrix: FloatArray, power: float) -> FloatArray:
    """A power of a symmetric matrix that is positive semi-definite."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0) ** power) @ vectors.T)
