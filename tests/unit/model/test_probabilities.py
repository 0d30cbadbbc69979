"""Probabilities from values: a sigmoid for two classes, slopes and offsets of their own for more."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, softmax

from mercer.exceptions import ArchiveError
from mercer.model import OneVsRest, Probabilities
from mercer.model import probabilities as module
from mercer.model.probabilities import smoothed_targets


def draw(n_classes, n=200, seed=0, noise=1.0):
    """Values as one against the rest would have them, and codes."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    codes[:n_classes] = np.arange(n_classes)
    columns = OneVsRest(np.arange(n_classes)).columns(codes)
    return 0.5 * columns + noise * rng.normal(size=columns.shape), codes


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_sigmoid_is_the_likeliest(n_classes, monkeypatch):
    monkeypatch.setattr(module, "_MOST", 2)  # classes that see each other's values
    values, codes = draw(n_classes)
    targets = smoothed_targets(codes, np.ones(200), n_classes)

    def objective(slope, offset):
        shares = expit(slope * (np.column_stack([-values, values]) if n_classes == 2 else values) + offset)
        return -np.sum(targets * np.log(shares / np.sum(shares, axis=1, keepdims=True)))

    found = Probabilities.fit(values, codes, np.ones(200), n_classes=n_classes)
    assert found.mixing is found.offsets is None
    bounds = [(-8, 8), (-8, 8)]  # a sigmoid far to the right is an exponential
    best = minimize(lambda p: objective(np.exp(p[0]), p[1]), [0.5, 0.5], method="Nelder-Mead", bounds=bounds)
    assert objective(found.slope, found.offset) <= best.fun + 1e-7 * abs(best.fun)


@pytest.mark.parametrize("many", [2, 20], ids=["without second derivatives", "with them"])
@pytest.mark.parametrize("n_classes", [3, 5])
def test_slopes_and_offsets_of_more_classes_are_the_likeliest_given_their_prior(n_classes, many, monkeypatch):
    """The gradient of log likelihood and log prior, by differences, is zero; the function is concave."""
    monkeypatch.setattr(module, "_MANY", many)
    values, codes = draw(n_classes, noise=0.4)
    weights = np.random.default_rng(1).uniform(0.5, 3.0, size=200)
    targets = smoothed_targets(codes, weights, n_classes)
    found = Probabilities.fit(values, codes, weights, n_classes=n_classes)

    def objective(own):
        mixing, offsets = own[: n_classes**2].reshape(n_classes, n_classes), own[n_classes**2 :]
        shares = softmax(values @ (found.slope * np.eye(n_classes) + mixing) + offsets, axis=1)
        return weights @ np.sum(targets * np.log(shares), axis=1) - np.sum(own**2) / 2

    best = np.concatenate([(found.mixing - found.slope * np.eye(n_classes)).ravel(), found.offsets])
    steps = 1e-4 * np.eye(len(best))
    gradient = [(objective(best + step) - objective(best - step)) / 2e-4 for step in steps]
    np.testing.assert_allclose(gradient, 0.0, atol=1e-4)
    shares = softmax(values @ found.mixing + found.offsets, axis=1)
    agree = np.argmax(shares, axis=1) == np.argmax(values, axis=1)
    assert 0.5 < np.mean(agree) < 1
    np.testing.assert_allclose(found.of(values)[agree], shares[agree], rtol=1e-10)


def test_a_class_between_others_is_known_by_their_values():
    """Ordered classes: no linear function of the inputs is largest in the middle, where few rows are."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=4000)
    codes = np.digitize(hidden + 0.1 * rng.normal(size=4000), [-0.3, 0.3])
    inputs = np.column_stack([np.ones(4000), hidden])
    columns = OneVsRest(np.arange(3)).columns(codes)
    values = inputs @ np.linalg.lstsq(inputs[:2000], columns[:2000], rcond=None)[0]
    table = Probabilities.fit(values[:2000], codes[:2000], np.ones(2000), n_classes=3).of(values[2000:])
    middle = codes[2000:] == 1
    assert np.mean(np.argmax(values[2000:], axis=1)[middle] == 1) < 0.05
    # It shares with the one of the largest value: more is not possible.
    assert np.mean(table[middle, 1]) > 0.4
    assert np.mean(table[~middle, 1]) < 0.15


@given(n_classes=st.integers(2, 6), seed=st.integers(0, 1000))
def test_the_most_probable_class_is_the_one_that_is_predicted(n_classes, seed):
    values, codes = draw(n_classes, n=40, seed=seed)
    outputs = OneVsRest(np.arange(n_classes))
    table = Probabilities.fit(values, codes, np.ones(40), n_classes=n_classes).of(values)
    np.testing.assert_array_equal(np.argmax(table, axis=1), outputs.predict(values))


@given(n_classes=st.integers(3, 6), seed=st.integers(0, 1000))
def test_a_class_that_must_have_the_largest_probability_costs_least_likelihood(n_classes, seed):
    """Against a general solver of that convex problem."""
    rng = np.random.default_rng(seed)
    shares, leader = rng.dirichlet(np.full(n_classes, 0.7)) + 1e-3, int(rng.integers(n_classes))
    shares /= np.sum(shares)
    found = np.exp(module._led(np.log(shares)[np.newaxis], np.array([leader])))[0]
    assert np.sum(found) == pytest.approx(1.0, abs=1e-12)
    assert np.argmax(found) == leader
    ahead = np.eye(n_classes)[leader] - np.eye(n_classes)
    best = minimize(
        lambda q: -shares @ np.log(q), np.full(n_classes, 1 / n_classes), jac=lambda q: -shares / q, method="SLSQP",
        bounds=[(1e-6, 1.0)] * n_classes, options={"ftol": 1e-12, "maxiter": 500},
        constraints=[
            {"type": "eq", "fun": lambda q: np.sum(q) - 1.0, "jac": np.ones_like},
            {"type": "ineq", "fun": lambda q: ahead @ q, "jac": lambda _: ahead},
        ],
    )  # fmt: skip
    assert -shares @ np.log(found) <= best.fun + 1e-7


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
    for mixing, offsets in [(np.eye(3), None), (np.eye(3), np.zeros(2)), (np.full((2, 2), np.nan), np.zeros(2))]:
        with pytest.raises(ArchiveError, match="probabilities"):
            Probabilities(1.0, 0.0, mixing, offsets).check_stored()
