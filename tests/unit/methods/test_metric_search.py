"""The search for a metric: what its trials say, against models that are fitted anew."""

import time

import numpy as np
import pytest

from mercer import NystromRegressor
from mercer.engine import ArrayRows, ArrayTable, Threads
from mercer.kernels import Gaussian, Matern, Metric
from mercer.methods.metric_search import refine_metric, spreads


def refine(X, y, kernel, *, weights=None, n_basis=60, rounds=3, deadline=np.inf, **options):
    table = ArrayTable(ArrayRows(X), np.reshape(y, (len(X), -1)), weights)
    return refine_metric(
        table, kernel, n_basis=n_basis, rounds=rounds, deadline=deadline, rng=np.random.RandomState(0),
        executor=Threads(1), say=lambda _: None, **options,
    )  # fmt: skip


def draw(n=300, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** np.arange(d) + 100.0
    inner = (X[:, 0] - 100) + (X[:, 1] - 100) / 10
    return X, np.sin(1.5 * inner) + 0.05 * rng.normal(size=n)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_spreads_of_inputs_of_any_size(scale):
    rows = np.random.default_rng(0).normal(loc=[0.0, 5.0, 0.0], size=(50, 3))
    np.testing.assert_allclose(spreads(scale * rows) / scale, np.std(rows, axis=0))
    np.testing.assert_array_equal(spreads(np.full((5, 2), scale) * [1.0, 0.0]), 1.0)


@pytest.mark.parametrize("start", [np.array([1.0, 10.0, 100.0, 1000.0]), Metric(np.eye(4), [1.0, 10.0, 100.0, 1000.0])])
def test_trials_are_models_on_the_basis_and_their_leave_one_out_errors(start):
    X, y = draw()
    chosen = np.sort(np.random.RandomState(0).permutation(300)[:60])
    basis, others = X[chosen], np.delete(y, chosen)  # basis points do not judge a model if 200 other rows can
    for trial in refine(X, y, Matern(start, nu=2.5))[:4]:
        model = NystromRegressor(trial.kernel, basis=basis, noise=trial.noise).fit(X, y)
        relative = (model.loo_error_ * (239 / 240)) ** 2 / np.var(others)
        np.testing.assert_allclose(trial.error, relative, rtol=1e-4)
        assert trial.kernel.nu == 2.5


def test_directions_are_found_from_one_length_scale_for_all_inputs_and_from_one_for_each():
    X, y = draw()
    unit = np.std(X, axis=0)
    for start in (Metric(np.eye(4), unit), 2 * unit):
        trials = refine(X, y, Matern(start, nu=1.5))
        metric = trials[0].kernel.metric
        assert np.sum(metric.importance[:2]) > 0.95
        vectors = np.linalg.svd(metric.map)[0]
        assert abs(vectors[:, 0] @ np.array([1, 1, 0, 0])) / np.sqrt(2) > 0.98
        assert trials[0].error < 0.5 * min(each.error for each in trials if each.round == 0)


def test_the_start_stays_where_no_metric_can_be_learned():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 6))
    trials = refine(X, rng.normal(size=200), Matern(3.0))
    assert trials[0].round == 0
    assert {each.round for each in trials} == {0, 1}


def test_the_best_of_several_starts_is_taken():
    X, y = draw()
    unit = np.std(X, axis=0)
    poor, good = Gaussian(0.01 * unit), Gaussian(np.array([1, 1, 50, 50]) * unit)
    trials = refine(X, y, poor, others=[good], rounds=0)
    importance = trials[0].kernel.metric_importance_
    np.testing.assert_allclose(
        importance, good.length_scale**-2.0 * unit**2 / np.sum(good.length_scale**-2.0 * unit**2)
    )


def test_diagonal_metrics_stay_diagonal():
    X, y = draw()
    for trial in refine(X, y, Matern(np.std(X, axis=0)), diagonal=True):
        np.testing.assert_array_equal(trial.kernel.metric.map, np.diag(np.diagonal(trial.kernel.metric.map)))


def test_a_deadline_that_has_passed_leaves_one_fit():
    X, y = draw()
    assert len(refine(X, y, Matern(10.0), deadline=time.monotonic() - 1)) == 1


def test_a_weight_of_two_is_the_row_twice_and_one_of_zero_is_no_row():
    X, y = draw(60)
    weights = np.ones(60)
    weights[:5], weights[5:8] = 2.0, 0.0
    twice = np.concatenate([X[:5], X[:5], X[8:]]), np.concatenate([y[:5], y[:5], y[8:]])
    # all rows are basis points, of which duplicates are left out
    kernel = Gaussian(np.array([1.0, 10.0, 1e4, 1e5]))
    one = refine(X, y, kernel, weights=weights, rounds=0)
    other = refine(*twice, kernel, n_basis=62, rounds=0)
    noises = [sorted(each.noise for each in trials) for trials in (one, other)]
    np.testing.assert_allclose(*noises, rtol=1e-5)


@pytest.mark.parametrize("constant", [True, False])
def test_targets_or_rows_that_do_not_vary(constant):
    X, y = draw(40)
    trials = refine(X, np.ones(40), Matern(10.0)) if constant else refine(np.ones((40, 4)), y, Matern(10.0))
    assert {each.round for each in trials} == {0}
    assert trials[0].kernel.metric.n_features == 4


def test_outputs_are_summed():
    X, _ = draw()
    Z = (X - 100) / np.std(X, axis=0)
    y = np.column_stack([np.sin(2 * Z[:, 0]), np.cos(2 * Z[:, 3])])
    importance = refine(X, y, Matern(np.std(X, axis=0)))[0].kernel.metric_importance_
    assert np.all(importance[[0, 3]] > 0.3)
