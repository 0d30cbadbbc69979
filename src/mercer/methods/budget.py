"""How large a model may be, if it is to be fitted within a time limit and the memory that is free.

Operations are multiplications with an addition. As many are planned for a second as a slow laptop manages, so that the
same model comes out on every machine that is no slower. On one that is slower, or busy, the rate is measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from mercer.engine import available_memory, blas_threads

_RATE = 1e10  # operations that are planned for a second
_USED = 0.4  # of the rate of matrix products that is measured: the rest is for all else
_SIZE, _REPEATED = 384, 3  # of the matrices that are multiplied, and how often
_MOST_EXACT = 6000  # rows
_MOST_BASIS, _FEWEST_BASIS = 3000, 100  # points
_MEMORY = 0.25  # share of the free memory that one matrix may take


@dataclass(frozen=True)
class Budget:
    """Seconds, and the operations that are planned for each of them."""

    seconds: float
    rate: float = _RATE

    @classmethod
    def on_this_machine(cls, seconds: float, n_threads: int) -> Budget:
        """At the planned rate, or at that of this machine if it is slower now."""
        return cls(seconds, min(_RATE, _USED * n_threads * _product_rate()))

    def exact_rows(self, share: float = 0.4) -> int:
        """Up to how many rows an exact model is fitted: n³/3 operations for the factor, as many for its inverse."""
        return int(_fitting(min(float(_MOST_EXACT), np.cbrt(self.rate * share * self.seconds))))

    def basis_size(self, n_rows: int, share: float = 1.0) -> int:
        """How many basis points: nm² operations for the sums, about 15m³ for eigenvalues."""
        sizes = np.arange(_FEWEST_BASIS, _MOST_BASIS + 1, 100, dtype=np.float64)
        planned = n_rows * sizes**2 + 15 * sizes**3 <= self.rate * share * self.seconds
        return int(_fitting(float(sizes[planned][-1]) if np.any(planned) else _FEWEST_BASIS))


def _product_rate() -> float:
    """Operations that one thread makes in a second, when it multiplies matrices."""
    matrix, out = np.ones((_SIZE, _SIZE)), np.empty((_SIZE, _SIZE))
    took = []
    with blas_threads(1):
        for _ in range(_REPEATED):
            began = time.perf_counter()
            np.matmul(matrix, matrix, out=out)
            took.append(time.perf_counter() - began)
    return float(_SIZE**3 / max(min(took), 1e-9))


def _fitting(size: float) -> float:
    """The size, or less if a square matrix of that size would take too much of the memory."""
    memory = available_memory()
    return size if memory is None else min(size, np.sqrt(_MEMORY * memory / 8))
