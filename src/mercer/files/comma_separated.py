"""CSV files: numbers are read once and spooled, as such a file cannot be read from the middle."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from mercer._typing import AnyArray
from mercer.files.arrays import Mapped, MappedSource, Segment
from mercer.files.arrow import NUMBER, TEXT, csv_batches, csv_kinds, first_null, labels, numbers
from mercer.files.columns import Columns
from mercer.files.file_source import Stamp, side_by_side
from mercer.files.spool import Spool


def csv_source(paths: list[Path], target: Any, features: Any, weight: Any) -> MappedSource:
    """The source of CSV files with the same columns."""
    whole = [csv_kinds(str(path)) for path in paths]
    kinds = {name: _common([each.get(name, "nothing in some files") for each in whole]) for name in whole[0]}
    named = {name: kind if kind not in _WHOLE else NUMBER for name, kind in kinds.items()}
    columns = Columns.chosen(named, target, features, weight)
    return MappedSource([_spooled(path, columns, kinds) for path in paths], columns.features)


_INTEGERS, _BOOLEANS = "int64", "bool"
_WHOLE = (_INTEGERS, _BOOLEANS)


def _common(kinds: list[str]) -> str:
    if len(set(kinds)) == 1:
        return kinds[0]
    odd = [kind for kind in kinds if kind not in (NUMBER, _INTEGERS)]
    return odd[0] if odd else NUMBER


def _spooled(path: Path, columns: Columns, kinds: dict[str, str]) -> Segment:
    stamp, spool = Stamp.of(path), Spool(str(path))
    names = (*columns.features, *columns.targets, *((columns.weight,) if columns.weight else ()))
    copier = _Copier(path, columns)
    with ExitStack() as stack:
        files = {field: stack.enter_context(spool.open(field)) for field in ("rows", "labels", "weights")}
        for batch in csv_batches(str(path), {name: kinds[name] for name in names}):
            copier.copy(batch, files)
    n_rows = copier.n_rows

    def mapped(field: str, dtype: str, width: tuple[int, ...], words: tuple[str, ...] = ()) -> Mapped:
        return Mapped(stamp, str(spool.path(field)), dtype, (n_rows, *width), 0, words=words, spool=spool)

    targets = None
    if columns.targets:
        dtype, kind = "i4" if copier.words else "f8", kinds[columns.targets[0]]
        targets = mapped("labels", dtype, columns.label_shape or (), tuple(copier.words))
        if columns.flat and kind in _WHOLE and copier.is_whole:  # labels are what they are in the file
            targets = replace(targets, as_type=kind)
    weights = mapped("weights", "f8", ()) if columns.weight else None
    return Segment(mapped("rows", "f8", (len(columns.features),)), targets, weights)


class _Copier:
    """Write numbers of batches to files, text by its place among the words that occur."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self._path, self._columns = path, columns
        self.n_rows, self.is_whole = 0, True
        self.words: dict[str, int] = {}

    def copy(self, batch: dict[str, Any], files: dict[str, IO[bytes]]) -> None:
        """Append a batch."""
        columns = self._columns
        self._check(batch)
        rows = side_by_side([numbers(batch[name]) for name in columns.features], np.float64)
        files["rows"].write(rows.tobytes())
        if columns.targets:
            files["labels"].write(self._labels(batch).tobytes())
        if columns.weight:
            files["weights"].write(np.asarray(numbers(batch[columns.weight]), dtype=np.float64).tobytes())
        self.n_rows += len(rows)

    def _labels(self, batch: dict[str, Any]) -> AnyArray:
        found = [labels(batch[name]) for name in self._columns.targets]
        if self._columns.kinds[self._columns.targets[0]] == TEXT:
            words, codes = np.unique(found[0], return_inverse=True)
            places = [self.words.setdefault(word, len(self.words)) for word in words.tolist()]
            return np.array(places, dtype=np.int32)[codes]
        values = side_by_side(found, np.float64)
        self.is_whole &= bool(np.all(values == np.round(values)))
        return values

    def _check(self, batch: dict[str, Any]) -> None:
        for name, column in batch.items():
            null = first_null(column)
            if null is not None:
                raise ValueError(
                    f"{self._path}, row {self.n_rows + null}, column {name!r}: there is no value, and none is made up."
                )
