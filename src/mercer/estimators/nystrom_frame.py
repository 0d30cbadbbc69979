"""A basis and the factor of its kernel matrix: what statistics of different rows must share to be added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from mercer._typing import FloatArray
from mercer.basis import Basis
from mercer.engine import Features
from mercer.kernels import Kernel
from mercer.solvers.dense import pivoted_cholesky

__all__ = ["Frame"]

# Pivots below this many roundings, relative to the first, mean that the others span the point: roundings of the kernel
# matrix in float64, of the tiles in float32.
_PIVOT_ROUNDINGS = {np.dtype(np.float64): 4.0, np.dtype(np.float32): 8.0}


@dataclass(frozen=True)
class Frame:
    """Basis points z, the most informative first, and K_mm = LLᵀ."""

    kernel: Kernel
    basis: Basis
    lower: FloatArray  # (m, m)
    smallest_pivot: float
    dtype: np.dtype[Any]

    @classmethod
    def build(cls, kernel: Kernel, basis: Basis, dtype: np.dtype[Any]) -> Frame:
        """Factor K_mm = LLᵀ, greatest pivot first, and drop the points that the others span to rounding."""
        rounding = _PIVOT_ROUNDINGS[dtype] * np.finfo(dtype).eps
        tolerance = max(rounding, len(basis.points) * np.finfo(np.float64).eps)
        factor = pivoted_cholesky(kernel(basis.points), tolerance=tolerance)
        index = None if basis.index is None else basis.index[factor.order]
        kept = Basis(points=np.ascontiguousarray(basis.points[factor.order]), index=index)
        return cls(kernel, kept, factor.lower, factor.smallest_pivot, dtype)

    def features(self, *, whitened: bool) -> Features:
        """k_m(x), or L⁻¹k_m(x)."""
        return Features(self.kernel, self.basis.points, lower=self.lower if whitened else None, dtype=self.dtype)

    def unwhiten(self, weights: FloatArray) -> FloatArray:
        """W = L⁻ᵀu."""
        return np.asarray(solve_triangular(self.lower, weights, lower=True, trans="T", check_finite=False))
