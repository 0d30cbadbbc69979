import numpy as np
import pytest
from sklearn.metrics.pairwise import laplacian_kernel

from mercer.kernels import (
    KERNELS,
    Function,
    Gaussian,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    as_kernel,
)


@pytest.mark.parametrize("name", [kernel.name for kernel in KERNELS if kernel.name is not None])
def test_every_name_gives_a_fresh_kernel(name):
    kernel = as_kernel(name)
    assert isinstance(kernel, Kernel)
    assert as_kernel(name) is not kernel
    assert as_kernel(name).equals(kernel)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gaussian", Gaussian("median")),
        ("matern", Matern("median")),
        ("linear", Linear()),
        ("polynomial", Polynomial()),
        ("rational_quadratic", RationalQuadratic("median")),
        ("periodic", Periodic()),
        ("rbf", Gaussian("median")),
        ("poly", Polynomial()),
    ],
)
def test_names(name, expected):
    assert as_kernel(name).equals(expected)


def test_a_kernel_is_returned_as_it_is():
    kernel = Gaussian()
    assert as_kernel(kernel) is kernel


def test_a_function_is_wrapped():
    kernel = as_kernel(laplacian_kernel)
    assert type(kernel) is Function
    assert kernel.function is laplacian_kernel


@pytest.mark.parametrize("wrong", ["gauss", "Gaussian", "", None, 3, Gaussian, ["gaussian"]])
def test_anything_else_is_refused_with_the_names(wrong):
    with pytest.raises(ValueError, match=r"kernel must be one of 'gaussian', 'linear', 'matern', .* got "):
        as_kernel(wrong)


def test_a_kernel_without_gradients_is_refused_only_where_they_are_needed():
    class Constant(Kernel):
        def bind(self, points, dtype=np.float64):
            return Polynomial(1, scale=1e-300).bind(points, dtype)

        def diagonal(self, rows):
            return np.ones(len(rows))

    rows = np.zeros((2, 1))
    assert np.array_equal(Constant()(rows), np.ones((2, 2)))
    with pytest.raises(NotImplementedError, match="Constant has no known gradient"):
        Constant().points_gradient(rows, rows, np.ones((2, 2)))
