import re

import numpy as np
import pytest

from mercer.solvers.conjugate_gradient import conjugate_gradient


def identity(vectors):
    return vectors.copy()


def system(n=40, p=3, condition=1e3, seed=0):
    rng = np.random.default_rng(seed)
    vectors, _ = np.linalg.qr(rng.normal(size=(n, n)))
    matrix = (vectors * np.geomspace(1.0, condition, n)) @ vectors.T
    return (matrix + matrix.T) / 2, rng.normal(size=(n, p))


def relative_residual(matrix, right, value):
    return np.max(np.linalg.norm(right - matrix @ value, axis=0) / np.linalg.norm(right, axis=0))


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-10])
def test_it_solves_to_the_tolerance(p, tol):
    matrix, right = system(p=p)
    solution = conjugate_gradient(lambda v: matrix @ v, right, precondition=identity, tol=tol, max_iter=500)
    assert solution.converged
    assert relative_residual(matrix, right, solution.value) <= tol
    assert solution.residual == pytest.approx(relative_residual(matrix, right, solution.value), rel=1e-3)


def test_the_solution_is_that_of_dense_algebra():
    matrix, right = system()
    solution = conjugate_gradient(lambda v: matrix @ v, right, precondition=identity, tol=1e-12, max_iter=500)
    np.testing.assert_allclose(solution.value, np.linalg.solve(matrix, right), rtol=0, atol=1e-9)


def test_the_arguments_are_not_changed():
    matrix, right = system()
    before = right.copy()
    conjugate_gradient(lambda v: matrix @ v, right, precondition=identity, tol=1e-6, max_iter=500)
    np.testing.assert_array_equal(right, before)


def test_columns_are_independent_systems():
    matrix, right = system()
    right[:, 1] *= 1e8
    right[:, 2] *= 1e-8
    run = lambda b: conjugate_gradient(lambda v: matrix @ v, b, precondition=identity, tol=1e-10, max_iter=500).value  # noqa: E731
    together = run(right)
    for j in range(3):
        alone = run(right[:, [j]])
        scale = np.linalg.norm(alone)
        np.testing.assert_allclose(together[:, [j]], alone, rtol=0, atol=1e-6 * scale)


def test_a_zero_right_hand_side_has_the_solution_zero():
    matrix, right = system()
    solution = conjugate_gradient(lambda v: matrix @ v, 0 * right, precondition=identity, tol=1e-10, max_iter=500)
    assert solution.converged
    assert solution.iterations == 0
    assert solution.residual == 0.0
    np.testing.assert_array_equal(solution.value, 0.0)


def test_a_zero_column_among_others_stays_zero():
    matrix, right = system()
    right[:, 1] = 0.0
    solution = conjugate_gradient(lambda v: matrix @ v, right, precondition=identity, tol=1e-10, max_iter=500)
    assert solution.converged
    np.testing.assert_array_equal(solution.value[:, 1], 0.0)
    np.testing.assert_allclose(matrix @ solution.value, right, atol=1e-8)


def test_a_column_that_is_done_no_longer_moves():
    """One column is an eigenvector, solved in one step, and waits for the others."""
    matrix = np.diag(np.geomspace(1.0, 1e3, 40))
    right = np.column_stack([np.eye(40)[3], np.ones(40)])
    solution = conjugate_gradient(lambda v: matrix @ v, right, precondition=identity, tol=1e-10, max_iter=500)
    assert solution.converged
    assert solution.iterations > 5
    np.testing.assert_allclose(solution.value[:, 0], np.eye(40)[3] / matrix[3, 3], rtol=1e-12, atol=1e-16)


def test_no_right_hand_sides():
    matrix, right = system()
    solution = conjugate_gradient(lambda v: matrix @ v, right[:, :0], precondition=identity, tol=1e-6, max_iter=10)
    assert solution.converged
    assert solution.value.shape == (40, 0)


def test_a_diagonal_preconditioner_saves_iterations_and_keeps_the_solution():
    n = 60
    scale = np.geomspace(1.0, 1e4, n)
    mild, right = system(n=n, condition=10)
    matrix = np.sqrt(np.outer(scale, scale)) * mild
    diagonal = np.diagonal(matrix)[:, np.newaxis]
    plain = conjugate_gradient(lambda v: matrix @ v, right, precondition=identity, tol=1e-8, max_iter=5000)
    better = conjugate_gradient(
        lambda v: matrix @ v, right, precondition=lambda v: v / diagonal, tol=1e-8, max_iter=5000
    )
    assert better.converged
    assert better.iterations < plain.iterations / 2
    assert relative_residual(matrix, right, better.value) <= 1e-8


def test_the_exact_inverse_as_preconditioner_needs_one_iteration():
    matrix, right = system()
    inverse = np.linalg.inv(matrix)
    solution = conjugate_gradient(
        lambda v: matrix @ v, right, precondition=lambda v: inverse @ v, tol=1e-8, max_iter=500
    )
    assert solution.converged
    assert solution.iterations == 1


@pytest.mark.parametrize("max_iter", [0, 1, 5])
def test_too_few_iterations_are_reported(max_iter):
    matrix, right = system()
    solution = conjugate_gradient(lambda v: matrix @ v, right, precondition=identity, tol=1e-10, max_iter=max_iter)
    assert not solution.converged
    assert solution.iterations == max_iter
    assert solution.residual == pytest.approx(relative_residual(matrix, right, solution.value), rel=1e-9)
    assert solution.residual > 1e-10


def test_a_tolerance_below_rounding_is_reported_and_ends():
    matrix, right = system()
    solution = conjugate_gradient(lambda v: matrix @ v, right, precondition=identity, tol=1e-30, max_iter=300)
    assert not solution.converged
    assert solution.iterations <= 300
    assert relative_residual(matrix, right, solution.value) <= 1e-12


@pytest.mark.parametrize("matrix", [-np.eye(5), np.zeros((5, 5)), np.diag([1.0, 1.0, 1.0, 1.0, -3.0])])
def test_an_indefinite_operator_is_reported_and_ends(matrix):
    solution = conjugate_gradient(lambda v: matrix @ v, np.ones((5, 1)), precondition=identity, tol=1e-8, max_iter=100)
    assert not solution.converged
    assert np.all(np.isfinite(solution.value))
    assert solution.residual > 1e-8


def test_an_operator_that_overflows_is_reported_and_ends():
    solution = conjugate_gradient(
        lambda v: np.full_like(v, np.nan), np.ones((5, 1)), precondition=identity, tol=1e-8, max_iter=100
    )
    assert not solution.converged


def test_the_reported_residual_is_the_true_one_not_that_of_the_recurrence():
    """An operator with an error that the recurrence does not see: the truth is looked at, and no lie is told."""
    matrix, right = system(n=20, p=1)
    calls = 0

    def apply(vectors):
        nonlocal calls
        calls += 1
        return matrix @ vectors * (1.05 if calls % 2 else 1.0)

    solution = conjugate_gradient(apply, right, precondition=identity, tol=1e-8, max_iter=12)
    assert not solution.converged
    assert solution.residual > 1e-3


def test_every_iteration_is_printed(capsys):
    matrix, right = system()
    solution = conjugate_gradient(lambda v: matrix @ v, right, precondition=identity, tol=1e-8, max_iter=500, verbose=1)
    pattern = r"mercer: conjugate gradients: iteration (\d+), residual (.*)"
    seen = [re.fullmatch(pattern, line).groups() for line in capsys.readouterr().err.splitlines()]
    assert [int(iteration) for iteration, _ in seen] == list(range(solution.iterations + 1))
    assert seen[0][1] == "1.0e+00"
    assert float(seen[-1][1]) <= 1e-8
