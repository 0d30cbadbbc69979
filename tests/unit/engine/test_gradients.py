"""Gradients summed over tiles against sums over all rows at once."""

import numpy as np
import pytest
from sklearn import config_context

from mercer.engine import Features, Pull, Threads, Tile, add_parameters, as_table, feature_gradient
from mercer.kernels import Gaussian, Linear, Matern, Polynomial
from tests.doubles import GuardedRows

N, M = 300, 7
KERNELS = [Gaussian([1.0, 0.5, 2.0], 1.3), Matern(1.2, nu=0.5) + 0.3 * Linear(), Polynomial(2) * Gaussian(2.0)]


def problem(kernel, seed=0):
    rng = np.random.default_rng(seed)
    rows, points = rng.normal(size=(N, 3)), rng.normal(size=(M, 3))
    lower = np.asfortranarray(np.linalg.cholesky(kernel(points) + 1e-6 * np.eye(M)))
    return rows, Features(kernel, points, lower=lower)


def pullback(features, prior, tile):
    by_kernel = np.sin(features) + np.arange(tile.first, tile.first + tile.n_rows)[:, np.newaxis] / N
    return Pull(by_kernel, np.cos(prior), features[:, 0] ** 2, extra=float(np.sum(features)))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_tiles_add_up_to_all_rows_at_once(kernel, n_jobs):
    rows, features = problem(kernel)
    V, prior = features.tile(rows), kernel.diagonal(rows)
    pull = pullback(V, prior, Tile(rows, np.empty((N, 0))))
    guarded = GuardedRows(rows)
    with config_context(working_memory=0.02):
        sums = feature_gradient(as_table(guarded), features, pullback, executor=Threads(n_jobs))
    assert guarded.rows_read == N  # one pass
    assert guarded.largest_read < N / 2
    np.testing.assert_allclose(sums.points, kernel.points_gradient(rows, features.points, pull.by_kernel), rtol=1e-10)
    by_parameters = kernel.parameter_gradient(rows, features.points, pull.by_kernel)
    expected = add_parameters(by_parameters, kernel.diagonal_gradient(rows, pull.by_prior))
    assert sums.parameters.keys() == expected.keys() == kernel.get_log_parameters().keys()
    for name, value in expected.items():
        np.testing.assert_allclose(sums.parameters[name], value, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sums.gram, (V * pull.gram_weights[:, np.newaxis]).T @ V, rtol=1e-10)
    assert sums.extra == pytest.approx(np.sum(V))


def test_without_weights_the_gram_matrix_is_not_summed():
    rows, features = problem(Gaussian())
    sums = feature_gradient(
        as_table(rows), features, lambda V, prior, _tile: Pull(0.0 * V, 0.0 * prior), executor=Threads(1)
    )
    for array in (sums.gram, sums.points, *sums.parameters.values()):
        np.testing.assert_array_equal(array, 0.0)


def test_parameters_add_by_name():
    total = add_parameters({"a": np.array(1.0)}, {"a": np.array(2.0), "b": np.ones(3)}, {})
    assert total["a"] == 3.0
    np.testing.assert_array_equal(total["b"], np.ones(3))
