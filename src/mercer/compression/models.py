"""What compression makes: estimators that train another one and keep a few vectors of it.

They can be fitted, as any meta-estimator: train the inner estimator, compress it, forget it. ``compress`` makes them
fitted from the start. So cloning, grid searches, cross-validation and scikit-learn's own checks apply to them as to any
estimator, and of the large model nothing but its parameters remains.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, OutlierMixin, RegressorMixin
from sklearn.utils import get_tags

from mercer._stored import stored
from mercer._typing import AnyArray, FloatArray
from mercer._validation import check_is_fitted
from mercer.compression.compressed_model import CompressedModel
from mercer.model import Novelty, OneVsOne, OneVsRest, Regression

__all__ = ["CompressedClassifier", "CompressedOutlierDetector", "CompressedRegressor"]


@stored
class CompressedRegressor(RegressorMixin, CompressedModel):
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
    n_vectors : int or None, default=None
        Number of vectors; with ``tol`` the most that are tried. A model that has fewer is kept as it is.
    refine, offset, tol, metric, random_state, n_jobs, verbose
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
        ρ² of the small model, relative to the squared norm of the original function.
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

    @property
    def outputs_(self) -> Regression:
        """What the columns of the expansion mean."""
        check_is_fitted(self, "expansion_")
        return Regression(self._flat)

    def _adopt_outputs(self, outputs: Regression) -> None:
        self._flat = outputs.flat

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is not None:
            tags.target_tags.multi_output = get_tags(self.estimator).target_tags.multi_output
        return tags


@stored
class CompressedClassifier(ClassifierMixin, CompressedModel):
    """A kernel classifier, trained and then replaced by an expansion of a few vectors that all its outputs share.

    Parameters and what is done are as for ``CompressedRegressor``. There is no ``predict_proba``: probabilities of the
    original are found by cross-validation (``SVC``) or need a variance (``GaussianProcessClassifier``), neither of
    which a small expansion has. ``sklearn.calibration.CalibratedClassifierCV`` gives probabilities to any classifier.

    Parameters
    ----------
    estimator : estimator or None
        ``SVC``, ``NuSVC``, ``GaussianProcessClassifier`` (two classes), a classifier of mercer's, ...
    n_vectors : int or None, default=None
        Number of vectors.
    refine, offset, tol, metric, random_state, n_jobs, verbose
        As for ``compress``.

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

    def decision_function(self, X: Any) -> FloatArray:
        """Values that decide, of the shape and sign that the estimator has."""
        return self.outputs_.decision(self._values(X))

    @property
    def outputs_(self) -> OneVsRest | OneVsOne:
        """What the columns of the expansion mean."""
        check_is_fitted(self, "expansion_")
        if self.decision_rule_ == "pairs":
            return OneVsOne(self.classes_, self.decision_function_shape_, self.break_ties_)
        return OneVsRest(self.classes_)

    def _adopt_outputs(self, outputs: OneVsRest | OneVsOne) -> None:
        self.classes_, self.decision_rule_ = np.asarray(outputs.classes), outputs.rule
        self.decision_function_shape_ = getattr(outputs, "decision_function_shape", "ovr")
        self.break_ties_ = getattr(outputs, "break_ties", False)


@stored
class CompressedOutlierDetector(OutlierMixin, CompressedModel):
    """A one-class machine, trained and then replaced by an expansion of a few vectors.

    Parameters and what is done are as for ``CompressedRegressor``.

    Parameters
    ----------
    estimator : estimator or None
        ``OneClassSVM``, or a pipeline that ends in it.
    n_vectors : int or None, default=None
        Number of vectors.
    refine, offset, tol, metric, random_state, n_jobs, verbose
        As for ``compress``.

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
        return self.outputs_.scores(self._values(X))

    @property
    def outputs_(self) -> Novelty:
        """What the column of the expansion means."""
        check_is_fitted(self, "expansion_")
        return Novelty(self.offset_)

    def _adopt_outputs(self, outputs: Novelty) -> None:
        self.offset_ = outputs.offset
