"""iRprop⁺ against its published rules, one parameter at a time, and on functions with known minima."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

from mercer.compression.irprop import FIRST, GROW, LARGEST, LEAST, SHRINK, irprop


def by_the_book(function, gradient, start, unit, n_steps):
    """Igel and Hüsken's table, in scalar loops; the points at which the function is evaluated."""
    w, step = list(start), [FIRST * unit] * len(start)
    before, moved, error_before = [0.0] * len(w), [0.0] * len(w), np.inf
    visited = []
    for _ in range(n_steps):
        visited.append(list(w))
        error, g = function(np.array(w)), list(gradient(np.array(w)))
        for i in range(len(w)):
            if g[i] * before[i] > 0:
                step[i] = min(step[i] * GROW, LARGEST * unit)
                moved[i] = -np.sign(g[i]) * step[i]
                w[i] += moved[i]
            elif g[i] * before[i] < 0:
                step[i] = max(step[i] * SHRINK, LEAST * unit)
                moved[i] = -moved[i] if error > error_before else 0.0
                w[i] += moved[i]
                g[i] = 0.0
            else:
                moved[i] = -np.sign(g[i]) * step[i]
                w[i] += moved[i]
        before, error_before = g, error
    return np.array(visited)


@pytest.mark.parametrize("start", [(-1.2, 1.0), (0.0, 2.0), (1.3, -0.4)])
def test_steps_are_those_of_the_publication(start):
    visited = []

    def function(x):
        visited.append(x[0].copy())
        return np.array([rosen(x[0])]), rosen_der(x[0])[np.newaxis]

    irprop(function, np.array([start]), unit=2.0, max_iter=120, tol=0.0, patience=1000)
    expected = by_the_book(rosen, rosen_der, start, 2.0, 120)
    np.testing.assert_allclose(np.array(visited), expected, rtol=0, atol=1e-12)
    assert min(map(rosen, visited)) < 0.5 * rosen(np.array(start))


def test_problems_do_not_disturb_each_other_and_end_on_their_own():
    targets = np.array([[0.0, 0.0], [3.0, -1.0], [0.5, 0.5]])
    evaluated = []

    def function(x):  # the distance from the nearest target
        evaluated.append(len(x))
        nearest = np.argmin(np.sum((x[:, np.newaxis] - targets) ** 2, axis=2), axis=1)
        difference = x - targets[nearest]
        return np.sum(difference**2, axis=1) + 1.0, 2 * difference

    starts = np.array([[0.0, 0.0], [5.0, 1.5], [0.6, 0.4]])
    together = irprop(function, starts, max_iter=300, tol=1e-9)
    assert evaluated[0] == 3 > evaluated[-1] == 1  # the first starts at its minimum
    np.testing.assert_allclose(together.parameters, targets, atol=1e-3)
    for i in range(3):
        alone = irprop(function, starts[i : i + 1], max_iter=300, tol=1e-9)
        np.testing.assert_array_equal(alone.parameters[0], together.parameters[i])
    assert together.n_iter <= 300


def test_the_best_point_is_returned_and_infinities_do_no_harm():
    def function(x):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(x[:, 0] > 0, x[:, 0] - np.log(x[:, 0]), np.inf), 1 - 1 / np.where(x > 0, x, np.nan)

    found = irprop(function, np.array([[0.01], [5.0]]), max_iter=200)
    np.testing.assert_allclose(found.parameters, 1.0, atol=1e-2)
    np.testing.assert_allclose(found.errors, found.parameters[:, 0] - np.log(found.parameters[:, 0]))


def test_units_of_the_parameters_do_not_matter():
    scale = np.array([1e-3, 1.0, 1e4])

    def function(x):
        return np.array([rosen(x[0] / scale)]), (rosen_der(x[0] / scale) / scale)[np.newaxis]

    def plain(x):
        return np.array([rosen(x[0])]), rosen_der(x[0])[np.newaxis]

    start = np.array([[0.3, 1.7, 0.2]])
    scaled = irprop(function, start * scale, unit=scale, max_iter=60)
    np.testing.assert_allclose(scaled.parameters / scale, irprop(plain, start, max_iter=60).parameters, rtol=1e-9)
