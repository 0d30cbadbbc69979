"""Classification on a basis: least squares on ±1, one class against the rest."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from mercer import ExactClassifier, NystromClassifier, NystromRegressor
from mercer.kernels import Gaussian


@pytest.fixture
def iris():
    rows, labels = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(150)
    return rows[order], labels[order]


def assert_same_decisions(actual, expected, rows, tolerance=1e-8):
    np.testing.assert_allclose(actual.decision_function(rows), expected.decision_function(rows), rtol=0, atol=tolerance)


@pytest.mark.parametrize("intercept", [False, True])
def test_three_classes_are_three_regressions(iris, intercept):
    rows, labels = iris
    options = {"kernel": Gaussian(), "basis": rows[:20], "noise": 0.1, "intercept": intercept}
    model = NystromClassifier(**options).fit(rows, labels)
    for column, label in enumerate(model.classes_):
        alone = NystromRegressor(**options).fit(rows, np.where(labels == label, 1.0, -1.0))
        np.testing.assert_allclose(model.decision_function(rows)[:, column], alone.predict(rows), rtol=0, atol=1e-10)


@pytest.mark.parametrize("intercept", [False, True])
def test_all_rows_as_basis_give_the_exact_classifier(iris, intercept):
    rows, labels = iris
    model = NystromClassifier(Gaussian(), n_basis=150, intercept=intercept).fit(rows, labels)
    assert_same_decisions(model, ExactClassifier(Gaussian(), intercept=intercept).fit(rows, labels), rows)


def test_two_classes_have_one_decision_positive_for_the_second(iris):
    rows, labels = iris
    kept = labels > 0
    names = np.where(labels[kept] == 1, "one", "two")
    model = NystromClassifier(n_basis=30, random_state=0).fit(rows[kept], names)
    decisions = model.decision_function(rows[kept])
    assert decisions.shape == (100,)
    np.testing.assert_array_equal(model.predict(rows[kept]), np.where(decisions > 0, "two", "one"))


@pytest.mark.parametrize("size", [1, 7, 50])
def test_partial_fit_in_any_batches_equals_fit(iris, size):
    rows, labels = iris
    options = {"kernel": Gaussian(), "basis": rows[:20], "intercept": True}
    model = NystromClassifier(**options)
    for start in range(0, 150, size):
        model.partial_fit(rows[start : start + size], labels[start : start + size], classes=[0, 1, 2])
    assert_same_decisions(model, NystromClassifier(**options).fit(rows, labels), rows)


def test_classes_named_first_may_come_later(iris):
    rows, labels = iris
    first, rest = labels < 2, labels == 2
    options = {"kernel": Gaussian(), "basis": rows[:20]}
    model = NystromClassifier(**options).partial_fit(rows[first], labels[first], classes=[0, 1, 2])
    model.partial_fit(rows[rest], labels[rest])
    assert model.classes_.tolist() == [0, 1, 2]
    assert_same_decisions(model, NystromClassifier(**options).fit(rows, labels), rows)


def test_classes_are_those_of_the_first_labels_if_not_named(iris):
    rows, labels = iris
    model = NystromClassifier(n_basis=20, random_state=0).partial_fit(rows, labels)
    assert model.classes_.tolist() == [0, 1, 2]


def test_classes_must_not_change(iris):
    rows, labels = iris
    model = NystromClassifier(n_basis=20).partial_fit(rows, labels, classes=[0, 1, 2])
    with pytest.raises(ValueError, match=r"classes=.* differ from those of the first call, \[0, 1, 2\]"):
        model.partial_fit(rows, labels, classes=[0, 1, 2, 3])


def test_merge_equals_fit_of_both(iris):
    rows, labels = iris
    options = {"kernel": Gaussian(), "basis": rows[:20]}
    a, b = (NystromClassifier(**options).fit(rows[s], labels[s]) for s in (slice(0, 60), slice(60, 150)))
    assert_same_decisions(a.merge(b), NystromClassifier(**options).fit(rows, labels), rows)
    assert a.n_seen_ == 150


def test_forget_undoes(iris):
    rows, labels = iris
    options = {"kernel": Gaussian(), "basis": rows[:20]}
    model = NystromClassifier(**options).fit(rows, labels).forget(rows[100:], labels[100:])
    assert_same_decisions(model, NystromClassifier(**options).fit(rows[:100], labels[:100]), rows)


def test_weights_are_those_of_the_regression(iris):
    rows, labels = iris
    weights, kept = np.linspace(0, 2, 150), labels < 2
    options = {"kernel": Gaussian(), "basis": rows[:20]}
    classifier = NystromClassifier(**options).fit(rows[kept], labels[kept], weights[kept])
    regressor = NystromRegressor(**options).fit(rows[kept], np.where(labels[kept] == 1, 1.0, -1.0), weights[kept])
    np.testing.assert_array_equal(classifier.decision_function(rows), regressor.predict(rows))


def test_gcv_chooses_one_noise_for_all_classes(iris):
    rows, labels = iris
    model = NystromClassifier(Gaussian(), basis=rows[:30], noise="gcv").fit(rows, labels)
    path = model.noise_path(model.noise_ * np.array([0.5, 1.0, 2.0]))
    assert path.gcv[1] < min(path.gcv[0], path.gcv[2])
    assert path.coefficients.shape == (3, 30, 3)
    np.testing.assert_allclose(path.coefficients[1], model.expansion_.coefficients, rtol=1e-8, atol=1e-8)
