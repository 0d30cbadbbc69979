"""How a pass over a table is cut up: the size of tiles, and how many workers memory allows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from sklearn import get_config

from mercer.engine.passes import Pass, RowPass
from mercer.engine.table import Table

__all__ = ["Plan", "make_plan", "working_memory_bytes"]

_NUMBER = 8  # bytes


def _tile_bytes() -> int:
    """Four times the second-level cache of a core, between 1 and 4 MB; 2 MB where its size is not known.

    A tile of kernel values stays in the caches between the product that makes it and the ones that use it. Measured on
    two cores with 0.5 MB of L2 each and a shared L3, times are flat between 1 and 8 MB.
    """
    try:
        cache = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (AttributeError, OSError, ValueError):  # not known on every system
        cache = 0
    return min(max(4 * cache, 1 << 20), 4 << 20) if cache > 0 else 2 << 20


TILE_BYTES = _tile_bytes()
MOST_ROWS = 4096
_TINY = 4096  # numbers
_PIECE_BYTES = 1 << 21  # of tiles: a millisecond of work, twice as long as threads take to start


@dataclass(frozen=True)
class Plan:
    """How to walk a table.

    Attributes
    ----------
    tile : int
        Rows of a tile. It does not depend on the number of workers, nor do results.
    workers : int
        How many work at once.
    ahead : int
        How many sums of partitions may be in work, or wait for those before them.
    blas : int
        Threads of BLAS for each worker.
    is_merged : bool
        Whether each partition is summed on its own. If not even two sums fit into memory, one takes all rows in turn.
    is_tiny : bool
        Whether holding BLAS would take longer than the work, for which BLAS starts no threads anyway.
    """

    tile: int
    workers: int
    ahead: int
    blas: int
    is_merged: bool
    is_tiny: bool


def make_plan(work: Pass[Any, Any] | RowPass, table: Table, n_jobs: int) -> Plan:
    """Decide on tiles and workers within scikit-learn's ``working_memory``."""
    memory = working_memory_bytes()
    tile = _tile_rows(work, memory)
    state = _NUMBER * getattr(work, "state_numbers", 0)
    share = state + _NUMBER * work.tile_numbers(table.longest_tile(tile))
    is_merged = 2 * state <= memory
    # The merged sum is one more than the workers have.
    affordable = (memory - state) // max(1, share) if is_merged else 1
    worth = table.n_tiles(max(1, _PIECE_BYTES // max(1, _NUMBER * work.width)))
    workers = max(1, min(n_jobs, worth, affordable))
    is_tiny = table.n_rows * work.width < _TINY
    # BLAS splits a product by its threads, which shows in the last digits: it has more than one only where there is no
    # memory for more workers, or where all rows are one block, which leaves nothing for other workers to do.
    short = workers >= affordable or (table.has_given_tiles and worth == 1)
    blas = n_jobs // workers if short else 1
    return Plan(tile, workers, max(workers, min(2 * workers, affordable)), max(1, blas), is_merged, is_tiny)


def working_memory_bytes() -> int:
    """scikit-learn's ``working_memory`` setting, in bytes."""
    return int(get_config()["working_memory"] * (1 << 20))


def _tile_rows(work: Pass[Any, Any] | RowPass, memory: int) -> int:
    row_bytes = max(1, _NUMBER * work.width)
    in_cache = work.rows_at_once or min(max(TILE_BYTES // row_bytes, work.fewest), MOST_ROWS)
    return max(1, min(in_cache, memory // (2 * row_bytes)))
