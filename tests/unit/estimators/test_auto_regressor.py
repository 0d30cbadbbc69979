"""AutoRegressor: nothing to set, and nothing that breaks it."""

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mercer
from mercer import AutoRegressor
from mercer.estimators.auto import basis_size, exact_rows
from mercer.methods.search import N_CANDIDATES


def unhurried(**options):
    """As by default, but on a machine of any speed."""
    return AutoRegressor(time_limit=1e4, **options)


@pytest.fixture(scope="module")
def friedman():
    return make_friedman1(600, noise=0.5, random_state=0)


@pytest.fixture(scope="module")
def model(friedman):
    X, y = friedman
    return unhurried(random_state=0).fit(X[:400], y[:400])


def test_it_is_better_than_boosted_trees_and_its_intervals_cover(friedman, model):
    X, y = friedman
    trees = HistGradientBoostingRegressor(random_state=0).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > trees.score(X[400:], y[400:])
    lower, upper = model.predict_interval(X[400:], 0.9)
    assert 0.82 < np.mean((lower < y[400:]) & (y[400:] < upper)) < 0.98
    assert model.calibration_ == pytest.approx(1.0, rel=1e-9)


def test_it_says_what_it_chose(model):
    assert model.choice_["method"] == "ExactRegressor"
    assert "400 rows are at most 6000" in model.choice_["reason"]
    errors = [each["error"] for each in model.choice_["tried"]]
    assert len(errors) == N_CANDIDATES
    assert errors == sorted(errors)


def test_features_that_do_not_matter_get_long_length_scales(model):
    # Five of the ten features of this set are noise; each stands twice among the columns, and in each term of a sum.
    parameters = model.choice_["kernel"].get_log_parameters()
    scales = [value for name, value in parameters.items() if name.endswith("length_scale")]
    used = np.min(np.reshape(scales, (-1, 10)), axis=0)
    assert np.max(used[:5]) < np.min(used[5:])


def test_the_same_seed_gives_the_same_model(friedman, model):
    X, y = friedman
    again = unhurried(random_state=0).fit(X[:400], y[:400])
    np.testing.assert_array_equal(again.predict(X[400:]), model.predict(X[400:]))


def test_units_do_not_matter(friedman, model):
    X, y = friedman
    scaled = unhurried(random_state=0).fit(1e3 * X[:400] - 7.0, 1e6 * y[:400] + 1e7)
    new = 1e3 * X[400:] - 7.0
    (mean, std), (expected, spread) = scaled.predict(new, return_std=True), model.predict(X[400:], return_std=True)
    np.testing.assert_allclose((mean - 1e7) / 1e6, expected, rtol=0, atol=1e-2 * np.std(y))
    np.testing.assert_allclose(std / 1e6, spread, rtol=0.05)


def test_more_rows_than_the_exact_model_takes_have_a_basis(monkeypatch, friedman):
    monkeypatch.setattr("mercer.estimators.auto.exact_rows", lambda time_limit: 300)
    X, y = friedman
    model = unhurried(random_state=0).fit(X[:400], y[:400])
    assert model.choice_["method"] == "NystromRegressor"
    assert model.score(X[400:], y[400:]) > 0.9


def test_the_model_grows_with_the_time_limit_and_shrinks_with_the_rows():
    assert exact_rows(60.0) == 6000
    assert 100 < exact_rows(0.1) < exact_rows(10.0) < 6000
    assert basis_size(10_000, 60.0) >= basis_size(1_000_000, 60.0) >= basis_size(100_000_000, 60.0) == 100
    assert basis_size(1_000_000, 1.0) < basis_size(1_000_000, 600.0)


def test_matrices_that_memory_does_not_hold_are_not_planned(monkeypatch):
    monkeypatch.setattr("mercer.estimators.auto.available_memory", lambda: 32e6)
    assert 8 * exact_rows(60.0) ** 2 <= 8e6
    assert 8 * basis_size(10_000, 60.0) ** 2 <= 8e6


def test_too_little_time_is_enough_for_something(friedman):
    X, y = friedman
    with pytest.warns(UserWarning, match=f"was enough for 1 of {N_CANDIDATES} kernels"):
        model = AutoRegressor(time_limit=1e-6, random_state=0).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.5


def test_it_is_saved_and_loaded(tmp_path, friedman, model):
    X = friedman[0]
    mercer.save(model, tmp_path / "model.mercer")
    again = mercer.load(tmp_path / "model.mercer")
    np.testing.assert_array_equal(again.predict(X, return_std=True), model.predict(X, return_std=True))
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))


def test_pipelines_and_cross_validation(friedman):
    X, y = friedman
    scores = cross_val_score(make_pipeline(StandardScaler(), unhurried(random_state=0)), X[:200], y[:200], cv=3)
    assert np.min(scores) > 0.7


ODD = {
    "three rows": lambda X, y: (X[:3], y[:3]),
    "one row": lambda X, y: (X[:1], y[:1]),
    "a constant target": lambda X, y: (X[:50], np.full(50, 3.0)),
    "constant columns": lambda X, y: (np.column_stack([X[:50], np.ones((50, 2))]), y[:50]),
    "only constant columns": lambda X, y: (np.ones((50, 2)), y[:50]),
    "duplicates": lambda X, y: (np.repeat(X[:20], 4, axis=0), np.repeat(y[:20], 4)),
    "an outlier of 1e6": lambda X, y: (np.vstack([X[:80], 1e6 * X[:1]]), np.append(y[:80], 1e6)),
    "integers": lambda X, y: ((100 * X[:80]).astype(int), y[:80].astype(int)),
    "one feature": lambda X, y: (X[:80, :1], y[:80]),
    "many features": lambda X, y: (np.random.default_rng(0).normal(size=(60, 500)), y[:60]),
    "more outputs than rows": lambda X, y: (X[:6], np.random.default_rng(0).normal(size=(6, 9))),
    "float32 in Fortran order": lambda X, y: (np.asfortranarray(X[:80], dtype=np.float32), y[:80]),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of jitter and of models that cannot generalise
@pytest.mark.parametrize("case", ODD.values(), ids=ODD)
def test_odd_data_give_finite_models(friedman, case):
    X, y = case(*friedman)
    mean, std = unhurried(random_state=0).fit(X, y).predict(X, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std) & (std >= 0))


def test_weights_count(friedman):
    X, y = friedman
    weights = np.where(np.arange(400) < 200, 1.0, 0.0)
    few = unhurried(random_state=0).fit(X[:400], y[:400], weights)
    assert few.score(X[400:], y[400:]) > 0.7
    wild = np.where(weights > 0, y[:400], 1e6)
    assert unhurried(random_state=0).fit(X[:400], wild, weights).score(X[400:], y[400:]) > 0.7
