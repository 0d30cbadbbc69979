"""Compiled code on disk: where it lies, what it was made from, and whether a file is what it should be.

``docs/compiling.md`` tells which folders are used, and when a function is compiled again. A file holds the code of one
function for one signature, machine and set of versions. Its name says which; a checksum covers its content, its
name and its sources: code of other functions and values of constants are compiled into a function, so these are the
text of the module that defines it and of those that it imports at module level, directly or not, of its own package and
of mercer. A file that has changed since the function was defined no longer tells what is in memory: nothing is then
read or written.

To read a file is to run what it contains. So folders and files must belong to the user or the administrator, nobody
else may be able to write them, and relative paths are not followed. A folder that cannot be used, a full disk or an
unreadable file are never errors: they cost the time to compile.
"""

import ast
import hashlib
import os
import stat
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

_LARGEST = 1 << 28  # bytes; the code of a function takes some tens of thousands
_CHECKSUM_SIZE = hashlib.sha256().digest_size
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def source_digest(module: str, loaded_at: float) -> str | None:
    """Of the texts that functions of a module are compiled from; None if one cannot be read, or has changed since."""
    digest = hashlib.sha256()
    try:
        for path in map(_source_path, sorted(reached_modules(module))):
            status = path.stat()
            # An installer may set the time of a file's content, but not that of the file; Windows has the former only.
            if (status.st_mtime if sys.platform == "win32" else status.st_ctime) > loaded_at:
                return None
            digest.update(_digest(path))
    except (OSError, SyntaxError, ValueError):
        return None
    return digest.hexdigest()


@cache
def reached_modules(module: str) -> frozenset[str]:
    """The module, and what it imports from its own package and from mercer, directly or not."""
    roots = {module.partition(".")[0], __name__.partition(".")[0]}
    reached: set[str] = set()
    waiting = {module}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= {found for found in _imports(name) if found.partition(".")[0] in roots} - reached
    return frozenset(reached)


@cache
def _imports(module: str) -> set[str]:
    """Modules that a module imports when it is loaded."""
    path, found = _source_path(module), set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in _executed(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            members = (f"{base}.{alias.name}" for alias in node.names)
            found |= {member if member in sys.modules else base for member in members}
    return found & sys.modules.keys()


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Statements that are executed when a module is loaded."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            yield from _executed(ast.Module(child.orelse, []))
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _executed(child)


def _source_path(module: str) -> Path:
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    if not file.endswith(".py"):
        raise ValueError(f"module {module} has no source file.")
    return Path(file)


@cache
def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


class Places(NamedTuple):
    """Folders for the code of functions from one source folder: those to read, and the one to write, if any."""

    read: tuple[Path, ...]
    write: Path | None


@cache
def find_places(source_folder: Path, chosen: str) -> Places:
    """Find the folders for code of a source folder; ``chosen`` is ``NUMBA_CACHE_DIR``, which may be empty."""
    readable: list[Path] = []
    for folder in filter(Path.is_absolute, _candidates(source_folder, chosen)):
        with suppress(OSError):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if _is_safe_folder(folder):
            readable.append(folder)
            if os.access(folder, os.W_OK | os.X_OK):
                return Places(tuple(readable), folder)
    return Places(tuple(readable), None)


def _candidates(source_folder: Path, chosen: str) -> Iterator[Path]:
    # Two installations must not replace each other's files.
    own = f"{source_folder.name}_{hashlib.sha256(os.fsencode(source_folder)).hexdigest()[:16]}"
    if chosen and (not Path(chosen).exists() or _is_safe_folder(Path(chosen), shared=True)):
        yield Path(chosen) / own
    yield source_folder / "__pycache__"
    with suppress(RuntimeError):  # there is no home
        yield _user_cache() / "mercer" / own


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _is_safe_folder(folder: Path, *, shared: bool = False) -> bool:
    """Whether nobody else can put files there; ``shared``: or, as in /tmp, cannot touch ours."""
    try:
        status = folder.stat()
    except OSError:
        return False
    sticky = shared and bool(status.st_mode & stat.S_ISVTX)
    return stat.S_ISDIR(status.st_mode) and (sticky or _is_safe(status))


def _is_safe(status: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):  # Windows: folders of a user's profile are closed to others
        return True
    return status.st_uid in {os.getuid(), 0} and not status.st_mode & _OTHERS_WRITE


def read_code(places: Places, name: str, seal: bytes) -> Iterator[bytes]:
    """Contents of the files of that name that are whole, and were written with the same seal."""
    for folder in places.read:
        with suppress(OSError):
            # Without waiting: in place of the file there may be a pipe.
            number = os.open(folder / name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
            with os.fdopen(number, "rb") as file:
                status = os.fstat(number)
                is_safe = stat.S_ISREG(status.st_mode) and _is_safe(status) and status.st_size <= _LARGEST
                checksum, code = (file.read(_CHECKSUM_SIZE), file.read()) if is_safe else (b"", b"")
            if checksum == _checksum(name, seal, code):
                yield code


def write_code(places: Places, name: str, seal: bytes, code: bytes) -> None:
    """Write a file, all of it or nothing: other processes may write it, too."""
    if places.write is None:
        return
    path = places.write / name
    unfinished = path.with_name(f"{name}.{uuid.uuid4().hex[:16]}.tmp")
    try:
        with unfinished.open("xb") as file:
            file.write(_checksum(name, seal, code) + code)
        unfinished.chmod(stat.S_IMODE(unfinished.stat().st_mode) & ~_OTHERS_WRITE)
        unfinished.replace(path)
    except OSError:
        with suppress(OSError):
            unfinished.unlink()


def _checksum(name: str, seal: bytes, code: bytes) -> bytes:
    return hashlib.sha256(repr((name, seal)).encode() + code).digest()
