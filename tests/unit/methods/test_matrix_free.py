"""Conjugate gradients without the matrix."""

import numpy as np
import pytest

from mercer.engine import Threads, as_rows
from mercer.kernels import Gaussian, Matern
from mercer.methods.matrix_free import solve_matrix_free


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(400, 2))
    right = np.column_stack([rng.normal(size=400), np.ones(400)])
    return rows, right, rng.uniform(0.2, 3.0, size=400)


def solve(rows, right, weights, *, kernel=None, noise=1e-2, tol=1e-10, max_iter=1000, random_state=0):
    return solve_matrix_free(
        as_rows(rows), kernel or Matern(0.5, nu=0.5), rows, right, noise=noise, weights=weights, tol=tol,
        max_iter=max_iter, random_state=random_state, executor=Threads(1),
    )  # fmt: skip


def dense(rows, weights, *, kernel=None, noise=1e-2):
    return (kernel or Matern(0.5, nu=0.5))(rows) + noise * np.diag(1 / weights)


def test_solution_equals_a_dense_solve(problem):
    rows, right, weights = problem
    result = solve(rows, right, weights)
    expected = np.linalg.solve(dense(rows, weights), right)
    assert result.converged
    # An error of at most tol times the condition number, 4e4 here, and in practice much less.
    np.testing.assert_allclose(result.value, expected, rtol=0, atol=1e-7 * np.max(np.abs(expected)))


def test_reported_residual_is_the_true_one(problem):
    rows, right, weights = problem
    result = solve(rows, right, weights, tol=1e-4)
    residuals = right - dense(rows, weights) @ result.value
    worst = np.max(np.linalg.norm(residuals, axis=0) / np.linalg.norm(right, axis=0))
    assert result.residual == pytest.approx(worst, rel=1e-6)
    assert worst <= 1e-4


def test_not_converged_is_said(problem):
    rows, right, weights = problem
    result = solve(rows, right, weights, noise=1e-6, tol=1e-12, max_iter=2)
    assert not result.converged
    assert result.iterations == 2
    assert result.residual > 1e-12


def test_the_preconditioner_saves_most_iterations(problem):
    rows, right, weights = problem
    kernel = Gaussian(0.3)
    result = solve(rows, right, weights, kernel=kernel, noise=1e-4, tol=1e-6)
    # The kernel matrix has numerical rank below the preconditioner's: a handful of steps remain of some hundreds.
    assert result.iterations <= 10


def test_rank_deficient_rows_for_the_preconditioner(problem):
    rows, right, weights = problem
    rows = np.repeat(rows[:4], 100, axis=0)
    result = solve(rows, right, weights, noise=0.1)
    expected = np.linalg.solve(dense(rows, weights, noise=0.1), right)
    assert result.converged
    np.testing.assert_allclose(result.value, expected, rtol=0, atol=1e-7 * np.max(np.abs(expected)))


def test_right_hand_sides_of_zero_have_the_solution_zero(problem):
    rows, right, weights = problem
    right = right * [0.0, 1.0]
    result = solve(rows, right, weights)
    assert result.converged
    np.testing.assert_array_equal(result.value[:, 0], 0.0)


def test_weights_over_many_orders_of_magnitude(problem):
    rows, right, _ = problem
    weights = np.logspace(-12, 0, 400)
    result = solve(rows, right, weights)
    assert result.converged
    # Solve the symmetrically scaled system: it is well conditioned where the plain one is not.
    root = np.sqrt(weights)
    scaled = root[:, np.newaxis] * Matern(0.5, nu=0.5)(rows) * root + 1e-2 * np.eye(400)
    expected = root[:, np.newaxis] * np.linalg.solve(scaled, root[:, np.newaxis] * right)
    fitted, reference = (Matern(0.5, nu=0.5)(rows) @ x for x in (result.value, expected))
    np.testing.assert_allclose(fitted, reference, rtol=0, atol=1e-6 * np.max(np.abs(reference)))
