"""One row after the other, for learners to which the order matters."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from mercer._typing import AnyArray
from mercer.engine.executors.plan import make_plan
from mercer.engine.passes import Pass, RowPass
from mercer.engine.progress import Progress
from mercer.engine.table import Table

__all__ = ["Sequence"]

State = TypeVar("State")
Result = TypeVar("Result")


class Sequence:
    """Give a pass all rows in their order, in the calling thread.

    Parameters
    ----------
    verbose : int, default=0
        1 shows progress.
    """

    def __init__(self, *, verbose: int = 0) -> None:
        self.verbose = verbose

    def reduce(self, work: Pass[State, Result], table: Table) -> Result:
        """One state sees all tiles in turn; nothing is merged."""
        progress = Progress(work.name, table.n_rows) if self.verbose else None
        work.prepare()
        state = work.start()
        for tile in table.tiles(make_plan(work, table, 1).tile):
            work.add(state, tile)
            if progress is not None:
                progress.advance(tile.n_rows)
        return work.finish(state)

    def map(self, work: RowPass, table: Table) -> AnyArray:
        """One tile after the other."""
        work.prepare()
        out, start = np.empty((table.n_rows, *work.shape), dtype=work.dtype), 0
        for tile in table.tiles(make_plan(work, table, 1).tile):
            work.apply(tile, out[start : start + tile.n_rows])
            start += tile.n_rows
        return out
