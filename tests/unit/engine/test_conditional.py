"""Sums of [v, y, 1]ᵀ Λ⁻¹ [v, y, 1] against dense algebra from the definition of Λ."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import cholesky, solve_triangular
from sklearn import config_context

from mercer.engine import ArrayRows, ArrayTable, ConditionalStatistics, Features, Threads, conditional_statistics
from mercer.kernels import Gaussian, Linear, Matern
from tests.doubles import GuardedRows

M, N = 6, 61
KERNELS = [Gaussian(), Matern(nu=0.5, amplitude=3.0), Gaussian() + Linear(0.2)]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: " ".join(repr(kernel).split()))
every_executor = pytest.mark.parametrize("n_jobs", [1, 3])
EPS = np.finfo(np.float64).eps


def shuffled(n=N):
    return np.random.default_rng(5).permutation(n)


# The rows of each block; None is no blocks at all.
BLOCKS = {
    "none": None,
    "one": [slice(0, N)],
    "slices": [slice(start, min(start + 8, N)) for start in range(0, N, 8)],
    "arrays": np.array_split(shuffled(), 5),
    "mixed": [np.array([60, 3, 0]), slice(4, 60), np.array([2, 1])],
    "single rows": [np.array([row]) for row in shuffled()],
}
every_partition = pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)


class Problem:
    def __init__(self, kernel=None, *, n=N, p=2, noise=0.1, dtype=np.float64, seed=0):
        rng = np.random.default_rng(seed)
        self.kernel, self.noise = Gaussian() if kernel is None else kernel, noise
        self.rows = rng.normal(size=(n, 2)).astype(dtype)
        self.targets = rng.normal(size=(n, p)) + 5.0
        self.weights = None
        self.points = 1.5 * np.random.default_rng(9).normal(size=(M, 2))
        self.lower = np.asfortranarray(cholesky(self.kernel(self.points), lower=True))

    def statistics(self, blocks=None, *, n_jobs=1, rows=None):
        return conditional_statistics(
            ArrayTable(ArrayRows(self.rows) if rows is None else rows, self.targets, self.weights),
            Features(self.kernel, self.points, self.lower),
            noise=self.noise,
            blocks=blocks,
            executor=Threads(n_jobs),
        )

    def part(self, index):
        """The problem of some of the rows."""
        fewer = Problem(self.kernel, noise=self.noise)
        fewer.rows, fewer.targets = self.rows[index], self.targets[index]
        fewer.weights = None if self.weights is None else self.weights[index]
        return fewer

    def dense(self, blocks):
        """[V, y, 1] and Λ of the rows in the blocks."""
        n = len(self.rows)
        rows = self.rows.astype(np.float64)
        V = solve_triangular(self.lower, self.kernel(self.points, rows), lower=True).T
        number = np.full(n, -1)
        for label, block in enumerate(np.arange(n) if blocks is None else blocks):
            number[block] = label
        weights = np.ones(n) if self.weights is None else self.weights
        used = (number >= 0) & (weights > 0)
        within = number[:, np.newaxis] == number
        # Λ = blockdiag(λW⁻¹ + K - VVᵀ)
        covariance = np.where(within, self.kernel(rows) - V @ V.T, 0.0)[np.ix_(used, used)]
        covariance[np.diag_indices(len(covariance))] += self.noise / weights[used]
        return np.column_stack([V, self.targets, np.ones(n)])[used], covariance


def assert_matches(statistics, augmented, covariance, *, kernel_rounding=EPS, lower):
    """Equal to the rounding that cannot be avoided: that of Λ, magnified by its inverse on both sides."""
    solved = np.linalg.solve(covariance, augmented)
    expected = augmented.T @ solved
    # Errors δΛ of the entries, from V: kernel values rounded and magnified by L⁻¹, summed over m features; they change
    # ZᵀΛ⁻¹Z by (Λ⁻¹Z)ᵀδΛ(Λ⁻¹Z), and the features themselves by δVᵀΛ⁻¹Z.
    magnified = max(1.0, np.linalg.norm(np.linalg.inv(lower), 2))
    largest = np.max(np.sum(augmented[:, : len(lower)] ** 2, axis=1)) + np.max(np.diagonal(covariance))
    error = 16 * len(lower) * kernel_rounding * magnified * max(1.0, largest)
    reach = np.sum(np.abs(solved), axis=0)
    bound = error * (np.outer(reach, reach) + reach[:, np.newaxis] + reach) + 1e-13 * np.max(np.abs(expected))
    assert np.all(np.abs(statistics.normal.sums - expected) <= bound)
    np.testing.assert_array_equal(statistics.normal.sums, statistics.normal.sums.T)
    log_determinant = np.linalg.slogdet(covariance)[1]
    # δ log|Λ| = tr Λ⁻¹δΛ
    slack = error * np.sum(np.abs(np.linalg.inv(covariance))) + 1e-13 * len(covariance)
    assert statistics.log_determinant == pytest.approx(log_determinant, abs=slack)
    assert statistics.n_used == len(augmented)
    return np.max(bound) / np.max(np.abs(expected))


@every_kernel
@every_partition
@every_executor
@pytest.mark.parametrize("p", [0, 1, 2])
def test_sums_are_those_of_the_definition(kernel, blocks, n_jobs, p):
    problem = Problem(kernel, p=p)
    with config_context(working_memory=0.05):  # tiles of 40 rows and fewer where there are no blocks
        statistics = problem.statistics(blocks, n_jobs=n_jobs)
    accuracy = assert_matches(statistics, *problem.dense(blocks), lower=problem.lower)
    assert accuracy < 1e-9, "the bound must mean something"
    assert (statistics.n_singular, statistics.jitter) == (0, 0.0)
    assert statistics.n_blocks == (N if blocks is None else len(blocks))
    assert (statistics.normal.n_rows, statistics.normal.n_features) == (N, M)
    assert statistics.normal.is_whitened


@every_partition
@every_executor
def test_weights_divide_the_noise(blocks, n_jobs):
    problem = Problem()
    problem.weights = np.random.default_rng(1).uniform(0.1, 3.0, size=N)
    statistics = problem.statistics(blocks, n_jobs=n_jobs)
    assert_matches(statistics, *problem.dense(blocks), lower=problem.lower)
    assert statistics.n_used == N


@pytest.mark.parametrize("noise", [0.1, 1e-10, 0.0])
@every_executor
def test_rows_of_weight_zero_have_no_say_without_blocks(noise, n_jobs):
    problem = Problem(Matern(nu=0.5), noise=noise)
    problem.weights = np.random.default_rng(1).uniform(0.1, 3.0, size=N) * (np.arange(N) % 3 > 0)
    statistics, kept = problem.statistics(n_jobs=n_jobs), np.flatnonzero(problem.weights)
    assert_matches(statistics, *problem.dense(None), lower=problem.lower)
    assert statistics.n_used == len(kept)
    assert statistics.normal.n_rows == N
    fewer = problem.part(kept).statistics()
    np.testing.assert_allclose(statistics.normal.sums, fewer.normal.sums, rtol=1e-12, atol=1e-12)
    assert statistics.log_determinant == pytest.approx(fewer.log_determinant, rel=1e-12)


def test_rows_in_no_block_have_no_say():
    problem = Problem()
    problem.weights = np.where(np.arange(N) < 30, 0.0, 1.0)
    blocks = [np.arange(30, 50), np.arange(50, N)]
    statistics = problem.statistics(blocks)
    assert_matches(statistics, *problem.dense(blocks), lower=problem.lower)
    assert (statistics.n_used, statistics.n_blocks, statistics.normal.n_rows) == (N - 30, 2, N)


@every_kernel
@every_executor
def test_blocks_of_one_row_are_no_blocks(kernel, n_jobs):
    problem = Problem(kernel)
    problem.weights = np.random.default_rng(1).uniform(0.1, 3.0, size=N)
    without = problem.statistics(n_jobs=n_jobs)
    for blocks in (BLOCKS["single rows"], [slice(row, row + 1) for row in range(N)]):
        with_blocks = problem.statistics(blocks, n_jobs=n_jobs)
        np.testing.assert_allclose(with_blocks.normal.sums, without.normal.sums, rtol=1e-11, atol=1e-11)
        assert with_blocks.log_determinant == pytest.approx(without.log_determinant, rel=1e-11, abs=1e-11)
        assert with_blocks.n_blocks == without.n_blocks
        assert with_blocks.n_used == without.n_used


@every_partition
def test_the_order_within_and_of_blocks_does_not_matter(blocks):
    problem = Problem()
    if blocks is None:
        blocks = [np.arange(N)]
    expected = problem.statistics(blocks)
    indices = [np.arange(N)[block] for block in blocks]
    again = problem.statistics([index[::-1].copy() for index in indices[::-1]])
    np.testing.assert_allclose(again.normal.sums, expected.normal.sums, rtol=1e-10, atol=1e-10)
    assert again.log_determinant == pytest.approx(expected.log_determinant, rel=1e-11)


@pytest.mark.parametrize("name", [name for name, blocks in BLOCKS.items() if blocks is not None])
def test_a_weight_is_as_many_copies_of_the_row_in_its_block(name):
    problem, blocks = Problem(), BLOCKS[name]
    problem.weights = np.where(np.arange(N) % 4 == 0, 2.0, 1.0)
    expected = problem.statistics(blocks)
    twice = np.concatenate([np.arange(N), np.arange(0, N, 4)])
    copied = problem.part(twice)
    copied.weights = None
    indices = [np.arange(N)[block] for block in blocks]
    statistics = copied.statistics([np.flatnonzero(np.isin(twice, index)) for index in indices])
    # Λ of a row twice is singular but for the noise, 0.1: cond(Λ) is 1e3, so that 1e-12 is left of 1e-15.
    np.testing.assert_allclose(statistics.normal.sums, expected.normal.sums, rtol=1e-11, atol=1e-11)


@every_partition
def test_float32_rows_are_those_of_their_values_in_float64(blocks):
    single = Problem(dtype=np.float32)
    double = Problem()
    double.rows = single.rows.astype(np.float64)
    actual, expected = single.statistics(blocks), double.statistics(blocks)
    np.testing.assert_allclose(actual.normal.sums, expected.normal.sums, rtol=1e-11, atol=1e-11)
    assert actual.log_determinant == pytest.approx(expected.log_determinant, rel=1e-11)


@every_partition
def test_results_do_not_depend_on_timing_nor_much_on_threads(blocks):
    problem = Problem()
    alone, first, second = (problem.statistics(blocks, n_jobs=n_jobs) for n_jobs in (1, 4, 4))
    np.testing.assert_array_equal(first.normal.sums, second.normal.sums)
    assert first.log_determinant == second.log_determinant
    np.testing.assert_allclose(first.normal.sums, alone.normal.sums, rtol=1e-12)


@pytest.mark.parametrize("blocks", [None, []])
def test_no_rows(blocks):
    problem = Problem().part(np.arange(0))
    statistics = problem.statistics(blocks)
    assert statistics.normal.sums.shape == (M + 3, M + 3)
    assert not np.any(statistics.normal.sums)
    assert (statistics.log_determinant, statistics.n_used, statistics.n_blocks) == (0.0, 0, 0)


@pytest.mark.parametrize("spoil", [{"lower": None}, {"dtype": np.float32}], ids=["plain", "float32"])
def test_features_that_leave_nothing_of_a_difference_are_refused(spoil):
    problem = Problem()
    features = replace(Features(problem.kernel, problem.points, problem.lower), **spoil)
    with pytest.raises(ValueError, match="need whitened float64 features"):
        conditional_statistics(
            ArrayTable(ArrayRows(problem.rows), problem.targets), features, noise=0.1, executor=Threads(1)
        )


# ------------------------------------------------------------------------------------------------------- arithmetic


@pytest.fixture
def parts():
    problem = Problem()
    blocks = BLOCKS["slices"]
    first, second = problem.part(slice(0, 24)), problem.part(slice(24, N))
    shifted = [slice(block.start - 24, block.stop - 24) for block in blocks[3:]]
    return problem.statistics(blocks), first.statistics(blocks[:3]), second.statistics(shifted)


def summary(statistics):
    counts = statistics.n_used, statistics.n_blocks, statistics.n_singular, statistics.normal.n_rows
    return (*counts, statistics.jitter)


def test_statistics_of_parts_add_up_to_those_of_the_union(parts):
    whole, first, second = parts
    for total in (first + second, second + first):
        np.testing.assert_allclose(total.normal.sums, whole.normal.sums, rtol=1e-12)
        assert total.log_determinant == pytest.approx(whole.log_determinant, rel=1e-12)
        assert summary(total) == summary(whole)


def test_addition_leaves_its_operands_alone(parts):
    _, first, second = parts
    before = [(part.normal.sums.copy(), part.log_determinant, summary(part)) for part in (first, second)]
    total = first + second
    total.normal.sums[...] = np.nan
    total.log_determinant = np.nan
    for part, (sums, log_determinant, numbers) in zip((first, second), before, strict=True):
        np.testing.assert_array_equal(part.normal.sums, sums)
        assert (part.log_determinant, summary(part)) == (log_determinant, numbers)


def test_merging_changes_the_first_in_place(parts):
    _, first, second = parts
    expected, memory, before = first + second, first.normal.sums, second.normal.sums.copy()
    first.merge_in_place(second)
    assert first.normal.sums is memory
    np.testing.assert_array_equal(first.normal.sums, expected.normal.sums)
    assert (first.log_determinant, summary(first)) == (expected.log_determinant, summary(expected))
    np.testing.assert_array_equal(second.normal.sums, before)


def test_zeros_are_the_neutral_element(parts):
    whole, *_ = parts
    total = ConditionalStatistics.zeros(M, 2) + whole
    np.testing.assert_array_equal(total.normal.sums, whole.normal.sums)
    assert (total.log_determinant, summary(total)) == (whole.log_determinant, summary(whole))


def test_jitter_of_a_sum_is_the_larger_and_singular_blocks_are_counted():
    zeros = ConditionalStatistics.zeros(1, 1)
    total = replace(zeros, n_singular=2, jitter=1e-8) + replace(zeros, n_singular=1, jitter=3e-8)
    assert (total.n_singular, total.jitter) == (3, 3e-8)


def test_statistics_of_other_shapes_do_not_add(parts):
    whole, *_ = parts
    for other in (ConditionalStatistics.zeros(M, 1), ConditionalStatistics.zeros(M + 1, 1)):
        with pytest.raises(ValueError, match="do not add"):
            whole + other


@every_partition
def test_targets_can_be_shifted_afterwards(blocks):
    problem, shift = Problem(), np.array([-5.0, 100.0])
    before = problem.statistics(blocks)
    copy = before.normal.sums.copy()
    shifted = before.normal.with_targets_shifted(shift)
    problem.targets = problem.targets + shift
    expected = problem.statistics(blocks)
    scale = np.max(np.abs(expected.normal.sums))
    np.testing.assert_allclose(shifted.sums, expected.normal.sums, rtol=0, atol=1e-12 * scale)
    assert (before.log_determinant, summary(before)) == (expected.log_determinant, summary(expected))
    np.testing.assert_array_equal(before.normal.sums, copy)


# --------------------------------------------------------------------------------------------- what is asked of rows


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_row_is_read_once_within_the_working_memory(n_jobs):
    problem, budget = Problem(n=3000), 1 << 16
    rows = GuardedRows(problem.rows, longest_take=0)
    with config_context(working_memory=budget / (1 << 20)):
        problem.statistics(rows=rows, n_jobs=n_jobs)
    assert rows.rows_read == 3000
    assert rows.largest_read * (M + 3) * 8 * n_jobs <= budget


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("as_slices", [False, True])
def test_every_block_is_read_once(n_jobs, as_slices):
    problem = Problem(n=3000)
    rows = GuardedRows(problem.rows, longest_read=50, longest_take=50)
    order = shuffled(3000)
    blocks = [slice(start, start + 50) if as_slices else order[start : start + 50] for start in range(0, 3000, 50)]
    problem.statistics(blocks, rows=rows, n_jobs=n_jobs)
    assert (rows.rows_read, rows.rows_taken) == ((3000, 0) if as_slices else (0, 3000))


LARGE, POINTS, SIZE = 100_000, 50, 100


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("with_blocks", [False, True])
def test_nothing_of_size_n_by_m_or_n_by_block_is_stored(n_jobs, with_blocks):
    rng = np.random.default_rng(0)
    rows, points = rng.normal(size=(LARGE, 2)), rng.uniform(-5, 5, size=(POINTS, 2))
    kernel = Matern(nu=0.5)
    features = Features(kernel, points, np.asfortranarray(cholesky(kernel(points), lower=True)))
    order = rng.permutation(LARGE)
    blocks = [order[start : start + SIZE] for start in range(0, LARGE, SIZE)] if with_blocks else None
    arguments = ArrayTable(ArrayRows(rows), np.ones((LARGE, 1))), features
    options = {"noise": 0.1, "blocks": blocks, "executor": Threads(n_jobs)}
    small = ArrayTable(ArrayRows(rows[:500]), np.ones((500, 1)))
    conditional_statistics(small, features, noise=0.1, executor=Threads(1))
    tracemalloc.start()
    try:
        conditional_statistics(*arguments, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # n·m·8 bytes are 40 MB. Allowed: per worker an accumulator m × m, and a tile of 4 MB or a block, with its copies.
    assert peak < LARGE * POINTS * 8 // 4
