"""Parquet files as a source: row groups are its partitions, or parts of them where they are few."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np

from mercer._typing import AnyArray, IntArray
from mercer.engine import Field, Piece, Source
from mercer.files.arrow import FLOAT32, NUMBER, TEXT, ParquetFile, first_null, labels, numbers
from mercer.files.columns import Columns
from mercer.files.file_source import MOST_ROWS, FileSource, Stamp, side_by_side
from mercer.files.read_ahead import length

_FEWEST_PARTITIONS, _PARTITIONS = 8, 64
_FEWEST_ROWS = 1024  # of a partition
_KEPT_NUMBERS = 1 << 23  # a table of no more numbers (64 MB) is decoded once and kept
_NULL = "__HIVE_DEFAULT_PARTITION__"  # what stands for one in the name of a folder


class _File(NamedTuple):
    """A file, and what the names of its folders say of all its rows."""

    stamp: Stamp
    constants: dict[str, Any]


class ParquetSource(FileSource):
    """Rows of Parquet files, which have the columns that are used in any order."""

    def __init__(self, paths: list[Path], root: Path | None, target: Any, features: Any, weight: Any) -> None:
        lengths, kinds = [], []
        constants = _typed([{} if root is None else _folders(path, root) for path in paths])
        for path in paths:
            file = ParquetFile(str(path))
            lengths.append(file.lengths)
            kinds.append(file.kinds)
            file.close()
        self._files = [_File(Stamp.of(path), each) for path, each in zip(paths, constants, strict=True)]
        self.stamps = tuple(file.stamp for file in self._files)
        self._groups = np.array([(i, g) for i, each in enumerate(lengths) for g in range(len(each))]).reshape(-1, 2)
        self._starts = np.cumsum([0, *(n for each in lengths for n in each)])
        self.n_rows = int(self._starts[-1])
        self.bounds = tuple(partitions(self._starts))
        self._use(Columns.chosen(_common(kinds, self._files), target, features, weight))

    def _use(self, columns: Columns) -> None:
        self._columns = columns
        self.feature_names, self.n_features = columns.features, len(columns.features)
        self.dtype, self.label_shape = columns.dtype, columns.label_shape
        self.has_weights = columns.weight is not None
        self._kept: dict[Field, Piece] = {}
        self._lock = Lock()

    def with_features(self, names: tuple[str, ...]) -> Source:
        """The source with these columns for features."""
        other = copy(self)
        other._use(self._columns.with_features(names))
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what was read."""
        return vars(self) | {"_kept": {}, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state | {"_lock": Lock()})

    def pieces(self, first: int, last: int, size: int, fields: tuple[Field, ...]) -> Iterator[Piece]:
        """Rows in tiles: of a small table, views of what was read before."""
        if not fields or not self._is_kept:
            yield from super().pieces(first, last, size, fields)
            return
        everything = self._everything(fields)
        self._check_files(first, last)
        for start in range(first, last, size):
            yield everything.part(slice(start, min(start + size, last)))

    @property
    def _is_kept(self) -> bool:
        return self._whole and self.n_rows * (self.n_features + 2) <= _KEPT_NUMBERS

    def _everything(self, fields: tuple[Field, ...]) -> Piece:
        with self._lock:
            missing = tuple(field for field in fields if field not in self._kept)
            if missing:
                read = Piece.joined(list(self._stream(0, self.n_rows, missing)))
                self._kept.update(dict.fromkeys(missing, read))
            return Piece(**{field: getattr(self._kept[field], field) for field in fields})

    def _check_files(self, first: int, last: int) -> None:
        groups = slice(self._group_of(self._first + first), self._group_of(self._first + last - 1) + 1)
        for number in np.unique(self._groups[groups, 0]):
            self._files[number].stamp.check()

    def _group_of(self, row: int) -> int:
        return int(np.searchsorted(self._starts, row, side="right")) - 1

    def _stream(self, first: int, last: int, fields: tuple[Field, ...]) -> Iterator[Piece]:
        file, opened = None, -1
        try:
            for group in range(self._group_of(first), self._group_of(last - 1) + 1):
                number = int(self._groups[group, 0])
                if number != opened:
                    if file is not None:
                        file.close()
                    self._files[number].stamp.check()
                    file, opened = ParquetFile(self._files[number].stamp.path), number
                yield from self._read(file, group, first, last, fields)
        finally:
            if file is not None:
                file.close()

    def _read(self, file: Any, group: int, first: int, last: int, fields: tuple[Field, ...]) -> Iterator[Piece]:
        """Rows of a group that lie between first and last; those before them are decoded, too, as the format wants."""
        start, end = int(self._starts[group]), int(self._starts[group + 1])
        number, place = self._groups[group].tolist()
        constants = self._files[number].constants
        names = [name for name in self._names(fields) if name not in constants]
        if not names:
            names = [next(iter(self._columns.kinds))]  # for the number of rows
        for batch in file.batches(place, names, self.batch_rows):
            n_rows = len(next(iter(batch.values())))
            low, high = max(first - start, 0), min(last - start, n_rows)
            if low < high:
                some = {name: column.slice(low, high - low) for name, column in batch.items()}
                yield self._piece(some, constants, high - low, start + low, fields)
            start += n_rows
            if start >= min(last, end):
                return

    def _names(self, fields: tuple[Field, ...]) -> list[str]:
        columns = self._columns
        names = list(columns.features) if "rows" in fields else []
        names += columns.targets if "labels" in fields else ()
        names += [columns.weight] if "weights" in fields and columns.weight else []
        return list(dict.fromkeys(names))

    def _piece(
        self, batch: dict[str, Any], constants: dict[str, Any], n_rows: int, first: int, fields: tuple[Field, ...]
    ) -> Piece:
        columns = self._columns

        def column(name: str, field: str, convert: Any = numbers) -> AnyArray:
            if name in constants:
                return np.full(n_rows, constants[name])
            null = first_null(batch[name])
            if null is not None:
                place = self.label(first + null - self._first)
                raise ValueError(f"Input {field} contains a null ({place}, column {name!r}).")
            return np.asarray(convert(batch[name]))

        def rows() -> AnyArray:
            return side_by_side([column(name, "X") for name in columns.features], self.dtype)

        def targets() -> AnyArray:
            found = [column(name, "y", labels) for name in columns.targets]
            return found[0] if columns.flat else side_by_side(found, np.float64)

        def weights() -> AnyArray:
            return column(str(columns.weight), "sample_weight")

        read = {"rows": rows, "labels": targets, "weights": weights}
        return self._checked(Piece(**{field: read[field]() for field in fields}), first)

    def _picked(self, index: IntArray, fields: tuple[Field, ...]) -> Piece:
        """One pass over the needed columns of the row groups that are touched."""
        groups = np.searchsorted(self._starts, index, side="right") - 1
        found = []
        if self._is_kept:
            self._check_files(0, self.n_rows)
            return self._everything(fields).part(index)
        for group in np.unique(groups):
            wanted = index[groups == group]
            start = int(wanted[0])
            for piece in self._stream(start, int(wanted[-1]) + 1, fields):
                stop = start + length(piece)
                here = wanted[(start <= wanted) & (wanted < stop)]
                if len(here):
                    found.append(piece.part(here - start))
                start = stop
        return Piece.joined(found)

    def _place(self, row: int) -> str:
        group = self._group_of(row)
        number, place = self._groups[group].tolist()
        return f"{self.stamps[number].path}, row group {place}, row {row - int(self._starts[group])} of it"

    def _schema(self) -> tuple[Any, ...]:
        return (*super()._schema(), self._columns)


def partitions(starts: IntArray) -> Iterator[int]:
    """Bounds of partitions of row groups with these starts: small groups together, large ones cut into equal parts.

    They depend on the files alone, as sums are nested by them. A part of a group costs the decoding of what stands
    before it, too; so groups are cut only as far as there would be fewer than eight partitions, or very long ones.
    """
    n_rows = int(starts[-1])
    least = min(max(n_rows // _PARTITIONS, _FEWEST_ROWS), MOST_ROWS)
    most = min(max(n_rows // _FEWEST_PARTITIONS, _FEWEST_ROWS), MOST_ROWS)
    yield 0
    done = 0
    for start in np.unique(starts)[1:].tolist():
        if start - done < least and start < n_rows:
            continue
        number = max(1, round((start - done) / most))
        yield from (done + (start - done) * (i + 1) // number for i in range(number))
        done = start


def _common(kinds: list[dict[str, str]], files: list[_File]) -> dict[str, str]:
    """Kinds of the columns that all files have: float32 if it is that in all."""
    found: dict[str, str] = {}
    for each, file in zip(kinds, files, strict=True):
        for name, value in file.constants.items():
            each.setdefault(name, TEXT if isinstance(value, str) else NUMBER)
    for name in kinds[0]:
        known = [each.get(name, "nothing in some files") for each in kinds]
        odd = [kind for kind in known if kind not in (FLOAT32, NUMBER)]
        found[name] = odd[0] if odd else NUMBER if NUMBER in known else FLOAT32
    return found


def _folders(path: Path, root: Path) -> dict[str, str]:
    """Columns that are names of folders, as in year=2020/month=1."""
    parts = (part.partition("=") for part in path.relative_to(root).parent.parts)
    found = {name: unquote(value) for name, sign, value in parts if sign}
    for name, value in found.items():
        if value == _NULL:
            raise ValueError(f"{path}: the column {name!r}, of the folder's name, is null.")
    return found


def _typed(constants: list[dict[str, str]]) -> list[dict[str, Any]]:
    """The values of folders' names as numbers, where all of a column are."""
    found: list[dict[str, Any]] = [dict(each) for each in constants]
    for name in {name for each in constants for name in each}:
        for kind in (int, float):
            try:
                values = [kind(each[name]) for each in constants if name in each]
            except ValueError:
                continue
            for each, value in zip((each for each in found if name in each), values, strict=True):
                each[name] = value
            break
    return found
