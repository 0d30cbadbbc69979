"""What is compiled, how long it takes, and the line that says so to a waiting user."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

__all__ = ["CompileLog", "Compiled"]

_PATIENCE = 2.0  # seconds of compiling after which a line is printed
_ONCE = "mercer: compiling for this machine, once (`python -m mercer warmup` does it ahead of use)"
_ALWAYS = "mercer: compiling, again in every process: no cache folder is writable (set NUMBA_CACHE_DIR to one that is)"


class Compiled(NamedTuple):
    """A function that was compiled, and the seconds that it took, with the functions that it calls."""

    name: str
    seconds: float


class CompileLog:
    """Compilations of this process.

    When they have taken two seconds in all, one line on standard error says so, once in a process. A timer writes it,
    since a single function may take longer. Calls come from any thread; Numba compiles one function at a time, in which
    others may be nested.
    """

    def __init__(self) -> None:
        self.compiled: list[Compiled] = []
        self._depth, self._started = 0, 0.0
        self._told, self._timer = False, threading.Timer(0.0, self._tell)  # never started

    def begin(self, *, is_kept: bool) -> None:
        """Note that a compilation begins; ``is_kept``: its result will be on disk."""
        self._depth += 1
        if self._depth > 1:
            return
        self._started = time.perf_counter()
        if not self._told:
            spent = sum(compiled.seconds for compiled in self.compiled)
            self._timer = threading.Timer(max(_PATIENCE - spent, 0.0), self._tell, (_ONCE if is_kept else _ALWAYS,))
            self._timer.daemon = True
            self._timer.start()

    def end(self, name: str) -> None:
        """Note that the compilation of a function has ended."""
        self._depth -= 1
        if self._depth == 0:
            self._timer.cancel()
            self.compiled.append(Compiled(name, time.perf_counter() - self._started))

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Print no line: the user has asked for it."""
        told, self._told = self._told, True
        try:
            yield
        finally:
            self._told = told

    def _tell(self, line: str = "") -> None:
        if not self._told and sys.stderr is not None:
            print(line, file=sys.stderr, flush=True)
        self._told = True
