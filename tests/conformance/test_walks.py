"""The walk knows all kinds of estimators: a toy of each kind that is not public yet goes through it."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, OutlierMixin, TransformerMixin, is_outlier_detector
from sklearn.utils.validation import check_is_fitted, validate_data

from mercer.kernels import Gaussian
from tests.conformance import test_estimators as walk
from tests.contract import contract
from tests.walks import LEARN, OUTPUTS, answers, assert_refused, kind, of_kind, output, over, targets_for

N_POINTS = 5


class OnPoints(BaseEstimator):
    """Kernel values between rows and the first few of those that were learned."""

    def __init__(self, kernel=None):
        self.kernel = kernel

    def fit(self, X, y=None):
        X = validate_data(self, X, dtype=np.float64)
        self.kernel_ = (Gaussian() if self.kernel is None else self.kernel).resolve(X)
        self.basis_ = X[:N_POINTS].copy()
        return self

    def _values(self, X):
        check_is_fitted(self)
        return self.kernel_(validate_data(self, X, dtype=np.float64, reset=False), self.basis_)


class ToyFeatures(TransformerMixin, OnPoints):
    def transform(self, X):
        return self._values(X)


class ToyDetector(OutlierMixin, OnPoints):
    def fit(self, X, y=None):
        super().fit(X, y)
        self.offset_ = float(np.quantile(self.score_samples(X), 0.1))
        return self

    def score_samples(self, X):
        return np.sum(self._values(X), axis=1)

    def decision_function(self, X):
        return self.score_samples(X) - self.offset_

    def predict(self, X):
        return np.where(self.decision_function(X) >= 0, 1, -1)


TOYS = [ToyFeatures, ToyDetector]
each_toy = over("estimator", TOYS)


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(60, 3))


def test_kinds_are_told_apart(rows):
    assert [kind(toy()) for toy in TOYS] == ["transformer", "outlier_detector"]
    assert set(OUTPUTS) == {"regressor", "classifier", "transformer", "outlier_detector"}
    assert of_kind(TOYS, "regressor", "classifier") == []
    assert is_outlier_detector(ToyDetector())
    features, detector = (toy().fit(rows, targets_for(toy, rows)) for toy in TOYS)
    np.testing.assert_array_equal(output(features, rows), features.transform(rows))
    np.testing.assert_array_equal(output(detector, rows), detector.score_samples(rows))
    assert answers(features, rows).keys() == {"transform"}
    assert answers(detector, rows).keys() == {"predict", "decision_function", "score_samples"}
    assert set(answers(detector, rows)["predict"]) == {-1, 1}


@pytest.mark.parametrize(("estimator", "check"), [param for toy in TOYS for param in contract(toy())])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@each_toy
@pytest.mark.parametrize(
    "test",
    [
        walk.test_pandas_columns_are_remembered_and_checked,
        walk.test_polars_columns_are_remembered_and_checked,
        walk.test_mixed_numeric_columns_of_a_frame,
        walk.test_fit_does_not_touch_the_kernel_it_was_given,
    ],
)
def test_walks_take_them(estimator, test, rows):
    test(estimator, rows)


@each_toy
def test_copies_answer_the_same(estimator, rows, tmp_path):
    walk.test_stored_models_predict_the_same(estimator, rows, tmp_path, True, walk.through_joblib)


@each_toy
def test_what_is_refused_changes_nothing(estimator, rows):
    model = estimator().fit(rows)
    for method in LEARN:
        if hasattr(model, method):
            learn = getattr(model, method)
            assert_refused(model, lambda learn=learn: learn(rows * np.nan), rows, ValueError, "NaN")
    assert_refused(model, lambda: output(model, rows[:, :2]), rows, ValueError, "X has 2 features")
