"""The loop over rows: tiles in, results out. Every pass over the data goes through one of these two functions."""

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

from mercer._typing import FloatArray
from mercer.engine.executors.threads import Threads, Tick
from mercer.engine.rows import Rows
from mercer.engine.tiles import tiles

__all__ = ["Mergeable", "map_rows", "reduce_rows"]


class Mergeable(Protocol):
    """What a reduction makes: results of two spans can be joined."""

    def merge_in_place(self, other: Self) -> None:
        """Take in the other's share."""


Partial = TypeVar("Partial", bound=Mergeable)


def map_rows(
    rows: Rows,
    executor: Threads,
    *,
    tile: int,
    prepare: Callable[[], Callable[[FloatArray, int, int], None]],
    name: str,
) -> None:
    """Call a function on every tile; it keeps what it finds in arrays of its own, at start..stop.

    ``prepare`` is called once per worker and returns ``function(tile, start, stop)`` with that worker's buffers.
    """

    def task(first: int, last: int, tick: Tick) -> None:
        function = prepare()
        for start, stop in tiles(first, last, tile):
            function(rows.read(start, stop), start, stop)
            tick(stop - start)

    executor.run(task, rows.n_rows, tile=tile, name=name)


def reduce_rows(
    rows: Rows,
    executor: Threads,
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
        for start, stop in tiles(first, last, tile):
            add(rows.read(start, stop), start, stop)
            tick(stop - start)
        return partial

    total, *others = executor.run(task, rows.n_rows, tile=tile, workers=workers, name=name)
    for other in others:
        total.merge_in_place(other)
    return total
