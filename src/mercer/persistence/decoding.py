"""JSON and arrays as Python values again: the inverse of ``encoding``, which has the table of what there is.

Nothing here imports what a file names, or calls what it describes; names of classes are looked up among those that were
declared. What is built is bounded by the size of the file: arrays that become Python objects (``ragged``, ``table``)
belong to one value each, and others, which objects may copy, are not referred to without end. Whatever does not fit is
an ``ArchiveError``.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from mercer._stored import declaration_named
from mercer._stored.checks import check_compressed, need
from mercer._typing import AnyArray
from mercer.exceptions import ArchiveError
from mercer.persistence import schema
from mercer.persistence.encoding import DTYPE, LONGEST_INT, MOST_NESTED, most_referred

__all__ = ["Decoder", "as_dtype", "check_elements"]

_MOST_DIMENSIONS = 32
_HEXADECIMAL = re.compile(r"-?0x[0-9a-f]+")
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
# How many numbers a generator has ready: it reads them without asking how many there are.
_POSITIONS = {"MT19937": ("state", "pos", 624), "Philox": (None, "buffer_pos", 4)}


class Decoder:
    """Turns JSON into values.

    Parameters
    ----------
    arrays : list of arrays
    """

    def __init__(self, arrays: Sequence[AnyArray]) -> None:
        self._arrays, self._depth = arrays, 0
        self._uses: list[Any] = [0] * len(arrays)  # None for those that belong to one value alone
        self._left = most_referred(arrays)  # bytes

    def decode(self, tree: Any) -> Any:
        """The value of a JSON tree."""
        self._depth += 1
        if self._depth > MOST_NESTED:
            _refuse(f"values are nested more than {MOST_NESTED} deep.")
        try:
            return self._decoded(tree)
        finally:
            self._depth -= 1

    def check_all_used(self) -> None:
        """Raise if there is an array that nothing refers to."""
        if 0 in self._uses:
            _refuse(f"array {self._uses.index(0)} belongs to nothing.")

    def _decoded(self, tree: Any) -> Any:
        if tree is None or isinstance(tree, (bool, int, str)):
            return tree
        if isinstance(tree, float):
            if not math.isfinite(tree):
                _refuse("a number is too large.")
            return tree
        if isinstance(tree, list):
            return [self.decode(each) for each in tree]
        if not isinstance(tree, dict) or len(tree) != 1:
            _refuse("a value has no kind, or more than one.")
        ((kind, content),) = tree.items()
        if kind not in _METHODS:
            _refuse(f"there is no kind of value {kind[:40]!r}.")
        return _METHODS[kind](self, content)

    def _object(self, content: Any) -> Any:
        name, attributes = _items(content, str, dict)
        declaration = declaration_named(name)
        if declaration is None:
            _refuse(f"there is no class {name[:40]!r}.")
        state = {each: self.decode(value) for each, value in attributes.items()}
        schema.check_attributes(declaration, state)
        return schema.build(declaration, state)

    def _array(self, content: Any) -> AnyArray:
        if type(content) is not int or not 0 <= content < len(self._arrays):
            _refuse("an array is referred to that is not there.")
        if self._uses[content] is None:
            _refuse("an array is referred to that belongs to another value alone.")
        self._uses[content] += 1
        self._left -= self._arrays[content].nbytes
        if self._left < 0:
            _refuse("the same arrays are referred to too often.")
        return self._arrays[content]

    def _own_array(self, content: Any) -> AnyArray:
        """An array that nothing else refers to."""
        array = self._array(content)
        if self._uses[content] != 1:
            _refuse("an array is referred to twice that belongs to one value alone.")
        self._uses[content] = None
        return array

    def _objects(self, content: Any) -> AnyArray:
        shape, elements = _items(content, list, list)
        if len(shape) > _MOST_DIMENSIONS or math.prod(_sizes(shape)) != len(elements):
            _refuse("the shape of an array of objects does not match the number of its elements.")
        result = np.empty(len(elements), dtype=object)
        for i, each in enumerate(elements):
            result[i] = self.decode(each)
        return result.reshape(shape)

    def _ragged(self, content: Any) -> list[AnyArray]:
        joined, lengths = (self._own_array(each) for each in _items(content, int, int))
        if joined.ndim != 1 or lengths.ndim != 1 or lengths.dtype != np.int64 or np.any(lengths < 0):
            _refuse("a list of arrays has no lengths.")
        stops = np.cumsum(lengths)
        if np.any(lengths > len(joined)) or (stops[-1] if len(stops) else 0) != len(joined):
            _refuse("a list of arrays is not as long as its parts.")
        return [joined[stop - length : stop] for stop, length in zip(stops.tolist(), lengths.tolist(), strict=True)]

    def _table(self, content: Any) -> list[tuple[Any, ...]]:
        columns = [self._own_array(each) for each in _list(content)]
        if not columns or any(
            column.shape != columns[0].shape or column.ndim != 1 or column.dtype not in (np.int64, np.float64)
            for column in columns
        ):
            _refuse("the columns of a table are not alike.")
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _tuple(self, content: Any) -> tuple[Any, ...]:
        return tuple(self.decode(each) for each in _list(content))

    def _dict(self, content: Any) -> dict[Any, Any]:
        pairs = [[self.decode(each) for each in _list(pair)] for pair in _list(content)]
        try:
            result = {key: value for key, value in pairs}  # noqa: C416  which tells what is wrong with a pair
        except (TypeError, ValueError):
            _refuse("a dictionary is made of pairs, whose first has a hash.")
        if len(result) != len(pairs):
            _refuse("a dictionary has a key twice.")
        return result

    def _slice(self, content: Any) -> slice:
        parts = [self.decode(each) for each in _list(content)]
        if len(parts) != 3 or not all(each is None or type(each) is int for each in parts):
            _refuse("a slice has a start, a stop and a step.")
        return slice(*parts)

    def _scalar(self, content: Any) -> Any:
        name, text = _items(content, str, str)
        dtype, given = as_dtype(name), _bytes(text)
        if len(given) != dtype.itemsize:
            _refuse(f"a number of dtype {name} is not of its size.")
        if not dtype.itemsize:
            _refuse(f"a number of dtype {name} has no bytes.")
        result = np.frombuffer(given, dtype=dtype)
        check_elements(result)
        return result[0]

    def _sparse(self, content: Any) -> Any:
        layout, shape, *numbers = _items(content, str, list, int, int, int)
        sizes, (data, indices, indptr) = _sizes(shape), (self._array(each) for each in numbers)
        if layout not in ("csc", "csr") or len(sizes) != 2:
            _refuse("a sparse matrix is 'csc' or 'csr', of two dimensions.")
        check_compressed(sizes if layout == "csr" else sizes[::-1], data, indices, indptr)
        matrix = (sparse.csc_array if layout == "csc" else sparse.csr_array)((data, indices, indptr), shape=sizes)
        matrix.indices, matrix.indptr = indices, indptr  # which SciPy may have copied to a smaller dtype
        return matrix

    def _random_state(self, content: Any) -> np.random.RandomState:
        state = self.decode(content)
        result = np.random.RandomState(_bit_generator("MT19937"))
        _restore(lambda: result.set_state(state), state, "MT19937")
        return result

    def _generator(self, content: Any) -> np.random.Generator:
        _list(content)
        if len(content) != 2 or content[0] not in _BIT_GENERATORS:
            _refuse("a random generator is of a kind that an archive does not know.")
        bits, state = _bit_generator(content[0]), self.decode(content[1])
        _restore(lambda: setattr(bits, "state", state), state, content[0])
        return np.random.Generator(bits)


_METHODS: dict[str, Any] = {
    "array": Decoder._array,
    "bytes": lambda _, content: _bytes(content),
    "dict": Decoder._dict,
    "dtype": lambda _, content: as_dtype(content),
    "float": lambda _, content: _special(content),
    "generator": Decoder._generator,
    "int": lambda _, content: _long(content),
    "object": Decoder._object,
    "objects": Decoder._objects,
    "ragged": Decoder._ragged,
    "random_state": Decoder._random_state,
    "scalar": Decoder._scalar,
    "slice": Decoder._slice,
    "sparse": Decoder._sparse,
    "table": Decoder._table,
    "tuple": Decoder._tuple,
}


def as_dtype(name: Any) -> np.dtype[Any]:
    """The dtype of a name, if an archive may have it."""
    if not isinstance(name, str) or not DTYPE.fullmatch(name):
        _refuse(f"there is no dtype {str(name)[:40]!r} in an archive.")
    try:
        dtype = np.dtype(name)
    except TypeError:
        _refuse(f"there is no dtype {name[:40]!r}.")
    if dtype.str != name:  # two names of one dtype would be two archives of one model
        _refuse(f"there is no dtype {name[:40]!r} in an archive.")
    return dtype


def check_elements(array: AnyArray) -> None:
    """Raise if bytes do not make elements: truth values other than 0 and 1, text that is not Unicode."""
    if array.dtype.kind == "b" and array.size:
        need(int(array.view(np.uint8).max()) <= 1, "a truth value is neither true nor false.")
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        codes = np.ndarray((array.size, array.dtype.itemsize // 4), dtype=f"{array.dtype.byteorder}u4", buffer=array.T)
        need(int(codes.max()) <= 0x10FFFF, "text is not Unicode.")


def _list(content: Any) -> list[Any]:
    if not isinstance(content, list):
        _refuse("a list is missing.")
    return content


def _items(content: Any, *kinds: type) -> list[Any]:
    items = _list(content)
    if len(items) != len(kinds) or not all(type(item) is kind for item, kind in zip(items, kinds, strict=True)):
        _refuse(f"a value is not made of {', '.join(kind.__name__ for kind in kinds)}.")
    return items


def _sizes(shape: Any) -> tuple[int, ...]:
    if not all(type(each) is int and 0 <= each < 2**62 for each in _list(shape)):
        _refuse("a shape is not made of sizes.")
    return tuple(shape)


def _bytes(content: Any) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except (TypeError, ValueError, binascii.Error):
        _refuse("bytes are not in base64.")


def _special(content: Any) -> float:
    if content not in ("nan", "inf", "-inf"):
        _refuse("a number that is none is 'nan', 'inf' or '-inf'.")
    return float(content)


def _long(content: Any) -> int:
    if not isinstance(content, str) or len(content) > LONGEST_INT or not _HEXADECIMAL.fullmatch(content):
        _refuse("an integer is not hexadecimal, or too long.")
    return int(content, 16)


def _bit_generator(name: str) -> Any:
    return getattr(np.random, name)(0)


def _restore(assign: Any, state: Any, name: str) -> None:
    """Give a generator its state; NumPy checks most of it."""
    try:
        if name in _POSITIONS:
            part, key, largest = _POSITIONS[name]
            position = (state[part] if part else state)[key]
            if isinstance(position, bool) or not 0 <= int(position) <= largest:
                _refuse("the state of a random generator is not one.")
        assign()
    except (TypeError, ValueError, KeyError, IndexError, OverflowError, AttributeError) as error:
        msg = "the state of a random generator is not one."
        raise ArchiveError(msg) from error


def _refuse(message: str) -> NoReturn:
    raise ArchiveError(message)
