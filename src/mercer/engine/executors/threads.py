"""A pool of threads, each with BLAS held to its share of the cores."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

import joblib
import numpy as np
from joblib.parallel import get_active_backend

from mercer._typing import AnyArray
from mercer.engine.executors.blas import blas_threads, free_threads
from mercer.engine.executors.crew import Crew
from mercer.engine.executors.plan import Plan, make_plan
from mercer.engine.passes import Pass, RowPass
from mercer.engine.progress import Progress
from mercer.engine.table import Part, Table
from mercer.engine.tile import Scratch

__all__ = ["Threads", "effective_jobs"]

State = TypeVar("State")
Result = TypeVar("Result")
Tick = Callable[[int], None]


class Threads:
    """Run passes on threads of this process.

    Parameters
    ----------
    n_jobs : int or None, default=None
        Number of threads; None for what joblib's ``parallel_config`` says, else as many as BLAS may use; -1 for all.
    verbose : int, default=0
        1 shows progress.
    """

    def __init__(self, n_jobs: int | None = None, *, verbose: int = 0) -> None:
        self.n_jobs = effective_jobs(n_jobs)
        self.verbose = verbose

    def reduce(self, work: Pass[State, Result], table: Table) -> Result:
        """Sum over all rows: each partition on its own, merged in their order."""
        plan, parts = make_plan(work, table, self.n_jobs), table.parts()
        work.prepare()
        if not plan.is_merged:
            return self._sum_in_turn(work, parts, plan, self._tick(work.name, table))
        sums: list[Any] = []

        def do(number: int, tick: Tick) -> State:
            state = work.start()
            for tile in parts[number].tiles(plan.tile, Scratch()):
                work.add(state, tile)
                tick(tile.n_rows)
            return state

        def collect(state: State) -> None:
            sums[:] = [work.merge(sums[0], state)] if sums else [state]

        self._run(do, collect, len(parts), plan, self._tick(work.name, table))
        return work.finish(sums[0])

    def map(self, work: RowPass, table: Table) -> AnyArray:
        """Compute something of every row."""
        plan, parts = make_plan(work, table, self.n_jobs), table.parts()
        work.prepare()
        out = np.empty((table.n_rows, *work.shape), dtype=work.dtype)

        def do(number: int, tick: Tick) -> None:
            start = parts[number].first
            for tile in parts[number].tiles(plan.tile, Scratch()):
                work.apply(tile, out[start : start + tile.n_rows])
                start += tile.n_rows
                tick(tile.n_rows)

        self._run(do, lambda _: None, len(parts), plan, self._tick(work.name, table))
        return out

    def _run(
        self,
        do: Callable[[int, Tick], State],
        collect: Callable[[State], None],
        number: int,
        plan: Plan,
        tick: Tick,
    ) -> None:
        workers = min(plan.workers, number)
        if workers > 1:
            Crew(do, collect, number, tick).run(workers, ahead=plan.ahead, blas=max(1, self.n_jobs // workers))
            return
        # Nothing is changed, nor asked twice, where BLAS uses no more threads than it may anyway.
        with blas_threads(self.n_jobs) if self.n_jobs < free_threads() else nullcontext():
            for i in range(number):
                collect(do(i, tick))

    def _sum_in_turn(self, work: Pass[State, Result], parts: Any, plan: Plan, tick: Tick) -> Result:
        state, scratch = work.start(), Scratch()

        def do(number: int, tick: Tick) -> None:
            part: Part = parts[number]
            for tile in part.tiles(plan.tile, scratch):
                work.add(state, tile)
                tick(tile.n_rows)

        with blas_threads(self.n_jobs) if self.n_jobs < free_threads() else nullcontext():
            for i in range(len(parts)):
                do(i, tick)
        return work.finish(state)

    def _tick(self, name: str, table: Table) -> Tick:
        return Progress(name, table.n_rows).advance if self.verbose else _no_tick


def _no_tick(rows: int) -> None:
    """Count nothing."""


def effective_jobs(n_jobs: int | None) -> int:
    """Number of threads for ``n_jobs``, by scikit-learn's conventions but for None; see ``Threads``."""
    if n_jobs is None:
        _, configured = get_active_backend()
        return free_threads() if configured is None else int(joblib.effective_n_jobs(configured))
    if n_jobs == 0:
        msg = "n_jobs must not be 0: None for the default, -1 for all cores, or a number of threads."
        raise ValueError(msg)
    return max(1, n_jobs if n_jobs > 0 else int(joblib.cpu_count()) + 1 + n_jobs)
