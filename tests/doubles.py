"""Test doubles that several suites share."""

import sys
import threading
from typing import Any, NoReturn

import numpy as np

from mercer.engine import Rows

# Who may look at rows: the engine reads all of them, a tile at a time; a few modules take a bounded number.
READERS = ("mercer.engine",)
TAKERS = (
    "mercer.engine",
    "mercer.basis",
    "mercer.model.calibration",  # a sample that is left out
    "mercer.methods.frame",  # a sample for the median distance
    "mercer.methods.exact",  # its model is made of all rows
    "mercer.methods.compact",
    "mercer.methods.reduced_rank",  # its model is made of all rows
    "mercer.methods.committee",  # queries, a batch at a time, and samples for k-means
)


class GuardedRows(Rows):
    """Rows that fail the test when they are read as no source larger than memory could be.

    A breach is an ``AssertionError``: reading from outside the engine, reading or taking more rows at once than is
    allowed, or asking for all rows as an array.

    Parameters
    ----------
    array : array (n, d)
    longest_read : int or None
        Most rows of one ``read``; None for no limit.
    longest_take : int or None
        Most rows of one ``take``; None for no limit.

    Attributes
    ----------
    largest_read, largest_take : int
        Most rows that one call asked for.
    rows_read, rows_taken : int
        Rows that all calls together asked for.
    """

    def __init__(self, array: Any, *, longest_read: int | None = None, longest_take: int | None = None) -> None:
        array = np.asarray(array)
        self.dtype = np.dtype(np.float32 if array.dtype == np.float32 else np.float64)
        self._data = np.ascontiguousarray(array, dtype=self.dtype)
        self._data.flags.writeable = False
        self.n_rows, self.n_features = self._data.shape
        self._longest_read, self._longest_take = longest_read, longest_take
        self._lock = threading.Lock()
        self.largest_read = self.largest_take = self.rows_read = self.rows_taken = 0

    def read(self, start: int, stop: int) -> Any:
        _check_caller(sys._getframe(1).f_globals["__name__"], READERS, "read")
        _check_length(stop - start, self._longest_read, "read")
        with self._lock:
            self.largest_read = max(self.largest_read, stop - start)
            self.rows_read += stop - start
        return self._data[start:stop]

    def take(self, indices: Any) -> Any:
        _check_caller(sys._getframe(1).f_globals["__name__"], TAKERS, "take")
        _check_length(len(indices), self._longest_take, "take")
        with self._lock:
            self.largest_take = max(self.largest_take, len(indices))
            self.rows_taken += len(indices)
        return self._data[indices]

    def __array__(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise AssertionError("all rows were asked for as one array")

    def __getstate__(self) -> NoReturn:
        raise AssertionError("the rows were pickled or copied")


def _check_caller(module: str, allowed: tuple[str, ...], method: str) -> None:
    if not any(module == name or module.startswith(name + ".") for name in allowed):
        raise AssertionError(f"{method} was called from {module}; only {', '.join(allowed)} may")


def _check_length(asked: int, longest: int | None, method: str) -> None:
    if longest is not None and asked > longest:
        raise AssertionError(f"{method} asked for {asked} rows at once; at most {longest} are allowed")
