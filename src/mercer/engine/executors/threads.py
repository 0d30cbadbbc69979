"""A pool of threads, each with BLAS held to its share of the cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

from mercer.engine.executors.base import Task
from mercer.engine.progress import Progress

__all__ = ["Threads", "blas_threads", "effective_jobs"]

Result = TypeVar("Result")

_PATIENCE = 0.1  # seconds until Ctrl-C is heard at the latest


class Threads:
    """Run a task on spans of rows, one contiguous span per worker.

    Spans depend on the number of rows and workers only, and results come in their order: sums do not depend on timing.

    Parameters
    ----------
    n_jobs : int or None, default=None
        Number of threads; None for what joblib's ``parallel_config`` says, else as many as BLAS may use; -1 for all.
    verbose : int, default=0
        1 shows progress.
    """

    shares_memory = True

    def __init__(self, n_jobs: int | None = None, *, verbose: int = 0) -> None:
        self.n_jobs = effective_jobs(n_jobs)
        self.verbose = verbose

    def run(
        self, task: Task[Result], n_rows: int, *, tile: int, workers: int | None = None, name: str = "rows"
    ) -> list[Result]:
        """Call ``task(start, stop, tick)`` for each span and return the results in order; see ``Executor``."""
        progress = Progress(name, n_rows) if self.verbose else None
        n_tiles = -(-n_rows // tile) if n_rows else 0
        workers = max(1, min(workers or self.n_jobs, n_tiles))
        if n_tiles <= 1:  # too small to be worth a thread or a change of BLAS
            return [task(0, n_rows, progress.advance if progress else _no_tick)]
        bounds = np.linspace(0, n_tiles, workers + 1).round().astype(int) * tile
        spans = [(int(a), min(int(b), n_rows)) for a, b in pairwise(bounds)]
        with blas_threads(max(1, self.n_jobs // workers)):
            return _run_spans(task, spans, progress)


def _run_spans(task: Task[Result], spans: list[tuple[int, int]], progress: Progress | None) -> list[Result]:
    stop = threading.Event()

    def tick(rows: int) -> None:
        if stop.is_set():
            raise _StoppedError
        if progress is not None:
            progress.advance(rows)

    def guarded(start: int, end: int) -> Result:
        try:
            return task(start, end, tick)
        except BaseException:
            stop.set()
            raise

    if len(spans) == 1:
        return [guarded(*spans[0])]
    with ThreadPoolExecutor(len(spans), thread_name_prefix="mercer") as pool:
        try:
            futures = [pool.submit(guarded, start, end) for start, end in spans]
            pending = set(futures)
            while pending:  # in short waits: handlers of other libraries may keep a signal from ending a long one
                _, pending = wait(pending, timeout=_PATIENCE)
        except BaseException:  # Ctrl-C arrives in the waiting thread
            stop.set()
            raise
    failures = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(failures, key=lambda error: isinstance(error, _StoppedError)):
        raise error
    return [future.result() for future in futures]


class _StoppedError(Exception):
    """Another worker has failed; this one stops."""


def _no_tick(rows: int) -> None:
    """Count nothing."""


@cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  loads SciPy's own BLAS, lest the controller miss it

    return ThreadpoolController()


def effective_jobs(n_jobs: int | None) -> int:
    """Number of threads for ``n_jobs``, by scikit-learn's conventions but for None; see ``Threads``."""
    if n_jobs is None:
        _, configured = get_active_backend()
        if configured is not None:
            return int(joblib.effective_n_jobs(configured))
        with _lock:
            return _free_threads if _holders else _blas_pool()
    if n_jobs == 0:
        msg = "n_jobs must not be 0: None for the default, -1 for all cores, or a number of threads."
        raise ValueError(msg)
    return max(1, n_jobs if n_jobs > 0 else int(joblib.cpu_count()) + 1 + n_jobs)


def _blas_pool() -> int:
    pools = [pool["num_threads"] for pool in _controller().select(user_api="blas").info()]
    return int(max(pools, default=joblib.cpu_count()))


_lock = threading.Lock()
_holders = 0
_free_threads = 1  # what BLAS may use when nobody holds it
_limiter: Any = None


@contextmanager
def blas_threads(number: int) -> Iterator[None]:
    """Hold BLAS to a number of threads per calling thread, and restore what was set before.

    BLAS has one setting per process: when several fits run at once, the first sets it and the last restores it.
    """
    global _holders, _limiter, _free_threads  # noqa: PLW0603  they mirror a global of the process
    with _lock:
        if _holders == 0:
            _free_threads = _blas_pool()
            _limiter = _controller().limit(limits=number, user_api="blas")
            _limiter.__enter__()
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                _take_control()
                _limiter.__exit__(None, None, None)


def _take_control() -> None:
    """Let this thread restore what another one set: some BLAS libraries obey only the thread that spoke last."""
    for library in _controller().select(user_api="blas").lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)
