"""AutoRegressor: nothing to set, and nothing that breaks it."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mercer
from mercer import AutoRegressor
from mercer.methods.budget import Budget
from mercer.methods.search import n_candidates


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
    assert len(errors) == n_candidates(400, 20)
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
    monkeypatch.setattr(Budget, "exact_rows", lambda *_: 300)
    X, y = friedman
    model = unhurried(random_state=0).fit(X[:400], y[:400])
    assert model.choice_["method"] == "NystromRegressor"
    assert model.score(X[400:], y[400:]) > 0.9


def test_too_little_time_is_enough_for_something(friedman):
    X, y = friedman
    with pytest.warns(UserWarning, match=f"was enough for 0 of {n_candidates(400, 20)} kernels"):
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


@pytest.mark.parametrize("factor", [3.0, 1e-3, 1e100])
def test_only_ratios_of_weights_matter(friedman, factor):
    X, y = friedman
    weights = np.random.default_rng(0).uniform(0.5, 4.0, size=150)
    one, other = (unhurried(random_state=0).fit(X[:150], y[:150], each) for each in (weights, factor * weights))
    np.testing.assert_allclose(other.predict(X), one.predict(X), rtol=1e-5, atol=1e-5 * np.std(y))
    np.testing.assert_allclose(other.predict_interval(X), one.predict_interval(X), rtol=1e-3, atol=1e-3 * np.std(y))


def test_rows_of_weight_zero_are_not_there(friedman):
    X, y = friedman
    weights = np.where(np.arange(300) % 2, 0.0, 1.0)
    wild = np.where(weights > 0, y[:300], 1e6)
    one = unhurried(random_state=0).fit(X[:300], wild, weights)
    other = unhurried(random_state=0).fit(X[:300:2], y[:300:2])
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-9)


def test_intervals_cover_whatever_the_weights(friedman):
    X, y = friedman
    weights = np.random.default_rng(0).uniform(0.1, 5.0, size=300)
    model = unhurried(random_state=0).fit(X[:300], y[:300], weights)
    lower, upper = model.predict_interval(X[300:], 0.9)
    assert np.mean((lower < y[300:]) & (y[300:] < upper)) > 0.8


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e10 / 3])
def test_targets_that_are_constant_to_rounding(friedman, value):
    X, y = friedman
    model = unhurried(random_state=0).fit(X[:50], np.column_stack([np.full(50, value), y[:50]]))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 0], value, rtol=1e-12)
    assert np.all(np.isfinite(std) & (std >= 0))
    assert np.all(np.isfinite(model.calibration_))


def test_rows_that_are_copies_are_warned_of(friedman):
    X, y = friedman
    with pytest.warns(UserWarning, match="50% of the rows are copies"):
        unhurried(random_state=0).fit(np.repeat(X[:40], 2, axis=0), np.repeat(y[:40], 2))


@pytest.mark.parametrize("n_rows", [20, 40])  # of ten they cover less, as docs/error_bars.md says
def test_intervals_of_few_rows_cover(n_rows):
    covered = []
    for seed in range(8):
        X, y = make_friedman1(n_rows + 200, n_features=5, noise=1.0, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Student's distribution, and of models that do not generalise
            lower, upper = unhurried(random_state=0).fit(X[:n_rows], y[:n_rows]).predict_interval(X[n_rows:], 0.9)
        covered.append(np.mean((lower < y[n_rows:]) & (y[n_rows:] < upper)))
    assert np.mean(covered) > 0.78
