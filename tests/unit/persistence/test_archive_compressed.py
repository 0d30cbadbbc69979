"""Compressed models in archives: without the estimator of another library, which prediction does not need."""

import warnings

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

from mercer import ExactClassifier, NystromRegressor
from mercer.compression import compress
from mercer.exceptions import ArchiveError
from tests.archives import assert_alike, loaded, put_together, saved, taken_apart


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).normal(size=(90, 2))
    return X, np.sin(X[:, 0]) + X[:, 1]


def foreign(rows):
    X, y = rows
    labels = np.where(y > 1, "high", np.where(y > -1, "middle", "low"))
    yield SVR().fit(X, y)
    yield SVC().fit(X, y > 0)
    yield SVC().fit(X, labels)
    yield SVC(decision_function_shape="ovo").fit(X, labels)
    yield OneClassSVM(nu=0.2).fit(X)


def own(rows):
    X, y = rows
    yield NystromRegressor(n_basis=20, noise=0.1, intercept=False).fit(X, np.column_stack([y, -y]))
    yield ExactClassifier(noise=0.1, intercept=False).fit(X, np.digitize(y, [-1, 1]))
    yield NystromRegressor(n_basis=20, noise=0.1, intercept=False).fit(X, y).expansion_


def answers(model, X):
    methods = ("predict", "decision_function", "score_samples")
    return [getattr(model, name)(X) for name in methods if hasattr(model, name)]


@pytest.mark.parametrize("which", range(5))
def test_models_of_other_libraries(rows, which):
    small = compress(list(foreign(rows))[which], n_vectors=5, random_state=0)
    with pytest.warns(
        UserWarning, match=r"estimator is (SVR|SVC|OneClassSVM).*loaded predicts the same, but has estim"
    ):
        again = loaded(saved(small))
    assert again.estimator is None
    assert_alike(answers(small, rows[0]), answers(again, rows[0]))
    small.set_params(estimator=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_alike(small, loaded(saved(small)))
    with pytest.raises(TypeError, match="estimator must be an estimator"):
        again.fit(*rows)


@pytest.mark.parametrize("which", range(3))
def test_models_of_our_own(rows, which):
    small = compress(list(own(rows))[which], n_vectors=5, random_state=0)
    again = loaded(saved(small))
    assert_alike(small, again)
    assert_alike(answers(small, rows[0]), answers(again, rows[0]))
    if again.estimator is not None:
        targets = rows[1] if hasattr(again, "_flat") else rows[1] > 0
        again.fit(rows[0], targets)


def test_pipelines_are_not_ours(rows):
    small = compress(make_pipeline(StandardScaler(), SVR()).fit(*rows), n_vectors=5, random_state=0)
    with pytest.raises(ArchiveError, match="Pipeline cannot be saved"):
        saved(small)


def test_outputs_must_fit_the_rule_of_decision(rows):
    small = compress(list(foreign(rows))[2], n_vectors=5, random_state=0).set_params(estimator=None)
    header, members = taken_apart(saved(small))
    header["model"]["object"][1]["decision_rule_"] = "threshold"
    with pytest.raises(ArchiveError, match="a model of 3 classes has 3 outputs"):
        loaded(put_together(header, members))
