"""What identifies a pass over a table, so that one that is resumed is known to be the same.

Nothing here depends on where objects are in memory, or on the process. Of a large array only some numbers are looked
at, so a fingerprint costs little beside a pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from mercer._typing import AnyArray
from mercer.engine.passes import Pass, RowPass
from mercer.kernels import Kernel

_WHOLE = 1 << 16  # bytes: smaller arrays are hashed as a whole
_LOOKED_AT = 4096  # numbers of a larger one
_GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, are spread evenly, and in step with no number of columns
_SHORT = 80  # characters of a value that is told as it is

_PLAIN = (type(None), bool, int, float, complex, str, bytes, slice, range, np.generic, np.dtype)


class Fingerprint:
    """Marks of a pass and its table, by name; ``kernels`` are those that the pass holds, in a fixed order."""

    def __init__(self, work: Pass[Any, Any] | RowPass, table: Any) -> None:
        self.kernels: list[Kernel] = []
        self.marks = {"pass": f"{type(work).__qualname__} ({work.name})", "number of rows": str(table.n_rows)}
        for field in fields(work):  # type: ignore[arg-type]
            self.marks[f"{field.name} of the pass"] = self._digest(getattr(work, field.name))
        self.marks["partitions"] = self._digest([(part.first, part.n_rows) for part in table.parts()])
        own = getattr(table, "fingerprint", None)
        for name, value in (own() if own is not None else _state_of(table)).items():
            self._mark(name, value)

    def difference(self, marks: Mapping[str, str]) -> str:
        """What is not as these marks say, in words; empty if all is."""
        names = [name for name in {**marks, **self.marks} if marks.get(name) != self.marks.get(name)]
        return "; ".join(_told(name, marks.get(name), self.marks.get(name)) for name in names)

    def _mark(self, name: str, value: Any) -> None:
        is_short = isinstance(value, _PLAIN) and len(repr(value)) <= _SHORT
        self.marks[name] = repr(value) if is_short else self._digest(value)

    def _digest(self, value: Any) -> str:
        return "#" + _Walk(self).digest(value)


def _told(name: str, before: str | None, now: str | None) -> str:
    if before is None or now is None:
        return f"{name}: {'new' if before is None else 'gone'}"
    return f"{name}: another" if before.startswith("#") else f"{name}: {before} before, {now} now"


class _Walk:
    """A digest of a value and of all that it holds."""

    def __init__(self, owner: Fingerprint) -> None:
        self._hash, self._owner = blake2b(digest_size=16), owner
        self._above: list[Any] = []  # what is being walked, so that circles end

    def digest(self, value: Any) -> str:
        self._walk(value)
        return self._hash.hexdigest()

    def _say(self, text: str) -> None:
        self._hash.update(f"{text}\0".encode())

    def _walk(self, value: Any) -> None:
        if isinstance(value, _PLAIN):
            self._say(f"{type(value).__qualname__} {value!r}")
        elif isinstance(value, np.ndarray):
            self._array(value)
        elif any(value is each for each in self._above):
            self._say("circle")
        else:
            self._above.append(value)
            self._parts(value)
            self._above.pop()

    def _parts(self, value: Any) -> None:
        self._say(_name_of(value))
        if isinstance(value, (list, tuple, set, frozenset)):
            self._all(sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value)
        elif isinstance(value, Mapping):
            self._all([part for item in value.items() for part in item])
        elif isinstance(value, (type, BuiltinFunctionType, np.ufunc, Path)):
            self._say(str(value))
        elif isinstance(value, (FunctionType, MethodType, CodeType)):
            self._all(_parts_of_function(value))
        elif hasattr(value, "py_func"):  # compiled by Numba
            self._walk(value.py_func)
        elif hasattr(value, "fingerprint"):
            self._source(value.fingerprint())
        else:
            if isinstance(value, Kernel):
                self._owner.kernels.append(value)
            self._walk(_state_of(value))

    def _all(self, values: Any) -> None:
        self._say(str(len(values)))
        for value in values:
            self._walk(value)

    def _array(self, array: AnyArray) -> None:
        self._say(f"array {array.dtype.str} {array.shape}")
        path = _file_of(array)
        if path is not None:
            self._source(file_marks(path))
        if array.dtype.hasobject:
            self._all(array.ravel().tolist())
        elif array.nbytes <= _WHOLE:
            self._hash.update(array.tobytes())
        else:
            places = np.arange(1, _LOOKED_AT + 1) * _GOLDEN % 1.0 * array.size
            self._hash.update(array.flat[places.astype(np.intp)].tobytes())

    def _source(self, marks: Mapping[str, Any]) -> None:
        """Marks with names of their own, so that an error can say which file is another."""
        for name, value in marks.items():
            self._owner.marks[str(name)] = str(value)


def _file_of(array: Any) -> Any:
    """Path of the file that a memory map, or a view of one, is of; else None."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return array.filename
        array = array.base
    return None


def file_marks(path: Any) -> dict[str, str]:
    """Size and time of a file, by its path."""
    found = Path(path).stat()
    return {str(path): f"{found.st_size} bytes of {found.st_mtime_ns} ns"}


def _name_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _state_of(value: Any) -> dict[str, Any]:
    """What an object holds, by name, without what it has derived of that; nothing, if it cannot be told."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in fields(value)}
    try:
        state = value.__getstate__()
    except TypeError:  # of what cannot be pickled, such as a lock or an open file
        return {}
    return state if isinstance(state, dict) else {"state": state}


def _parts_of_function(function: Any) -> list[Any]:
    if isinstance(function, MethodType):
        return [function.__func__, function.__self__]
    if isinstance(function, CodeType):
        return [function.co_code, list(function.co_consts), list(function.co_names)]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [function.__module__, function.__qualname__, function.__code__, function.__defaults__ or (), cells]
