"""The loops over rows and over blocks of rows."""

import threading

import numpy as np
import pytest
from mercer.engine.walk import ArraySum

from mercer.engine import ArrayRows, Rows, Threads, map_rows, reduce_blocks, reduce_rows

N = 20


class Recorded(Rows):
    """Rows that write down how they were asked for."""

    def __init__(self, table):
        self._table, self._lock = table, threading.Lock()
        self.n_rows, self.n_features = table.shape
        self.dtype = table.dtype
        self.reads, self.takes = [], []

    def read(self, start, stop):
        with self._lock:
            self.reads.append((start, stop))
        return self._table[start:stop]

    def take(self, indices):
        with self._lock:
            self.takes.append(list(indices))
        return self._table[indices]


class Seen:
    """What a worker was given, in its order."""

    def __init__(self):
        self.blocks, self.numbers, self.workers = [], [], 1

    def merge_in_place(self, other):
        self.blocks += other.blocks
        self.numbers += other.numbers
        self.workers += other.workers


def prepare_to_watch():
    seen = Seen()

    def add(rows, block):
        seen.blocks.append(block)
        seen.numbers.append(rows[:, 0].astype(int).tolist())

    return seen, add


@pytest.fixture
def table():
    """Each row holds its number."""
    return np.arange(float(N))[:, np.newaxis] * np.ones(2)


def numbers_of(block):
    return list(range(N))[block] if isinstance(block, slice) else list(block)


SLICES = [slice(0, 3), slice(3, 4), slice(4, 15), slice(15, N)]
ARRAYS = [np.array([19, 0]), np.array([7]), np.setdiff1d(np.arange(N), [0, 7, 19])]
MIXED = [np.array([5, 1]), slice(6, N), np.array([0, 2, 3, 4])]


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
@pytest.mark.parametrize("blocks", [SLICES, ARRAYS, MIXED, tuple(SLICES)], ids=["slices", "arrays", "mixed", "tuple"])
def test_every_block_is_seen_once_with_its_rows_in_order(table, blocks, n_jobs):
    seen = reduce_blocks(
        Recorded(table), blocks, Threads(n_jobs), workers=n_jobs, prepare=prepare_to_watch, name="blocks"
    )
    assert seen.numbers == [numbers_of(block) for block in blocks]
    assert all(one is other for one, other in zip(seen.blocks, blocks, strict=True))
    assert sorted(number for numbers in seen.numbers for number in numbers) == list(range(N))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_slices_are_read_and_index_arrays_taken(table, n_jobs):
    rows = Recorded(table)
    reduce_blocks(rows, MIXED, Threads(n_jobs), workers=n_jobs, prepare=prepare_to_watch, name="blocks")
    assert rows.reads == [(6, N)]
    assert sorted(rows.takes) == [[0, 2, 3, 4], [5, 1]]


@pytest.mark.parametrize(("n_jobs", "workers", "expected"), [(1, 1, 1), (3, 3, 3), (3, 2, 2), (8, 8, 4)])
def test_there_are_no_more_workers_than_allowed_or_blocks(table, n_jobs, workers, expected):
    seen = reduce_blocks(
        ArrayRows(table), SLICES, Threads(n_jobs), workers=workers, prepare=prepare_to_watch, name="blocks"
    )
    assert seen.workers == expected


def test_no_blocks(table):
    rows = Recorded(table)
    seen = reduce_blocks(rows, [], Threads(2), workers=2, prepare=prepare_to_watch, name="blocks")
    assert (seen.numbers, rows.reads, rows.takes) == ([], [], [])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_in_a_block_surfaces(table, n_jobs):
    def prepare():
        def add(_rows, block):
            if block is SLICES[2]:
                msg = "the third"
                raise RuntimeError(msg)

        return ArraySum(np.zeros(1)), add

    with pytest.raises(RuntimeError, match="the third"):
        reduce_blocks(ArrayRows(table), SLICES, Threads(n_jobs), workers=n_jobs, prepare=prepare, name="blocks")


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_tiles_of_a_reduction_cover_every_row_once_in_order(table, n_jobs):
    def prepare():
        seen = Seen()

        def add(rows, start, stop):
            seen.blocks.append((start, stop))
            seen.numbers += rows[:, 0].astype(int).tolist()

        return seen, add

    seen = reduce_rows(ArrayRows(table), Threads(n_jobs), tile=3, workers=n_jobs, prepare=prepare, name="rows")
    assert seen.numbers == list(range(N))
    assert seen.blocks == [(start, min(start + 3, N)) for start in range(0, N, 3)]


class Apart(Threads):
    """Workers that do not share the caller's memory."""

    shares_memory = False


@pytest.mark.parametrize("executor", [Threads(1), Threads(3), Apart(1), Apart(3)], ids=lambda e: type(e).__name__)
def test_a_map_fills_the_part_of_the_result_that_belongs_to_the_tile(table, executor):
    def prepare():
        def function(rows, target):
            target[...] = rows[:, 0] ** 2

        return function

    out = np.full(N, np.nan)
    map_rows(ArrayRows(table), executor, tile=3, prepare=prepare, out=out, name="squares")
    np.testing.assert_array_equal(out, np.arange(N) ** 2)
