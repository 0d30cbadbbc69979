"""The only code that touches all rows: tiles of bounded memory in, reductions out.

Where rows live (``rows``) and who works on them (``executors``) are independent of each other and of what is computed
(``statistics``, ``products``).
"""

from mercer.engine.executors.base import Executor
from mercer.engine.executors.threads import Threads
from mercer.engine.features import Features
from mercer.engine.products import (
    gram_matrix,
    gram_times,
    kernel_diagonal,
    kernel_matrix,
    kernel_times,
    transposed_times,
)
from mercer.engine.rows import ArrayRows, Rows, as_rows
from mercer.engine.statistics import NormalStatistics, normal_statistics
from mercer.engine.tiles import tile_rows
from mercer.engine.walk import map_rows, reduce_rows

__all__ = [
    "ArrayRows",
    "Executor",
    "Features",
    "NormalStatistics",
    "Rows",
    "Threads",
    "as_rows",
    "gram_matrix",
    "gram_times",
    "kernel_diagonal",
    "kernel_matrix",
    "kernel_times",
    "map_rows",
    "normal_statistics",
    "reduce_rows",
    "tile_rows",
    "transposed_times",
]
