"""The construction: sampling, the growing factor, the search for one vector, the choice of starts."""

import numpy as np
import pytest
from scipy.stats import chisquare

from mercer.compression.construct import _Builder, construct, universal_sampling
from mercer.compression.distance import FeatureDistance
from mercer.engine import Threads
from mercer.kernels import Gaussian, Linear, Matern, Polynomial
from mercer.model import KernelExpansion

OPTIONS = {"unit": np.ones(3), "n_starts": 3, "max_iter": 60}


def draw(kernel=None, n_outputs=1, n=60, seed=0):
    rng = np.random.default_rng(seed)
    points, coefficients = rng.normal(size=(n, 3)), rng.normal(size=(n, n_outputs))
    return KernelExpansion(kernel or Gaussian(1.5), points, coefficients, np.zeros(n_outputs))


def distance_of(expansion):
    return FeatureDistance(expansion, executor=Threads(1))


def rng(seed=0):
    return np.random.RandomState(seed)


# ------------------------------------------------------------------------------------------------ sampling


def test_universal_sampling_draws_each_index_as_often_as_expected_to_one():
    sizes = np.random.default_rng(0).exponential(size=50)
    sizes[[3, 49]] = 0.0
    expected = 200 * sizes / sizes.sum()
    for seed in range(30):
        counts = np.bincount(universal_sampling(sizes, 200, rng(seed)), minlength=50)
        assert np.all(np.abs(counts - expected) < 1)
        assert counts.sum() == 200
        assert counts[3] == counts[49] == 0


def test_universal_sampling_is_proportional_over_many_spins():
    sizes = np.array([0.2, 1.0, 3.0, 0.8])
    counts = sum(np.bincount(universal_sampling(sizes, 2, rng(seed)), minlength=4) for seed in range(2000))
    assert chisquare(counts, 4000 * sizes / sizes.sum()).pvalue > 1e-3
    order = [tuple(universal_sampling(np.ones(4), 4, rng(seed))) for seed in range(50)]
    assert len(set(order)) > 10  # the order is random


# ------------------------------------------------------------------------------------------------ growing factor


def test_coefficients_are_the_best_for_all_vectors_and_dependent_vectors_are_refused():
    expansion = draw(n_outputs=2)
    distance, vectors = distance_of(expansion), np.random.default_rng(1).normal(size=(6, 3))
    builder = _Builder(distance, 8)
    for i in range(6):
        assert builder.add(vectors[i : i + 1])
        assert not builder.add(vectors[: i + 1])  # those before again
        assert not builder.add(vectors[:1] + 1e-9)
        known = vectors[: i + 1]
        K, c = expansion.kernel(known), distance.products.values(known)
        np.testing.assert_allclose(builder.coefficients, np.linalg.solve(K, c), rtol=1e-8)
        assert builder.curve[-1] == pytest.approx(distance.start - distance.norm * np.sum(builder.coefficients * c))
    np.testing.assert_array_equal(builder.vectors[:6], vectors)
    assert builder.size == 6


# ------------------------------------------------------------------------------------------------ one vector


@pytest.mark.parametrize("kernel", [Gaussian(1.5), Matern(nu=2.5), Polynomial(2), Linear(), Gaussian() + Linear()])
@pytest.mark.parametrize("n_outputs", [1, 2, 5])
def test_the_search_minimises_what_one_vector_leaves(kernel, n_outputs):
    distance = distance_of(draw(kernel, n_outputs))
    builder = _Builder(distance, 5)
    builder.add(np.array([[0.5, -0.2, 0.1]]))
    builder.add(np.array([[-1.0, 0.3, 0.4]]))
    z = np.random.default_rng(1).normal(size=(4, 3))
    values, gradients = builder.search(z)
    known = builder.vectors[:2]
    residual = distance.products.values(z) - kernel(z, known) @ builder.coefficients
    np.testing.assert_allclose(values, -np.sum(residual**2, axis=1) / kernel.diagonal(z), rtol=1e-9)
    for i in range(3):
        step = np.eye(3)[i] * 1e-6
        slopes = (builder.search(z + step)[0] - builder.search(z - step)[0]) / 2e-6
        np.testing.assert_allclose(gradients[:, i], slopes, atol=1e-6 * np.max(np.abs(gradients)) + 1e-9)


def test_the_origin_of_a_linear_kernel_is_no_division_by_zero():
    builder = _Builder(distance_of(draw(Linear())), 2)
    values, gradients = builder.search(np.zeros((1, 3)))
    assert values[0] == 0
    assert np.all(np.isfinite(gradients))
    assert not builder.add(np.zeros((2, 3)))


# ------------------------------------------------------------------------------------------------ construction


@pytest.mark.parametrize("best", [True, False])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_distances_are_those_of_the_vectors_and_fall(best, n_outputs):
    distance = distance_of(draw(n_outputs=n_outputs))
    vectors, distances = construct(distance, 8, rng=rng(), best_starts=best, **OPTIONS)
    assert vectors.shape == (8, 3)
    expected = [distance.solve(vectors[:i]).distance for i in range(1, 9)]
    np.testing.assert_allclose(distances, expected, rtol=1e-6, atol=1e-9 * distance.start)
    assert np.all(np.diff(distances) < 0)
    _, unmoved = construct(distance, 1, rng=rng(), best_starts=best, **{**OPTIONS, "max_iter": 0})
    assert distances[0] < unmoved[0]  # the search has moved the vector


def test_one_bump_is_found_exactly():
    bump = KernelExpansion(Gaussian(1.5), np.array([[0.3, -1.0, 0.7]]), np.array([[2.0]]), np.zeros(1))
    copies = KernelExpansion(
        bump.kernel,
        bump.points + 1e-3 * np.random.default_rng(0).normal(size=(9, 3)),
        np.full((9, 1), 0.2),
        np.zeros(1),
    )
    vectors, distances = construct(distance_of(copies), 3, rng=rng(), **OPTIONS)
    assert distances[0] < 1e-5 * distance_of(copies).start
    np.testing.assert_allclose(vectors[0], bump.points[0], atol=2e-3)


def test_the_same_seed_gives_the_same_vectors_and_more_starts_do_not_harm():
    distance = distance_of(draw())
    a, b = (construct(distance, 5, rng=rng(3), **OPTIONS) for _ in range(2))
    np.testing.assert_array_equal(a[0], b[0])
    document = [
        construct(distance, 5, rng=rng(s), best_starts=False, **{**OPTIONS, "n_starts": 1})[1][0] for s in range(5)
    ]
    _, many = construct(distance, 5, rng=rng(0), **{**OPTIONS, "n_starts": 10})
    assert many[0] <= np.mean(document)


def test_without_search_vectors_are_points_of_the_expansion():
    expansion = draw()
    vectors, _ = construct(distance_of(expansion), 6, rng=rng(), **{**OPTIONS, "max_iter": 0})
    assert all(np.any(np.all(expansion.points == vector, axis=1)) for vector in vectors)
    assert len(np.unique(vectors, axis=0)) == 6


def test_it_ends_where_nothing_is_left_to_span():
    vectors, distances = construct(distance_of(draw(Linear())), 10, rng=rng(), **OPTIONS)
    assert len(vectors) <= 3
    assert distances[-1] < 1e-10 * distance_of(draw(Linear())).start


def test_a_construction_is_continued_from_given_vectors():
    distance = distance_of(draw())
    first = construct(distance, 4, rng=rng(), **OPTIONS)
    whole = construct(distance, 7, rng=rng(), given=first[0], **OPTIONS)
    np.testing.assert_array_equal(whole[0][:4], first[0])
    np.testing.assert_allclose(whole[1][:4], first[1])
