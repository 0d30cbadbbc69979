r"""A Cholesky factor that grows by one vector at a time."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from mercer._typing import FloatArray

__all__ = ["GrowingFactor"]

# A vector is refused if the others span it but for this share of k(z, z).
NEAR_DEPENDENT = 1e-9


class GrowingFactor:
    """K = LLᵀ of vectors that come one after the other.

    Parameters
    ----------
    room : int
        Most vectors.
    n_outputs : int
        Columns of the right-hand side that is solved along.
    """

    def __init__(self, room: int, n_outputs: int) -> None:
        self._lower = np.zeros((room, room), order="F")
        self._whitened = np.zeros((room, n_outputs))  # L⁻¹ c
        self.size = 0

    def add(self, column: FloatArray, diagonal: float, right: FloatArray) -> bool:
        """Take in a vector, given k with those before, k(z, z) and its right-hand side; False if it is near-dependent.

        Cost: m² operations.
        """
        m, lower = self.size, self._lower
        row = _half_solve(lower[:m, :m], column)
        pivot = diagonal - float(row @ row)
        if not pivot > NEAR_DEPENDENT * diagonal:
            return False
        lower[m, :m], lower[m, m] = row, np.sqrt(pivot)
        self._whitened[m] = (right - row @ self._whitened[:m]) / lower[m, m]
        self.size = m + 1
        return True

    @property
    def explained(self) -> float:
        """cᵀK⁻¹c, summed over the columns: by this the vectors so far have lowered the distance."""
        return float(np.sum(self._whitened[: self.size] ** 2))

    def solution(self) -> FloatArray:
        """K⁻¹c, shape (m, p)."""
        m = self.size
        return np.asarray(solve_triangular(self._lower[:m, :m], self._whitened[:m], lower=True, trans=1))


def _half_solve(lower: FloatArray, right: FloatArray) -> FloatArray:
    return np.asarray(solve_triangular(lower, right, lower=True)) if len(lower) else np.empty(0)
