"""What every strategy for choosing basis points is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from mercer._stored import stored
from mercer._stored.checks import check_finite, check_shape, need
from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import check_random_state
from mercer.engine import Executor, Rows, Threads, as_rows
from mercer.kernels import Kernel

__all__ = ["Basis", "BasisStrategy", "Task"]


@stored(alone=True)
@dataclass(frozen=True)
class Basis:
    """Basis points and, where they are rows of the data, their numbers.

    Attributes
    ----------
    points : array (m, d), float64
    index : array (m,) or None
        Row numbers; None if the points are not rows.
    residual_trace : float or None
        Share of the trace of the kernel matrix that the points leave, where the strategy knows it: a bound of the error
        of the approximated kernel matrix.
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

    def check_stored(self) -> None:
        """Refuse an index or scores of other points."""
        need(self.points.ndim == 2, "the points of a basis are no table.")
        check_finite(self.points, "the points of a basis")
        for name in ("index", "scores"):
            if getattr(self, name) is not None:
                check_shape(getattr(self, name), (len(self.points),), f"{name} of a basis")

    def taken(self, order: IntArray) -> Basis:
        """Some of the points, in this order."""
        return replace(
            self,
            points=np.ascontiguousarray(self.points[order]),
            index=None if self.index is None else self.index[order],
            scores=None if self.scores is None else self.scores[order],
        )


@dataclass(frozen=True)
class Task:
    """What a strategy is given.

    Attributes
    ----------
    rows : Rows (n, d)
    targets : array (n, p)
    kernel : Kernel
    n_basis : int
        Most points.
    weights : array (n,) or None
        Rows of weight zero are never chosen.
    random_state : RandomState
    executor : Executor
    """

    rows: Rows
    targets: FloatArray
    kernel: Kernel
    n_basis: int
    weights: FloatArray | None
    random_state: np.random.RandomState
    executor: Executor


class BasisStrategy(BaseEstimator, ABC):
    """A way to choose basis points. A subclass defines ``choose`` and reads rows through the engine only."""

    def select(
        self,
        rows: Any,
        targets: Any,
        kernel: Kernel,
        n_basis: int,
        *,
        weights: FloatArray | None = None,
        random_state: RandomState = None,
        executor: Executor | None = None,
    ) -> Basis:
        """Choose at least one and at most ``n_basis`` points.

        Parameters
        ----------
        rows : array (n, d) or Rows
        targets : array (n,) or (n, p)
            Ignored by most strategies.
        kernel : Kernel
            With numbers for parameters.
        n_basis : int
        weights : array (n,) or None, default=None
            Rows of weight zero are never chosen.
        random_state : int, RandomState or None, default=None
        executor : Executor or None, default=None
        """
        rows = as_rows(rows)
        table = np.asarray(targets, dtype=np.float64).reshape(rows.n_rows, -1)
        random = check_random_state(random_state)
        basis = self.choose(Task(rows, table, kernel, n_basis, weights, random, executor or Threads()))
        if len(basis.points):
            return basis
        first = np.array([0 if weights is None else int(np.argmax(weights > 0))])
        note = f"{basis.note} The first row stands for all.".strip()
        return replace(basis, points=rows.take(first).astype(np.float64), index=first, scores=None, note=note)

    @abstractmethod
    def choose(self, task: Task) -> Basis:
        """Choose at most ``task.n_basis`` points; none if no row is of use."""
