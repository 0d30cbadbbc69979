"""Rows are parted into blocks: every row with a say in exactly one."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from mercer.engine import ArrayTable, Threads, as_rows
from mercer.engine.executors.threads import MOST_ROWS
from mercer.kernels import Gaussian, Linear, Matern
from mercer.methods.committee import PARTITIONS, block_labels, make_blocks
from tests.doubles import GuardedRows

N = 120
every_partition = pytest.mark.parametrize("partition", PARTITIONS)
every_size = pytest.mark.parametrize("block_size", [3, 20, N - 1, N, 10 * N])


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(N, 3))


def data_of(rows, weights=None):
    return ArrayTable(as_rows(rows), np.zeros((len(rows), 1)), weights)


def blocks_of(partition, block_size, rows, *, weights=None, kernel=None, noise=0.1, seed=0, n_jobs=1):
    return make_blocks(
        partition,
        block_size,
        data_of(rows, weights),
        Gaussian() if kernel is None else kernel,
        noise=noise,
        random_state=np.random.RandomState(seed),
        executor=Threads(n_jobs),
    )


def numbers(blocks, n=N):
    return [np.arange(n)[block] for block in blocks]


def assert_parted(blocks, expected, block_size, n=N):
    """The blocks hold the expected rows, each once, and are neither empty nor too large."""
    parts = numbers(blocks, n)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), expected)
    assert all(0 < len(part) <= block_size for part in parts)


def spread(rows, blocks):
    """Mean squared distance of rows to the centre of their block."""
    parts = [rows[block].astype(np.float64) for block in blocks]
    return sum(np.sum((part - np.mean(part, axis=0)) ** 2) for part in parts) / len(rows)


# -------------------------------------------------------------------------------------------------- all partitions


@every_partition
@every_size
def test_every_row_is_in_exactly_one_block(rows, partition, block_size):
    blocks = blocks_of(partition, block_size, rows)
    assert_parted(blocks, np.arange(N), block_size)
    # Rows are read in their order, which files like.
    assert all(np.all(np.diff(part) > 0) for part in numbers(blocks))


@every_partition
@every_size
def test_rows_of_weight_zero_are_in_no_block(rows, partition, block_size):
    weights = np.where(np.arange(N) % 3 == 0, 0.0, 1.0)
    blocks = blocks_of(partition, block_size, rows, weights=weights)
    assert_parted(blocks, np.flatnonzero(weights), block_size)


@every_partition
def test_positive_weights_do_not_matter(rows, partition):
    weights = np.random.default_rng(1).uniform(1e-3, 5.0, size=N)
    weighted, plain = blocks_of(partition, 20, rows, weights=weights), blocks_of(partition, 20, rows)
    for one, other in zip(numbers(weighted), numbers(plain), strict=True):
        np.testing.assert_array_equal(one, other)


@every_partition
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_weight_that_makes_the_noise_infinite_has_no_say(rows, partition, noise):
    weights = np.ones(N)
    weights[7] = 1e-310
    assert_parted(blocks_of(partition, 20, rows, weights=weights, noise=noise), np.delete(np.arange(N), 7), 20)


@every_partition
def test_the_seed_makes_the_blocks(rows, partition):
    first, again, other = (numbers(blocks_of(partition, 20, rows, seed=seed)) for seed in (3, 3, 4))
    assert len(first) == len(again)
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    same = len(first) == len(other) and all(map(np.array_equal, first, other))
    assert same == (partition == "order")


@every_partition
def test_threads_do_not_change_the_blocks(rows, partition):
    alone, together = (numbers(blocks_of(partition, 20, rows, n_jobs=n_jobs)) for n_jobs in (1, 3))
    assert all(np.array_equal(one, two) for one, two in zip(alone, together, strict=True))


@every_partition
def test_blocks_of_one_row_are_no_blocks(rows, partition):
    assert blocks_of(partition, 1, rows) is None


@every_partition
def test_one_row_is_one_block(partition):
    assert_parted(blocks_of(partition, 5, np.ones((1, 2))), [0], 5, n=1)


@pytest.mark.parametrize("partition", ["kmean", "", "uniform"])
@pytest.mark.parametrize("block_size", [1, 10])
def test_unknown_names_are_refused_with_those_that_are_known(rows, partition, block_size):
    with pytest.raises(ValueError, match=r"partition must be one of 'random', 'kmeans', 'order', or an array"):
        blocks_of(partition, block_size, rows)


# ------------------------------------------------------------------------------------------------- order and random


@every_size
def test_order_makes_consecutive_chunks_of_exactly_that_size(rows, block_size):
    blocks = blocks_of("order", block_size, rows)
    starts = range(0, N, block_size)
    assert blocks == [slice(start, min(start + block_size, N)) for start in starts]


def test_order_skips_rows_of_weight_zero_and_fills_the_blocks(rows):
    weights = np.ones(N)
    weights[[0, 1, 12, 100]] = 0.0
    parts = numbers(blocks_of("order", 10, rows, weights=weights))
    np.testing.assert_array_equal(np.concatenate(parts), np.flatnonzero(weights))
    assert [len(part) for part in parts] == [10] * 11 + [6]


def test_order_reads_nothing(rows):
    source = GuardedRows(rows, longest_read=0, longest_take=0)
    blocks_of("order", 10, source)


@every_size
def test_random_blocks_are_of_equal_size_to_one(rows, block_size):
    sizes = [len(block) for block in blocks_of("random", block_size, rows)]
    assert len(sizes) == -(-N // block_size)
    assert max(sizes) - min(sizes) <= 1


def test_random_blocks_are_random(rows):
    # Neighbours in the table share one of 12 blocks with probability 9/119: 9 of 119 pairs, give or take 3.
    labels = block_labels(blocks_of("random", 10, rows), data_of(rows), 0.1)
    assert np.sum(labels[1:] == labels[:-1]) <= 9 + 4 * 3


def test_random_blocks_read_nothing(rows):
    blocks_of("random", 10, GuardedRows(rows, longest_read=0, longest_take=0))


# ----------------------------------------------------------------------------------------------------------- k-means


@pytest.mark.parametrize("block_size", [8, 30])
@pytest.mark.parametrize(
    ("dtype", "offset"), [(np.float64, 0.0), (np.float32, 0.0), (np.float32, 1e3), (np.float64, 1e3), (np.float64, 1e9)]
)
def test_clusters_are_tighter_than_random_blocks(rows, block_size, dtype, offset):
    given = (rows + offset).astype(dtype)
    tight, loose = (spread(rows, blocks_of(name, block_size, given)) for name in ("kmeans", "random"))
    # In three dimensions k clusters of a normal cloud leave about k^(-2/3) of its spread; random blocks leave all but
    # what their k centres explain by chance, a share 1/size.
    k = N / block_size
    whole = spread(rows, [slice(0, N)])
    assert tight < 1.2 * k ** (-2 / 3) * whole
    assert loose > 0.8 * (1 - 1 / block_size) * whole


def test_separate_groups_are_not_mixed(rows):
    centres = 100.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    group = np.random.default_rng(1).integers(4, size=N)
    for size in (10, 40):
        for part in numbers(blocks_of("kmeans", size, rows + centres[group])):
            assert len(np.unique(group[part])) == 1


DEGENERATE = {
    "all equal": np.ones_like,
    "zeros": np.zeros_like,
    "four distinct": lambda X: np.resize(X[:4], X.shape),
    "one stands out": lambda X: np.vstack([np.ones((N - 1, 3)), [[5.0, 5.0, 5.0]]]),
    "constant column": lambda X: np.column_stack([X, np.full(N, 7.0)]),
    "one column": lambda X: X[:, :1],
    "integers": lambda X: np.round(3 * X).astype(np.int64),
    "float32": lambda X: X.astype(np.float32),
    "outlier": lambda X: np.vstack([X[:-1], [[1e8, 1e8, 1e8]]]),
    "huge": lambda X: 1e150 * X,
    "tiny": lambda X: 1e-150 * X,
    "offset": lambda X: X + 1e9,
}


@pytest.mark.parametrize("arrange", DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize("block_size", [4, 40])
def test_clusters_of_unusual_rows(rows, arrange, block_size):
    assert_parted(blocks_of("kmeans", block_size, arrange(rows)), np.arange(N), block_size)


def test_equal_rows_share_blocks_where_they_fit():
    groups = np.repeat(np.random.default_rng(0).normal(size=(6, 2)), 20, axis=0)
    parts = numbers(blocks_of("kmeans", 20, groups))
    assert sorted(tuple(np.unique(part // 20)) for part in parts) == [(group,) for group in range(6)]


@pytest.mark.parametrize("kernel", [Gaussian([1.0, 1e3]), Matern(np.array([1.0, 1e3]))], ids=["gaussian", "matern"])
def test_length_scales_per_feature_are_the_metric(kernel):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, 2)) * [1.0, 100.0]
    scaled = spread(rows[:, :1], blocks_of("kmeans", 12, rows, kernel=kernel))
    plain = spread(rows[:, :1], blocks_of("kmeans", 12, rows))
    # By the kernel, the second column hardly varies: ten clusters cut the first one up. By itself it is all there is.
    assert scaled < 0.1
    assert plain > 0.5


@pytest.mark.parametrize("kernel", [Gaussian(50.0), Linear(), Gaussian() + Linear()], ids=["one scale", "none", "sum"])
def test_without_scales_per_feature_distances_are_those_of_the_rows(rows, kernel):
    expected = numbers(blocks_of("kmeans", 30, rows))
    actual = numbers(blocks_of("kmeans", 30, rows, kernel=kernel))
    assert all(np.array_equal(one, other) for one, other in zip(actual, expected, strict=True))


@pytest.mark.parametrize("weighted", [False, True])
def test_clusters_of_guarded_rows(weighted):
    n = 3000
    rows = np.random.default_rng(0).normal(size=(n, 3))
    weights = np.where(np.arange(n) % 3 == 0, 0.0, 1.0) if weighted else None
    # Centres are found from 50 rows for each of the 15 clusters, nearest points in tiles of the working memory.
    source = GuardedRows(rows, longest_read=MOST_ROWS, longest_take=50 * 15)
    with config_context(working_memory=0.05):
        blocks = blocks_of("kmeans", 200, source, weights=weights)
    expected = blocks_of("kmeans", 200, rows, weights=weights)
    assert all(np.array_equal(one, other) for one, other in zip(blocks, expected, strict=True))


# ------------------------------------------------------------------------------------------------------------ labels

LABELS = {
    "integers": lambda number: number,
    "negative": lambda number: number - 5,
    "strings": lambda number: np.array(["left", "right", "middle"])[number],
    "objects": lambda number: np.array(["left", "right", "middle"], dtype=object)[number],
    "floats": lambda number: number / 2.0,
    "booleans": lambda number: number > 0,
    "list": lambda number: number.tolist(),
    "list of strings": lambda number: np.array(["a", "b", "c"])[number].tolist(),
    "series": pd.Series,
    "categories": lambda number: pd.Series(number).map({0: "x", 1: "y", 2: "z"}).astype("category"),
    "gaps": lambda number: 1000 * number,
}


@pytest.mark.parametrize("make", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_labels_of_any_kind(rows, make, weighted):
    number = np.random.default_rng(1).integers(3, size=N)
    weights = np.where(np.arange(N) % 3 == 0, 0.0, 1.0) if weighted else None
    labels = make(number)
    blocks = blocks_of(labels, 2, rows, weights=weights)  # block_size does not matter
    used = np.arange(N) if weights is None else np.flatnonzero(weights)
    values = np.asarray(labels)
    expected = [used[values[used] == value] for value in np.unique(values)]
    assert len(blocks) == len(expected)
    for block, index in zip(blocks, expected, strict=True):
        np.testing.assert_array_equal(block, index)


@pytest.mark.parametrize("labels", [np.arange(N), [f"row {row}" for row in range(N)]], ids=["numbers", "strings"])
def test_labels_that_are_all_different_are_no_blocks(rows, labels):
    assert blocks_of(labels, 50, rows) is None


def test_one_label_is_one_block_however_large(rows):
    (block,) = blocks_of(np.zeros(N), 2, rows)
    np.testing.assert_array_equal(block, np.arange(N))


def test_a_label_of_rows_of_weight_zero_makes_no_block(rows):
    labels = np.repeat([0, 1, 2], 40)
    blocks = blocks_of(labels, 2, rows, weights=np.where(labels == 1, 0.0, 1.0))
    assert [block[0] for block in blocks] == [0, 80]


BAD_LABELS = {
    "short": (np.zeros(N - 1), "one for each of the 120 rows"),
    "long": (np.zeros(N + 1), "one for each of the 120 rows"),
    "empty": ([], "one for each of the 120 rows"),
    "two dimensions": (np.zeros((N, 1)), "one for each of the 120 rows"),
    "none": (None, "one for each of the 120 rows"),
    "number": (3, "one for each of the 120 rows"),
    "nan": (np.append(np.zeros(N - 1), np.nan), "contains NaN or infinity"),
    "infinity": (np.append(np.zeros(N - 1), np.inf), "contains NaN or infinity"),
    "nan object": (np.append(np.zeros(N - 2), [np.nan, np.nan]).astype(object), ""),
    "missing string": (pd.Series(["left", None] * (N // 2), dtype=object), ""),
    "mixed": (np.array(["left", 1] * (N // 2), dtype=object), ""),
}


@pytest.mark.parametrize(("labels", "message"), BAD_LABELS.values(), ids=BAD_LABELS)
@pytest.mark.parametrize("block_size", [1, 10])
def test_bad_labels_are_refused(rows, labels, message, block_size):
    with pytest.raises((ValueError, TypeError), match=rf"partition, given as labels,.*{message}"):
        blocks_of(labels, block_size, rows)


# ------------------------------------------------------------------------------------------------- numbers of blocks


def test_labels_number_the_blocks_and_tell_rows_in_none(rows):
    blocks = [np.array([4, 1]), slice(6, 8), np.array([0])]
    np.testing.assert_array_equal(block_labels(blocks, data_of(rows[:9]), 0.1), [2, 0, -1, -1, 0, -1, 1, 1, -1])


def test_without_blocks_every_row_with_a_say_is_one(rows):
    np.testing.assert_array_equal(block_labels(None, data_of(rows[:4]), 0.1), [0, 1, 2, 3])
    weights = np.array([1.0, 0.0, 2.0, 1.0])
    np.testing.assert_array_equal(block_labels(None, data_of(rows[:4], weights), 0.1), [0, -1, 1, 2])


@every_partition
@pytest.mark.parametrize("weighted", [False, True])
def test_labels_given_back_make_the_same_blocks(rows, partition, weighted):
    weights = np.where(np.arange(N) % 3 == 0, 0.0, 1.0) if weighted else None
    blocks = blocks_of(partition, 20, rows, weights=weights)
    again = blocks_of(block_labels(blocks, data_of(rows, weights), 0.1), 20, rows, weights=weights)
    for one, other in zip(numbers(blocks), again, strict=True):
        np.testing.assert_array_equal(one, other)
