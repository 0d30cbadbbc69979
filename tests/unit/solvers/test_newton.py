"""The Newton search ends at the minimum of piecewise quadratic functions, from anywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from mercer.solvers.newton import NewtonSearch


def squared_hinges(seed, n=30, q=4, cost=1.0):
    """½|x|² + cost Σ (1 - a·x)₊² with its derivatives."""
    A = np.random.default_rng(seed).normal(size=(n, q))

    def evaluate(x):
        slack = np.maximum(1 - A @ x, 0.0)
        active = A[slack > 0]
        value = 0.5 * x @ x + cost * np.sum(slack**2)
        return value, x - 2 * cost * A.T @ slack, np.eye(q) + 2 * cost * active.T @ active

    return evaluate


def searched(evaluate, start, most=60):
    search = NewtonSearch(start)
    for _ in range(most):
        search.tell(*evaluate(search.trial))
        if search.is_stuck:
            break
    return search


@given(seed=st.integers(0, 10**6), far=st.sampled_from([0.0, 1.0, 1e3]), cost=st.sampled_from([1e-3, 1.0, 1e3]))
def test_the_minimum_is_reached_from_anywhere(seed, far, cost):
    evaluate = squared_hinges(seed, cost=cost)
    search = searched(evaluate, far * np.random.default_rng(seed + 1).normal(size=4))
    value, gradient, _ = evaluate(search.point)
    reached = minimize(lambda x: evaluate(x)[:2], np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-10}).fun
    assert value <= reached * (1 + 1e-9)
    assert np.max(np.abs(gradient)) <= 1e-6 * (1 + cost)


@given(seed=st.integers(0, 10**6), cost=st.sampled_from([1.0, 1e3, 1e6]))
def test_slopes_at_other_lengths_lead_to_the_same_minimum(seed, cost):
    evaluate = squared_hinges(seed, cost=cost)
    search = NewtonSearch(np.zeros(4))
    for _ in range(60):
        points = search.point + search.lengths[:, np.newaxis] * search.direction
        slopes = [evaluate(x)[1] @ search.direction for x in points]
        search.tell(*evaluate(search.trial), slopes)
        if search.is_stuck:
            break
    value = evaluate(search.point)[0]
    assert value <= evaluate(searched(evaluate, np.zeros(4)).point)[0] * (1 + 1e-9)


def test_a_step_that_is_too_long_is_followed_by_one_of_the_right_length():
    # a slope of -1 at zero that vanishes at 0.01, and a Hessian that belongs to zero alone
    def evaluate(x):
        slope = np.where(x < 0.01, 100 * x - 1, 50 * (x - 0.01))
        return float(np.where(x < 0.01, 50 * x**2 - x, 25 * (x - 0.01) ** 2 - 0.005)[0]), slope, np.ones((1, 1))

    search = NewtonSearch(np.zeros(1))
    assert search.tell(*evaluate(search.trial))
    assert search.trial == 1.0
    assert not search.tell(*evaluate(search.trial), [float(evaluate(np.array([t]))[1][0]) for t in search.lengths])
    assert abs(search.trial[0] - 0.01) < 0.005


def test_a_quadratic_takes_one_step():
    evaluate = squared_hinges(0)
    H = evaluate(np.zeros(4))[2]
    search = NewtonSearch(np.ones(4))
    for _ in range(2):
        x = search.trial
        assert search.tell(0.5 * x @ H @ x - x.sum(), H @ x - 1, H)
    np.testing.assert_allclose(search.point, np.linalg.solve(H, np.ones(4)), rtol=1e-12)


def test_a_value_that_is_no_number_is_left():
    # a function that ends at 1
    def evaluate(x):
        with np.errstate(invalid="ignore", divide="ignore"):
            return (
                float(-np.log(1 - x[0]) - 3 * x[0]),
                np.array([1 / (1 - x[0]) - 3]),
                np.array([[1 / (1 - x[0]) ** 2]]),
            )

    search = searched(evaluate, np.array([0.0]))
    np.testing.assert_allclose(search.point, [2 / 3], rtol=1e-6)


def test_a_hessian_that_is_singular_to_rounding_still_gives_a_direction():
    search = NewtonSearch(np.zeros(2))
    assert search.tell(1.0, np.array([1.0, 1.0]), np.ones((2, 2)))
    assert np.all(np.isfinite(search.trial))
    assert search.decrement > 0


@pytest.mark.parametrize("cost", [1.0, 1e6])
def test_the_decrement_is_what_a_step_gains_where_the_piece_stays_the_same(cost):
    evaluate = squared_hinges(3, cost=cost)
    search = searched(evaluate, np.zeros(4))
    near = NewtonSearch(search.point * (1 + 1e-9))
    value = evaluate(near.trial)[0]
    near.tell(*evaluate(near.trial))
    gained = value - evaluate(near.trial)[0]
    assert abs(gained - near.decrement) <= 1e-12 * value


@pytest.mark.parametrize("factor", [1e-5, 1e5])
def test_steps_that_are_far_too_long_or_short_are_mended(factor):
    # steep on one side of the minimum, flat on the other
    def evaluate(x):
        slack = max(1 - x[0], 0.0)
        return 1e3 * slack**2 + 1e-2 * x[0], np.array([-2e3 * slack + 1e-2]), np.array([[2e3 * factor]])

    search = NewtonSearch(np.zeros(1))
    for _ in range(200):
        search.tell(*evaluate(search.trial))
    assert evaluate(search.point)[0] - (1e-2 - 2.5e-8) < 1e-7
