"""Passes on threads of this process, each with BLAS held to its share of the cores.

In three parts: how many threads BLAS uses, which is one setting for the whole process; the plan, which decides on tiles
and workers; and the executor.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakSet

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from sklearn import get_config
from threadpoolctl import ThreadpoolController

from mercer._typing import AnyArray
from mercer.engine.checkpoint import Record, record_of
from mercer.engine.executors.crew import Crew, Tick
from mercer.engine.passes import Pass, Result, RowPass, Scratch, State
from mercer.engine.progress import Progress
from mercer.engine.table import Part, Table

# ------------------------------------------------------------------------------------------- threads of BLAS

# A signal may raise KeyboardInterrupt between any two steps. So a hold is an object that counts as long as it is alive,
# every step can be taken twice, and letting go is tried again if it is interrupted.


class _Hold:
    """Somebody holds BLAS to few threads, as long as this lives."""


_lock = threading.Lock()
_holds: WeakSet[_Hold] = WeakSet()
_free: list[int] = []  # threads of each library when nobody holds them


def _let_go_of_all() -> None:
    """Undo in a forked process what threads of the parent hold, which do not exist there."""
    global _lock, _holds
    held, _lock, _holds = len(_holds) > 0, threading.Lock(), WeakSet()
    if held:
        _set(_free)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_of_all)


@contextmanager
def blas_threads(number: int) -> Iterator[None]:
    """Hold BLAS to a number of threads per calling thread, and restore what was set before.

    When several fits run at once, the first sets the number and the last restores what was before.
    """
    global _free  # noqa: PLW0603  it mirrors a global of the process
    hold = _Hold()
    try:
        with _lock:
            first = not len(_holds)
            if first:
                _free = [library.get_num_threads() for library in _libraries()]
            _holds.add(hold)
            if first:
                _set([number] * len(_free))
        yield
    finally:
        _release(hold)


def _release(hold: _Hold) -> None:
    interruption: KeyboardInterrupt | None = None
    while hold in _holds:
        try:
            with _lock:
                if len(_holds) == 1:
                    _set(_free)
                _holds.discard(hold)
        except KeyboardInterrupt as error:
            interruption = error
    if interruption is not None:
        raise interruption


def _set(numbers: list[int]) -> None:
    for library, number in zip(_libraries(), numbers, strict=True):
        if library.get_num_threads() != number:
            if hasattr(library, "clear_controlling_thread"):  # else only the thread that spoke last is obeyed
                library.clear_controlling_thread(force=True)
            library.set_num_threads(number)
            if hasattr(library, "clear_controlling_thread"):
                library.clear_controlling_thread(force=True)


@cache
def _libraries() -> list[Any]:
    import scipy.linalg  # noqa: F401  loads SciPy's own BLAS, which the controller would miss otherwise

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


# -------------------------------------------------------------------------------------------------- the plan

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


class Plan(NamedTuple):
    """How to walk a table."""

    tile: int  # rows of a tile. It does not depend on the number of workers, nor do results.
    workers: int  # how many work at once
    ahead: int  # how many sums of partitions may be in work, or wait for those before them
    blas: int  # threads of BLAS for each worker
    # Whether each partition is summed on its own. If not even two sums fit into memory, one takes all rows in turn.
    is_merged: bool
    is_tiny: bool  # whether holding BLAS would take longer than the work, for which BLAS starts no threads anyway


def make_plan(work: Pass[Any, Any] | RowPass, table: Table, n_jobs: int) -> Plan:
    """Decide on tiles and workers within scikit-learn's ``working_memory``."""
    memory, row_bytes = working_memory_bytes(), max(1, _NUMBER * work.width)
    in_cache = work.rows_at_once or min(max(TILE_BYTES // row_bytes, work.fewest), MOST_ROWS)
    tile = max(1, min(in_cache, memory // (2 * row_bytes)))
    state = _NUMBER * getattr(work, "state_numbers", 0)
    share = state + _NUMBER * work.tile_numbers(table.longest_tile(tile))
    is_merged = 2 * state <= memory
    # The merged sum is one more than the workers have.
    affordable = (memory - state) // max(1, share) if is_merged else 1
    worth = table.n_tiles(max(1, _PIECE_BYTES // row_bytes))
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


# ---------------------------------------------------------------------------------------------- the executor

_NOTHING: nullcontext[Any] = nullcontext()


def _ignore(_: None) -> None:
    """Values of rows are collected where they are."""


def _nothing() -> None:
    """What is collected of them."""


_SILENCE: nullcontext[Tick] = nullcontext(lambda _: None)


class Threads:
    """Run passes on threads of this process.

    Parameters
    ----------
    n_jobs : int or None, default=None
        Number of threads; None for what joblib's ``parallel_config`` says, else as many as BLAS may use; -1 for all.
    verbose : int, default=0
        1 shows progress on a terminal, 2 elsewhere, too.
    """

    def __init__(self, n_jobs: int | None = None, *, verbose: int = 0) -> None:
        self.n_jobs = effective_jobs(n_jobs)
        self.verbose = verbose

    def reduce(self, work: Pass[State, Result], table: Table) -> Result:
        """Sum over all rows: each partition on its own, merged in their order."""
        plan, record = make_plan(work, table, self.n_jobs), record_of(work, table)
        sums: list[Any] = [] if record is None or not record.n_done else [record.state]
        only = None  # the one state, where there is no memory for two
        if not plan.is_merged:
            only = sums[0] if sums else work.start()

        def do(part: Part, tick: Tick) -> State:
            state = work.start() if only is None else only
            for tile in part.tiles(plan.tile, Scratch()):
                work.add(state, tile)
                tick(tile.n_rows)
            return state

        def merge(state: State) -> None:
            sums[:] = [state] if not sums or state is only else [work.merge(sums[0], state)]

        is_apart = plan.is_merged
        collect = merge if record is None else record.following(merge, lambda: sums[0], is_apart=is_apart)
        self._run(work, table, plan, do, collect, record)
        return work.finish(sums[0])

    def map(self, work: RowPass, table: Table) -> AnyArray:
        """Compute something of every row."""
        plan, record = make_plan(work, table, self.n_jobs), record_of(work, table)
        out = np.empty((table.n_rows, *work.shape), dtype=work.dtype)

        def do(part: Part, tick: Tick) -> None:
            start = part.first
            for tile in part.tiles(plan.tile, Scratch()):
                work.apply(tile, out[start : start + tile.n_rows])
                start += tile.n_rows
                tick(tile.n_rows)

        if record is not None:
            record.restore(out)
        self._run(work, table, plan, do, _ignore if record is None else record.following(_ignore, _nothing), record)
        return out

    def _run(
        self, work: Any, table: Table, plan: Plan, do: Callable[[Part, Tick], Any], collect: Any, record: Record | None
    ) -> None:
        """Do every partition that is not done, and collect the results in their order."""
        done = 0 if record is None else record.n_done
        parts = table.parts()
        before, parts = sum(part.n_rows for part in parts[:done]), parts[done:]
        with record or _NOTHING, self._progress(work, table, before) as tick:
            work.prepare()
            workers = min(plan.workers, len(parts))
            if workers > 1 or record is not None:  # Ctrl-C then comes between tiles, and finds sums that are whole
                Crew(do, collect, parts, tick).run(max(1, workers), ahead=plan.ahead, hold=blas_threads(plan.blas))
                return
            with _NOTHING if plan.is_tiny else blas_threads(plan.blas):
                for part in parts:
                    collect(do(part, tick))

    def _progress(self, work: Any, table: Table, before: int) -> AbstractContextManager[Tick]:
        if self.verbose:
            return Progress(work.name, table.n_rows, verbose=self.verbose, before=before)
        return _SILENCE


def effective_jobs(n_jobs: int | None) -> int:
    """Number of threads for ``n_jobs``, by scikit-learn's conventions but for None; see ``Threads``."""
    if n_jobs is None:
        _, configured = get_active_backend()
        if configured is not None:
            return int(joblib.effective_n_jobs(configured))
        free = _free if len(_holds) else [library.get_num_threads() for library in _libraries()]
        return max(free) if free else int(joblib.cpu_count())  # which reads files
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: None for the default, -1 for all cores, or a number of threads.")
    return max(1, n_jobs if n_jobs > 0 else int(joblib.cpu_count()) + 1 + n_jobs)
