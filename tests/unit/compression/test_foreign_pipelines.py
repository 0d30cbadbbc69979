"""Pipelines as expansions of the rows as they are given: scalers before a kernel machine, linear models on Nystroem."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDOneClassSVM,
    SGDRegressor,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, PowerTransformer, RobustScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, OneClassSVM

from mercer import ExactRegressor
from mercer.compression import as_expansion
from mercer.compression.foreign import affine_map, read_model

TOLERANCE = 1e-8
SCALERS = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    StandardScaler(with_std=False),
    MinMaxScaler(),
    MinMaxScaler((-3, 1)),
    MaxAbsScaler(),
    RobustScaler(),
    RobustScaler(with_centering=False, unit_variance=True),
    RobustScaler(with_scaling=False),
]
each_scaler = pytest.mark.parametrize("scaler", SCALERS, ids=str)


def make_rows(n_rows, seed):
    return np.random.default_rng(seed).normal(size=(n_rows, 3)) * [1.0, 20.0, 0.05] + [0.0, 100.0, -1.0]


@pytest.fixture(scope="module")
def rows():
    return make_rows(100, 0)


@pytest.fixture(scope="module")
def queries():
    return make_rows(30, 1)


def values_of(rows):
    return np.sin(rows[:, 0]) + 0.01 * rows[:, 1] + 10 * rows[:, 2]


def labels_of(rows, n_classes):
    return np.digitize(values_of(rows), np.quantile(values_of(rows), np.arange(1, n_classes) / n_classes))


def assert_same(actual, expected):
    expected = np.asarray(expected).reshape(len(actual), -1)
    scale = max(1.0, np.max(np.abs(expected)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE * scale)


# ------------------------------------------------------------------------------------------------------------ scalers


@each_scaler
def test_a_scaler_is_an_affine_map(scaler, rows, queries):
    factor, shift = affine_map(scaler.fit(rows))
    np.testing.assert_allclose(queries * factor + shift, scaler.transform(queries), rtol=1e-12, atol=1e-12)


@each_scaler
@pytest.mark.parametrize(
    "model",
    [
        SVR(),
        SVR(kernel="linear"),
        KernelRidge(kernel="rbf"),
        GaussianProcessRegressor(2.0 * gp.RBF() * gp.Matern([1.0, 2.0, 3.0]) + 1.0, alpha=0.1, optimizer=None),
        ExactRegressor("matern", noise=0.1, intercept=False),
    ],
    ids=str,
)
def test_scalers_are_folded_into_regressors(scaler, model, rows, queries):
    # A linear machine on rows that are not scaled would walk for minutes.
    first = StandardScaler() if getattr(model, "kernel", None) == "linear" else MaxAbsScaler()
    pipeline = make_pipeline(first, scaler, model).fit(rows, values_of(rows))
    assert_same(as_expansion(pipeline).evaluate(queries), pipeline.predict(queries))


@each_scaler
@pytest.mark.parametrize("n_classes", [2, 4])
def test_scalers_are_folded_into_classifiers(scaler, n_classes, rows, queries):
    model = SVC(decision_function_shape="ovo")
    pipeline = make_pipeline(scaler, model).fit(rows, labels_of(rows, n_classes))
    reading = read_model(pipeline)
    assert_same(reading.expansion.evaluate(queries), pipeline.decision_function(queries))
    np.testing.assert_array_equal(reading.outputs.classes, np.arange(n_classes))


@each_scaler
def test_scalers_are_folded_into_outlier_detectors(scaler, rows, queries):
    pipeline = make_pipeline(scaler, OneClassSVM(nu=0.2)).fit(rows)
    assert_same(as_expansion(pipeline).evaluate(queries), pipeline.decision_function(queries))


@given(
    scale=st.lists(st.floats(1e-4, 1e4), min_size=3, max_size=3),
    shift=st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3),
)
def test_a_folded_scaler_undoes_any_units(scale, shift):
    rows, queries = (table - [0.0, 100.0, -1.0] for table in (make_rows(40, 0), make_rows(10, 1)))
    rows, queries = ((table / [1.0, 20.0, 0.05]) * scale + shift for table in (rows, queries))
    pipeline = make_pipeline(StandardScaler(), SVR()).fit(rows, np.sin(np.arange(40.0)))
    # Units of 1e-4 at 1e4 leave eight digits of the rows.
    actual = as_expansion(pipeline).evaluate(queries)[:, 0]
    np.testing.assert_allclose(actual, pipeline.predict(queries), rtol=0, atol=1e-6)


def test_error_bars_of_our_own_models_are_folded_too(rows, queries):
    pipeline = make_pipeline(StandardScaler(), ExactRegressor(noise=0.1, intercept=False)).fit(rows, values_of(rows))
    _, std = pipeline.predict(queries, return_std=True)
    expansion = as_expansion(pipeline)
    np.testing.assert_allclose(expansion.scales * np.sqrt(expansion.variances(queries)), std, rtol=1e-8)


def test_polynomials_take_scalers_that_do_not_shift(rows, queries):
    model = SVR(kernel="poly", degree=2, coef0=1.0)
    pipeline = make_pipeline(MaxAbsScaler(), model).fit(rows, values_of(rows))
    assert_same(as_expansion(pipeline).evaluate(queries), pipeline.predict(queries))
    shifted = make_pipeline(StandardScaler(), model).fit(rows, values_of(rows))
    with pytest.raises(ValueError, match=r"the step 'standardscaler' cannot be folded into the kernel Polynomial"):
        as_expansion(shifted)


def test_sums_with_a_linear_kernel_do_not_take_scalers(rows):
    model = GaussianProcessRegressor(gp.RBF() + gp.DotProduct(), alpha=0.1, optimizer=None)
    pipeline = make_pipeline(StandardScaler(), model).fit(rows, values_of(rows))
    with pytest.raises(ValueError, match="only into stationary kernels"):
        as_expansion(pipeline)


def test_nested_pipelines_and_steps_that_do_nothing(rows, queries):
    inner = Pipeline([("nothing", "passthrough"), ("scale", MinMaxScaler()), ("svr", SVR())])
    pipeline = make_pipeline(StandardScaler(), None, inner).fit(rows, values_of(rows))
    assert_same(as_expansion(pipeline).evaluate(queries), pipeline.predict(queries))


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (PCA(2), "pca"),
        (PowerTransformer(standardize=False), "powertransformer"),
        (MinMaxScaler(clip=True), "minmaxscaler"),
    ],
)
def test_other_steps_are_refused_and_named(step, name, rows):
    pipeline = make_pipeline(step, StandardScaler(), SVR()).fit(rows - rows.min(axis=0), values_of(rows))
    with pytest.raises(ValueError, match=rf"the step '{name}', .*, is not a scaler .* as_expansion\(pipeline\[-1:\]\)"):
        as_expansion(pipeline)


def test_a_pipeline_that_is_not_fitted_is_refused():
    with pytest.raises(NotFittedError):
        as_expansion(make_pipeline(StandardScaler(), SVR()))


# ----------------------------------------------------------------------------------------------------------- Nystroem

REGRESSORS = [Ridge(), LinearRegression(), LinearSVR(), SGDRegressor(random_state=0), Ridge(fit_intercept=False)]
CLASSIFIERS = [
    LogisticRegression(),
    RidgeClassifier(),
    LinearSVC(),
    SGDClassifier(random_state=0),
    SGDClassifier("log_loss", random_state=0),
]
FEATURES = [
    {},
    {"kernel": "rbf", "gamma": 0.2},
    {"kernel": "poly", "degree": 2, "coef0": 0.5, "gamma": 0.1},
    {"kernel": "polynomial"},
    {"kernel": "linear", "n_components": 3},
    {"kernel": "laplacian"},
]


def fitted(pipeline, rows, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return pipeline.fit(rows, y)


def features(**options):
    return Nystroem(**({"n_components": 20, "random_state": 0} | options))


@pytest.mark.parametrize("options", FEATURES, ids=str)
@pytest.mark.parametrize("model", REGRESSORS, ids=str)
def test_linear_regressors_on_nystroem(model, options, rows, queries):
    pipeline = fitted(make_pipeline(StandardScaler(), features(**options), model), rows, values_of(rows))
    assert_same(as_expansion(pipeline[1:]).evaluate(pipeline[0].transform(queries)), pipeline.predict(queries))
    if not options or options["kernel"] == "rbf":
        assert_same(as_expansion(pipeline).evaluate(queries), pipeline.predict(queries))


@pytest.mark.parametrize("options", FEATURES, ids=str)
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=str)
def test_linear_classifiers_on_nystroem(model, n_classes, options, rows, queries):
    rows, queries = (StandardScaler().fit(rows).transform(table) for table in (rows, queries))
    pipeline = fitted(make_pipeline(features(**options), model), rows, labels_of(rows, n_classes))
    reading = read_model(pipeline)
    assert reading.outputs.rule == ("threshold" if n_classes == 2 else "largest")
    assert_same(reading.expansion.evaluate(queries), pipeline.decision_function(queries))


def test_several_outputs_on_nystroem(rows, queries):
    y = np.stack([values_of(rows), rows[:, 0]], axis=1)
    pipeline = make_pipeline(StandardScaler(), features(), Ridge()).fit(rows, y)
    assert_same(as_expansion(pipeline).evaluate(queries), pipeline.predict(queries))
    assert not read_model(pipeline).outputs.flat


@each_scaler
def test_features_of_nystroem_may_be_scaled(scaler, rows, queries):
    pipeline = make_pipeline(StandardScaler(), features(), scaler, None, MinMaxScaler(), Ridge())
    pipeline.fit(rows, values_of(rows))
    assert_same(as_expansion(pipeline).evaluate(queries), pipeline.predict(queries))


def test_outlier_detectors_on_nystroem(rows, queries):
    pipeline = make_pipeline(StandardScaler(), features(), SGDOneClassSVM(random_state=0)).fit(rows)
    reading = read_model(pipeline)
    assert_same(reading.expansion.evaluate(queries), pipeline.decision_function(queries))
    assert_same(reading.expansion.evaluate(queries) + reading.outputs.offset, pipeline.score_samples(queries))


def test_coefficients_that_were_made_sparse(rows, queries):
    pipeline = make_pipeline(StandardScaler(), features(), SGDClassifier(penalty="l1", random_state=0))
    pipeline.fit(rows, labels_of(rows, 3))
    pipeline[-1].sparsify()
    assert_same(as_expansion(pipeline).evaluate(queries), pipeline.decision_function(queries))


def test_a_kernel_object_in_nystroem(rows, queries):
    pipeline = make_pipeline(StandardScaler(), features(kernel=gp.Matern(2.0)), Ridge()).fit(rows, values_of(rows))
    assert_same(as_expansion(pipeline).evaluate(queries), pipeline.predict(queries))


@pytest.mark.parametrize("n_labels", [2, 3])
def test_several_labels_per_row_are_refused(n_labels, rows):
    labels = rows[:, :n_labels] > np.median(rows[:, :n_labels], axis=0)
    pipeline = make_pipeline(StandardScaler(), features(), RidgeClassifier()).fit(rows, labels)
    with pytest.raises(ValueError, match="RidgeClassifier decides on several labels at once"):
        as_expansion(pipeline)


def test_sigmoids_in_nystroem_are_refused(rows):
    pipeline = make_pipeline(StandardScaler(), features(kernel="sigmoid"), Ridge()).fit(rows, values_of(rows))
    with pytest.raises(ValueError, match="Nystroem has kernel='sigmoid'"):
        as_expansion(pipeline)


@pytest.mark.parametrize("steps", [(RBFSampler(random_state=0),), (StandardScaler(),), (features(), PCA(3))], ids=str)
def test_linear_models_on_other_features_are_refused(steps, rows):
    pipeline = make_pipeline(*steps, Ridge()).fit(rows, values_of(rows))
    with pytest.raises(ValueError, match="features that are not those of Nystroem"):
        as_expansion(pipeline)


def test_models_with_a_link_function_are_refused(rows):
    pipeline = make_pipeline(StandardScaler(), features(), PoissonRegressor()).fit(rows, np.exp(values_of(rows) / 4))
    with pytest.raises(TypeError, match="a PoissonRegressor is not a kernel expansion"):
        as_expansion(pipeline)
