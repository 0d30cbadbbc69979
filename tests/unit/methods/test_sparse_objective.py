"""Marginal likelihoods of sparse Gaussian processes against dense algebra, and their gradients against differences."""

from dataclasses import replace

import numpy as np
import pytest

from mercer.engine import ArrayTable, Threads, as_rows
from mercer.kernels import Gaussian, Linear, Matern
from mercer.methods.sparse_objective import SparseObjective

N, NOISE, STEP = 90, 0.05, 1e-5
KERNELS = [Gaussian([1.0, 0.7], 1.3), Matern(1.2, nu=2.5) + 0.3 * Linear(), Gaussian(0.8) * Matern(2.0, nu=1.5)]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=str)
each_kind = pytest.mark.parametrize("kind", ["fitc", "vfe"])
each_weighting = pytest.mark.parametrize("weighted", [False, True])


def problem(kind, weighted):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, 2))
    targets = np.column_stack([np.sin(2 * rows[:, 0]) + 0.1 * rng.normal(size=N), rows[:, 1] ** 2])
    weights = rng.uniform(0.1, 2.0, size=N) if weighted else None
    return (
        SparseObjective(ArrayTable(as_rows(rows), targets, weights), kind, Threads(1)),
        rows,
        rng.normal(size=(10, 2)),
    )


@each_kernel
@each_kind
@each_weighting
def test_the_value_is_that_of_the_dense_definition(kernel, kind, weighted):
    objective, rows, points = problem(kind, weighted)
    weights = np.ones(N) if objective.table.weights is None else objective.table.weights
    Q = kernel(rows, points) @ np.linalg.solve(kernel(points), kernel(points, rows))
    residual = kernel.diagonal(rows) - np.diagonal(Q)
    covariance = Q + np.diag(NOISE / weights + (residual if kind == "fitc" else 0.0))
    squares = np.sum(objective.table.targets * np.linalg.solve(covariance, objective.table.targets))
    expected = 0.5 * (2 * np.linalg.slogdet(covariance)[1] + squares + 2 * N * np.log(2 * np.pi))
    if kind == "vfe":  # a row of weight ω is ω rows: to what Σ ω log(λ) and Σ ω log 2π add up
        log_noise, log_pi = np.log(NOISE), np.log(2 * np.pi)
        expected += np.sum(weights * log_noise - np.log(NOISE / weights)) + (np.sum(weights) - N) * log_pi
        expected += 2 * np.sum(weights * residual) / (2 * NOISE)
    assert objective.value(kernel, points, NOISE) == pytest.approx(expected, rel=1e-8)


@each_kernel
@each_kind
@each_weighting
def test_gradients_are_those_of_central_differences(kernel, kind, weighted):
    objective, _, points = problem(kind, weighted)
    _, gradient = objective.value_and_gradient(kernel, points, NOISE)
    numeric = np.empty_like(points)
    for place in np.ndindex(points.shape):
        shift = np.zeros_like(points)
        shift[place] = STEP
        ends = [objective.value(kernel, points + sign * shift, NOISE) for sign in (1, -1)]
        numeric[place] = (ends[0] - ends[1]) / (2 * STEP)
    np.testing.assert_allclose(gradient.points, numeric, rtol=0, atol=1e-5 * np.max(np.abs(numeric)))
    parameters = kernel.get_log_parameters()
    assert set(gradient.parameters) == set(parameters)
    for name, values in parameters.items():
        for place in np.ndindex(np.shape(values)):
            ends = []
            for sign in (1, -1):
                moved = {key: np.array(value, dtype=float) for key, value in parameters.items()}
                moved[name][place] += sign * STEP
                ends.append(objective.value(kernel.with_log_parameters(moved), points, NOISE))
            numeric_value = (ends[0] - ends[1]) / (2 * STEP)
            assert np.asarray(gradient.parameters[name])[place] == pytest.approx(numeric_value, rel=1e-5, abs=1e-4)
    ends = [objective.value(kernel, points, NOISE * np.exp(sign * STEP)) for sign in (1, -1)]
    assert gradient.log_noise == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-5, abs=1e-4)


def test_a_weight_in_the_bound_counts_as_rows():
    objective, rows, points = problem("vfe", False)
    weights = np.random.default_rng(1).integers(1, 4, size=N)
    weighted = replace(objective, table=replace(objective.table, weights=weights.astype(float)))
    each = np.repeat(np.arange(N), weights)
    repeated = replace(objective, table=ArrayTable(as_rows(rows[each]), objective.table.targets[each]))
    kernel = Gaussian(0.9)
    assert weighted.value(kernel, points, NOISE) == pytest.approx(repeated.value(kernel, points, NOISE), rel=1e-10)


@each_kind
@each_weighting
def test_the_best_common_factor_of_kernel_and_noise(kind, weighted):
    objective, _, points = problem(kind, weighted)
    kernel = Gaussian(0.9)
    best, least = objective.best_factor(kernel, points, NOISE)
    assert least == pytest.approx(objective.value(best * kernel, points, best * NOISE), rel=1e-12)
    for factor in (0.9, 0.999, 1.001, 1.1):
        assert least < objective.value(factor * best * kernel, points, factor * best * NOISE)


@each_kind
def test_a_kernel_that_is_zero_leaves_noise_only(kind):
    objective, _, points = problem(kind, False)
    zeros = replace(objective, table=replace(objective.table, rows=as_rows(np.zeros((N, 2)))))
    value, gradient = zeros.value_and_gradient(Linear(), 0.0 * points, NOISE)
    squares = np.sum(objective.table.targets**2) / NOISE
    assert value == pytest.approx(0.5 * (squares + 2 * N * np.log(2 * np.pi * NOISE)), rel=1e-12)
    assert not np.any(gradient.points)


def test_the_bound_is_below_the_exact_likelihood_and_reaches_it_with_all_rows():
    objective, rows, points = problem("vfe", False)
    kernel = Matern(1.0, nu=0.5)
    covariance = kernel(rows) + NOISE * np.eye(N)
    squares = np.sum(objective.table.targets * np.linalg.solve(covariance, objective.table.targets))
    exact = 0.5 * (2 * np.linalg.slogdet(covariance)[1] + squares + 2 * N * np.log(2 * np.pi))
    assert objective.value(kernel, points, NOISE) > exact
    assert objective.value(kernel, rows, NOISE) == pytest.approx(exact, rel=1e-8)
