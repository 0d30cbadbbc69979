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
=====================================  ===============================================  ===========================
"""

from __future__ import annotations

from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from mercer._validation import check_is_fitted
from mercer.compression.affine import affine_map, fold
from mercer.compression.foreign_models import READERS
from mercer.compression.nystroem import is_nothing, read_nystroem, tail_start
from mercer.compression.reading import Reading
from mercer.model import KernelExpansion, Regression, read_outputs

__all__ = ["as_expansion", "read_model", "read_tail", "unwrapped"]


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
        has a kernel of its own); a pipeline that ends in one of these, or in ``Nystroem`` and a linear model. Scalers
        before them are folded into the kernel and the points. A search (``GridSearchCV``) stands for its best
        estimator. Rows that were sparse become dense.

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
        msg = f"model must be a fitted estimator or a KernelExpansion, got {model!r}."
        raise TypeError(msg)
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
    msg = (
        f"a {type(model).__name__} is not a kernel expansion that is known here: {names}, mercer's estimators, and "
        "pipelines that end in one of these or in Nystroem and a linear model are."
    )
    raise TypeError(msg)


def unwrapped(model: Any) -> Any:
    """The model inside a search or a ``FrozenEstimator``; any other as it is."""
    if hasattr(model, "best_estimator_"):
        return unwrapped(model.best_estimator_)
    return unwrapped(model.estimator) if isinstance(model, FrozenEstimator) else model


def _read_pipeline(pipeline: Pipeline) -> Reading:
    start = tail_start(pipeline)
    reading = read_tail(pipeline, start)
    for name, step in reversed(pipeline.steps[:start]):
        if is_nothing(step):
            continue
        affine = affine_map(step)
        if affine is None:
            msg = (
                f"the step {name!r}, {step!r}, is not a scaler that can be folded into a kernel (StandardScaler, "
                "MinMaxScaler, MaxAbsScaler and RobustScaler, without clipping, can). Take the model behind it: "
                f"as_expansion(pipeline[{start - len(pipeline.steps)}:])."
            )
            raise ValueError(msg)
        reading = reading._replace(expansion=fold(reading.expansion, affine, name=name))
    return reading


def read_tail(pipeline: Pipeline, start: int) -> Reading:
    """The model at the end of a pipeline, in the space of what the steps before ``start`` make of the rows."""
    tail = pipeline.steps[start:]
    return read_model(tail[0][1]) if len(tail) == 1 else read_nystroem([step for _, step in tail])
