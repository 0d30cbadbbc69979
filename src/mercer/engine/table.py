"""Tables: rows with their targets and weights, in partitions that can be read on their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np

from mercer._stored import stored
from mercer._stored.checks import check_columns, check_finite, check_shape, need
from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine.passes import Scratch, Tile
from mercer.engine.rows import ArrayRows, Rows, as_rows

__all__ = ["ArrayTable", "Block", "BlockTable", "Coding", "Part", "Spans", "Table", "as_table"]

# Rows that belong together: next to each other, or anywhere.
Block = slice | IntArray

# Partitions decide how sums are nested, so their number depends on the rows alone, not on the workers. There are
# enough for many workers, and few enough that starting and merging a sum is small beside the sum itself.
_PARTITION_ROWS, _FEWEST_ROWS = 8192, 512
_FEWEST_PARTITIONS, _MOST_PARTITIONS = 8, 64


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
    """Some rows of a table, which a worker reads, here or elsewhere: it pickles with its rows, not with the table.

    Attributes
    ----------
    n_rows : int
    first : int
        Number of its first row in the table.
    """

    n_rows: int
    first: int

    @abstractmethod
    def tiles(self, size: int, scratch: Scratch) -> Iterator[Tile]:
        """The rows in tiles of at most so many (tables whose tiles are given disregard it)."""


class Table(ABC):
    """Rows with their targets and weights, perhaps larger than memory.

    Attributes
    ----------
    n_rows, n_features, n_outputs : int
    dtype : numpy.dtype
        Of the rows in a tile, float32 or float64.
    """

    n_rows: int
    n_features: int
    n_outputs: int
    dtype: np.dtype[Any]
    has_given_tiles: bool = False  # whether tiles are blocks of rows that must be seen together
    is_array: bool = False  # whether any number of rows can be had without reading and joining tiles

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
@dataclass(frozen=True, eq=False)
class ArrayTable(Table):
    """Rows from any source, with targets and weights that are arrays.

    Parameters
    ----------
    rows : Rows (n, d)
    labels : array (n, p) or (n,), or None
        Targets, or class codes if there is a coding. None for rows alone.
    weights : array (n,) or None
    coding : Coding or None
        Makes targets of codes, a tile at a time.
    shift : array (p,) or None
        Subtracted from the targets.
    """

    rows: Rows
    labels: AnyArray | None = None
    weights: FloatArray | None = None
    coding: Coding | None = None
    shift: FloatArray | None = None

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

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return self.rows.n_rows

    @property
    def n_features(self) -> int:  # type: ignore[override]
        """Number of columns of X."""
        return self.rows.n_features

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        """Number of columns of the targets."""
        if self.coding is not None:
            return self.coding.n_columns
        return 0 if self.labels is None else int(self.labels.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """Type of the rows in a tile."""
        return self.rows.dtype

    @property
    def is_array(self) -> bool:  # type: ignore[override]
        """Whether the rows are an array."""
        return isinstance(self.rows, ArrayRows)

    def parts(self) -> Sequence[Part]:
        """Spans of rows, by their number alone."""
        bounds = partition_bounds(self.n_rows)
        return [_Span(self, start, stop) for start, stop in pairwise(bounds)]

    def tiles(self, size: int) -> Iterator[Tile]:
        """All rows in their order."""
        return _Span(self, 0, self.n_rows).tiles(size, Scratch())

    def read(self, where: Block) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Rows, targets and weights of a block."""
        rows = self.rows.read(where.start, where.stop) if isinstance(where, slice) else self.rows.take(where)
        return rows, self._targets(where, len(rows)), None if self.weights is None else self.weights[where]

    def _targets(self, where: Block, n_rows: int) -> FloatArray:
        if self.labels is None:
            return np.empty((n_rows, 0))
        labels = self.labels[where]
        targets = labels if self.coding is None else self.coding.columns(labels)
        return targets if self.shift is None else targets - self.shift

    @property
    def targets(self) -> FloatArray:
        """All targets (n, p), for methods that keep that many numbers anyway."""
        return self._targets(slice(0, self.n_rows), self.n_rows)

    def mean_target(self) -> FloatArray:
        """Weighted mean of the targets, shape (p,)."""
        return np.asarray(np.average(self.targets, axis=0, weights=self.weights))

    def shifted(self, shift: FloatArray) -> ArrayTable:
        """The table with targets less a constant (p,)."""
        if not np.any(shift):
            return self
        return replace(self, shift=shift if self.shift is None else self.shift + shift)

    def subset(self, index: IntArray) -> ArrayTable:
        """Some of the rows, in this order."""
        if len(index) == self.n_rows and np.array_equal(index, np.arange(self.n_rows)):
            return self
        return replace(
            self,
            rows=self.rows.subset(index),
            labels=None if self.labels is None else self.labels[index],
            weights=None if self.weights is None else self.weights[index],
        )


@dataclass(frozen=True, eq=False)
class _Span(Part):
    """Rows start to stop of an array table."""

    table: ArrayTable
    start: int
    stop: int
    first: int = -1  # if they are numbered otherwise than in the table

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_rows", self.stop - self.start)
        if self.first < 0:
            object.__setattr__(self, "first", self.start)

    def tiles(self, size: int, scratch: Scratch) -> Iterator[Tile]:
        table, offset = self.table, self.first - self.start
        for start, stop, rows in table.rows.tiles(self.start, self.stop, size):
            where = slice(start, stop)
            weights = None if table.weights is None else table.weights[where]
            yield Tile(rows, table._targets(where, stop - start), weights, start + offset, scratch)

    def __reduce__(self) -> tuple[Any, ...]:
        table, where = self.table, slice(self.start, self.stop)
        shipped = replace(
            table,
            rows=table.rows.part(self.start, self.stop),
            labels=None if table.labels is None else table.labels[where],
            weights=None if table.weights is None else table.weights[where],
        )
        return _Span, (shipped, 0, self.n_rows, self.first)


@dataclass(frozen=True, eq=False)
class BlockTable(Table):
    """A table whose tiles are given blocks of rows, wherever they are, to be seen together.

    Parameters
    ----------
    table : ArrayTable
    blocks : sequence of slices or index arrays
    """

    table: ArrayTable
    blocks: Sequence[Block]

    has_given_tiles = True

    def __post_init__(self) -> None:
        n_rows = sum(map(_length, self.blocks))
        fields = {"n_rows": n_rows, "n_features": self.table.n_features, "n_outputs": self.table.n_outputs}
        for name, value in (fields | {"dtype": self.table.dtype}).items():
            object.__setattr__(self, name, value)

    def parts(self) -> Sequence[Part]:
        """Runs of blocks."""
        wanted = len(partition_bounds(self.n_rows)) - 1
        bounds = np.linspace(0, len(self.blocks), min(wanted, max(1, len(self.blocks))) + 1).round().astype(int)
        lengths = np.cumsum([0, *map(_length, self.blocks)])
        spans = pairwise(bounds.tolist())
        return [_Run(self.table, tuple(self.blocks[start:stop]), int(lengths[start])) for start, stop in spans]

    def n_tiles(self, size: int) -> int:
        """Number of blocks, whatever the size."""
        return len(self.blocks)

    def longest_tile(self, size: int) -> int:
        """Rows of the largest block, whatever the size."""
        return max(map(_length, self.blocks), default=0)


@dataclass(frozen=True, eq=False)
class _Run(Part):
    """Some blocks of a table."""

    table: ArrayTable
    blocks: tuple[Block, ...]
    first: int = 0  # rows in the blocks before

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_rows", sum(map(_length, self.blocks)))

    def tiles(self, size: int, scratch: Scratch) -> Iterator[Tile]:
        for block in self.blocks:
            rows, targets, weights = self.table.read(block)
            yield Tile(rows, targets, weights, scratch=scratch)

    def __reduce__(self) -> tuple[Any, ...]:
        bounds = np.cumsum([0, *map(_length, self.blocks)]).tolist()
        numbers = [np.arange(b.start, b.stop) if isinstance(b, slice) else b for b in self.blocks]
        index = np.concatenate([np.empty(0, dtype=np.intp), *numbers])
        table = self.table.subset(index)
        shipped = replace(table, rows=table.rows.part(0, len(index)))
        return _Run, (shipped, tuple(slice(start, stop) for start, stop in pairwise(bounds)), self.first)


@dataclass(frozen=True, eq=False)
class Spans(Table):
    """Numbers 0 to n without rows, in given spans: for passes over something else that can be cut up.

    A pass finds in ``tile.first`` and ``tile.n_rows`` which numbers are meant.
    """

    bounds: Sequence[int]

    def __post_init__(self) -> None:
        fields = {"n_rows": int(self.bounds[-1]), "n_features": 0, "n_outputs": 0, "dtype": np.dtype(np.float64)}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def parts(self) -> Sequence[Part]:
        """The spans."""
        return [_Numbers(int(start), int(stop) - int(start)) for start, stop in pairwise(self.bounds)]

    def n_tiles(self, size: int) -> int:
        """Number of spans, whatever the size."""
        return len(self.bounds) - 1


@dataclass(frozen=True, eq=False)
class _Numbers(Part):
    first: int
    n_rows: int

    def tiles(self, size: int, scratch: Scratch) -> Iterator[Tile]:
        yield Tile(np.empty((self.n_rows, 0)), np.empty((self.n_rows, 0)), first=self.first, scratch=scratch)


def partition_bounds(n_rows: int) -> list[int]:
    """Where the partitions of so many rows begin and end."""
    wanted = min(max(n_rows // _PARTITION_ROWS, _FEWEST_PARTITIONS), _MOST_PARTITIONS)
    number = max(1, min(wanted, n_rows // _FEWEST_ROWS))
    return [n_rows * i // number for i in range(number + 1)]


def as_table(rows: Any) -> Table:
    """Return the argument if it is a table, else a table of its rows alone."""
    return rows if isinstance(rows, Table) else ArrayTable(as_rows(rows))


def _length(block: Block) -> int:
    return int(block.stop - block.start) if isinstance(block, slice) else len(block)
