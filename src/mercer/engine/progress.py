"""A line of progress for long work."""

import shutil
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

_SILENCE = 1.0  # seconds before the first line and between lines


class Progress:
    """Count rows from several threads and, once a second, say on standard error how far the work is.

    On a terminal it is one line, which is written again and cleared at the end. Elsewhere nothing is said unless
    ``verbose`` is 2 or more. ``total`` is None if nobody knows how many rows there are; ``before`` were done earlier.
    """

    def __init__(self, task: str, total: int | None, *, verbose: int = 1, before: int = 0) -> None:
        self._task, self._total, self._before = task, total, before
        self._done = before
        self._started = self._said = time.monotonic()
        self._lock = threading.Lock()
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._speaks = self._is_terminal or (verbose >= 2 and sys.stderr is not None)
        self._length = 0  # of the line on the terminal

    def __enter__(self) -> Callable[[int], None]:
        """Call what this returns with the number of rows that are done."""
        return self.advance

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Clear the line."""
        if self._length:
            self._write("\r" + " " * self._length + "\r")
            self._length = 0

    def advance(self, rows: int) -> None:
        """Count rows that are done."""
        with self._lock:
            self._done += rows
            now = time.monotonic()
            if self._speaks and now - self._said >= _SILENCE:
                self._said = now
                self._say(f"mercer: {self._line(now - self._started)}")

    def _line(self, elapsed: float) -> str:
        rate = (self._done - self._before) / elapsed
        done = f"{self._task}: {self._done:,}"
        if self._total is None:
            return f"{done} rows, {rate:,.0f} rows/s"
        left = f", {(self._total - self._done) / rate:,.0f} s left" if rate else ""
        return f"{done} of {self._total:,} rows, {rate:,.0f} rows/s{left}"

    def _say(self, line: str) -> None:
        if not self._is_terminal:
            self._write(line + "\n")
            return
        line = line[: shutil.get_terminal_size().columns - 1]  # a line that wraps could not be written again
        self._write("\r" + line.ljust(self._length))
        self._length = len(line)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
