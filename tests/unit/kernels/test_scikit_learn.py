"""scikit-learn's kernels and ours have the same values, whatever they are combined to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics.pairwise import pairwise_kernels

from mercer import ExactRegressor
from mercer.kernels import (
    Constant,
    Function,
    Gaussian,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    White,
    as_kernel,
)
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


# ------------------------------------------------------------------------------------------- given to an estimator

READ = [
    (gp.RBF(0.7), Gaussian(0.7)),
    (gp.RBF([0.7, 2.0]), Gaussian(np.array([0.7, 2.0]))),
    (gp.Matern(0.7, nu=0.5), Matern(0.7, nu=0.5)),
    (gp.Matern(0.7, nu=np.inf), Gaussian(0.7)),
    (gp.RationalQuadratic(0.7, 0.4), RationalQuadratic(0.7, 0.4)),
    (gp.DotProduct(2.0), Linear() + Constant(4.0)),
    (gp.DotProduct(2.0) ** 2, Polynomial(2, offset=4.0)),
    (gp.ConstantKernel(3.0), Constant(3.0)),
    (2.0 * gp.RBF(0.7) + gp.WhiteKernel(0.3), Gaussian(0.7, amplitude=2.0) + White(0.3)),
    (gp.RBF(0.7) + 1.5, Gaussian(0.7) + Constant(1.5)),
]


@pytest.mark.parametrize(("kernel", "expected"), READ, ids=lambda each: " ".join(repr(each).split())[:50])
def test_a_kernel_object_is_read_with_its_parameters(kernel, expected):
    found = as_kernel(kernel)
    assert found.equals(expected)
    np.testing.assert_allclose(found(ROWS), kernel(ROWS), rtol=1e-12)
    np.testing.assert_allclose(found(ROWS, POINTS), kernel(ROWS, POINTS), rtol=1e-12)


def test_the_periodic_kernel_is_read_for_one_feature_and_refused_for_more():
    kernel = gp.ExpSineSquared(0.8, 1.5)
    assert as_kernel(kernel, 1).equals(Periodic(1.5, 0.8))
    assert as_kernel(kernel).equals(Periodic(1.5, 0.8))
    with pytest.raises(ValueError, match=r"ExpSineSquared\(.*has no counterpart .* \(for 2 features\)"):
        as_kernel(gp.RBF() * kernel, 2)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (gp.Matern(nu=0.7), "Matern"),
        (gp.RBF() + gp.Matern(nu=0.7), "Matern"),
        (gp.Matern() ** 0.5, "Matern"),
        (gp.PairwiseKernel(metric="laplacian"), "PairwiseKernel"),
        (gp.PairwiseKernel(metric="sigmoid"), "PairwiseKernel"),
        (gp.CompoundKernel([gp.RBF(), gp.RBF()]), "CompoundKernel"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused_by_name(kernel, name):
    with pytest.raises(ValueError, match=name):
        as_kernel(kernel)
    with pytest.raises(ValueError, match=name):
        ExactRegressor(kernel).fit(ROWS, ROWS[:, 0])
    assert type(as_kernel(Function(kernel))) is Function


@given(KERNELS)
def test_whatever_is_read_has_the_same_matrix(kernel):
    try:
        found = as_kernel(kernel, 2)
    except ValueError:
        return
    expected = kernel(ROWS)
    tolerance = 1e-11 * max(1.0, np.max(np.abs(expected)))
    np.testing.assert_allclose(found(ROWS), expected, rtol=0, atol=tolerance)


def test_a_fit_is_the_process_itself():
    kernel, y = 1.5 * gp.Matern(1.2, nu=2.5) + 0.5 * gp.DotProduct(1.0) + gp.WhiteKernel(0.2), np.sin(ROWS[:, 0])
    process = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None).fit(ROWS, y)
    model = ExactRegressor(kernel, noise=0.1, intercept=False).fit(ROWS, y)
    np.testing.assert_allclose(model.predict(POINTS), process.predict(POINTS), rtol=1e-10)
    assert model.noise_ == pytest.approx(0.3, rel=1e-15)
