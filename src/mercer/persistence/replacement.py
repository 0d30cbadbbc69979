"""A file that takes another one's place as a whole: a reader finds the old file or the new one.

The new file is written without a name where the system has such files (Linux, on most file systems), so that nothing
is left of it if the process is killed; it has a name only between two system calls at the end. Elsewhere it has a
hidden name beside the path from the start, and is locked while it is written: those that a killed process has left,
which nobody locks, are removed by the next writer.
"""

import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mercer._stored.checks import need

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


_DESCRIPTORS = "/proc/self/fd"  # where a file without a name can be given one
_PREFIX, _SUFFIX = ".mercer-", ".tmp"
_ABANDONED = 3600.0  # seconds without a write: locks of other machines may not be seen on a shared disk


@contextmanager
def replacement(path: Path) -> Iterator[IO[bytes]]:
    """A new file, which takes the place of the path when all is written and on the disk, and else vanishes."""
    path = path.resolve()  # of a symbolic link, the file it points to is replaced
    mode = _mode_of(path)
    temporary = path.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
    unnamed = _unnamed(path.parent, mode)
    if unnamed is None:
        _remove_abandoned(path.parent)
    try:
        with os.fdopen(_named(temporary, mode) if unnamed is None else unnamed, "w+b") as file:
            if mode is not None and hasattr(os, "fchmod"):  # the mask of this process may have taken some away
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if unnamed is not None:
                _give_name(file, temporary, mode)
            elif fcntl is None:  # Windows does not rename what is open
                file.close()
            temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    # The new name is to be on the disk, too, where a directory can be opened for that.
    with suppress(OSError), _opened(path.parent, os.O_RDONLY) as folder:
        os.fsync(folder)


def _mode_of(path: Path) -> int | None:
    """Permissions of the file that is to be replaced, None if there is none; those that cannot be are refused."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give the name of a file.")
    if not path.exists():
        return None
    advice = "which is not to be replaced: open it, and give the file object."
    need(path.is_file(), f"{path} is a device or a pipe, {advice}")
    return path.stat().st_mode & 0o777


def _unnamed(folder: Path, mode: int | None) -> int | None:
    """A file without a name, or None where there are none."""
    if not hasattr(os, "O_TMPFILE") or not Path(_DESCRIPTORS).is_dir():
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666 if mode is None else mode)
    except OSError:  # of this file system; or of the folder, as the other way will tell
        return None


def _named(temporary: Path, mode: int | None) -> int:
    # Not tempfile: a new file is to have the permissions that files of this user have.
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666 if mode is None else mode)
    _lock(descriptor)
    return descriptor


def _give_name(file: IO[bytes], temporary: Path, mode: int | None) -> None:
    """Link the file into its folder, or copy it there where that is not allowed."""
    try:
        # With a directory, even one that is not looked at, the link that /proc has is followed.
        os.link(f"{_DESCRIPTORS}/{file.fileno()}", temporary, src_dir_fd=file.fileno(), follow_symlinks=True)
    except OSError:
        file.seek(0)
        with os.fdopen(_named(temporary, mode), "w+b") as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())
        if mode is not None:
            temporary.chmod(mode)


def _lock(descriptor: int) -> bool:
    """Whether nobody else had locked the file, and it is locked now, until it is closed."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked by another, or there are no locks
        return False
    return True


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed processes have left: files of our names that nobody locks, nor has written to for long."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with suppress(OSError):
        for left in folder.glob(f"{_PREFIX}{'[0-9a-f]' * 16}{_SUFFIX}"):
            with suppress(OSError), _opened(left, flags) as descriptor:
                found = os.fstat(descriptor)
                old = stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime > _ABANDONED
                if old and _lock(descriptor):
                    left.unlink()  # by its name, which no other file ever has


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
