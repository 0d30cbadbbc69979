r"""Preconditioners for kernel systems.

The Nyström preconditioner inverts :math:`\Lambda + VV^\top`, :math:`V = K_{nr}L^{-\top}`, where
:math:`K_{rr} = LL^\top` and :math:`\Lambda = \lambda W^{-1}` is the diagonal noise, by the Woodbury formula:

.. math:: \Lambda^{-1}b - \Lambda^{-1}V(\lambda I + V^\top W V)^{-1}V^\top W\,b.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from mercer._typing import FloatArray

__all__ = ["NystromPreconditioner"]

Operator = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class NystromPreconditioner:
    """The inverse of a low-rank matrix plus diagonal noise, by products with the low-rank factor only.

    Parameters
    ----------
    features : callable
        s (r, p) ↦ V s (n, p).
    transposed : callable
        b (n, p) ↦ Vᵀ b (r, p).
    gram : array (r, r)
        VᵀWV.
    noise : float
        λ > 0.
    weights : array (n,)
        The diagonal of W.
    """

    features: Operator
    transposed: Operator
    gram: FloatArray
    noise: float
    weights: FloatArray

    def __post_init__(self) -> None:
        """Factor λI + VᵀWV once."""
        inner = cho_factor(self.gram + self.noise * np.eye(len(self.gram)), lower=True, check_finite=False)
        object.__setattr__(self, "_inner", inner)

    def __call__(self, right: FloatArray) -> FloatArray:
        """Apply the inverse to each column."""
        weighted = self.weights[:, np.newaxis] * right
        inner = cho_solve(self._inner, self.transposed(weighted), check_finite=False)  # type: ignore[attr-defined]
        correction = self.weights[:, np.newaxis] * self.features(inner)
        return np.asarray((weighted - correction) / self.noise)
