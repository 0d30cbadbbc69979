"""Threads that work on pieces, and a caller who waits for them and may be interrupted at any moment.

``KeyboardInterrupt`` is raised in the main thread, between any two of its steps, and Python's own locks, conditions and
pools do not survive that at every moment. So the main thread takes no lock that others need: it starts one thread,
which does everything else, and waits for a lock that nobody waits for but itself.
"""

import _thread
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

Tick = Callable[[int], None]

_PATIENCE = 0.1  # seconds until Ctrl-C is heard at the latest: handlers of other libraries may not end a longer wait
_START = 1.0  # seconds until a thread that was started has begun, or never will


class _StoppedError(Exception):
    """Another worker has failed, or the caller was interrupted; this one stops."""


class Crew:
    """Call ``do(piece, tick)`` for all pieces on several threads, and ``collect(result)`` in the order of the pieces.

    A piece is handed out only if its result will not have to wait for many others, so that few results are kept.
    ``tick(rows)``, which ``do`` calls after each tile, raises to stop the work when another worker has failed or the
    caller was interrupted.
    """

    def __init__(self, do: Callable[[Any, Tick], Any], collect: Any, pieces: Sequence[Any], tick: Tick) -> None:
        self._do, self._collect, self._pieces, self._count = do, collect, pieces, tick
        self._turn = threading.Condition()  # of the workers; never touched by the caller
        self._handed_out = self._collected = 0
        self._results: dict[int, Any] = {}
        self._failures: dict[int, BaseException] = {}
        self._stopped = self._starting = self._begun = self._ended = False
        self._done = _thread.allocate_lock()

    def run(self, workers: int, *, ahead: int, hold: AbstractContextManager[None]) -> None:
        """Work on all pieces, of which ``ahead`` are in work or kept, while ``hold`` holds BLAS."""
        self._done.acquire()
        try:
            self._starting = True
            _thread.start_new_thread(self._lead, (workers, ahead, hold))
            while not self._done.acquire(timeout=_PATIENCE):
                pass
        except BaseException:
            self._stopped = True
            self._wait_for_end()
            raise
        for _, error in sorted(self._failures.items()):
            raise error

    def _wait_for_end(self) -> None:
        deadline = time.monotonic() + _START
        # If it begins later, it stops at once.
        while self._starting and not self._begun and time.monotonic() < deadline:
            time.sleep(0.001)
        while self._begun and not self._ended:  # the lock may have been taken just before the interruption
            time.sleep(0.001)

    def _lead(self, workers: int, ahead: int, hold: AbstractContextManager[None]) -> None:
        self._begun = True
        try:
            with hold:
                self._work_together(workers, ahead)
        except BaseException as error:
            self._failures.setdefault(len(self._pieces), error)
        finally:
            self._ended = True
            self._done.release()

    def _work_together(self, workers: int, ahead: int) -> None:
        others = [threading.Thread(target=self._work, args=(ahead,), name="mercer") for _ in range(workers - 1)]
        try:
            for other in others:
                other.start()
            self._work(ahead)
        finally:
            for other in others:
                if other.ident is not None:
                    other.join()

    def _work(self, ahead: int) -> None:
        while (number := self._next(ahead)) is not None:
            try:
                self._deliver(number, self._do(self._pieces[number], self._tick))
            except BaseException as error:
                self._fail(number, error)

    def _next(self, ahead: int) -> int | None:
        with self._turn:
            while not self._stopped and self._collected + ahead <= self._handed_out < len(self._pieces):
                self._turn.wait(_PATIENCE)
            if self._stopped or self._handed_out == len(self._pieces):
                return None
            self._handed_out += 1
            return self._handed_out - 1

    def _deliver(self, number: int, result: Any) -> None:
        with self._turn:
            self._results[number] = result
            while self._collected in self._results:
                self._collect(self._results.pop(self._collected))
                self._collected += 1
            self._turn.notify_all()

    def _fail(self, number: int, error: BaseException) -> None:
        with self._turn:
            self._stopped = True
            if not isinstance(error, _StoppedError):
                self._failures[number] = error
            self._turn.notify_all()

    def _tick(self, rows: int) -> None:
        if self._stopped:
            raise _StoppedError
        self._count(rows)
