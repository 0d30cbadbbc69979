import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from sklearn import config_context

from mercer.engine import ArrayRows, Threads
from mercer.kernels import Function, Gaussian, Linear, Matern, Polynomial, Precomputed
from mercer.model import KernelExpansion, Variance
from mercer.model import expansion as module
from tests.doubles import GuardedRows

D, M = 3, 12
KERNELS = [Gaussian(1.5, amplitude=2.0), Matern(nu=0.5), Matern(nu=2.5), Linear(), Polynomial(2), Gaussian() * Linear()]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: " ".join(repr(kernel).split()))


def draw(kernel=KERNELS[0], p=2, seed=0, **options):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(M, D))
    return KernelExpansion(kernel, points, rng.normal(size=(M, p)), rng.normal(size=p), **options)


def new_rows(n=40, seed=1):
    return np.random.default_rng(seed).normal(size=(n, D))


def draw_variance(kernel, *, root=True, offset=True, prior=True, constant=0.5):
    """A variance with all its parts; K_mm + I, so that it is well conditioned, and noise above the diagonal of L."""
    points = draw(kernel).points
    lower = np.asfortranarray(np.linalg.cholesky(kernel(points) + np.eye(M)))
    lower[np.triu_indices(M, 1)] = 1e3
    rng = np.random.default_rng(2)
    return Variance(
        lower,
        root=rng.normal(size=(4, M)) if root else None,
        offset=rng.normal(size=4) if root and offset else None,
        constant=constant,
        prior=prior,
    )


def dense_covariance(expansion, X):
    """k(x,x') - vᵀv' + (Rv - c)ᵀ(Rv' - c) + constant, v = L⁻¹k_m(x)."""
    variance, kernel = expansion.variance, expansion.kernel
    v = np.linalg.solve(np.tril(variance.lower), kernel(expansion.points, X))
    total = np.full((len(X), len(X)), variance.constant)
    if variance.root is not None:
        offset = np.zeros(len(variance.root)) if variance.offset is None else variance.offset
        residual = variance.root @ v - offset[:, np.newaxis]
        total += residual.T @ residual
    if variance.prior:
        total += kernel(X) - v.T @ v
    return total


PARTS = [
    {},
    {"offset": False},
    {"root": False},
    {"root": False, "constant": 0.0},
    {"prior": False},
    {"prior": False, "root": False},
]
every_variance = pytest.mark.parametrize("parts", PARTS, ids=str)


# ------------------------------------------------------------------------------------------------------- evaluation


@every_kernel
@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_evaluate(kernel, p, n_jobs):
    expansion, X = draw(kernel, p), new_rows()
    with config_context(working_memory=0.002):  # several tiles
        values = expansion.evaluate(X, executor=Threads(n_jobs))
    expected = kernel(X, expansion.points) @ expansion.coefficients + expansion.intercept
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-10)


def test_evaluate_takes_sources_lists_and_integers():
    expansion, X = draw(), np.arange(12).reshape(4, 3) % 5
    expected = expansion.evaluate(X.astype(float))
    for table in (X, X.tolist(), ArrayRows(X), np.asfortranarray(X.astype(float))):
        np.testing.assert_allclose(expansion.evaluate(table), expected, rtol=1e-13)


def test_no_rows_give_no_values():
    expansion = draw(variance=draw_variance(KERNELS[0]))
    nothing = np.empty((0, D))
    assert expansion.evaluate(nothing).shape == (0, 2)
    assert expansion.variances(nothing).shape == (0,)
    assert expansion.covariance(nothing).shape == (0, 0)
    assert expansion.gradient(nothing).shape == (0, 2, D)


def test_a_precomputed_kernel():
    matrix = np.random.default_rng(0).normal(size=(5, 8))
    columns = np.array([[6.0], [1.0]])
    expansion = KernelExpansion(Precomputed(), columns, np.array([[2.0], [3.0]]), np.array([1.0]))
    expected = 2 * matrix[:, [6]] + 3 * matrix[:, [1]] + 1
    np.testing.assert_allclose(expansion.evaluate(matrix), expected, rtol=1e-14)
    np.testing.assert_allclose(expansion.evaluate(matrix.astype(np.float32)), expected, rtol=1e-6)


# ---------------------------------------------------------------------------------------------------------- float32


def computing_dtypes(monkeypatch):
    """The dtypes in which sections are bound from now on."""
    seen, bind = [], Gaussian.bind
    monkeypatch.setattr(
        Gaussian,
        "bind",
        lambda self, points, dtype=np.float64: seen.append(np.dtype(dtype)) or bind(self, points, dtype),
    )
    return seen


def test_float32_rows_are_computed_in_float32_where_that_is_safe(monkeypatch):
    expansion, X = draw(), new_rows()
    expected = expansion.evaluate(X.astype(np.float32).astype(np.float64))
    assert expansion._float32_is_safe
    seen = computing_dtypes(monkeypatch)
    values = expansion.evaluate(X.astype(np.float32))
    assert set(seen) == {np.dtype(np.float32)}
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, expected, atol=1e-4 * np.max(np.abs(expected)))


def test_float32_rows_are_computed_in_float64_where_coefficients_cancel(monkeypatch):
    """A smooth interpolant: coefficients of ±1e6 that almost cancel, whose float32 sum would be noise."""
    points = np.linspace(0.0, 1.0, 8)[:, np.newaxis]
    kernel, targets = Gaussian(1.0), np.sin(6 * points)
    coefficients = np.linalg.solve(kernel(points) + 1e-10 * np.eye(8), targets)
    assert np.max(np.abs(coefficients)) > 1e4
    expansion = KernelExpansion(kernel, points, coefficients, np.zeros(1))
    X = np.linspace(0.0, 1.0, 50, dtype=np.float32)[:, np.newaxis]
    expected = expansion.evaluate(X.astype(np.float64))
    assert not expansion._float32_is_safe
    seen = computing_dtypes(monkeypatch)
    values = replace(expansion).evaluate(X)  # the points of the first are bound already
    assert set(seen) == {np.dtype(np.float64)}
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-6)


def test_one_output_that_cancels_makes_all_unsafe():
    expansion = draw()
    assert expansion._float32_is_safe
    points = np.repeat(expansion.points[:1], 2, axis=0)
    both = KernelExpansion(Gaussian(), points, np.array([[1.0, 1e6], [1.0, -1e6]]), np.zeros(2))
    assert not both._float32_is_safe


def test_a_model_that_is_zero_is_evaluated_in_any_precision():
    expansion = KernelExpansion(Gaussian(), np.zeros((2, D)), np.zeros((2, 1)), np.array([3.0]))
    np.testing.assert_array_equal(expansion.evaluate(new_rows().astype(np.float32)), np.float32(3.0))


# ------------------------------------------------------------------------------------------------ bound only once


def test_points_are_bound_once(monkeypatch):
    expansion, X = draw(variance=draw_variance(KERNELS[0])), new_rows()
    assert expansion._float32_is_safe
    calls = [
        lambda: expansion.evaluate(X),
        lambda: expansion.evaluate(X.astype(np.float32)),
        lambda: expansion.variances(X),
    ]
    seen = computing_dtypes(monkeypatch)
    first = [call() for call in calls]
    assert len(seen) == 3
    again = [call() for call in calls]
    assert len(seen) == 3
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_many_points_are_not_kept(monkeypatch):
    monkeypatch.setattr(module, "_LARGEST_KEPT", M * D - 1)
    expansion, seen = draw(), computing_dtypes(monkeypatch)
    np.testing.assert_array_equal(expansion.evaluate(new_rows()), expansion.evaluate(new_rows()))
    assert len(seen) == 2


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e)), replace])
def test_bound_points_stay_behind(copied):
    expansion = draw(variance=draw_variance(KERNELS[0]))
    size = len(pickle.dumps(expansion))
    values, variances = expansion.evaluate(new_rows()), expansion.variances(new_rows())
    assert len(pickle.dumps(expansion)) == size
    again = copied(expansion)
    assert "_kept" not in vars(again)
    np.testing.assert_array_equal(again.evaluate(new_rows()), values)
    np.testing.assert_array_equal(again.variances(new_rows()), variances)


def test_threads_may_share_an_expansion():
    expansion, X = draw(), new_rows(5)
    expected = draw().evaluate(X)
    with ThreadPoolExecutor(8) as pool:
        for values in pool.map(lambda _: expansion.evaluate(X, executor=Threads(1)), range(64)):
            np.testing.assert_array_equal(values, expected)


# --------------------------------------------------------------------------------------------------------- variance


@every_kernel
@every_variance
def test_variances_and_covariance(kernel, parts):
    expansion, X = draw(kernel, variance=draw_variance(kernel, **parts)), new_rows()
    expected = dense_covariance(expansion, X)
    scale = max(1.0, np.max(np.abs(expected)))
    with config_context(working_memory=0.01):  # several tiles
        variances, covariance = expansion.variances(X, executor=Threads(2)), expansion.covariance(X)
    assert variances.shape == (40,)
    np.testing.assert_allclose(variances, np.diagonal(expected), rtol=0, atol=1e-11 * scale)
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-11 * scale)
    np.testing.assert_array_equal(covariance, covariance.T)


def test_variances_of_float32_rows_are_of_double_precision():
    expansion, X = draw(variance=draw_variance(KERNELS[0])), new_rows().astype(np.float32)
    for method in (expansion.variances, expansion.covariance):
        assert method(X).dtype == np.float64
        np.testing.assert_allclose(method(X), method(X.astype(np.float64)), rtol=1e-12)


def test_a_variance_is_never_negative():
    points = new_rows(30)
    lower = np.asfortranarray(np.linalg.cholesky(Gaussian(3.0)(points) + 1e-12 * np.eye(30)))
    expansion = KernelExpansion(Gaussian(3.0), points, np.zeros((30, 1)), np.zeros(1), Variance(lower))
    variances = expansion.variances(points)  # no uncertainty is left here
    assert np.all(variances >= 0)
    assert np.max(variances) <= 1e-6


def test_far_from_the_points_the_prior_variance_is_left():
    lower = draw_variance(KERNELS[0]).lower
    expansion = draw(variance=Variance(lower, constant=0.25))
    np.testing.assert_allclose(expansion.variances(np.full((1, D), 1e3)), 2.0 + 0.25)


def test_without_a_variance_the_error_is_clear():
    for method in (draw().variances, draw().covariance):
        with pytest.raises(ValueError, match="no predictive variance"):
            method(new_rows())


# --------------------------------------------------------------------------------------------------------- gradient


@every_kernel
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_gradient(kernel, n_jobs):
    expansion, X = draw(kernel), new_rows(60)
    with config_context(working_memory=0.002):  # several tiles
        gradient = expansion.gradient(X, executor=Threads(n_jobs))
    step = 1e-5
    expected = np.empty((60, 2, D))
    for j in range(D):
        shift = step * np.eye(1, D, j)
        expected[:, :, j] = (expansion.evaluate(X + shift) - expansion.evaluate(X - shift)) / (2 * step)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-8 * np.max(np.abs(expected)))


def test_the_gradient_of_a_function_kernel_is_refused():
    expansion = draw(Function(lambda a, b: a @ b.T))
    with pytest.raises(NotImplementedError, match="no known gradient"):
        expansion.gradient(new_rows())


# --------------------------------------------------------------------------------------------- what is asked of rows


@pytest.mark.parametrize("method", ["evaluate", "variances", "covariance", "gradient"])
def test_rows_are_read_by_the_engine_only(method):
    expansion, rows = draw(variance=draw_variance(KERNELS[0])), GuardedRows(new_rows(50))
    result = getattr(expansion, method)(rows)
    np.testing.assert_allclose(result, getattr(expansion, method)(new_rows(50)), rtol=1e-12)


@pytest.mark.parametrize("method", ["evaluate", "variances", "gradient"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_tiles_of_all_workers_stay_within_the_working_memory(method, n_jobs):
    expansion, rows, budget = draw(variance=draw_variance(KERNELS[0])), GuardedRows(new_rows(1000)), 1 << 15
    with config_context(working_memory=budget / (1 << 20)):
        getattr(expansion, method)(rows, executor=Threads(n_jobs))
    assert rows.rows_read == 1000
    assert rows.largest_read * M * 8 * n_jobs <= budget


def test_an_expansion_does_not_change():
    expansion = draw()
    with pytest.raises(AttributeError):
        expansion.intercept = np.zeros(2)


def test_arrays_cannot_be_changed_in_place():
    """What is kept for the next prediction would not notice."""
    given = np.ones((1, 1))
    model = KernelExpansion(Gaussian(), np.zeros((1, 2)), given, np.zeros(1))
    with pytest.raises(ValueError, match="read-only"):
        model.coefficients[0] = 2.0
    given[0] = 2.0  # the caller's own array stays writeable
    with pytest.raises(ValueError, match="read-only"):
        pickle.loads(pickle.dumps(model)).points[0] = 2.0
