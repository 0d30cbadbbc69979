"""Laws of reduced sets, whatever the expansion: distances fall, units and order do not matter, all points are exact."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mercer.compression.reduced_set import reduce_expansion
from mercer.kernels import Gaussian, Linear, Matern, Polynomial
from mercer.model import KernelExpansion
from tests.strategies import examples, seeds

KERNELS = [
    Gaussian(1.0),
    Gaussian(0.3, amplitude=5.0),
    Matern(1.0, nu=0.5),
    Matern(2.0, nu=2.5),
    Linear(),
    Polynomial(2),
    Gaussian() + Linear(0.5),
    Gaussian(2.0) * Polynomial(2),
]


@st.composite
def expansions(draw, least=1):
    """Few points, some of them equal, some without coefficients, of one or several outputs."""
    rng = np.random.default_rng(draw(seeds))
    n, d, p = draw(st.integers(least, 25)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    points = rng.normal(size=(n, d))[rng.integers(0, n, size=n)] if draw(st.booleans()) else rng.normal(size=(n, d))
    coefficients = rng.normal(size=(n, p)) * 10.0 ** rng.integers(-3, 4, size=p)
    coefficients[rng.random(n) < 0.2] = 0.0
    return KernelExpansion(draw(st.sampled_from(KERNELS)), points, coefficients, rng.normal(size=p))


def close(a, b, size, tolerance):
    assert np.max(np.abs(a - b)) <= tolerance * size, np.max(np.abs(a - b)) / size


def size_of(expansion, rows):
    return max(float(np.max(np.abs(expansion.evaluate(rows)))), 1e-300)


@settings(max_examples=examples(40))
@given(expansions(), st.integers(1, 8), st.sampled_from(["lbfgs", "irprop", "joint"]), seeds)
def test_distances_never_grow_and_refinement_is_no_step_back(expansion, n_vectors, optimiser, seed):
    options = {"random_state": seed % 1000, "max_iter": 15, "optimiser": optimiser}
    built, moved = (reduce_expansion(expansion, n_vectors, refine=r, **options) for r in (False, True))
    for found in (built, moved):
        assert np.all(np.diff(found.distances) <= 0)
        assert np.all(np.isfinite(found.expansion.coefficients))
        assert len(found.expansion.points) <= n_vectors
    assert moved.distances[-1] <= built.distances[-1]
    assert 0 <= moved.relative_distance <= built.relative_distance + 1e-9


@settings(max_examples=examples(40))
@given(expansions(), st.integers(0, 5))
def test_as_many_vectors_as_points_are_the_expansion(expansion, more):
    rows = np.random.default_rng(0).normal(size=(20, expansion.points.shape[1]))
    found = reduce_expansion(expansion, len(expansion.points) + more)
    close(found.expansion.evaluate(rows), expansion.evaluate(rows), size_of(expansion, rows), 1e-9)


@settings(max_examples=examples(25))
@given(expansions(least=6), st.sampled_from([1e-6, 3.0, 1e5]), seeds)
def test_units_of_the_outputs_do_not_matter(expansion, factor, seed):
    scaled = replace(expansion, coefficients=expansion.coefficients * factor, intercept=expansion.intercept * factor)
    options = {"random_state": seed % 1000, "refine": False}
    a, b = (reduce_expansion(e, 3, **options) for e in (expansion, scaled))
    if len(a.expansion.points) < 3:  # nothing is left but rounding, which may differ
        return
    np.testing.assert_allclose(a.expansion.points, b.expansion.points, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(a.distances * factor**2, b.distances, rtol=1e-6, atol=1e-9 * b.distances[0])


@settings(max_examples=examples(25))
@given(expansions(least=4), seeds)
def test_the_offset_leaves_no_mean_difference(expansion, seed):
    inputs = np.random.default_rng(seed).normal(size=(15, expansion.points.shape[1]))
    found = reduce_expansion(expansion, 2, inputs=inputs, random_state=0, max_iter=5).expansion
    if len(found.points) < 2:  # the expansion itself
        return
    left = np.mean(expansion.evaluate(inputs) - found.evaluate(inputs), axis=0)
    close(left, 0.0, size_of(expansion, inputs), 1e-8)
