"""The mean of ∇f∇fᵀ, by which a metric is learned, is that of finite differences of the function."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from mercer import NystromRegressor
from mercer.kernels import Gaussian, Matern, Metric
from tests.strategies import booleans, problems

SMOOTH = st.sampled_from([Gaussian(1.0), Gaussian(0.7, amplitude=2.0), Matern(1.5, nu=1.5), Matern(2.0, nu=2.5)])
STEP = 1e-5  # differences are then known to about 1e-10 (STEP²) and 1e-11 (eps/STEP)


@given(problems(smallest=3, kernels=SMOOTH), booleans)
def test_gradient_products_are_those_of_finite_differences(problem, mapped):
    d = problem.rows.shape[1]
    kernel = problem.kernel
    if mapped:
        B = np.eye(d) + 0.3 * np.random.default_rng(d).normal(size=(d, d))
        kernel = clone(kernel).set_params(length_scale=Metric(B))
    model = NystromRegressor(kernel, basis=problem.basis, noise=problem.noise, intercept=problem.intercept)
    f = model.fit(problem.rows, problem.targets).expansion_
    ahead, behind = (
        np.stack([f.evaluate(problem.rows + sign * STEP * axis) for axis in np.eye(d)], axis=1) for sign in (1, -1)
    )
    slopes = (ahead - behind) / (2 * STEP)  # (n, d, p)
    weights = np.ones(len(problem.rows)) if problem.weights is None else problem.weights
    expected = np.einsum("n,ndp,nep->de", weights, slopes, slopes) / np.sum(weights)
    found = f.gradient_product(problem.rows, problem.weights)
    # Differences are off by about STEP² and eps/STEP of the sizes of the sections that they add.
    size = np.sum(np.abs(f.coefficients)) * np.max(kernel.diagonal(problem.rows)) * np.max(np.abs(slopes))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * max(size, 1e-8))
