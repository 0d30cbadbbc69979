"""scikit-learn's kernel machines as expansions: one reader per kind."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn.base import is_classifier
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

from mercer._typing import FloatArray, IntArray
from mercer._validation import check_is_fitted
from mercer.kernels import Linear
from mercer.kernels.scikit_learn import KernelPlusConstant, named_kernel, pairwise_kernel, process_kernel
from mercer.model import KernelExpansion, Novelty, OneVsOne, OneVsRest, Outputs, Regression


class Reading(NamedTuple):
    """A fitted model as an expansion, and what its columns mean."""

    expansion: KernelExpansion
    outputs: Outputs


def dense(array: Any) -> FloatArray:
    """An array in float64, also from a sparse one."""
    return np.array(array.toarray() if issparse(array) else array, dtype=np.float64)


def make_expansion(
    kernel: KernelPlusConstant, points: FloatArray, coefficients: FloatArray, intercept: Any
) -> KernelExpansion:
    """The expansion in a kernel plus a constant, which joins the intercept; coefficients (m,) or (m, p).

    Noise in the kernel (``WhiteKernel``) is no covariance between different rows, and left out.
    """
    coefficients = coefficients[:, np.newaxis] if coefficients.ndim == 1 else coefficients
    constants = intercept + kernel.constant * np.sum(coefficients, axis=0)
    function = None if kernel.kernel is None else kernel.kernel.without_noise()
    if function is None or len(points) == 0:  # a constant: any kernel will do, with no weight
        return KernelExpansion(Linear(), np.zeros((1, points.shape[1])), np.zeros((1, len(constants))), constants)
    return KernelExpansion(function, points, coefficients, constants)


def _read_machine(model: Any) -> Reading:
    owner = type(model).__name__
    if isinstance(model.kernel, str):
        points = model.support_vectors_
        # gamma="scale" and "auto" are numbers since the fit
        kernel = named_kernel(model.kernel, gamma=model._gamma, degree=model.degree, coef0=model.coef0, owner=owner)
    else:
        # With a function as kernel the machine keeps its training rows, and of the support vectors their numbers only.
        points = model._BaseLibSVM__Xfit[model.support_]
        kernel = process_kernel(model.kernel, owner=owner, n_features=np.shape(points)[1])
    if kernel is None:
        raise ValueError(f"{owner} has kernel={model.kernel!r}, which is not known here.")
    coefficients = dense(model.dual_coef_).T
    outputs: Outputs = Regression(flat=True)
    if isinstance(model, OneClassSVM):
        outputs = Novelty(float(np.ravel(model.offset_)[0]))
    elif is_classifier(model) and len(model.classes_) == 2:
        # dual_coef_ has the sign of the decision function here, which is the opposite of libsvm's
        outputs = OneVsRest(model.classes_)
    elif is_classifier(model):
        outputs = OneVsOne(model.classes_, model.decision_function_shape, bool(model.break_ties))
        coefficients = pair_coefficients(coefficients.T, np.asarray(model.n_support_))
    return Reading(make_expansion(kernel, dense(points), coefficients, dense(model.intercept_)), outputs)


def pair_coefficients(dual: FloatArray, n_support: IntArray) -> FloatArray:
    """Coefficients (m, pairs) of one function per pair of classes, (0, 1), (0, 2), …, (1, 2), …, from libsvm's table.

    The m vectors stand in the order of their classes, ``n_support`` of each. In ``dual`` (classes - 1, m), a vector of
    class i has one coefficient for each other class j, in row j, or j - 1 if j > i.
    """
    n_classes, ends = len(n_support), np.cumsum(n_support)
    of_class = [slice(end - count, end) for count, end in zip(n_support, ends, strict=True)]
    pairs = [(i, j) for i in range(n_classes) for j in range(i + 1, n_classes)]
    result = np.zeros((dual.shape[1], len(pairs)))
    for column, (i, j) in enumerate(pairs):
        result[of_class[i], column] = dual[j - 1, of_class[i]]
        result[of_class[j], column] = dual[i, of_class[j]]
    return result


def _read_kernel_ridge(model: KernelRidge) -> Reading:
    points, dual = dense(model.X_fit_), dense(model.dual_coef_)
    if callable(model.kernel):
        parameters = model.kernel_params or {}
    else:
        parameters = {"gamma": model.gamma, "degree": model.degree, "coef0": model.coef0}
    kernel = pairwise_kernel(model.kernel, parameters, n_features=points.shape[1], owner=type(model).__name__)
    return Reading(make_expansion(kernel, points, dual, 0.0), Regression(flat=dual.ndim == 1))


def _read_process_regressor(model: GaussianProcessRegressor) -> Reading:
    check_is_fitted(model, "alpha_")  # unfitted, it predicts zero and passes for fitted
    dual = dense(model.alpha_)
    points = _process_rows(model.X_train_, model)
    kernel = process_kernel(model.kernel_, owner=type(model).__name__, n_features=points.shape[1])
    # f(x) = std · Σ α_i k(x, x_i) + mean
    coefficients = dual * np.asarray(model._y_train_std)
    expansion = make_expansion(kernel, points, coefficients, model._y_train_mean)
    # A single column of targets is predicted as one dimension, whatever shape it came in.
    return Reading(expansion, Regression(flat=expansion.coefficients.shape[1] == 1))


def _read_process_classifier(model: GaussianProcessClassifier) -> Reading:
    owner = type(model).__name__
    if len(model.classes_) > 2:
        raise ValueError(
            f"{owner} has {len(model.classes_)} classes, each with a kernel of its own, and decides by probabilities: "
            "it is not one expansion. Only models of two classes can be taken."
        )
    latent = model.base_estimator_
    coefficients = dense(latent.y_train_ - latent.pi_)
    points = _process_rows(latent.X_train_, model)
    kernel = process_kernel(latent.kernel_, owner=owner, n_features=points.shape[1])
    expansion = make_expansion(kernel, points, coefficients, np.zeros(1))
    return Reading(expansion, OneVsRest(model.classes_))


def _process_rows(rows: Any, model: Any) -> FloatArray:
    if np.ndim(rows) != 2 or np.asarray(rows).dtype.kind not in "fiub":
        raise ValueError(f"{type(model).__name__} was not fitted on rows of numbers: it cannot be a kernel expansion.")
    return dense(rows)


READERS: dict[type, Callable[[Any], Reading]] = {
    **dict.fromkeys((SVC, NuSVC, SVR, NuSVR, OneClassSVM), _read_machine),
    KernelRidge: _read_kernel_ridge,
    GaussianProcessRegressor: _read_process_regressor,
    GaussianProcessClassifier: _read_process_classifier,
}
