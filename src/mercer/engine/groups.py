"""Sums over groups of rows, in one pass: the number of a row's group travels with it, behind its targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine.passes import Executor, Pass, Tile
from mercer.engine.rows import Block
from mercer.engine.statistics import Features, NormalPass, NormalStatistics
from mercer.engine.table import ArrayTable, Coding


@dataclass(frozen=True)
class _WithGroup(Coding):
    """Labels with the group behind them, as targets with the group behind them."""

    coding: Coding | None
    n_targets: int

    @property
    def n_columns(self) -> int:
        return self.n_targets + 1

    def columns(self, codes: AnyArray) -> FloatArray:
        targets = codes[:, :-1] if self.coding is None else self.coding.columns(codes[:, 0])
        return np.column_stack([targets, codes[:, -1]])


def grouped(table: ArrayTable, groups: IntArray) -> ArrayTable:
    """The table with the number of each row's group (n,) as its last target."""
    targets = np.empty((table.n_rows, 0)) if table.labels is None else table.labels
    labels = np.column_stack([targets, groups])
    shift = None if table.shift is None else np.append(table.shift, 0.0)
    return replace(table, labels=labels, coding=_WithGroup(table.coding, table.n_outputs), shift=shift)


def by_group(tile: Tile) -> Iterator[tuple[int, Tile]]:
    """The rows of each group in a tile of a grouped table, with their targets alone."""
    targets, numbers = tile.targets[:, :-1], tile.targets[:, -1].astype(np.intp)
    for group in np.unique(numbers):
        alone = bool(np.all(numbers == group))  # no row is copied
        here: Block = slice(None) if alone else np.flatnonzero(numbers == group)
        weights = None if tile.weights is None else tile.weights[here]
        yield int(group), Tile(tile.rows[here], targets[here], weights, scratch=tile.scratch)


@dataclass(frozen=True)
class GroupedStatistics(Pass[list[NormalStatistics], list[NormalStatistics]]):
    """``NormalPass`` of each group."""

    each: NormalPass
    n_groups: int

    name = "statistics"
    fewest = NormalPass.fewest

    @property
    def width(self) -> int:
        """As of one group: its tiles are taken one by one."""
        return self.each.width

    @property
    def state_numbers(self) -> int:  # type: ignore[override]
        """Of all accumulators."""
        return self.n_groups * self.each.state_numbers

    def prepare(self) -> None:
        """Bind the kernel to the points."""
        self.each.prepare()

    def start(self) -> list[NormalStatistics]:
        """Zeros."""
        return [self.each.start() for _ in range(self.n_groups)]

    def add(self, state: list[NormalStatistics], tile: Tile) -> None:
        """One symmetric product for each group that occurs."""
        for group, part in by_group(tile):
            self.each.add(state[group], part)

    def merge(self, state: list[NormalStatistics], other: list[NormalStatistics]) -> list[NormalStatistics]:
        """Group by group."""
        for mine, theirs in zip(state, other, strict=True):
            mine.merge_in_place(theirs)
        return state

    def finish(self, state: list[NormalStatistics]) -> list[NormalStatistics]:
        """Both triangles, without the padding."""
        return [self.each.finish(each) for each in state]


def statistics_of_groups(
    table: ArrayTable, features: Features, groups: IntArray, n_groups: int, *, executor: Executor
) -> list[NormalStatistics]:
    """Statistics of each group of rows, all in one pass.

    Cost: that of ``normal_statistics``, and an accumulator of m × m for each group and worker.
    """
    work = GroupedStatistics(NormalPass(features, table.n_outputs), n_groups)
    return [each.weighed_as(table) for each in executor.reduce(work, grouped(table, groups))]
