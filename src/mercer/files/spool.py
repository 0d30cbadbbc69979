"""A temporary folder for numbers that files have in a form which cannot be read from the middle."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


class Spool:
    """Files in a folder under TMPDIR, which is removed with the last object that refers to this one.

    A copy in another process reads the same files, and leaves them to this one.
    """

    def __init__(self, place: str) -> None:
        self.folder, self._place = tempfile.mkdtemp(prefix="mercer-"), place
        weakref.finalize(self, _remove, self.folder, os.getpid())

    def path(self, name: str) -> Path:
        """Of one of the files."""
        return Path(self.folder, name)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """A new file to write to; written and not mapped, so that a full disk is an error."""
        try:
            with self.path(name).open("ab") as file:
                yield file
        except OSError as error:
            if error.filename is None and error.errno is not None:
                where = f"{self.folder} (TMPDIR), to which {self._place} is unpacked"
                raise OSError(error.errno, error.strerror, where) from error
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return _Borrowed, (self.folder, self._place)


class _Borrowed(Spool):
    """A spool that belongs to another process."""

    def __init__(self, folder: str, place: str) -> None:
        self.folder, self._place = folder, place


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # and not in a fork of it
        shutil.rmtree(folder, ignore_errors=True)
