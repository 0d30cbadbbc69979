"""What is read next is read while something else is computed, and pieces of any length become tiles of one size."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from mercer.engine import Piece

_Item = TypeVar("_Item")

_PATIENCE = 0.1  # seconds until Ctrl-C is heard at the latest
_END = object()


def read_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """The same items, of which one is made ahead by a thread of its own; closing the iterator ends the thread.

    The two talk by queues that are written in C: Ctrl-C may come between any two steps, and leaves no lock behind.
    """
    wanted: SimpleQueue[bool] = SimpleQueue()
    ready: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    thread = threading.Thread(target=_make, args=(items, wanted, ready), name="mercer-read", daemon=True)
    try:
        thread.start()
        wanted.put(True)
        while True:
            wanted.put(True)
            item, error = _next(ready)
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        wanted.put(False)
        if thread.ident is not None:
            thread.join()


def _make(items: Iterator[Any], wanted: SimpleQueue[bool], ready: SimpleQueue[Any]) -> None:
    try:
        while wanted.get():
            item = next(items, _END)
            ready.put((item, None))
            if item is _END:
                return
    except BaseException as error:
        ready.put((None, error))
    finally:
        items.close()  # type: ignore[attr-defined]  # a generator, whose files are closed here


def _next(ready: SimpleQueue[Any]) -> Any:
    while True:
        try:
            return ready.get(timeout=_PATIENCE)
        except Empty:
            pass


def length(piece: Piece) -> int:
    """Number of rows of a piece that is not empty."""
    return next(len(each) for each in piece if each is not None)


def cut(pieces: Iterator[Piece], size: int) -> Iterator[Piece]:
    """The same rows in pieces of ``size`` rows, the last one shorter."""
    waiting: list[Piece] = []
    n_waiting = 0
    for piece in pieces:
        start, n_rows = 0, length(piece)
        while n_waiting + n_rows - start >= size:
            stop = start + size - n_waiting
            waiting.append(piece.part(slice(start, stop)))
            yield _joined(waiting)
            waiting, n_waiting, start = [], 0, stop
        if start < n_rows:
            waiting.append(piece.part(slice(start, n_rows)))
            n_waiting += n_rows - start
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[Piece]) -> Piece:
    return pieces[0] if len(pieces) == 1 else Piece.joined(pieces)
