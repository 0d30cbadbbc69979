"""One row after the other, for learners to which the order matters."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from mercer.engine.checkpoint import Record, record_of
from mercer.engine.executors.crew import Crew, Tick
from mercer.engine.executors.threads import Threads, make_plan, working_memory_bytes
from mercer.engine.passes import Pass, Result, State, Tile
from mercer.engine.table import Table


class Sequence(Threads):
    """Give a pass all rows in their order, in the calling thread.

    Parameters
    ----------
    verbose : int, default=0
        1 shows progress on a terminal, 2 elsewhere, too.
    """

    def __init__(self, *, verbose: int = 0) -> None:
        super().__init__(1, verbose=verbose)

    def reduce(self, work: Pass[State, Result], table: Table) -> Result:
        """One state sees all tiles in turn; nothing is merged."""
        record = record_of(work, table)
        done = 0 if record is None else record.n_done
        with record or nullcontext(), self._progress(work, table, done) as tick:
            work.prepare()
            if record is None:
                state = work.start()
                for tile in self._tiles(work, table):
                    work.add(state, tile)
                    tick(tile.n_rows)
            else:
                state = record.state if done else work.start()
                self._recorded(work, after(self._tiles(work, table), done), state, record, tick)
        return work.finish(state)

    def _tiles(self, work: Pass[Any, Any], table: Table) -> Iterator[Tile]:
        quarter = working_memory_bytes() // (32 * (table.n_features + table.n_outputs + 1))  # rows that take so much
        size, together = make_plan(work, table, 1).tile, min(work.rows_together, quarter)
        return table.tiles(max(size, together)) if table.is_array else gathered(table.tiles(size), together)

    def _recorded(
        self, work: Pass[State, Any], tiles: Iterator[Tile], state: State, record: Record, tick: Tick
    ) -> None:
        """Add the tiles on another thread, so that Ctrl-C comes between two of them and finds a state that is whole."""

        def do(_: None, tick: Tick) -> None:
            for tile in tiles:
                record.is_whole = False
                work.add(state, tile)
                record.keep(state, record.n_done + tile.n_rows, is_last=False)
                tick(tile.n_rows)
            record.keep(state, record.n_done, is_last=True)

        Crew(do, lambda _: None, [None], tick).run(1, ahead=1, hold=nullcontext())


def after(tiles: Iterator[Tile], n_rows: int) -> Iterator[Tile]:
    """The tiles without their first rows."""
    for tile in tiles:
        if n_rows < tile.n_rows:
            yield tile if n_rows <= 0 else _cut(tile, n_rows)
        n_rows -= min(n_rows, tile.n_rows)


def _cut(tile: Tile, n_rows: int) -> Tile:
    weights = None if tile.weights is None else tile.weights[n_rows:]
    return replace(
        tile, rows=tile.rows[n_rows:], targets=tile.targets[n_rows:], weights=weights, first=tile.first + n_rows
    )


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
