"""What all sources in files have in common: where their rows are, batches that become tiles, and checks of values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine import Field, Piece, Source
from mercer.engine.rows import partition_bounds
from mercer.engine.source import check_finite_rows
from mercer.files.read_ahead import cut, read_ahead

_BATCH_NUMBERS = 1 << 20  # decoded at once: 8 MB
_BATCH_ROWS = (1024, 1 << 16)
_TOGETHER = 2048  # rows of so many columns stay in the cache while they are put side by side
# Partitions are those of an array, but for very many rows, where they would be too long for a checkpoint or a cluster.
MOST_ROWS = 1 << 19


class Stamp(NamedTuple):
    """A file as it was when it was scanned."""

    path: str
    size: int
    modified: int  # nanoseconds

    @classmethod
    def of(cls, path: Path | str) -> Stamp:
        """As it is now."""
        found = Path(path).stat()
        return cls(str(Path(path).absolute()), found.st_size, found.st_mtime_ns)

    def check(self) -> None:
        """Refuse a file that has changed since."""
        now = self.of(self.path)
        if now != self:
            what = "size" if now.size != self.size else "time of change"
            raise ValueError(f"{self.path} has changed since it was scanned (another {what}): scan it again.")


class FileSource(Source):
    """Some rows of files. A format defines what is abstract here, by numbers of rows in the files."""

    stamps: tuple[Stamp, ...]
    _first: int = 0
    _whole: bool = True  # whether these are all rows of the files

    @abstractmethod
    def _stream(self, first: int, last: int, fields: tuple[Field, ...]) -> Iterator[Piece]:
        """Rows in order, in pieces of any length."""

    @abstractmethod
    def _picked(self, index: IntArray, fields: tuple[Field, ...]) -> Piece:
        """The given rows, which are sorted, each once."""

    @abstractmethod
    def _place(self, row: int) -> str:
        """File, and where in it a row is."""

    def pieces(self, first: int, last: int, size: int, fields: tuple[Field, ...]) -> Iterator[Piece]:
        """Rows in tiles; the next batch is read while one is used."""
        if not fields:
            yield from (Piece() for _ in range(first, last, size))
            return
        stream = self._stream(self._first + first, self._first + last, fields)
        if last - first > self.batch_rows:
            stream = read_ahead(stream)
        with closing(stream):  # type: ignore[type-var]  # a generator
            yield from cut(stream, size)

    def take(self, index: IntArray, fields: tuple[Field, ...]) -> Piece:
        """The given rows: those needed are read once, in the order of the files."""
        index = np.asarray(index)
        if not fields:
            return Piece()
        if not len(index):
            return self._picked(np.array([self._first]), fields).part(slice(0, 0))
        wanted, places = np.unique(index, return_inverse=True)
        piece = self._picked(self._first + wanted, fields)
        return piece if np.array_equal(wanted, index) else piece.part(places)

    def shipped(self, where: slice) -> Source:
        """The same files, and which of their rows are meant."""
        start, stop, _ = where.indices(self.n_rows)
        part = copy(self)
        part._first, part.n_rows, part._whole = self._first + start, stop - start, False
        part.bounds = (0, part.n_rows)
        return part

    def fingerprint(self) -> dict[str, str]:
        """Sizes and times of the files, by their paths, and what is read of them."""
        files = {str(stamp.path): str(stamp) for stamp in self.stamps}
        return {**files, "rows of X": str((self._first, self.n_rows, self._schema()))}

    def label(self, row: int) -> str:
        """File and place of a row."""
        return f"row {self._first + row}: {self._place(self._first + row)}"

    def _schema(self) -> tuple[Any, ...]:
        return (self.feature_names, self.n_features, str(self.dtype), self.label_shape, self.has_weights)

    @property
    def batch_rows(self) -> int:
        """Rows that are decoded at once."""
        least, most = _BATCH_ROWS
        return min(max(_BATCH_NUMBERS // max(self.n_features, 1), least), most)

    def _checked(self, piece: Piece, first: int) -> Piece:
        """Refuse NaN and infinity, of rows that follow the first one in the files."""
        if piece.rows is not None:
            check_finite_rows(piece.rows, slice(first - self._first, None), self)
        for name, values in (("y", piece.labels), ("sample_weight", piece.weights)):
            if values is not None and values.dtype.kind == "f" and not np.all(np.isfinite(values)):
                row = int(np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))[0])
                raise ValueError(f"Input {name} contains NaN or infinity ({self.label(first + row - self._first)}).")
        return piece

    def __repr__(self) -> str:
        """Files and rows."""
        others = f" and {len(self.stamps) - 1} more files" if len(self.stamps) > 1 else ""
        return f"<scan of {self.stamps[0].path}{others}: {self.n_rows} rows of {self.n_features} features>"


def side_by_side(columns: list[AnyArray], dtype: Any) -> FloatArray:
    """Columns (T,) as rows (T, d), some rows at a time so that they stay in the cache."""
    rows = np.empty((len(columns[0]), len(columns)), dtype)
    for start in range(0, len(rows), _TOGETHER):
        some = slice(start, start + _TOGETHER)
        for j, column in enumerate(columns):
            rows[some, j] = column[some]
    return rows


def even_bounds(n_rows: int) -> tuple[int, ...]:
    """Partitions of rows that can be read anywhere, as those of an array."""
    number = -(-n_rows // MOST_ROWS)
    if number >= len(partition_bounds(n_rows)):
        return tuple(n_rows * i // number for i in range(number + 1))
    return tuple(partition_bounds(n_rows))
