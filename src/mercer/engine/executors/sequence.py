"""One row after the other, for learners to which the order matters."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mercer.engine.executors.threads import Threads, make_plan, working_memory_bytes
from mercer.engine.passes import Pass, Result, State, Tile
from mercer.engine.table import Table


class Sequence(Threads):
    """Give a pass all rows in their order, in the calling thread.

    Parameters
    ----------
    verbose : int, default=0
        1 shows progress.
    """

    def __init__(self, *, verbose: int = 0) -> None:
        super().__init__(1, verbose=verbose)

    def reduce(self, work: Pass[State, Result], table: Table) -> Result:
        """One state sees all tiles in turn; nothing is merged."""
        tick = self._tick(work, table)
        work.prepare()
        state = work.start()
        quarter = working_memory_bytes() // (32 * (table.n_features + table.n_outputs + 1))  # rows that take so much
        size, together = make_plan(work, table, 1).tile, min(work.rows_together, quarter)
        tiles = table.tiles(max(size, together)) if table.is_array else gathered(table.tiles(size), together)
        for tile in tiles:
            work.add(state, tile)
            tick(tile.n_rows)
        return work.finish(state)


def gathered(tiles: Iterator[Tile], n_rows: int) -> Iterator[Tile]:
    """Join tiles as long as they have no more than so many rows."""
    waiting: list[Tile] = []
    for tile in tiles:
        if waiting and sum(one.n_rows for one in waiting) + tile.n_rows > n_rows:
            yield _joined(waiting)
            waiting = []
        waiting.append(tile)
    if waiting:
        yield _joined(waiting)


def _joined(tiles: list[Tile]) -> Tile:
    first = tiles[0]
    return replace(
        first,
        rows=np.concatenate([tile.rows for tile in tiles]),
        targets=np.concatenate([tile.targets for tile in tiles]),
        weights=None if first.weights is None else np.concatenate([tile.weights for tile in tiles]),
    )
