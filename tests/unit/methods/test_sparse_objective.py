"""Marginal likelihoods of sparse Gaussian processes against dense algebra, and their gradients against differences."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn import config_context

from mercer.engine import ArrayTable, Features, Threads, as_rows
from mercer.kernels import Gaussian, Linear, Matern, Polynomial
from mercer.methods.sparse_objective import SparseObjective, _added, _BoundGradient, _GradientPass
from mercer.solvers.dense import add_gram
from tests.doubles import GuardedRows

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


# ------------------------------------------------------------------- the pass that sums gradients over the rows

M = 7
TILED = [Gaussian([1.0, 0.5, 2.0], 1.3), Matern(1.2, nu=0.5) + 0.3 * Linear(), Polynomial(2) * Gaussian(2.0)]


def features_of(kernel):
    rng = np.random.default_rng(0)
    rows, points = rng.normal(size=(300, 3)), rng.normal(size=(M, 3))
    lower = np.asfortranarray(np.linalg.cholesky(kernel(points) + 1e-6 * np.eye(M)))
    return rows, Features(kernel, points, lower=lower)


def by_kernel_values(V, first):
    return np.sin(V) + np.arange(first, first + len(V))[:, np.newaxis] / 300


@dataclass(frozen=True)
class Waves(_GradientPass):
    def pull(self, state, V, prior, tile):
        state.log_noise += float(np.sum(V))
        result = by_kernel_values(V, tile.first), np.cos(prior)
        add_gram(state.gram, V * np.abs(V[:, :1]))
        return result


@pytest.mark.parametrize("kernel", TILED, ids=str)
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_tiles_add_up_to_all_rows_at_once(kernel, n_jobs):
    rows, features = features_of(kernel)
    V, prior = features.tile(rows), kernel.diagonal(rows)
    guarded, nothing = GuardedRows(rows), np.empty((0, 0))
    with config_context(working_memory=0.02):
        sums = Threads(n_jobs).reduce(Waves(features, NOISE, nothing, nothing), ArrayTable(as_rows(guarded)))
    assert guarded.rows_read == 300  # one pass
    assert guarded.largest_read < 150
    by_kernel = by_kernel_values(V, 0)
    np.testing.assert_allclose(sums.points, kernel.points_gradient(rows, features.points, by_kernel), rtol=1e-10)
    by_parameters = kernel.parameter_gradient(rows, features.points, by_kernel)
    expected = _added(by_parameters, kernel.diagonal_gradient(rows, np.cos(prior)))
    assert sums.parameters.keys() == expected.keys() == kernel.get_log_parameters().keys()
    for name, value in expected.items():
        np.testing.assert_allclose(sums.parameters[name], value, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sums.gram, (V * V[:, :1] ** 2).T @ V, rtol=1e-10)
    assert sums.log_noise == pytest.approx(np.sum(V))


def test_the_bound_needs_no_gram_matrix():
    rows, features = features_of(Gaussian())
    zeros, targets = np.zeros((1, M)), np.zeros((300, 1))
    work = _BoundGradient(features, NOISE, zeros.T, zeros, np.zeros((M, M)))
    sums = Threads(1).reduce(work, ArrayTable(as_rows(rows), targets))
    np.testing.assert_array_equal(sums.gram, 0.0)
    np.testing.assert_array_equal(sums.points, 0.0)
    assert sums.log_noise == 0.0


def test_parameters_add_by_name():
    total = _added({"a": np.array(1.0)}, {"a": np.array(2.0), "b": np.ones(3)}, {})
    assert total["a"] == 3.0
    np.testing.assert_array_equal(total["b"], np.ones(3))
