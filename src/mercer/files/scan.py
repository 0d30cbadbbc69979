"""``scan``: tables in files as rows, targets and weights for every estimator."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from mercer.engine import Source
from mercer.files.arrays import Mapped, MappedSource, Segment, map_member, map_npy, shapes

_KINDS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".npy": "npy", ".npz": "npz"}
_COMPRESSIONS = (".gz", ".bz2", ".zst", ".lz4", ".br")


def scan(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    target: str | int | Sequence[str] | PathLike[str] | None = None,
    features: str | Sequence[str] | Sequence[int] | None = None,
    weight: str | int | PathLike[str] | None = None,
) -> Source:
    r"""Rows of files, for estimators in place of X, y and sample_weight: read a batch at a time, as often as needed.

    Memory does not grow with the number of rows: a batch is read while the one before it is computed with, on each
    worker. ``fit(scan(...))`` takes no y; ``predict`` and the like take a scan in place of X.

    Parameters
    ----------
    path : str, path or list of these
        Files, a pattern such as ``"sales/*.parquet"`` (in the order of their names), or a folder of Parquet files,
        whose parts such as ``year=2020`` are columns, too. Formats are Parquet, CSV (also compressed, as .csv.gz),
        .npy and .npz.
    target : str, list of str, int or path, default=None
        Column of targets or labels; a list gives targets (n, p). Of a .npy file the number of a column, or another
        .npy file; of a .npz file the name of a member.
    features : list of str or list of int, default=None
        Columns of X, in this order; by default all that are neither target nor weight. Of a .npy file numbers of
        columns; of a .npz file the name of a member, by default the only one of two dimensions.
    weight : str, int or path, default=None
        Column of weights, given as the target is.

    Returns
    -------
    Source
        With ``n_rows``, ``n_features``, ``feature_names`` and ``with_features(names)``.

    Notes
    -----
    Columns must be numbers or booleans without NaN, infinity and nulls; the first that is none is named with its file,
    row group and row. Labels may be text. Rows are float32 if all features are, else float64.

    Row groups of Parquet files are the partitions of a pass; small ones are taken together, large ones cut. Cutting
    costs decoding the start of a group again, so groups of 100 000 to a million rows are best. A table of up to 64 MB
    of numbers is decoded once and kept.

    CSV files and compressed members of .npz files cannot be read from the middle. They are read once, when they are
    scanned, into a file of eight bytes per number in a temporary folder (under TMPDIR), which is removed with the last
    object that needs it. For more than one use, or several machines, write Parquet.

    A file whose size or time of change is not that of the scan is refused by the next pass.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import mercer
    >>> X = np.random.default_rng(0).normal(size=(10_000, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.npy")
    ...     np.save(path, np.column_stack([X, np.sin(X[:, 0])]))
    ...     model = mercer.NystromRegressor(n_basis=50, random_state=0).fit(mercer.scan(path, target=3))
    >>> model.predict([[0.0, 0.0, 0.0]]).round(1) + 0.0
    array([0.])
    """
    paths, root = _found(path)
    kinds = {_kind(each) for each in paths}
    if len(kinds) > 1:
        raise ValueError(f"a scan is of one format; {path} has {', '.join(sorted(kinds))}.")
    (kind,) = kinds
    source = _source(kind, paths, root, target, features, weight)
    if source.n_rows == 0:
        raise ValueError(f"there are no rows in {path}.")
    return source


def _source(kind: str, paths: list[Path], root: Path | None, target: Any, features: Any, weight: Any) -> Source:
    if kind == "parquet":
        from mercer.files.parquet import ParquetSource

        return ParquetSource(paths, root, target, features, weight)
    if kind == "csv":
        from mercer.files.comma_separated import csv_source

        return csv_source(paths, target, features, weight)
    if kind == "npy":
        return _npy(paths, target, features, weight)
    segments = [_npz(each, target, features, weight) for each in paths]
    return _mapped(segments)


def _found(path: Any) -> tuple[list[Path], Path | None]:
    """Files in order, and the folder below which names of folders are columns."""
    if not isinstance(path, str | PathLike):
        found = [Path(each) for each in path]
        if not found:
            raise ValueError("path is a list without files.")
        return found, None
    given = Path(path)
    if given.is_dir():
        found = sorted(
            each for each in given.rglob("*") if each.suffix in (".parquet", ".pq") and _is_shown(each, given)
        )
        if not found:
            raise FileNotFoundError(f"there are no Parquet files in {given}.")
        return found, given
    if given.exists():
        return [given], None
    found = sorted(Path(each) for each in glob.glob(str(given), recursive=True) if Path(each).is_file())  # noqa: PTH207
    if not found:
        raise FileNotFoundError(f"there is no file {given}.")
    fixed = next((p for p in given.parents if not glob.has_magic(str(p))), None)
    return found, fixed


def _is_shown(path: Path, folder: Path) -> bool:
    return not any(part[0] in "._" for part in path.relative_to(folder).parts)


def _kind(path: Path) -> str:
    suffix = Path(path.stem).suffix if path.suffix in _COMPRESSIONS else path.suffix
    if suffix.lower() not in _KINDS:
        raise ValueError(f"{path} is in no known format: names end in {', '.join(_KINDS)}, or .csv.gz.")
    return _KINDS[suffix.lower()]


def _npy(paths: list[Path], target: Any, features: Any, weight: Any) -> Source:
    arrays = [_table(map_npy(path)) for path in paths]
    others = [_beside(arrays, each, name) for each, name in ((target, "target"), (weight, "weight"))]
    used = {each for each in (target, weight) if isinstance(each, int)}
    n_columns = arrays[0].shape[1]
    if features is None:
        columns = [j for j in range(n_columns) if j not in used and j - n_columns not in used]
    else:
        columns = [_column(j, n_columns, "features") for j in features]
    rows = arrays if columns == list(range(n_columns)) else [each.with_columns(columns) for each in arrays]
    return _mapped([Segment(*each) for each in zip(rows, *others, strict=True)])


def _beside(arrays: list[Mapped], given: Any, name: str) -> list[Mapped | None]:
    """Targets or weights of these arrays: a column of theirs, or other files."""
    if given is None:
        return [None] * len(arrays)
    if isinstance(given, int):
        return [each.with_columns(_column(given, each.shape[1], name)) for each in arrays]
    found = [map_npy(path) for path in _found(given)[0]]
    if len(found) != len(arrays):
        raise ValueError(f"{name} names {len(found)} files beside {len(arrays)} of rows.")
    return list(found)


def _column(number: int, n_columns: int, name: str) -> int:
    if not -n_columns <= number < n_columns:
        raise ValueError(f"{name}: there is no column {number} among {n_columns}.")
    return number % n_columns


def _npz(path: Path, target: Any, features: Any, weight: Any) -> Segment:
    others = [None if each is None else map_member(path, each) for each in (target, weight)]
    if features is None:
        tables = [each for each, shape in shapes(path).items() if each not in (target, weight) and len(shape) == 2]
        if len(tables) != 1:
            found = ", ".join(map(repr, tables)) or "none"
            raise ValueError(f"{path}: name the member that has the rows (features=); of two dimensions are {found}.")
        features = tables[0]
    return Segment(_table(map_member(path, features)), *others)


def _table(array: Mapped) -> Mapped:
    if len(array.shape) != 2 or array.shape[1] == 0 or array.dtype[1] == "U":
        raise ValueError(f"{array.stamp.path}: rows must form a table of numbers; the array has shape {array.shape}.")
    return array


def _mapped(segments: list[Segment]) -> MappedSource:
    widths = {each.rows.width for each in segments}
    if len(widths) > 1:
        raise ValueError(f"files have different numbers of columns: {sorted(width[0] for width in widths)}.")
    for each in segments:
        weights = each.weights
        if weights is not None and (weights.width != () or weights.dtype[1] == "U"):
            raise ValueError(f"{weights.stamp.path}: weights must be one number for each row.")
        if each.labels is not None and len(each.labels.width) > 1:
            raise ValueError(f"{each.labels.stamp.path}: targets must have one dimension or two.")
    return MappedSource(segments)
