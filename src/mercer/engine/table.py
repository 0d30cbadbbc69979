"""Tables: rows with targets and weights, in partitions that can be read on their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_columns, check_finite, check_shape, need
from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine.passes import Scratch, Tile
from mercer.engine.rows import ArrayRows, Block, Rows, SomeRows
from mercer.engine.source import Field, Piece, SourceColumn, SourceRows
from mercer.engine.weights import are_counts

_IN_MEMORY = 1 << 22  # numbers of a subset of a source that is read at once, rather than a tile at a time


class Coding(ABC):
    """How class codes become targets."""

    @property
    @abstractmethod
    def n_columns(self) -> int:
        """Number of targets, p."""

    @abstractmethod
    def columns(self, codes: IntArray) -> FloatArray:
        """Targets (T, p) of rows with these codes."""


class Part(ABC):
    """Some rows of a table, which a worker reads, here or elsewhere: it pickles with its rows, not with the table."""

    n_rows: int
    first: int  # number of its first row in the table

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What an engine of its own hands to ``put`` before the rows can be read there; usually nothing."""
        return ()

    def put(self, inputs: Sequence[Any]) -> None:  # noqa: B027  most have nothing to put
        """Put it in place."""

    @abstractmethod
    def tiles(self, size: int, scratch: Scratch) -> Iterator[Tile]:
        """The rows in tiles of at most so many (tables whose tiles are given disregard it)."""


class Table(ABC):
    """Rows with their targets and weights, perhaps larger than memory."""

    n_rows: int
    n_features: int
    n_outputs: int
    has_given_tiles: bool = False  # whether tiles are blocks of rows that must be seen together
    counted: bool = True  # whether weights are numbers of equal rows: see ``weights``
    is_array: bool = False  # whether any number of rows can be had at once, without joining tiles

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """The partitions, in order; at least one."""

    def n_tiles(self, size: int) -> int:
        """How many tiles of this size there are, about."""
        return -(-self.n_rows // size)

    def longest_tile(self, size: int) -> int:
        """Most rows of a tile if tiles of this size are asked for."""
        return min(size, self.n_rows)

    def tiles(self, size: int) -> Iterator[Tile]:
        """All rows in their order."""
        scratch = Scratch()
        return chain.from_iterable(part.tiles(size, scratch) for part in self.parts())


@stored
@dataclass(eq=False)
class ArrayTable(Table):
    """Rows with targets and weights, which are arrays or, where they stay with the rows, a ``SourceColumn`` each."""

    rows: Rows  # (n, d)
    labels: AnyArray | None = None  # targets (n, p), or class codes (n,) if there is a coding; None for rows alone
    weights: FloatArray | None = None  # (n,)
    coding: Coding | None = None  # makes targets of codes, a tile at a time
    shift: FloatArray | None = None  # (p,), subtracted from the targets
    relative: Sometimes[bool] = False  # whether weights only say how much rows matter, even if they are whole numbers

    def __post_init__(self) -> None:
        weights: Any = self.weights
        counts = weights.are_counts if isinstance(weights, SourceColumn) else are_counts(weights)
        self.counted = not self.relative and counts
        self.n_rows, self.n_features, self.dtype = self.rows.n_rows, self.rows.n_features, self.rows.dtype
        self.is_array = isinstance(self.rows, ArrayRows | SourceRows)
        if self.coding is not None:
            self.n_outputs = self.coding.n_columns
        else:
            self.n_outputs = 0 if self.labels is None else int(self.labels.shape[-1])

    def check_stored(self) -> None:
        """Refuse targets and weights of other rows."""
        n_rows = self.rows.n_rows
        need(self.coding is None, "kept targets are class codes.")
        if self.labels is not None:
            check_columns(self.labels, n_rows, "kept targets")
            check_finite(self.labels, "kept targets")
        if self.weights is not None:
            check_shape(self.weights, (n_rows,), "kept weights")
        need(self.shift is None or self.shift.shape == (self.n_outputs,), "kept targets have another shift.")

    def parts(self) -> Sequence[Part]:
        """Spans of rows, by their number alone or as their source is partitioned."""
        return [_Span(self, start, stop, start) for start, stop in pairwise(self.rows.bounds())]

    def tiles(self, size: int) -> Iterator[Tile]:
        """All rows in their order."""
        return _Span(self, 0, self.n_rows, 0).tiles(size, Scratch())

    def tile(self, where: Block, rows: FloatArray, scratch: Scratch, first: int = 0) -> Tile:
        """The rows of a block, which were read, with their targets and weights."""
        weights = None if self.weights is None else self.weights[where]
        return Tile(rows, self._targets(where, len(rows)), weights, first, scratch)

    def span(self, first: int, last: int, size: int, scratch: Scratch, offset: int) -> Iterator[Tile]:
        """Rows first to last in tiles, whose numbers in another table are larger by ``offset``."""
        rows = self.rows
        if not (isinstance(rows, SourceRows) and self._fields != rows.fields):
            for start, stop, read in rows.tiles(first, last, size):
                yield self.tile(slice(start, stop), read, scratch, start + offset)
            return
        starts = range(first, last, size)
        for start, piece in zip(starts, rows.source.pieces(first, last, size, self._fields), strict=True):
            n_rows = min(size, last - start)
            labels, weights = self._columns(piece, slice(start, start + n_rows))
            yield Tile(rows.of(piece, n_rows), self._coded(labels, n_rows), weights, start + offset, scratch)

    @property
    def _numbers(self) -> tuple[Any, Any]:
        """Labels and weights: arrays, columns of a source, or None."""
        return self.labels, self.weights

    def _is_beside(self, column: Any) -> bool:
        """Whether it is a column of the source that the rows come from."""
        rows = self.rows
        return isinstance(column, SourceColumn) and isinstance(rows, SourceRows) and column.source is rows.source

    @property
    def _fields(self) -> tuple[Field, ...]:
        """What is read of the source that the rows come from."""
        rows: tuple[Field, ...] = self.rows.fields if isinstance(self.rows, SourceRows) else ()
        beside = (each.fields for each in self._numbers if self._is_beside(each))
        return (*rows, *dict.fromkeys(chain.from_iterable(beside)))

    def _columns(self, piece: Piece, where: Block) -> list[Any]:
        """Labels and weights of some rows: those read with them, or taken of arrays."""
        return [
            None if each is None else each.of(piece, where) if self._is_beside(each) else each[where]
            for each in self._numbers
        ]

    def _targets(self, where: Block, n_rows: int) -> FloatArray:
        return self._coded(None if self.labels is None else self.labels[where], n_rows)

    def _coded(self, labels: AnyArray | None, n_rows: int) -> FloatArray:
        if labels is None:
            return np.empty((n_rows, 0))
        targets = labels if self.coding is None else self.coding.columns(labels)
        return targets if self.shift is None else targets - self.shift

    @property
    def targets(self) -> FloatArray:
        """All targets (n, p), for methods that keep that many numbers anyway."""
        return self._targets(slice(0, self.n_rows), self.n_rows)

    def shifted(self, shift: FloatArray) -> ArrayTable:
        """The table with targets less a constant (p,)."""
        if not np.any(shift):
            return self
        return replace(self, shift=shift if self.shift is None else self.shift + shift)

    def subset(self, index: IntArray) -> ArrayTable:
        """Some of the rows, in this order."""
        if len(index) == self.n_rows and np.array_equal(index, np.arange(self.n_rows)):
            return self
        rows = self.rows
        if isinstance(rows, SourceRows) and len(index) * (self.n_features + self.n_outputs + 1) <= _IN_MEMORY:
            piece = rows.source.take(index, self._fields)
            labels, weights = self._columns(piece, index)
            read = ArrayRows(rows.of(piece, len(index)), checked=True)
            return replace(self, rows=read, labels=labels, weights=weights, relative=not self.counted)
        return self._part(SomeRows(rows, index), index)

    def shipped(self, where: Block) -> ArrayTable:
        """The rows of a block as a table of their own, which ships with no more than it needs."""
        return self._part(self.rows.shipped(where), where)

    def inputs(self, where: Block) -> tuple[Any, ...]:
        """What must be put in place elsewhere before the shipped rows of a block are read there."""
        return self.rows.inputs(where, self._fields)

    def _part(self, rows: Rows, where: Block) -> ArrayTable:
        there = rows.source if isinstance(rows, SourceRows) else None
        labels, weights = (
            None if each is None else each.at(there) if there is not None and self._is_beside(each) else each[where]
            for each in self._numbers
        )
        return replace(self, rows=rows, labels=labels, weights=weights, relative=not self.counted)

    def bare(self) -> ArrayTable:
        """The table without features, where these are not read for nothing: for passes over targets and weights."""
        rows = self.rows.bare() if isinstance(self.rows, SourceRows) else ArrayRows(np.empty((self.n_rows, 0)))
        return replace(self, rows=rows, relative=not self.counted)


@dataclass(eq=False)
class _Span(Part):
    """Rows start to stop of an array table."""

    table: ArrayTable
    start: int
    stop: int
    first: int  # number of the first row in the table from which this one was taken

    def __post_init__(self) -> None:
        self.n_rows = self.stop - self.start

    def tiles(self, size: int, scratch: Scratch) -> Iterator[Tile]:
        return self.table.span(self.start, self.stop, size, scratch, self.first - self.start)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Those of the rows."""
        return self.table.inputs(slice(self.start, self.stop))

    def put(self, inputs: Sequence[Any]) -> None:
        """Hand them on."""
        self.table.rows.put(inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Span, (self.table.shipped(slice(self.start, self.stop)), 0, self.n_rows, self.first)
