"""The choice of a kernel: what candidates are, and that their errors are those of rows that are left out."""

import time

import numpy as np
import pytest
from sklearn.model_selection import LeaveOneOut

from mercer import ExactRegressor
from mercer.engine import ArrayRows, ArrayTable, Threads
from mercer.kernels import Matern
from mercer.methods.budget import Budget
from mercer.methods.search import judge_on_basis, n_candidates, search_kernel


def draw(n, seed=0, p=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = np.sin(2 * X[:, :1]) + X[:, 1:2] ** 2 + 0.1 * rng.normal(size=(n, p))
    return X, y


def search(X, y, weights=None, *, deadline=np.inf, work=search_kernel, n_jobs=1, **options):
    table = ArrayTable(ArrayRows(X), y, weights)
    return work(
        table, deadline=deadline, budget=Budget(60.0), rng=np.random.RandomState(0), executor=Threads(n_jobs),
        say=lambda _: None, **options,
    )  # fmt: skip


def test_errors_are_those_of_refitting_without_each_row():
    X, y = draw(50)
    found = search(X, y)
    assert len(found) == n_candidates(50, 4) > 1
    for candidate in (found[0], found[-1]):
        model = ExactRegressor(candidate.kernel, noise=candidate.noise)
        squares, alone = [], []
        for train, test in LeaveOneOut().split(X):
            squares.append((y[test] - model.fit(X[train], y[train]).predict(X[test])) ** 2)
            alone.append((y[test] - np.mean(y[train])) ** 2)
        assert candidate.error == pytest.approx(np.mean(squares) / np.mean(alone), rel=1e-6)


def test_kernels_that_are_tried_at_once_are_found_as_one_after_the_other():
    X, y = draw(80)
    for one, other in zip(search(X, y), search(X, y, n_jobs=3), strict=True):
        assert other.name == one.name
        assert other.error == pytest.approx(one.error, rel=1e-6)


def test_features_without_influence_get_longer_length_scales():
    X, y = draw(300)
    scales = next(each for each in search(X, y) if each.name == "matern 3/2").kernel.length_scale
    assert np.max(scales[:2]) < np.min(scales[2:])


def test_the_best_comes_first_and_a_deadline_leaves_one():
    X, y = draw(60)
    errors = [each.error for each in search(X, y)]
    assert errors == sorted(errors)
    assert len(search(X, y, deadline=time.monotonic())) == 1


@pytest.mark.parametrize("factor", [1e-200, 1e150])
def test_units_of_targets_do_not_matter(factor):
    X, y = draw(60)
    for one, other in zip(search(X, y), search(X, factor * y), strict=True):
        assert other.error == pytest.approx(one.error, rel=1e-3)


def test_rows_without_weight_decide_nothing():
    X, y = draw(80)
    weights = np.repeat([1.0, 0.0], 40)
    wild = np.where(weights[:, np.newaxis] > 0, y, 1e3)
    for one, other in zip(search(X, y, weights), search(X, wild, weights), strict=True):
        assert other.kernel.equals(one.kernel)


def test_an_output_that_hardly_varies_among_few_rows_is_no_trouble():
    X, y = draw(1200)
    rare = np.zeros((1200, 1))
    rare[7] = 1.0
    found = search(X, np.column_stack([y, rare]), deadline=time.monotonic())
    assert np.isfinite(found[0].error)


def test_on_a_basis_other_scales_and_metrics_are_tried():
    X, y = draw(500)
    start = search(X, y, deadline=time.monotonic())
    poor = [type(start[0])("short", Matern(length_scale=np.full(4, 0.2), nu=1.5), 0.1, 1.0, 0.0)]
    tried = search(X, y, work=judge_on_basis, candidates=poor)
    errors = [each.error for each in tried]
    assert errors == sorted(errors)
    unchanged = next(each for each in tried if each.kernel.equals(poor[0].kernel))
    assert tried[0].error < 0.5 * unchanged.error


def test_sums_are_stretched_as_a_whole():
    X, y = draw(400)
    both = Matern(length_scale=0.2, nu=1.5) + Matern(length_scale=0.4, nu=2.5)
    start = search(X, y, deadline=time.monotonic())
    tried = search(X, y, work=judge_on_basis, candidates=[type(start[0])("sum", both, 0.1, 1.0, 0.0)])
    assert len(tried) > 1
    for each in tried:
        assert each.kernel.right.length_scale == pytest.approx(2 * each.kernel.left.length_scale)
