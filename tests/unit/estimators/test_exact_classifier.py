"""Exact classification: least squares on ±1, one class against the rest."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.kernel_ridge import KernelRidge

from mercer import ExactClassifier, ExactRegressor
from mercer.kernels import Gaussian


@pytest.fixture
def iris():
    rows, labels = load_iris(return_X_y=True)
    return rows, labels


def test_three_classes_are_three_regressions(iris):
    rows, labels = iris
    model = ExactClassifier(Gaussian(), noise=0.1).fit(rows, labels)
    for column, label in enumerate(model.classes_):
        signs = np.where(labels == label, 1.0, -1.0)
        alone = ExactRegressor(Gaussian(), noise=0.1).fit(rows, signs)
        np.testing.assert_allclose(model.decision_function(rows)[:, column], alone.predict(rows), rtol=0, atol=1e-10)


def test_decisions_equal_scikit_learns_kernel_ridge_on_signs(iris):
    rows, labels = iris
    signs = np.where(labels[:, np.newaxis] == np.arange(3), 1.0, -1.0)
    kernel = Gaussian(1.5)
    reference = KernelRidge(alpha=0.1, kernel="precomputed").fit(kernel(rows), signs).predict(kernel(rows))
    model = ExactClassifier(kernel, noise=0.1, intercept=False).fit(rows, labels)
    np.testing.assert_allclose(model.decision_function(rows), reference, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(model.predict(rows), np.argmax(reference, axis=1))


def test_two_classes_have_one_decision_positive_for_the_second(iris):
    rows, labels = iris
    kept = labels < 2
    names = np.where(labels[kept] == 0, "a", "b")
    model = ExactClassifier().fit(rows[kept], names)
    decisions = model.decision_function(rows[kept])
    assert decisions.shape == (100,)
    assert model.classes_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.predict(rows[kept]), np.where(decisions > 0, "b", "a"))
    np.testing.assert_array_equal(model.predict(rows[kept]), names)


@pytest.mark.parametrize("classes", [[-5, 10], [False, True], ["no", "yes"], [0.0, 1.0]])
def test_labels_of_any_type_come_back(iris, classes):
    rows, labels = iris
    kept = labels < 2
    given = np.asarray(classes)[labels[kept]]
    predicted = ExactClassifier().fit(rows[kept], given).predict(rows[kept])
    assert predicted.dtype == given.dtype
    np.testing.assert_array_equal(predicted, given)


def test_weights_are_those_of_the_regression(iris):
    rows, labels = iris
    kept, weights = labels < 2, np.linspace(0.0, 2.0, 100)
    signs = np.where(labels[kept] == 1, 1.0, -1.0)
    classifier = ExactClassifier(Gaussian()).fit(rows[kept], labels[kept], sample_weight=weights)
    regressor = ExactRegressor(Gaussian()).fit(rows[kept], signs, sample_weight=weights)
    np.testing.assert_array_equal(classifier.decision_function(rows), regressor.predict(rows))


def test_conjugate_gradients_equal_cholesky(iris):
    rows, labels = iris
    direct = ExactClassifier(Gaussian(), intercept=True).fit(rows, labels)
    iterative = ExactClassifier(Gaussian(), intercept=True, solver="cg", tol=1e-12).fit(rows, labels)
    np.testing.assert_allclose(iterative.decision_function(rows), direct.decision_function(rows), rtol=0, atol=1e-8)


def test_precomputed_matrix_equals_kernel(iris):
    rows, labels = iris
    kernel = Gaussian()
    expected = ExactClassifier(kernel).fit(rows[::2], labels[::2]).decision_function(rows)
    model = ExactClassifier("precomputed").fit(kernel(rows[::2]), labels[::2])
    np.testing.assert_allclose(model.decision_function(kernel(rows, rows[::2])), expected, rtol=0, atol=1e-8)
