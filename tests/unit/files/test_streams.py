"""Subsets, blocks and draws read what they need of files once, in order."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from mercer import CommitteeRegressor, NystromRegressor, scan
from mercer.basis import KMeans, Leverage, Uniform
from mercer.engine import ArrayTable, SomeRows, SourceRows, Threads, kernel_times
from mercer.engine.blocks import BlockTable
from mercer.files import parquet as parquet_source
from mercer.kernels import Gaussian

N, GROUP = 4000, 500
X = np.random.default_rng(0).normal(size=(N, 2))
Y = np.sin(X[:, 0])


@pytest.fixture
def read(monkeypatch):
    """How many rows were decoded."""
    monkeypatch.setattr(parquet_source, "_KEPT_NUMBERS", 0)
    counted, batches = [], parquet_source.ParquetFile.batches

    def counting(self, group, columns, size):
        for batch in batches(self, group, columns, size):
            counted.append(len(next(iter(batch.values()))))
            yield batch

    monkeypatch.setattr(parquet_source.ParquetFile, "batches", counting)
    return counted


@pytest.fixture
def source(tmp_path):
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=GROUP)
    return scan(tmp_path / "x.parquet", target="y")


def test_draws_touch_only_the_groups_they_need(source, read):
    np.testing.assert_array_equal(source.take(np.array([1600, 20, 1501]), ("rows",)).rows, X[[1600, 20, 1501]])
    assert sum(read) <= 2 * GROUP
    read.clear()
    np.testing.assert_array_equal(source.take(np.arange(N)[::-1], ("labels",)).labels, Y[::-1])
    assert sum(read) == N


@pytest.mark.parametrize("index", [np.arange(0, N, 3), np.array([5, 6, 7, 3999]), np.arange(N)])
def test_rows_in_order_are_read_once(index, source, read):
    some = SomeRows(SourceRows(source), index)
    found = [rows for _, _, rows in some.tiles(0, len(index), 100)]
    assert [len(rows) for rows in found] == [min(100, len(index) - i) for i in range(0, len(index), 100)]
    np.testing.assert_array_equal(np.concatenate(found), X[index])
    assert sum(read) <= N
    products = kernel_times(some, Gaussian(), X[:5], np.eye(5), executor=Threads(2))
    np.testing.assert_allclose(products, Gaussian()(X[index], X[:5]), rtol=1e-12)


def test_blocks_that_follow_each_other_are_read_in_one_stream(source, read):
    blocks = [slice(start, min(start + 150, N)) for start in range(0, N, 150)]
    tiles = list(BlockTable(ArrayTable(SourceRows(source)), blocks).tiles(1))
    for block, tile in zip(blocks, tiles, strict=True):
        np.testing.assert_array_equal(tile.rows, X[block])
        assert tile.first == 0
    assert sum(read) < 2 * N  # of groups in which one part ends and the next begins, some rows are decoded twice


def test_a_committee_takes_rows_of_files_in_order(source):
    options = {"n_basis": 30, "noise": 0.1, "block_size": 100, "random_state": 0}
    model = CommitteeRegressor(Gaussian(), **options).fit(source)
    np.testing.assert_array_equal(model.labels_, np.arange(N) // 100)
    expected = CommitteeRegressor(Gaussian(), partition="order", **options).fit(X, Y)
    np.testing.assert_allclose(model.predict(source), expected.predict(X), rtol=0, atol=1e-9)
    assert model.calibration_ == pytest.approx(expected.calibration_, rel=1e-6)
    with pytest.raises(ValueError, match="partition='kmeans' puts rows together that lie anywhere in files"):
        CommitteeRegressor(partition="kmeans", **options).fit(source)


@pytest.mark.parametrize("strategy", [Uniform(), KMeans(), Leverage()], ids=str)
def test_strategies_choose_what_they_choose_of_an_array(strategy, source):
    options = {"n_basis": 20, "noise": 0.1, "random_state": 0, "basis": strategy}
    found = NystromRegressor(Gaussian(), **options).fit(source)
    expected = NystromRegressor(Gaussian(), **options).fit(X, Y)
    np.testing.assert_allclose(found.basis_, expected.basis_, rtol=1e-9)
