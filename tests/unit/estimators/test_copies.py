"""Weights that are whole numbers count equal rows; a model that is right about copies only says so."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from mercer import CommitteeRegressor, ExactClassifier, ExactRegressor, NystromRegressor
from mercer.exceptions import GeneralisationWarning
from mercer.kernels import Matern
from mercer.model.calibration import share_of_copies

MODELS = {
    "exact": ExactRegressor(),
    "Nyström": NystromRegressor(random_state=0),
    "classes": ExactClassifier(),
}


@pytest.fixture(scope="module")
def data():
    X, y = make_friedman1(150, n_features=5, noise=1.0, random_state=0)
    return X, y, np.random.default_rng(0).integers(1, 6, 150).astype(float)


def fit(model, X, y, weights):
    return model.fit(X, y > np.median(y) if isinstance(model, ExactClassifier) else y, weights)


@pytest.mark.parametrize("model", [MODELS["exact"], MODELS["Nyström"]], ids=["exact", "Nyström"])
def test_whole_weights_that_leave_no_noise_are_warned_of(data, model):
    with pytest.warns(GeneralisationWarning, match="divide them by the largest"):
        fit(model, *data)


def test_copies_that_hide_half_of_the_squared_error_are_warned_of():
    rows = np.random.default_rng(0).normal(size=(300, 2))
    targets = np.sin(rows[:, 0]) + 0.5 * np.random.default_rng(1).normal(size=300)
    weights = np.random.default_rng(2).integers(1, 11, 300).astype(float)
    with pytest.warns(GeneralisationWarning, match="whole numbers"):
        model = ExactRegressor(Matern(1.0), noise=0.1).fit(rows, targets, weights)
    assert 2.0 < model._calibration().copied < 4.0


@pytest.mark.parametrize("factor", [None, 0.2], ids=["none", "relative"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_no_weights_and_relative_ones_are_not(data, model, factor):
    X, y, weights = data
    with warnings.catch_warnings():
        warnings.simplefilter("error", GeneralisationWarning)
        fit(model, X, y, None if factor is None else factor * weights)


def test_whole_weights_with_a_noise_that_suits_are_not(data):
    X, y, weights = data
    with warnings.catch_warnings():
        warnings.simplefilter("error", GeneralisationWarning)
        ExactRegressor(noise=1.0).fit(X, y, weights)


@pytest.mark.parametrize(
    "model", [ExactRegressor(noise=0.01), CommitteeRegressor(noise=0.01, n_basis=40, block_size=40, random_state=0)]
)
@pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")
def test_the_ratio_is_that_of_relative_weights_of_the_same_noise(data, model):
    # Whatever weights count as, the fit is the same; of relative ones whole rows are left out.
    X, y, weights = data
    counted = model.fit(X, y, weights)._calibration()
    whole = model.set_params(noise=0.01 * 0.999).fit(X, y, 0.999 * weights)._calibration()
    expected = np.sum(whole.residuals**2) / np.sum(counted.residuals**2)
    assert counted.copied == pytest.approx(expected, rel=1e-6)
    assert whole.copied == 1.0


def test_rows_without_copies_have_none():
    residuals = np.random.default_rng(0).normal(size=(20, 2)) * [1e200, 1e-200]
    assert share_of_copies(residuals, residuals) == 1.0
    assert share_of_copies(residuals, 3.0 * residuals) == pytest.approx(9.0)
    assert share_of_copies(np.zeros((0, 1)), np.zeros((0, 1))) == 1.0
