"""What every strategy for choosing basis points is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from mercer._typing import FloatArray, IntArray
from mercer.engine import Executor, Rows
from mercer.kernels import Kernel

__all__ = ["Basis", "BasisStrategy"]


@dataclass(frozen=True)
class Basis:
    """Basis points and, where they are rows of the data, which.

    Attributes
    ----------
    points : array (m, d), float64
    index : array (m,) or None
        Row numbers; None if the points are not rows.
    """

    points: FloatArray
    index: IntArray | None = None


class BasisStrategy(BaseEstimator, ABC):
    """A way to choose basis points. A subclass gives ``select`` and reads rows through the engine only."""

    @abstractmethod
    def select(
        self,
        rows: Rows,
        targets: FloatArray,
        kernel: Kernel,
        n_basis: int,
        *,
        weights: FloatArray | None,
        random_state: np.random.RandomState,
        executor: Executor,
    ) -> Basis:
        """Choose at most ``n_basis`` points.

        Parameters
        ----------
        rows : Rows (n, d)
        targets : array (n, p)
        kernel : Kernel
        n_basis : int
        weights : array (n,) or None
            Rows of weight zero are never chosen.
        random_state : RandomState
        executor : Threads
        """
