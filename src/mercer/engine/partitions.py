"""Dask collections as a source of rows: arrays, data frames, or lists of delayed partitions, held by other machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from mercer._typing import AnyArray, IntArray
from mercer._validation import check_numbers
from mercer.engine.executors.dask import client_of, gather, in_order, submit
from mercer.engine.rows import Block
from mercer.engine.source import ALL, Chunk, Field, Piece, Source

Triple = tuple[Any, Any, Any]  # partitions of rows, labels and weights; None for what is not asked for


@dataclass(frozen=True)
class Partitioned:
    """A collection as a list of partitions, and what is known of them."""

    parts: list[Any]
    lengths: list[int]
    shape: tuple[int, ...]  # of what belongs to a row
    is_single: bool  # whether its numbers have single precision
    names: tuple[str, ...] | None = None  # of columns


class Place(Chunk):
    """Rows to be put in place where they are worked on."""

    def __init__(self, like: DaskSource, where: Block, lengths: Sequence[int], order: IntArray | None) -> None:
        super().__init__(sum(lengths), like)
        self._where, self._lengths, self._order, self._columns = where, list(lengths), order, like.columns

    def label(self, row: int) -> str:
        """Its number in the collection."""
        return f"row {self._where.start + row if isinstance(self._where, slice) else self._where[row]}"

    def put(self, inputs: Sequence[Triple]) -> None:
        """Take what was read of each partition."""
        read = [self._read(triple, length) for triple, length in zip(inputs, self._lengths, strict=bool(inputs))]
        piece = Piece.joined(read) if len(read) > 1 else (read or [self._nothing()])[0]
        self.piece = piece if self._order is None else piece.part(self._order)

    def _nothing(self) -> Piece:
        labels = None if self.label_shape is None else np.empty((0, *self.label_shape))
        return Piece(np.empty((0, self.n_features), self.dtype), labels, np.empty(0) if self.has_weights else None)

    def _read(self, triple: Triple, length: int) -> Piece:
        rows, labels, weights = triple
        _check_length(triple, length)
        return Piece(
            None if rows is None else _as_rows(rows, self.dtype, self._columns),
            None if labels is None else np.asarray(labels),
            None if weights is None else np.asarray(weights, dtype=np.float64),
        )


class DaskSource(Source):
    """Rows of a Dask collection, one chunk of rows in each task; with labels and weights, partitioned as they are.

    It knows no client, and is pickled without its rows. Each pass computes again what is not persisted.
    """

    has_inputs = True

    def __init__(self, X: Any, y: Any = None, sample_weight: Any = None) -> None:
        given = {"X": X, "y": y, "sample_weight": sample_weight}
        found = _described({name: each for name, each in given.items() if each is not None})
        rows = found["X"]
        if len(rows.shape) != 1:
            raise ValueError(f"X must have two dimensions, got {len(rows.shape) + 1}.")
        used = [i for i, length in enumerate(rows.lengths) if length]
        if not used:
            raise ValueError("Found array with 0 sample(s) in X: all of its partitions are empty.")
        self._parts = [rows.parts[i] for i in used]
        self._lengths = [rows.lengths[i] for i in used]
        self.bounds = tuple(np.cumsum([0, *self._lengths]).tolist())
        self._beside = [_aligned(found.get(name), self._lengths, name) for name in ("y", "sample_weight")]
        self.n_rows, self.n_features, self.columns = self.bounds[-1], rows.shape[0], rows.names
        self.dtype = np.dtype(np.float32 if rows.is_single else np.float64)
        self.feature_names = rows.names
        self.label_shape = found["y"].shape if "y" in found else None
        self.has_weights = "sample_weight" in found
        if self.has_weights and found["sample_weight"].shape:
            raise ValueError("Sample weights must be 1D array or scalar")

    def pieces(self, first: int, last: int, size: int, fields: tuple[Field, ...]) -> Iterator[Piece]:
        """Read partitions in their order, one ahead."""
        starts = range(first, last, size)
        if not fields:
            yield from (Piece() for _ in starts)
            return
        spans = [(max(a, first), min(b, last)) for a, b in pairwise(self.bounds) if a < last and b > first]
        places = [self.shipped(slice(*span)) for span in spans]
        asked = (submit(_together, list(self.inputs(slice(*span), fields))) for span in spans)
        read = in_order(asked, client_of(self._parts[:1]))
        yield from _cut(_checked(places, read, fields), size)

    def take(self, index: IntArray, fields: tuple[Field, ...]) -> Piece:
        """Rows taken from each partition where it is."""
        place = self.shipped(index)
        place.put(gather([submit(_together, list(self.inputs(index, fields)))], client_of(self._parts[:1]))[0])
        return place.take(np.arange(place.n_rows), fields)

    def shipped(self, where: Block) -> Place:
        """A place for the rows."""
        spread, order = self._spread(where)
        return Place(self, where, [_length(rows) for _, rows in spread], order)

    def inputs(self, where: Block, fields: tuple[Field, ...]) -> tuple[Any, ...]:
        """Whole partitions, or what is taken of them."""
        if not fields:
            return ()
        found = []
        for number, rows in self._spread(where)[0]:
            columns = (self._parts, *self._beside)
            triple = tuple(
                None if column is None or name not in fields else column[number]
                for name, column in zip(ALL, columns, strict=True)
            )
            is_whole = isinstance(rows, slice) and _length(rows) == self._lengths[number]
            found.append(triple if is_whole else submit(_some, triple, rows, self._lengths[number]))
        return tuple(found)

    def with_features(self, names: tuple[str, ...]) -> DaskSource:
        """The source with its columns in this order."""
        if self.feature_names is None or set(names) != set(self.feature_names):
            raise ValueError(
                f"the columns of X must be those seen during fit, {list(names)}; they are {self.feature_names}."
            )
        other = object.__new__(DaskSource)
        vars(other).update(vars(self) | {"columns": names, "feature_names": names})
        return other

    def _spread(self, where: Block) -> tuple[list[tuple[int, Block]], IntArray | None]:
        """Which rows of which partitions, and, where they are joined in another order, the places of the rows."""
        bounds = self.bounds
        if isinstance(where, slice):
            first, last, _ = where.indices(self.n_rows)
            spans = [(i, a, b) for i, (a, b) in enumerate(pairwise(bounds)) if a < last and b > first]
            return [(i, slice(max(a, first) - a, min(b, last) - a)) for i, a, b in spans], None
        index = np.asarray(where, dtype=np.intp)
        number = np.searchsorted(bounds, index, side="right") - 1
        order = np.argsort(number, kind="stable")
        ends = np.searchsorted(number[order], [*range(len(bounds))])
        spread: list[tuple[int, Block]] = [
            (i, index[order[start:end]] - bounds[i]) for i, (start, end) in enumerate(pairwise(ends)) if end > start
        ]
        return spread, np.argsort(order, kind="stable")

    def __reduce__(self) -> tuple[Any, ...]:
        return _elsewhere, (self.n_rows, self.n_features, self.dtype, self.label_shape, self.has_weights)


def _elsewhere(n_rows: int, n_features: int, dtype: Any, label_shape: Any, has_weights: bool) -> Chunk:
    """What a pickle knows of rows that it does not hold."""
    like: Any = object.__new__(DaskSource)
    like.n_features, like.dtype, like.label_shape, like.has_weights = n_features, dtype, label_shape, has_weights
    return Chunk(n_rows, like)


# --------------------------------------------------------------------------------------------------- partitions


def _described(given: dict[str, Any]) -> dict[str, Partitioned]:
    """What is given, as partitions; lengths that are not known are counted, all at once."""
    found = {name: _partitioned(each, name) for name, each in given.items()}
    unknown = [name for name, each in found.items() if None in each.lengths]
    tasks = [submit(_look, part) for name in unknown for part in found[name].parts]
    looks = iter(gather(tasks, client_of(tasks)) if tasks else [])
    for name in unknown:
        seen = [next(looks) for _ in found[name].parts]
        found[name] = replace(found[name], lengths=[shape[0] for shape, _, _ in seen])
        if found[name].shape is None:  # of a list of tasks, of which nothing is known
            shape, is_single, names = next((each for each in seen if each[0][0]), seen[0])
            found[name] = replace(found[name], shape=shape[1:], is_single=is_single, names=names)
    return found


def _partitioned(values: Any, name: str) -> Partitioned:
    """Partitions of a collection, or of an array in memory that goes with one."""
    unknown: Any = None
    if isinstance(values, list) and values and hasattr(values[0], "dask"):
        return Partitioned(values, [unknown] * len(values), unknown, False)
    if hasattr(values, "to_dask_array"):
        meta, parts = values._meta, list(values.to_delayed())
        if name == "X":
            _check_columns(check_numbers(meta, name))
        return Partitioned(parts, [unknown] * len(parts), meta.shape[1:], _is_single(meta), _names(meta))
    if not hasattr(values, "dask"):
        array = np.asarray(values)
        return Partitioned([array], [len(array)], array.shape[1:], array.dtype == np.float32)
    if name == "X":
        check_numbers(values._meta, name)
    if values.npartitions > values.numblocks[0]:
        values = values.rechunk(dict.fromkeys(range(1, values.ndim), -1))
    lengths = [unknown if np.isnan(length) else int(length) for length in values.chunks[0]]
    return Partitioned(values.to_delayed().ravel().tolist(), lengths, values.shape[1:], values.dtype == np.float32)


def _check_columns(frame: Any) -> None:
    """Refuse columns that are no numbers, which conversion would meet in the middle of the work."""
    for title, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if dtype.kind not in "biuf":
            raise TypeError(
                f"column {title!r} of X must hold numbers, got {dtype}: encode them as numbers, for example by "
                "scikit-learn's OneHotEncoder."
            )


def _look(part: Any) -> tuple[tuple[int, ...], bool, tuple[str, ...] | None]:
    return np.shape(part), _is_single(part), _names(part)


def _is_single(part: Any) -> bool:
    dtypes = part.dtypes if hasattr(part, "columns") else [getattr(part, "dtype", None)]
    return all(dtype == np.float32 for dtype in dtypes)


def _names(part: Any) -> tuple[str, ...] | None:
    names = tuple(getattr(part, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def _aligned(column: Partitioned | None, lengths: list[int], name: str) -> list[Any] | None:
    """Partitions of labels or weights, cut as the rows are."""
    if column is None:
        return None
    if sum(column.lengths) != sum(lengths):
        raise ValueError(f"X and {name} must have the same rows: {sum(lengths)} and {sum(column.lengths)}.")
    used = [i for i, length in enumerate(column.lengths) if length]
    if [column.lengths[i] for i in used] == lengths:
        return [column.parts[i] for i in used]
    ends, starts = np.cumsum(column.lengths), np.cumsum([0, *column.lengths])
    found = []
    for first, last in pairwise(np.cumsum([0, *lengths]).tolist()):
        here = np.flatnonzero((starts[:-1] < last) & (ends > first))
        parts, offset = [column.parts[i] for i in here], int(starts[here[0]])
        if isinstance(parts[0], np.ndarray):
            found.append(parts[0][first - offset : last - offset])
        else:
            found.append(submit(_joined, parts, first - offset, last - offset))
    return found


def _length(rows: Block) -> int:
    return int(rows.stop - rows.start) if isinstance(rows, slice) else len(rows)


# -------------------------------------------------------------------------------------------------------- tasks


def _check_length(triple: Triple, n_rows: int) -> None:
    for each in triple:
        if each is not None and np.shape(each)[0] != n_rows:
            raise ValueError(
                f"a partition that had {n_rows} rows has {np.shape(each)[0]} now: what makes it must give the same "
                "rows each time. Call persist() on it, or write it to files."
            )


def _together(triples: list[Triple]) -> list[Triple]:
    return triples


def _some(triple: Triple, rows: Block, n_rows: int) -> Triple:
    _check_length(triple, n_rows)
    rows_, labels, weights = (
        None if each is None else each.iloc[rows] if hasattr(each, "iloc") else each[rows] for each in triple
    )
    return rows_, labels, weights


def _joined(parts: list[Any], first: int, last: int) -> AnyArray:
    return np.concatenate([np.asarray(part) for part in parts])[first:last]


def _as_rows(part: Any, dtype: Any, columns: tuple[str, ...] | None) -> AnyArray:
    if hasattr(part, "columns"):
        part = part if columns is None else part[list(columns)]
        return np.ascontiguousarray(part.to_numpy(dtype=dtype, na_value=np.nan))
    return np.ascontiguousarray(part.toarray() if hasattr(part, "toarray") else part, dtype=dtype)


def _checked(places: list[Place], read: Iterator[list[Triple]], fields: tuple[Field, ...]) -> Iterator[Piece]:
    """Whole partitions, whose rows are checked."""
    for place, inputs in zip(places, read, strict=True):
        place.put(inputs)
        yield from place.pieces(0, place.n_rows, place.n_rows, fields)


def _cut(pieces: Iterator[Piece], size: int) -> Iterator[Piece]:
    """The rows of pieces of any size in pieces of this size."""
    waiting: list[Piece] = []
    n_waiting = 0
    for piece in pieces:
        n_rows, start = len(next(each for each in piece if each is not None)), 0
        while start < n_rows:
            stop = min(start + size - n_waiting, n_rows)
            waiting.append(piece.part(slice(start, stop)))
            n_waiting, start = n_waiting + stop - start, stop
            if n_waiting == size:
                yield waiting[0] if len(waiting) == 1 else Piece.joined(waiting)
                waiting, n_waiting = [], 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else Piece.joined(waiting)
