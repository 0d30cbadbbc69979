"""Parameters by marginal likelihood: gradients by differences, values by definition, columns on their scales."""

import numpy as np
import pytest

from mercer.kernels import Gaussian, Linear, Matern
from mercer.methods.columns import Columns
from mercer.methods.likelihood import _objective, maximise_likelihood
from mercer.solvers.ridge import RidgeProblem


def draw(n=40, p=2, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 3))
    return rows, rng.normal(size=(n, p)) + rows[:, :1], rng.integers(1, 3, size=n).astype(float)


KERNELS = [Matern(np.array([1.0, 2.0, 1.5])), Gaussian(1.3), Matern(1.0, nu=2.5) + 0.5 * Linear()]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("intercept", [False, True])
def test_gradients_are_those_of_differences(kernel, intercept):
    rows, targets, weights = draw()
    values = {name: value for name, value in kernel.get_log_parameters().items() if not name.endswith("amplitude")}
    names, flat = list(values), np.concatenate([np.ravel(value) for value in values.values()] + [[np.log(0.2)]])

    def objective(point):
        parts = np.split(point[:-1], np.cumsum([np.size(value) for value in values.values()])[:-1])
        changed = {name: part.reshape(np.shape(values[name])) for name, part in zip(names, parts, strict=True)}
        moved = kernel.with_log_parameters(changed)
        return _objective(
            moved, np.exp(point[-1]), names, rows, targets, weights, n_targets=np.sum(weights), intercept=intercept
        )

    gradient = objective(flat)[1]
    for i, slope in enumerate(gradient):
        step = 1e-5 * np.eye(len(flat))[i]
        assert (objective(flat + step)[0] - objective(flat - step)[0]) / 2e-5 == pytest.approx(
            slope, rel=1e-5, abs=1e-6
        )


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("noise", [1e-3, 0.1, 10.0])
def test_the_likelihood_is_that_of_a_normal_distribution_of_contrasts(noise, intercept):
    rows, targets, _ = draw(p=1)
    matrix = Gaussian(1.0)(rows)
    path = RidgeProblem.path_of_covariance(matrix, targets, np.ones(40), n_targets=40.0, intercept=intercept)
    # With a flat prior of the constant, what is known are the contrasts: an orthonormal basis beside it.
    basis = np.linalg.svd(np.ones((1, 40)))[2][1:] if intercept else np.eye(40)
    covariance = basis @ (matrix + noise * np.eye(40)) @ basis.T
    y, n = basis @ targets[:, 0], len(basis)
    variance = y @ np.linalg.solve(covariance, y) / n
    expected = -0.5 * (n * np.log(2 * np.pi * variance) + np.linalg.slogdet(covariance)[1] + n)
    assert path.log_likelihood(noise) == pytest.approx(expected, rel=1e-9)
    found, _ = _objective(Gaussian(1.0), noise, [], rows, targets, np.ones(40), n_targets=40.0, intercept=intercept)
    constant = 0.5 * np.log(40) if intercept else 0.0  # the length of the direction that is left out
    assert -found == pytest.approx(expected - constant, rel=1e-9)


def test_the_chosen_noise_is_a_stationary_point():
    rows, targets, _ = draw(60, p=1)
    path = RidgeProblem.path_of_covariance(Matern(1.0)(rows), targets, np.ones(60), n_targets=60.0, intercept=True)
    noise = path.likeliest_noise(None)
    assert path.log_likelihood(noise) >= max(path.log_likelihood(noise * factor) for factor in (0.99, 1.01))


def test_features_that_do_not_matter_are_found():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(150, 4))
    y = (np.sin(2 * rows[:, 0]) + rows[:, 2] ** 2)[:, np.newaxis] + 0.05 * rng.normal(size=(150, 1))
    found = maximise_likelihood(Matern(np.full(4, 2.0)), rows, y, np.ones(150))
    scales = found.kernel.length_scale
    assert max(scales[0], scales[2]) < 0.1 * min(scales[1], scales[3])


def test_a_deadline_that_has_passed_leaves_the_start():
    rows, targets, weights = draw()
    kernel = Matern(np.full(3, 2.0))
    found = maximise_likelihood(kernel, rows, targets, weights, deadline=0.0)
    np.testing.assert_array_equal(found.kernel.length_scale, kernel.length_scale)


def test_columns_are_monotone_bounded_and_without_constants():
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.lognormal(size=500), np.ones(500), rng.integers(0, 2, size=500), rng.normal(size=500)])
    columns = Columns.of(table)
    assert columns.n_features == 5  # three that are not constant, and the ranks of two
    grid = np.linspace(-1e9, 1e9, 2001)
    wild = np.column_stack([grid, grid, grid, grid])
    seen = columns.transform(wild)
    assert np.all(np.diff(seen, axis=0) >= 0)
    assert np.max(np.abs(seen)) < 50
    ranks = columns.transform(table)[:, 3:]
    np.testing.assert_allclose([np.mean(ranks), np.std(ranks)], [0.0, 1.0], atol=0.02)


def test_a_prior_keeps_length_scales_together():
    rows, targets, weights = draw(60, p=1)
    start, options = Matern(np.full(3, 1.5)), {"noise": 0.2, "max_iter": 200}

    def spread_of(kernel):
        return np.std(np.log(kernel.length_scale))

    free, weak, strong = (
        maximise_likelihood(start, rows, targets, weights, spread=spread, **options) for spread in (None, 1.0, 1e-4)
    )
    assert spread_of(strong.kernel) < 1e-3 < spread_of(weak.kernel) < spread_of(free.kernel)
    common = maximise_likelihood(Matern(1.5), rows, targets, weights, **options)
    assert np.mean(strong.kernel.length_scale) == pytest.approx(common.kernel.length_scale, rel=1e-2)


def test_with_a_prior_the_gradient_vanishes_where_the_search_ends():
    rows, targets, weights = draw(60, p=1)
    spread = 0.5
    found = maximise_likelihood(Matern(np.full(3, 1.5)), rows, targets, weights, spread=spread, noise=0.2, max_iter=200)
    log_scales = np.log(found.kernel.length_scale)

    def penalised(u):
        kernel = Matern(np.exp(u))
        names, n = ["length_scale"], float(np.sum(weights))
        value, _ = _objective(kernel, found.noise, names, rows, targets, weights, n_targets=n, intercept=True)
        return value + np.sum((u - np.mean(u)) ** 2) / (2 * spread**2)

    for step in 1e-3 * np.eye(3):
        assert penalised(log_scales) <= penalised(log_scales + step)
        assert penalised(log_scales) <= penalised(log_scales - step)
