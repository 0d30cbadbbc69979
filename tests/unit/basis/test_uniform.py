"""Rows drawn at random."""

import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem

from mercer.basis import Uniform, uniform
from mercer.engine import Threads
from mercer.kernels import Gaussian
from tests.doubles import GuardedRows


def select(rows, n_basis, *, weights=None, seed=0):
    source = GuardedRows(rows, longest_read=0, longest_take=n_basis)
    return Uniform().select(
        source, np.zeros((len(rows), 1)), Gaussian(), n_basis,
        weights=weights, random_state=np.random.RandomState(seed), executor=Threads(1),
    )  # fmt: skip


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(100, 3))


def test_only_the_rows_drawn_are_read_and_no_row_twice(rows):
    basis = select(rows, 30)
    assert len(np.unique(basis.index)) == 30
    np.testing.assert_array_equal(basis.points, rows[basis.index])


@pytest.mark.parametrize("n_basis", [100, 101, 10_000])
def test_all_rows_in_order_if_there_are_no_more(rows, n_basis):
    basis = select(rows, n_basis)
    np.testing.assert_array_equal(basis.index, np.arange(100))
    np.testing.assert_array_equal(basis.points, rows)


def test_rows_of_weight_zero_are_never_drawn(rows):
    weights = np.where(np.arange(100) % 3 == 0, 0.0, 1.0)
    for seed in range(20):
        assert np.all(weights[select(rows, 40, weights=weights, seed=seed).index] > 0)
    np.testing.assert_array_equal(select(rows, 100, weights=weights).index, np.flatnonzero(weights))


def test_the_same_seed_draws_the_same_rows(rows):
    np.testing.assert_array_equal(select(rows, 10, seed=3).index, select(rows, 10, seed=3).index)
    assert not np.array_equal(select(rows, 10, seed=3).index, select(rows, 10, seed=4).index)


def test_every_row_is_as_likely_as_any_other(rows):
    counts = np.bincount(np.concatenate([select(rows, 20, seed=s).index for s in range(1000)]), minlength=100)
    # Binomial(1000, 0.2): mean 200, deviation 12.6; five deviations over 100 rows are missed once in 20 000 seeds.
    assert np.max(np.abs(counts - 200)) < 5 * 12.6


def test_points_are_float64_copies(rows):
    single = rows.astype(np.float32)
    basis = select(single, 100)
    assert basis.points.dtype == np.float64
    assert not np.shares_memory(select(rows, 100).points, rows)


def test_rows_are_those_that_scikit_learns_nystroem_draws(rows):
    peer = Nystroem(n_components=12, random_state=5).fit(rows)
    np.testing.assert_array_equal(select(rows, 12, seed=5).index, np.sort(peer.component_indices_))


def test_beyond_a_number_of_rows_no_shuffle_of_all_is_stored(rows, monkeypatch):
    monkeypatch.setattr(uniform, "_SHUFFLED", 99)
    index = select(rows, 30).index
    assert len(np.unique(index)) == 30
    assert np.all((index >= 0) & (index < 100))
