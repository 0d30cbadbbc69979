"""Predictions of more rows than fit into memory, written to a file as they are made."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from mercer._typing import AnyArray
from mercer.engine import Chunk, Piece, Source
from mercer.files.scan import scan
from mercer.persistence.replacement import replacement

_BLOCK_NUMBERS = 1 << 22  # of rows and of what is predicted of them: 32 MB
_FEWEST_ROWS = 1024
_METHODS = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "predict_interval",
    "score_samples",
    "transform",
)


def write_predictions(
    model: Any,
    rows: Source | str | PathLike[str],
    path: str | PathLike[str],
    *,
    method: str = "predict",
    **options: Any,
) -> None:
    """Write what a model says of the rows of files to a file, a block at a time, in their order.

    Cost: that of the method, in memory that does not depend on the number of rows.

    Parameters
    ----------
    model : a fitted estimator of mercer
    rows : scan, or a path that can be scanned
        Of a path, the features that the model was fitted with are read, if they had names.
    path : str or path
        A name that ends in .parquet, .csv or .npy. The file appears when all is written; one that is there before
        stays until then, and stays as it is if the work fails.
    method : str, default="predict"
        Also "predict_proba", "predict_log_proba", "decision_function", "predict_interval", "score_samples" or
        "transform".
    options
        Passed on to the method: ``return_std=True``, ``coverage=0.9``.

    Notes
    -----
    Columns are named prediction, std, lower and upper (with a number behind, from 0, if there are several targets), by
    the classes, or as ``get_feature_names_out`` says. A .npy file has the columns without names, and the dtype of
    what is predicted.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import mercer
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> model = mercer.NystromRegressor(n_basis=50, random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "rows.npy"), X)
    ...     mercer.write_predictions(model, Path(folder, "rows.npy"), Path(folder, "out.npy"), return_std=True)
    ...     np.load(Path(folder, "out.npy")).shape
    (1000, 2)
    """
    to = Path(path)
    if to.suffix not in _WRITERS:
        raise ValueError(f"path must end in one of {', '.join(_WRITERS)}; got {to.name!r}.")
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}; got {method!r}.")
    source = _source(model, rows)
    with replacement(to) as file:
        writer = _WRITERS[to.suffix](file, source.n_rows)
        for block in _blocks(source, getattr(model, "n_features_in_", 0) + _width(model)):
            writer.write(_columns(model, method, getattr(model, method)(block, **options)))
        writer.close()


def _source(model: Any, rows: Any) -> Source:
    names = getattr(model, "feature_names_in_", None)
    if not isinstance(rows, Source):
        has_names = Path(rows).suffix not in (".npy", ".npz")
        rows = scan(rows, features=None if names is None or not has_names else list(names))
    source: Source = rows
    known = source.feature_names
    return source if names is None or known in (None, tuple(names)) else source.with_features(tuple(names))


def _width(model: Any) -> int:
    """Numbers that may be predicted of a row."""
    expansion = getattr(model, "expansion_", None)
    return 4 * (len(expansion.intercept) if expansion is not None else 1)


def _blocks(source: Source, width: int) -> Iterator[Chunk]:
    size = max(_BLOCK_NUMBERS // width, _FEWEST_ROWS)
    first = 0
    for piece in source.pieces(0, source.n_rows, size, ("rows",)):
        n_rows = len(piece.rows)  # type: ignore[arg-type]
        block = Chunk(n_rows, source, Piece(piece.rows), first)
        block.label_shape, block.has_weights = None, False
        yield block
        first += n_rows


def _columns(model: Any, method: str, found: Any) -> dict[str, AnyArray]:
    """What a method returned, as columns with names."""
    if method == "transform":
        return _named(list(model.get_feature_names_out()), np.asarray(found))
    if method == "predict_interval":
        return _numbered("lower", found[0]) | _numbered("upper", found[1])
    if isinstance(found, tuple):
        return _numbered("prediction", found[0]) | _numbered("std", found[1])
    values = np.asarray(found)
    if method == "predict":
        return _numbered("prediction", values)
    name = {"decision_function": "decision", "score_samples": "score"}.get(method, method)
    classes = getattr(model, "classes_", ())
    if values.ndim == 2 and values.shape[1] == len(classes):
        return _named([str(each) for each in classes], values)
    return _numbered(name, values)


def _named(names: list[str], values: AnyArray) -> dict[str, AnyArray]:
    return dict(zip(names, values.T, strict=True))


def _numbered(name: str, values: AnyArray) -> dict[str, AnyArray]:
    values = np.asarray(values)
    return {name: values} if values.ndim == 1 else _named([f"{name}_{j}" for j in range(values.shape[1])], values)


class _Writer(Protocol):
    def write(self, columns: dict[str, AnyArray]) -> None: ...

    def close(self) -> None: ...


class _ArrayWriter:
    """Write columns as an array, whose header says how many rows there will be."""

    def __init__(self, file: IO[bytes], n_rows: int) -> None:
        self._file, self._n_rows = file, n_rows
        self._dtype: Any = None

    def write(self, columns: dict[str, AnyArray]) -> None:
        """Append some rows."""
        values = next(iter(columns.values())) if len(columns) == 1 else np.column_stack(list(columns.values()))
        if self._dtype is None:
            self._dtype = values.dtype
            header = {"descr": values.dtype.str, "fortran_order": False, "shape": (self._n_rows, *values.shape[1:])}
            np.lib.format.write_array_header_1_0(self._file, header)
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).tobytes())

    def close(self) -> None:
        """Nothing stands at the end."""


def _table_writer(suffix: str) -> Any:
    def make(file: IO[bytes], _: int) -> Any:
        from mercer.files.arrow import TableWriter

        return TableWriter(file, suffix)

    return make


_WRITERS: dict[str, Any] = {".parquet": _table_writer(".parquet"), ".csv": _table_writer(".csv"), ".npy": _ArrayWriter}
