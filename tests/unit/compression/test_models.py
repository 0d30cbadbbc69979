"""Compressed models keep scikit-learn's contract, and the original's shapes, signs and classes."""

import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier, is_outlier_detector, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.multiclass import _ovr_decision_function

from mercer import ExactRegressor
from mercer.compression import CompressedClassifier, CompressedOutlierDetector, CompressedRegressor, compress
from mercer.model import OneVsOne

OPTIONS = {"n_vectors": 6, "random_state": 0}
MODELS = [
    CompressedRegressor(SVR(), **OPTIONS),
    CompressedClassifier(SVC(), **OPTIONS),
    CompressedOutlierDetector(OneClassSVM(nu=0.2), **OPTIONS),
]
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


def expected_failures(model):
    if isinstance(model.estimator, SVC):
        reason = "the message is SVC's own, which scikit-learn exempts from this check"
        return {"check_classifiers_one_label_sample_weights": reason}
    return {}


@parametrize_with_checks(
    [
        CompressedRegressor(make_pipeline(StandardScaler(), ExactRegressor(noise=0.1, intercept=False)), **OPTIONS),
        # Unrefined for the sake of time: a search that is longer makes no difference to the contract.
        *(clone(model).set_params(refine=False) for model in MODELS[1:]),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(150, 3))


def values_of(rows):
    return np.sin(rows[:, 0]) + rows[:, 1]


def targets_for(model, rows):
    if is_classifier(model):
        return np.array(["low", "middle", "top"])[np.digitize(values_of(rows), [-0.7, 0.7])]
    return values_of(rows)


def output(model, rows):
    return model.predict(rows) if is_regressor(model) else model.decision_function(rows)


# ------------------------------------------------------------------------------------------------------ as estimators


@each_model
def test_the_kind_is_that_of_the_estimator(model):
    assert is_regressor(model) == isinstance(model, CompressedRegressor)
    assert is_classifier(model) == isinstance(model, CompressedClassifier)
    assert is_outlier_detector(model) == isinstance(model, CompressedOutlierDetector)


@each_model
def test_fitting_is_compressing_the_fitted_estimator(model, rows):
    y = targets_for(model, rows)
    fitted = clone(model).fit(rows, y)
    expected = compress(clone(model.estimator).fit(rows, y), X=rows, **OPTIONS)
    np.testing.assert_array_equal(output(fitted, rows), output(expected, rows))
    np.testing.assert_array_equal(fitted.predict(rows), expected.predict(rows))
    assert len(fitted.expansion_.points) == OPTIONS["n_vectors"]
    assert not hasattr(fitted.estimator, "support_")  # the parameter stays as it was


@each_model
def test_a_compressed_model_can_be_cloned_and_fitted(model, rows):
    y = targets_for(model, rows)
    small = compress(clone(model.estimator).fit(rows, y), **OPTIONS)
    assert not hasattr(clone(small), "expansion_")
    refitted = clone(small).fit(rows[:100], y[:100])
    np.testing.assert_array_equal(output(refitted, rows), output(clone(model).fit(rows[:100], y[:100]), rows))


@each_model
def test_nothing_of_the_large_model_is_kept(model, rows):
    y = targets_for(model, rows)
    large = clone(model.estimator).fit(rows, y)
    assert len(pickle.dumps(compress(large, 2, random_state=0))) < len(pickle.dumps(large))


@each_model
def test_copies_predict_the_same(model, rows, tmp_path):
    fitted = clone(model).fit(rows, targets_for(model, rows))
    joblib.dump(fitted, tmp_path / "model.joblib")
    for copied in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        np.testing.assert_array_equal(copied.predict(rows), fitted.predict(rows))
        np.testing.assert_array_equal(output(copied, rows), output(fitted, rows))


@each_model
def test_a_failed_fit_leaves_no_traces(model, rows):
    fitted = clone(model).fit(rows, targets_for(model, rows))
    before = dict(vars(fitted))
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(np.full((5, 2), np.nan), targets_for(model, rows)[:5])
    fitted.set_params(estimator=make_pipeline(PowerTransformer(), model.estimator))
    with pytest.raises(ValueError, match="is not a scaler"):
        fitted.fit(rows[:, :2], targets_for(model, rows))
    assert vars(fitted) == before | {"estimator": fitted.estimator}


def test_searches_reach_into_the_estimator(rows):
    grid = {"estimator__C": [0.01, 10.0], "n_vectors": [1, 10]}
    search = GridSearchCV(CompressedRegressor(SVR(), random_state=0), grid, cv=3).fit(rows, values_of(rows))
    assert search.best_params_ == {"estimator__C": 10.0, "n_vectors": 10}
    assert np.mean(cross_val_score(search.best_estimator_, rows, values_of(rows), cv=3)) > 0.8


def test_arguments_of_fit_reach_the_estimator(rows):
    weights = np.where(rows[:, 0] > 0, 1.0, 1e-9)
    full = SVR().fit(rows, values_of(rows), sample_weight=weights)
    small = CompressedRegressor(SVR(), n_vectors=150).fit(rows, values_of(rows), sample_weight=weights)
    np.testing.assert_allclose(small.predict(rows), full.predict(rows), atol=1e-6)


def test_several_outputs(rows):
    y = np.stack([rows[:, 0], values_of(rows)], axis=1)
    small = CompressedRegressor(KernelRidge(kernel="rbf", alpha=0.1), n_vectors=20, random_state=0).fit(rows, y)
    assert small.predict(rows).shape == (150, 2)
    assert small.score(rows, y) > 0.9
    one = CompressedRegressor(KernelRidge(kernel="rbf"), n_vectors=5, random_state=0).fit(rows, y[:, :1])
    assert one.predict(rows).shape == (150, 1)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (CompressedRegressor(None, 5), TypeError, "estimator must be an estimator to be fitted, got None"),
        (CompressedRegressor(SVC(), 5), TypeError, "CompressedRegressor is for a regressor, got SVC"),
        (CompressedClassifier(SVR(), 5), TypeError, "CompressedClassifier is for a classifier, got SVR"),
        (CompressedOutlierDetector(SVR(), 5), TypeError, "is for a detector of outliers"),
        (CompressedRegressor(SVR()), ValueError, "n_vectors or tol must be given"),
        (CompressedRegressor(SVR(), 0), ValueError, "'n_vectors' parameter"),
        (CompressedRegressor(SVR(), 5, tol=0.0), ValueError, "'tol' parameter"),
        (CompressedRegressor(SVR(), 5, metric="both"), ValueError, "'metric' parameter"),
    ],
)
def test_refusals(model, error, message, rows):
    with pytest.raises(error, match=message):
        model.fit(rows, values_of(rows) > 0)


# -------------------------------------------------------------------------------------------------------------- inputs


@each_model
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_names_of_columns_are_passed_on(model, make, rows):
    frame, y = make({"a": rows[:, 0], "b": rows[:, 1], "c": rows[:, 2]}), targets_for(model, rows)
    full = clone(model.estimator).fit(frame, y)
    for small in (compress(full, **OPTIONS), clone(model).fit(frame, y)):
        assert list(small.feature_names_in_) == ["a", "b", "c"]
        assert small.n_features_in_ == 3
        with pytest.raises(ValueError, match="feature names should match"):
            small.predict(make({"b": rows[:, 1], "a": rows[:, 0], "c": rows[:, 2]}))
    plain = compress(clone(model.estimator).fit(rows, y), **OPTIONS)
    np.testing.assert_array_equal(output(compress(full, **OPTIONS), frame), output(plain, rows))
    assert not hasattr(small.fit(rows, y), "feature_names_in_")  # forgotten by a fit on an array


@each_model
def test_float32_fortran_read_only_and_single_rows(model, rows):
    fitted = clone(model).fit(rows, targets_for(model, rows))
    expected = output(fitted, rows)
    frozen = np.asfortranarray(rows)
    frozen.flags.writeable = False
    np.testing.assert_array_equal(output(fitted, frozen), expected)
    np.testing.assert_allclose(output(fitted, rows[:1]), expected[:1], rtol=1e-12)
    single = output(fitted, rows.astype(np.float32))
    np.testing.assert_allclose(single, expected, atol=1e-2)
    if is_regressor(fitted):
        assert single.dtype == np.float32


@each_model
def test_bad_inputs_are_refused(model, rows):
    fitted = clone(model).fit(rows, targets_for(model, rows))
    with pytest.raises(ValueError, match=r"X has 2 features, but Compressed\w+ is expecting 3"):
        fitted.predict(rows[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        fitted.predict(np.full((1, 3), np.nan))
    with pytest.raises(ValueError, match=r"X has 2 features, but Compressed\w+ is expecting 3"):
        fitted.predict(sp.csr_array(rows[:, :2]))
    with pytest.raises(ValueError, match="0 sample"):
        fitted.predict(sp.csr_array(rows[:0]))
    with pytest.raises(NotFittedError):
        clone(model).predict(rows)


@each_model
def test_sparse_rows_are_taken_where_the_estimator_takes_them(model, rows):
    table, y = sp.csr_array(np.where(np.abs(rows) > 0.7, rows, 0.0)), targets_for(model, rows)
    fitted = clone(model).fit(table, y)
    with sklearn.config_context(working_memory=1e-3):  # several batches
        np.testing.assert_allclose(output(fitted, table), output(fitted, table.toarray()), rtol=1e-12)
    full = clone(model.estimator).fit(table, y)
    small = compress(full, 150, table)
    np.testing.assert_allclose(output(small, table), output(full, table), rtol=0, atol=1e-6)


# ----------------------------------------------------------------------------------------------------------- decisions


@given(st.integers(3, 6), st.data())
def test_votes_are_counted_as_libsvm_does(n_classes, data):
    n_pairs = n_classes * (n_classes - 1) // 2
    values = np.array(data.draw(st.lists(st.sampled_from([-1.0, -0.5, 0.5, 2.0]), min_size=n_pairs, max_size=n_pairs)))
    winners, pair = [], 0
    for i in range(n_classes):
        for j in range(i + 1, n_classes):
            winners.append(i if values[pair] > 0 else j)
            pair += 1
    counts = [winners.count(i) for i in range(n_classes)]
    outputs = OneVsOne(np.arange(n_classes))
    assert outputs.predict(values[np.newaxis])[0] == counts.index(max(counts))
    # scikit-learn's values per class have the same winner, up to ties
    scores = _ovr_decision_function((values < 0)[np.newaxis], -values[np.newaxis], n_classes)[0]
    assert counts[int(np.argmax(scores))] == max(counts)
