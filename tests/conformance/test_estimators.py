"""Every public estimator works with frames, pipelines, searches, copies and routing."""

import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mercer
from mercer import NystromRegressor
from mercer.kernels import Gaussian, Linear, Matern, Wendland
from tests.walks import (
    COMPACT,
    ESTIMATORS,
    ONLINE,
    SUPERVISED,
    WEIGHTED,
    answers,
    each_estimator,
    each_online,
    each_supervised,
    of_kind,
    output,
    over,
    strengths,
)


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(60, 3))


def targets_for(estimator, rows):
    values = rows[:, 0] + np.sin(2 * rows[:, 1])
    return np.where(values > 0, "yes", "no") if is_classifier(estimator()) else values


def test_the_walk_over_public_names_finds_the_estimators():
    names = {cls.__name__ for cls in ESTIMATORS}
    assert names >= {"ExactRegressor", "ExactClassifier", "NystromRegressor", "NystromClassifier"}
    assert names >= {"CommitteeRegressor", "ReducedRankRegressor"}


# ---------------------------------------------------------------------------------------------- data frames


@each_estimator
def test_pandas_columns_are_remembered_and_checked(estimator, rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    y = targets_for(estimator, rows)
    model = estimator().fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(output(model, frame), output(estimator().fit(rows, y), rows))
    with pytest.raises(ValueError, match="feature names should match"):
        output(model, frame[["b", "a", "c"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        output(model, rows)


@each_estimator
def test_polars_columns_are_remembered_and_checked(estimator, rows):
    frame = pl.DataFrame({"a": rows[:, 0], "b": rows[:, 1], "c": rows[:, 2]})
    y = targets_for(estimator, rows)
    model = estimator().fit(frame, pl.Series(y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(output(model, frame), output(estimator().fit(rows, y), rows))
    with pytest.raises(ValueError, match="feature names should match"):
        output(model, frame.select("b", "a", "c"))


@each_estimator
def test_mixed_numeric_columns_of_a_frame(estimator, rows):
    frame = pd.DataFrame({"whole": np.arange(60), "single": rows[:, 1].astype(np.float32), "flag": rows[:, 2] > 0})
    y = targets_for(estimator, rows)
    expected = estimator().fit(frame.to_numpy(dtype=np.float64), y)
    actual = output(estimator().fit(frame, y), frame)
    np.testing.assert_allclose(actual, output(expected, frame.to_numpy(dtype=np.float64)), rtol=1e-12, atol=1e-12)


@over("estimator", of_kind(ESTIMATORS, "transformer"))
def test_a_loaded_transformer_makes_the_same_frames(estimator, rows, tmp_path):
    public = getattr(mercer, estimator.__name__)  # an archive holds no subclass of tests
    model = public(Gaussian(1.0)).set_output(transform="pandas").fit(rows)
    mercer.save(model, tmp_path / "model")
    pd.testing.assert_frame_equal(mercer.load(tmp_path / "model").transform(rows), model.transform(rows))


@each_online
def test_partial_fit_checks_column_names(estimator, rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    y = targets_for(estimator, rows)
    model = estimator().partial_fit(frame, y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(frame.rename(columns={"a": "z"}), y)
    if hasattr(model, "forget"):
        with pytest.raises(ValueError, match="feature names should match"):
            model.forget(frame.rename(columns={"a": "z"}), y)


# ------------------------------------------------------------------------------------------------ composition


@each_supervised
@pytest.mark.filterwarnings("ignore::mercer.exceptions.StarvedWarning")  # 0.1 is little for a kernel that is cut off
def test_grid_search_reaches_into_the_kernel(estimator, rows):
    grid = {"kernel__length_scale": [0.1, 1.0, 10.0], **strengths(estimator, [1e-2, 1.0])}
    search = GridSearchCV(estimator(kernel=Gaussian()), grid, cv=3).fit(rows, targets_for(estimator, rows))
    best = search.best_params_
    assert search.best_estimator_.kernel_.length_scale == best["kernel__length_scale"]
    assert len(np.unique(search.cv_results_["mean_test_score"])) > 1, "the grid must matter"


@over("estimator", [cls for cls in SUPERVISED if not issubclass(cls, COMPACT)])
def test_grid_search_reaches_into_a_sum_of_kernels(estimator, rows):
    grid = {"kernel__left__length_scale": [0.1, 1.0], "kernel__right__amplitude": [0.1, 1.0]}
    search = GridSearchCV(estimator(kernel=Gaussian() + Linear()), grid, cv=2)
    search.fit(rows, targets_for(estimator, rows))
    kernel = search.best_estimator_.kernel_
    assert kernel.left.length_scale == search.best_params_["kernel__left__length_scale"]
    assert kernel.right.amplitude == search.best_params_["kernel__right__amplitude"]


@each_estimator
def test_fit_does_not_touch_the_kernel_it_was_given(estimator, rows):
    kernel = Wendland("median") if issubclass(estimator, COMPACT) else Gaussian("median")
    model = estimator(kernel=kernel).fit(rows, targets_for(estimator, rows))
    assert model.kernel is kernel
    assert kernel.length_scale == "median"
    assert model.kernel_.length_scale > 0


@each_supervised
def test_pipeline_and_cross_validation(estimator, rows):
    y = targets_for(estimator, rows)
    model = make_pipeline(StandardScaler(), estimator(noise=1e-2))
    # The function is smooth and almost free of noise: a model that learns nothing scores 0 (R²) or about 0.5.
    assert np.mean(cross_val_score(model, 1000 * rows + 5, y, cv=3)) > 0.75


# Copies that other processes make are pickled ones, which are tested below for all.
@pytest.mark.parametrize(
    ("estimator", "backend"),
    [
        *(pytest.param(cls, "threading", id=f"threading-{cls.__name__}") for cls in SUPERVISED),
        pytest.param(NystromRegressor, "loky", id="loky-NystromRegressor"),
        *(
            pytest.param(cls, "loky", id=f"loky-{cls.__name__}", marks=pytest.mark.slow)
            for cls in SUPERVISED
            if cls is not NystromRegressor
        ),
    ],
)
def test_joblib_backends_give_the_same_scores(estimator, rows, backend):
    y = targets_for(estimator, rows)
    serial = cross_val_score(estimator(), rows, y, cv=2)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        parallel = cross_val_score(estimator(), rows, y, cv=2)
    np.testing.assert_allclose(parallel, serial, rtol=1e-10)


# --------------------------------------------------------------------------------------------------- copies


def through_joblib(model, folder):
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib")


@each_estimator
@pytest.mark.parametrize("predicted_before", [False, True])
@pytest.mark.parametrize("copy", [lambda model, _: pickle.loads(pickle.dumps(model)), through_joblib])
def test_stored_models_predict_the_same(estimator, rows, tmp_path, predicted_before, copy):
    model = estimator().fit(rows, targets_for(estimator, rows))
    if predicted_before:
        answers(model, rows.astype(np.float32))
    restored, expected = copy(model, tmp_path), answers(model, rows)
    for method, answer in answers(restored, rows).items():
        np.testing.assert_array_equal(answer, expected[method])


@each_online
def test_stored_models_go_on_learning(estimator, rows, tmp_path):
    y = targets_for(estimator, rows)
    model = estimator().partial_fit(rows[:30], y[:30])
    restored = through_joblib(model, tmp_path)
    expected = output(model.partial_fit(rows[30:], y[30:]), rows)
    np.testing.assert_array_equal(output(restored.partial_fit(rows[30:], y[30:]), rows), expected)


@each_estimator
def test_clone_of_a_fitted_model_is_unfitted_and_equal_in_parameters(estimator, rows):
    kernel = Wendland(9.0) if issubclass(estimator, COMPACT) else Matern(nu=2.5)
    options = {"noise": 0.3} if "noise" in estimator().get_params() else {}
    model = estimator(kernel=kernel, **options).fit(rows, targets_for(estimator, rows))
    copy = clone(model)
    assert str(copy) == str(model)
    assert not hasattr(copy, "expansion_")
    assert copy.kernel is not model.kernel


# ------------------------------------------------------------------------------------------ metadata routing


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@over("estimator", [cls for cls in WEIGHTED if cls in SUPERVISED])
@pytest.mark.usefixtures("routing")
def test_sample_weight_is_routed_through_search_and_pipeline(estimator, rows):
    y = targets_for(estimator, rows)
    weights = np.random.default_rng(1).uniform(0, 2, size=60)
    step = estimator(kernel=Gaussian()).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    grid = {f"{estimator.__name__.lower()}__{name}": values for name, values in strengths(estimator, [0.5]).items()}
    search = GridSearchCV(make_pipeline(scaler, step), grid, cv=2)
    search.fit(rows, y, sample_weight=weights)
    scaled = StandardScaler().fit_transform(rows)
    expected = estimator(kernel=Gaussian(), noise=0.5).fit(scaled, y, weights)
    np.testing.assert_allclose(output(search.best_estimator_, rows), output(expected, scaled), rtol=1e-10, atol=1e-12)


@over("estimator", [cls for cls in WEIGHTED if cls in SUPERVISED])
@pytest.mark.usefixtures("routing")
def test_sample_weight_without_a_request_is_refused(estimator, rows):
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="sample_weight"):
        cross_validate(
            estimator(), rows, targets_for(estimator, rows), params={"sample_weight": np.ones(60)}, error_score="raise"
        )


@over("estimator", [cls for cls in ONLINE if cls in WEIGHTED])
def test_partial_fit_requests_sample_weight(estimator):
    with sklearn.config_context(enable_metadata_routing=True):
        request = estimator().set_partial_fit_request(sample_weight=True).get_metadata_routing()
        assert request.partial_fit.requests["sample_weight"] is True
