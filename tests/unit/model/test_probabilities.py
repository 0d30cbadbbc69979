"""Probabilities from values: Platt's sigmoid for one class against the rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

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


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_sigmoid_is_the_likeliest(n_classes):
    values, codes = draw(n_classes)
    targets = smoothed_targets(codes, np.ones(200), n_classes)

    def objective(slope, offset):
        shares = expit(slope * (np.column_stack([-values, values]) if n_classes == 2 else values) + offset)
        return -np.sum(targets * np.log(shares / np.sum(shares, axis=1, keepdims=True)))

    found = Probabilities.fit(values, codes, np.ones(200), n_classes=n_classes)
    bounds = [(-8, 8), (-8, 8)]  # a sigmoid far to the right is an exponential
    best = minimize(lambda p: objective(np.exp(p[0]), p[1]), [0.5, 0.5], method="Nelder-Mead", bounds=bounds)
    assert objective(found.slope, found.offset) <= best.fun + 1e-7 * abs(best.fun)


@given(n_classes=st.integers(2, 6), seed=st.integers(0, 1000))
def test_the_most_probable_class_is_the_one_that_is_predicted(n_classes, seed):
    values, codes = draw(n_classes, n=40, seed=seed)
    outputs = OneVsRest(np.arange(n_classes))
    table = Probabilities.fit(values, codes, np.ones(40), n_classes=n_classes).of(values)
    np.testing.assert_array_equal(np.argmax(table, axis=1), outputs.predict(values))


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
    assert found.slope > 0


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


def test_a_class_without_rows_is_possible():
    values, codes = draw(3)
    kept = codes < 2
    assert np.all(Probabilities.fit(values[kept], codes[kept], np.ones(sum(kept)), n_classes=3).of(values) > 0)


def test_parts_that_do_not_fit_are_refused():
    for slope, offset in [(0.0, 0.0), (np.nan, 0.0), (1.0, np.inf)]:
        with pytest.raises(ArchiveError, match="sigmoid"):
            Probabilities(slope, offset).check_stored()
