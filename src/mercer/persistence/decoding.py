"""JSON and arrays as Python values again: the inverse of ``encoding``, which has the table of what there is.

Nothing here imports what a file names, or calls what it describes. What is built is bounded by the size of the file:
arrays that become Python objects (``ragged``, ``table``) belong to one value each, and others, which objects may copy,
are not referred to without end. Whatever does not fit is an ``ArchiveError``.
"""

import base64
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from mercer._stored import declaration_named
from mercer._stored.checks import check_compressed, need, refusing
from mercer._typing import AnyArray
from mercer.exceptions import ArchiveError
from mercer.persistence import schema
from mercer.persistence.encoding import DTYPE, LONGEST_INT, MOST_NESTED, most_referred

_MOST_DIMENSIONS = 32
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
# How many numbers a generator has ready: it reads them without asking how many there are.
_POSITIONS = {"MT19937": ("state", "pos", 624), "Philox": (None, "buffer_pos", 4)}


def decode(tree: Any, arrays: Sequence[AnyArray]) -> Any:
    """The value of a JSON tree and its arrays, all of which must belong to it."""
    decoder = _Decoder(arrays)
    value = decoder.decode(tree)
    if 0 in decoder.uses:
        raise ArchiveError(f"array {decoder.uses.index(0)} belongs to nothing.")
    return value


class _Decoder:
    def __init__(self, arrays: Sequence[AnyArray]) -> None:
        self.uses: list[Any] = [0] * len(arrays)  # None for those that belong to one value alone
        self._arrays, self._depth = arrays, 0
        self._left = most_referred(arrays)  # bytes

    def decode(self, tree: Any) -> Any:
        self._depth += 1
        need(self._depth <= MOST_NESTED, f"values are nested more than {MOST_NESTED} deep.")
        value = self._decoded(tree)
        self._depth -= 1
        return value

    def items(self, content: Any) -> list[Any]:
        return [self.decode(each) for each in _list(content)]

    def array(self, content: Any) -> AnyArray:
        there = type(content) is int and 0 <= content < len(self._arrays)
        need(there, "an array is referred to that is not there.")
        need(self.uses[content] is not None, "an array is referred to that belongs to another value alone.")
        self.uses[content] += 1
        array: AnyArray = self._arrays[content]
        self._left -= array.nbytes
        need(self._left >= 0, "the same arrays are referred to too often.")
        return array

    def own_array(self, content: Any) -> AnyArray:
        """An array that nothing else refers to."""
        array = self.array(content)
        need(self.uses[content] == 1, "an array is referred to twice that belongs to one value alone.")
        self.uses[content] = None
        return array

    def _decoded(self, tree: Any) -> Any:
        if tree is None or isinstance(tree, (bool, int, str)):
            return tree
        if isinstance(tree, float):
            need(math.isfinite(tree), "a number is NaN, or too large.")
            return tree
        if isinstance(tree, list):
            return self.items(tree)
        need(isinstance(tree, dict) and len(tree) == 1, "a value has no kind, or more than one.")
        ((kind, content),) = tree.items()
        need(kind in _KINDS, f"there is no kind of value {kind[:40]!r}.")
        return _KINDS[kind](self, content)

    def _object(self, content: Any) -> Any:
        name, attributes = _parts(content, str, dict)
        declaration = declaration_named(name)
        if declaration is None:
            hint = " Is river installed?" if name.startswith("river.") else ""
            raise ArchiveError(f"there is no class {name[:40]!r}.{hint}")
        state = {each: self.decode(value) for each, value in attributes.items()}
        schema.check_attributes(declaration, state)
        return schema.build(declaration, state)

    def _objects(self, content: Any) -> AnyArray:
        shape, elements = _parts(content, list, list)
        fits = math.prod(as_shape(shape, "an array of objects")) == len(elements)
        need(fits, "the shape of an array of objects does not match the number of its elements.")
        result = np.empty(len(elements), dtype=object)
        for i, each in enumerate(elements):  # one by one: NumPy would take tuples apart
            result[i] = self.decode(each)
        return result.reshape(shape)

    def _ragged(self, content: Any) -> list[AnyArray]:
        joined, lengths = map(self.own_array, _parts(content, int, int))
        counts = joined.ndim == lengths.ndim == 1 and lengths.dtype == np.int64 and np.all(lengths >= 0)
        need(counts, "a list of arrays has no lengths.")
        stops = np.cumsum(lengths)
        whole = np.all(lengths <= len(joined)) and (stops[-1] if len(stops) else 0) == len(joined)
        need(whole, "a list of arrays is not as long as its parts.")
        return [joined[stop - length : stop] for stop, length in zip(stops.tolist(), lengths.tolist(), strict=True)]

    def _table(self, content: Any) -> list[tuple[Any, ...]]:
        columns = [self.own_array(each) for each in _list(content)]
        alike = columns and all(
            column.shape == columns[0].shape and column.ndim == 1 and column.dtype in (np.int64, np.float64)
            for column in columns
        )
        need(alike, "the columns of a table are not alike.")
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _dict(self, content: Any) -> dict[Any, Any]:
        pairs = [self.items(pair) for pair in _list(content)]
        with refusing("a dictionary is made of pairs, whose first has a hash"):
            result = {key: value for key, value in pairs}  # noqa: C416  which tells what is wrong with a pair
        need(len(result) == len(pairs), "a dictionary has a key twice.")
        return result

    def _slice(self, content: Any) -> slice:
        parts = self.items(content)
        numbers = len(parts) == 3 and all(each is None or type(each) is int for each in parts)
        need(numbers, "a slice has a start, a stop and a step.")
        return slice(*parts)

    def _scalar(self, content: Any) -> Any:
        name, text = _parts(content, str, str)
        dtype, given = as_dtype(name), _bytes(text)
        need(0 < len(given) == dtype.itemsize, f"a number of dtype {name} is not of its size, or has none.")
        result = np.frombuffer(given, dtype=dtype)
        check_elements(result)
        return result[0]

    def _sparse(self, content: Any) -> Any:
        layout, shape, *numbers = _parts(content, str, list, int, int, int)
        sizes, (data, indices, indptr) = as_shape(shape, "a sparse matrix"), map(self.array, numbers)
        need(layout in ("csc", "csr") and len(sizes) == 2, "a sparse matrix is 'csc' or 'csr', of two dimensions.")
        check_compressed(sizes if layout == "csr" else sizes[::-1], data, indices, indptr)
        matrix = (sparse.csc_array if layout == "csc" else sparse.csr_array)((data, indices, indptr), shape=sizes)
        matrix.indices, matrix.indptr = indices, indptr  # which SciPy may have copied to a smaller dtype
        return matrix

    def _random_state(self, content: Any) -> np.random.RandomState:
        result = np.random.RandomState(np.random.MT19937(0))
        _restore(result.set_state, self.decode(content), "MT19937")
        return result

    def _generator(self, content: Any) -> np.random.Generator:
        known = len(_list(content)) == 2 and content[0] in _BIT_GENERATORS
        need(known, "a random generator is of a kind that an archive does not know.")
        bits = getattr(np.random, content[0])(0)
        _restore(partial(setattr, bits, "state"), self.decode(content[1]), content[0])
        return np.random.Generator(bits)

    def _int(self, content: Any) -> int:
        valid = isinstance(content, str) and len(content) <= LONGEST_INT and re.fullmatch(r"-?0x[0-9a-f]+", content)
        need(valid, "an integer is not hexadecimal, or too long.")
        return int(content, 16)

    def _float(self, content: Any) -> float:
        need(content in ("nan", "inf", "-inf"), "a number that is none is 'nan', 'inf' or '-inf'.")
        return float(content)


_KINDS: dict[str, Callable[[_Decoder, Any], Any]] = {
    "array": _Decoder.array,
    "bytes": lambda _decoder, content: _bytes(content),
    "dict": _Decoder._dict,
    "dtype": lambda _decoder, content: as_dtype(content),
    "float": _Decoder._float,
    "generator": _Decoder._generator,
    "int": _Decoder._int,
    "object": _Decoder._object,
    "objects": _Decoder._objects,
    "ragged": _Decoder._ragged,
    "random_state": _Decoder._random_state,
    "scalar": _Decoder._scalar,
    "slice": _Decoder._slice,
    "sparse": _Decoder._sparse,
    "table": _Decoder._table,
    "tuple": lambda decoder, content: tuple(decoder.items(content)),
}


def as_dtype(name: Any) -> np.dtype[Any]:
    """The dtype of a name, if an archive may have it."""
    unknown = f"there is no dtype {str(name)[:40]!r} in an archive"
    need(isinstance(name, str) and DTYPE.fullmatch(name), unknown)
    with refusing(unknown):
        dtype: np.dtype[Any] = np.dtype(name)
    need(dtype.str == name, unknown)  # two names of one dtype would be two archives of one model
    return dtype


def as_shape(shape: Any, what: str) -> tuple[int, ...]:
    """The shape of an array, which messages call by that name."""
    sizes = len(_list(shape)) <= _MOST_DIMENSIONS and all(type(each) is int and 0 <= each < 2**62 for each in shape)
    need(sizes, f"{what} has no shape.")
    return tuple(shape)


def check_elements(array: AnyArray) -> None:
    """Raise if bytes do not make elements: truth values other than 0 and 1, text that is not Unicode."""
    if array.dtype.kind == "b" and array.size:
        need(int(array.view(np.uint8).max()) <= 1, "a truth value is neither true nor false.")
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        codes = np.ndarray((array.size, array.dtype.itemsize // 4), dtype=f"{array.dtype.byteorder}u4", buffer=array.T)
        need(int(codes.max()) <= 0x10FFFF, "text is not Unicode.")


def _list(content: Any) -> Any:
    need(isinstance(content, list), "a list is missing.")
    return content


def _parts(content: Any, *kinds: type) -> Any:
    valid = list(map(type, _list(content))) == list(kinds)
    need(valid, f"a value is not made of {', '.join(kind.__name__ for kind in kinds)}.")
    return content


def _bytes(content: Any) -> bytes:
    with refusing("bytes are not in base64"):
        return base64.b64decode(content, validate=True)


def _restore(assign: Callable[[Any], None], state: Any, name: str) -> None:
    """Give a generator its state; NumPy checks most of it."""
    wrong = "the state of a random generator is not one"
    with refusing(wrong):
        if name in _POSITIONS:
            part, key, largest = _POSITIONS[name]
            position = (state[part] if part else state)[key]
            need(not isinstance(position, bool) and 0 <= int(position) <= largest, wrong)
        assign(state)
