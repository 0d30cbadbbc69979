"""Python values as JSON and a list of arrays.

``None``, ``bool``, ``int``, finite ``float``, ``str`` and ``list`` are themselves. Everything else is an object of one
key, which tells what it is:

===============  ==================================================================================================
key              value
===============  ==================================================================================================
``array``        number of an array of the archive
``bytes``        base64
``dict``         list of pairs: keys need not be strings
``dtype``        NumPy's name of it, as in a .npy file
``float``        "nan", "inf" or "-inf", which JSON does not have
``generator``    [name of the bit generator, its state]
``int``          hexadecimal, beyond 64 bits
``object``       [name that a class has declared, {attribute: value}]
``objects``      [shape, list of elements]: an array of Python objects (names, labels)
``ragged``       [array, array]: a list of one-dimensional arrays, joined, and their lengths
``random_state`` the state of a ``RandomState``
``scalar``       [dtype, base64]: a number as NumPy has them
``slice``        [start, stop, step]
``sparse``       ["csc" or "csr", shape, data, indices, indptr]
``table``        list of arrays: columns of a list of tuples of numbers
``tuple``        list
===============  ==================================================================================================
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from mercer._stored import Declaration, declaration_of
from mercer._typing import AnyArray
from mercer.exceptions import ArchiveError
from mercer.persistence import schema

__all__ = ["DTYPE", "LONGEST_INT", "MOST_NESTED", "Encoder", "most_referred"]

MOST_NESTED = 100  # values within values
# Numbers, truth values, text, dates; no Python objects, no records.
DTYPE = re.compile(r"[<>|](b1|[iu][1248]|f[248]|[SU]\d{1,7}|[mM]8(\[\d{0,9}[a-zA-Z]{1,2}\])?)")
LONGEST_INT = 4096  # hexadecimal digits
_MANY = 16  # tuples from which on a list of them is stored as a table
_LARGEST = 2**63
_MOST_REFERENCES, _FREE = 32, 2**24  # to an array, if all are named as often; and bytes that do not count


class Encoder:
    """Collects the arrays of a value while it is turned into JSON.

    Attributes
    ----------
    arrays : list of arrays
        Each stored once, however often the value refers to it.
    """

    def __init__(self) -> None:
        self.arrays: list[AnyArray] = []
        self._numbers: dict[Any, int] = {}
        self._alive: list[AnyArray] = []  # whose addresses are keys
        self._depth = 0
        self._referred = 0  # bytes

    def encode(self, value: Any, where: str) -> Any:
        """JSON of a value; ``where`` names it in messages."""
        self._depth += 1
        if self._depth > MOST_NESTED:
            msg = f"{where} is nested more than {MOST_NESTED} deep, or contains itself: an archive cannot hold it."
            raise ArchiveError(msg)
        try:
            return self._encoded(value, where)
        finally:
            self._depth -= 1

    def _encoded(self, value: Any, where: str) -> Any:  # noqa: PLR0911  one line per kind of value
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int:
            return value if -_LARGEST <= value < _LARGEST else {"int": _hexadecimal(value, where)}
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        declaration = declaration_of(type(value))
        if declaration is not None:
            return self._object(value, declaration, where)
        for kind, method in _METHODS.items():
            if type(value) is kind or (kind in (np.generic, np.dtype) and isinstance(value, kind)):
                return method(self, value, where)
        return _refuse(value, where)

    def _object(self, value: Any, declaration: Declaration, where: str) -> Any:
        state = schema.state_of(value, declaration)
        attributes = {each: self.encode(state[each], f"{where}.{each}") for each in sorted(state)}
        schema.check_attributes(declaration, state)
        schema.check_parts(value, declaration)
        return {"object": [declaration.name, attributes]}

    def _array(self, value: AnyArray, where: str) -> Any:
        if type(value) not in (np.ndarray, np.memmap):  # a mask, say, would be lost
            _refuse(value, where)
        if value.dtype == object:
            elements = [self.encode(each, f"{where}[{i}]") for i, each in enumerate(value.ravel())]
            return {"objects": [list(value.shape), elements]}
        if not DTYPE.fullmatch(value.dtype.str):
            msg = f"{where} is an array of dtype {value.dtype}, which an archive cannot hold."
            raise ArchiveError(msg)
        return {"array": self._number(np.asarray(value))}

    def _number(self, value: AnyArray) -> int:
        """The number of an array; the same memory seen in the same way is one array."""
        address = value.__array_interface__["data"][0] if value.size else id(value)
        key = (address, value.shape, value.strides, value.dtype.str)
        if key not in self._numbers:
            self._numbers[key] = len(self.arrays)
            self.arrays.append(value)
        self._alive.append(value)
        self._referred += value.nbytes
        return self._numbers[key]

    def check_references(self) -> None:
        """Raise if a file would refer to its arrays more often than can be read."""
        if self._referred > most_referred(self.arrays):
            msg = "the model refers to the same arrays so often that an archive, which has each once, is not read."
            raise ArchiveError(msg)

    def _list(self, value: list[Any], where: str) -> Any:
        if len(value) > 1 and _are_joinable(value):
            lengths = np.array([len(each) for each in value], dtype=np.int64)
            return {"ragged": [self._number(np.concatenate(value)), self._number(lengths)]}
        columns = _columns(value)
        if columns is not None:
            return {"table": [self._number(column) for column in columns]}
        return [self.encode(each, f"{where}[{i}]") for i, each in enumerate(value)]

    def _tuple(self, value: tuple[Any, ...], where: str) -> Any:
        return {"tuple": [self.encode(each, f"{where}[{i}]") for i, each in enumerate(value)]}

    def _dict(self, value: dict[Any, Any], where: str) -> Any:
        pairs = [[self.encode(k, f"a key of {where}"), self.encode(v, f"{where}[{k!r}]")] for k, v in value.items()]
        return {"dict": pairs}

    def _bytes(self, value: bytes, _where: str) -> Any:
        return {"bytes": base64.b64encode(value).decode()}

    def _slice(self, value: slice, where: str) -> Any:
        return {"slice": [self.encode(each, where) for each in (value.start, value.stop, value.step)]}

    def _dtype(self, value: np.dtype[Any], where: str) -> Any:
        if not DTYPE.fullmatch(value.str):
            _refuse(value, where)
        return {"dtype": value.str}

    def _scalar(self, value: np.generic, where: str) -> Any:
        array = np.array([value])
        if not DTYPE.fullmatch(array.dtype.str):
            _refuse(value, where)
        return {"scalar": [array.dtype.str, base64.b64encode(array.tobytes()).decode()]}

    def _sparse(self, value: Any, where: str) -> Any:
        parts = [self._array(each, where)["array"] for each in (value.data, value.indices, value.indptr)]
        return {"sparse": [value.format, list(value.shape), *parts]}

    def _random_state(self, value: np.random.RandomState, where: str) -> Any:
        return {"random_state": self.encode(value.get_state(legacy=False), where)}

    def _generator(self, value: np.random.Generator, where: str) -> Any:
        bits = value.bit_generator
        if type(bits).__module__.split(".")[0] != "numpy":
            _refuse(value, where)
        return {"generator": [type(bits).__name__, self.encode(bits.state, where)]}


_METHODS: dict[Any, Any] = {
    list: Encoder._list,
    tuple: Encoder._tuple,
    dict: Encoder._dict,
    bytes: Encoder._bytes,
    slice: Encoder._slice,
    np.dtype: Encoder._dtype,
    np.generic: Encoder._scalar,
    sparse.csc_array: Encoder._sparse,
    sparse.csr_array: Encoder._sparse,
    np.random.RandomState: Encoder._random_state,
    np.random.Generator: Encoder._generator,
}


def most_referred(arrays: Sequence[AnyArray]) -> int:
    """Bytes of arrays that values may refer to together: a bound of the work, and of copies that are made of them."""
    return _MOST_REFERENCES * sum(array.nbytes for array in arrays) + _FREE


def _are_joinable(value: list[Any]) -> bool:
    first = value[0]
    return all(
        type(each) is np.ndarray and each.ndim == 1 and each.dtype == first.dtype and each.dtype.kind in "iuf"
        for each in value
    )


def _columns(value: list[Any]) -> list[AnyArray] | None:
    """A long list of tuples of numbers as columns, or None if it is something else."""
    if len(value) < _MANY or type(value[0]) is not tuple:
        return None
    kinds = tuple(map(type, value[0]))
    if not kinds or not all(type(row) is tuple and tuple(map(type, row)) == kinds for row in value):
        return None
    if not set(kinds) <= {int, float}:
        return None
    columns = list(zip(*value, strict=True))
    if any(
        kind is int and not -_LARGEST <= min(c) <= max(c) < _LARGEST for kind, c in zip(kinds, columns, strict=True)
    ):
        return None
    types = {int: np.int64, float: np.float64}
    return [np.array(column, dtype=types[kind]) for kind, column in zip(kinds, columns, strict=True)]


def _hexadecimal(value: int, where: str) -> str:
    if value.bit_length() > 4 * (LONGEST_INT - len("-0x")):
        msg = f"{where} is an integer of {value.bit_length()} bits, which is more than an archive holds."
        raise ArchiveError(msg)
    return hex(value)


def _refuse(value: Any, where: str) -> NoReturn:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if callable(value) or hasattr(value, "get_params"):
        reason = "loading a model never runs code, so functions, and classes that are not mercer's, are not stored"
    else:
        reason = "an archive holds numbers, text, arrays and mercer's own classes"
    msg = f"{where} is of type {kind}: {reason}. Nothing was written."
    raise ArchiveError(msg)
