"""Noise as a kernel: on the diagonal of k(X), nowhere in k(X, Z), and refused where it would count as correlation."""

import numpy as np
import pytest

from mercer.basis import PivotedCholesky, choose_basis
from mercer.engine import Threads, as_rows
from mercer.kernels import Constant, Function, Gaussian, Linear, Matern, Periodic, Precomputed, White
from mercer.model import KernelExpansion

ROWS = np.random.default_rng(0).normal(size=(6, 2))
POINTS = np.concatenate([ROWS[:2], ROWS[:2] + 1.0])
TWICE = np.concatenate([ROWS, ROWS])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_it_is_on_the_diagonal_and_not_between_equal_rows(dtype):
    kernel, rows = Gaussian(1.3) + White(0.25), TWICE.astype(dtype)
    expected = Gaussian(1.3)(rows) + 0.25 * np.eye(12, dtype=dtype)
    np.testing.assert_allclose(kernel(rows), expected, rtol=1e-6)
    np.testing.assert_array_equal(kernel(rows, rows), Gaussian(1.3)(rows, rows))
    np.testing.assert_allclose(kernel.diagonal(rows), np.diagonal(kernel(rows)), rtol=1e-6)
    out = np.empty((12, 12), dtype=dtype)
    assert kernel(rows, None, out) is out
    assert out.dtype == White()(rows).dtype == dtype


COMBINED = [
    (Gaussian() + White(0.1), 0.1, Gaussian()),
    (White(0.1) + Gaussian() + White(0.2), 0.3, Gaussian()),
    (2.0 * (Gaussian() + White(0.1)), 0.2, Gaussian(amplitude=2.0)),
    (Gaussian(amplitude=3.0) * White(0.5) + Linear(), 1.5, Linear()),
    ((Gaussian() + White(0.1)) * (Matern() + White(0.3)), 0.1 + 0.3 + 0.03, Gaussian() * Matern()),
    ((Gaussian() + White(0.1)) * Matern(amplitude=2.0), 0.2, Gaussian() * Matern(amplitude=2.0)),
    ((Periodic() + Constant(0.5)) * White(0.2) + Periodic(), 0.3, Periodic()),
    (White(0.2) * White(0.5), 0.1, None),
    (White(0.2), 0.2, None),
    (Linear(), 0.0, Linear()),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "level", "rest"), COMBINED, ids=lambda each: " ".join(repr(each).split())[:60])
def test_sums_and_products_are_split_into_function_and_noise(kernel, level, rest):
    found = kernel.without_noise()
    assert kernel.noise_level == pytest.approx(level, rel=1e-14)
    assert (found is None and rest is None) or found.equals(rest)
    function = 0.0 if rest is None else rest(TWICE)
    np.testing.assert_allclose(kernel(TWICE), function + level * np.eye(12), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(kernel(ROWS, POINTS), 0.0 if rest is None else rest(ROWS, POINTS), atol=1e-15)


def test_a_kernel_without_noise_is_the_same_object():
    for kernel in (Gaussian(), Gaussian() + Linear(), Gaussian() * (Matern() + Linear())):
        assert kernel.without_noise() is kernel


@pytest.mark.parametrize("other", [Linear(), Gaussian() + Linear(), Function(lambda x, z: x @ z.T)])
def test_noise_that_differs_from_row_to_row_is_refused(other):
    kernel = Gaussian() + White() * other
    with pytest.raises(ValueError, match=r"noise that differs from row to row: pass it as sample_weight"):
        _ = kernel.noise_level
    np.testing.assert_allclose(np.diagonal(kernel(ROWS)), 1.0 + np.diagonal(other(ROWS)))  # its values are known


def test_gradients_are_those_of_the_matrix():
    kernel, step = Gaussian(0.8) + White(0.3), 1e-5
    weights = np.random.default_rng(1).normal(size=6)
    at = kernel.get_log_parameters()
    up, down = (kernel.with_log_parameters(at | {"right__level": at["right__level"] + s}) for s in (step, -step))
    expected = weights @ (up.diagonal(ROWS) - down.diagonal(ROWS)) / (2 * step)
    assert kernel.diagonal_gradient(ROWS, weights)["right__level"] == pytest.approx(expected, rel=1e-8)
    by_points, by_parameters = kernel.gradients(ROWS, POINTS, np.ones((6, 4)))
    np.testing.assert_array_equal(by_points, Gaussian(0.8).points_gradient(ROWS, POINTS, np.ones((6, 4))))
    assert by_parameters["right__level"] == 0.0
    assert White().gradients(ROWS, POINTS, np.ones((6, 4)), parameters=False)[1] == {}


@pytest.mark.parametrize(
    "use",
    [
        lambda kernel: kernel.bind(ROWS),
        lambda kernel: KernelExpansion(kernel, POINTS, np.ones((4, 1)), np.zeros(1)).evaluate(ROWS),
        lambda kernel: choose_basis(
            PivotedCholesky(), as_rows(ROWS), np.zeros((6, 1)), kernel, 3,
            weights=None, random_state=np.random.RandomState(0), executor=Threads(1),
        ),
    ],
    ids=["bind", "expansion", "basis"],
)  # fmt: skip
def test_elsewhere_it_is_refused_by_name_with_the_remedy(use):
    with pytest.raises(TypeError, match=r"White is noise.*kernel\.without_noise\(\)"):
        use(Gaussian() + White(0.1))


@pytest.mark.parametrize("level", [0.0, -1.0, np.nan, "auto", None])
def test_levels_that_are_none(level):
    with pytest.raises(ValueError, match="level must be a finite number above zero"):
        White(level)(ROWS)


def test_precomputed_values_have_none():
    assert Precomputed().noise_level == 0.0
