"""Memory maps as a source: .npy files, members of .npz files, and what was spooled of other files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from mercer._typing import AnyArray, IntArray
from mercer.engine import Field, Piece, Source
from mercer.files.file_source import FileSource, Stamp, even_bounds
from mercer.files.spool import Spool

_PICKED = 512  # rows taken of one map: where one is read, systems map some pages around it
_LOCAL_HEADER = 30  # bytes of a zip file's header of a member, before its name


@dataclass(frozen=True)
class Mapped:
    """An array in a file, mapped when it is read, and the columns of it that are meant."""

    stamp: Stamp  # of the file that was scanned
    path: str  # of the one that is mapped: the same, or what was spooled of it
    dtype: str
    shape: tuple[int, ...]
    offset: int
    order: Any = "C"
    columns: tuple[int, ...] | int | None = None
    words: tuple[str, ...] = ()  # what codes stand for
    as_type: str | None = None  # of the values, if they are spooled in another
    spool: Spool | None = field(default=None, compare=False)  # whose file it is, which is there as long as this

    def read(self, where: slice | IntArray) -> AnyArray:
        """Some rows. The map is let go of with them, so that pages which were read do not add up."""
        rows = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)[where]
        if self.columns is not None:
            rows = rows[:, self.columns]
        found = np.asarray(rows)
        if self.as_type is not None:
            return found.astype(self.as_type)
        return np.array(self.words)[found] if self.words else found

    def with_columns(self, columns: Any) -> Mapped:
        """Some columns of these."""
        known = np.arange(self.shape[1]) if self.columns is None else np.asarray(self.columns)
        if isinstance(columns, int):
            return replace(self, columns=int(known[columns]))
        return replace(self, columns=tuple(known[list(columns)].tolist()))

    @property
    def width(self) -> tuple[int, ...]:
        """Shape of what belongs to one row."""
        if self.columns is None:
            return self.shape[1:]
        return () if isinstance(self.columns, int) else (len(self.columns),)


@dataclass(frozen=True)
class Segment:
    """Arrays with a row each for the same rows, in the order of ``Piece``."""

    rows: Mapped
    labels: Mapped | None = None
    weights: Mapped | None = None

    def __post_init__(self) -> None:
        for each in (self.labels, self.weights):
            if each is not None and each.shape[0] != self.rows.shape[0]:
                raise ValueError(
                    f"{each.stamp.path} has {each.shape[0]} rows, {self.rows.stamp.path} {self.rows.shape[0]}."
                )


class MappedSource(FileSource):
    """Rows of mapped arrays, one segment after the other."""

    def __init__(self, segments: list[Segment], names: tuple[str, ...] | None = None) -> None:
        self._segments, self.feature_names = segments, names
        first = segments[0]
        self._starts = np.cumsum([0, *(each.rows.shape[0] for each in segments)])
        self.n_rows, self.n_features = int(self._starts[-1]), first.rows.width[0]
        self.dtype = np.dtype(np.float32 if all(_is_float32(each.rows) for each in segments) else np.float64)
        self.label_shape = None if first.labels is None else first.labels.width
        self.has_weights = first.weights is not None
        self.bounds = even_bounds(self.n_rows)
        arrays = (each for one in segments for each in (one.rows, one.labels, one.weights) if each is not None)
        self.stamps = tuple(dict.fromkeys(each.stamp for each in arrays))

    def with_features(self, names: tuple[str, ...]) -> Source:
        """The source with these columns for features."""
        known = self.feature_names
        if known is None:
            return super().with_features(names)
        for name in names:
            if name not in known:
                raise ValueError(f"there is no column {name!r}: the features are {', '.join(map(repr, known))}.")
        other, columns = copy(self), [known.index(name) for name in names]
        other._segments = [replace(each, rows=each.rows.with_columns(columns)) for each in self._segments]
        other.feature_names, other.n_features = names, len(names)
        return other

    def _stream(self, first: int, last: int, fields: tuple[Field, ...]) -> Iterator[Piece]:
        self._check_files()
        for number, segment in enumerate(self._segments):
            begin, end = int(self._starts[number]), int(self._starts[number + 1])
            for start in range(max(first, begin), min(last, end), self.batch_rows):
                stop = min(start + self.batch_rows, last, end)
                yield self._checked(self._piece(segment, slice(start - begin, stop - begin), fields), start)

    def _picked(self, index: IntArray, fields: tuple[Field, ...]) -> Piece:
        self._check_files()
        places = np.searchsorted(index, self._starts)
        found: list[Piece] = []
        for number, segment in enumerate(self._segments):
            here = index[places[number] : places[number + 1]]
            here = here - self._starts[number]
            parts = (here[start : start + _PICKED] for start in range(0, len(here), _PICKED))
            found.extend(self._piece(segment, part, fields) for part in parts)
        return self._checked_at(Piece.joined(found), index)

    def _checked_at(self, piece: Piece, index: IntArray) -> Piece:
        for values in (piece.rows, piece.labels, piece.weights):
            if values is None or values.dtype.kind != "f":
                continue
            wrong = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
            if len(wrong):
                only = Piece(*(None if each is None else each[wrong[:1]] for each in piece))
                self._checked(only, int(index[wrong[0]]))
        return piece

    def _piece(self, segment: Segment, where: slice | IntArray, fields: tuple[Field, ...]) -> Piece:
        read = {each: getattr(segment, each).read(where) for each in fields}
        if "rows" in read:
            read["rows"] = np.ascontiguousarray(read["rows"], dtype=self.dtype)
        return Piece(**read)

    def _check_files(self) -> None:
        for stamp in self.stamps:
            stamp.check()

    def _place(self, row: int) -> str:
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        rows = self._segments[number].rows
        return f"{rows.stamp.path}, row {row - int(self._starts[number])} of it"


def _is_float32(array: Mapped) -> bool:
    return np.dtype(array.dtype) == np.float32


def map_npy(path: Path) -> Mapped:
    """The array of a .npy file."""
    with path.open("rb") as file:
        return _mapped(file, Stamp.of(path), str(path))


def map_member(path: Path, name: str) -> Mapped:
    """An array of a .npz file: mapped in place, or spooled if it is compressed."""
    with zipfile.ZipFile(path) as archive:
        if f"{name}.npy" not in archive.namelist():
            names = (each.removesuffix(".npy") for each in archive.namelist())
            raise ValueError(f"{path} has no member {name!r}: it has {', '.join(map(repr, names))}.")
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            with archive.open(member) as file:
                return _spooled(file, path, f"{path}, member {name!r}")
        with path.open("rb") as file:
            file.seek(member.header_offset + _LOCAL_HEADER - 4)
            file.seek(sum(np.frombuffer(file.read(4), "<u2").tolist()), 1)  # the name, and what else it says
            return _mapped(file, Stamp.of(path), f"{path}, member {name!r}")


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays of a .npz file, by their names."""
    with zipfile.ZipFile(path) as archive:
        found = {}
        for each in archive.namelist():
            with archive.open(each) as file:
                name = each.removesuffix(".npy")
                found[name] = _header(file, f"{path}, member {name!r}")[0]
        return found


def _mapped(file: IO[bytes], stamp: Stamp, place: str) -> Mapped:
    shape, order, dtype = _header(file, place)
    return Mapped(stamp, stamp.path, dtype.str, shape, file.tell(), order)


def _header(file: IO[bytes], place: str) -> tuple[tuple[int, ...], str, np.dtype[Any]]:
    try:
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
        shape, is_fortran, dtype = read(file)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{place} is no array that NumPy has saved: {error}") from error
    if dtype.kind not in "biufU":
        raise ValueError(f"{place} holds {dtype}, not numbers.")
    return shape, "F" if is_fortran else "C", dtype


def _spooled(file: IO[bytes], path: Path, place: str) -> Mapped:
    shape, order, dtype = _header(file, place)
    spool = Spool(place)
    with spool.open("array") as copy_of:
        while block := file.read(1 << 20):
            copy_of.write(block)
    return Mapped(Stamp.of(path), str(spool.path("array")), dtype.str, shape, 0, order, spool=spool)
