"""Learners of streams in daily life: rows one by one, names, classes that appear, changed rules, interruptions."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from mercer import OnlineClassifier, OnlineRegressor
from mercer.engine.sequential import SequentialLearner
from mercer.kernels import Gaussian, Linear
from mercer.solvers.recursive import recursion
from tests.streams import N, close, make

each_intercept = pytest.mark.parametrize("intercept", [False, True])


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(N, 2))


@pytest.fixture
def targets(rows):
    return np.sin(2 * rows[:, 0]) + 0.5 * rows[:, 1] + 0.1 * np.random.default_rng(1).normal(size=N)


def test_rules_may_change_between_batches_but_not_the_model(rows, targets):
    model = make(max_basis=25).fit(rows[:200], targets[:200])
    before = model.predict(rows)
    for change in ({"noise": 0.2}, {"intercept": True}, {"kernel": Gaussian(2.0)}):
        model.set_params(**change)
        with pytest.raises(ValueError, match="cannot change: call fit"):
            model.partial_fit(rows, targets)
        np.testing.assert_array_equal(model.predict(rows), before)
        model.set_params(noise=0.1, intercept=False, kernel=Gaussian(1.0))
    model.set_params(max_basis=10).partial_fit(rows[200:201], targets[200:201])
    assert len(model.basis_) == 10
    model.set_params(max_basis=40, gain_tol=0.0).partial_fit(rows[200:], targets[200:])
    assert len(model.basis_) == 40
    assert model.score(rows, targets) > 0.9


def test_names_of_features_are_those_of_tables(rows, targets):
    wide = np.random.default_rng(5).normal(size=(100, 12))
    numbered = make(max_basis=50)
    for row, target in zip(wide, targets, strict=False):
        numbered.learn_one(dict(enumerate(row)), target)
    close(numbered.predict(wide[:1]), [numbered.predict_one(dict(enumerate(wide[0])))])
    named = make()
    for row, target in zip(rows[:100], targets, strict=False):
        named.learn_one({"b": row[1], "a": row[0]}, target)
    frame = pd.DataFrame(rows, columns=["a", "b"])
    close(named.predict(frame[:1]), [named.predict_one({"a": rows[0, 0], "b": rows[0, 1]})])
    with pytest.raises(ValueError, match="feature names"):
        named.predict(frame[["b", "a"]])
    fitted = make().fit(frame, targets)
    assert fitted.predict_one({"b": rows[0, 1], "a": rows[0, 0]}) == pytest.approx(fitted.predict(frame[:1])[0])


@pytest.mark.parametrize("place", ["learn_blocks", "_open", "_close"])
@pytest.mark.parametrize("size", [1, 64, 150])
def test_an_interruption_leaves_the_model_as_it_was(rows, targets, place, size, monkeypatch):
    model = make(gain_tol=0.0, novelty_tol=1e-3).fit(rows[:100], targets[:100])
    before, seen = model.predict(rows, return_std=True), model.n_seen_
    expected = make(gain_tol=0.0, novelty_tol=1e-3).fit(rows[:100], targets[:100])

    def interrupted(*args, **options):
        work(*args, **options)
        raise KeyboardInterrupt

    home = next(h for h in (recursion, recursion.BlockRecursion, SequentialLearner) if hasattr(h, place))
    work = getattr(home, place)
    new, y = rows[100 : 100 + size] + 1.0, targets[100 : 100 + size]
    monkeypatch.setattr(home, place, interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(new, y)
    monkeypatch.undo()
    for now, then in zip(model.predict(rows, return_std=True), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert model.n_seen_ == seen
    close(model.partial_fit(new, y).predict(rows), expected.partial_fit(new, y).predict(rows))


def test_a_bad_row_among_wide_ones_leaves_the_model_as_it_was():
    wide = np.random.default_rng(0).normal(size=(124, 6000)) / 80
    model = OnlineRegressor(Linear(), max_basis=30, gain_tol=0.0).fit(wide[:60], wide[:60, 0])
    bad = wide[60:].copy()
    bad[60] = 1e80
    with pytest.raises(ValueError, match="overflow"):
        model.partial_fit(bad, wide[60:, 0])
    assert model.n_seen_ == 60


def test_batches_without_weight_are_left_out(rows, targets):
    weights = np.where(np.arange(N) % 3, 1.0, 0.0)
    model = make()
    for t in range(1, N):
        model.partial_fit(rows[t : t + 1], targets[t : t + 1], weights[t : t + 1])
    expected = make().fit(rows[1:], targets[1:], weights[1:])
    close(model.predict(rows), expected.predict(rows))
    one = OnlineClassifier(Gaussian(1.0))
    one.learn_one({"a": 1.0}, "x", w=0)
    assert one.predict_one({"a": 1.0}) is None


def as_stream(rows, labels):
    return [({"a": a, "b": b}, label) for (a, b), label in zip(rows, labels, strict=True)]


@each_intercept
@pytest.mark.parametrize("names", [["x", "y"], ["y", "x"], ["b", "c", "a"], ["d", "a", "c", "b"]], ids="".join)
def test_classes_that_appear_one_by_one_are_as_if_they_had_been_known(rows, intercept, names):
    labels = np.array(names)[np.arange(N) % len(names)]
    labels[: N // 4] = names[0]  # others come later
    options = {"kernel": Gaussian(1.0), "intercept": intercept, "selection": "novelty", "max_basis": 40}
    known, met = OnlineClassifier(**options), OnlineClassifier(**options)
    known.partial_fit(rows, labels, classes=sorted(names))
    for x, label in as_stream(rows, labels):
        met.learn_one(x, label)
    np.testing.assert_array_equal(met.classes_, sorted(names))
    np.testing.assert_array_equal(met.basis_index_, known.basis_index_)
    frame = pd.DataFrame(rows, columns=["a", "b"])
    close(met.decision_function(frame), known.decision_function(rows))
    assert met.cost_ == pytest.approx(known.cost_, rel=1e-7)
    assert [met.predict_one(x) for x, _ in as_stream(rows[:50], labels[:50])] == known.predict(rows[:50]).tolist()
    met.partial_fit(frame[:30], labels[:30]).refit(frame, labels)  # and goes on with tables
    close(
        met.decision_function(frame),
        known.partial_fit(rows[:30], labels[:30]).refit(rows, labels).decision_function(rows),
    )
    assert met.cost_ == pytest.approx(known.cost_, rel=1e-6)
    with pytest.raises(ValueError, match="cannot merge classifiers that learned by learn_one"):
        met.merge(known)


def test_one_class_and_labels_of_another_type(rows):
    model = OnlineClassifier(Gaussian(1.0))
    assert model.predict_one({"a": 1.0}) is None
    for x, _ in as_stream(rows[:10], range(10)):
        model.learn_one(x, 3)
    assert model.predict_one({"a": 1.0, "b": 2.0}) == 3
    with pytest.raises(ValueError, match="only one class was seen"):
        model.predict(pd.DataFrame(rows, columns=["a", "b"]))
    for label in (None, np.nan):
        with pytest.raises(ValueError, match="which is not a label"):
            model.learn_one({"a": 1.0, "b": 0.0}, label)
    with pytest.raises(ValueError, match="feature 'a' is None, which is not a number"):
        model.learn_one({"a": None, "b": 0.0}, 3)
    with pytest.raises(ValueError, match="is of another type"):
        model.learn_one({"a": 1.0, "b": 0.0}, "three")
    with pytest.raises(ValueError, match="NaN, infinite or negative"):
        model.learn_one({"a": np.nan, "b": 0.0}, 4)
    assert model.classes_.tolist() == [3]
    assert model.n_seen_ == 10
    fitted = OnlineClassifier(Gaussian(1.0)).fit(rows, rows[:, 0] > 0)
    with pytest.raises(ValueError, match="no feature names"):
        fitted.predict_one({"a": 1.0})


def test_one_row_at_a_time_as_a_mapping(rows, targets):
    expected, model = make().fit(rows, targets), make()
    assert model.predict_one({"a": 1.0}) == 0.0
    for row, target in zip(rows, targets, strict=True):
        model.learn_one({"b": row[1], "a": row[0]}, target)
    np.testing.assert_array_equal(model.basis_index_, expected.basis_index_)
    new = {"a": 0.3, "b": -0.4}
    assert model.predict_one(new) == pytest.approx(expected.predict([[0.3, -0.4]])[0], rel=1e-7)
    assert model.predict_one(new | {"c": 5.0}) == model.predict_one(new)
    assert model.predict_one({"a": 0.3}) == model.predict_one({"a": 0.3, "b": 0.0})
    with pytest.raises(ValueError, match="NaN"):
        model.learn_one({"a": np.nan, "b": 0.0}, 1.0)
    assert model.n_seen_ == N
    with pytest.raises(ValueError, match="fitted to arrays"):
        expected.learn_one({"a": 1.0, "b": 2.0}, 1.0)


@pytest.mark.parametrize("learn", ["partial_fit", "learn_one"])
def test_several_threads_lose_no_rows(rows, targets, learn):
    """Each goes on from what the last has learned; the order is theirs."""
    model = make(max_basis=20, record=True)
    names = [{"a": a, "b": b} for a, b in rows]

    def go_on(start):
        for t in range(start, start + 40):
            if learn == "partial_fit":
                model.partial_fit(rows[t : t + 1], targets[t : t + 1])
            else:
                model.learn_one(names[t], targets[t])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(go_on, range(0, 160, 40)))
    assert model.n_seen_ == 160
    assert len(model.history_["n_seen"]) == 160
    copy = deepcopy(pickle.loads(pickle.dumps(model)))  # a lock goes with neither
    np.testing.assert_array_equal(clone(model).partial_fit(rows, targets).n_seen_, N)
    model.merge(copy)
    assert model.n_seen_ == 320
