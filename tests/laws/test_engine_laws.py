"""Who works on which rows in which order does not matter: not the tiles, the threads, the order, nor the splitting."""

from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context

from mercer.engine import (
    ArrayRows,
    ArrayTable,
    Features,
    Threads,
    column_squares,
    kernel_matrix,
    kernel_times,
    normal_statistics,
    transposed_times,
)
from mercer.engine import rows as engine_rows
from mercer.engine.executors import threads
from mercer.kernels import Gaussian, Linear, Matern, Polynomial


@dataclass(frozen=True)
class Problem:
    table: np.ndarray  # (n, d)
    targets: np.ndarray  # (n, p)
    weights: np.ndarray  # (n,)
    points: np.ndarray  # (m, d)
    vectors: np.ndarray  # (m, p)
    kernel: object

    def take(self, index):
        return Problem(
            self.table[index], self.targets[index], self.weights[index], self.points, self.vectors, self.kernel
        )

    def statistics(self, n_jobs=1, weights=None):
        table = ArrayTable(ArrayRows(self.table), self.targets, self.weights if weights is None else weights)
        return normal_statistics(table, Features(self.kernel, self.points), executor=Threads(n_jobs))

    def products(self, n_jobs=1):
        rows, executor = ArrayRows(self.table), Threads(n_jobs)
        return {
            "kernel times": kernel_times(rows, self.kernel, self.points, self.vectors, executor=executor),
            "transposed": transposed_times(rows, self.kernel, self.points, self.targets, executor=executor),
            "squares": column_squares(rows, self.kernel, self.points, self.vectors, self.weights, executor=executor),
            "matrix": kernel_matrix(rows, self.kernel, self.points, executor=executor),
        }


KERNELS = st.sampled_from([Gaussian(2.0), Matern(), Matern(nu=0.5), Linear(), Polynomial(2), Gaussian() + Linear()])


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m, d, p = draw(st.integers(1, 80)), draw(st.integers(1, 9)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    return Problem(
        table=rng.normal(size=(n, d)),
        targets=rng.normal(size=(n, p)),
        weights=rng.uniform(0.0, 2.0, size=n) * rng.integers(0, 2, size=n),
        points=rng.normal(size=(m, d)),
        vectors=rng.normal(size=(m, p)),
        kernel=draw(KERNELS),
    )


@contextmanager
def tile_size(tile_bytes, working_memory):
    """Tiles of about so many bytes, within so much memory for all workers."""
    with (
        patch.object(threads, "TILE_BYTES", tile_bytes),
        patch.object(engine_rows, "_FEWEST_ROWS", 1),  # so that few rows are several partitions, too
        patch.object(threads, "_PIECE_BYTES", 64),  # ... and are worth a thread
        config_context(working_memory=working_memory / (1 << 20)),
    ):
        yield


TILE_SIZES = st.tuples(st.integers(1, 1 << 14), st.integers(64, 1 << 16))
JOBS = st.integers(1, 4)


def assert_equal(actual, expected):
    """Equal up to the rounding of sums in another order: n·eps of the largest entry."""
    scale = max(1.0, np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * scale)


@given(problems(), TILE_SIZES, JOBS)
def test_tiles_and_threads_do_not_change_statistics(problem, size, n_jobs):
    expected = problem.statistics()
    with tile_size(*size):
        statistics = problem.statistics(n_jobs)
    assert_equal(statistics.sums, expected.sums)
    assert statistics.n_rows == expected.n_rows


@given(problems(), TILE_SIZES, JOBS)
def test_tiles_and_threads_do_not_change_products(problem, size, n_jobs):
    expected = problem.products()
    with tile_size(*size):
        products = problem.products(n_jobs)
    for name, value in products.items():
        assert_equal(value, expected[name])


@given(problems(), TILE_SIZES, JOBS, JOBS)
def test_results_depend_neither_on_timing_nor_on_the_number_of_workers(problem, size, n_jobs, others):
    with tile_size(*size):
        first, second = problem.statistics(n_jobs), problem.statistics(others)
        products, again = problem.products(n_jobs), problem.products(others)
    np.testing.assert_array_equal(first.sums, second.sums)
    for name, value in products.items():
        np.testing.assert_array_equal(value, again[name])


@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(problem, random):
    order = np.array(random.sample(range(len(problem.table)), len(problem.table)))
    shuffled = problem.take(order)
    assert_equal(shuffled.statistics().sums, problem.statistics().sums)
    expected, products = problem.products(), shuffled.products()
    for name in ("transposed", "squares"):  # sums over rows
        assert_equal(products[name], expected[name])
    for name in ("kernel times", "matrix"):  # a value for each row
        assert_equal(products[name], expected[name][order])


@given(problems(), st.integers(0, 80), JOBS)
def test_statistics_of_parts_add_up(problem, cut, n_jobs):
    cut = min(cut, len(problem.table))
    first, second = problem.take(slice(None, cut)), problem.take(slice(cut, None))
    whole, total = problem.statistics(n_jobs), first.statistics(n_jobs) + second.statistics(n_jobs)
    assert_equal(total.sums, whole.sums)
    assert total.n_rows == whole.n_rows
    merged = first.statistics()
    merged.merge_in_place(second.statistics())
    assert_equal(merged.sums, whole.sums)
    assert_equal((whole - second.statistics()).sums, first.statistics().sums)


@given(problems(), st.integers(0, 80))
def test_products_of_parts_add_up(problem, cut):
    cut = min(cut, len(problem.table))
    first, second = problem.take(slice(None, cut)).products(), problem.take(slice(cut, None)).products()
    for name, whole in problem.products().items():
        joined = first[name] + second[name] if name in ("transposed", "squares") else None
        assert_equal(np.concatenate([first[name], second[name]]) if joined is None else joined, whole)


@given(problems(), st.lists(st.integers(0, 3), min_size=80, max_size=80))
def test_a_weight_is_as_many_copies_of_the_row(problem, copies):
    counts = np.array(copies[: len(problem.table)])
    repeated = problem.take(np.repeat(np.arange(len(counts)), counts))
    ones = np.ones(len(repeated.table))
    weighted = problem.statistics(weights=counts.astype(float))
    assert_equal(weighted.sums, repeated.statistics(weights=ones).sums)
    basis = problem.kernel, problem.points, problem.vectors
    one = column_squares(ArrayRows(problem.table), *basis, counts * 1.0, executor=Threads(1))
    other = column_squares(ArrayRows(repeated.table), *basis, executor=Threads(1))
    assert_equal(one, other)


@given(problems(), st.floats(0.0, 10.0))
def test_scaled_weights_scale_the_statistics(problem, factor):
    factor = factor if factor > 1e-100 else 0.0  # squares that vanish are refused
    scaled = problem.statistics(weights=factor * problem.weights)
    assert_equal(scaled.sums, (factor * problem.statistics()).sums)


@given(problems())
def test_products_agree_with_each_other(problem):
    products, rows = problem.products(), ArrayRows(problem.table)
    matrix = products["matrix"]
    assert_equal(products["kernel times"], matrix @ problem.vectors)
    assert_equal(products["transposed"], matrix.T @ problem.targets)
    twice = transposed_times(
        rows, problem.kernel, problem.points, problem.weights[:, np.newaxis] * products["kernel times"],
        executor=Threads(1),
    )  # fmt: skip
    assert_equal(products["squares"], problem.weights @ products["kernel times"] ** 2)
    assert_equal(problem.statistics().gram @ problem.vectors, twice)
