"""scikit-learn's kernels and ours have the same values, whatever they are combined to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics.pairwise import pairwise_kernels

from mercer.kernels import Function, Gaussian, Linear, Polynomial
from mercer.kernels.scikit_learn import KernelPlusConstant, named_kernel, pairwise_kernel, process_kernel

ROWS, POINTS = np.random.default_rng(0).normal(size=(7, 2)), np.random.default_rng(1).normal(size=(5, 2))

scales = st.floats(0.3, 3.0)
LEAVES = st.one_of(
    scales.map(gp.RBF),
    st.tuples(scales, scales).map(lambda pair: gp.RBF(list(pair))),
    st.builds(gp.Matern, scales, nu=st.sampled_from([0.5, 1.5, 2.5, np.inf])),
    scales.map(gp.ConstantKernel),
    scales.map(gp.WhiteKernel),
    scales.map(gp.DotProduct),
    st.builds(gp.PairwiseKernel, scales, metric=st.sampled_from(["rbf", "linear", "poly"])),
    scales.map(gp.RationalQuadratic),
)
KERNELS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(gp.Sum, inner, inner),
        st.builds(gp.Product, inner, inner),
        st.builds(gp.Exponentiation, inner, st.sampled_from([1, 2, 3])),
    ),
    max_leaves=5,
)


def values(known):
    kernel = 0.0 if known.kernel is None else known.kernel(ROWS, POINTS)
    return np.broadcast_to(kernel + known.constant, (len(ROWS), len(POINTS)))


@given(KERNELS)
def test_any_kernel_of_a_process_is_ours_plus_a_constant(kernel):
    expected = kernel(ROWS, POINTS)
    tolerance = 1e-11 * max(1.0, np.max(np.abs(expected)))
    np.testing.assert_allclose(values(process_kernel(kernel, owner="", n_features=2)), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["rbf", "linear", "poly", "polynomial", "laplacian", "cosine"])
@pytest.mark.parametrize("parameters", [{}, {"gamma": 0.4, "degree": 2, "coef0": 0.5}, {"gamma": None}])
def test_kernels_by_name(name, parameters):
    known = pairwise_kernel(name, parameters, n_features=2, owner="")
    np.testing.assert_allclose(
        values(known), pairwise_kernels(ROWS, POINTS, metric=name, filter_params=True, **parameters), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("name", "gamma", "degree"), [("rbf", 0.0, 3), ("poly", 0.0, 2), ("poly", 0.5, 0), ("polynomial", 0.0, 0)]
)
def test_kernels_that_are_constant(name, gamma, degree):
    known = named_kernel(name, gamma=gamma, degree=degree, coef0=2.0, owner="")
    parameters = {"gamma": gamma, "degree": degree, "coef0": 2.0}
    assert known.kernel is None
    expected = pairwise_kernels(ROWS, POINTS, metric=name, filter_params=True, **parameters)
    np.testing.assert_allclose(values(known), expected)


def test_powers():
    gaussian, linear = KernelPlusConstant(Gaussian(2.0, 3.0)), KernelPlusConstant(Linear(2.0), 1.0)
    assert gaussian.power(0.25).kernel.equals(Gaussian(4.0, 3.0**0.25))
    assert linear.power(3).kernel.equals(Polynomial(3, scale=2.0, offset=1.0))
    assert linear.power(0.5) is None
    assert KernelPlusConstant(None, 4.0).power(0.5).constant == 2.0


def test_a_subclass_of_a_known_kernel_is_a_function():
    class Doubled(gp.RBF):
        def __call__(self, X, Y=None, eval_gradient=False):
            return 2 * super().__call__(X, Y, eval_gradient)

    known = process_kernel(Doubled(), owner="", n_features=2)
    assert isinstance(known.kernel, Function)
    np.testing.assert_allclose(values(known), 2 * gp.RBF()(ROWS, POINTS))
