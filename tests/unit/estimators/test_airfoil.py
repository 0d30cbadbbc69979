"""Airfoil, where generalised cross-validation chooses a noise of 1e-10: a choice is right, or says that it is not."""

import csv
import gzip
import warnings

import numpy as np
import pytest

from mercer import NystromRegressor
from mercer.datasets.public import find_file
from mercer.exceptions import GeneralisationWarning

FILE = "regression/airfoil.csv.gz"


@pytest.fixture(scope="module")
def airfoil():
    """Training rows and targets, test rows and targets of the first split, in units of the training set."""
    path = find_file(FILE)
    if path is None:
        pytest.skip(f"{FILE} is not on this machine")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        table = np.array(list(csv.reader(file))[1:], dtype=np.float64)
    train, values = table[:, 0] != 0, table[:, 1:]
    values = (values - values[train].mean(axis=0)) / values[train].std(axis=0)
    return values[train, :-1], values[train, -1], values[~train, :-1], values[~train, -1]


def fitted(noise, X, y):
    """A model, and whether it says that it does not generalise."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = NystromRegressor(n_basis=500, noise=noise, random_state=0).fit(X, y)
    return model, any(issubclass(each.category, GeneralisationWarning) for each in caught)


def error_of(model, X, y):
    return np.sqrt(np.mean((y - model.predict(X)) ** 2))


@pytest.mark.parametrize("noise", ["auto", "gcv", "loo"])
def test_no_choice_of_the_noise_is_wrong_in_silence(airfoil, noise):
    X, y, new, values = airfoil
    model, warned = fitted(noise, X, y)
    assert warned or error_of(model, new, values) < 1.0
    assert warned or noise == "gcv" or error_of(model, new, values) < 0.6


def test_the_default_is_right(airfoil):
    X, y, new, values = airfoil
    model, warned = fitted("auto", X, y)
    assert not warned
    mean, std = model.predict(new, return_std=True)
    assert np.sqrt(np.mean((values - mean) ** 2)) < 0.4
    assert 0.3 < np.mean((values - mean) ** 2 / (std**2 + model.noise_ * model.scale_**2)) < 2
    lower, upper = model.predict_interval(new)
    assert np.mean((lower <= values) & (values <= upper)) > 0.9


def test_an_offset_of_thirty_standard_deviations_changes_nothing(airfoil):
    X, y, new, _ = airfoil
    model, other = fitted("auto", X, y)[0], fitted("auto", X, y + 30.0)[0]
    (mean, std), (moved, same) = (each.predict(new, return_std=True) for each in (model, other))
    np.testing.assert_allclose(moved - 30.0, mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(same, std, rtol=0, atol=1e-5)


def test_a_chosen_noise_is_judged_after_partial_fit_too(airfoil):
    X, y, new, _ = airfoil
    model = NystromRegressor(n_basis=500, noise="gcv", random_state=0).partial_fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GeneralisationWarning)
        try:
            loo_error, warned = model.loo_error_, False
        except GeneralisationWarning:
            loo_error, warned = model.loo_error_, True
        model.predict(new)  # is not judged again
    assert warned or loo_error < 1.1 * np.std(y)
