"""Stochastic gradient descent, against the recursion written down one row at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercer.engine import GradientLearner, Units
from mercer.kernels import Gaussian, Linear
from mercer.solvers.stochastic import LOSSES, SCHEDULES, Loss, Steps

N, D = 150, 2
KERNEL = Gaussian(1.5)
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(N, D))
TARGETS = {"hinge": np.sign(ROWS[:, 0]), "log_loss": np.sign(ROWS[:, 0])}
SHAPES = {"huber": 0.3, "epsilon_insensitive": 0.1, "quantile": 0.8, "hinge": 1.0}
each_loss = pytest.mark.parametrize("name", LOSSES)
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def targets_of(name):
    return TARGETS.get(name, np.sin(2 * ROWS[:, 0]) + 0.3 * ROWS[:, 1])


def steps(schedule="constant", rate=0.3, weight=0.02, *, intercept=False, budget=1000, truncation=0.0):
    return Steps(SCHEDULES[schedule], rate, weight, intercept, budget, truncation)


def make(name="squared_error", nu=None, **options):
    return GradientLearner(
        KERNEL, Loss.named(name, SHAPES.get(name, 0.0), nu), steps(**options), Units.none(1), n_features=D
    )


def norma(X, y, loss, *, rate, weight, schedule="constant", budget=1000):
    """f ← (1 - ηλ)f - ηℓ'(f(x), y)k(x, ·), the oldest term dropped; returns predictions, terms, and their mean."""
    points, c, mean, found = np.empty((0, X.shape[1])), np.empty(0), np.empty(0), []
    for t in range(len(X)):
        eta = {"constant": rate, "inverse_sqrt": rate / np.sqrt(t + 1), "inverse": rate / (1 + weight * rate * t)}[
            schedule
        ]
        found.append(float(KERNEL(points, X[t : t + 1])[:, 0] @ c) if t else 0.0)
        c, points = np.append((1 - eta * weight) * c, -eta * loss.slopes(found[t], y[t])), np.vstack([points, X[t]])
        mean = np.append(mean, 0.0)
        mean += (c - mean) / (1 + min(t, budget) / 10)
        points, c, mean = points[c != 0][-budget:], c[c != 0][-budget:], mean[c != 0][-budget:]
    return np.array(found), points, c, mean


@each_loss
@each_schedule
@pytest.mark.parametrize("budget", [1000, 20, 1])
def test_step_by_step_it_is_the_recursion(name, schedule, budget):
    y, learner = targets_of(name), make(name, schedule=schedule, budget=budget)
    if name == "novelty":  # a threshold that stays
        learner.loss = learner.loss._replace(shape=0.7)
        learner.constants[1] = 0.7
    found, points, c, mean = norma(ROWS, y, learner.loss, rate=0.3, weight=0.02, schedule=schedule, budget=budget)
    recorded = learner.learn(ROWS, y[:, np.newaxis], record=True)
    np.testing.assert_allclose(recorded[:, 0, 0], learner.loss.values(found, y), atol=1e-12)
    np.testing.assert_array_equal(learner.points, points)
    np.testing.assert_allclose(learner.coefficients[:, 0], c, atol=1e-12)
    np.testing.assert_allclose(learner.means[:, 0], mean, atol=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
def test_residuals_are_those_of_the_mean_and_without_it_of_the_last_model(intercept):
    """Predicted before a row is learned, from the models that are left when the rows before it were."""
    y = targets_of("squared_error")[:, np.newaxis]
    mean, last, single = make(intercept=intercept), make(intercept=intercept), make(intercept=intercept)
    last.steps = last.steps._replace(average=False)
    mean.learn(ROWS, y)
    last.learn(ROWS, y)
    models = np.zeros((2, N))
    for t in range(N):
        k = KERNEL(single.points, ROWS[t : t + 1])[:, 0]
        models[:, t] = (
            single.means[:, 0] @ k + single.intercept[0],
            single.coefficients[:, 0] @ k + single.constants[0, 0],
        )
        single.learn(ROWS[t : t + 1], y[t : t + 1])
    for learner, predicted in zip((mean, last), models, strict=True):
        kept = np.argsort(learner.track.targets[:, 0])
        order = np.argsort(y[:, 0])
        np.testing.assert_allclose(learner.track.residuals[kept, 0], (y[:, 0] - predicted)[order], atol=1e-12)
    np.testing.assert_allclose(last.means, last.coefficients, atol=1e-15)


def test_a_hidden_output_decides_nothing_about_the_terms():
    y, ones = np.sign(ROWS[:, :1]), np.ones((N, 1))
    alone = make("hinge", budget=20, intercept=True)
    beside = GradientLearner(KERNEL, alone.loss, alone.steps, Units.none(2), n_features=D, hidden=1)
    alone.learn(ROWS, y)
    beside.learn(ROWS, np.column_stack([y, ones]))
    np.testing.assert_array_equal(beside.births, alone.births)
    np.testing.assert_allclose(beside.coefficients[:, :1], alone.coefficients, atol=1e-14)


@each_loss
@given(cuts=st.lists(st.integers(1, N - 1), max_size=8))
def test_batches_do_not_matter(name, cuts):
    nu = 0.2 if name in ("epsilon_insensitive", "hinge", "novelty") else None
    y, weights = targets_of(name)[:, np.newaxis], np.linspace(0.1, 3.0, N)
    options = {"intercept": True, "budget": 30, "truncation": 0.01, "schedule": "inverse_sqrt"}
    whole, parts = make(name, nu, **options), make(name, nu, **options)
    whole.learn(ROWS, y, weights)
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), N], strict=True):
        parts.learn(ROWS[start:stop], y[start:stop], weights[start:stop])
    np.testing.assert_array_equal(parts.births, whole.births)
    np.testing.assert_allclose(parts.coefficients, whole.coefficients, atol=1e-11)
    np.testing.assert_allclose(parts.means, whole.means, atol=1e-11)
    np.testing.assert_allclose(parts.track.residuals, whole.track.residuals, atol=1e-11)
    np.testing.assert_allclose(parts.constants, whole.constants, atol=1e-11)


@pytest.mark.parametrize("budget", [1000, 25])
@pytest.mark.parametrize("piece", [1, 40, N])
def test_recorded_norms_are_those_of_the_function(budget, piece):
    learner, y = make(budget=budget), targets_of("squared_error")[:, np.newaxis]
    for start in range(0, N, piece):
        before = learner.coefficients[:, 0] @ KERNEL(learner.points) @ learner.coefficients[:, 0] if start else 0.0
        recorded = learner.learn(ROWS[start : start + piece], y[start : start + piece], record=True)
        assert recorded[0, 1, 0] == pytest.approx(before, abs=1e-11)
    after = learner.coefficients[:, 0] @ KERNEL(learner.points) @ learner.coefficients[:, 0]
    assert learner.squares[0] == pytest.approx(after, abs=1e-11)


@each_loss
def test_slopes_are_derivatives_of_the_loss(name):
    loss, f, y, h = Loss.named(name, SHAPES.get(name, 0.0)), np.linspace(-2, 2, 41) + 0.013, targets_of(name)[:41], 1e-6
    numbers = (loss.values(f + h, y) - loss.values(f - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.slopes(f, y), numbers, atol=1e-8)
    if loss.steepest is not None:
        assert np.all(np.abs(numbers) <= loss.steepest + 1e-8)


def test_what_was_dropped_is_bounded_by_what_is_said():
    """With slopes that do not depend on the model, dropped terms are all that two models differ by."""
    y = np.full((N, 1), 1e6)  # f never comes near: the slope of the tube is -1
    whole, small = make("epsilon_insensitive"), make("epsilon_insensitive", budget=40)
    for learner in (whole, small):
        learner.learn(ROWS, y)
    difference = whole.coefficients[:, 0].copy()
    difference[-40:] -= small.coefficients[:, 0]
    norm = np.sqrt(difference @ KERNEL(ROWS) @ difference)
    assert 0 < norm <= small.constants[2, 0] * (1 + 1e-12)
    assert small.constants[3, 0] == pytest.approx(np.sum(np.abs(whole.coefficients)))
    truncated = make("epsilon_insensitive", truncation=0.2)
    truncated.learn(ROWS, y)
    assert 0.15 < truncated.dropped_share <= 0.2
    assert len(truncated.points) < N


@pytest.mark.parametrize("name", ["epsilon_insensitive", "hinge", "novelty"])
def test_a_share_nu_of_the_rows_is_beyond_the_threshold(name):
    """ρ or ε moves by η(1 - ν) or ην: as it stays bounded, the shares are ν to |threshold|/(ηn)."""
    rows, nu, rate = np.random.default_rng(1).normal(size=(4000, D)), 0.3, 0.3
    y = np.sign(rows[:, :1]) if name == "hinge" else np.random.default_rng(2).normal(size=(4000, 1))
    learner = GradientLearner(KERNEL, Loss.named(name, 0.0, nu), steps(budget=100), Units.none(1), n_features=D)
    grown = 0
    for start in range(0, len(rows), 50):  # fewer than the budget: births tell how many have joined
        learner.learn(rows[start : start + 50], y[start : start + 50])
        grown += int(np.sum(learner.births >= start))
    clipped = 0.05 if name != "novelty" else 0.0  # thresholds that would be negative are zero
    assert abs(grown / len(rows) - nu) < clipped + (abs(learner.constants[1, 0]) + 1.0) / (rate * len(rows))


def test_rows_of_weight_two_take_steps_of_twice_the_length_but_not_beyond_the_target():
    heavy, light = make(rate=0.3), make(rate=0.3)
    heavy.learn(ROWS[:1], np.ones((1, 1)), np.array([2.0]))
    light.learn(ROWS[:1], np.ones((1, 1)))
    np.testing.assert_allclose(heavy.coefficients, 2 * light.coefficients)
    huge = make(rate=0.3)
    huge.learn(ROWS[:1], np.ones((1, 1)), np.array([1e9]))
    np.testing.assert_allclose(huge.coefficients, [[1.0]])


def test_a_rate_that_diverges_is_said():
    learner = make(rate=30.0, weight=0.001)
    with pytest.raises(ValueError, match="diverges with learning_rate=30: lower it"):
        learner.learn(np.zeros((2000, D)), np.ones((2000, 1)))


def test_automatic_rates_follow_the_largest_kernel_value():
    learner = GradientLearner(
        Linear(), Loss.named("squared_error"), Steps(0, 0.0, 0.0, True, 50, 0.0), Units.none(1), n_features=D
    )
    learner.learn(ROWS, ROWS[:, :1])
    largest = np.max(np.sum(ROWS**2, axis=1))
    assert learner.rate == pytest.approx(0.5 / (largest + 1.0))
    assert learner.regularization == pytest.approx(1.0 / (51 * learner.rate))
    assert learner.longest <= 0.5 + 1 / 51 + 1e-12


@given(st.floats(1e-300, 1e150), st.floats(-1e150, 1e150))
def test_units_of_any_size(spread, shift):
    targets = shift + spread * np.array([[-1.0], [0.0], [1.0]])
    units = Units.of(targets, None, centred=True)
    assert np.all(np.isfinite((targets - units.shift) / units.unit))
    assert units.unit[0] > 0


def test_robust_units_are_median_and_median_distance():
    y = np.array([[1.0], [2.0], [3.0], [4.0], [1e9]])
    units = Units.of(y, None, centred=True, robust=True)
    assert (units.shift[0], units.unit[0]) == (3.0, pytest.approx(1.4826))
    weighted = Units.of(y, np.array([9.0, 1.0, 1.0, 1.0, 1.0]), centred=True, robust=True)
    assert weighted.shift[0] == 1.0
    equal = Units.of(np.array([[1.0], [1.0], [1.0], [5.0]]), None, centred=True, robust=True)
    assert (equal.shift[0], equal.unit[0]) == (1.0, pytest.approx(2.0))
