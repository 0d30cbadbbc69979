"""A line of progress for long work."""

import sys
import threading
import time

_SILENCE = 1.0  # seconds before the first line and between lines


class Progress:
    """Count rows from several threads and, once a second, say on standard error how far the work is."""

    def __init__(self, task: str, total: int) -> None:
        self._task, self._total = task, total
        self._done = 0
        self._started = self._said = time.monotonic()
        self._lock = threading.Lock()

    def advance(self, rows: int) -> None:
        """Count rows that are done."""
        with self._lock:
            self._done += rows
            now = time.monotonic()
            if now - self._said >= _SILENCE:
                self._said = now
                share = self._done / max(1, self._total)
                elapsed = now - self._started
                left = elapsed * (1 - share) / share if share else float("inf")
                line = f"{self._task}: {self._done:,} of {self._total:,} rows, {elapsed:.0f} s, {left:.0f} s left"
                print(f"mercer: {line}", file=sys.stderr, flush=True)
