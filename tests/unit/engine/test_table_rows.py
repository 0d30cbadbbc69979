import numpy as np
import pytest

from mercer.engine import ArrayRows, Rows, SomeRows, Threads, as_rows, kernel_times
from mercer.kernels import Gaussian
from tests.doubles import GuardedRows


@pytest.fixture
def table():
    return np.random.default_rng(0).normal(size=(20, 3))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_contiguous_floats_are_read_without_a_copy(table, dtype):
    table = table.astype(dtype)
    rows = ArrayRows(table)
    tile = rows.read(5, 12)
    assert np.shares_memory(tile, table)
    assert tile.dtype == rows.dtype == dtype
    np.testing.assert_array_equal(tile, table[5:12])
    assert (rows.n_rows, rows.n_features, len(rows)) == (20, 3, 20)


@pytest.mark.parametrize(
    "arrange",
    [
        np.asfortranarray,
        lambda table: np.repeat(table, 2, axis=1)[:, ::2],
        lambda table: table.astype(">f8"),
        lambda table: table.astype(np.longdouble),
        lambda table: np.round(10 * table).astype(np.int8),
        lambda table: table > 0,
        lambda table: table.astype(np.float16),
    ],
    ids=["fortran", "strided", "byte order", "long double", "int8", "bool", "float16"],
)
def test_other_arrays_are_converted_a_tile_at_a_time(table, arrange):
    source = arrange(table)
    rows = ArrayRows(source)
    for tile, expected in [(rows.read(5, 12), source[5:12]), (rows.take(np.array([3, 1])), source[[3, 1]])]:
        assert tile.dtype == np.float64
        assert tile.flags.c_contiguous
        np.testing.assert_array_equal(tile, expected.astype(np.float64))


def test_memory_maps_are_read_where_asked(table, tmp_path):
    np.save(tmp_path / "table.npy", table)
    mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
    rows = ArrayRows(mapped)
    assert np.shares_memory(rows.read(0, 5), mapped)
    np.testing.assert_array_equal(rows.read(5, 12), table[5:12])


def test_take_copies(table):
    rows = ArrayRows(table)
    taken = rows.take(np.array([4, 4, 0]))
    assert not np.shares_memory(taken, table)
    np.testing.assert_array_equal(taken, table[[4, 4, 0]])


def test_no_rows(table):
    assert ArrayRows(table).read(7, 7).shape == (0, 3)
    assert ArrayRows(table[:0]).n_rows == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_reported_with_their_rows(table, value):
    table[8, 1] = value
    rows = ArrayRows(table)
    rows.read(0, 8)
    with pytest.raises(ValueError, match=r"contains NaN or infinity \(rows 5 to 11\)"):
        rows.read(5, 12)
    with pytest.raises(ValueError, match="contains NaN or infinity"):
        rows.take(np.array([8]))
    np.testing.assert_array_equal(ArrayRows(table, checked=True).read(8, 9), table[8:9])


def test_as_rows_wraps_arrays_and_passes_sources_through(table):
    rows = as_rows(table)
    assert isinstance(rows, ArrayRows)
    assert as_rows(rows) is rows
    np.testing.assert_array_equal(as_rows(table.tolist()).read(0, 20), table)


@pytest.mark.parametrize("wrong", [np.ones(3), np.ones((2, 2, 2)), 1.0, [1.0, 2.0]])
def test_as_rows_needs_two_dimensions(wrong):
    with pytest.raises(ValueError, match="rows must form a two-dimensional array"):
        as_rows(wrong)


def test_rows_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Rows()


# --------------------------------------------------------------------------- the double that guards rows in other tests


def test_guarded_rows_may_be_read_by_the_engine_only(table):
    rows = GuardedRows(table)
    kernel_times(rows, Gaussian(), table[:2], np.ones((2, 1)), executor=Threads(1))
    assert rows.rows_read == rows.largest_read == 20
    with pytest.raises(AssertionError, match="read was called from"):
        rows.read(0, 1)
    with pytest.raises(AssertionError, match="take was called from"):
        rows.take(np.array([0]))


def test_guarded_rows_fail_on_reads_that_are_too_long(table):
    rows = GuardedRows(table, longest_read=10)
    with pytest.raises(AssertionError, match="read asked for 20 rows at once"):
        kernel_times(rows, Gaussian(), table[:2], np.ones((2, 1)), executor=Threads(1))


def test_guarded_rows_are_not_an_array(table):
    with pytest.raises(AssertionError, match="as one array"):
        np.asarray(GuardedRows(table))


@pytest.mark.parametrize(
    ("span", "size", "expected"),
    [
        ((0, 10), 4, [(0, 4), (4, 8), (8, 10)]),
        ((3, 9), 3, [(3, 6), (6, 9)]),
        ((5, 6), 100, [(5, 6)]),
        ((5, 5), 4, []),
    ],
)
def test_tiles_cover_a_span_once(span, size, expected):
    table = np.arange(20.0).reshape(10, 2)
    tiles = list(ArrayRows(table).tiles(*span, size))
    assert [(start, stop) for start, stop, _ in tiles] == expected
    for start, stop, block in tiles:
        np.testing.assert_array_equal(block, table[start:stop])


def test_some_rows_of_a_source_are_a_source(table):
    index = np.array([7, 2, 2, 19, 0])
    some = SomeRows(GuardedRows(table.astype(np.float32)), index)
    assert (some.n_rows, some.n_features, some.dtype) == (5, 3, np.float32)
    expected = table.astype(np.float32)[index]
    np.testing.assert_array_equal(np.concatenate([block for _, _, block in some.tiles(0, 5, 2)]), expected)
    np.testing.assert_array_equal(some.take(np.array([4, 1])), expected[[4, 1]])
    np.testing.assert_array_equal(
        kernel_times(some, Gaussian(), table, np.ones((20, 1)), executor=Threads(1)),
        kernel_times(as_rows(expected), Gaussian(), table, np.ones((20, 1)), executor=Threads(1)),
    )
