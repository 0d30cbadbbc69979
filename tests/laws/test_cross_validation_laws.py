"""Rows that are left out, one by one or fold by fold, are predicted as by a fit without them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercer import ExactRegressor, NystromRegressor, cross_validate_path
from mercer.kernels import Gaussian, Matern
from tests.oracles import ordinary, rest_without
from tests.strategies import booleans, noises, problems

# Bases are far from singular: what the factor of K_mm loses is the subject of test_estimator_laws.py.
ROUGH = st.sampled_from([Matern(1.0, nu=0.5), Matern(1.5, nu=0.5, amplitude=2.0)])


def whitened_rounding(problem, basis):
    """How much larger than usual the rounding of a model on this basis may be: it is divided by the least pivot."""
    lower = np.linalg.cholesky(problem.kernel(basis) + 1e-14 * np.eye(len(basis)))
    return max(1.0, 1e-4 / np.min(np.diagonal(lower)) ** 2)


@given(problems(smallest=4, kernels=ROUGH), st.lists(noises, min_size=1, max_size=3), st.data())
def test_k_fold_from_statistics_equals_refitting(problem, path, data):
    n = len(problem.rows)
    k = data.draw(st.integers(2, min(n, 6)))
    folds = np.random.default_rng(n).permutation(np.arange(n) % k)  # none is empty
    pairs = [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(k)]
    basis = np.unique(problem.basis, axis=0)
    options = {"kernel": problem.kernel, "basis": basis, "intercept": problem.intercept}
    found = cross_validate_path(
        NystromRegressor(**options), problem.rows, problem.targets,
        noises=path, cv=pairs, sample_weight=problem.weights,
    )  # fmt: skip
    weights = np.ones(n) if problem.weights is None else problem.weights
    for (train, test), errors in zip(pairs, found.errors, strict=True):
        for noise, error in zip(path, errors, strict=True):
            model = NystromRegressor(**options, noise=noise)
            model.fit(problem.rows[train], problem.targets[train], weights[train])
            residuals = (problem.targets[test] - model.predict(problem.rows[test])).reshape(len(test), -1)
            expected = np.average(residuals**2, axis=0, weights=weights[test])
            # Of a residual, refitting knows 1e-8 of the targets' size.
            size = np.max(np.abs(problem.targets))
            bound = 1e-8 * whitened_rounding(problem, basis)
            np.testing.assert_allclose(error, expected, rtol=bound, atol=bound * size * np.sqrt(np.max(expected)))


@pytest.mark.parametrize("estimator", [ExactRegressor, NystromRegressor], ids=lambda cls: cls.__name__)
@given(problems(smallest=4, kernels=st.sampled_from([Gaussian(1.0), Matern(1.0, nu=0.5)])), booleans, st.data())
def test_leave_one_out_equals_refitting(estimator, problem, whole, data):
    n = len(problem.rows)
    i = data.draw(st.integers(0, n - 1))
    rng = np.random.default_rng(n)
    weights = rng.integers(1, 4, size=n).astype(float) if whole else rng.uniform(0.1, 3.0, size=n)
    ticks = np.linspace(-2, 2, 3)
    grid = np.column_stack([np.ravel(each) for each in np.meshgrid(*[ticks] * problem.rows.shape[1])])
    options = {"kernel": problem.kernel, "noise": problem.noise, "intercept": problem.intercept}
    extra = {"basis": grid} if estimator is NystromRegressor else {}
    found = estimator(**options, **extra).fit(problem.rows, problem.targets, weights)._calibration()
    rest = rest_without(weights, i)
    model = estimator(**options, **extra).fit(problem.rows, problem.targets, rest)
    mean, std = model.predict(problem.rows[i : i + 1], return_std=True)
    size = np.max(np.abs(problem.targets))
    np.testing.assert_allclose(found.values[i], np.ravel(mean), rtol=0, atol=1e-8 * size)
    variance = np.ravel(std / model.scale_)[0] ** 2 + problem.noise / ordinary(weights)
    np.testing.assert_allclose(found.variances[i], variance, rtol=1e-8)
