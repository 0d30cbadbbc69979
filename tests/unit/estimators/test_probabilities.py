"""Probabilities and class weights of classifiers."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_moons
from sklearn.metrics import log_loss
from sklearn.svm import SVC
from sklearn.utils.class_weight import compute_sample_weight

from mercer import ExactClassifier, NystromClassifier, OnlineClassifier, compress
from mercer.kernels import Gaussian
from mercer.model import OneVsRest, Probabilities
from tests.archives import loaded, saved

WITH_PROBABILITIES = [
    ExactClassifier(Gaussian(), noise=0.1),
    NystromClassifier(Gaussian(), noise=0.1, n_basis=40, random_state=0),
]
each_model = pytest.mark.parametrize("model", WITH_PROBABILITIES, ids=lambda model: type(model).__name__)
SETS = {"two": make_moons(200, noise=0.3, random_state=0), "three": load_iris(return_X_y=True)}
each_set = pytest.mark.parametrize("data", SETS.values(), ids=SETS)


@each_set
def test_probabilities_are_fitted_to_values_of_models_without_the_row(data):
    """Brute force: one fit for each row."""
    X, y = data[0][::3], data[1][::3]
    model = ExactClassifier(Gaussian(), noise=0.1)
    rest = [np.arange(len(y)) != i for i in range(len(y))]
    values = np.array([np.ravel(model.fit(X[r], y[r]).decision_function(X[~r])) for r in rest])
    expected = Probabilities.fit(values, y, np.ones(len(y)), n_classes=len(set(y)))
    model.fit(X, y)
    decisions = model.decision_function(data[0]).reshape(len(data[0]), -1)
    np.testing.assert_allclose(model.predict_proba(data[0]), expected.of(decisions), atol=1e-6)


@each_model
@each_set
def test_probabilities_are_better_than_frequencies_and_survive_an_archive(model, data):
    X, y = data
    model.fit(X[::2], y[::2])
    table = model.predict_proba(X[1::2])
    assert log_loss(y[1::2], table) < 0.5 * np.log(len(model.classes_))
    np.testing.assert_allclose(model.predict_log_proba(X[1::2]), np.log(table), atol=1e-12)
    for copy in (loaded(saved(model)), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copy.predict_proba(X[1::2]), table)


@each_set
def test_a_compressed_model_keeps_them(data):
    X, y = data
    model = NystromClassifier(Gaussian(), noise=0.1, n_basis=40, random_state=0).fit(X, y)
    small = compress(model, 30, random_state=0)
    np.testing.assert_allclose(small.predict_proba(X), model.predict_proba(X), atol=0.05)
    values = small.decision_function(X).reshape(len(X), -1)
    np.testing.assert_allclose(small.predict_proba(X), model.outputs_.probabilities.of(values), atol=1e-12)
    np.testing.assert_array_equal(loaded(saved(small)).predict_proba(X), small.predict_proba(X))


def test_a_compressed_svm_has_none():
    X, y = SETS["two"]
    small = compress(SVC().fit(X, y), 5, random_state=0)
    assert not hasattr(small, "predict_proba")
    with pytest.raises(AttributeError) as refused:
        small.predict_proba(X)
    assert "CalibratedClassifierCV" in str(refused.value.__cause__)


def test_conjugate_gradients_give_none_and_say_what_does():
    X, y = SETS["two"]
    model = ExactClassifier(solver="cg", noise=0.1)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError) as refused:
        model.fit(X, y).predict_proba(X)
    assert "solver='cholesky'" in str(refused.value.__cause__)


def test_more_rows_change_them():
    X, y = SETS["two"]
    model = NystromClassifier(Gaussian(), noise=0.1, basis=X[:30]).partial_fit(X[:100], y[:100])
    before = model.predict_proba(X)
    after = model.partial_fit(X[100:], y[100:]).predict_proba(X)
    assert np.max(np.abs(after - before)) > 1e-3
    whole = NystromClassifier(Gaussian(), noise=0.1, basis=X[:30]).fit(X, y)
    np.testing.assert_allclose(after, whole.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("rare", [1, 2])
def test_rare_classes_have_probabilities(rare):
    X, y = SETS["two"]
    y = y.copy()
    y[:rare] = 7
    for model in WITH_PROBABILITIES:
        table = model.fit(X, y).predict_proba(X)
        assert table.shape == (200, 3)
        assert np.all(np.isfinite(table))
        np.testing.assert_allclose(np.sum(table, axis=1), 1.0)


@each_model
def test_weight_2_is_the_row_twice(model):
    X, y = SETS["three"]
    times = np.random.default_rng(0).integers(1, 4, size=150)
    again = np.repeat(np.arange(150), times)
    if isinstance(model, NystromClassifier):
        model = NystromClassifier(Gaussian(), noise=0.1, basis=X[:40])
    weighed = model.fit(X, y, times.astype(float)).predict_proba(X)
    np.testing.assert_allclose(weighed, model.fit(X[again], y[again]).predict_proba(X), atol=1e-6)


def test_outputs_without_calibration_have_no_probabilities():
    assert OneVsRest(np.arange(2)).probabilities is None


# ------------------------------------------------------------------------------------------------------- class weights


@each_model
@pytest.mark.parametrize("class_weight", ["balanced", {0: 3.0, 1: 0.5}, {1: 4.0}], ids=str)
def test_class_weights_multiply_sample_weights(model, class_weight):
    X, y = SETS["two"][0][:120], np.sort(SETS["two"][1])[60:180]
    expected = (
        model.set_params(class_weight=None).fit(X, y, compute_sample_weight(class_weight, y)).decision_function(X)
    )
    found = model.set_params(class_weight=class_weight).fit(X, y).decision_function(X)
    model.set_params(class_weight=None)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_balanced_counts_a_row_of_weight_2_as_two():
    X, y = SETS["two"]
    times = np.where(y == 1, 3, 1)
    again = np.repeat(np.arange(200), times)
    model = ExactClassifier(Gaussian(), noise=0.1, class_weight="balanced")
    weighed = model.fit(X, y, times.astype(float)).decision_function(X)
    np.testing.assert_allclose(weighed, model.fit(X[again], y[again]).decision_function(X), atol=1e-8)


@pytest.mark.parametrize("estimator", [NystromClassifier, OnlineClassifier])
def test_balanced_is_refused_where_not_all_rows_are_seen(estimator):
    X, y = SETS["two"]
    model = estimator(Gaussian(), class_weight="balanced")
    with pytest.raises(ValueError, match="needs the classes of all rows"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="needs the classes of all rows"):
        model.fit(X, y).partial_fit(X, y)


def test_partial_fit_takes_a_dict():
    X, y = SETS["two"]
    options = {"kernel": Gaussian(), "noise": 0.1, "basis": X[:30], "class_weight": {0: 3.0}}
    parts = NystromClassifier(**options).partial_fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    whole = NystromClassifier(**options).fit(X, y)
    np.testing.assert_allclose(parts.decision_function(X), whole.decision_function(X), atol=1e-8)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({0: 1.0, 5: 2.0}, r"not among the classes \[0, 1\]: \[5\]"),
        ({0: -1.0}, "at least zero"),
        ("even", "class_weight"),
        ({0: np.nan}, "finite"),
    ],
)
def test_class_weights_that_are_none_are_refused(class_weight, message):
    with pytest.raises(ValueError, match=message):
        ExactClassifier(class_weight=class_weight).fit(*SETS["two"])


def test_rows_one_by_one_have_the_weight_of_their_class():
    weighed = OnlineClassifier(Gaussian(), class_weight={"b": 3.0})
    plain = OnlineClassifier(Gaussian())
    for x, y in [(0.0, "a"), (1.0, "b"), (0.4, "a"), (0.6, "b")]:
        weighed.learn_one({"x": x}, y)
        plain.learn_one({"x": x}, y, w=3.0 if y == "b" else 1.0)
    np.testing.assert_array_equal(weighed.coefficients_, plain.coefficients_)
