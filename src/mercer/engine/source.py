"""Rows that stay where they are, with their targets and weights: in files, or in the memory of other machines.

A ``Source`` reads what is asked for, a piece at a time. To a table it looks like rows (``SourceRows``), labels and
weights (``SourceColumn``). Where a table has several of them from one source, each piece is read once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine.rows import Block, Rows

Field = Literal["rows", "labels", "weights"]
ALL: tuple[Field, ...] = ("rows", "labels", "weights")


class Piece(NamedTuple):
    """Some rows of a source: of what was asked for, the rest is None."""

    rows: FloatArray | None = None  # (T, d), C-contiguous
    labels: AnyArray | None = None  # (T,) or (T, p), as they are stored
    weights: AnyArray | None = None  # (T,)

    def part(self, where: Block) -> Piece:
        """Some of these rows."""
        return Piece(*(None if each is None else each[where] for each in self))

    @classmethod
    def joined(cls, pieces: list[Piece]) -> Piece:
        """The rows of all, in order."""
        return cls(*(None if each[0] is None else np.concatenate(each) for each in zip(*pieces, strict=True)))


class Source(ABC):
    """Rows, and their labels and weights where there are any, that are read when they are needed.

    A new kind (a file format, a cluster) is a subclass with ``pieces``, ``take`` and ``shipped``. One whose rows an
    engine puts in place (``has_inputs``) also has ``inputs``, and ships rows anywhere, not only slices.
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]  # of the rows, float32 or float64
    bounds: tuple[int, ...]  # where its partitions begin and end: rows 0 to n_rows
    feature_names: tuple[str, ...] | None = None
    label_shape: tuple[int, ...] | None = None  # () for one label a row, (p,) for p; None without labels
    has_weights: bool = False
    has_inputs: bool = False

    @abstractmethod
    def pieces(self, first: int, last: int, size: int, fields: tuple[Field, ...]) -> Iterator[Piece]:
        """Rows first to last, in order, in pieces of ``size`` rows (the last one shorter).

        Rows are checked for NaN and infinity, by an error that says where they are.
        """

    @abstractmethod
    def take(self, index: IntArray, fields: tuple[Field, ...]) -> Piece:
        """The given rows, in this order."""

    @abstractmethod
    def shipped(self, where: Any) -> Source:
        """The given rows, a slice, as a source to be read elsewhere, which pickles with no more than it needs."""

    def inputs(self, where: Block, fields: tuple[Field, ...]) -> tuple[Any, ...]:
        """What an engine of its own must put in place before the shipped rows can be read there; usually nothing."""
        return ()

    def put(self, inputs: Sequence[Any]) -> None:  # noqa: B027  most have nothing to put
        """Put it in place."""

    def with_features(self, names: tuple[str, ...]) -> Source:
        """The source with its features in this order."""
        raise ValueError(f"the features of {self!r} have no names.")

    def fingerprint(self) -> dict[str, str]:
        """What changes when the rows do, by names that an error can say, without reading the rows."""
        return {"rows of X": f"{type(self).__name__}, ({self.n_rows}, {self.n_features}), {self.dtype}, {self.bounds}"}

    def label(self, row: int) -> str:
        """Where a row is, for messages."""
        return f"row {row}"

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.n_rows


class SourceRows(Rows):
    """The rows of a source."""

    def __init__(self, source: Source, *, bare: bool = False) -> None:
        self.source, self._bare = source, bare  # bare: without their features, for passes over labels and weights
        self.n_rows, self.n_features, self.dtype = source.n_rows, 0 if bare else source.n_features, source.dtype

    @property
    def fields(self) -> tuple[Field, ...]:
        """What is read of the source."""
        return () if self._bare else ("rows",)

    def bare(self) -> SourceRows:
        """These rows without their features."""
        return SourceRows(self.source, bare=True)

    def of(self, piece: Piece, n_rows: int) -> FloatArray:
        """The rows of a piece."""
        return np.empty((n_rows, 0)) if piece.rows is None else piece.rows

    def bounds(self) -> list[int]:
        """As the source is partitioned."""
        return list(self.source.bounds)

    def read(self, start: int, stop: int) -> FloatArray:
        """Rows start to stop."""
        if self._bare or stop <= start:
            return np.empty((max(stop - start, 0), self.n_features), self.dtype)
        return self.of(_whole(self.source, start, stop, self.fields), stop - start)

    def take(self, indices: IntArray) -> FloatArray:
        """The given rows."""
        return self.of(self.source.take(indices, self.fields), len(indices))

    def tiles(self, first: int, last: int, size: int) -> Iterator[tuple[int, int, FloatArray]]:
        """Rows first to last in tiles."""
        starts = range(first, last, size)
        for start, piece in zip(starts, self.source.pieces(first, last, size, self.fields), strict=True):
            stop = min(start + size, last)
            yield start, stop, self.of(piece, stop - start)

    def some_tiles(self, index: IntArray, size: int) -> Iterator[FloatArray]:
        """The given rows in tiles, in one stream if they are in order: each piece is read once."""
        if len(index) <= size or np.any(np.diff(index) <= 0):
            yield from super().some_tiles(index, size)
            return
        first, last = int(index[0]), int(index[-1]) + 1
        waiting: list[FloatArray] = []
        for start, stop, rows in self.tiles(first, last, size):
            low, high = np.searchsorted(index, [start, stop])
            waiting.append(rows[index[low:high] - start])
            if sum(map(len, waiting)) >= size:
                joined = np.concatenate(waiting)
                waiting = [joined[size:]]
                yield joined[:size]
        if sum(map(len, waiting)):
            yield np.concatenate(waiting)

    def shipped(self, where: Block) -> Rows:
        """A slice as a source of its own; of rows anywhere, copies."""
        if isinstance(where, slice) or self.source.has_inputs:
            return SourceRows(self.source.shipped(where), bare=self._bare)
        return super().shipped(where)

    def inputs(self, where: Block, fields: tuple[Any, ...]) -> tuple[Any, ...]:
        """Those of the source."""
        return self.source.inputs(where, fields)

    def put(self, inputs: Sequence[Any]) -> None:
        """Hand them on."""
        self.source.put(inputs)

    def fingerprint(self) -> dict[str, str]:
        """That of the source."""
        return self.source.fingerprint()


@dataclass(frozen=True, eq=False)
class SourceColumn(NDArrayOperatorsMixin):
    """Labels or weights of a source, read when they are indexed; NumPy's functions and operators read all of them."""

    source: Source
    field: Field  # "labels" or "weights"
    encoder: Any = None  # for class labels: an object whose ``codes`` tells their places among the classes
    factors: FloatArray | None = None  # (k,), of weights: what those of each class are multiplied by
    are_counts: bool = True  # of weights: whether they are numbers of equal rows
    as_they_are: bool = False  # labels of any type, not numbers

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """What is read of the source."""
        if self.factors is None:
            return (self.field,)
        return ("labels", "weights") if self.source.has_weights else ("labels",)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,) for codes and weights, else (n, p)."""
        if self.field == "weights" or self.encoder is not None:
            return (self.source.n_rows,)
        return (self.source.n_rows, *(self.source.label_shape or (1,)))

    def of(self, piece: Piece, where: Block) -> AnyArray:
        """The values of a piece, which has these rows."""
        if self.factors is not None:
            factors = self.factors[self.encoder.codes(piece.labels)]
            return np.asarray(factors if piece.weights is None else factors * piece.weights)
        values = np.asarray(getattr(piece, self.field))
        if self.as_they_are:
            return values
        if self.encoder is not None:
            return np.asarray(self.encoder.codes(values))
        if self.field == "labels":
            values = values.reshape(len(values), *self.shape[1:])
        values = values.astype(np.float64, copy=False)
        if not np.all(np.isfinite(values)):
            row = int(np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))[0])
            what = "y" if self.field == "labels" else "sample_weight"
            raise ValueError(f"Input {what} contains NaN or infinity ({self.source.label(number_in(where, row))}).")
        return values

    @property
    def ndim(self) -> int:
        """1 for codes and weights, else 2."""
        return len(self.shape)

    def at(self, source: Source) -> SourceColumn:
        """The same column of another source."""
        return replace(self, source=source)

    def __getitem__(self, where: Block) -> AnyArray:
        """The values of some rows."""
        if isinstance(where, slice):
            start, stop, _ = where.indices(self.source.n_rows)
            if stop <= start:
                return np.empty((0, *self.shape[1:]))
            return self.of(_whole(self.source, start, stop, self.fields), slice(start, stop))
        index = np.asarray(where)
        return self.of(self.source.take(index, self.fields), index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """All values."""
        return np.asarray(self[:], dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute with all values."""
        arrays = (np.asarray(each) if isinstance(each, SourceColumn) else each for each in inputs)
        return getattr(ufunc, method)(*arrays, **options)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.source.n_rows


def _whole(source: Source, start: int, stop: int, fields: tuple[Field, ...]) -> Piece:
    return Piece.joined(list(source.pieces(start, stop, max(stop - start, 1), fields)))


class Chunk(Source):
    """Rows in memory as a source, or a place for them: ``piece`` is put there where they are."""

    def __init__(self, n_rows: int, like: Source, piece: Piece | None = None, first: int = 0) -> None:
        self.n_rows, self.bounds, self.piece, self._first = n_rows, (0, n_rows), piece, first
        self.n_features, self.dtype, self.label_shape = like.n_features, like.dtype, like.label_shape
        self.has_weights, self.feature_names = like.has_weights, like.feature_names

    def pieces(self, first: int, last: int, size: int, fields: tuple[Field, ...]) -> Iterator[Piece]:
        """Views of the arrays."""
        for start in range(first, last, size):
            yield self._checked(self._given(fields), slice(start, min(start + size, last)))

    def take(self, index: IntArray, fields: tuple[Field, ...]) -> Piece:
        """Copies of the given rows."""
        return self._checked(self._given(fields), index)

    def shipped(self, where: slice) -> Source:
        """Views of the given rows."""
        start, stop, _ = where.indices(self.n_rows)
        return Chunk(stop - start, self, self._given(ALL).part(where), self._first + start)

    def label(self, row: int) -> str:
        """Its number in the table from which the rows come."""
        return f"row {self._first + row}"

    def _given(self, fields: tuple[Field, ...]) -> Piece:
        if self.piece is None:
            raise ValueError("these rows are elsewhere.")
        return Piece(*(values if name in fields else None for name, values in zip(ALL, self.piece, strict=True)))

    def _checked(self, given: Piece, where: Block) -> Piece:
        piece = given.part(where)
        if piece.rows is None:
            return piece
        rows = np.ascontiguousarray(piece.rows, dtype=self.dtype)
        check_finite_rows(rows, where, self)
        return piece._replace(rows=rows)


def check_finite_rows(rows: FloatArray, where: Block, source: Source) -> None:
    """Refuse NaN and infinity in some rows of a source, by the place of the first row that has them."""
    if np.all(np.isfinite(rows)):
        return
    row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
    column = int(np.flatnonzero(~np.isfinite(rows[row]))[0])
    names = source.feature_names
    title = f"column {column}" if names is None else f"column {names[column]!r}"
    raise ValueError(f"Input X contains NaN or infinity ({source.label(number_in(where, row))}, {title}).")


def number_in(where: Block, row: int) -> int:
    """The number in a source of a row among some."""
    return int(where.start + row if isinstance(where, slice) else where[row])
