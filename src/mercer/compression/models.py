"""What compression makes: estimators that train another one, keep a few vectors of it, and forget it.

``compress`` makes them fitted from the start. Cloning, grid searches, cross-validation and scikit-learn's own checks
apply to them as to any estimator, and of the large model nothing but its parameters remains.
"""

from copy import copy
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    OutlierMixin,
    RegressorMixin,
    TransformerMixin,
    clone,
)
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_estimator, need
from mercer._typing import AnyArray, FloatArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted, check_table, parameters
from mercer.compression.foreign import read_model
from mercer.compression.foreign_models import Reading
from mercer.compression.reduced_set import reduce_expansion
from mercer.engine import Threads
from mercer.model import Components, KernelExpansion, Novelty, OneVsOne, OneVsRest, Outputs, Probabilities, Regression

_WORDS = {
    "regressor": "regressor",
    "classifier": "classifier",
    "outlier_detector": "detector of outliers",
    "transformer": "transformer",
}


@parameters
class CompressedModel(BaseEstimator):
    """What all kinds of compressed models share."""

    estimator: Any = field(kw_only=False)
    n_vectors: int | None = field(default=None, kw_only=False)
    refine: bool = True
    offset: bool = True
    tol: float | None = None
    metric: str = "feature"
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": "no_validation",  # by fit, which alone needs it
        "n_vectors": [Interval(Integral, 1, None, closed="left"), None],
        "refine": ["boolean"],
        "offset": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="neither"), None],
        "metric": [StrOptions({"feature", "data"})],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }
    _kind: ClassVar[str]

    expansion_: KernelExpansion = field(init=False)
    distances_: FloatArray = field(init=False)
    differences_: FloatArray = field(init=False)
    relative_distance_: float = field(init=False)
    n_features_in_: int = field(init=False)

    def check_stored(self) -> None:
        """Refuse outputs and features that are not those of the expansion."""
        need(self.estimator is None or hasattr(self.estimator, "fit"), "estimator is none.")
        (_, n_features), n_outputs = self.expansion_.points.shape, self.expansion_.coefficients.shape[1]
        check_estimator(self, n_outputs=n_outputs, n_features=n_features)

    def fit(self, X: Any, y: Any = None, **fit_params: Any) -> Self:
        """Fit a copy of the estimator to X and y, with ``fit_params``, and compress it."""
        self._check_options()
        if not hasattr(self.estimator, "fit"):
            raise TypeError(
                f"estimator must be an estimator to be fitted, got {self.estimator!r}; a model that was compressed "
                "from an expansion has none."
            )
        if not issparse(X):  # else it is the estimator's to take or to refuse
            check_table(clone(self), X, reset=True)  # on a copy: a fit that fails leaves no traces
        fitted = clone(self.estimator).fit(X, y, **fit_params)
        return self._adopt(fitted, read_model(fitted), X)

    @property
    def outputs_(self) -> Outputs:
        """What the columns of the expansion mean."""
        check_is_fitted(self, "expansion_")
        return self._outputs()

    def _outputs(self) -> Outputs:
        raise NotImplementedError

    def _check_options(self) -> None:
        """Refuse parameters that are out of range, before a large model is fitted or read."""
        self._validate_params()
        if self.n_vectors is True:  # bool is a subclass of int
            raise ValueError("n_vectors must be a whole number of at least 1, got True.")
        if self.n_vectors is None and self.tol is None:
            raise ValueError("n_vectors or tol must be given: how many vectors, or how close they must come.")

    def _adopt(self, model: Any, reading: Reading, inputs: Any) -> Self:
        """Become the compressed version of a fitted model, as it was read."""
        if reading.outputs.kind != self._kind:
            raise TypeError(f"{type(self).__name__} is for a {_WORDS[self._kind]}, got {model!r}.")
        new = copy(self)  # what fails leaves no traces
        new.__dict__.pop("feature_names_in_", None)
        new.n_features_in_ = reading.expansion.points.shape[1]
        if hasattr(model, "feature_names_in_"):
            new.feature_names_in_ = model.feature_names_in_
        if inputs is not None:
            inputs = check_table(new, inputs.toarray() if issparse(inputs) else inputs, reset=False)
        options = {name: value for name, value in self.get_params(deep=False).items() if name != "estimator"}
        reduction = reduce_expansion(reading.expansion, inputs=inputs, **options)
        new._adopt_outputs(reading.outputs)
        new.expansion_, new.relative_distance_ = reduction.expansion, reduction.relative_distance
        new.distances_, new.differences_ = reduction.distances, reduction.differences
        self.__dict__ = new.__dict__
        return self

    def _adopt_outputs(self, outputs: Any) -> None:
        raise NotImplementedError

    def _values(self, X: Any) -> FloatArray:
        """Of the expansion, for ``outputs_``, which has checked that the model is fitted."""
        table: Any = check_table(self, X, reset=False)
        return self.expansion_.evaluate(table, executor=Threads(self.n_jobs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is not None:
            inner = get_tags(self.estimator)
            tags.input_tags.sparse = inner.input_tags.sparse
            tags.target_tags.multi_output = self._kind == "regressor" and inner.target_tags.multi_output
        return tags


class CompressedPredictor(CompressedModel):
    """What those that predict share."""

    def predict(self, X: Any) -> AnyArray:
        """Predict as the estimator does: targets (n,) or (n, p), classes, or 1 and -1 (an outlier).

        Targets are float32 for float32 rows. Sparse rows are made dense, a batch at a time.
        """
        return self.outputs_.predict(self._values(X))


@stored
class CompressedRegressor(RegressorMixin, CompressedPredictor):
    r"""A kernel regressor, trained and then replaced by an expansion of a few vectors.

    The function f that the estimator has learned is replaced by :math:`\sum_{j \le m} \beta_j k(x, z_j) + b`, with
    vectors z and coefficients β that minimise the distance of the two, in the feature space of the kernel or on given
    inputs. Prediction costs m kernel values per row, whatever the size of the original model. ``predict`` has no
    ``return_std``: what is left is the mean alone.

    Parameters
    ----------
    estimator : estimator or None
        Of a kind that ``as_expansion`` knows: ``SVR``, ``KernelRidge``, ``GaussianProcessRegressor``, a regressor of
        mercer's, or a pipeline of scalers that can be folded and one of these. None only in what ``compress`` makes of
        an expansion, and cannot be fitted.
    n_vectors, refine, offset, tol, metric, random_state, n_jobs, verbose
        As for ``compress``; the inputs for ``tol`` and ``metric="data"`` are the training rows.

    Attributes
    ----------
    expansion_ : KernelExpansion
        The small model.
    distances_ : array
        Squared distance ρ² in feature space after each new vector and, with ``metric="feature"``, after each step of
        the refinement.
    differences_ : array
        With ``metric="data"``, the mean squared difference on the inputs after each step of the refinement; else empty.
    relative_distance_ : float
        ρ² of the small model, relative to the squared norm of the original function; of several outputs the mean of
        these ratios, without outputs that are zero.
    n_features_in_ : int
    feature_names_in_ : array (n_features_in_,)
        Where the estimator was fitted on rows with named columns.

    See Also
    --------
    compress : The same for a model that is fitted already.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> from mercer.compression import CompressedRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> full = KernelRidge(kernel="rbf", alpha=0.1).fit(X, y)
    >>> small = CompressedRegressor(full, n_vectors=8, random_state=0).fit(X, y)  # a copy of it is fitted
    >>> print(len(full.X_fit_), len(small.expansion_.points))
    500 8
    >>> print(f"{full.score(X, y):.2f} {small.score(X, y):.2f}")
    1.00 1.00
    """

    _kind = "regressor"
    _flat: bool

    def _outputs(self) -> Regression:
        return Regression(self._flat)

    def _adopt_outputs(self, outputs: Regression) -> None:
        self._flat = outputs.flat


def has_probabilities(model: Any) -> bool:
    """Refuse, with the reason, a model that knows no probabilities, or will not when it is fitted."""
    if hasattr(model, "expansion_"):
        known = getattr(model, "probabilities_", None) is not None
    else:  # only mercer's estimators have them in their outputs
        known = hasattr(type(model.estimator), "outputs_") and hasattr(model.estimator, "predict_proba")
    if not known:
        raise AttributeError(
            "the classifier that was compressed has no probabilities that are a function of its values; wrap the "
            "compressed one in sklearn.calibration.CalibratedClassifierCV."
        )
    return True


@stored
class CompressedClassifier(ClassifierMixin, CompressedPredictor):
    """A kernel classifier, trained and then replaced by an expansion of a few vectors that all its outputs share.

    ``predict_proba`` is there if a classifier of mercer's is compressed: values of the small expansion go through the
    same sigmoid or softmax as those of the original. Other classifiers' probabilities are found by cross-validation
    (``SVC``) or need a variance (``GaussianProcessClassifier``), neither of which a small expansion has;
    ``sklearn.calibration.CalibratedClassifierCV`` gives probabilities to any classifier.

    Parameters
    ----------
    estimator : estimator or None
        ``SVC``, ``NuSVC``, ``GaussianProcessClassifier`` (two classes), a classifier of mercer's, ...
    n_vectors, refine, offset, tol, metric, random_state, n_jobs, verbose
        As for ``CompressedRegressor``.

    Attributes
    ----------
    classes_ : array
    decision_rule_ : {"threshold", "largest", "pairs"}
        How outputs of ``expansion_`` decide: one, positive for the second of two classes; one per class, the largest;
        one per pair of classes i < j, positive for i, the most votes, as libsvm does it.
    decision_function_shape_ : {"ovr", "ovo"}
        For pairs: whether ``decision_function`` has one column per class or per pair, as the ``SVC`` had it.
    break_ties_ : bool
        For pairs: whether equal votes are decided by the values, as the ``SVC`` did it (exported models do not).
    probabilities_ : Probabilities or None
        What makes probabilities of values, as the estimator had it.
    expansion_, distances_, differences_, relative_distance_, n_features_in_, feature_names_in_
        As for ``CompressedRegressor``.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.svm import SVC
    >>> from mercer.compression import CompressedClassifier
    >>> X, y = make_moons(500, noise=0.2, random_state=0)
    >>> full, small = SVC().fit(X, y), CompressedClassifier(SVC(), n_vectors=8, random_state=0).fit(X, y)
    >>> print(len(full.support_), len(small.expansion_.points))
    93 8
    >>> print(f"{full.score(X, y):.2f} {small.score(X, y):.2f}")
    0.96 0.96
    """

    _kind = "classifier"
    classes_: AnyArray
    decision_rule_: str
    decision_function_shape_: str
    break_ties_: bool
    probabilities_: Sometimes[Probabilities | None]

    def check_stored(self) -> None:
        """Refuse probabilities of other outputs, too."""
        super().check_stored()
        given, n_outputs = getattr(self, "probabilities_", None), self.expansion_.coefficients.shape[1]
        fits = given is None or (n_outputs > 0 and self.decision_rule_ != "pairs")
        fits = fits and (given is None or given.offsets is None or len(given.offsets) == n_outputs)
        need(fits, "probabilities of a model are not those of its outputs.")

    def decision_function(self, X: Any) -> FloatArray:
        """Values that decide, of the shape and sign that the estimator has."""
        return self.outputs_.decision(self._values(X))

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, (n, classes), in the order of ``classes_``."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    @available_if(has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Logarithms of ``predict_proba``, finite where a probability is too small for a number."""
        check_is_fitted(self, "expansion_")
        probabilities: Any = self.probabilities_  # which has_probabilities has seen
        return np.asarray(probabilities.logarithms(self._values(X)))

    def _outputs(self) -> OneVsRest | OneVsOne:
        if self.decision_rule_ == "pairs":
            return OneVsOne(self.classes_, self.decision_function_shape_, self.break_ties_)
        return OneVsRest(self.classes_, getattr(self, "probabilities_", None))

    def _adopt_outputs(self, outputs: OneVsRest | OneVsOne) -> None:
        self.classes_, self.decision_rule_ = np.asarray(outputs.classes), outputs.rule
        self.decision_function_shape_ = getattr(outputs, "decision_function_shape", "ovr")
        self.break_ties_ = getattr(outputs, "break_ties", False)
        self.probabilities_ = getattr(outputs, "probabilities", None)


@stored
class CompressedOutlierDetector(OutlierMixin, CompressedPredictor):
    """A one-class machine, trained and then replaced by an expansion of a few vectors.

    Parameters
    ----------
    estimator : estimator or None
        ``OneClassSVM``, or a pipeline that ends in it.
    n_vectors, refine, offset, tol, metric, random_state, n_jobs, verbose
        As for ``CompressedRegressor``.

    Attributes
    ----------
    offset_ : float
        What ``score_samples`` is above ``decision_function``, as the estimator had it.
    expansion_, distances_, differences_, relative_distance_, n_features_in_, feature_names_in_
        As for ``CompressedRegressor``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.svm import OneClassSVM
    >>> from mercer.compression import CompressedOutlierDetector
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> small = CompressedOutlierDetector(OneClassSVM(nu=0.1), n_vectors=8, random_state=0).fit(X)
    >>> small.predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    """

    _kind = "outlier_detector"
    offset_: float

    def decision_function(self, X: Any) -> FloatArray:
        """Positive for rows like those seen, negative for others."""
        return self.outputs_.decision(self._values(X))

    def score_samples(self, X: Any) -> FloatArray:
        """The decision function without its offset."""
        return self.decision_function(X) + self.offset_

    def _outputs(self) -> Novelty:
        return Novelty(self.offset_)

    def _adopt_outputs(self, outputs: Novelty) -> None:
        self.offset_ = outputs.offset


@stored
class CompressedTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CompressedModel):
    """A transformer, trained and then replaced by an expansion of a few vectors that all its components share.

    Parameters
    ----------
    estimator : estimator or None
        ``NystromPCA``, or a pipeline that ends in it.
    n_vectors, refine, offset, tol, metric, random_state, n_jobs, verbose
        As for ``CompressedRegressor``.

    Attributes
    ----------
    expansion_, distances_, differences_, relative_distance_, n_features_in_, feature_names_in_
        As for ``CompressedRegressor``.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromPCA
    >>> from mercer.compression import compress
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> full = NystromPCA(n_components=3, n_basis=200, random_state=0).fit(X)
    >>> small = compress(full, n_vectors=20, random_state=0)
    >>> bool(np.max(np.abs(small.transform(X) - full.transform(X))) < 0.05)
    True
    """

    _kind = "transformer"
    _sklearn_output_config: Sometimes[dict[str, str]]  # of set_output

    def transform(self, X: Any) -> FloatArray:
        """Components of rows, as the estimator gives them; float32 for float32 rows."""
        return self.outputs_.decision(self._values(X))

    @property
    def _n_features_out(self) -> int:
        return len(self.expansion_.intercept)

    def _outputs(self) -> Components:
        return Components()

    def _adopt_outputs(self, outputs: Components) -> None:
        """There is nothing to adopt."""
