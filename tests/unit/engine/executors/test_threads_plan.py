from dataclasses import dataclass

import numpy as np
import pytest
from sklearn import config_context

from mercer.engine import ArrayTable, Pass, as_rows
from mercer.engine.blocks import BlockTable
from mercer.engine.executors import threads
from mercer.engine.executors.threads import MOST_ROWS, TILE_BYTES, make_plan, working_memory_bytes

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Work(Pass):
    """A pass of any cost."""

    width: int = 100
    state_numbers: int = 0
    fewest: int = 16

    name = "work"

    def start(self): ...
    def add(self, state, tile): ...
    def finish(self, state): ...


TABLE = ArrayTable(as_rows(np.broadcast_to(np.zeros(2), (100_000, 2))))


@pytest.mark.parametrize("width", [200, 1000, 10_000])
def test_a_tile_fits_the_cache(width):
    rows = make_plan(Work(width), TABLE, 1).tile
    assert rows * width * 8 <= TILE_BYTES or rows == 16
    assert (rows + 1) * width * 8 > TILE_BYTES


def test_narrow_tiles_are_not_endless():
    assert make_plan(Work(1), TABLE, 1).tile == make_plan(Work(0), TABLE, 1).tile == MOST_ROWS


def test_wide_tiles_keep_some_rows():
    assert make_plan(Work(1_000_000), TABLE, 1).tile == 16
    assert make_plan(Work(100_000, fewest=256), TABLE, 1).tile == 256


@pytest.mark.parametrize("n_jobs", [1, 2, 7])
@pytest.mark.parametrize("width", [10, 1000, 50_000])
def test_tiles_of_all_workers_fit_the_working_memory(width, n_jobs):
    with config_context(working_memory=1):
        found = make_plan(Work(width, fewest=256), TABLE, n_jobs)
    assert found.tile * width * 8 * found.workers <= MEGABYTE or found.tile == 1


@pytest.mark.parametrize("width", [10, 1000, 50_000])
@pytest.mark.parametrize("memory", [0.01, 1, 1000])
def test_tiles_do_not_depend_on_the_number_of_workers(width, memory):
    with config_context(working_memory=memory):
        assert len({make_plan(Work(width), TABLE, n_jobs).tile for n_jobs in (1, 2, 16)}) == 1


def test_one_row_is_the_least():
    for memory in (0, 1):
        with config_context(working_memory=memory):
            assert make_plan(Work(10_000_000), TABLE, 2).tile == 1


def test_working_memory_is_scikit_learns():
    with config_context(working_memory=3):
        assert working_memory_bytes() == 3 * MEGABYTE


@pytest.mark.parametrize(
    ("n_jobs", "megabytes", "workers", "is_merged"),
    [(4, 1, 4, True), (8, 4, 1, True), (8, 3, 2, True), (2, 1, 2, True), (8, 6, 1, False), (8, 20, 1, False)],
)
def test_sums_fit_the_working_memory(n_jobs, megabytes, workers, is_merged):
    """That of all partitions so far, and one for each worker; a single one if not even two fit."""
    with config_context(working_memory=10):
        found = make_plan(Work(8, state_numbers=megabytes * MEGABYTE // 8), TABLE, n_jobs)
    assert (found.workers, found.is_merged) == (workers, is_merged)
    if is_merged:
        assert (found.ahead + 1) * megabytes <= 10


@pytest.mark.parametrize(("blocks", "workers", "blas"), [(1, 1, 8), (3, 3, 1), (40, 8, 1)])
def test_a_single_block_leaves_the_other_cores_to_blas(blocks, workers, blas):
    table = BlockTable(TABLE, [slice(i, i + 100) for i in range(blocks)])
    found = make_plan(Work(100), table, 8)
    assert (found.workers, found.blas) == (workers, blas)


def test_a_block_larger_than_memory_has_all_of_blas():
    with config_context(working_memory=1):
        found = make_plan(Work(100), BlockTable(TABLE, [slice(0, 50_000), slice(50_000, 100_000)]), 8)
    assert (found.workers, found.blas) == (1, 8)


def test_there_are_no_more_workers_than_tiles():
    assert make_plan(Work(100), ArrayTable(as_rows(np.zeros((20, 2)))), 8).workers == 1


def test_threads_of_blas_do_not_depend_on_the_number_of_jobs_where_there_is_memory():
    for n_jobs in (1, 2, 16):
        for n_rows in (1, 700, 100_000):
            assert make_plan(Work(100), ArrayTable(as_rows(np.zeros((n_rows, 2)))), n_jobs).blas == 1


@pytest.mark.parametrize(
    ("cache", "expected"),
    [(0, 2 * MEGABYTE), (-1, 2 * MEGABYTE), (1 << 16, MEGABYTE), (1 << 19, 2 * MEGABYTE), (1 << 25, 4 * MEGABYTE)],
)
def test_a_tile_is_a_few_times_the_cache_of_a_core(monkeypatch, cache, expected):
    monkeypatch.setattr(threads.os, "sysconf", lambda _name: cache)
    assert threads._tile_bytes() == expected


def test_where_the_cache_is_not_known_a_usual_size_is_taken(monkeypatch):
    monkeypatch.delattr(threads.os, "sysconf")
    assert threads._tile_bytes() == 2 * MEGABYTE
