"""A compressed model predicts like the model: alike from a few vectors, the same from as many as it had."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier, SGDOneClassSVM
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, PowerTransformer, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, NuSVC, NuSVR, OneClassSVM

from mercer import (
    CommitteeRegressor,
    CompactRegressor,
    ExactClassifier,
    ExactRegressor,
    NystromClassifier,
    NystromRegressor,
    OnlineClassifier,
    OnlineRegressor,
    PseudoInputRegressor,
    ReducedRankRegressor,
)
from mercer.compression import (
    CompressedClassifier,
    CompressedOutlierDetector,
    CompressedPipeline,
    CompressedRegressor,
    as_expansion,
    compress,
)
from mercer.kernels import Wendland
from tests.compression_cases import features, labels_of, make_rows, values_of

REGRESSORS = [
    SVR(C=10.0),
    NuSVR(C=10.0),
    SVR(kernel="poly", degree=3, coef0=1.0),
    KernelRidge(kernel="rbf", alpha=0.1),
    GaussianProcessRegressor(2.0 * gp.Matern(2.0, nu=2.5) + 1.0, alpha=0.1, normalize_y=True, optimizer=None),
    make_pipeline(StandardScaler(), SVR(C=10.0)),
    make_pipeline(StandardScaler(), features(), Ridge()),
    make_pipeline(PowerTransformer(), features(), StandardScaler(), LinearRegression()),
    make_pipeline(PCA(2), KernelRidge(kernel="rbf", alpha=0.1)),
    ExactRegressor(noise=0.1, intercept=False),
    NystromRegressor(n_basis=60, random_state=0, noise=0.1, intercept=False),
    CommitteeRegressor(n_basis=60, random_state=0),
    ReducedRankRegressor(n_basis=60, random_state=0),
    OnlineRegressor(max_basis=60),
    PseudoInputRegressor(n_basis=30, fit_points=False, random_state=0),
    CompactRegressor(Wendland(8.0)),
]
CLASSIFIERS = [
    SVC(C=10.0),
    SVC(C=10.0, decision_function_shape="ovo"),
    SVC(C=10.0, break_ties=True),
    NuSVC(nu=0.2),
    make_pipeline(StandardScaler(), SVC(C=10.0)),
    make_pipeline(features(), LogisticRegression(C=10.0)),
    make_pipeline(StandardScaler(), features(), LinearSVC(C=10.0)),
    make_pipeline(StandardScaler(), features(), RidgeClassifier(alpha=0.1)),
    ExactClassifier(noise=0.1, intercept=False),
    NystromClassifier(n_basis=60, random_state=0, noise=0.1, intercept=False),
    OnlineClassifier(max_basis=60),
]
OUTLIER_DETECTORS = [
    OneClassSVM(nu=0.2, gamma=0.5),
    make_pipeline(StandardScaler(), OneClassSVM(nu=0.2, gamma=0.5)),
    make_pipeline(features(), SGDOneClassSVM(nu=0.2, random_state=0)),
]
each_regressor = pytest.mark.parametrize("model", REGRESSORS, ids=lambda model: " ".join(repr(model).split()))
each_classifier = pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: " ".join(repr(model).split()))
each_detector = pytest.mark.parametrize("model", OUTLIER_DETECTORS, ids=lambda model: " ".join(repr(model).split()))


def last_of(model):
    return model[-1] if isinstance(model, Pipeline) else model


# ------------------------------------------------------------------------------------------- as many vectors as before


@each_regressor
def test_all_vectors_are_the_regressor(model, rows, queries):
    model.fit(rows, values_of(rows))
    small = compress(model, len(rows))
    np.testing.assert_allclose(small.predict(queries), model.predict(queries), rtol=0, atol=1e-6)
    assert isinstance(small, CompressedPipeline if isinstance(model, Pipeline) else CompressedRegressor)


@each_classifier
@pytest.mark.parametrize("n_classes", [2, 4])
def test_all_vectors_are_the_classifier(model, n_classes, rows, queries):
    model.fit(rows, labels_of(rows, n_classes))
    small = compress(model, len(rows))
    np.testing.assert_array_equal(small.classes_, model.classes_)
    np.testing.assert_array_equal(small.predict(queries), model.predict(queries))
    decision = small.decision_function(queries)
    assert decision.shape == model.decision_function(queries).shape
    np.testing.assert_allclose(decision, model.decision_function(queries), rtol=0, atol=1e-6)
    assert isinstance(last_of(small), CompressedClassifier)


@each_detector
def test_all_vectors_are_the_detector(model, rows, queries):
    small = compress(model.fit(rows), len(rows))
    for method in ("decision_function", "score_samples", "predict"):
        np.testing.assert_allclose(getattr(small, method)(queries), getattr(model, method)(queries), rtol=0, atol=1e-6)
    assert isinstance(last_of(small), CompressedOutlierDetector)


def test_ties_are_broken_as_the_original_does(rows, queries):
    # Labels at random, learned by heart: among three classes each of which beats one other there are ties.
    labels = np.random.default_rng(3).permutation(labels_of(rows, 3))
    plain = SVC(C=100.0, gamma=5.0).fit(rows, labels)
    broken = SVC(C=100.0, gamma=5.0, break_ties=True).fit(rows, labels)
    assert np.any(plain.predict(queries) != broken.predict(queries))
    for model in (plain, broken):
        np.testing.assert_array_equal(compress(model, 200).predict(queries), model.predict(queries))


# ------------------------------------------------------------------------------------------------------------ a few


@each_regressor
def test_few_vectors_predict_alike(model, rows, queries):
    model.fit(rows, values_of(rows))
    small = compress(model, 12, random_state=0)
    assert len(last_of(small).expansion_.points) <= 12
    full = model.score(queries, values_of(queries))
    assert full > 0.9
    assert small.score(queries, values_of(queries)) > full - 0.03
    assert 0 <= small.relative_distance_ < 1
    assert np.all(np.diff(small.distances_) <= 1e-9 * small.distances_[0])


@each_classifier
def test_few_vectors_decide_alike(model, rows, queries):
    n_classes = 3 if isinstance(last_of(model), SVC) else 2
    model.fit(rows, labels_of(rows, n_classes))
    small = compress(model, 15, random_state=0)
    assert len(last_of(small).expansion_.points) <= 15
    assert np.mean(small.predict(queries) == model.predict(queries)) > 0.93


@pytest.mark.parametrize(("model", "n_outputs"), [(SVC(), 6), (ExactClassifier(noise=0.1, intercept=False), 4)])
def test_all_outputs_share_the_vectors(model, n_outputs, rows, queries):
    small = compress(model.fit(rows, labels_of(rows, 4)), 15, random_state=0)
    assert small.expansion_.coefficients.shape == (15, n_outputs)
    assert np.mean(small.predict(queries) == model.predict(queries)) > 0.9


@each_detector
def test_few_vectors_detect_alike(model, rows, queries):
    small = compress(model.fit(rows), 15, random_state=0)
    assert np.mean(small.predict(queries) == model.predict(queries)) > 0.93


def test_what_is_hardly_regularised_is_compressed_on_data(rows, queries):
    # Its coefficients are large and cancel where the data are: a small distance in feature space takes many vectors.
    model = make_pipeline(features(), RidgeClassifier(alpha=1e-4)).fit(rows, labels_of(rows, 4))
    agreement = [
        np.mean(compress(model, 15, rows, metric=metric, random_state=0).predict(queries) == model.predict(queries))
        for metric in ("feature", "data")
    ]
    assert agreement[1] > max(agreement[0] + 0.1, 0.8)


def test_a_gaussian_process_classifier(rows, queries):
    model = GaussianProcessClassifier(4.0 * gp.RBF(1.0), optimizer=None).fit(rows, labels_of(rows, 2))
    small = compress(model, 10, random_state=0)
    assert np.mean(small.predict(queries) == model.predict(queries)) > 0.97
    latent = as_expansion(model).evaluate(queries)[:, 0]
    assert np.corrcoef(small.decision_function(queries), latent)[0, 1] > 0.99


def test_random_state_decides(rows):
    model = SVR().fit(rows, values_of(rows))
    first, second = (compress(model, 5, random_state=7).expansion_.points for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_tolerance_finds_the_number_of_vectors(rows, queries):
    model = make_pipeline(StandardScaler(), SVR(C=10.0)).fit(rows, values_of(rows))
    fine, coarse = (compress(model, X=queries, tol=tol, random_state=0) for tol in (0.02, 0.3))
    assert len(coarse[-1].expansion_.points) < len(fine[-1].expansion_.points) < len(model[-1].support_)
    expected = model.predict(queries)
    for small, tol in ((fine, 0.02), (coarse, 0.3)):
        assert np.sqrt(np.mean((small.predict(queries) - expected) ** 2)) < tol * np.std(expected)


def test_the_metric_on_data_gains_where_the_data_are(queries):
    # The model was trained on a wide range; only a part of it matters.
    rows = 3 * make_rows(300, 2)
    model = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", gamma=5.0, alpha=0.1)).fit(rows, values_of(rows))
    expected, inputs = model.predict(queries), make_rows(300, 4)
    errors = [
        np.mean((compress(model, 12, inputs, metric=metric, random_state=0).predict(queries) - expected) ** 2)
        for metric in ("feature", "data")
    ]
    assert errors[1] < errors[0] / 2


# ----------------------------------------------------------------------------------------------------------- pipelines


def test_a_pipeline_keeps_its_steps_as_fitted(rows, queries):
    model = Pipeline([("scale", StandardScaler()), ("bend", PowerTransformer()), ("svm", SVR())]).fit(rows, rows[:, 0])
    small = compress(model, 5, random_state=0)
    assert [name for name, _ in small.steps] == ["scale", "bend", "svm"]
    np.testing.assert_array_equal(small[:-1].transform(queries), model[:-1].transform(queries))
    assert isinstance(model["svm"], SVR)  # the model given stays as it was
    # The inputs are those of the pipeline.
    given = compress(model, 5, queries, random_state=0, metric="data")
    transformed = compress(model["svm"], 5, model[:-1].transform(queries), random_state=0, metric="data")
    np.testing.assert_array_equal(given["svm"].expansion_.points, transformed.expansion_.points)


def test_nystroem_and_what_follows_become_one_step(rows):
    steps = [("scale", StandardScaler()), ("map", features()), ("again", StandardScaler()), ("ridge", Ridge())]
    small = compress(Pipeline(steps).fit(rows, values_of(rows)), 5, random_state=0)
    assert [name for name, _ in small.steps] == ["scale", "ridge"]
    assert [name for name, _ in small["ridge"].estimator.steps] == ["map", "again", "ridge"]
    alone = compress(make_pipeline(features(), Ridge()).fit(rows, values_of(rows)), 5, random_state=0)
    assert [name for name, _ in alone.steps] == ["ridge"]


def test_a_compressed_pipeline_is_one_expansion(rows, queries):
    model = make_pipeline(StandardScaler(), SVC()).fit(10 * rows + 5, labels_of(rows, 3))
    small = compress(model, 8, random_state=0)
    inputs = 10 * queries + 5
    expected = small[-1].expansion_.evaluate(small[:-1].transform(inputs))
    np.testing.assert_allclose(small.expansion_.evaluate(inputs), expected, rtol=0, atol=1e-9)
    assert small.decision_rule_ == "pairs"
    assert small.n_features_in_ == 2
    np.testing.assert_array_equal(small.distances_, small[-1].distances_)
    again = compress(small, 4, random_state=0)
    assert len(again[-1].expansion_.points) == 4


def test_a_pipeline_that_cannot_be_folded_has_no_expansion(rows):
    model = make_pipeline(PowerTransformer(), SVR()).fit(rows, values_of(rows))
    small = compress(model, 5, random_state=0)
    assert not hasattr(small, "expansion_")
    with pytest.raises(AttributeError, match="the step 'powertransformer'"):
        _ = small.expansion_
    assert not hasattr(CompressedPipeline([*small.steps[:1], ("svr", SVR())]), "expansion_")


@pytest.mark.parametrize("sparse_threshold", [0.0, 1.0], ids=["dense", "sparse"])
def test_a_pipeline_on_a_data_frame(sparse_threshold, rows):
    frame = pd.DataFrame(
        {"size": rows[:, 0], "weight": rows[:, 1], "colour": np.where(rows[:, 0] > 0.3, "red", "blue")}
    )
    numbers, names = ("numbers", StandardScaler(), ["size", "weight"]), ("names", OneHotEncoder(), ["colour"])
    encode = ColumnTransformer([numbers, names], sparse_threshold=sparse_threshold)
    model = make_pipeline(encode, SVR()).fit(frame, values_of(rows))
    small = compress(model, 10, frame, metric="data", random_state=0)
    assert np.corrcoef(small.predict(frame), model.predict(frame))[0, 1] > 0.98
    assert list(small.feature_names_in_) == ["size", "weight", "colour"]


def test_nested_pipelines(rows, queries):
    model = make_pipeline(PowerTransformer(), make_pipeline(StandardScaler(), SVR())).fit(rows, values_of(rows))
    small = compress(model, 150)
    np.testing.assert_allclose(small.predict(queries), model.predict(queries), rtol=0, atol=1e-6)
    nested, inner = (compress(each, 5, random_state=0) for each in (model, model[-1]))
    np.testing.assert_array_equal(nested.distances_, inner.distances_)


def test_a_compressed_pipeline_can_be_cloned_and_fitted(rows, queries):
    small = compress(make_pipeline(StandardScaler(), SVR()).fit(rows, values_of(rows)), 10, random_state=0)
    refitted = clone(small).fit(rows[:100], -values_of(rows[:100]))
    assert isinstance(refitted, CompressedPipeline)
    assert len(refitted[-1].expansion_.points) == 10
    assert np.corrcoef(refitted.predict(queries), -small.predict(queries))[0, 1] > 0.9


def test_fitting_the_small_pipeline_anew_leaves_the_model_as_it_was(rows, queries):
    model = make_pipeline(StandardScaler(), SVR()).fit(rows, values_of(rows))
    expected = model.predict(queries)
    compress(model, 10, random_state=0).fit(100 * rows + 50, values_of(rows))
    np.testing.assert_array_equal(model.predict(queries), expected)


@pytest.mark.parametrize("flat", [True, False])
def test_compressed_models_can_be_compressed_again(flat, rows):
    y = values_of(rows) if flat else values_of(rows)[:, np.newaxis]
    once = compress(KernelRidge(kernel="rbf").fit(rows, y), 20, random_state=0)
    twice = compress(once, 8, random_state=0)
    assert twice.predict(rows).shape == once.predict(rows).shape == y.shape
    assert twice.score(rows, y) > 0.9


@pytest.mark.parametrize("n_classes", [2, 4])
def test_compressed_classifiers_can_be_compressed_again(n_classes, rows):
    once = compress(SVC(decision_function_shape="ovo").fit(rows, labels_of(rows, n_classes)), 20, random_state=0)
    twice = compress(once, 20)
    np.testing.assert_array_equal(twice.predict(rows), once.predict(rows))
    np.testing.assert_allclose(twice.decision_function(rows), once.decision_function(rows), rtol=0, atol=1e-9)


def test_compressed_detectors_can_be_compressed_again(rows):
    once = compress(OneClassSVM(nu=0.2).fit(rows), 20, random_state=0)
    np.testing.assert_allclose(compress(once, 20).score_samples(rows), once.score_samples(rows), rtol=0, atol=1e-9)


def test_a_frozen_model_is_the_model_inside(rows, queries):
    model = SVR().fit(rows, values_of(rows))
    small = compress(FrozenEstimator(model), 200)
    np.testing.assert_allclose(small.predict(queries), model.predict(queries), rtol=0, atol=1e-6)
    assert not hasattr(small.estimator, "support_")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_can_be_learned_for_a_small_model(n_classes, rows, queries):
    small = compress(SVC().fit(rows, labels_of(rows, n_classes)), 15, random_state=0)
    calibrated = CalibratedClassifierCV(FrozenEstimator(small)).fit(queries, labels_of(queries, n_classes))
    assert calibrated.predict_proba(rows).shape == (len(rows), n_classes)
    assert calibrated.score(rows, labels_of(rows, n_classes)) > 0.85


def test_a_search_is_compressed_by_its_best_estimator(rows, queries):
    pipeline = make_pipeline(StandardScaler(), SVR())
    search = GridSearchCV(pipeline, {"svr__C": [1.0, 10.0]}, cv=2).fit(rows, values_of(rows))
    small = compress(search, 200)
    np.testing.assert_allclose(small.predict(queries), search.predict(queries), rtol=0, atol=1e-6)
    assert search.best_params_["svr__C"] == small[-1].estimator.C
