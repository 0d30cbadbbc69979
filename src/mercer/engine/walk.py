"""The loop over rows: tiles in, results out. Every pass over the data goes through one of these functions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine.executors.base import Executor, Tick
from mercer.engine.rows import Rows

__all__ = ["ArraySum", "Block", "Mergeable", "map_rows", "reduce_blocks", "reduce_rows"]

# Rows that belong together: next to each other, or anywhere.
Block = slice | IntArray


class Mergeable(Protocol):
    """What a reduction makes: results of two spans can be joined."""

    def merge_in_place(self, other: Self) -> None:
        """Take in the other's share."""


@dataclass
class ArraySum:
    """An array that adds up."""

    value: FloatArray

    def merge_in_place(self, other: Self) -> None:
        """Add the other's array to one's own."""
        self.value += other.value


Partial = TypeVar("Partial", bound=Mergeable)


def map_rows(
    rows: Rows,
    executor: Executor,
    *,
    tile: int,
    prepare: Callable[[], Callable[[FloatArray, Any], None]],
    out: AnyArray,
    name: str,
) -> None:
    """Compute something of every row: fill ``out``, whose first axis runs over the rows.

    ``prepare`` is called once per worker and returns ``function(tile, target)``, which fills the target, the part of
    the result that belongs to the tile, with buffers of that worker's own.
    """

    def task(first: int, last: int, tick: Tick) -> AnyArray:
        function = prepare()
        span = out[first:last] if executor.shares_memory else np.empty_like(out[first:last])
        for start, stop, block in rows.tiles(first, last, tile):
            function(block, span[start - first : stop - first])
            tick(stop - start)
        return span

    spans = executor.run(task, rows.n_rows, tile=tile, name=name)
    if not executor.shares_memory:
        np.concatenate(spans, out=out)


def reduce_rows(
    rows: Rows,
    executor: Executor,
    *,
    tile: int,
    workers: int,
    prepare: Callable[[], tuple[Partial, Callable[[FloatArray, int, int], None]]],
    name: str,
) -> Partial:
    """Sum over all tiles.

    ``prepare`` is called once per worker and returns an empty result with the function ``add(tile, start, stop)`` that
    adds a tile to it.
    """

    def task(first: int, last: int, tick: Tick) -> Partial:
        partial, add = prepare()
        for start, stop, block in rows.tiles(first, last, tile):
            add(block, start, stop)
            tick(stop - start)
        return partial

    total, *others = executor.run(task, rows.n_rows, tile=tile, workers=workers, name=name)
    for other in others:
        total.merge_in_place(other)
    return total


def reduce_blocks(
    rows: Rows,
    blocks: Sequence[Block],
    executor: Executor,
    *,
    workers: int,
    prepare: Callable[[], tuple[Partial, Callable[[FloatArray, Block], None]]],
    name: str,
) -> Partial:
    """Sum over blocks of rows that must be seen together, wherever they are.

    ``prepare`` is called once per worker and returns an empty result with the function ``add(rows, block)`` that adds a
    block to it.
    """

    def task(first: int, last: int, tick: Tick) -> Partial:
        partial, add = prepare()
        for block in blocks[first:last]:
            add(rows.read(block.start, block.stop) if isinstance(block, slice) else rows.take(block), block)
            tick(1)
        return partial

    total, *others = executor.run(task, len(blocks), tile=1, workers=workers, name=name)
    for other in others:
        total.merge_in_place(other)
    return total
