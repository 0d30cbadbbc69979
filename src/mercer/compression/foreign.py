"""Models of other kinds as kernel expansions.

=====================================  ===============================================  ===========================
model                                  coefficients                                     outputs
=====================================  ===============================================  ===========================
SVC, NuSVC, two classes                ``dual_coef_``                                   one, positive: second class
SVC, NuSVC, more classes               ``dual_coef_``, spread over pairs of classes     pairs i < j, positive: i
SVR, NuSVR, OneClassSVM                ``dual_coef_``                                   one
KernelRidge                            ``dual_coef_``                                   one or several
GaussianProcessRegressor               ``alpha_``, times the scale of y if normalised   one or several
GaussianProcessClassifier, 2 classes   t - π, of the Laplace approximation              one, the latent mean
a linear model on ``Nystroem``         ``normalization_.T @ coef_.T``                   as the model's
a linear model on features of ours     those of the features, ``@ coef_.T``             as the model's
=====================================  ===============================================  ===========================
"""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn import linear_model as lm
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import LinearSVC, LinearSVR

from mercer._typing import FloatArray
from mercer._validation import check_is_fitted
from mercer.compression.foreign_models import READERS, Reading, dense, make_expansion
from mercer.kernels import Kernel, Linear, Polynomial, Product, Sum
from mercer.kernels.scikit_learn import pairwise_kernel
from mercer.kernels.stationary import Stationary
from mercer.model import Components, KernelExpansion, Novelty, OneVsRest, Regression, read_outputs

# Models that predict, or decide by, coef_·φ + intercept_. Those with a link function (PoissonRegressor) do not.
_REGRESSORS = lm.LinearRegression, lm.Ridge, lm.RidgeCV, lm.BayesianRidge, lm.HuberRegressor, lm.SGDRegressor, LinearSVR
_SPARSE = lm.Lasso, lm.LassoCV, lm.ElasticNet, lm.ElasticNetCV
_CLASSIFIERS = (
    lm.LogisticRegression,
    lm.RidgeClassifier,
    lm.RidgeClassifierCV,
    lm.SGDClassifier,
    lm.Perceptron,
    LinearSVC,
)
LINEAR_MODELS = (*_REGRESSORS, *_SPARSE, *_CLASSIFIERS, lm.SGDOneClassSVM)


def as_expansion(model: Any) -> KernelExpansion:
    r"""A fitted model as a kernel expansion, :math:`f(x) = \sum_i w_i k(x, z_i) + b`.

    The expansion's values are the model's: predictions of a regressor, values of the decision function of a classifier
    or an outlier detector. For an SVC of more than two classes they are those of the pairs of classes, as with
    ``decision_function_shape="ovo"``; for a ``GaussianProcessClassifier`` they are the latent mean. Cost: a copy of the
    model's vectors.

    Parameters
    ----------
    model : estimator, Pipeline or KernelExpansion
        Fitted. One of mercer's estimators; scikit-learn's ``SVC``, ``NuSVC``, ``SVR``, ``NuSVR``, ``OneClassSVM``,
        ``KernelRidge``, ``GaussianProcessRegressor``, ``GaussianProcessClassifier`` (two classes; with more, each class
        has a kernel of its own); a pipeline that ends in one of these, or in kernel features (``Nystroem``,
        ``NystromFeatures``, ``NystromPCA``) and a linear model. Scalers before them are folded into the kernel and the
        points. A search (``GridSearchCV``) stands for its best estimator. Rows that were sparse become dense.

    Returns
    -------
    KernelExpansion
        Without a variance, unless the model is one of mercer's.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    TypeError
        If it is of another kind.
    ValueError
        If its kernel is not positive definite or not known as a function, or a step cannot be folded; the message names
        the parameter.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn.svm import SVR
    >>> from mercer.compression import as_expansion
    >>> X = np.linspace(0, 100, 50)[:, np.newaxis]
    >>> model = make_pipeline(StandardScaler(), SVR(gamma=0.5)).fit(X, np.sin(X[:, 0] / 10))
    >>> expansion = as_expansion(model)
    >>> expansion.kernel  # the length scale 1 of the scaled rows, in units of the given ones
    Gaussian(length_scale=29.45...)
    >>> float(np.max(np.abs(expansion.evaluate(X)[:, 0] - model.predict(X)))) < 1e-12
    True
    """
    return read_model(model).expansion


def read_model(model: Any) -> Reading:
    """A fitted model as an expansion, with what its outputs mean."""
    if isinstance(model, KernelExpansion):
        return Reading(model, Regression(flat=model.coefficients.shape[1] == 1))
    if isinstance(model, type) or not hasattr(model, "fit"):
        raise TypeError(f"model must be a fitted estimator or a KernelExpansion, got {model!r}.")
    check_is_fitted(model)
    model = unwrapped(model)
    if isinstance(model, Pipeline):
        return _read_pipeline(model)
    if hasattr(model, "expansion_"):
        expansion = model.expansion_
        return Reading(expansion, read_outputs(model, expansion.coefficients.shape[1]))
    for kind, read in READERS.items():
        if isinstance(model, kind):
            return read(model)
    names = ", ".join(kind.__name__ for kind in READERS)
    raise TypeError(
        f"a {type(model).__name__} is not a kernel expansion that is known here: {names}, mercer's estimators, and "
        "pipelines that end in one of these or in kernel features (Nystroem, or mercer's) and a linear model are."
    )


def unwrapped(model: Any) -> Any:
    """The model inside a search or a ``FrozenEstimator``; any other as it is."""
    if hasattr(model, "best_estimator_"):
        return unwrapped(model.best_estimator_)
    return unwrapped(model.estimator) if isinstance(model, FrozenEstimator) else model


def _read_pipeline(pipeline: Pipeline) -> Reading:
    start = tail_start(pipeline)
    reading = read_tail(pipeline, start)
    for name, step in reversed(pipeline.steps[:start]):
        if _is_nothing(step):
            continue
        affine = affine_map(step)
        if affine is None:
            raise ValueError(
                f"the step {name!r}, {step!r}, is not a scaler that can be folded into a kernel (StandardScaler, "
                "MinMaxScaler, MaxAbsScaler and RobustScaler, without clipping, can). Take the model behind it: "
                f"as_expansion(pipeline[{start - len(pipeline.steps)}:])."
            )
        reading = reading._replace(expansion=_fold(reading.expansion, *affine, name=name))
    return reading


def read_tail(pipeline: Pipeline, start: int) -> Reading:
    """The model at the end of a pipeline, in the space of what the steps before ``start`` make of the rows."""
    tail = pipeline.steps[start:]
    return read_model(tail[0][1]) if len(tail) == 1 else _read_features([step for _, step in tail])


def tail_start(pipeline: Pipeline) -> int:
    """Number of the step at which the model of a pipeline begins: the last, or features before a linear model."""
    steps = [step for _, step in pipeline.steps]
    last = len(steps) - 1
    if not isinstance(steps[last], LINEAR_MODELS):
        return last
    for index in range(last - 1, -1, -1):
        if isinstance(steps[index], Nystroem) or isinstance(getattr(steps[index], "outputs_", None), Components):
            return index
        if not (_is_nothing(steps[index]) or affine_map(steps[index])):
            break
    raise ValueError(
        f"the pipeline ends in {steps[last]!r} on features that are not those of Nystroem, or of a transformer of "
        "mercer's (scaled or not): this is not a kernel expansion."
    )


def _read_features(steps: list[Any]) -> Reading:
    """The expansion of kernel features, scalers of them, and a linear model.

    With features φ(x) = Aᵀk(x) + a, the linear model wᵀφ + b has the coefficients Aw and the intercept b + aᵀw.
    """
    features, *scalers, linear = steps
    check_is_fitted(features)
    check_is_fitted(linear)
    is_detector = isinstance(linear, lm.SGDOneClassSVM)
    weights = np.atleast_2d(dense(linear.coef_)).T  # (features, p)
    constant = -linear.offset_ if is_detector else linear.intercept_
    intercept = np.broadcast_to(np.ravel(np.asarray(constant, dtype=np.float64)), weights.shape[1:])
    for scaler in reversed(scalers):
        affine = affine_map(scaler)
        if affine is not None:  # wᵀ(aφ + c) = (aw)ᵀφ + wᵀc
            factor, shift = affine
            weights, intercept = weights * factor[:, np.newaxis], intercept + shift @ weights
    given = _features_of(features)
    intercept = intercept + given.intercept @ weights
    expansion = replace(given, coefficients=given.coefficients @ weights, intercept=intercept)
    if is_detector:
        return Reading(expansion, Novelty(float(np.ravel(linear.offset_)[0])))
    if not is_classifier(linear):
        return Reading(expansion, Regression(flat=np.ndim(linear.coef_) == 1))
    labels = getattr(linear, "_label_binarizer", None)  # of a RidgeClassifier, which alone takes several labels per row
    if labels is not None and labels.y_type_.startswith("multilabel"):
        msg = f"{type(linear).__name__} decides on several labels at once: only one label per row can be taken."
        raise ValueError(msg)
    return Reading(expansion, OneVsRest(linear.classes_))


def _features_of(step: Any) -> KernelExpansion:
    """Kernel features, one per column: of ``Nystroem``, or of a transformer of mercer's."""
    if not isinstance(step, Nystroem):
        expansion: KernelExpansion = step.expansion_
        return expansion
    parameters = dict(step.kernel_params or {})
    if isinstance(step.kernel, str):
        given = {name: getattr(step, name) for name in ("gamma", "degree", "coef0")}
        parameters |= {name: value for name, value in given.items() if value is not None}
    kernel = pairwise_kernel(step.kernel, parameters, n_features=step.n_features_in_, owner=type(step).__name__)
    normalization = dense(step.normalization_)
    return make_expansion(kernel, dense(step.components_), normalization.T, np.zeros(len(normalization)))


# ------------------------------------------------------------------------------------------------------------- scalers
#
# A stationary kernel sees differences only, (x' - z')/ℓ = (x - z)/(ℓ/a) for x' = ax + b, so a scaler before it is
# another length scale and other points. A linear kernel alone, and a polynomial one without a shift, can also be
# folded, as other points; sums and products of these with others cannot, as each would need points of its own.


def _is_nothing(step: Any) -> bool:
    """Whether a step of a pipeline passes rows through."""
    return step is None or (isinstance(step, str) and step == "passthrough")


def affine_map(step: Any) -> tuple[FloatArray, FloatArray] | None:
    """Factor and shift (d,) by which a fitted scaler makes factor · x + shift of rows; None for any other step."""
    kind = type(step)
    if kind not in (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler):
        return None
    check_is_fitted(step)
    if getattr(step, "clip", False):  # not affine beyond the range seen
        return None
    if kind is MinMaxScaler:
        return np.asarray(step.scale_, dtype=np.float64), np.asarray(step.min_, dtype=np.float64)
    scale, centre = getattr(step, "scale_", None), getattr(step, "center_", None)  # None for 1, and for 0
    if kind is StandardScaler:  # which has a mean even if it does not subtract it
        centre = step.mean_ if step.with_mean else None
    scale = np.ones(step.n_features_in_) if scale is None else np.asarray(scale, dtype=np.float64)
    centre = np.zeros(step.n_features_in_) if centre is None else np.asarray(centre, dtype=np.float64)
    return 1.0 / scale, -centre / scale


def _fold(expansion: KernelExpansion, factor: FloatArray, shift: FloatArray, *, name: str) -> KernelExpansion:
    """The expansion of the rows before the scaler, f(ax + b) as a function of x; ``name`` is the step's."""
    kernel, rescaled = expansion.kernel, _rescaled(expansion.kernel, factor)
    if rescaled is not None:
        return replace(expansion, kernel=rescaled, points=(expansion.points - shift) / factor)
    if type(kernel) is Linear:
        # Σ w_i A (ax + b)·z_i = Σ w_i A x·(a z_i) + A Σ w_i b·z_i
        constants = kernel.amplitude * (expansion.points @ shift) @ expansion.coefficients
        points, intercept = expansion.points * factor, expansion.intercept + constants
        return replace(expansion, points=points, intercept=intercept, variance=None)
    if type(kernel) is Polynomial and not np.any(shift):
        return replace(expansion, points=expansion.points * factor, variance=None)
    raise ValueError(
        f"the step {name!r} cannot be folded into the kernel {kernel!r}: only into stationary kernels, a linear "
        "kernel, and a polynomial one if the step does not shift the rows. Take the model behind it: "
        "as_expansion(pipeline[-1])."
    )


def _rescaled(kernel: Any, factor: FloatArray) -> Kernel | None:
    """A stationary kernel of rows times a factor, as a kernel of the rows; None if it is not stationary."""
    if isinstance(kernel, (Sum, Product)):
        left, right = _rescaled(kernel.left, factor), _rescaled(kernel.right, factor)
        return None if left is None or right is None else type(kernel)(left, right)
    if not isinstance(kernel, Stationary):
        return None
    if kernel.metric is not None:
        return clone(kernel).set_params(length_scale=kernel.metric.of_scaled_inputs(factor))  # type: ignore[no-any-return]
    scale = np.asarray(kernel.length_scale, dtype=np.float64) / np.abs(factor)
    # One number again, where the steps of all features are alike.
    one = bool(np.all(scale == scale.flat[0]))
    rescaled: Kernel = clone(kernel).set_params(length_scale=float(scale.flat[0]) if one else scale)
    return rescaled
