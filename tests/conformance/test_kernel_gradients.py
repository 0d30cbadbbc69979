"""Gradients of every kernel that has them, against differences of its definition."""

import numpy as np
import pytest

from tests.kernel_cases import FUNCTIONS, VANISHING, Case, D, every_differentiable_kernel


@every_differentiable_kernel
def test_gradient_with_respect_to_the_points(case):
    rows, points = case.draw()
    rows = rows[2:]  # not at r = 0, where Matérn 1/2 has a kink
    weights = np.random.default_rng(1).normal(size=(len(rows), len(points)))
    gradient = case.kernel.points_gradient(rows, points, weights)
    step = 1e-5  # central differences err by step² and by eps/step
    expected = np.empty_like(points)
    for j in range(points.shape[1]):
        shift = step * np.eye(1, D, j)
        change = case.define(rows, points + shift) - case.define(rows, points - shift)
        expected[:, j] = np.sum(weights * change, axis=0) / (2 * step)
    assert gradient.shape == points.shape
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-8 * np.max(np.abs(expected)))


@every_differentiable_kernel
def test_gradient_with_respect_to_the_parameters(case):
    rows, points = case.draw()
    weights = np.random.default_rng(1).normal(size=(len(rows), len(points)))
    at = case.kernel.get_log_parameters()
    gradient = case.kernel.parameter_gradient(rows, points, weights)
    assert gradient.keys() == at.keys()
    step = 1e-5
    for name, value in at.items():
        assert gradient[name].shape == value.shape
        for index in np.ndindex(value.shape):
            shift = np.zeros_like(value)
            shift[index] = step
            up = Case(case.kernel.with_log_parameters(at | {name: value + shift})).define(rows, points)
            down = Case(case.kernel.with_log_parameters(at | {name: value - shift})).define(rows, points)
            expected = np.sum(weights * (up - down)) / (2 * step)
            scale = np.sum(np.abs(weights * up))
            assert abs(gradient[name][index] - expected) <= 1e-8 * scale, name


@every_differentiable_kernel
def test_gradients_accept_float32_and_read_only_arrays(case):
    rows, points = case.draw(dtype=np.float32)
    weights = np.ones((len(rows), len(points)))
    for array in (rows, points, weights):
        array.flags.writeable = False
    wide = rows.astype(np.float64), points.astype(np.float64), weights
    scale = np.max(case.size(*wide[:2]))  # float32 tiles may enter, so the result is that precise
    np.testing.assert_allclose(
        case.kernel.points_gradient(rows, points, weights), case.kernel.points_gradient(*wide), atol=1e-3 * scale
    )
    by_parameter = case.kernel.parameter_gradient(rows, points, weights)
    for name, expected in case.kernel.parameter_gradient(*wide).items():
        np.testing.assert_allclose(by_parameter[name], expected, atol=1e-3 * scale)


@pytest.mark.parametrize("case", [case for case in VANISHING if case.is_differentiable], ids=str)
def test_gradients_ignore_rows_at_huge_distances(case):
    rows, points = case.draw()
    weights = np.ones((len(rows), len(points)))
    far = np.vstack([rows, np.full((1, D), 1e200)])
    more = np.ones((len(far), len(points)))
    np.testing.assert_allclose(
        case.kernel.points_gradient(far, points, more), case.kernel.points_gradient(rows, points, weights), atol=1e-12
    )
    by_parameter = case.kernel.parameter_gradient(far, points, more)
    for name, expected in case.kernel.parameter_gradient(rows, points, weights).items():
        np.testing.assert_allclose(by_parameter[name], expected, atol=1e-12)


@pytest.mark.parametrize("case", [case for case in FUNCTIONS if not case.is_differentiable], ids=str)
def test_an_unknown_gradient_is_refused(case):
    rows, points = case.draw()
    weights = np.ones((len(rows), len(points)))
    with pytest.raises(NotImplementedError, match="gradient"):
        case.kernel.points_gradient(rows, points, weights)
    with pytest.raises(NotImplementedError, match="gradient"):
        case.kernel.parameter_gradient(rows, points, weights)


@every_differentiable_kernel
def test_both_gradients_together_are_the_two(case):
    rows, points = case.draw()
    weights = np.random.default_rng(1).normal(size=(len(rows), len(points)))
    by_points, by_parameters = case.kernel.gradients(rows, points, weights)
    expected = case.kernel.points_gradient(rows, points, weights)
    np.testing.assert_allclose(by_points, expected, rtol=0, atol=1e-12 * np.max(np.abs(expected)))
    separate = case.kernel.parameter_gradient(rows, points, weights)
    assert by_parameters.keys() == separate.keys()
    for name, value in separate.items():
        np.testing.assert_allclose(by_parameters[name], value, rtol=1e-12, atol=1e-12)


@every_differentiable_kernel
def test_gradient_of_the_diagonal(case):
    rows, _ = case.draw()
    weights = np.random.default_rng(1).normal(size=len(rows))
    at, step = case.kernel.get_log_parameters(), 1e-5
    gradient = case.kernel.diagonal_gradient(rows, weights)
    assert gradient.keys() == at.keys()
    scale = np.sum(np.abs(weights * case.kernel.diagonal(rows)))
    for name, value in at.items():
        assert np.shape(gradient[name]) == value.shape
        for index in np.ndindex(value.shape):
            shift = np.zeros_like(value)
            shift[index] = step
            ends = [
                case.kernel.with_log_parameters(at | {name: value + sign * shift}).diagonal(rows) for sign in (1, -1)
            ]
            expected = weights @ (ends[0] - ends[1]) / (2 * step)
            assert abs(gradient[name][index] - expected) <= 1e-8 * scale, name
