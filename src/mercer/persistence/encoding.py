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

import base64
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from mercer._stored import Declaration, declaration_of
from mercer._stored.checks import LARGEST_INT, need
from mercer._typing import AnyArray
from mercer.exceptions import ArchiveError
from mercer.persistence import schema

MOST_NESTED = 100  # values within values
# Numbers, truth values, text, dates; no Python objects, no records.
DTYPE = re.compile(r"[<>|](b1|[iu][1248]|f[248]|[SU]\d{1,7}|[mM]8(\[\d{0,9}[a-zA-Z]{1,2}\])?)")
LONGEST_INT = 4096  # hexadecimal digits
_MANY = 16  # tuples from which on a list of them is stored as a table
_MOST_REFERENCES, _FREE = 32, 2**24  # to an array, if all are named as often; and bytes that do not count


def encode(value: Any, name: str) -> tuple[Any, list[AnyArray]]:
    """JSON of a value, which messages call by that name, and its arrays, each once."""
    encoder = _Encoder()
    tree = encoder.encode(value, name)
    often = encoder.referred > most_referred(encoder.arrays)
    need(not often, "the model refers to the same arrays so often that an archive, which has each once, is not read.")
    return tree, encoder.arrays


def most_referred(arrays: Sequence[AnyArray]) -> int:
    """Bytes of arrays that values may refer to together: a bound of the work, and of copies that are made of them."""
    return _MOST_REFERENCES * sum(array.nbytes for array in arrays) + _FREE


class _Encoder:
    """Collects the arrays of a value while it is turned into JSON; ``where`` names values in messages."""

    def __init__(self) -> None:
        self.arrays: list[AnyArray] = []
        self.referred = 0  # bytes
        self._numbers: dict[Any, int] = {}  # by address: ``arrays`` keeps alive what lies there
        self._depth = 0

    def encode(self, value: Any, where: str) -> Any:
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise ArchiveError(f"{where} is nested more than {MOST_NESTED} deep, or contains itself: it is not stored.")
        tree = self._encoded(value, where)
        self._depth -= 1
        return tree

    def _encoded(self, value: Any, where: str) -> Any:  # noqa: PLR0911  one line per kind of value
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int:
            return value if -LARGEST_INT <= value < LARGEST_INT else {"int": _hexadecimal(value, where)}
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if type(value) is list:
            return self._list(value, where)
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        declaration = declaration_of(type(value))
        if declaration is not None:
            return self._object(value, declaration, where)
        for kind in (type(value), np.dtype, np.generic):
            if kind in _KINDS and isinstance(value, kind):
                key, content = _KINDS[kind]
                return {key: content(self, value, where)}
        return _refuse(value, where)

    def items(self, value: Iterable[Any], where: str) -> list[Any]:
        return [self.encode(each, f"{where}[{i}]") for i, each in enumerate(value)]

    def _list(self, value: list[Any], where: str) -> Any:
        if len(value) > 1 and _are_joinable(value):
            lengths = np.array([len(each) for each in value], dtype=np.int64)
            return {"ragged": [self._number(np.concatenate(value)), self._number(lengths)]}
        columns = _columns(value)
        return self.items(value, where) if columns is None else {"table": [self._number(each) for each in columns]}

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
            return {"objects": [list(value.shape), self.items(value.ravel(), where)]}
        if not DTYPE.fullmatch(value.dtype.str):
            raise ArchiveError(f"{where} is an array of dtype {value.dtype}, which an archive cannot hold.")
        return {"array": self._number(np.asarray(value))}

    def _number(self, value: AnyArray) -> int:
        """The number of an array; the same memory seen in the same way is one array."""
        address = value.__array_interface__["data"][0] if value.size else id(value)
        key = (address, value.shape, value.strides, value.dtype.str)
        if key not in self._numbers:
            self._numbers[key] = len(self.arrays)
            self.arrays.append(value)
        self.referred += value.nbytes
        return self._numbers[key]

    def pairs(self, value: dict[Any, Any], where: str) -> Any:
        return [[self.encode(k, f"a key of {where}"), self.encode(v, f"{where}[{k!r}]")] for k, v in value.items()]

    def scalar(self, value: np.generic, where: str) -> Any:
        array = np.array([value])
        if not DTYPE.fullmatch(array.dtype.str):
            _refuse(value, where)
        return [array.dtype.str, base64.b64encode(array.tobytes()).decode()]

    def sparse(self, value: Any, where: str) -> Any:
        parts = [self._array(each, where)["array"] for each in (value.data, value.indices, value.indptr)]
        return [value.format, list(value.shape), *parts]

    def random_state(self, value: np.random.RandomState, where: str) -> Any:
        return self.encode(value.get_state(legacy=False), where)

    def generator(self, value: np.random.Generator, where: str) -> Any:
        bits = value.bit_generator
        if type(bits).__module__.split(".")[0] != "numpy":
            _refuse(value, where)
        return [type(bits).__name__, self.encode(bits.state, where)]


_KINDS: dict[Any, tuple[str, Callable[[_Encoder, Any, str], Any]]] = {
    bytes: ("bytes", lambda _, value, _where: base64.b64encode(value).decode()),
    dict: ("dict", _Encoder.pairs),
    np.dtype: ("dtype", lambda _, value, where: value.str if DTYPE.fullmatch(value.str) else _refuse(value, where)),
    np.generic: ("scalar", _Encoder.scalar),
    np.random.Generator: ("generator", _Encoder.generator),
    np.random.RandomState: ("random_state", _Encoder.random_state),
    slice: ("slice", lambda encoder, value, where: encoder.items((value.start, value.stop, value.step), where)),
    sparse.csc_array: ("sparse", _Encoder.sparse),
    sparse.csr_array: ("sparse", _Encoder.sparse),
    tuple: ("tuple", _Encoder.items),
}


def _are_joinable(value: list[Any]) -> bool:
    dtype = getattr(value[0], "dtype", None)
    return all(
        type(each) is np.ndarray and each.ndim == 1 and each.dtype == dtype and each.dtype.kind in "iuf"
        for each in value
    )


def _columns(value: list[Any]) -> list[AnyArray] | None:
    """A long list of tuples of numbers as columns, or None if it is something else."""
    if len(value) < _MANY or type(value[0]) is not tuple:
        return None
    kinds = tuple(map(type, value[0]))
    alike = all(type(row) is tuple and tuple(map(type, row)) == kinds for row in value)
    if not kinds or not alike or not set(kinds) <= {int, float}:
        return None
    columns = list(zip(kinds, zip(*value, strict=True), strict=True))
    if any(kind is int and not -LARGEST_INT <= min(column) <= max(column) < LARGEST_INT for kind, column in columns):
        return None
    return [np.array(column, dtype=np.int64 if kind is int else np.float64) for kind, column in columns]


def _hexadecimal(value: int, where: str) -> str:
    short = value.bit_length() <= 4 * (LONGEST_INT - len("-0x"))
    need(short, f"{where} is an integer of {value.bit_length()} bits, which is more than an archive holds.")
    return hex(value)


def _refuse(value: Any, where: str) -> NoReturn:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if callable(value) or hasattr(value, "get_params"):
        reason = "loading a model never runs code, so functions, and classes that are not mercer's, are not stored"
    else:
        reason = "an archive holds numbers, text, arrays and mercer's own classes"
    raise ArchiveError(f"{where} is of type {kind}: {reason}. Nothing was written.")
