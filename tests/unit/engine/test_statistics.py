import threading
from weakref import ref

import numpy as np
import pytest
from scipy.linalg import cholesky
from sklearn import config_context

from mercer.engine import (
    ArrayRows,
    ArrayTable,
    Features,
    NormalStatistics,
    Threads,
    Tile,
    normal_statistics,
    row_moments,
)
from mercer.engine.statistics import NormalPass
from mercer.kernels import Gaussian
from tests.doubles import GuardedRows

M = 6


class Data:
    def __init__(self, n=700, p=2, dtype=np.float64, seed=0):
        rng = np.random.default_rng(seed)
        self.table = rng.normal(size=(n, 3)).astype(dtype)
        self.targets = rng.normal(size=(n, p)) + 5.0
        self.weights = rng.uniform(0.0, 3.0, size=n)
        self.points = np.random.default_rng(9).normal(size=(M, 3))

    def features(self, **options):
        return Features(Gaussian(), self.points, **options)

    def statistics(self, *, weights=None, features=None, n_jobs=1):
        table = ArrayTable(ArrayRows(self.table), self.targets, weights)
        return normal_statistics(table, features or self.features(), executor=Threads(n_jobs))

    def dense(self, phi, weights=None):
        """Σ ω [φ, y, 1][φ, y, 1]ᵀ."""
        augmented = np.column_stack([phi, self.targets, np.ones(len(phi))])
        return augmented.T @ ((1.0 if weights is None else weights[:, np.newaxis]) * augmented)


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("p", [0, 1, 2])
@pytest.mark.parametrize("n", [1, 255, 700])
def test_sums(n_jobs, weighted, p, n):
    data = Data(n=n, p=p)
    weights = data.weights if weighted else None
    with config_context(working_memory=0.02):  # tiles of about 100 rows
        statistics = data.statistics(weights=weights, n_jobs=n_jobs)
    expected = data.dense(Gaussian()(data.table, data.points), weights)
    np.testing.assert_allclose(statistics.sums, expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(statistics.sums, statistics.sums.T)
    assert (statistics.n_features, statistics.n_rows) == (M, n)
    np.testing.assert_array_equal(statistics.gram, statistics.sums[:M, :M])
    np.testing.assert_array_equal(statistics.cross, statistics.sums[:M, M:])
    np.testing.assert_array_equal(statistics.moments, statistics.sums[M:, M:])
    assert statistics.total_weight == pytest.approx(np.sum(weights) if weighted else n, rel=1e-13)


def test_whitened_features():
    data = Data()
    lower = np.asfortranarray(cholesky(Gaussian()(data.points), lower=True))
    statistics = data.statistics(features=data.features(lower=lower))
    phi = np.linalg.solve(lower, Gaussian()(data.points, data.table)).T
    np.testing.assert_allclose(statistics.sums, data.dense(phi), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_can_be_whitened_afterwards(weighted):
    data = Data()
    weights = data.weights if weighted else None
    lower = np.asfortranarray(cholesky(Gaussian()(data.points), lower=True))
    plain = data.statistics(weights=weights)
    before = plain.sums.copy()
    afterwards = plain.whitened(lower)
    at_once = data.statistics(weights=weights, features=data.features(lower=lower))
    np.testing.assert_allclose(afterwards.sums, at_once.sums, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(afterwards.sums, afterwards.sums.T)
    np.testing.assert_array_equal(plain.sums, before)
    assert afterwards.n_rows == 700


def test_whitening_one_feature():
    statistics = NormalStatistics(np.array([[4.0, 2.0], [2.0, 3.0]]), n_features=1, n_rows=3)
    np.testing.assert_allclose(statistics.whitened(np.asfortranarray([[2.0]])).sums, [[1.0, 1.0], [1.0, 3.0]])


def test_sums_over_float32_rows_are_of_double_precision():
    """Kernel values are rounded once, to float32; their sums are not."""
    data = Data(n=20_000, dtype=np.float32)
    statistics = data.statistics(features=data.features(dtype=np.float32))
    assert statistics.sums.dtype == np.float64
    phi = NormalPass(data.features(dtype=np.float32), 1).values(Tile(data.table, np.zeros((20_000, 1))))[:, :M]
    np.testing.assert_allclose(statistics.sums, data.dense(phi), rtol=1e-11)  # 1e-6 and more, were they float32


def test_no_rows():
    statistics = Data(n=0).statistics()
    np.testing.assert_array_equal(statistics.sums, 0.0)
    assert statistics.n_rows == 0


def test_rows_of_weight_zero_do_not_count():
    data = Data()
    weights = data.weights * (np.arange(700) % 2)
    kept = Data()
    kept.table, kept.targets = kept.table[1::2], kept.targets[1::2]
    some, fewer = data.statistics(weights=weights), kept.statistics(weights=weights[1::2])
    np.testing.assert_allclose(some.sums, fewer.sums, rtol=1e-11, atol=1e-11)


# ------------------------------------------------------------------------------------------------------- arithmetic


@pytest.fixture
def parts():
    return Data(n=300, seed=1).statistics(), Data(n=200, seed=2).statistics()


def test_statistics_add_and_subtract(parts):
    first, second = parts
    total = first + second
    np.testing.assert_array_equal(total.sums, first.sums + second.sums)
    assert total.n_rows == 500
    back = total - second
    np.testing.assert_allclose(back.sums, first.sums, rtol=1e-12, atol=1e-12)
    assert back.n_rows == 300


def test_statistics_scale(parts):
    first, _ = parts
    for scaled in (first * 0.5, 0.5 * first):
        np.testing.assert_array_equal(scaled.sums, 0.5 * first.sums)
        assert scaled.n_rows == 300
        assert scaled.total_weight == 150.0


def test_arithmetic_makes_new_statistics(parts):
    first, second = parts
    before = first.sums.copy(), second.sums.copy()
    for result in (first + second, first - second, 2 * first):
        assert not np.shares_memory(result.sums, first.sums)
        result.sums[...] = np.nan
    np.testing.assert_array_equal(first.sums, before[0])
    np.testing.assert_array_equal(second.sums, before[1])


def test_merging_changes_the_first_in_place(parts):
    first, second = parts
    total, memory, other = first + second, first.sums, second.sums.copy()
    first.merge_in_place(second)
    assert first.sums is memory
    np.testing.assert_array_equal(first.sums, total.sums)
    assert first.n_rows == 500
    np.testing.assert_array_equal(second.sums, other)


def test_zeros_are_the_neutral_element(parts):
    first, _ = parts
    total = NormalStatistics.zeros(M, 2) + first
    np.testing.assert_array_equal(total.sums, first.sums)
    assert total.n_rows == first.n_rows


@pytest.mark.parametrize("other", [NormalStatistics.zeros(M, 1), NormalStatistics.zeros(M + 1, 1)])
def test_statistics_of_other_shapes_do_not_add(parts, other):
    first, _ = parts
    for operation in (lambda: first + other, lambda: first - other, lambda: first.merge_in_place(other)):
        with pytest.raises(ValueError, match="do not add"):
            operation()


# --------------------------------------------------------------------------------------------- what is asked of rows


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_row_is_read_once_within_the_working_memory(n_jobs):
    n, p = 3000, 1
    rng = np.random.default_rng(0)
    rows = GuardedRows(rng.normal(size=(n, 2)))
    features = Features(Gaussian(), rng.normal(size=(50, 2)))
    width = 50 + p + 1
    budget = 1 << 18
    with config_context(working_memory=budget / (1 << 20)):
        normal_statistics(ArrayTable(rows, np.zeros((n, p))), features, executor=Threads(n_jobs))
    assert rows.rows_read == n
    assert rows.largest_read * width * 8 * n_jobs <= budget


def test_accumulators_of_all_workers_stay_within_the_working_memory(monkeypatch):
    made, most, start, lock = [], [], NormalPass.start, threading.Lock()

    def counted(self):
        state = start(self)
        with lock:
            made.append(ref(state))
            most.append(sum(one() is not None for one in made))
        return state

    monkeypatch.setattr(NormalPass, "start", counted)
    data = Data(n=5000)
    one = 8 * 16**2 / (1 << 20)  # M + 3 columns, padded to 16
    for room, expected in ((1.5, 1), (5.5, 3)):  # a sum of all rows; two of partitions and that of those before
        most.clear()
        with config_context(working_memory=room * one):
            sums = data.statistics(n_jobs=4).sums
        assert max(most) <= expected
        np.testing.assert_allclose(sums, data.dense(Gaussian()(data.table, data.points)), rtol=1e-11, atol=1e-11)


def test_an_error_of_the_rows_surfaces():
    data = Data()
    data.table[333, 1] = np.nan
    for n_jobs in (1, 2):
        with config_context(working_memory=0.02), pytest.raises(ValueError, match="NaN or infinity"):
            data.statistics(n_jobs=n_jobs)


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_moments_are_those_of_numpy(n_jobs, weighted, offset):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 4)) @ rng.normal(size=(4, 4)) + offset
    weights = rng.uniform(0, 2, size=1000) if weighted else None
    guarded = GuardedRows(rows)
    with config_context(working_memory=0.02):
        mean, covariance = row_moments(guarded, weights, executor=Threads(n_jobs))
    assert guarded.largest_read < 500
    np.testing.assert_allclose(mean, np.average(rows, axis=0, weights=weights), rtol=1e-12)
    expected = np.cov(rows, rowvar=False, bias=True, aweights=weights)
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-9 * np.max(expected))


def test_a_constant_column_has_no_variance():
    rows = np.column_stack([np.full(50, 1e150), np.arange(50.0)])
    mean, covariance = row_moments(GuardedRows(rows), executor=Threads(1))
    assert mean[0] == 1e150
    np.testing.assert_array_equal(covariance[0], 0.0)
