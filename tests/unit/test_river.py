"""Models for river: probabilities, metrics, and files."""

import subprocess
import sys

import numpy as np
import pytest

river = pytest.importorskip("river")

from river import evaluate, metrics, preprocessing, stream  # noqa: E402  after the check that there is river

import mercer  # noqa: E402
from mercer import save  # noqa: E402
from mercer.exceptions import ArchiveError  # noqa: E402
from mercer.river import OnlineClassifier, OnlineRegressor  # noqa: E402
from tests.archives import loaded, put_together, saved, taken_apart  # noqa: E402


def draw(n=300, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=n), [0.0, 0.7][: n_classes - 1])
    return X, np.array(["no", "perhaps", "yes"])[y]


def taught(model, X, y):
    for x, target in stream.iter_array(X, y) if len(X) else ():
        model.learn_one(x, target)
    return model


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n", [5, 150, 300])
def test_probabilities_are_those_of_predict_proba(n, n_classes):
    X, y = draw(n, n_classes)
    model = taught(OnlineClassifier(max_basis=30), X, y)
    inside = model._model
    expected = inside.predict_proba(X[:20])
    for (x, _), row in zip(stream.iter_array(X[:20]), expected, strict=True):
        found = model.predict_proba_one(x)
        assert list(found) == inside.classes_.tolist()
        np.testing.assert_allclose(list(found.values()), row, rtol=1e-9)


def test_probabilities_follow_each_row_that_is_learned():
    X, y = draw(160)
    model = OnlineClassifier(max_basis=30)
    for i, (x, target) in enumerate(stream.iter_array(X, y)):
        if i > 20 and i % 7 < 2:
            expected = loaded(saved(model)).predict_proba_one(x)  # which was fitted to nothing before
            assert model.predict_proba_one(x) == expected
        model.learn_one(x, target)


def test_before_rows_were_predicted_there_are_values_and_before_rows_nothing():
    model = OnlineClassifier()
    assert model.predict_proba_one({"a": 1.0}) == {}
    model.learn_one({"a": 1.0}, "yes")
    assert model.predict_proba_one({"a": 1.0}) == {"yes": 1.0}
    model.learn_one({"a": -1.0}, "no")
    shares = model.predict_proba_one({"a": 1.0})
    assert set(shares) == {"no", "yes"}
    assert sum(shares.values()) == pytest.approx(1.0)


def test_metrics_of_river_take_them():
    X, y = draw(300)
    model = preprocessing.StandardScaler() | OnlineClassifier(max_basis=30)
    metric = evaluate.progressive_val_score(
        stream.iter_array(X, y == "perhaps"), model, metrics.LogLoss() + metrics.ROCAUC() + metrics.Accuracy()
    )
    loss, area, accuracy = metric.get()
    assert loss < np.log(2)
    assert area > 0.8
    assert accuracy > 0.75
    rmse = evaluate.progressive_val_score(stream.iter_array(X, X[:, 0]), OnlineRegressor(), metrics.RMSE())
    assert rmse.get() < 0.5


def test_the_spread_of_one_row_is_that_of_predict():
    X, _ = draw(150)
    model = OnlineRegressor(max_basis=30)
    assert model.predict_one({0: 1.0}, return_std=True) == (0.0, np.inf)
    taught(model, X, X[:, 0])
    means, stds = model._model.predict(X[:5], return_std=True)
    found = [model.predict_one(x, return_std=True) for x, _ in stream.iter_array(X[:5])]
    np.testing.assert_allclose(found, np.column_stack([means, stds]), rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 60, 200])
@pytest.mark.parametrize("make", [OnlineRegressor, OnlineClassifier])
def test_a_saved_model_predicts_the_same_and_goes_on_alike(make, n):
    X, y = draw(250)
    y = y if make is OnlineClassifier else X[:, 0]
    model = taught(make(max_basis=20, noise=0.3), X[:n], y[:n])
    again = loaded(saved(model))
    assert type(again) is make
    assert again._get_params() == model._get_params()
    new = list(stream.iter_array(X[n : n + 50], y[n : n + 50]))
    assert [again.predict_one(x) for x, _ in new] == [model.predict_one(x) for x, _ in new]
    for x, target in new:
        again.learn_one(x, target)
        model.learn_one(x, target)
    probe = dict(enumerate(X[0]))
    if make is OnlineRegressor:  # where arrays lie decides their last digits
        found, expected = (each.predict_one(probe, return_std=True) for each in (again, model))
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        return
    found, expected = (each.predict_proba_one(probe) for each in (again, model))
    assert list(found) == list(expected)
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=1e-9)


def test_another_process_loads_it_without_importing_river_first(tmp_path):
    X, y = draw(50)
    save(taught(OnlineClassifier(), X, y), tmp_path / "model")
    save(mercer.OnlineRegressor(), tmp_path / "other")
    code = (
        "import sys, mercer\n"
        "mercer.load('other'); print('river' in sys.modules)\n"
        "print(type(mercer.load('model')).__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "mercer.river"], done.stderr


def test_forged_ones_are_refused():
    X, _ = draw(50)
    header, members = taken_apart(saved(taught(OnlineRegressor(), X, X[:, 0])))
    attributes = header["model"]["object"][1]
    for name, value in {"noise": -1.0, "max_basis": 0, "selection": "none", "_model": "a model"}.items():
        forged = {**header, "model": {"object": ["river.OnlineRegressor", {**attributes, name: value}]}}
        with pytest.raises(ArchiveError):
            loaded(put_together(forged, members))
    other = {**header, "model": {"object": ["river.OnlineClassifier", attributes]}}
    with pytest.raises(ArchiveError):
        loaded(put_together(other, members))
    header["model"]["object"][0] = "river.Nothing"
    with pytest.raises(ArchiveError, match="Is river installed"):
        loaded(put_together(header, members))


def test_pipelines_are_not_ours_to_save():
    with pytest.raises(ArchiveError, match="cannot be saved"):
        saved(preprocessing.StandardScaler() | OnlineClassifier())
