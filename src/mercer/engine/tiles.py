"""How large a tile is."""

import os

from sklearn import get_config

__all__ = ["accumulator_workers", "tile_rows", "working_memory_bytes"]


def _tile_bytes() -> int:
    """Four times the second-level cache of a core, between 1 and 4 MB; 2 MB where its size is not known.

    A tile of kernel values stays in the caches between the product that makes it and the ones that use it. Measured on
    two cores with 0.5 MB of L2 each and a shared L3, times are flat between 1 and 8 MB.
    """
    try:
        cache = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (AttributeError, OSError, ValueError):  # not every system tells
        cache = 0
    return min(max(4 * cache, 1 << 20), 4 << 20) if cache > 0 else 2 << 20


TILE_BYTES = _tile_bytes()
FEWEST_ROWS, MOST_ROWS = 16, 4096


def working_memory_bytes() -> int:
    """scikit-learn's ``working_memory`` setting, in bytes."""
    return int(get_config()["working_memory"] * (1 << 20))


def tile_rows(n_columns: int, *, itemsize: int = 8, workers: int = 1, fewest: int = FEWEST_ROWS) -> int:
    """Rows of a tile that is this wide: what the cache holds, within the working memory of all workers.

    ``fewest`` asks for more rows than the cache holds, where each tile pays a fixed price (a pass over an accumulator).
    """
    row_bytes = max(1, n_columns * itemsize)
    in_cache = min(max(TILE_BYTES // row_bytes, fewest), MOST_ROWS)
    in_memory = working_memory_bytes() // (row_bytes * workers)
    return max(1, min(in_cache, in_memory))


def accumulator_workers(n_jobs: int, accumulator_bytes: int) -> int:
    """How many workers may have an accumulator of their own within the working memory."""
    return max(1, min(n_jobs, working_memory_bytes() // max(1, accumulator_bytes)))
