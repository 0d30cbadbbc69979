"""The only import of pyarrow: columns of Parquet and CSV files, and writers of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from mercer._typing import AnyArray

try:
    import pyarrow as pa
    from pyarrow import csv, parquet, types
except ImportError as error:
    raise ImportError("Parquet and CSV files need pyarrow: pip install 'mercer[io]'.") from error

_BUFFER = 1 << 18  # bytes of a column chunk that are read at once: chunks need not fit into memory
_FIRST_BLOCK = 1 << 22  # bytes of a CSV file from which the types of its columns are inferred

# A number that stays float32 if all others do, any other number, and labels; all else is named as it is refused.
FLOAT32, NUMBER, TEXT, CATEGORIES = "float32", "numbers", "text", "categories"


@contextmanager
def named(place: str) -> Iterator[None]:
    """Say in which file, and where in it, something could not be read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise OSError(f"{place} cannot be read: {error}") from error


def kind_of(kind: pa.DataType) -> str:
    """What the values of a column are."""
    if types.is_dictionary(kind):
        return CATEGORIES
    if types.is_float32(kind):
        return FLOAT32
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return NUMBER
    if _is_text(kind):
        return TEXT
    if types.is_null(kind):
        return "nothing"
    return "dates or times" if types.is_temporal(kind) else str(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def numbers(column: Any) -> AnyArray:
    """The values of a column without nulls: numbers as they are, decimals as float64."""
    if types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def labels(column: Any) -> AnyArray:
    """The values of a column without nulls: numbers, or text of the width of the longest."""
    if types.is_dictionary(column.type) or _is_text(column.type):
        encoded = column if types.is_dictionary(column.type) else column.dictionary_encode()
        return np.asarray(np.array(encoded.dictionary.to_pylist())[encoded.indices.to_numpy(zero_copy_only=False)])
    return numbers(column)


def first_null(column: Any) -> int | None:
    """Place of the first null, None if there is none; a category that is null counts."""
    if types.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()
    if not column.null_count:
        return None
    return int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))


class ParquetFile:
    """A Parquet file: kinds of its columns, rows of its row groups, and their columns in batches."""

    def __init__(self, path: str) -> None:
        with named(path):
            self._path, self._file = path, parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
        self.kinds = {field.name: kind_of(field.type) for field in self._file.schema_arrow}

    @property
    def lengths(self) -> list[int]:
        """Rows of each row group."""
        metadata = self._file.metadata
        return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]

    def batches(self, group: int, columns: list[str], size: int) -> Iterator[dict[str, Any]]:
        """The columns of a row group in batches of at most so many rows, decoded in the calling thread."""
        with named(f"{self._path}, row group {group},"):
            for batch in self._file.iter_batches(size, row_groups=[group], columns=columns, use_threads=False):
                yield {name: batch.column(name) for name in columns}

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def csv_kinds(path: str) -> dict[str, str]:
    """What the columns are, by the first block of a CSV file; whole numbers may be followed by others."""
    with named(path), _csv(path, {}, []) as reader:
        found = {field.name: field.type for field in reader.schema}
    return {name: str(kind) if _is_whole(kind) else kind_of(kind) for name, kind in found.items()}


def _is_whole(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_boolean(kind))


def csv_batches(path: str, columns: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Some columns in batches, in the order of the rows: names, and whether they are "text", "bool" or numbers."""
    kept = {TEXT: pa.string(), "bool": pa.bool_()}
    wanted = {name: kept.get(kind, pa.float64()) for name, kind in columns.items()}
    with named(path), _csv(path, wanted, list(columns)) as reader:
        for batch in reader:
            yield {name: batch.column(name) for name in columns}


def _csv(path: str, kinds: dict[str, Any], columns: list[str]) -> Any:
    options = csv.ConvertOptions(column_types=kinds, include_columns=columns, strings_can_be_null=True)
    # Of one thread: it reads while another computes.
    reading = csv.ReadOptions(block_size=_FIRST_BLOCK, use_threads=False)
    return csv.open_csv(pa.input_stream(path, compression="detect"), read_options=reading, convert_options=options)


class TableWriter:
    """Write columns to an open file, a block at a time; the suffix says in which format."""

    def __init__(self, file: IO[bytes], suffix: str) -> None:
        self._file, self._suffix = file, suffix
        self._writer: Any = None

    def write(self, columns: dict[str, AnyArray]) -> None:
        """Append some rows."""
        table = pa.table({name: pa.array(values) for name, values in columns.items()})
        if self._writer is None:
            new = csv.CSVWriter if self._suffix == ".csv" else parquet.ParquetWriter
            self._writer = new(pa.PythonFile(self._file, "w"), table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        """Write what stands at the end."""
        if self._writer is not None:
            self._writer.close()
