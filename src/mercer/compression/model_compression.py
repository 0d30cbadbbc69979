"""Compress a model that is fitted: ours, or another library's."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

from mercer._typing import RandomState
from mercer._validation import check_is_fitted
from mercer.compression.foreign import read_model, read_tail, tail_start, unwrapped
from mercer.compression.foreign_models import Reading
from mercer.compression.models import (
    CompressedClassifier,
    CompressedModel,
    CompressedOutlierDetector,
    CompressedRegressor,
    CompressedTransformer,
)
from mercer.model import KernelExpansion

_MODELS: dict[str, type[CompressedModel]] = {
    model._kind: model
    for model in (CompressedRegressor, CompressedClassifier, CompressedOutlierDetector, CompressedTransformer)
}


def compress(
    model: Any,
    n_vectors: int | None = None,
    X: Any = None,
    *,
    refine: bool = True,
    offset: bool = True,
    tol: float | None = None,
    metric: str = "feature",
    random_state: RandomState = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Any:
    r"""Replace a fitted model by one with few vectors that predicts nearly the same.

    The model's function :math:`f(x) = \sum_i \alpha_i k(x, x_i) + b` is replaced by
    :math:`g(x) = \sum_{j \le m} \beta_j k(x, z_j) + c`, whose vectors z need not be among the x. They are constructed
    one after the other and then moved together so as to minimise :math:`\rho^2 = |f - g|^2` in the feature space of the
    kernel, or the squared difference of the predictions on X. The small model costs m kernel values per row.
    Cost is linear in the size of the model; the training data is not needed.

    Parameters
    ----------
    model : estimator, Pipeline or KernelExpansion
        Fitted: whatever ``as_expansion`` takes. In a pipeline any steps may come before the model.
    n_vectors : int or None, default=None
        m. If the model has no more vectors, it is kept as it is. With ``tol`` the most that are tried.
    X : array (n, d), optional
        Inputs where predictions matter, for ``metric="data"``, ``tol`` and the offset, as the model takes them (a
        pipeline's first steps are applied to them). They need no targets. None for the model's own vectors.
    refine : bool, default=True
        Whether to move all vectors together at the end. With a kernel without a gradient it must be False, and vectors
        are chosen among the model's own.
    offset : bool, default=True
        Whether to add the mean difference on X to the intercept.
    tol : float or None, default=None
        Find the smallest number of vectors whose predictions on X differ from the model's by less than ``tol`` standard
        deviations of the output.
    metric : {"feature", "data"}, default="feature"
        Distance in the feature space, or mean squared difference of the predictions on X.
    random_state : int, RandomState or None, default=None
        For the starts of the search.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress on a terminal, 2 elsewhere, too.

    Returns
    -------
    CompressedRegressor, CompressedClassifier, CompressedOutlierDetector, CompressedTransformer or CompressedPipeline
        Fitted, of the model's kind: same classes, same shape and sign of decisions, same names of features. It has
        ``expansion_``, ``distances_`` (ρ², step by step) and ``relative_distance_``. Its parameter ``estimator`` is a
        copy of the model that is not fitted: fitted to other data, the result trains such a model and compresses it. A
        pipeline comes back as a pipeline with the model's step (kernel features and what follows them) replaced, its
        other steps as they were fitted. A ``KernelExpansion`` becomes a ``CompressedRegressor`` that cannot be fitted
        again.

    Raises
    ------
    ValueError
        What ``as_expansion`` raises; and if the kernel has no gradient and ``refine`` is True.

    See Also
    --------
    as_expansion : What is compressed.
    mercer.persistence.to_c, mercer.persistence.to_onnx : Export the small model.

    References
    ----------
    T. Suttorp, C. Igel: Approximation of Gaussian process regression models after training, ESANN 2008.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.svm import SVC
    >>> from mercer.compression import compress
    >>> X, y = make_moons(2000, noise=0.2, random_state=0)
    >>> model = SVC().fit(X[:1000], y[:1000])
    >>> small = compress(model, 10, random_state=0)
    >>> print(len(model.support_), len(small.expansion_.points))
    160 10
    >>> print(f"{model.score(X[1000:], y[1000:]):.2f} {small.score(X[1000:], y[1000:]):.2f}")
    0.98 0.98
    """
    options = CompressedModel(
        None,
        n_vectors,
        refine=refine,
        offset=offset,
        tol=tol,
        metric=metric,
        random_state=random_state,
        n_jobs=n_jobs,
        verbose=verbose,
    )
    options._check_options()
    return _compress(model, X, options.get_params(deep=False))


def _compress(model: Any, inputs: Any, options: dict[str, Any]) -> Any:
    model = unwrapped(model)
    if isinstance(model, Pipeline):
        return _compress_pipeline(model, inputs, options)
    return _compress_reading(model, read_model(model), inputs, options)


def _compress_reading(model: Any, reading: Reading, inputs: Any, options: dict[str, Any]) -> CompressedModel:
    given = options | {"estimator": None if isinstance(model, KernelExpansion) else clone(model)}
    return _MODELS[reading.outputs.kind](**given)._adopt(model, reading, inputs)


def _compress_pipeline(pipeline: Pipeline, inputs: Any, options: dict[str, Any]) -> CompressedPipeline:
    check_is_fitted(pipeline)
    start = tail_start(pipeline)
    # Copies: a pipeline fits its steps in place, so fitting the result anew would spoil the model that was given.
    before, (name, last) = deepcopy(pipeline.steps[:start]), pipeline.steps[-1]
    if before and inputs is not None:
        inputs = pipeline[:start].transform(inputs)
    if start == len(pipeline.steps) - 1:
        small = _compress(last, inputs, options)
    else:
        small = _compress_reading(Pipeline(pipeline.steps[start:]), read_tail(pipeline, start), inputs, options)
    others = {key: value for key, value in pipeline.get_params(deep=False).items() if key != "steps"}
    return CompressedPipeline([*before, (name, small)], **others)


class CompressedPipeline(Pipeline):
    """A pipeline that ends in a compressed model, and can be exported as one.

    It is scikit-learn's ``Pipeline`` in every respect. Scalers before the model are folded into ``expansion_``, so that
    exported code takes the rows as they are given to the pipeline.

    Attributes
    ----------
    expansion_ : KernelExpansion
        The pipeline as one function of its rows. Missing where a step cannot be folded into the kernel;
        ``as_expansion`` says why.
    outputs_, decision_rule_, distances_, relative_distance_
        Those of the last step; ``decision_rule_`` if it is a classifier.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn.svm import SVR
    >>> from mercer.compression import compress
    >>> X = np.random.default_rng(0).uniform(0, 1000, size=(200, 1))
    >>> model = make_pipeline(StandardScaler(), SVR()).fit(X, np.sin(X[:, 0] / 200))
    >>> small = compress(model, 8, random_state=0)
    >>> [name for name, step in small.steps]
    ['standardscaler', 'svr']
    >>> bool(np.allclose(small.expansion_.evaluate(X)[:, 0], small.predict(X)))
    True
    """

    @property
    def expansion_(self) -> KernelExpansion:
        """The pipeline as one expansion."""
        try:
            return read_model(self).expansion
        except NotFittedError:
            raise
        except (TypeError, ValueError) as error:  # as properties are missing: hasattr is False, the reason is told
            raise AttributeError(str(error)) from error

    outputs_ = property(lambda self: self.steps[-1][1].outputs_)
    decision_rule_ = property(lambda self: self.steps[-1][1].decision_rule_)
    distances_ = property(lambda self: self.steps[-1][1].distances_)
    relative_distance_ = property(lambda self: self.steps[-1][1].relative_distance_)
