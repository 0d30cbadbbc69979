"""What the estimators' shells share: from arguments to a table and an executor."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
from scipy.sparse import issparse

from mercer._typing import AnyArray
from mercer._validation import check_sample_weight, check_table
from mercer.engine import ArrayRows, ArrayTable, Coding, Executor, Rows, SparseRows, Threads, given_executor

__all__ = ["all_or_nothing", "check_one_spread", "make_executor", "read_rows", "read_table", "snapshot"]

# From y and the number of rows to targets (n, p) or class codes (n,), and what makes targets of codes.
Encode = Callable[[Any, int], tuple[AnyArray, Coding | None]]


# By identity, and not attributes of the estimators: a lock cannot be pickled, copied or compared.
_locks: dict[int, Any] = {}
_lock_of_locks = threading.Lock()


def _forget_locks() -> None:
    """Begin without locks in a forked process, where the threads that held them do not exist."""
    global _lock_of_locks  # noqa: PLW0603  one per process
    _lock_of_locks = threading.Lock()
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


def _lock_of(estimator: Any) -> Any:
    with _lock_of_locks:
        lock = _locks.get(id(estimator))
        if lock is None:
            lock = _locks[id(estimator)] = threading.RLock()
            weakref.finalize(estimator, _locks.pop, id(estimator), None)
        return lock


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Leave the estimator as it was if the work inside fails or is interrupted, and let one thread at a time change it.

    Threads that call ``partial_fit`` of one estimator take turns, so that no rows are lost.
    """
    with _lock_of(estimator):
        state = dict(vars(estimator))
        try:
            yield
        except BaseException as error:
            vars(estimator).update(state)
            for name in vars(estimator).keys() - state.keys():
                del vars(estimator)[name]
            if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt):
                raise KeyboardInterrupt from None  # Ctrl-C in a compiled function, which knows no such exception
            raise


def snapshot(estimator: Any) -> Any:
    """A shallow copy of the state between two changes, for one that is merged into another; no two locks are held."""
    with _lock_of(estimator):
        return copy(estimator)


def read_table(estimator: Any, X: Any, y: Any, sample_weight: Any, *, encode: Encode, reset: bool) -> ArrayTable:
    """Check the arguments of ``fit``, ``partial_fit`` and ``forget``."""
    rows = read_rows(estimator, X, reset=reset)
    labels, coding = encode(y, rows.n_rows)
    return ArrayTable(rows, labels, check_sample_weight(sample_weight, n_rows=rows.n_rows), coding)


def read_rows(estimator: Any, X: Any, *, reset: bool) -> Rows:
    """Check rows given as an array, a data frame or a source of rows; remember (``reset``) or compare their width."""
    if not isinstance(X, Rows):
        table = check_table(estimator, X, reset=reset)
        return SparseRows(table) if issparse(table) else ArrayRows(table, checked=not isinstance(X, np.memmap))
    if reset:
        estimator.n_features_in_ = X.n_features
        vars(estimator).pop("feature_names_in_", None)  # a source of rows has no names
    elif X.n_features != estimator.n_features_in_:
        msg = (
            f"X has {X.n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
        raise ValueError(msg)
    return X


def check_one_spread(return_std: bool, return_cov: bool) -> None:
    """Refuse a request for both the standard deviation and the covariance."""
    if return_std and return_cov:
        msg = "return_std and return_cov exclude each other: the standard deviation is on the covariance's diagonal."
        raise ValueError(msg)


def make_executor(estimator: Any) -> Executor:
    """The executor in use, or threads as ``n_jobs`` and ``verbose`` ask for."""
    executor: Executor | None = given_executor()
    return Threads(estimator.n_jobs, verbose=estimator.verbose) if executor is None else executor
