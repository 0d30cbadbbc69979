"""Every foreign model's expansion reproduces the model."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

from mercer import (
    CommitteeRegressor,
    CompactRegressor,
    ExactClassifier,
    ExactRegressor,
    KernelExpansion,
    NystromClassifier,
    NystromRegressor,
    OnlineClassifier,
    OnlineRegressor,
    PseudoInputRegressor,
    ReducedRankRegressor,
)
from mercer.compression import as_expansion
from mercer.compression.foreign import read_model
from mercer.compression.foreign_models import pair_coefficients
from mercer.kernels import Function, Gaussian, Linear, Matern, Polynomial, Sum, Wendland

TOLERANCE = 1e-8


def in_words(options):
    """An id without addresses, the same in every process."""
    return ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in options.items())


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(120, 3)) * [1.0, 2.0, 0.5] + [0.0, 1.0, -1.0]


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(1).normal(size=(40, 3)) * [1.0, 2.0, 0.5] + [0.0, 1.0, -1.0]


def values_of(rows):
    return np.sin(rows[:, 0]) + 0.3 * rows[:, 1] ** 2 + rows[:, 2]


def labels_of(rows, n_classes):
    names = np.array(["ant", "bee", "cat", "dog", "eel"])[:n_classes]
    return names[np.digitize(values_of(rows), np.quantile(values_of(rows), np.arange(1, n_classes) / n_classes))]


def assert_same(actual, expected):
    scale = max(1.0, np.max(np.abs(expected)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE * scale)


KERNELS = [
    {"kernel": "rbf"},
    {"kernel": "rbf", "gamma": 0.7},
    {"kernel": "linear"},
    {"kernel": "poly", "coef0": 0.5, "degree": 2, "gamma": 0.1},
    {"kernel": "poly", "gamma": 0.1},
]
MACHINE_KERNELS = [*KERNELS, {"kernel": "rbf", "gamma": "auto"}, {"kernel": rbf_kernel}, {"kernel": gp.Matern(2.0)}]
with_kernels = pytest.mark.parametrize("options", KERNELS, ids=in_words)
with_machine_kernels = pytest.mark.parametrize("options", MACHINE_KERNELS, ids=in_words)


# --------------------------------------------------------------------------------------------- support vector machines


@with_machine_kernels
@pytest.mark.parametrize("machine", [SVR, NuSVR])
def test_regression_machines(machine, options, rows, queries):
    model = machine(**options).fit(rows, values_of(rows))
    assert_same(as_expansion(model).evaluate(queries)[:, 0], model.predict(queries))


@with_machine_kernels
def test_one_class_machine(options, rows, queries):
    model = OneClassSVM(**options, nu=0.3).fit(rows)
    reading = read_model(model)
    assert_same(reading.expansion.evaluate(queries)[:, 0], model.decision_function(queries))
    assert_same(reading.expansion.evaluate(queries)[:, 0] + reading.outputs.offset, model.score_samples(queries))
    assert reading.outputs.kind == "outlier_detector"


@with_machine_kernels
@pytest.mark.parametrize("shape", ["ovo", "ovr"])
@pytest.mark.parametrize("machine", [SVC, NuSVC])
def test_machines_for_two_classes_are_positive_for_the_second(machine, shape, options, rows, queries):
    model = machine(**options, decision_function_shape=shape).fit(rows, labels_of(rows, 2))
    reading = read_model(model)
    assert reading.outputs.rule == "threshold"
    values = reading.expansion.evaluate(queries)[:, 0]
    assert_same(values, model.decision_function(queries))
    np.testing.assert_array_equal(np.where(values > 0, "bee", "ant"), model.predict(queries))


@with_machine_kernels
@pytest.mark.parametrize("n_classes", [3, 5])
@pytest.mark.parametrize("machine", [SVC, NuSVC])
def test_machines_for_more_classes_have_one_output_per_pair(machine, n_classes, options, rows, queries):
    more = {"nu": 0.2} if machine is NuSVC else {}
    model = machine(**options, **more, decision_function_shape="ovo").fit(rows, labels_of(rows, n_classes))
    reading = read_model(model)
    assert reading.outputs.rule == "pairs"
    assert_same(reading.expansion.evaluate(queries), model.decision_function(queries))


def test_a_machine_whose_classes_have_unequal_numbers_of_vectors(rows, queries):
    labels = np.where(values_of(rows) > 3.5, 2, np.where(values_of(rows) > -0.5, 7, 5))
    model = SVC(C=10.0, decision_function_shape="ovo").fit(rows, labels)
    assert len(set(model.n_support_)) == 3
    assert_same(as_expansion(model).evaluate(queries), model.decision_function(queries))


def test_pairs_are_read_from_the_table_of_libsvm():
    dual = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])  # vectors of the classes 0, 0, 1, 2
    expected = [[1.0, 5.0, 0.0], [2.0, 6.0, 0.0], [3.0, 0.0, 7.0], [0.0, 4.0, 8.0]]  # pairs 01, 02, 12
    np.testing.assert_array_equal(pair_coefficients(dual, np.array([2, 1, 1])), expected)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_machines_fitted_on_sparse_rows_become_dense(n_classes, rows, queries):
    model = SVC(decision_function_shape="ovo").fit(sp.csr_array(rows), labels_of(rows, n_classes))
    expected = model.decision_function(sp.csr_array(queries))
    assert_same(as_expansion(model).evaluate(queries), expected.reshape(len(queries), -1))


def test_a_machine_of_our_own_kernel(rows, queries):
    kernel = Matern(2.0, nu=2.5) + Linear(0.1)
    model = SVR(kernel=kernel).fit(rows, values_of(rows))
    expansion = as_expansion(model)
    assert expansion.kernel is kernel
    assert_same(expansion.evaluate(queries)[:, 0], model.predict(queries))


def test_a_kernel_of_gamma_zero_is_a_constant(rows, queries):
    model = SVR(gamma=0.0).fit(rows, values_of(rows))
    assert_same(as_expansion(model).evaluate(queries)[:, 0], model.predict(queries))


# -------------------------------------------------------------------------------------------------------- kernel ridge


@pytest.mark.parametrize(
    "options", [*KERNELS, {"kernel": gp.RBF([1.0, 2.0, 3.0])}, {"kernel": "polynomial"}], ids=in_words
)
@pytest.mark.parametrize("n_outputs", [None, 1, 3])
def test_kernel_ridge(options, n_outputs, rows, queries):
    y = values_of(rows) if n_outputs is None else np.stack([values_of(rows) ** k for k in range(n_outputs)], axis=1)
    model = KernelRidge(**options).fit(rows, y)
    reading = read_model(model)
    assert reading.outputs.flat == (n_outputs is None)
    values = reading.expansion.evaluate(queries)
    assert_same(values[:, 0] if reading.outputs.flat else values, model.predict(queries))


def test_kernel_ridge_on_sparse_rows(rows, queries):
    model = KernelRidge(kernel="rbf").fit(sp.csr_array(rows), values_of(rows))
    assert_same(as_expansion(model).evaluate(queries)[:, 0], model.predict(queries))


def product_of_sines(first, second, power=1):
    return float(np.sin(first) @ np.sin(second)) ** power


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "laplacian", "gamma": 0.3},
        {"kernel": "cosine"},
        {"kernel": product_of_sines},
        {"kernel": product_of_sines, "kernel_params": {"power": 2}},
    ],
    ids=in_words,
)
def test_kernels_without_a_gradient_are_functions(options, rows, queries):
    model = KernelRidge(**options).fit(rows, values_of(rows))
    expansion = as_expansion(model)
    assert isinstance(expansion.kernel, Function)
    assert_same(expansion.evaluate(queries)[:, 0], model.predict(queries))


# -------------------------------------------------------------------------------------------------- Gaussian processes

PROCESSES = [
    None,
    gp.RBF(0.8),
    gp.RBF([0.8, 1.2, 2.0]),
    gp.RBF([1.5]),
    gp.Matern(1.2, nu=0.5),
    gp.Matern([1.2, 0.9, 3.0], nu=1.5),
    gp.Matern(1.2, nu=2.5),
    gp.Matern(1.2, nu=np.inf),
    gp.Matern(1.2, nu=0.7),
    2.0 * gp.RBF(0.8) + gp.WhiteKernel(0.1),
    gp.RBF(0.8) + 3.0,
    (gp.RBF(0.8) + 2.0) * (gp.Matern(2.0) + 0.5) + gp.WhiteKernel(0.1),
    gp.RBF(0.8) * gp.RBF([2.0, 3.0, 4.0]),
    gp.DotProduct(2.0),
    0.5 * gp.DotProduct(2.0) ** 2 + gp.RBF(3.0),
    gp.DotProduct(1e-3) ** 3,
    gp.RBF(0.8) ** 1.5,
    gp.Matern(2.0) ** 2,
    (gp.Matern(2.0) + 1.0) ** 0.5,
    (gp.RBF(2.0) + gp.WhiteKernel(1.0)) * (gp.DotProduct() + gp.WhiteKernel(1.0)),
    gp.RationalQuadratic() + gp.RBF(3.0),
    gp.ExpSineSquared(10.0, 20.0),
    gp.PairwiseKernel(metric="rbf", gamma=0.3),
    gp.PairwiseKernel(metric="poly", gamma=0.3, pairwise_kernels_kwargs={"degree": 2}),
    gp.PairwiseKernel(metric="laplacian", gamma=0.3),
    gp.ConstantKernel(2.0) + gp.WhiteKernel(0.1),
    gp.ConstantKernel(2.0) ** 2 * gp.RBF(),
]


@pytest.mark.parametrize("kernel", PROCESSES, ids=str)
@pytest.mark.parametrize("normalize_y", [False, True])
def test_gaussian_process_regressor(kernel, normalize_y, rows, queries):
    model = GaussianProcessRegressor(kernel, alpha=0.1, normalize_y=normalize_y, optimizer=None)
    model.fit(rows, values_of(rows))
    assert_same(as_expansion(model).evaluate(queries)[:, 0], model.predict(queries))


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("normalize_y", [False, True])
def test_gaussian_process_regressor_of_several_outputs(n_outputs, normalize_y, rows, queries):
    y = np.stack([5 + values_of(rows) ** (k + 1) for k in range(n_outputs)], axis=1)
    model = GaussianProcessRegressor(gp.RBF() + 1.0, alpha=0.1, normalize_y=normalize_y, optimizer=None).fit(rows, y)
    reading = read_model(model)
    values = reading.expansion.evaluate(queries)
    assert_same(values[:, 0] if reading.outputs.flat else values, model.predict(queries))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_gaussian_process_regressor_with_parameters_that_were_found(rows, queries):
    kernel = gp.ConstantKernel() * gp.RBF([1.0, 1.0, 1.0]) + gp.WhiteKernel()
    noise = 0.2 * np.random.default_rng(2).normal(size=len(rows))  # without it the coefficients would magnify rounding
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(rows, values_of(rows) + noise)
    expansion = as_expansion(model)
    assert type(expansion.kernel) is Gaussian
    np.testing.assert_allclose(expansion.kernel.length_scale, model.kernel_.k1.k2.length_scale)
    assert_same(expansion.evaluate(queries)[:, 0], model.predict(queries))


@pytest.mark.parametrize("kernel", [None, 2.0 * gp.RBF(0.8) + 1.0, gp.Matern([1.0, 2.0, 3.0])], ids=str)
def test_gaussian_process_classifier_gives_the_latent_mean(kernel, rows, queries):
    model = GaussianProcessClassifier(kernel, optimizer=None).fit(rows, labels_of(rows, 2))
    reading = read_model(model)
    values = reading.expansion.evaluate(queries)[:, 0]
    base = model.base_estimator_
    assert_same(values, base.kernel_(queries, base.X_train_) @ (base.y_train_ - base.pi_))
    assert reading.outputs.rule == "threshold"
    np.testing.assert_array_equal(np.where(values > 0, "bee", "ant"), model.predict(queries))


def test_kernels_are_as_simple_as_can_be(rows):
    def kernel_of(kernel):
        model = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None).fit(rows, values_of(rows))
        return as_expansion(model).kernel

    assert repr(kernel_of(4.0 * gp.RBF([1.0, 1.0, 2.0]))) == repr(Gaussian(np.array([1.0, 1.0, 2.0]), 4.0))
    assert repr(kernel_of(gp.DotProduct(2.0) ** 2)) == repr(Polynomial(2, scale=1.0, offset=4.0))
    assert repr(kernel_of(gp.RBF(2.0) ** 4)) == repr(Gaussian(1.0))
    assert isinstance(kernel_of(gp.RBF() + gp.Matern()), Sum)


# ----------------------------------------------------------------------------------------------------------- our own


@pytest.mark.parametrize(
    "model",
    [
        ExactRegressor(intercept=True, noise=0.1),
        NystromRegressor(n_basis=20, random_state=0, noise=0.1, intercept=False),
        CommitteeRegressor(n_basis=20, random_state=0),
        ReducedRankRegressor(n_basis=20, random_state=0),
        OnlineRegressor(max_basis=30),
        PseudoInputRegressor(n_basis=10, fit_points=False, fit_kernel=False, fit_noise=False, random_state=0),
        CompactRegressor(Wendland(8.0)),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("flat", [True, False])
def test_our_own_regressors(model, flat, rows, queries):
    model.fit(rows, values_of(rows) if flat else values_of(rows)[:, np.newaxis])
    reading = read_model(model)
    assert reading.outputs.flat == flat
    assert_same(reading.expansion.evaluate(queries)[:, 0], np.ravel(model.predict(queries)))


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("kind", [ExactClassifier, NystromClassifier, OnlineClassifier])
def test_our_own_classifiers(kind, n_classes, rows, queries):
    model = kind().fit(rows, labels_of(rows, n_classes))
    reading = read_model(model)
    assert reading.outputs.rule == ("threshold" if n_classes == 2 else "largest")
    assert_same(reading.expansion.evaluate(queries), model.decision_function(queries).reshape(len(queries), -1))


def test_an_expansion_is_itself():
    expansion = KernelExpansion(Gaussian(), np.zeros((1, 2)), np.ones((1, 1)), np.zeros(1))
    assert as_expansion(expansion) is expansion


def test_a_search_stands_for_its_best_estimator(rows, queries):
    search = GridSearchCV(SVR(), {"C": [1.0, 10.0]}, cv=2).fit(rows, values_of(rows))
    assert_same(as_expansion(search).evaluate(queries)[:, 0], search.predict(queries))


def test_the_expansion_is_a_copy(rows):
    model = SVR().fit(rows, values_of(rows))
    assert not np.shares_memory(as_expansion(model).points, model.support_vectors_)
    assert np.any(model.support_vectors_)
