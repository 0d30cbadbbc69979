"""The online update of a root against dense inverses, and when it is refused."""

from dataclasses import replace

import numpy as np
import pytest

from mercer.engine import ArrayTable, NormalStatistics, as_rows
from mercer.methods.online_update import Changes, centred, updated_root
from mercer.solvers.ridge import RidgeProblem

NOISE = 0.1


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def problem_of(features, targets, weights, *, intercept):
    table = ArrayTable(as_rows(features), targets, weights)
    sums = NormalStatistics.of_features(features, table, is_whitened=True)
    problem = RidgeProblem.from_sums(
        gram=sums.gram, cross=sums.cross, moments=sums.moments, n_targets=sums.n_targets, intercept=intercept
    )
    return problem, sums, table


def gram_of(root):
    return root.T @ root


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("n_rows", [0, 1, 3, 12])
def test_a_root_follows_rows_that_come_and_go(rng, sign, n_rows):
    kept, rows = rng.normal(size=(30, 8)), rng.normal(size=(n_rows, 8))
    before = kept if sign > 0 else np.vstack([kept, rows])
    after = np.vstack([kept, rows]) if sign > 0 else kept
    system, expected = (NOISE * np.eye(8) + each.T @ each for each in (before, after))
    root = np.sqrt(NOISE) * np.linalg.inv(np.linalg.cholesky(system))
    updated = updated_root(root, rows, noise=NOISE, sign=sign)
    np.testing.assert_allclose(gram_of(updated), NOISE * np.linalg.inv(expected), rtol=0, atol=1e-12)


def test_rows_that_never_came_have_no_root_without_them(rng):
    root = np.sqrt(NOISE) * np.linalg.inv(np.linalg.cholesky(NOISE * np.eye(4)))
    assert updated_root(root, np.ones((1, 4)), noise=NOISE, sign=-1.0) is None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_first", [0, 1, 20])
def test_centred_rows_are_what_the_centred_gram_matrix_changes_by(rng, weighted, n_first):
    features, targets = rng.normal(size=(n_first + 5, 3)) + 10.0, rng.normal(size=(n_first + 5, 1))
    weights = rng.uniform(0.1, 3.0, size=len(features)) if weighted else None
    first, rest = slice(0, n_first), slice(n_first, None)
    part = None if weights is None else weights[rest]
    _, others, _ = problem_of(
        features[first], targets[first], None if weights is None else weights[first], intercept=True
    )
    rows = centred(features[rest], ArrayTable(as_rows(features[rest]), weights=part), others, intercept=True)

    def dense(some):
        weight = np.ones(len(some)) if weights is None else weights[: len(some)]
        if not len(some):
            return np.zeros((3, 3))
        deviations = some - np.average(some, axis=0, weights=weight)
        return deviations.T @ (weight[:, np.newaxis] * deviations)

    np.testing.assert_allclose(rows.T @ rows, dense(features) - dense(features[first]), rtol=0, atol=1e-11)
    assert rows.shape == (5, 3)


def test_rows_of_no_weight_change_nothing(rng):
    features = rng.normal(size=(4, 3))
    _, others, _ = problem_of(features, np.ones((4, 1)), None, intercept=True)
    table = ArrayTable(as_rows(features), weights=np.zeros(4))
    np.testing.assert_array_equal(centred(features, table, others, intercept=True), 0.0)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_solution_is_the_direct_one(rng, intercept):
    features, targets = rng.normal(size=(60, 24)) + 1.0, rng.normal(size=(60, 2))
    old, sums, _ = problem_of(features[:57], targets[:57], None, intercept=intercept)
    new, _, _ = problem_of(features, targets, None, intercept=intercept)
    rows = centred(features[57:], ArrayTable(as_rows(features[57:])), sums, intercept=intercept)
    changes = Changes.since(old.solve(NOISE).root, NOISE, 57).plus(rows)
    found, expected = changes.solve(new), new.solve(NOISE)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.intercept, expected.intercept, rtol=0, atol=1e-12)
    np.testing.assert_allclose(gram_of(found.root), gram_of(expected.root), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.scale, expected.scale, rtol=1e-12)


def test_a_root_that_has_drifted_or_a_singular_system_is_refused(rng):
    features = rng.normal(size=(40, 8))
    problem, _, _ = problem_of(features, rng.normal(size=(40, 1)), None, intercept=False)
    right = Changes.since(problem.solve(NOISE).root, NOISE, 40)
    assert right.solve(problem) is not None
    drifted = right.root.copy()
    drifted[3] *= 1 + 1e-6
    assert replace(right, root=drifted).solve(problem) is None
    assert replace(right, noise=1e-14).solve(problem) is None
    assert replace(right, root=np.full((8, 8), np.nan)).solve(problem) is None


def test_few_rows_are_admitted_until_half_have_changed(rng):
    changes = Changes.since(np.eye(160), NOISE, 30)
    assert changes.admit(10)
    assert not changes.admit(11)
    five = rng.normal(size=(5, 160))
    pending = changes.plus(five).minus(five)
    assert not pending.admit(1)
    solved = replace(pending, added=(), removed=())
    assert solved.admit(5)
    assert not solved.admit(6)
    assert not Changes.since(np.eye(160), 0.0, 30).admit(1)
