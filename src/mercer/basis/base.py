"""What every strategy for choosing basis points is, and how an estimator's ``basis`` becomes points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator

from mercer._stored import stored
from mercer._stored.checks import check_finite, check_shape, need
from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import check_numbers, check_random_state
from mercer.engine import Executor, Rows, Threads, as_rows
from mercer.kernels import Kernel


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
    """What a strategy is given: the arguments of ``BasisStrategy.select``, with targets of shape (n, p)."""

    rows: Rows
    targets: FloatArray
    kernel: Kernel
    n_basis: int
    weights: FloatArray | None
    random_state: np.random.RandomState
    executor: Executor

    def points(self, index: IntArray) -> FloatArray:
        """The given rows, as basis points."""
        return self.rows.take(index).astype(np.float64)

    def basis(self, index: IntArray, why: str, **known: Any) -> Basis:
        """The given rows as a basis, with what else is known of it, and why there are no more if they are too few."""
        return Basis(points=self.points(index), index=index, note=self.note(len(index), why), **known)

    def note(self, found: int, why: str) -> str:
        """Why there are no more points than were found, if they are too few."""
        return f"{found} of {self.n_basis} points: {why}." if found < self.n_basis else ""


class BasisStrategy(BaseEstimator, ABC):
    """A way to choose basis points. A subclass defines ``choose`` and reads rows through the engine only."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    @property
    def needs_targets(self) -> bool:
        """Whether there is no choice without targets."""
        return False

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
        targets : array (n,) or (n, p), or a function that returns it
            Ignored by most strategies, which take (n, 0), too.
        kernel : Kernel
            With numbers for parameters.
        n_basis : int
        weights : array (n,) or None, default=None
            Rows of weight zero are never chosen.
        random_state : int, RandomState or None, default=None
        executor : Executor or None, default=None
        """
        self._validate_params()
        rows = as_rows(rows)
        if callable(targets):  # which are not made for nothing
            targets = targets() if self.needs_targets else np.empty((rows.n_rows, 0))
        table = np.asarray(targets, dtype=np.float64)
        table = table if table.ndim == 2 else table.reshape(rows.n_rows, -1)
        if self.needs_targets and not table.shape[1]:
            raise ValueError(
                f"basis={self} chooses points by targets, of which there are none here: take a strategy without, such "
                "as 'uniform', 'kmeans' or 'pivoted_cholesky'."
            )
        random = check_random_state(random_state)
        task = Task(rows, table, kernel, n_basis, weights, random, executor or Threads())
        basis = self.choose(task)
        if len(basis.points):
            return basis
        first = np.array([0 if weights is None else int(np.argmax(weights > 0))])
        note = f"{basis.note} The first row stands for all.".strip()
        return replace(basis, points=task.points(first), index=first, scores=None, note=note)

    @abstractmethod
    def choose(self, task: Task) -> Basis:
        """Choose at most ``task.n_basis`` points; none if no row is of use."""


def choose_basis(basis: Any, rows: Rows, targets: Any, kernel: Kernel, n_basis: int, **options: Any) -> Basis:
    """Return the points for a strategy's name, a strategy (``options`` are those of ``select``), or an array."""
    # The name of a strategy is that of its file.
    files = ((each.__module__.rpartition("."), each) for each in BasisStrategy.__subclasses__())
    named = {name: each for (package, _, name), each in files if package == "mercer.basis"}
    if isinstance(basis, str) and basis in named:
        basis = named[basis]()
    if isinstance(basis, BasisStrategy):
        return basis.select(rows, targets, kernel, n_basis, **options)
    if isinstance(basis, str) or basis is None:
        names = ", ".join(repr(name) for name in sorted(named, key=lambda name: (name != "uniform", name)))
        msg = f"basis must be one of {names}, a strategy of mercer.basis, or an array of points; got {basis!r}."
        raise ValueError(msg)
    return Basis(points=check_points(basis, rows.n_features))


def check_points(basis: Any, n_features: int) -> FloatArray:
    """Check basis points that are given as an array or a sparse matrix; returns a float64 copy (m, n_features)."""
    basis = basis.toarray() if issparse(basis) else basis
    try:
        points = np.array(check_numbers(basis, "basis"), dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        if str(error).startswith("basis"):
            raise
        raise ValueError(f"basis, given as an array, must hold numbers: {error}") from error
    if points.ndim != 2 or points.shape[0] == 0 or points.shape[1] != n_features:
        msg = f"basis, given as an array, must have shape (m, {n_features}) with m of at least 1; got {points.shape}."
        raise ValueError(msg)
    if not np.all(np.isfinite(points)):
        raise ValueError("basis, given as an array, contains NaN or infinity.")
    return points
