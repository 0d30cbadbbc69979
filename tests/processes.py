"""An executor on spawned processes: nothing of the caller's is shared with its workers."""

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np

from mercer.engine import Scratch, blas_threads
from mercer.engine.executors.threads import make_plan

WORKERS = 2


@cache
def pool():
    return ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn"))


def _sum(work, part, tile):
    work.prepare()
    state = work.start()
    with blas_threads(1):  # as in all executors: a product that BLAS splits among threads differs in its last digits
        for piece in part.tiles(tile, Scratch()):
            work.add(state, piece)
    return state


def _apply(work, part, tile):
    work.prepare()
    out, start = np.empty((part.n_rows, *work.shape), dtype=work.dtype), 0
    with blas_threads(1):
        for piece in part.tiles(tile, Scratch()):
            work.apply(piece, out[start : start + piece.n_rows])
            start += piece.n_rows
    return out


class Processes:
    """Send every partition, with the pass, to a process; count what was sent."""

    def __init__(self, verbose=0):
        self.verbose = verbose
        self.sent, self.largest_part = 0, 0

    def reduce(self, work, table):
        total = None
        for state in self._run(_sum, work, table):
            total = state if total is None else work.merge(total, state)
        return work.finish(total)

    def map(self, work, table):
        return np.concatenate(self._run(_apply, work, table))

    def _run(self, function, work, table):
        tile = make_plan(work, table, WORKERS).tile
        parts = table.parts()
        self.sent += len(parts)
        self.largest_part = max(self.largest_part, *(len(pickle.dumps(part)) for part in parts))
        return list(pool().map(function, [work] * len(parts), parts, [tile] * len(parts)))
