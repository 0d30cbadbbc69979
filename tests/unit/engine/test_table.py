"""Tables, their partitions and tiles."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse

from mercer.engine import (
    ArrayRows,
    ArrayTable,
    RowPass,
    Rows,
    Scratch,
    SparseRows,
    Threads,
    as_rows,
)
from mercer.engine.blocks import BlockTable, Spans
from mercer.engine.rows import partition_bounds

N = 5000


class Halves:
    """Class codes 0 and 1 as targets ±1, in two columns."""

    n_columns = 2

    def columns(self, codes):
        return np.where(codes[:, np.newaxis] == np.arange(2), 1.0, -1.0)


class Source(Rows):
    """Rows that are numbers; it cannot be pickled, as a source on another machine could not."""

    def __init__(self, n_rows):
        self.n_rows, self.n_features, self.dtype = n_rows, 1, np.dtype(np.float64)
        self.reads, self.takes = [], []

    def read(self, start, stop):
        self.reads.append((start, stop))
        return np.arange(start, stop, dtype=float)[:, np.newaxis]

    def take(self, indices):
        self.takes.append(list(indices))
        return np.asarray(indices, dtype=float)[:, np.newaxis]


def draw(**options):
    rng = np.random.default_rng(0)
    rows = ArrayRows(rng.normal(size=(N, 2)))
    return ArrayTable(rows, rng.normal(size=(N, 2)), rng.uniform(size=N), **options)


def gathered(parts, size=100):
    """Rows, targets and weights of all tiles; and the number of the first row of each."""
    tiles = [tile for part in parts for tile in part.tiles(size, Scratch())]
    weights = None if tiles[0].weights is None else np.concatenate([tile.weights for tile in tiles])
    rows, targets = (np.concatenate([getattr(t, name) for t in tiles]) for name in ("rows", "targets"))
    return rows, targets, weights, [tile.first for tile in tiles]


@pytest.mark.parametrize("n_rows", [0, 1, 1023, 1024, 2047, 2048, 5000, 100_000, 10_000_000])
def test_partitions_cover_all_rows_and_depend_on_their_number_alone(n_rows):
    bounds = partition_bounds(n_rows)
    lengths = np.diff(bounds)
    assert (bounds[0], bounds[-1]) == (0, n_rows)
    assert len(lengths) <= 64
    if n_rows >= 2048:
        assert np.min(lengths) >= 1024
        assert np.ptp(lengths) <= 1


@pytest.mark.parametrize("shipped", [False, True])
def test_rows_targets_and_weights_travel_together(shipped):
    table = draw()
    parts = table.parts()
    assert len(parts) > 2
    if shipped:
        parts = [pickle.loads(pickle.dumps(part)) for part in parts]
    rows, targets, weights, first = gathered(parts)
    np.testing.assert_array_equal(rows, table.rows.read(0, N))
    np.testing.assert_array_equal(targets, table.labels)
    np.testing.assert_array_equal(weights, table.weights)
    assert first == sorted(first)
    assert [part.first for part in parts] == partition_bounds(N)[:-1]
    assert sum(part.n_rows for part in parts) == N


def test_a_partition_ships_without_the_others():
    table = draw()
    whole = table.rows.read(0, N).nbytes + table.labels.nbytes + table.weights.nbytes
    assert max(len(pickle.dumps(part)) for part in table.parts()) < 1.2 * whole / len(table.parts())


def test_codes_become_targets_in_the_tile():
    codes = np.arange(N) % 2
    table = ArrayTable(draw().rows, codes, coding=Halves(), shift=np.array([0.5, 0.0]))
    assert table.n_outputs == 2
    for parts in (table.parts(), [pickle.loads(pickle.dumps(part)) for part in table.parts()]):
        np.testing.assert_array_equal(gathered(parts)[1], Halves().columns(codes) - [0.5, 0.0])
    np.testing.assert_array_equal(table.targets, Halves().columns(codes) - [0.5, 0.0])


def test_shifts_add_up():
    table = draw().shifted(np.array([1.0, 2.0])).shifted(np.array([0.5, 0.0]))
    np.testing.assert_allclose(table.targets, draw().labels - [1.5, 2.0], rtol=1e-15)
    assert draw().shifted(np.zeros(2)).shift is None


def test_a_subset_has_its_own_order():
    table, index = draw(), np.array([7, 3, 2999])
    rows, targets, weights, _ = gathered(table.subset(index).parts())
    np.testing.assert_array_equal(rows, table.rows.take(index))
    np.testing.assert_array_equal(targets, table.labels[index])
    np.testing.assert_array_equal(weights, table.weights[index])
    assert table.subset(np.arange(N)) is table


def test_rows_alone_have_no_targets():
    table = ArrayTable(as_rows(np.ones((5, 2))))
    (part,) = table.parts()
    (tile,) = part.tiles(10, Scratch())
    assert (table.n_outputs, tile.targets.shape, tile.weights) == (0, (5, 0), None)


SLICES = [slice(0, 300), slice(300, 301), slice(301, N)]
ARRAYS = [np.array([2999, 0]), np.array([7]), np.setdiff1d(np.arange(N), [0, 7, 2999])]


@pytest.mark.parametrize("blocks", [SLICES, ARRAYS, [*ARRAYS[:2], slice(8, 2999)]], ids=["slices", "arrays", "mixed"])
@pytest.mark.parametrize("shipped", [False, True])
def test_every_block_is_a_tile(blocks, shipped):
    table = draw()
    blocked = BlockTable(table, blocks)
    parts = blocked.parts()
    if shipped:
        parts = [pickle.loads(pickle.dumps(part)) for part in parts]
    tiles = [tile for part in parts for tile in part.tiles(1, Scratch())]
    assert len(tiles) == blocked.n_tiles(1) == len(blocks)
    for tile, block in zip(tiles, blocks, strict=True):
        np.testing.assert_array_equal(tile.rows, table.rows.read(0, N)[block])
        np.testing.assert_array_equal(tile.targets, table.labels[block])
        np.testing.assert_array_equal(tile.weights, table.weights[block])
    assert blocked.longest_tile(1) == max(tile.n_rows for tile in tiles)


def test_slices_are_read_and_index_arrays_taken():
    source = Source(20)
    blocked = BlockTable(ArrayTable(source), [np.array([5, 1]), slice(6, 20), np.array([0, 2])])
    for part in blocked.parts():
        list(part.tiles(1, Scratch()))
    assert source.reads == [(6, 20)]
    assert source.takes == [[5, 1], [0, 2]]


def test_no_blocks_are_one_empty_partition():
    (part,) = BlockTable(draw(), []).parts()
    assert list(part.tiles(1, Scratch())) == []


def test_spans_are_tiles_of_numbers():
    table = Spans([0, 3, 3, 10])
    tiles = [tile for part in table.parts() for tile in part.tiles(1, Scratch())]
    assert [(tile.first, tile.n_rows) for tile in tiles] == [(0, 3), (3, 0), (3, 7)]


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.coo_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
def test_a_sparse_matrix_is_a_table_whose_tiles_are_dense(kind, dtype):
    dense = (np.random.default_rng(0).integers(-3, 2, size=(N, 5)) * 2).clip(0).astype(dtype)
    table = ArrayTable(as_rows(kind(dense)))
    assert isinstance(table.rows, SparseRows)
    for parts in (table.parts(), [pickle.loads(pickle.dumps(part)) for part in table.parts()]):
        rows = gathered(parts)[0]
        np.testing.assert_array_equal(rows, dense)
        assert rows.dtype == (np.float32 if dtype == np.float32 else np.float64)
    np.testing.assert_array_equal(table.rows.take(np.array([4, 4, 0])), dense[[4, 4, 0]])


def test_scratch_is_used_again_and_stays_behind():
    scratch = Scratch()
    first = scratch.array("values", (10, 3))
    assert np.shares_memory(first, scratch.array("values", (5, 2)))
    assert not np.shares_memory(first, scratch.array("others", (10, 3)))
    assert scratch.array("values", (10, 3), np.float32).dtype == np.float32
    assert pickle.loads(pickle.dumps(scratch))._buffers == {}


def test_a_block_knows_how_many_rows_come_before_it():
    table = draw()
    blocks = [np.arange(i, N, 10) for i in range(10)]
    found = Threads(2).map(_First(), BlockTable(table, blocks))
    np.testing.assert_array_equal(found, table.rows.read(0, N)[np.concatenate(blocks), 0])


@dataclass(frozen=True)
class _First(RowPass):
    name, width, shape = "first column", 1, ()

    def apply(self, tile, out):
        out[...] = tile.rows[:, 0]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_subsets_and_blocks_ship_without_the_other_rows(kind):
    array = np.random.default_rng(0).normal(size=(20_000, 10))
    table = ArrayTable(as_rows(kind(array)))
    whole = len(pickle.dumps(table.rows.shipped(slice(0, 20_000))))
    half = table.subset(np.arange(0, 20_000, 2)).subset(np.arange(0, 10_000, 2))
    parts = [*half.parts(), *BlockTable(table, [np.arange(i, 20_000, 40) for i in range(40)]).parts()]
    assert max(len(pickle.dumps(part)) for part in parts) < whole / 4
