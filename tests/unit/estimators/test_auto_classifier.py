"""AutoClassifier: nothing to set, and nothing that breaks it."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mercer
from mercer import AutoClassifier
from mercer.methods.budget import Budget


def unhurried(**options):
    """As by default, but on a machine of any speed."""
    return AutoClassifier(time_limit=1e4, **options)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], np.array(["barolo", "grignolino", "barbera"])[y[order]]


@pytest.fixture(scope="module")
def model(wine):
    X, y = wine
    return unhurried(random_state=0).fit(X[:120], y[:120])


def test_classes_and_probabilities_are_good(wine, model):
    X, y = wine
    assert model.score(X[120:], y[120:]) > 0.94
    assert log_loss(y[120:], model.predict_proba(X[120:])) < 0.2
    np.testing.assert_array_equal(model.classes_, np.unique(y))


def test_two_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = X[:, 0] ** 2 + X[:, 1] > 1
    model = unhurried(random_state=0).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.95
    assert model.decision_function(X[300:]).shape == (100,)
    assert model.predict_proba(X[300:]).shape == (100, 2)


def test_it_says_what_it_chose(model):
    assert model.choice_["method"] == "ExactClassifier"
    assert model.choice_["noise"] == model.noise_ > 0


def test_more_rows_than_the_exact_model_takes_have_a_basis(monkeypatch, wine):
    monkeypatch.setattr(Budget, "exact_rows", lambda *_: 100)
    X, y = wine
    model = unhurried(random_state=0).fit(X[:120], y[:120])
    assert model.choice_["method"] == "NystromClassifier"
    assert model.score(X[120:], y[120:]) > 0.9


def test_class_weights_are_weights_of_rows(wine):
    X, y = wine
    weight = {"barolo": 2.0, "grignolino": 1.0, "barbera": 1.0}
    by_class = unhurried(random_state=0, class_weight=weight).fit(X, y)
    by_row = unhurried(random_state=0).fit(X, y, np.where(y == "barolo", 2.0, 1.0))
    np.testing.assert_array_equal(by_class.decision_function(X), by_row.decision_function(X))


@pytest.mark.parametrize("gone", ["barolo", "barbera"])
def test_a_class_without_weight_is_known_and_not_predicted(wine, gone):
    X, y = wine[0][:45], wine[1][:45]
    by_class = unhurried(random_state=0, class_weight={gone: 0.0}).fit(X, y)
    by_row = unhurried(random_state=0).fit(X, y, (y != gone).astype(float))
    for model in (by_class, by_row):
        assert model.classes_.tolist() == model.model_.classes_.tolist() == ["barbera", "barolo", "grignolino"]
        assert gone not in model.predict(X)
        assert np.mean(model.predict(X) == y, where=y != gone) > 0.9
        assert model.predict_proba(X).shape == (45, 3)


def test_it_is_saved_and_loaded(tmp_path, wine, model):
    X = wine[0]
    mercer.save(model, tmp_path / "model.mercer")
    again = mercer.load(tmp_path / "model.mercer")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_pipelines_and_cross_validation(wine):
    X, y = wine
    scores = cross_val_score(make_pipeline(StandardScaler(), unhurried(random_state=0)), X, y, cv=3)
    assert np.min(scores) > 0.9


ODD = {
    "three rows": lambda X, y: (X[:3], np.array([0, 1, 1])),
    "a class of one row": lambda X, y: (X[:40], np.append(np.repeat([0, 1, 2], 13), 3)),
    "as many classes as rows": lambda X, y: (X[:9], np.arange(9)),
    "duplicates of different classes": lambda X, y: (np.repeat(X[:20], 2, axis=0), np.tile([0, 1], 20)),
    "only constant columns": lambda X, y: (np.ones((30, 2)), np.arange(30) % 2),
    "many features": lambda X, y: (np.random.default_rng(0).normal(size=(60, 300)), np.arange(60) % 3),
    "booleans": lambda X, y: (X[:40] > np.median(X, axis=0), y[:40] == "barolo"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of jitter and of models that cannot generalise
@pytest.mark.parametrize("case", ODD.values(), ids=ODD)
def test_odd_data_give_probabilities(wine, case):
    X, y = case(*wine)
    model = unhurried(random_state=0).fit(X, y)
    assert set(model.predict(X)) <= set(y)
    table = model.predict_proba(X)
    assert table.shape == (len(X), len(np.unique(y)))
    np.testing.assert_allclose(np.sum(table, axis=1), 1.0, rtol=1e-12)
