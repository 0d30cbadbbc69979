"""The descent of all vectors together: never farther than the start, the curve, the optimisers."""

import numpy as np
import pytest

from mercer.compression.distance import DataDistance, FeatureDistance
from mercer.compression.refine import refine
from mercer.engine import Threads
from mercer.kernels import Gaussian, Linear, Matern, Polynomial
from mercer.model import KernelExpansion

OPTIMISERS = ["lbfgs", "irprop", "joint"]
KERNELS = [Gaussian(1.5), Matern(nu=0.5), Matern(nu=2.5), Polynomial(3), Linear(), Gaussian() * Linear()]


def draw(kernel, n_outputs=1, n=60, seed=0):
    rng = np.random.default_rng(seed)
    return KernelExpansion(kernel, rng.normal(size=(n, 2)), rng.normal(size=(n, n_outputs)), np.zeros(n_outputs))


def distances_of(expansion):
    inputs = np.random.default_rng(9).normal(size=(50, 2))
    options = {"offset": True, "executor": Threads(1)}
    data = DataDistance(expansion, inputs, expansion.evaluate(inputs), **options)
    return {"feature": FeatureDistance(expansion, executor=Threads(1)), "data": data}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("metric", ["feature", "data"])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_the_distance_falls_with_every_accepted_step(kernel, metric, optimiser):
    expansion = draw(kernel, 2)
    distance = distances_of(expansion)[metric]
    start = expansion.points[:5]
    found = refine(distance, start, unit=np.ones(2), optimiser=optimiser, max_iter=60, tol=1e-4)
    first = distance.solve(start).distance
    curve = np.concatenate([[first], found.distances])
    assert np.all(np.diff(curve) < 0) or len(curve) == 1
    assert found.evaluation.distance == curve[-1]
    # What is returned has that distance indeed.
    again = distance.joint(found.vectors, found.evaluation.coefficients)
    assert again.distance == pytest.approx(curve[-1], rel=1e-6, abs=1e-9 * distance.norm)
    if not isinstance(kernel, Linear):  # five vectors of two features span a linear kernel from the start
        assert curve[-1] < 0.98 * first


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_function_of_few_vectors_is_found_again(optimiser):
    few = KernelExpansion(
        Gaussian(1.0), np.array([[0.0, 0.0], [1.5, 0.5], [-1.0, 1.2]]), np.array([[1.0], [-0.7], [0.5]]), np.zeros(1)
    )
    distance = FeatureDistance(few, executor=Threads(1))
    start = few.points + 0.3 * np.random.default_rng(0).normal(size=(3, 2))
    found = refine(distance, start, unit=np.ones(2), optimiser=optimiser, max_iter=1500, tol=1e-8)
    assert found.evaluation.distance < 1e-5 * distance.start
    np.testing.assert_allclose(found.vectors, few.points, atol=0.02)


def test_eliminating_coefficients_is_no_worse_than_moving_them():
    worse = 0
    for seed in range(4):
        distance = FeatureDistance(draw(Gaussian(1.0), n=80, seed=seed), executor=Threads(1))
        start = draw(Gaussian(), seed=seed + 50).points[:8]
        ends = [
            refine(distance, start, unit=np.ones(2), optimiser=o, max_iter=100, tol=1e-6).evaluation.distance
            for o in ("lbfgs", "joint")
        ]
        worse += ends[0] > ends[1]
    assert worse <= 1


def test_vectors_that_start_at_the_same_place_do_not_crash():
    distance = FeatureDistance(draw(Gaussian(1.0)), executor=Threads(1))
    for optimiser in OPTIMISERS:
        found = refine(distance, np.zeros((4, 2)), unit=np.ones(2), optimiser=optimiser, max_iter=50, tol=1e-4)
        assert np.all(np.isfinite(found.vectors))
        assert np.all(np.isfinite(found.evaluation.coefficients))


def test_no_step_is_the_solution_for_the_start():
    distance = FeatureDistance(draw(Gaussian(1.0)), executor=Threads(1))
    start = np.eye(2)
    found = refine(distance, start, unit=np.ones(2), optimiser="lbfgs", max_iter=0, tol=1e-4)
    assert found.n_iter == len(found.distances) == 0
    assert found.evaluation.distance == distance.solve(start).distance
