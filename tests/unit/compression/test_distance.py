"""Distances and their gradients against dense algebra and finite differences, for every kernel that has gradients."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from mercer.compression.distance import DataDistance, FeatureDistance
from mercer.compression.inner_products import InnerProducts
from mercer.engine import Threads
from mercer.engine import rows as engine_rows
from mercer.engine.executors import threads
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Function, Gaussian, Linear, Matern, Polynomial
from mercer.model import KernelExpansion
from tests.kernel_cases import every_differentiable_kernel

EXECUTOR = Threads(2)


def draw(kernel, n_outputs=1, seed=0, n=40, d=3):
    rng = np.random.default_rng(seed)
    coefficients = rng.normal(size=(n, n_outputs)) * 10.0 ** (np.arange(n_outputs) % 2)  # of different sizes
    return KernelExpansion(kernel, rng.normal(size=(n, d)), coefficients, np.zeros(n_outputs))


def draw_vectors(m=4, d=3, seed=1):
    return np.random.default_rng(seed).normal(size=(m, d))


def slope(function, vectors):
    """Central differences."""
    step, flat = 1e-5, vectors.ravel()
    columns = [
        (function((flat + e).reshape(vectors.shape)) - function((flat - e).reshape(vectors.shape))) / (2 * step)
        for e in step * np.eye(flat.size)
    ]
    return np.reshape(columns, vectors.shape)


def assert_slope(gradient, function, vectors):
    expected = slope(function, vectors)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=2e-6 * max(np.max(np.abs(expected)), 1e-3))


# ------------------------------------------------------------------------------------------------ inner products


@every_differentiable_kernel
@pytest.mark.parametrize("n_outputs", [1, 2, 5])  # by all gradients at once, or contracted
def test_inner_products_are_values_of_the_function(case, n_outputs):
    expansion, vectors = draw(case.kernel, n_outputs), draw_vectors()
    products = InnerProducts(
        case.kernel, expansion.points, expansion.coefficients, shift=np.full(3, 0.1), executor=EXECUTOR
    )
    weights = np.random.default_rng(2).normal(size=(4, n_outputs))
    here = products.at(vectors, vectors[:0])
    values, gradient = here.values, here.gradient(weights, here.tile)
    expected = case.define(vectors, expansion.points) @ expansion.coefficients
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9 * np.max(np.abs(expected)))
    np.testing.assert_allclose(products.values(vectors), values, rtol=1e-9, atol=1e-9 * np.max(np.abs(expected)))
    derivative = np.einsum("jo,jod->jd", weights, expansion.gradient(vectors))
    np.testing.assert_allclose(gradient, derivative, rtol=1e-8, atol=1e-8 * np.max(np.abs(derivative)))


def values_and_gradient(expansion, vectors, shift, executor):
    points = expansion.points + shift
    middle = np.median(points, axis=0)
    products = InnerProducts(expansion.kernel, points, expansion.coefficients, shift=middle, executor=executor)
    here = products.at(vectors + shift, vectors[:2] + shift)
    return here.values, here.tile, here.gradient(np.tanh(here.values), here.tile)


def test_neither_tiles_nor_threads_nor_an_offset_of_the_rows_matter(monkeypatch):
    from mercer.compression import inner_products

    expansion, vectors, far = draw(Matern(2.0), 2, n=300), draw_vectors(), 1e4
    expected = values_and_gradient(expansion, vectors, 0.0, Threads(1))
    monkeypatch.setattr(inner_products, "_ONE_TILE", 0)
    monkeypatch.setattr(threads, "TILE_BYTES", 512)
    monkeypatch.setattr(engine_rows, "_FEWEST_ROWS", 16)
    for shift in (0.0, far):
        found = values_and_gradient(expansion, vectors, shift, Threads(3))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=(1e-7 if shift else 1e-10) * np.max(np.abs(b)))


# ------------------------------------------------------------------------------------------------ feature space


def dense_distance(expansion, vectors, coefficients):
    """Σ_o ρ_o²/|f_o|² times the mean of |f|², from the kernel matrix of everything."""
    points = np.vstack([expansion.points, vectors])
    K = expansion.kernel(points)
    norms = np.einsum("io,ij,jo->o", expansion.coefficients, expansion.kernel(expansion.points), expansion.coefficients)
    left = np.vstack([expansion.coefficients, -coefficients])
    return np.sum(np.einsum("io,ij,jo->o", left, K, left) / norms) * np.mean(norms)


@every_differentiable_kernel
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_distances_are_those_of_the_definition(case, n_outputs):
    expansion, vectors = draw(case.kernel, n_outputs), draw_vectors(3)
    distance = FeatureDistance(expansion, executor=EXECUTOR)
    coefficients = np.random.default_rng(3).normal(size=(3, n_outputs))
    expected = dense_distance(expansion, vectors, coefficients)
    tolerance = 1e-9 * max(distance.start, expected)
    assert abs(distance.joint(vectors, coefficients / distance.units).distance - expected) < tolerance
    assert abs(distance.between(vectors, coefficients) - expected) < tolerance
    best = np.linalg.lstsq(
        case.kernel(vectors), case.kernel(vectors, expansion.points) @ expansion.coefficients, rcond=1e-12
    )[0]
    for evaluation in (distance.solve(vectors), distance.eliminated(vectors, distance.ridge(3))):
        assert abs(evaluation.distance - dense_distance(expansion, vectors, best)) < 1e-7 * distance.start


@every_differentiable_kernel
@pytest.mark.parametrize("n_outputs", [1, 5])
def test_gradients_are_finite_differences(case, n_outputs):
    expansion, vectors = draw(case.kernel, n_outputs, n=15), draw_vectors()
    distance = FeatureDistance(expansion, executor=Threads(1))
    for ridge in (1e-4, 1e-2):  # exact whatever the penalty
        found = distance.eliminated(vectors, ridge)
        assert_slope(found.by_vectors, lambda z, r=ridge: distance.eliminated(z, r).value, vectors)
        assert found.value >= found.distance
    coefficients = np.random.default_rng(3).normal(size=(4, n_outputs))
    found = distance.joint(vectors, coefficients)
    assert_slope(found.by_vectors, lambda z: distance.joint(z, coefficients).value, vectors)
    assert_slope(found.by_coefficients, lambda b: distance.joint(vectors, b).value, coefficients)


def test_outputs_count_in_units_of_their_norms():
    one = draw(Gaussian(), 2)
    scaled = KernelExpansion(one.kernel, one.points, one.coefficients * [1e-3, 1e5], one.intercept)
    vectors = draw_vectors()
    a, b = (FeatureDistance(f, executor=EXECUTOR) for f in (one, scaled))
    first, second = a.eliminated(vectors, 1e-8), b.eliminated(vectors, 1e-8)
    assert second.distance / b.start == pytest.approx(first.distance / a.start, rel=1e-9)
    np.testing.assert_allclose(first.coefficients, second.coefficients, rtol=1e-7)


def test_vectors_that_meet_do_not_crash_and_a_kernel_that_is_indefinite_is_refused():
    distance = FeatureDistance(draw(Gaussian()), executor=EXECUTOR)
    vectors = np.repeat(draw_vectors(1), 5, axis=0)
    found = distance.eliminated(vectors, distance.ridge(5))
    assert found.distance == pytest.approx(distance.solve(vectors[:1]).distance, rel=1e-6)
    assert np.all(np.isfinite(found.by_vectors))
    sigmoid = Function(lambda a, b: -(a @ b.T))
    with pytest.raises(NotPositiveDefiniteError, match="negative norm"):
        FeatureDistance(draw(sigmoid), executor=EXECUTOR)


# ------------------------------------------------------------------------------------------------ given inputs


@pytest.mark.parametrize("kernel", [Gaussian(), Matern(1.5, nu=2.5), Polynomial(2), Gaussian(2.0) + Linear()], ids=str)
@pytest.mark.parametrize("n_outputs", [1, 4])
@pytest.mark.parametrize("offset", [True, False])
def test_differences_on_data_are_those_of_least_squares(kernel, n_outputs, offset):
    expansion, vectors = draw(kernel, n_outputs), draw_vectors()
    inputs = np.random.default_rng(5).normal(size=(60, 3))
    values = expansion.evaluate(inputs)
    distance = DataDistance(expansion, inputs, values, offset=offset, executor=EXECUTOR)
    design = np.column_stack([kernel(inputs, vectors), np.ones(60)] if offset else [kernel(inputs, vectors)])
    residual = values - design @ np.linalg.lstsq(design, values, rcond=1e-13)[0]
    expected = np.sum(np.mean(residual**2, axis=0) / distance.units**2) * distance.norm
    found = distance.solve(vectors)
    assert found.distance == pytest.approx(expected, rel=1e-5)
    predicted = kernel(inputs, vectors) @ (found.coefficients * distance.units) + found.offset * distance.units
    np.testing.assert_allclose(np.mean((values - predicted) ** 2), np.mean(residual**2), rtol=1e-5)


@pytest.mark.parametrize("kernel", [Gaussian(), Matern(1.5, nu=2.5), Polynomial(2), Gaussian(2.0) * Linear()], ids=str)
@pytest.mark.parametrize("offset", [True, False])
def test_gradients_on_data_are_finite_differences(kernel, offset):
    expansion, vectors = draw(kernel, 2), draw_vectors()
    inputs = np.random.default_rng(5).normal(size=(60, 3))
    distance = DataDistance(expansion, inputs, expansion.evaluate(inputs), offset=offset, executor=Threads(1))
    found = distance.eliminated(vectors, 1e-3)
    assert_slope(found.by_vectors, lambda z: distance.eliminated(z, 1e-3).value, vectors)
    coefficients = np.random.default_rng(3).normal(size=(4, 2))
    found = distance.joint(vectors, coefficients)
    assert_slope(found.by_vectors, lambda z: distance.joint(z, coefficients).value, vectors)
    by_coefficients = approx_fprime(
        coefficients.ravel(), lambda b: distance.joint(vectors, b.reshape(4, 2)).value, 1e-7
    ).reshape(4, 2)
    np.testing.assert_allclose(found.by_coefficients, by_coefficients, atol=1e-4 * np.max(np.abs(by_coefficients)))
