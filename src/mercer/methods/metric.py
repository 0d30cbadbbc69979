r"""A metric from the gradients of a fitted function (recursive feature machines).

==================  ======================  =========  =======================================================
symbol              code                    shape      meaning
==================  ======================  =========  =======================================================
G                   ``products``            (d, d)     mean of ∇f∇fᵀ over rows, by inputs in their units
M                   –                       (d, d)     (1-ρ) G + ρ (tr G/d) I, scaled to trace d
B = M^{1/2}         ``Metric.map``          (d, d)     map of the inputs
==================  ======================  =========  =======================================================

References
----------
A. Radhakrishnan, D. Beaglehole, P. Pandit, M. Belkin (2024). Mechanism for feature learning in neural networks and
backpropagation-free machine learning models. Science 383, 1461-1467.
"""

import numpy as np

from mercer._typing import FloatArray
from mercer.kernels import Metric

SHARE = 1e-3  # ρ, of the identity: an input that seems not to matter can come back in a later round


def metric_of_gradients(
    products: FloatArray, unit: FloatArray, *, diagonal: bool = False, share: float = SHARE
) -> Metric | None:
    """The metric of G, given by inputs as they are; None if the function does not change."""
    inside = products * np.outer(unit, unit)  # by inputs in their units
    d, trace = len(inside), float(np.trace(inside))
    if not (np.all(np.isfinite(inside)) and trace > 0):
        return None
    M = inside * (d / trace)
    M = (1.0 - share) * (np.diag(np.diagonal(M)) if diagonal else M) + share * np.eye(d)
    values, vectors = np.linalg.eigh(M)
    return Metric((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, unit)
