"""Fits that survive: what passes have summed is kept in a folder, and a fit that is called again goes on from there.

A fit is a program whose long steps are passes. Run again it meets the same passes in the same order, so a pass is known
by its number, and what is stored of it is used instead of computing it again:

===================  ==================================================================================
of                   is stored
===================  ==================================================================================
a sum                the merged sum of the first partitions, and how many they are
a sequence           the state, and how many rows it has seen
a value per row      the values of the first partitions
===================  ==================================================================================

States are stored before ``finish``, so that whatever follows is computed as it would have been. Entries do not depend
on each other: a pass of which nothing is stored is computed, with the same result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from mercer._typing import AnyArray
from mercer.engine.checkpoint_files import Entry, packed, unpacked
from mercer.engine.fingerprint import Fingerprint
from mercer.engine.journal import Journal, opened
from mercer.engine.passes import Pass, RowPass
from mercer.exceptions import CheckpointError

# What is computed faster than it could be written is not stored: computing it again takes no longer than reading it.
_DISK, _LITTLE = 2e8, 1 << 16  # bytes per second, and bytes that are always stored

_current: ContextVar[Journal | None] = ContextVar("mercer_checkpoint", default=None)


@contextmanager
def checkpoint(folder: str | os.PathLike[str], *, seconds: float = 30.0) -> Iterator[None]:
    """Keep what fits inside the ``with`` block have computed, so that the same block goes on after an interruption.

    Put it around any long fit. After a kill, a crash, Ctrl-C or an error, run the same program again: passes over the
    rows that were finished are not repeated, the one that was under way goes on, and the model has the same bits as
    that of an uninterrupted run. When the block ends without an error, its files are removed.

    Parameters
    ----------
    folder : path
        Where to keep it; made if it does not exist. Files are readable by their owner alone.
    seconds : float, default=30.0
        Least time between two writes, which a thread of its own does.

    Notes
    -----
    Passes, rows, targets and weights are compared with those of the interrupted run, and a difference is refused with
    a ``CheckpointError`` that names it: of files their size and time, of large arrays the shape, the dtype and 4096
    numbers. With ``random_state=None`` the same random numbers are drawn again: NumPy's global state is set back to
    what it was when the interrupted block began.

    One process uses a folder at a time. Fits in other threads or processes than the block's are not kept. Methods that
    decide by the clock (``AutoRegressor``, ``AutoClassifier``, ``learn_metric`` with a ``time_limit``) are refused.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from mercer import NystromRegressor, checkpoint
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> with tempfile.TemporaryDirectory() as folder, checkpoint(folder):
    ...     model = NystromRegressor(n_basis=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.score(X, np.sin(X[:, 0])) > 0.99
    True
    """
    if not seconds >= 0:
        raise ValueError(f"seconds must not be negative, got {seconds!r}.")
    with opened(Path(folder)) as place:
        journal = Journal(place, seconds)
        token = _current.set(journal)
        try:
            yield
        except BaseException as error:
            journal.leave(error)
            raise
        finally:
            _current.reset(token)
        journal.remove()


def record_of(work: Pass[Any, Any] | RowPass, table: Any) -> Record | None:
    """What is kept of a pass that is about to run; None outside of a checkpoint.

    An executor enters the record as a context, begins with its ``state`` after ``n_done`` partitions (or with the rows
    that it ``restore``s), and collects the others, in their order, as ``following`` lets it.
    """
    journal = _current.get()
    if journal is None or journal.process != os.getpid():  # a process that was forked has no part in it
        return None
    return Record(journal, journal.next_number(), work, table)


def refuse_checkpoint(what: str) -> None:
    """Refuse something whose passes depend on the clock."""
    if _current.get() is not None:
        raise CheckpointError(
            f"{what} decides by the clock, so that a second run would differ: a checkpoint cannot resume it. Call it "
            "outside of the block, and fit what it has chosen inside."
        )


class Record:
    """What is kept of one pass."""

    def __init__(self, journal: Journal, number: int, work: Any, table: Any) -> None:
        self.state: Any = None  # merged from the first ``n_done`` partitions, before ``finish``
        self.n_done = 0  # partitions, or rows of a sequence
        self.is_whole = True  # set to False while the state is changed
        self._journal, self._number, self._home = journal, number, type(work).__module__
        self._print, self._began = Fingerprint(work, table), time.monotonic()
        self._bounds = [*(part.first for part in table.parts()), table.n_rows]
        self._out: AnyArray | None = None  # values of the rows, of which those of so many partitions are stored
        self._n_stored = 0
        self._is_complete = False  # as it was stored
        self._entries = journal.entries(number)
        for entry in self._entries:
            self._check(entry)
        if not isinstance(work, RowPass):
            self._resume()

    def _check(self, entry: Entry) -> None:
        difference = self._print.difference(entry.marks)
        if difference:
            raise CheckpointError(
                f"the checkpoint in {self._journal.folder} is of another fit, or its input has changed. Pass "
                f"{self._number + 1}: {difference}. Call the fit as it was called then, or remove the folder to start "
                "anew."
            )

    def _resume(self) -> None:
        for entry in sorted(self._entries, key=lambda entry: (entry.is_complete, entry.n_done))[-1:]:
            self.state, self.n_done = unpacked(entry.data, self._print.kernels, self._home), entry.n_done
            self._is_complete = entry.is_complete
        self._entries = []

    def restore(self, out: AnyArray) -> None:
        """Fill in the values of the first partitions."""
        self._out = out
        for entry in sorted(self._entries, key=lambda entry: entry.first):
            if entry.first == self._bounds[self._n_stored]:
                values = np.frombuffer(entry.data, dtype=out.dtype)
                out[entry.first : self._bounds[entry.n_done]] = values.reshape(-1, *out.shape[1:])
                self._n_stored = entry.n_done
        self.n_done, self._entries = self._n_stored, []

    def following(
        self, collect: Callable[[Any], None], total: Callable[[], Any], *, is_apart: bool = True
    ) -> Callable[[Any], None]:
        """Collect a partition, and keep the total; ``is_apart`` says that the next is not added to that at once."""

        def collected(result: Any) -> None:
            self.is_whole = False
            collect(result)
            self.keep(total(), self.n_done + 1, is_last=self.n_done + 2 == len(self._bounds))
            self.is_whole = is_apart

        return collected

    def keep(self, state: Any, n_done: int, *, is_last: bool) -> None:
        """Partitions, or rows, have been added to the state: write it if it is time."""
        self.state, self.n_done, self.is_whole = state, n_done, True
        if self._is_complete:
            return
        if is_last or self._journal.is_due(self._n_waiting):
            self._store(is_last)

    @property
    def _n_waiting(self) -> int:
        """Bytes of values that are not yet stored."""
        if self._out is None:
            return 0
        n_rows = self._bounds[self.n_done] - self._bounds[self._n_stored]
        return int(n_rows) * self._out[:1].nbytes

    def _store(self, is_complete: bool) -> None:
        first = 0
        if self._out is None:
            data = packed(self.state, self._print.kernels, self._home)
        elif self._n_waiting == 0 or not self._is_worth(self._n_waiting):
            return
        else:
            first = int(self._bounds[self._n_stored])
            data = self._out[first : self._bounds[self.n_done]].tobytes()
            self._n_stored = self.n_done
        if self._is_worth(len(data)):
            entry = Entry(self._number, self._print.marks, self.n_done, is_complete, first, data)
            self._journal.store(entry, is_final=is_complete or self._out is not None)

    def _is_worth(self, size: int) -> bool:
        return size <= max(_LITTLE, _DISK * (time.monotonic() - self._began))

    def __enter__(self) -> Record:
        self._journal.enter()
        self._token: Token[Journal | None] = _current.set(None)  # passes inside of this one are not its business
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        _current.reset(self._token)
        self._journal.running.release()
        if kind is not None and self.is_whole and self.n_done:
            with suppress(OSError, CheckpointError):  # the error that is under way says more
                self._store(is_complete=False)
