"""AutoRegressor and targets that are far from all others: the others are fitted as if these were not there."""

import warnings

import numpy as np
import pytest

import mercer
from mercer import AutoRegressor
from mercer.exceptions import OutlierWarning


@pytest.fixture(autouse=True, scope="module")
def one_kernel():
    """Which kernels are tried does not matter here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mercer.methods.search._OTHERS", {})
        yield


def unhurried():
    return AutoRegressor(time_limit=1e4, random_state=0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(480, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=480)


@pytest.fixture(scope="module")
def spoiled(data):
    X, y = data[0][:80], data[1][:80].copy()
    y[5] = 1e6
    with pytest.warns(OutlierWarning, match=r"1 of 80 targets .* \(row numbers from 0: 5\)"):
        return unhurried().fit(X, y)


def test_one_enormous_target_does_not_spoil_the_others(data, spoiled):
    X, y = data
    assert np.sqrt(np.mean((spoiled.predict(X[80:]) - y[80:]) ** 2)) < 0.3 * np.std(y)
    lower, upper = spoiled.predict_interval(X[80:], 0.9)
    assert 0.8 < np.mean((lower <= y[80:]) & (y[80:] <= upper)) < 0.98
    assert np.max(upper - lower) < 10
    assert spoiled.outlying_.tolist() == [5]
    assert spoiled.calibration_ == pytest.approx(1.0, rel=1e-9)
    assert spoiled.loo_error_ < np.std(y)


def test_it_is_the_model_without_that_row(data, spoiled):
    X, y = data
    weights = np.ones(80)
    weights[5] = 0.0
    without = unhurried().fit(X[:80], y[:80], weights)
    assert without.outlying_.tolist() == []
    np.testing.assert_allclose(spoiled.predict(X[80:]), without.predict(X[80:]), rtol=0, atol=0.1 * np.std(y))


def test_rows_of_weight_zero_are_counted_by_their_numbers(data):
    X, y = data[0][:60], data[1][:60].copy()
    y[40], weights = 1e6, np.ones(60)
    weights[:20] = 0.0
    with pytest.warns(OutlierWarning, match=r"1 of 40 targets .* \(row numbers from 0: 40\)"):
        model = unhurried().fit(X, y, weights)
    assert model.outlying_.tolist() == [40]


def test_it_moves_with_the_units_of_the_targets(data, spoiled):
    X, y = data[0][:80], data[1][:80].copy()
    y[5] = 1e6
    with pytest.warns(OutlierWarning):
        scaled = unhurried().fit(X, 2.0**-30 * y)
    new = data[0][80:]
    np.testing.assert_allclose(2.0**30 * scaled.predict(new), spoiled.predict(new), rtol=0, atol=1e-2 * np.std(data[1]))
    np.testing.assert_array_equal(scaled.outlying_, spoiled.outlying_)


def test_intervals_count_them(data):
    X, y = data[0][:200], data[1][:200].copy()
    rows = np.arange(3, 200, 25)  # 4 % of the rows
    y[rows] += 1e5 * np.random.default_rng(1).normal(size=len(rows))
    with pytest.warns(OutlierWarning):
        model = unhurried().fit(X, y)
    assert len(model.outlying_) >= 6
    narrow, wide = (np.subtract(*model.predict_interval(data[0][200:], coverage)[::-1]) for coverage in (0.9, 0.99))
    assert np.max(narrow) < 10  # nine of ten new rows are like the others
    assert np.min(wide) > 1e3  # but not 99 of 100


def test_it_is_stored(data, spoiled, tmp_path):
    mercer.save(spoiled, tmp_path / "model.mercer")
    again = mercer.load(tmp_path / "model.mercer")
    np.testing.assert_array_equal(again.outlying_, spoiled.outlying_)
    np.testing.assert_array_equal(again.predict_interval(data[0]), spoiled.predict_interval(data[0]))


LAWS = {
    "Laplace": lambda rng, f: f + rng.laplace(size=len(f)),
    "lognormal": lambda rng, f: np.exp(0.5 * f + 1.4 * rng.normal(size=len(f))),
    "counts": lambda rng, f: rng.poisson(np.exp(f)).astype(float),
    "zeros": lambda rng, f: np.where(rng.uniform(size=len(f)) < 0.9, 0.0, rng.exponential(size=len(f))),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_heavy_tails_change_nothing(data, law, monkeypatch):
    X = data[0][:60]
    y = law(np.random.default_rng(0), np.sin(2 * X[:, 0]) + X[:, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", OutlierWarning)
        model = unhurried().fit(X, y)
    monkeypatch.setattr(AutoRegressor, "_set_aside", lambda *_: np.empty(0, dtype=np.intp))
    np.testing.assert_array_equal(unhurried().fit(X, y).predict(X), model.predict(X))
