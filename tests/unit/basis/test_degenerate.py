"""Rows that few points span, equal rows, targets and kernels of zero: fewer points, and a word about it."""

import numpy as np
import pytest

from mercer import NystromRegressor, PseudoInputRegressor
from mercer.basis import (
    Distribution,
    ForwardSelection,
    Leverage,
    PivotedCholesky,
    Sequential,
    SparseGreedy,
    SupervisedCholesky,
)
from mercer.basis.leverage import _systematic_sample, inclusion_probabilities
from mercer.kernels import Gaussian, Linear, Matern

SPANNING = [
    PivotedCholesky("greedy"),
    PivotedCholesky("greedy", store=True),
    PivotedCholesky("random"),
    PivotedCholesky("random", store=True),
    SupervisedCholesky(),
    SupervisedCholesky(look_ahead=3),
    ForwardSelection(),
    ForwardSelection(None),
    SparseGreedy(1e-3),
    Sequential(1e-3, novelty_tol=1e-6, gain_tol=0.0),
]
each_spanning = pytest.mark.parametrize("strategy", SPANNING, ids=str)


@each_spanning
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("length_scale", [2.0, 1000.0, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.5, 30.0))])
def test_smooth_kernels_need_few_points(strategy, d, length_scale):
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(250, d))
    basis = strategy.select(rows, np.sin(2 * rows[:, 0]), Gaussian(length_scale), 100, random_state=0)
    number = len(basis.points)
    assert len(np.unique(basis.index)) == number > 0
    assert (number < 100) == (basis.note != "")
    if number < 100:
        assert basis.note.startswith(f"{number} of 100 points")
    if basis.residual_trace is not None:
        assert 0 <= basis.residual_trace < (1e-10 if number < 100 else 1.0)
    model = NystromRegressor(
        Gaussian(length_scale), basis=strategy, n_basis=100, random_state=0, noise=0.1, intercept=False
    )
    assert np.all(np.isfinite(model.fit(rows, np.sin(2 * rows[:, 0])).predict(rows)))


@pytest.mark.parametrize("pivots", ["random", "greedy"])
def test_random_smooth_kernels_never_fail(pivots):
    rng = np.random.default_rng(0)
    for seed in range(60):
        rows = rng.normal(size=(60, 1)) * 10 ** rng.uniform(-2, 1)
        basis = PivotedCholesky(pivots).select(rows, rows, Gaussian(1.0), 50, random_state=seed)
        assert 0 < len(basis.points) <= 50


NONE = ["forward_selection", "sparse_greedy", "supervised_cholesky", "leverage", "pivoted_cholesky"]


@pytest.mark.parametrize("name", ["forward_selection", "sparse_greedy"])
def test_targets_of_zero_leave_one_point(name):
    rows = np.random.default_rng(0).normal(size=(30, 2))
    model = NystromRegressor(Gaussian(1.0), basis=name, n_basis=10, random_state=0, noise=0.1, intercept=False).fit(
        rows, np.zeros(30)
    )
    assert model.rank_ == 1
    assert model.basis_note_.startswith("0 of 10 points: no other row gains anything. The first row stands for all.")
    np.testing.assert_array_equal(model.predict(rows), 0.0)


@pytest.mark.parametrize("name", NONE)
def test_a_kernel_of_zeros_leaves_one_point(name):
    rows = np.zeros((30, 2))
    weights = np.where(np.arange(30) == 0, 0.0, 1.0)
    model = NystromRegressor(Linear(), basis=name, n_basis=10, random_state=0, noise=0.1, intercept=False).fit(
        rows, np.arange(30.0), weights
    )
    assert model.rank_ == 1
    np.testing.assert_array_equal(model.basis_index_, [1])
    np.testing.assert_array_equal(model.predict(rows), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("strategy", [ForwardSelection(), SparseGreedy(1e-6)], ids=str)
def test_rare_rows_are_found_among_many_duplicates(strategy, seed):
    rng = np.random.default_rng(seed)
    rows = np.concatenate([np.zeros((4900, 1)), rng.uniform(1, 10, size=(100, 1))])[rng.permutation(5000)]
    basis = strategy.select(rows, np.sin(rows[:, 0]) + 1.0, Gaussian(0.5), 15, random_state=seed)
    assert len(basis.points) == 15


def test_forward_selection_goes_on_as_long_as_functions_help():
    rows = np.linspace(0, 6, 1000)[:, np.newaxis]
    targets = np.sin(3 * rows[:, 0]) + 0.3 * np.cos(5 * rows[:, 0])
    model = NystromRegressor(
        Gaussian(1.0), basis="forward_selection", noise=1e-10, n_basis=60, random_state=0, intercept=False
    )
    assert np.sqrt(np.mean((model.fit(rows, targets).predict(rows) - targets) ** 2)) < 1e-3


@pytest.mark.parametrize("amplitude", [1e-200, 1e-120, 1e120, 1e200])
@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_units_do_not_matter_to_supervised_choices(amplitude, unit):
    rows = np.random.default_rng(0).normal(size=(80, 2))
    targets = np.sin(2 * rows[:, 0])
    for plain, other in ((ForwardSelection(), ForwardSelection()), (SparseGreedy(0.1), SparseGreedy(0.1 * amplitude))):
        expected = plain.select(rows, targets, Gaussian(1.0), 8, random_state=0)
        found = other.select(rows, unit * targets, Gaussian(1.0, amplitude), 8, random_state=0)
        np.testing.assert_array_equal(found.index, expected.index)


@pytest.mark.parametrize("name", ["forward_selection", "sparse_greedy", "supervised_cholesky"])
def test_an_intercept_takes_the_mean_before_points_are_chosen(name):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 2))
    targets = np.sin(2 * rows[:, 0])
    options = {"kernel": Gaussian(1.0), "basis": name, "n_basis": 15, "intercept": True, "random_state": 0}
    near = NystromRegressor(**options).fit(rows, targets)
    far = NystromRegressor(**options).fit(rows, targets + 1e4)
    np.testing.assert_array_equal(near.basis_index_, far.basis_index_)


def test_only_ratios_of_weights_that_are_no_counts_matter_to_gcv():
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(100, 2)), rng.uniform(0.5, 2.0, size=100)
    few, many = (
        ForwardSelection(stop="gcv").select(rows, rows[:, 0], Gaussian(1.0), 20, weights=unit * weights, random_state=0)
        for unit in (1e-3, 1e3)
    )
    np.testing.assert_array_equal(few.index, many.index)


# ----------------------------------------------------------------------------------------------------- leverage


def test_rows_are_drawn_with_their_inclusion_probabilities():
    scores = np.random.default_rng(0).uniform(size=30) ** 3
    scores[:2] = 50.0
    chances = inclusion_probabilities(scores, 8)
    assert np.sum(chances) == pytest.approx(8.0)
    np.testing.assert_array_equal(chances[:2], 1.0)
    np.testing.assert_allclose(chances[2:] / scores[2:], chances[2] / scores[2])
    random_state, draws = np.random.RandomState(0), 4000
    counts = np.zeros(30)
    for _ in range(draws):
        drawn = _systematic_sample(chances, 8, random_state)
        assert len(np.unique(drawn)) == 8
        counts[drawn] += 1
    deviations = np.sqrt(draws * chances * (1 - chances)) + 1e-9
    assert np.max(np.abs(counts - draws * chances) / deviations) < 4.0


@pytest.mark.parametrize("number", [1, 5, 29, 30])
def test_inclusion_probabilities_of_zeros_and_of_all(number):
    scores = np.concatenate([np.ones(number), np.zeros(3)])
    np.testing.assert_array_equal(inclusion_probabilities(scores, number), (scores > 0).astype(float))


def test_one_over_the_scores_counts_the_rows():
    rng = np.random.default_rng(0)
    rows = np.concatenate([0.1 * rng.normal(size=(30, 1)), 5 + 3 * rng.normal(size=(10, 1))])
    estimates = []
    for seed in range(400):
        basis = Leverage(noise=0.5).select(rows, rows, Gaussian(1.0), 20, random_state=seed)
        estimates.append(np.sum(1 / basis.scores[basis.index < 30]))
    assert np.mean(estimates) == pytest.approx(30.0, abs=4 * np.std(estimates) / 20)


def test_leverage_of_nearly_diagonal_matrices():
    for seed in range(90, 100):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(300, 5)) * 10 ** rng.uniform(-1, 2)
        model = NystromRegressor(
            Matern(0.17, 2.5), basis="leverage", n_basis=40, random_state=0, noise=0.1, intercept=False
        )
        assert model.fit(rows, rows[:, 0]).rank_ == 40


# --------------------------------------------------------------------------------------- what estimators tell of it


def test_what_a_strategy_knows_reaches_the_estimator():
    rows = np.random.default_rng(0).normal(size=(200, 1))
    model = NystromRegressor(
        Gaussian(1.0), basis=PivotedCholesky(), n_basis=8, random_state=0, noise=0.1, intercept=False
    )
    chosen = PivotedCholesky().select(rows, rows, Gaussian(1.0), 8, random_state=0)
    assert model.fit(rows, rows[:, 0]).basis_residual_trace_ == pytest.approx(chosen.residual_trace)
    assert model.basis_note_ == ""
    few = NystromRegressor(
        Gaussian(1.0), basis="pivoted_cholesky", n_basis=150, random_state=0, noise=0.1, intercept=False
    ).fit(rows, rows[:, 0])
    assert few.basis_note_.startswith(f"{len(few.basis_)} of 150 points: they span all rows to rounding.")
    plain = NystromRegressor(Gaussian(1.0), n_basis=150, random_state=0, noise=0.1, intercept=False).fit(
        rows, rows[:, 0]
    )
    assert plain.basis_note_ == f"{plain.rank_} of 150 points are used: they span the others to rounding."
    pseudo = PseudoInputRegressor(Gaussian(1.0), n_basis=300, random_state=0).fit(rows, np.sin(rows[:, 0]))
    assert pseudo.basis_note_.startswith("200 of 300 points: there are no more rows.")


def test_rows_of_no_weight_do_not_move_a_fitted_law():
    rows = np.random.default_rng(0).normal(size=(500, 2))
    rows[0] = 1e9
    weights = np.where(np.arange(500) == 0, 0.0, 1.0)
    points = Distribution().select(rows, rows, Gaussian(1.0), 400, weights=weights, random_state=0).points
    assert np.all(np.abs(np.std(points, axis=0) - 1.0) < 0.2)


def test_a_strategy_takes_plain_arrays():
    rows = np.random.default_rng(0).normal(size=(50, 2))
    assert PivotedCholesky().select(rows, rows[:, 0], Gaussian(1.0), 10).points.shape == (10, 2)
