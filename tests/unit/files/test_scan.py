"""Each format gives the rows, targets and weights that were written, in any pieces."""

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from mercer import NystromClassifier, NystromRegressor, scan
from mercer.files import parquet as parquet_source
from mercer.files.parquet import partitions

N = 3000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
Y, W = X[:, 0] + 1, RNG.uniform(size=N)
LABELS = np.array(["low", "high"])[(X[:, 1] > 0).astype(int)]
NAMES = ["a", "b", "c"]
FRAME = pd.DataFrame(X, columns=NAMES).assign(y=Y, w=W, label=LABELS)
ALL = ("rows", "labels", "weights")


def write_parquet(folder, target):
    parquet.write_table(pa.Table.from_pandas(FRAME), folder / "x.parquet", row_group_size=700)
    return scan(folder / "x.parquet", target=target, features=NAMES, weight="w")


def write_files(folder, target):
    for i, part in enumerate(np.array_split(np.arange(N), 3)):
        columns = FRAME.columns if i != 1 else FRAME.columns[::-1]  # in any order
        parquet.write_table(pa.Table.from_pandas(FRAME.iloc[part][columns]), folder / f"x-{i}.parquet")
    return scan(folder / "x-*.parquet", target=target, features=NAMES, weight="w")


def write_csv(folder, target):
    FRAME.to_csv(folder / "x.csv", index=False)
    return scan(folder / "x.csv", target=target, features=NAMES, weight="w")


def write_compressed_csv(folder, target):
    FRAME[:1000].to_csv(folder / "1.csv.gz", index=False)
    FRAME[1000:].to_csv(folder / "2.csv.gz", index=False)
    return scan([folder / "1.csv.gz", folder / "2.csv.gz"], target=target, features=NAMES, weight="w")


def write_npz(folder, target):
    np.savez(folder / "x.npz", rows=np.asfortranarray(X), y=Y, label=LABELS, w=W)
    return scan(folder / "x.npz", target=target, weight="w")


def write_compressed_npz(folder, target):
    np.savez_compressed(folder / "x.npz", rows=X, y=Y, label=LABELS, w=W)
    return scan(folder / "x.npz", target=target, weight="w", features="rows")


def write_npy(folder, target):
    np.save(folder / "x.npy", np.column_stack([W, X]))
    np.save(folder / "y.npy", Y if target == "y" else LABELS)
    return scan(folder / "x.npy", target=folder / "y.npy", weight=0)


FORMATS = [
    write_parquet, write_files, write_csv, write_compressed_csv, write_npz, write_compressed_npz, write_npy,
]  # fmt: skip
each_format = pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)


@pytest.fixture(params=[0, 1 << 23], ids=["streamed", "kept"])
def kept(request, monkeypatch):
    monkeypatch.setattr(parquet_source, "_KEPT_NUMBERS", request.param)


@each_format
@pytest.mark.parametrize("target", ["y", "label"])
@pytest.mark.usefixtures("kept")
def test_all_formats_give_what_was_written(write, target, tmp_path):
    source = write(tmp_path, target)
    expected = Y if target == "y" else LABELS
    for size in (1, 999, N):
        pieces = list(source.pieces(10, N - 10, size, ALL)) if size > 1 else list(source.pieces(10, 13, 1, ALL))
        last = N - 10 if size > 1 else 13
        assert [len(piece.rows) for piece in pieces[:-1]] == [size] * (len(pieces) - 1)
        for name, values in zip(ALL, (X, expected, W), strict=True):
            np.testing.assert_array_equal(np.concatenate([getattr(p, name) for p in pieces]), values[10:last])
        assert all(piece.rows.flags.c_contiguous for piece in pieces)
    index = np.array([5, 2999, 5, 0, 1234])
    taken = source.take(index, ALL)
    np.testing.assert_array_equal(taken.rows, X[index])
    np.testing.assert_array_equal(taken.labels, expected[index])
    assert source.take(index, ("weights",)).rows is None
    assert source.take(index[:0], ("rows",)).rows.shape == (0, 3)
    assert (source.n_rows, source.n_features, source.dtype) == (N, 3, np.float64)
    assert (source.bounds[0], source.bounds[-1]) == (0, N)


@each_format
def test_sources_pickle_as_paths(write, tmp_path):
    source = write(tmp_path, "y")
    part = source.shipped(slice(1000, 2000))
    content = pickle.dumps(part)
    assert len(content) < 4000
    again = pickle.loads(content)
    np.testing.assert_array_equal(again.take(np.array([3, 1]), ALL).rows, X[[1003, 1001]])
    np.testing.assert_array_equal(np.concatenate([p.labels for p in again.pieces(0, 1000, 300, ALL)]), Y[1000:2000])
    assert part.fingerprint() != source.fingerprint() == pickle.loads(pickle.dumps(source)).fingerprint()


@each_format
def test_files_that_change_are_noticed_by_name(write, tmp_path):
    source = write(tmp_path, "y")
    before, path = source.fingerprint(), Path(source.stamps[-1].path)
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(ValueError, match=f"{path.name} has changed since it was scanned"):
        list(source.pieces(0, N, 100, ("rows",)))
    with pytest.raises(ValueError, match=f"{path.name} has changed"):
        source.take(np.array([N - 1]), ("rows",))
    assert source.fingerprint() == before


def test_spooled_numbers_vanish_with_their_scan(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    source = write_csv(tmp_path, "y")
    part = source.shipped(slice(0, 10))
    copy = pickle.loads(pickle.dumps(source))
    assert len(list(folder.iterdir())) == 1
    del copy, source
    np.testing.assert_array_equal(next(part.pieces(0, 10, 10, ("rows",))).rows, X[:10])
    del part
    assert list(folder.iterdir()) == []
    FRAME.assign(a=FRAME["a"].where(FRAME.index < N - 1)).to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(ValueError, match=r"bad.csv, row 2999, column 'a'"):
        scan(tmp_path / "bad.csv", features=NAMES)
    assert list(folder.iterdir()) == []


def test_features_are_all_other_columns_and_found_by_name(tmp_path):
    write_parquet(tmp_path, "y")
    source = scan(tmp_path / "x.parquet", target="label", weight="w")
    assert source.feature_names == ("a", "b", "c", "y")
    model = NystromClassifier(n_basis=20, random_state=0).fit(source.with_features(("c", "b")))
    assert model.feature_names_in_.tolist() == ["c", "b"]
    np.testing.assert_array_equal(model.predict(source), model.predict(FRAME[["c", "b"]]))
    with pytest.raises(ValueError, match=r"there is no column 'z': the columns are 'a', 'b'"):
        source.with_features(("z",))


def test_folders_are_columns(tmp_path):
    for year, part in FRAME.groupby(FRAME.index % 2):
        for name, group in part.groupby("label"):
            folder = tmp_path / f"year={2000 + year}" / f"kind={name}%20one"
            folder.mkdir(parents=True)
            parquet.write_table(pa.Table.from_pandas(group.drop(columns="label")), folder / "part.parquet")
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "_hidden" / "x.parquet").write_bytes(b"nothing")
    source = scan(tmp_path, target="kind", features=["year", "a"])
    piece = next(source.pieces(0, N, N, ("rows", "labels")))
    assert set(piece.rows[:, 0]) == {2000.0, 2001.0}
    assert set(piece.labels) == {"low one", "high one"}
    assert source.take(np.array([0, 9]), ("labels",)).labels.shape == (2,)
    with pytest.raises(ValueError, match="'kind' holds text, which is no feature"):
        scan(tmp_path)


def test_several_targets(tmp_path):
    write_parquet(tmp_path, "y")
    source = scan(tmp_path / "x.parquet", target=["y", "w"], features=NAMES)
    model = NystromRegressor(n_basis=20, random_state=0, noise=0.1).fit(source)
    expected = NystromRegressor(n_basis=20, random_state=0, noise=0.1).fit(FRAME[NAMES], FRAME[["y", "w"]])
    np.testing.assert_allclose(model.predict(source), expected.predict(FRAME[NAMES]), rtol=1e-9)


@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [
        ({"a": pa.float32(), "b": pa.float32()}, np.float32),
        ({"a": pa.float32(), "b": pa.float64()}, np.float64),
        ({"a": pa.int8(), "b": pa.bool_()}, np.float64),
        ({"a": pa.decimal128(25, 1), "b": pa.uint64()}, np.float64),
    ],
)
def test_numbers_are_as_they_are(kinds, dtype, tmp_path):
    values = {name: pa.array([1, 0, 1]).cast(kind) for name, kind in kinds.items()}
    parquet.write_table(pa.table(values), tmp_path / "x.parquet")
    piece = next(scan(tmp_path / "x.parquet").pieces(0, 3, 3, ("rows",)))
    assert piece.rows.dtype == dtype
    np.testing.assert_array_equal(piece.rows, [[1, 1], [0, 0], [1, 1]])


def test_whole_numbers_are_labels_as_they_are(tmp_path):
    pd.DataFrame({"x": [0.5, 1.5, 2.5, 3.5], "y": [1, 2, 1, 2]}).to_csv(tmp_path / "x.csv", index=False)
    labels = next(scan(tmp_path / "x.csv", target="y").pieces(0, 4, 4, ("labels",))).labels
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    "lengths",
    [[100_000], [1_000_000] * 10, [500] * 1000, [0, 9000, 0, 1, 100_000], [5], [1 << 22, 3], [20_000] * 7, [1024] * 9],
)
def test_partitions_follow_row_groups(lengths):
    starts = np.cumsum([0, *lengths])
    bounds = list(partitions(starts))
    sizes = np.diff(bounds)
    n_rows = sum(lengths)
    assert (bounds[0], bounds[-1]) == (0, n_rows)
    assert np.all(sizes > 0)
    assert np.max(sizes) <= 1.5 * (1 << 19)
    if n_rows >= 8 * 1024 * 2:
        assert len(sizes) >= 7
    assert len(sizes) <= max(64 + 1, 2 * n_rows / (1 << 19) + 1)
