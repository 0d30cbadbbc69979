"""What cannot be read is refused by file, row group, row and column, or with what is allowed."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from mercer import NystromRegressor, scan
from mercer.files import parquet as parquet_source


@pytest.fixture(params=[0, 1 << 23], ids=["streamed", "kept"], autouse=True)
def _kept(request, monkeypatch):
    monkeypatch.setattr(parquet_source, "_KEPT_NUMBERS", request.param)


def written(path, **columns):
    parquet.write_table(pa.table(columns), path, row_group_size=100)
    return path


@pytest.mark.parametrize("value", [np.nan, np.inf, None])
@pytest.mark.parametrize(("column", "use"), [("x", "X"), ("y", "y"), ("w", "sample_weight")])
def test_the_first_wrong_value_is_named(value, column, use, tmp_path):
    columns = {name: np.arange(1.0, 1001.0).tolist() for name in "xyw"}
    columns[column][742] = value
    path = written(tmp_path / "bad.parquet", **columns)
    source = scan(path, target="y", weight="w")
    what = "a null" if value is None else "NaN or infinity"
    message = rf"Input {use} contains {what} \(row 742: .*bad.parquet, row group 7, row 42 of it"
    with pytest.raises(ValueError, match=message):
        NystromRegressor(n_basis=5, random_state=0).fit(source)
    part = source.shipped(slice(700, 800))
    with pytest.raises(ValueError, match=message):
        list(part.pieces(0, 100, 30, ("rows", "labels", "weights")))
    with pytest.raises(ValueError, match=message):
        source.take(np.array([742, 3]), ("rows", "labels", "weights"))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_labels_that_are_missing(kind, tmp_path):
    path = written(tmp_path / "bad.parquet", x=np.arange(150.0), y=pa.array(["a"] * 149 + [None]).cast(kind))
    with pytest.raises(ValueError, match=r"Input y contains a null \(row 149: .*row group 1, row 49 of it"):
        list(scan(path, target="y").pieces(0, 150, 50, ("labels",)))


def test_arrays_are_checked_too(tmp_path):
    rows = np.zeros((1000, 2))
    rows[700, 1] = np.nan
    np.save(tmp_path / "bad.npy", rows)
    source = scan([tmp_path / "bad.npy"] * 2)
    with pytest.raises(ValueError, match=r"row 1700: .*bad.npy, row 700 of it, column 1"):
        list(source.pieces(900, 2000, 64, ("rows",)))
    with pytest.raises(ValueError, match=r"row 700: .*bad.npy, row 700 of it"):
        source.take(np.array([999, 700, 0]), ("rows",))


@pytest.mark.parametrize("text", ["1,2\n3,\n", "1,2\n3,nan\n"])
def test_missing_values_of_csv_files(text, tmp_path):
    (tmp_path / "bad.csv").write_text("a,b\n" + text)
    with pytest.raises(ValueError, match=r"bad.csv, row 1, column 'b'"):
        scan(tmp_path / "bad.csv")


def test_csv_files_whose_columns_change(tmp_path):
    (tmp_path / "bad.csv").write_text("a,b\n" + "1,2\n" * 2_000_000 + "x,2\n")
    with pytest.raises((ValueError, OSError), match=r"bad.csv"):
        scan(tmp_path / "bad.csv")


def test_row_groups_that_cannot_be_read(tmp_path):
    values = np.random.default_rng(0).normal(size=1000)
    path = written(tmp_path / "bad.parquet", x=values)
    offset = parquet.ParquetFile(path).metadata.row_group(6).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[offset : offset + 60] = b"\xff" * 60
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"bad.parquet, row group 6, cannot be read"):
        list(scan(path).pieces(0, 1000, 100, ("rows",)))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", "b"], "text"),
        (pa.array(["a", "b"]).dictionary_encode(), "categories"),
        ([dt.date(2020, 1, 1)] * 2, "dates or times"),
        ([dt.datetime(2020, 1, 1)] * 2, "dates or times"),
        ([[1.0], [2.0]], "list<"),
    ],
)
def test_what_is_no_number_is_no_feature(values, kind, tmp_path):
    path = written(tmp_path / "x.parquet", x=[1.0, 2.0], odd=values)
    with pytest.raises(ValueError, match=rf"the column 'odd' holds {kind}.*leave it out \(features=\).*OneHotEncoder"):
        scan(path)
    assert scan(path, features="x").n_features == 1
    with pytest.raises(ValueError, match=rf"the column 'odd' holds {kind}.*cannot be the weight"):
        scan(path, weight="odd")
    if kind not in ("text", "categories"):
        with pytest.raises(ValueError, match="cannot be a target"):
            scan(path, target="odd")


def test_arguments(tmp_path):
    path = written(tmp_path / "x.parquet", x=[1.0, 2.0], y=[1.0, 2.0])
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    np.save(tmp_path / "y.npy", np.zeros(4))
    np.savez(tmp_path / "x.npz", X=np.zeros((3, 2)), Z=np.zeros((3, 2)))
    (tmp_path / "x.txt").write_text("")
    pd.DataFrame({"x": []}).to_parquet(tmp_path / "empty.parquet")
    (tmp_path / "folder").mkdir()
    for call, message in [
        (lambda: scan(path, target="z"), "there is no column 'z': the columns are 'x', 'y'"),
        (lambda: scan(path, target=["x", "y"]), "there are no features"),
        (lambda: scan(path, features=["x", "x"]), "names the column 'x' more than once"),
        (lambda: scan([path, tmp_path / "x.npy"]), "a scan is of one format"),
        (lambda: scan(tmp_path / "x.txt"), "in no known format"),
        (lambda: scan([]), "a list without files"),
        (lambda: scan(tmp_path / "empty.parquet"), "there are no rows"),
        (lambda: scan(tmp_path / "x.npy", target=7), "target: there is no column 7 among 2"),
        (lambda: scan(tmp_path / "x.npy", target=tmp_path / "y.npy"), "y.npy has 4 rows"),
        (lambda: scan(tmp_path / "y.npy"), "rows must form a table of numbers"),
        (lambda: scan(tmp_path / "x.npz"), r"name the member that has the rows \(features=\).*'X', 'Z'"),
        (lambda: scan(tmp_path / "x.npz", features="W"), "has no member 'W'"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    for gone in ("gone.parquet", "gone-*.parquet", "folder"):
        with pytest.raises(FileNotFoundError, match=gone.replace("*", r"\*")):
            scan(tmp_path / gone)


def test_objects_are_not_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(ValueError, match="not numbers"):
        scan(tmp_path / "x.npy")
