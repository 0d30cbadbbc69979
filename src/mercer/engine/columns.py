"""What must be known of labels and weights that stay with their rows, in one pass over these columns alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer.engine.executors.threads import Threads
from mercer.engine.passes import Executor, Pass, Tile, given_executor
from mercer.engine.source import Source, SourceColumn, SourceRows
from mercer.engine.table import ArrayTable
from mercer.engine.weights import are_counts

_AT_ONCE = 1 << 16  # rows of a tile: a column or two are cheap


@dataclass
class Described:
    """Classes with the number and the weight of their rows, and what the weights are like."""

    classes: list[AnyArray] = field(default_factory=list)
    totals: dict[Any, float] = field(default_factory=dict)  # Σω of each class
    least: float = np.inf
    largest: float = -np.inf
    are_counts: bool = True
    n_positive: int = 0


@dataclass(frozen=True)
class _Describe(Pass[Described, Described]):
    """Classes among labels (as targets) if these are asked for, and the range of the weights."""

    with_classes: bool

    name = "labels and weights"
    width: ClassVar[int] = 2
    rows_at_once: ClassVar[int] = _AT_ONCE  # type: ignore[misc]

    def start(self) -> Described:
        return Described()

    def add(self, state: Described, tile: Tile) -> None:
        weights = tile.weights
        if self.with_classes:
            found, codes = np.unique(np.asarray(tile.targets), return_inverse=True)
            totals = np.bincount(codes, weights, minlength=len(found))
            self._count(state, [found], dict(zip(found.tolist(), totals.tolist(), strict=True)))
        if weights is not None and len(weights):
            state.least = min(state.least, float(np.min(weights)))
            state.largest = max(state.largest, float(np.max(weights)))
            state.are_counts &= are_counts(weights)
            state.n_positive += int(np.count_nonzero(weights > 0))

    def merge(self, state: Described, other: Described) -> Described:
        self._count(state, other.classes, other.totals)
        state.least, state.largest = min(state.least, other.least), max(state.largest, other.largest)
        state.are_counts &= other.are_counts
        state.n_positive += other.n_positive
        return state

    @staticmethod
    def _count(state: Described, classes: list[AnyArray], totals: dict[Any, float]) -> None:
        state.classes = [np.unique(np.concatenate([*state.classes, *classes]))] if state.classes else classes
        for label, total in totals.items():
            state.totals[label] = state.totals.get(label, 0.0) + total


@dataclass(frozen=True)
class _TargetSums(Pass[FloatArray, FloatArray]):
    """Σω [y, 1]."""

    n_outputs: int

    name = "targets"
    rows_at_once: ClassVar[int] = _AT_ONCE  # type: ignore[misc]

    @property
    def width(self) -> int:
        return self.n_outputs + 1

    def start(self) -> FloatArray:
        return np.zeros(self.n_outputs + 1)

    def add(self, state: FloatArray, tile: Tile) -> None:
        weights = np.ones(tile.n_rows) if tile.weights is None else tile.weights
        state[:-1] += weights @ tile.targets
        state[-1] += float(np.sum(weights))


def describe(source: Source, *, with_classes: bool, executor: Executor) -> Described:
    """What the labels and weights of a source are like."""
    if not with_classes and not source.has_weights:
        return Described()
    labels: Any = SourceColumn(source, "labels", as_they_are=True) if with_classes else None
    weights: Any = SourceColumn(source, "weights") if source.has_weights else None
    table = ArrayTable(SourceRows(source, bare=True), labels, weights, relative=True)
    return executor.reduce(_Describe(with_classes), table)


def mean_targets(table: ArrayTable, *, executor: Executor | None = None) -> FloatArray:
    """The weighted mean of the targets, (p,)."""
    if not isinstance(table.labels, SourceColumn):
        return np.asarray(np.average(table.targets, axis=0, weights=table.weights))
    executor = executor or given_executor() or Threads()
    sums: FloatArray = executor.reduce(_TargetSums(table.n_outputs), table.bare())
    return np.asarray(sums[:-1] / sums[-1])
