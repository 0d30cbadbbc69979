"""Tables of given blocks: rows to be seen together, or numbers without rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np

from mercer._typing import IntArray
from mercer.engine.passes import Scratch, Tile
from mercer.engine.rows import Block, partition_bounds
from mercer.engine.source import SourceRows
from mercer.engine.table import ArrayTable, Part, Table


@dataclass(eq=False)
class BlockTable(Table):
    """A table whose tiles are given blocks of rows, wherever they are, to be seen together."""

    table: ArrayTable
    blocks: Sequence[Block]

    has_given_tiles = True

    def __post_init__(self) -> None:
        table, self.n_rows = self.table, sum(map(_length, self.blocks))
        self.n_features, self.n_outputs = table.n_features, table.n_outputs

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


@dataclass(eq=False)
class _Run(Part):
    """Some blocks of a table."""

    table: ArrayTable
    blocks: tuple[Block, ...]
    first: int = 0  # rows in the blocks before

    def __post_init__(self) -> None:
        self.n_rows = sum(map(_length, self.blocks))

    def tiles(self, size: int, scratch: Scratch) -> Iterator[Tile]:
        source, blocks = self.table.rows, self.blocks
        if isinstance(source, SourceRows) and _follow_each_other(blocks):  # which are read in one stream
            for tile in self.table.span(blocks[0].start, blocks[-1].stop, _length(blocks[0]), scratch, 0):
                yield replace(tile, first=0)
            return
        for block in blocks:
            rows = source.read(block.start, block.stop) if isinstance(block, slice) else source.take(block)
            yield self.table.tile(block, rows, scratch)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Those of the rows of all blocks."""
        return self.table.inputs(self._index)

    def put(self, inputs: Sequence[Any]) -> None:
        """Hand them on."""
        self.table.rows.put(inputs)

    @property
    def _index(self) -> IntArray:
        numbers = [np.arange(b.start, b.stop) if isinstance(b, slice) else b for b in self.blocks]
        return np.concatenate([np.empty(0, dtype=np.intp), *numbers])

    def __reduce__(self) -> tuple[Any, ...]:
        bounds = np.cumsum([0, *map(_length, self.blocks)]).tolist()
        spans = tuple(slice(*span) for span in pairwise(bounds))
        return _Run, (self.table.shipped(self._index), spans, self.first)


@dataclass(eq=False)
class Spans(Table):
    """Numbers 0 to n without rows, in given spans: for passes over something else that can be cut up.

    A pass finds in ``tile.first`` and ``tile.n_rows`` which numbers are meant.
    """

    bounds: Sequence[int]

    def __post_init__(self) -> None:
        self.n_rows, self.n_features, self.n_outputs = int(self.bounds[-1]), 0, 0

    def parts(self) -> Sequence[Part]:
        """The spans."""
        return [_Numbers(int(start), int(stop) - int(start)) for start, stop in pairwise(self.bounds)]

    def n_tiles(self, size: int) -> int:
        """Number of spans, whatever the size."""
        return len(self.bounds) - 1


@dataclass(eq=False)
class _Numbers(Part):
    first: int
    n_rows: int

    def tiles(self, size: int, scratch: Scratch) -> Iterator[Tile]:
        yield Tile(np.empty((self.n_rows, 0)), np.empty((self.n_rows, 0)), first=self.first, scratch=scratch)


def _follow_each_other(blocks: Sequence[Block]) -> TypeGuard[Sequence[slice]]:
    """Whether these are slices of one size, but for the last, each where the one before it ends."""
    if not blocks or not all(isinstance(block, slice) for block in blocks):
        return False
    size, last = _length(blocks[0]), _length(blocks[-1])
    return last <= size and all(
        one.stop == next_one.start and _length(one) == size  # type: ignore[union-attr]
        for one, next_one in pairwise(blocks)
    )


def _length(block: Block) -> int:
    return int(block.stop - block.start) if isinstance(block, slice) else len(block)
