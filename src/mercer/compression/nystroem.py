"""Linear models on scikit-learn's ``Nystroem`` features as expansions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import (
    BayesianRidge,
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    Perceptron,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    SGDClassifier,
    SGDOneClassSVM,
    SGDRegressor,
)
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC, LinearSVR

from mercer._typing import FloatArray
from mercer._validation import check_is_fitted
from mercer.compression.affine import affine_map
from mercer.compression.foreign_kernels import KernelPlusConstant, pairwise_kernel
from mercer.compression.reading import Reading, dense, make_expansion
from mercer.model import Novelty, OneVsRest, Regression

__all__ = ["is_nothing", "read_nystroem", "tail_start"]

# Models that predict, or decide by, coef_·φ + intercept_. Those with a link function (PoissonRegressor) do not.
LINEAR_REGRESSORS = (
    Ridge, RidgeCV, LinearRegression, Lasso, LassoCV, ElasticNet, ElasticNetCV, BayesianRidge, HuberRegressor,
    SGDRegressor, LinearSVR,
)  # fmt: skip
LINEAR_CLASSIFIERS = (LogisticRegression, RidgeClassifier, RidgeClassifierCV, LinearSVC, SGDClassifier, Perceptron)
LINEAR_MODELS = (*LINEAR_REGRESSORS, *LINEAR_CLASSIFIERS, SGDOneClassSVM)


def tail_start(pipeline: Pipeline) -> int:
    """Number of the step at which the model of a pipeline begins: the last, or ``Nystroem`` before a linear model."""
    steps = [step for _, step in pipeline.steps]
    last = len(steps) - 1
    if not isinstance(steps[last], LINEAR_MODELS):
        return last
    for index in range(last - 1, -1, -1):
        if isinstance(steps[index], Nystroem):
            return index
        if not (is_nothing(steps[index]) or affine_map(steps[index])):
            break
    msg = (
        f"the pipeline ends in {steps[last]!r} on features that are not those of Nystroem (scaled or not): this is not "
        "a kernel expansion."
    )
    raise ValueError(msg)


def read_nystroem(steps: Sequence[Any]) -> Reading:
    """The expansion of ``Nystroem``, scalers of its features, and a linear model.

    With features φ(x) = S k(x), S the ``normalization_``, the linear model wᵀφ + b has the coefficients Sᵀw.
    """
    features, *scalers, linear = steps
    check_is_fitted(features)
    weights, intercept = _linear_weights(linear)  # (features, p), (p,)
    for scaler in reversed(scalers):
        affine = None if is_nothing(scaler) else affine_map(scaler)
        if affine is not None:  # wᵀ(aφ + c) = (aw)ᵀφ + wᵀc
            weights, intercept = weights * affine.factor[:, np.newaxis], intercept + affine.shift @ weights
    coefficients = dense(features.normalization_).T @ weights
    expansion = make_expansion(_features_kernel(features), dense(features.components_), coefficients, intercept)
    if isinstance(linear, SGDOneClassSVM):
        return Reading(expansion, Novelty(float(np.ravel(linear.offset_)[0])))
    if is_classifier(linear):
        return Reading(expansion, OneVsRest(_classes(linear)))
    return Reading(expansion, Regression(flat=np.ndim(linear.coef_) == 1))


def is_nothing(step: Any) -> bool:
    """Whether a step of a pipeline passes rows through."""
    return step is None or (isinstance(step, str) and step == "passthrough")


def _features_kernel(features: Nystroem) -> KernelPlusConstant:
    owner = type(features).__name__
    parameters = dict(features.kernel_params or {})
    if isinstance(features.kernel, str):
        given = {name: getattr(features, name) for name in ("gamma", "degree", "coef0")}
        parameters |= {name: value for name, value in given.items() if value is not None}
    return pairwise_kernel(features.kernel, parameters, n_features=features.n_features_in_, owner=owner)


def _linear_weights(linear: Any) -> tuple[FloatArray, FloatArray]:
    check_is_fitted(linear)
    weights = np.atleast_2d(dense(linear.coef_)).T
    constant = -linear.offset_ if isinstance(linear, SGDOneClassSVM) else linear.intercept_
    return weights, np.broadcast_to(np.ravel(np.asarray(constant, dtype=np.float64)), weights.shape[1:])


def _classes(linear: Any) -> Any:
    labels = getattr(linear, "_label_binarizer", None)  # of a RidgeClassifier, which alone takes several labels per row
    if labels is not None and labels.y_type_.startswith("multilabel"):
        msg = f"{type(linear).__name__} decides on several labels at once: only one label per row can be taken."
        raise ValueError(msg)
    return linear.classes_
