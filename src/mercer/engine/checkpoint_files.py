"""Files of a checkpoint: entries with a checksum each, written as a whole or not at all.

States are pickled, without code: only arrays, plain values, classes of mercer and those defined beside the pass are
written and read. Kernels, which may hold functions, are left out; the pass that is resumed has them.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from mercer.exceptions import CheckpointError
from mercer.kernels import Kernel

SUFFIX = ".checkpoint"
_TEMPORARY = ".checkpoint-part"
_PLAIN = {"builtins": ("bytearray", "complex", "frozenset", "range", "set", "slice"), "collections": ("deque",)}
_NUMPY = ("_reconstruct", "_frombuffer", "ndarray", "dtype", "scalar")


# -------------------------------------------------------------------------------------------------------- states


def _is_allowed(module: str, name: str, home: str) -> bool:
    package = module.partition(".")[0]
    is_array = package == "numpy" and name in _NUMPY
    return is_array or name in _PLAIN.get(module, ()) or package == "mercer" or module == home


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, kernels: Sequence[Kernel], home: str) -> None:
        super().__init__(file, protocol=5)
        self._kernels, self._home = kernels, home

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Kernel):
            return None
        return next((i for i, kernel in enumerate(self._kernels) if kernel is obj or kernel.equals(obj)), None)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (np.ndarray, np.generic, np.dtype)):
            return NotImplemented
        is_function = isinstance(obj, (FunctionType, BuiltinFunctionType))
        kind = obj if isinstance(obj, type) or is_function else type(obj)
        is_allowed = _is_allowed(kind.__module__, kind.__qualname__, self._home)
        if is_allowed and (not is_function or kind.__module__.startswith("numpy")):
            return NotImplemented
        raise CheckpointError(f"a checkpoint cannot hold {kind.__module__}.{kind.__qualname__}.")


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, kernels: Sequence[Kernel], home: str) -> None:
        super().__init__(file)
        self._kernels, self._home = kernels, home

    def persistent_load(self, pid: int) -> Kernel:
        return self._kernels[pid]

    def find_class(self, module_name: str, global_name: str) -> Any:
        is_allowed = _is_allowed(module_name, global_name, self._home)
        found = super().find_class(module_name, global_name) if is_allowed else None
        if (is_allowed and module_name.startswith("numpy")) or (
            isinstance(found, type) and found.__module__ in (module_name, "builtins")
        ):
            return found
        raise CheckpointError(f"a checkpoint does not hold {module_name}.{global_name}: it was not written by mercer.")


def packed(state: Any, kernels: Sequence[Kernel], home: str) -> bytes:
    """A state as bytes, for a pass that has these kernels and is defined in the module ``home``."""
    file = io.BytesIO()
    _Pickler(file, kernels, home).dump(state)
    return file.getvalue()


def unpacked(data: bytes, kernels: Sequence[Kernel], home: str) -> Any:
    """The state again; see ``packed``."""
    return _Unpickler(io.BytesIO(data), kernels, home).load()


# --------------------------------------------------------------------------------------------------------- files


@dataclass(frozen=True)
class Entry:
    """What is stored of a pass: its sum so far, or some of its rows."""

    number: int  # of the pass, from the beginning of the block
    marks: dict[str, str]  # its fingerprint
    n_done: int  # partitions, or rows of a sequence
    is_complete: bool
    first: int  # row of the first that is stored, where the pass makes one value per row
    data: bytes

    @property
    def _about(self) -> bytes:
        about = {name: value for name, value in vars(self).items() if name != "data"}
        return json.dumps(about | {"bytes": len(self.data)}, sort_keys=True).encode()

    def write(self, file: Any) -> None:
        """Add it to a file: a line about it, with a checksum, and its bytes."""
        file.write(self._about + b"\n" + _checksum(self._about, self.data) + b"\n")
        file.write(self.data)

    @classmethod
    def read(cls, file: Any) -> Entry | None:
        """The next entry of a file; None at its end."""
        line = file.readline()
        if not line:
            return None
        about = json.loads(line)
        checksum, data = file.readline().strip(), file.read(about.pop("bytes"))
        entry = cls(**about, data=data)
        if checksum != _checksum(entry._about, data):
            raise ValueError("checksum")
        return entry


def _checksum(about: bytes, data: bytes) -> bytes:
    found = blake2b(about, digest_size=16)
    found.update(data)
    return found.hexdigest().encode()


def read_entries(path: Path, start: int = 0) -> Iterator[tuple[int, Entry]]:
    """Entries of a file from a place on, each with its place; a damaged file is refused by name."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            while (entry := Entry.read(file)) is not None:
                yield start, entry
                start = file.tell()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is damaged. Delete this file: what it held is computed again, the other files stay good."
        ) from error


def write_entries(path: Path, entries: Sequence[Entry]) -> None:
    """Write a file as a whole or not at all, readable by its owner alone; the one that was there stays until then."""
    part = path.with_suffix(_TEMPORARY)
    try:
        with suppress(FileNotFoundError):
            part.unlink()
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for entry in entries:
                entry.write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _keep_names(path.parent)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise OSError(
            error.errno,
            f"the checkpoint cannot be written ({error.strerror}); what was written before stays good. "
            "Make room, or let it be written, and call the same fit again",
            str(path),
        ) from error


def _keep_names(folder: Path) -> None:
    """Let the names of a folder outlast a loss of power, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def files_of(folder: Path) -> list[Path]:
    """Files of a checkpoint, in the order in which they were begun."""
    return sorted(folder.glob("*" + SUFFIX))


def remove_parts(folder: Path) -> None:
    """Remove what a process that was killed has begun to write."""
    for path in folder.glob("*" + _TEMPORARY):
        path.unlink()
