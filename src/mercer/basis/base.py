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
    residual_trace : float or None
        What the points leave of the trace of the kernel matrix, as a share of it, where the strategy knows it: a bound
        of the error of the approximated kernel matrix.
    scores : array (m,) or None
        What the strategy gave each point, where it scores them (see the strategy).
    note : str
        Why there are fewer points than were asked for; empty if there are not.
    """

    points: FloatArray
    index: IntArray | None = None
    residual_trace: float | None = None
    scores: FloatArray | None = None
    note: str = ""


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
