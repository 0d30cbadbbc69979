"""Probabilities from values: Platt's sigmoid, its extension to more classes, and what neither may do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.calibration import _sigmoid_calibration

from mercer.exceptions import ArchiveError
from mercer.model import OneVsRest, Probabilities
from mercer.model.probabilities import smoothed_targets


def draw(n_classes, n=200, seed=0, noise=1.0):
    """Values as one against the rest would have them, and codes."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    codes[:n_classes] = np.arange(n_classes)
    columns = OneVsRest(np.arange(n_classes)).columns(codes)
    return 0.5 * columns + noise * rng.normal(size=columns.shape), codes


def test_two_classes_are_platts_sigmoid():
    values, codes = draw(2)
    slope, offset = _sigmoid_calibration(values[:, 0], codes)
    found = Probabilities.fit(values, codes, np.ones(200), n_classes=2)
    np.testing.assert_allclose([found.slopes[0, 0], found.offsets[0]], [-slope, -offset], rtol=1e-5)
    expected = 1 / (1 + np.exp(slope * values[:, 0] + offset))
    np.testing.assert_allclose(found.of(values), np.column_stack([1 - expected, expected]), atol=1e-6)


@pytest.mark.parametrize("n_classes", [3, 5])
def test_more_classes_are_the_penalised_minimum(n_classes):
    values, codes = draw(n_classes)
    targets, k, off = smoothed_targets(codes, np.ones(200), n_classes), n_classes, 1 - np.eye(n_classes)

    def objective(theta):
        A = theta[:-k].reshape(k, k)
        return -np.sum(targets * log_softmax(values @ A.T + theta[-k:], axis=1)) + 0.5 * np.sum((off * A) ** 2)

    bounds = [(0.0, None) if i < k * k and i % (k + 1) == 0 else (None, None) for i in range(k * k + k)]
    best = minimize(objective, np.zeros(k * k + k), bounds=bounds, method="L-BFGS-B", options={"maxfun": 10**6})
    found = Probabilities.fit(values, codes, np.ones(200), n_classes=k)
    np.testing.assert_allclose(found.slopes, best.x[:-k].reshape(k, k), atol=2e-3)
    assert objective(np.concatenate([found.slopes.ravel(), found.offsets])) <= best.fun + 1e-9 * abs(best.fun)


def test_many_classes_have_a_diagonal():
    values, codes = draw(21)
    slopes = Probabilities.fit(values, codes, np.ones(200), n_classes=21).slopes
    np.testing.assert_array_equal(slopes, np.diag(np.diagonal(slopes)))


def test_targets_of_two_classes_are_platts():
    table = smoothed_targets(np.array([0, 1, 1]), np.ones(3), 2)
    np.testing.assert_allclose(table, [[2 / 3, 1 / 3], [1 / 4, 3 / 4], [1 / 4, 3 / 4]])


@given(n_classes=st.integers(2, 6), seed=st.integers(0, 1000), noise=st.sampled_from([1e-8, 0.1, 1.0, 100.0]))
def test_probabilities_are_such(n_classes, seed, noise):
    values, codes = draw(n_classes, n=12, seed=seed, noise=noise)
    found = Probabilities.fit(values, codes, np.ones(12), n_classes=n_classes)
    table = found.of(values)
    assert table.shape == (12, n_classes)
    assert np.all(table >= 0)
    np.testing.assert_allclose(np.sum(table, axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(found.logarithms(values)), table)
    assert np.all(np.diagonal(found.slopes) >= 0)


@given(n_classes=st.integers(2, 4), seed=st.integers(0, 1000))
def test_weight_2_is_the_row_twice(n_classes, seed):
    values, codes = draw(n_classes, n=30, seed=seed)
    times = np.random.default_rng(seed).integers(1, 4, size=30)
    weighed = Probabilities.fit(values, codes, times.astype(float), n_classes=n_classes)
    again = np.repeat(np.arange(30), times)
    repeated = Probabilities.fit(values[again], codes[again], np.ones(len(again)), n_classes=n_classes)
    np.testing.assert_allclose(weighed.of(values), repeated.of(values), atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_values_that_speak_against_their_class_are_not_turned_round(n_classes):
    """The mean of all other rows is lower in the class of the row that is left out: that says nothing of new rows."""
    codes = np.arange(60) % n_classes
    columns = OneVsRest(np.arange(n_classes)).columns(codes)
    found = Probabilities.fit(-columns / 59, codes, np.ones(60), n_classes=n_classes)
    np.testing.assert_allclose(found.of(-columns / 59), 1 / n_classes, atol=0.05)


def test_a_class_without_rows_is_possible_but_unlikely():
    values, codes = draw(3)
    kept = codes < 2
    table = Probabilities.fit(values[kept], codes[kept], np.ones(sum(kept)), n_classes=3).of(values)
    assert np.all(table > 0)
    assert np.mean(table[:, 2]) < 0.02


@pytest.mark.parametrize("values", [np.zeros((6, 1)), np.full((6, 3), 2.0)], ids=["two", "three"])
def test_constant_values_give_the_frequencies(values):
    k = max(2, values.shape[1])
    codes = np.array([0, 1, 1, 1, 1, 2]) % k
    expected = np.mean(smoothed_targets(codes, np.ones(6), k), axis=0)
    found = Probabilities.fit(values, codes, np.ones(6), n_classes=k)
    np.testing.assert_allclose(found.of(values)[0], expected, atol=1e-6)


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(ArchiveError, match="slopes of probabilities"):
        Probabilities(np.zeros((2, 3)), np.zeros(2)).check_stored()
    with pytest.raises(ArchiveError, match="NaN"):
        Probabilities(np.zeros((1, 1)), np.array([np.nan])).check_stored()
