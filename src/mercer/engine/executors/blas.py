"""How many threads BLAS uses: one setting for the whole process, held while workers of ours share the cores.

A signal may raise ``KeyboardInterrupt`` between any two steps. So a hold is an object that counts as long as it is
alive, every step can be taken twice, and letting go is tried again if it is interrupted.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import WeakSet

import joblib
from threadpoolctl import ThreadpoolController

__all__ = ["blas_threads", "free_threads"]


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
    hold = _Hold()
    try:
        _take(hold, number)
        yield
    finally:
        _release(hold)


def free_threads() -> int:
    """Threads that BLAS may use when nobody holds it."""
    numbers = _free if len(_holds) else [library.get_num_threads() for library in _libraries()]
    return max(numbers) if numbers else int(joblib.cpu_count())  # which reads files


def _take(hold: _Hold, number: int) -> None:
    global _free  # noqa: PLW0603  it mirrors a global of the process
    with _lock:
        first = not len(_holds)
        if first:
            _free = [library.get_num_threads() for library in _libraries()]
        _holds.add(hold)
        if first:
            _set([number] * len(_free))


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
