"""The passes of one block, numbered, and the files in which a thread keeps them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np

from mercer.engine.checkpoint_files import (
    SUFFIX,
    Entry,
    files_of,
    packed,
    read_entries,
    remove_parts,
    unpacked,
    write_entries,
)
from mercer.exceptions import CheckpointError

_FORMAT = "1"
_BEGIN, _CURRENT = "begin", "current"  # names of files; others have numbers
_MOST_WAITING = 1 << 26  # bytes that wait to be written


class Journal:
    """Passes of one block, and the files in which they are kept."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.process = folder, os.getpid()
        self._seconds, self._written = seconds, time.monotonic()
        self._n_passes, self.running = 0, threading.Lock()
        self._waiting: list[Entry] = []
        self._under_way: list[Entry] = []  # one at most, which replaces the last
        self._writer: threading.Thread | None = None
        self._failure: OSError | None = None
        self._begin()

    def _begin(self) -> None:
        """Read what there is, or note how random numbers stand."""
        remove_parts(self.folder)
        path, names = self.folder / (_BEGIN + SUFFIX), [path.stem for path in files_of(self.folder)]
        if path.exists():
            self._set_back(path)
        elif names:
            raise CheckpointError(f"{path} is missing, and with it how the fit began. Remove {self.folder}.")
        else:
            state = packed(np.random.get_state(), [], "")  # noqa: NPY002  what random_state=None draws from
            write_entries(path, [Entry(0, _versions(), 0, is_complete=True, first=0, data=state)])
        self._n_files = max([int(name) + 1 for name in names if name.isdigit()], default=0)
        self._found: Path | None = self._current if _CURRENT in names else None
        self._places: dict[int, list[tuple[Path, int]]] = {}
        for path in files_of(self.folder):
            for place, entry in read_entries(path) if path.stem != _BEGIN else ():
                self._places.setdefault(entry.number, []).append((path, place))

    def _set_aside(self) -> None:
        """Give what was under way a name of its own: passes before it, computed again, must not replace it."""
        if self._found is None:
            return
        old, new, self._found = self._found, self._next_file(), None
        old.replace(new)
        for number, places in self._places.items():
            self._places[number] = [(new if path == old else path, place) for path, place in places]

    @property
    def _current(self) -> Path:
        return self.folder / (_CURRENT + SUFFIX)

    def _next_file(self) -> Path:
        self._n_files += 1
        return self.folder / f"{self._n_files - 1:08d}{SUFFIX}"

    def _set_back(self, path: Path) -> None:
        [(_, entry)] = read_entries(path)
        if entry.marks != _versions():
            raise CheckpointError(
                f"the checkpoint in {self.folder} was written by mercer {entry.marks.get('mercer')}, and this is "
                f"{_versions()['mercer']}. Finish the fit with that version, or remove the folder to start anew."
            )
        np.random.set_state(unpacked(entry.data, [], ""))  # noqa: NPY002

    def next_number(self) -> int:
        """Number of the pass that comes next, from 0."""
        self._check_alone(not self.running.locked())
        self._n_passes += 1
        return self._n_passes - 1

    def enter(self) -> None:
        """The pass begins to run."""
        self._check_alone(self.running.acquire(blocking=False))

    def _check_alone(self, is_alone: bool) -> None:
        if not is_alone:
            raise CheckpointError(
                f"two fits at once use the checkpoint in {self.folder}: their passes would be taken for each other's. "
                "Give each fit a block and a folder of its own."
            )

    def entries(self, number: int) -> list[Entry]:
        """What is stored of a pass."""
        return [next(read_entries(path, place))[1] for path, place in self._places.pop(number, [])]

    def is_due(self, size: int) -> bool:
        """Whether it is time to write, or so many bytes should not wait longer."""
        self._report()
        return time.monotonic() - self._written >= self._seconds or size >= _MOST_WAITING

    def store(self, entry: Entry, *, is_final: bool) -> None:
        """Take an entry, which is written when it is time; one that is not final replaces the last such one."""
        if is_final:
            self._waiting.append(entry)
            self._under_way = []
        else:
            self._under_way = [entry]
        size = sum(len(each.data) for each in self._waiting)
        if self.is_due(size):
            self._write(wait=size >= _MOST_WAITING)

    def _write(self, *, wait: bool) -> None:
        """Let a thread write what there is; if the last one has not ended, the next entry will try again."""
        if self._writer is not None and self._writer.is_alive() and not wait:
            return
        self._join()
        files: list[tuple[Path, list[Entry]]] = []
        if self._waiting:
            files.append((self._next_file(), self._waiting))
        if self._under_way:
            self._set_aside()
            files.append((self._current, self._under_way))
        self._waiting, self._under_way = [], []
        self._written = time.monotonic()
        self._writer = threading.Thread(target=self._write_files, args=(files,), name="mercer checkpoint")
        self._writer.start()

    def _write_files(self, files: list[tuple[Path, list[Entry]]]) -> None:
        try:
            for path, entries in files:
                write_entries(path, entries)
        except OSError as error:
            self._failure = error

    def _join(self) -> None:
        if self._writer is not None:
            self._writer.join()
        self._report()

    def _report(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def leave(self, error: BaseException) -> None:
        """Write what there is when an error ends the block; if that fails, too, say so beside it."""
        try:
            self._write(wait=True)
            self._join()
        except OSError as failure:
            if str(failure) != str(error):
                error.add_note(f"mercer: {failure}")

    def remove(self) -> None:
        """Remove the files of a block that has ended."""
        with suppress(OSError):
            self._join()
        # The one without which the others are void goes last.
        for path in sorted(files_of(self.folder), key=lambda path: path.stem == _BEGIN):
            path.unlink()
        remove_parts(self.folder)


def _versions() -> dict[str, str]:
    return {"format": _FORMAT, "mercer": version("mercer")}


@contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """The folder, made if need be, for this block alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"the folder of a checkpoint cannot be made ({error.strerror})"
        raise OSError(error.errno, message, str(folder)) from error
    folder = folder.resolve()
    with _locked(folder):
        yield folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Refuse a folder that another block uses, where the system can tell; a process that is killed lets go of it."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise CheckpointError(
            f"another fit uses the checkpoint in {folder}. Wait for it, or use another folder."
        ) from None
    except OSError:  # some network file systems lock no folders
        pass
    try:
        yield
    finally:
        os.close(handle)
