import pytest
from mercer.engine.tiles import (
    FEWEST_ROWS,
    MOST_ROWS,
    TILE_BYTES,
    accumulator_workers,
    working_memory_bytes,
)
from sklearn import config_context

from mercer.engine import tile_rows, tiles

MEGABYTE = 1 << 20


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("n_columns", [200, 1000, 10_000])
def test_a_tile_fits_the_cache(n_columns, itemsize):
    rows = tile_rows(n_columns, itemsize=itemsize)
    assert rows * n_columns * itemsize <= TILE_BYTES or rows == FEWEST_ROWS
    assert (rows + 1) * n_columns * itemsize > TILE_BYTES


def test_narrow_tiles_are_not_endless():
    assert tile_rows(1) == tile_rows(0) == MOST_ROWS


def test_wide_tiles_keep_some_rows():
    assert tile_rows(1_000_000) == FEWEST_ROWS
    assert tile_rows(100_000, fewest=256) == 256


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("n_columns", [10, 1000, 50_000])
def test_tiles_of_all_workers_fit_the_working_memory(n_columns, workers):
    with config_context(working_memory=1):
        rows = tile_rows(n_columns, workers=workers, fewest=256)
        assert rows * n_columns * 8 * workers <= MEGABYTE or rows == 1


def test_one_row_is_the_least():
    with config_context(working_memory=1):
        assert tile_rows(10_000_000) == 1
    with config_context(working_memory=0):
        assert tile_rows(10) == 1


def test_working_memory_is_scikit_learns():
    with config_context(working_memory=3):
        assert working_memory_bytes() == 3 * MEGABYTE


@pytest.mark.parametrize(
    ("n_jobs", "accumulator", "expected"),
    [(4, MEGABYTE, 3), (2, MEGABYTE, 2), (4, 10 * MEGABYTE, 1), (4, 0, 4), (1, 1, 1)],
)
def test_accumulators_fit_the_working_memory(n_jobs, accumulator, expected):
    with config_context(working_memory=3):
        assert accumulator_workers(n_jobs, accumulator) == expected


@pytest.mark.parametrize(
    ("cache", "expected"),
    [(0, 2 * MEGABYTE), (-1, 2 * MEGABYTE), (1 << 16, MEGABYTE), (1 << 19, 2 * MEGABYTE), (1 << 25, 4 * MEGABYTE)],
)
def test_a_tile_is_a_few_times_the_cache_of_a_core(monkeypatch, cache, expected):
    monkeypatch.setattr(tiles.os, "sysconf", lambda _name: cache)
    assert tiles._tile_bytes() == expected


def test_where_the_cache_is_not_known_a_usual_size_is_taken(monkeypatch):
    monkeypatch.delattr(tiles.os, "sysconf")
    assert tiles._tile_bytes() == 2 * MEGABYTE
