"""Steps of a metric, from their definitions."""

import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power, sqrtm

from mercer.methods.metric import SHARE, metric_steps


def products(r=4, seed=0):
    gradients = np.random.default_rng(seed).normal(size=(30, r)) * np.arange(1, r + 1)
    return gradients.T @ gradients / 30


def test_steps_are_the_roots_of_means_of_the_products_and_the_metric_before():
    G = products()
    M = (1 - SHARE) * 4 * G / np.trace(G) + SHARE * np.eye(4)
    D = np.diag(1 / np.sqrt(np.diagonal(M)))
    expected = [sqrtm(M), fractional_matrix_power(M, 0.25), sqrtm((D @ M @ D + np.eye(4)) / 2)]
    for step, root in zip(metric_steps(G), expected, strict=True):
        np.testing.assert_allclose(step, root, atol=1e-12)


def test_diagonal_steps_turn_no_axes():
    steps = metric_steps(products(), diagonal=True)
    assert len(steps) == 2
    for step in steps:
        np.testing.assert_array_equal(step, np.diag(np.diagonal(step)))
    np.testing.assert_allclose(steps[1] @ steps[1], steps[0], atol=1e-14)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_the_size_of_gradients_does_not_matter(size):
    for step, other in zip(metric_steps(size * products()), metric_steps(products()), strict=True):
        np.testing.assert_allclose(step, other, rtol=1e-10, atol=1e-12)


def test_gradients_that_are_alike_in_all_directions_leave_the_metric_as_it_is():
    for step in metric_steps(3 * np.eye(5)):
        np.testing.assert_allclose(step, np.eye(5), atol=1e-14)


@pytest.mark.parametrize("nothing", [np.zeros((3, 3)), np.full((3, 3), np.nan), np.full((3, 3), np.inf)])
def test_a_function_that_does_not_change_proposes_nothing(nothing):
    assert metric_steps(nothing) == []
