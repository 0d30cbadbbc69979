"""The recursion on blocks takes the decisions of the plain one, whatever the blocks."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_info

from mercer.datasets import make_clusters, make_waves
from mercer.engine import ArrayRows, ArrayTable, SequentialLearner, learn_table, sequential
from mercer.engine.executors import threads
from mercer.kernels import Gaussian
from mercer.solvers.recursive import Rules, blocks, recursion
from mercer.solvers.recursive.block import PANEL
from papers.recursion import ReferenceRecursion
from tests.doubles import GuardedRows
from tests.strategies import examples

KERNEL = Gaussian(0.7, 1.7)


def one_at_a_time(rules, rows, targets, weights, kernel=KERNEL):
    model, points = ReferenceRecursion(rules, targets.shape[1]), np.empty((0, rows.shape[1]))
    for row, target, weight in zip(rows, targets, weights, strict=True):
        k = kernel(points, row[np.newaxis])[:, 0] if len(points) else np.empty(0)
        k = np.append(1.0, k) if rules.intercept else k
        place = model.learn(k, kernel.amplitude, target, weight)
        place -= rules.intercept if place >= 0 else 0
        if place >= 0:
            points = np.vstack([points[:place], row, points[place + 1 :]])
    return model, points


def in_blocks(rules, rows, targets, weights, sizes, kernel=KERNEL):
    learner, start = SequentialLearner(kernel, rules, rows.shape[1], targets.shape[1]), 0
    for size in sizes:
        span = slice(start, start + size)
        learner.learn(rows[span], targets[span], weights[span])
        start += size
    return learner.recursion, learner.points


def assert_same(fast, plain, fast_points, plain_points):
    np.testing.assert_array_equal(fast.births, plain.births)
    np.testing.assert_array_equal(fast_points, plain_points)
    for name in ("n_seen", "n_grown", "n_pruned"):
        assert getattr(fast, name) == getattr(plain, name)
    if len(plain.births):
        # Both are off by their condition number times rounding; what they do to vectors is compared.
        K = KERNEL(plain_points)
        tolerance = 1e-12 * (np.linalg.cond(K) if len(K) else 1.0) + 1e-10
        for left, right in ((fast.P_inverse, plain.P_inverse), (fast.K_inverse, plain.K_inverse)):
            np.testing.assert_allclose(left, right, rtol=0, atol=tolerance * np.max(np.abs(right)))
        w = plain.coefficients
        np.testing.assert_allclose(fast.coefficients, w, rtol=0, atol=tolerance * np.max(np.abs(w)))
    assert fast.cost == pytest.approx(plain.cost, rel=1e-7, abs=1e-9)
    assert fast.hidden_cost == pytest.approx(plain.hidden_cost, rel=1e-7, abs=1e-9)


streams = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "n_outputs": st.integers(1, 3),
        "max_basis": st.sampled_from([1, 3, 8, 20, 500]),
        "noise": st.sampled_from([1e-2, 0.1, 1.0]),
        "gain_tol": st.sampled_from([None, 0.0, 1e-3]),
        "forgetting": st.sampled_from([1.0, 0.99, 0.7]),
        "weighted": st.booleans(),
        "hidden": st.booleans(),
        "repeated": st.booleans(),
        "intercept": st.booleans(),
        "sizes": st.lists(st.sampled_from([1, 2, 5, 16, 17, 33, 64, 100]), min_size=1, max_size=6),
    }
)


@settings(max_examples=examples(50), deadline=None)
@given(streams)
def test_blocks_decide_as_single_rows_do(stream):
    rng = np.random.default_rng(stream["seed"])
    n = sum(stream["sizes"])
    rows = rng.normal(size=(n, 2))
    if stream["repeated"]:
        rows[::4] = rows[0]
    targets = np.column_stack([np.sin(3 * rows[:, 0] + i) for i in range(stream["n_outputs"])])
    targets += 0.1 * rng.normal(size=targets.shape)
    weights = rng.uniform(0.2, 3.0, size=n) if stream["weighted"] else np.ones(n)
    forgetting = 1.0 if stream["intercept"] else stream["forgetting"]
    rules = Rules(
        stream["noise"], stream["max_basis"], 1e-3, stream["gain_tol"], forgetting, stream["intercept"],
        hidden=int(stream["hidden"] and stream["n_outputs"] > 1),
    )  # fmt: skip
    plain, plain_points = one_at_a_time(rules, rows, targets, weights)
    fast, fast_points = in_blocks(rules, rows, targets, weights, stream["sizes"])
    assert_same(fast, plain, fast_points, plain_points)


def sinc():
    X = np.random.default_rng(0).uniform(-10, 10, size=(600, 1))
    return X, np.sinc(X / np.pi) + 0.2 * np.random.default_rng(1).normal(size=(600, 1))


def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600] / 16.0, np.where(y[:600, np.newaxis] == np.arange(10), 1.0, -1.0)


def generated(make):
    X, y = make(600, random_state=0)
    return X, y[:, np.newaxis]


DATA = {
    "sinc": (sinc, 2.0, 0.1),
    "digits": (digits, 2.0, 2.0),
    "waves": (partial(generated, make_waves), 1.5, 0.8),
    "clusters": (partial(generated, make_clusters), 1.0, 0.4),
}


@pytest.mark.parametrize("max_basis", [60, 2 * PANEL + 14])  # small matrices are kept whole, of large ones panels
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("gain_tol", [None, 1e-4])
def test_four_data_sets_in_all_batchings(name, gain_tol, max_basis):
    load, length_scale, shorter = DATA[name]
    rows, targets = load()
    kernel = Gaussian(length_scale if max_basis < PANEL else shorter)
    rules, weights = Rules(0.1, max_basis, 1e-2, gain_tol), np.ones(600)
    plain, points = one_at_a_time(rules, rows, targets, weights, kernel)
    assert plain.n_pruned > 20 or name == "sinc", "on a line, few functions are new"
    for size in (1, 7, 64, 600):
        sizes = [size] * (600 // size) + [600 % size]
        fast, fast_points = in_blocks(rules, rows, targets, weights, sizes, kernel)
        np.testing.assert_array_equal(fast.births, plain.births)
        np.testing.assert_array_equal(fast_points, points)
        largest = np.max(np.abs(plain.coefficients))
        np.testing.assert_allclose(fast.coefficients, plain.coefficients, rtol=0, atol=1e-9 * largest)


@pytest.mark.parametrize("begun", [False, True])
def test_products_of_blocks_have_blas_to_themselves(begun, monkeypatch):
    """Threads of BLAS in products of this size cost ten times what they save, from a learner's first block on."""
    pools = []

    def learn_blocks(*piece):
        pools.append({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
        return blocks.learn_blocks(*piece)

    X, y = make_waves(300, random_state=0)
    learner = SequentialLearner(Gaussian(1.0), Rules(1e-2, 50, 1e-3, 1e-6), X.shape[1], 1)
    if begun:
        learner.learn(X[:100], y[:100, np.newaxis])
    monkeypatch.setattr(recursion, "learn_blocks", learn_blocks)
    learner.learn(X[100:], y[100:, np.newaxis])
    assert len(pools) > 0
    assert all(pool == {1} for pool in pools)


@pytest.mark.parametrize("rules", [{"forgetting": 0.99}, {"intercept": True}, {"hidden": 1}])
def test_large_dictionaries_decide_as_the_reference_does(rules):
    """Of large dictionaries the inverses are kept in panels."""
    n, m = 520, 2 * PANEL + 20
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 4))
    targets = np.column_stack([np.sin(rows[:, 0]), rows[:, 1] * rows[:, 2]]) + 0.1 * rng.normal(size=(n, 2))
    rules = Rules(0.05, m, 1e-2, 1e-6, **rules)
    weights = rng.uniform(0.5, 2.0, size=n)
    plain, points = one_at_a_time(rules, rows, targets, weights, Gaussian(1.0))
    fast, fast_points = in_blocks(rules, rows, targets, weights, [n], Gaussian(1.0))
    assert plain.n_pruned > 20
    assert len(points) == m
    assert_same(fast, plain, fast_points, points)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("max_basis", [30, 65, 100, 450, 5000])
def test_all_rows_at_once_decide_as_batches_do(max_basis, intercept):
    """Dictionaries of all sizes, that have blocks of all lengths and grow beyond the memory that they begin with."""
    X, y = make_waves(1300, n_features=3, noise=0.1, random_state=1)
    rules = Rules(1e-2, max_basis, 1e-2, 1e-6, intercept=intercept)
    learners = [SequentialLearner(Gaussian(0.7), rules, 3, 1) for _ in range(2)]
    errors = [learners[0].learn(X, y[:, np.newaxis])]
    batches = [learners[1].learn(X[i : i + 77], y[i : i + 77, np.newaxis]) for i in range(0, 1300, 77)]
    errors.append(np.concatenate(batches))
    one, two = (learner.recursion for learner in learners)
    np.testing.assert_array_equal(one.births, two.births)
    np.testing.assert_array_equal(learners[0].points, learners[1].points)
    np.testing.assert_allclose(two.coefficients, one.coefficients, rtol=0, atol=1e-9 * np.max(np.abs(one.coefficients)))
    np.testing.assert_allclose(errors[1], errors[0], rtol=0, atol=1e-9)
    gram = two.gram[int(intercept) :, int(intercept) :]
    np.testing.assert_allclose(gram, Gaussian(0.7)(learners[1].points), rtol=0, atol=1e-12)
    assert one.n_grown > 100, "the dictionary must change"


def noted(monkeypatch):
    """How many rows each call of ``learn`` is given."""
    numbers, learn = [], SequentialLearner.learn

    def note(self, rows, *data):
        numbers.append(len(rows))
        return learn(self, rows, *data)

    monkeypatch.setattr(SequentialLearner, "learn", note)
    return numbers


def streamed(source, *, often=False):
    X, y = make_waves(5000, n_features=3, noise=0.1, random_state=0)
    learner = SequentialLearner(Gaussian(0.7), Rules(1e-2, 30, 1e-2, 1e-6), 3, 1)
    learner, history = learn_table(learner, ArrayTable(source(X), y[:, np.newaxis]), record=often)
    assert learner.recursion.n_seen == 5000
    return learner, [each.n_seen for each in history]


@pytest.mark.parametrize("at_once", [1, 600, 2000, 10_000])
def test_a_source_is_learned_as_an_array_is(at_once, monkeypatch):
    """Rows are read in tiles, and learned many at once: the same ones, wherever they come from."""
    learned = noted(monkeypatch)
    monkeypatch.setattr(threads, "MOST_ROWS", 500)
    monkeypatch.setattr(sequential, "_MEMORY", at_once * 8 * 4)
    array, _ = streamed(ArrayRows)
    step = min(max(500, at_once), 5000)
    assert set(learned) <= {step, 5000 % step or step}
    learned.clear()
    source, _ = streamed(partial(GuardedRows, longest_read=500))
    step = min(max(500, at_once // 500 * 500), 5000)  # whole tiles
    assert set(learned) <= {step, 5000 % step or step}
    np.testing.assert_allclose(array.recursion.coefficients, source.recursion.coefficients, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(array.recursion.births, source.recursion.births)
    often, told = streamed(ArrayRows, often=True)
    assert told == [*range(500, 5001, 500)]
    np.testing.assert_array_equal(array.recursion.births, often.recursion.births)


def test_long_streams_are_learned_many_rows_at_once(monkeypatch):
    """By the second, and by the working memory."""
    learner = SequentialLearner(Gaussian(0.7), Rules(1e-2, 100, 1e-2, 1e-6), 50, 1)
    assert 50_000 < sequential._Learning(learner, False).rows_together <= (1 << 25) // (51 * 8)
    learned, rows = noted(monkeypatch), ArrayRows(np.random.default_rng(0).normal(size=(5000, 50)))
    with config_context(working_memory=1):
        learn_table(learner, ArrayTable(rows, np.zeros((5000, 1))))
    assert max(learned) * 52 * 8 <= 1 << 18
