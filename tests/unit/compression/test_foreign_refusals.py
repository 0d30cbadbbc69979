"""Models that have no expansion are refused, and told why."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC, SVR, OneClassSVM

from mercer import (
    NystromRegressor,
)
from mercer.compression import as_expansion


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(120, 3)) * [1.0, 2.0, 0.5] + [0.0, 1.0, -1.0]


def values_of(rows):
    return np.sin(rows[:, 0]) + 0.3 * rows[:, 1] ** 2 + rows[:, 2]


def labels_of(rows, n_classes):
    names = np.array(["ant", "bee", "cat", "dog", "eel"])[:n_classes]
    return names[np.digitize(values_of(rows), np.quantile(values_of(rows), np.arange(1, n_classes) / n_classes))]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SVC(kernel="sigmoid"), "SVC has kernel='sigmoid', which is not positive definite"),
        (SVR(kernel="poly", coef0=-1.0), "SVR has kernel='poly' with coef0=-1.0"),
        (KernelRidge(kernel="sigmoid", alpha=200.0), "KernelRidge has kernel='sigmoid'"),
        (KernelRidge(kernel="polynomial", coef0=-2, alpha=1e6), "KernelRidge has kernel='polynomial' with coef0=-2"),
        (GaussianProcessRegressor(gp.RBF() + gp.PairwiseKernel(metric="sigmoid"), alpha=200.0), "kernel='sigmoid'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_kernels_that_are_not_positive_definite_are_refused(model, message, rows):
    y = labels_of(rows, 2) if isinstance(model, SVC) else values_of(rows)
    if isinstance(model, GaussianProcessRegressor):
        model.set_params(optimizer=None)
    with pytest.raises(ValueError, match=message):
        as_expansion(model.fit(rows, y))


def test_a_degree_that_is_not_whole_is_refused(rows):
    model = KernelRidge(kernel="poly", degree=1.5, coef0=100.0).fit(rows, values_of(rows))
    with pytest.raises(ValueError, match=r"KernelRidge has kernel='poly' with degree=1\.5"):
        as_expansion(model)


@pytest.mark.parametrize("name", ["rbf", "poly"])
def test_a_negative_gamma_is_refused(name, rows):
    # scikit-learn refuses it in a model's own parameters, but not in a kernel object's.
    kernel = gp.PairwiseKernel(metric=name, gamma=-0.01, gamma_bounds="fixed")
    model = GaussianProcessRegressor(kernel, alpha=100.0, optimizer=None).fit(rows[:10], values_of(rows)[:10])
    with pytest.raises(ValueError, match=r"gamma=-0\.01"):
        as_expansion(model)


@pytest.mark.parametrize("model", [SVR(kernel="precomputed"), KernelRidge(kernel="precomputed")])
def test_kernel_matrices_are_refused(model, rows):
    with pytest.raises(ValueError, match="kernel='precomputed': its kernel is not known as a function"):
        as_expansion(model.fit(rbf_kernel(rows), values_of(rows)))


def test_processes_of_more_classes_are_refused(rows):
    model = GaussianProcessClassifier(optimizer=None).fit(rows, labels_of(rows, 3))
    with pytest.raises(ValueError, match="GaussianProcessClassifier has 3 classes"):
        as_expansion(model)


def test_processes_on_other_things_than_rows_are_refused():
    class SameLength(gp.GenericKernelMixin, gp.StationaryKernelMixin, gp.NormalizedKernelMixin, gp.Kernel):
        def __init__(self):
            pass

        def __call__(self, X, Y=None, eval_gradient=False):
            return np.array([[float(len(a) == len(b)) for b in (X if Y is None else Y)] for a in X])

    words = np.array(["a", "bb", "cc"])
    model = GaussianProcessRegressor(SameLength(), optimizer=None, alpha=1.0).fit(words, [0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="not fitted on rows of numbers"):
        as_expansion(model)


@pytest.mark.parametrize(
    "model",
    [
        SVC(),
        SVR(),
        OneClassSVM(),
        KernelRidge(),
        GaussianProcessRegressor(),
        NystromRegressor(noise=0.1, intercept=False),
    ],
)
def test_models_that_are_not_fitted_are_refused(model):
    with pytest.raises(NotFittedError):
        as_expansion(model)


@pytest.mark.parametrize("model", [Ridge(), LogisticRegression()])
def test_other_models_are_refused(model, rows):
    with pytest.raises(TypeError, match=r"is not a kernel expansion that is known here: SVC, NuSVC, .*"):
        as_expansion(model.fit(rows, rows[:, 0] > 0))


@pytest.mark.parametrize("model", [SVC, None, 3, "SVC"])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(TypeError, match="model must be a fitted estimator or a KernelExpansion"):
        as_expansion(model)
