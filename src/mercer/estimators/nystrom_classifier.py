"""Classification on a basis of few points."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin

from mercer._stored import stored
from mercer._typing import AnyArray, FloatArray
from mercer._validation import check_is_fitted
from mercer.estimators.classification import OneVsRest, decide, flat_decision
from mercer.estimators.nystrom_machine import NystromMachine
from mercer.estimators.shell import all_or_nothing, read_data

__all__ = ["NystromClassifier"]


@stored
class NystromClassifier(ClassifierMixin, NystromMachine):
    """Kernel classification on a basis of m points: least squares on ±1, one class against the rest.

    Time n·m² and memory m² per thread, however many rows; one pass over the data.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        See ``NystromRegressor``, as for the other parameters.
    n_basis : int, default=500
        Number of basis points.
    basis : str, strategy or array (m, d), default="uniform"
        How basis points are chosen.
    noise : float or "gcv", default=0.1
        λ, or how to choose it.
    intercept : bool, default=False
        Whether to add a constant that is not penalised.
    variance : {"dtc", "sor"}, default="dtc"
        Form of the variance of ``expansion_``.
    random_state : int, RandomState or None, default=None
        For the choice of the basis, and of the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : array (classes,)
    coefficients_ : array (rank_, outputs)
        One output for two classes, one per class for more.
    intercept_ : array (outputs,)
    kernel_, basis_, basis_index_, rank_, noise_, n_seen_, statistics_, expansion_
        As in ``NystromRegressor``.

    See Also
    --------
    ExactClassifier : All rows as basis.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from mercer import NystromClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = NystromClassifier(n_basis=300, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.94
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and labels y (n,); weight 2 is the same as the row twice."""
        self._validate_params()
        with all_or_nothing(self):
            encode = OneVsRest()
            self._fit(read_data(self, X, y, sample_weight, encode=encode, reset=True))
            self.classes_ = encode.classes
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add rows to what was seen; the first call must name all ``classes``, unless its labels show them all."""
        self._validate_params()
        with all_or_nothing(self):
            first = not hasattr(self, "_summary")
            encode = self._encoder(classes, first=first)
            data = read_data(self, X, y, sample_weight, encode=encode, reset=first)
            self.classes_ = encode.classes
            self._partial_fit(data)
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take rows out of what was seen; they must have been seen with these labels and weights."""
        self._validate_params()
        check_is_fitted(self)
        with all_or_nothing(self):
            encode = OneVsRest(self.classes_)
            self._forget(read_data(self, X, y, sample_weight, encode=encode, reset=False))
        return self

    @property
    def coefficients_(self) -> FloatArray:
        """Weights of the basis points, shape (rank_, outputs)."""
        check_is_fitted(self)
        return self.expansion_.coefficients

    @property
    def intercept_(self) -> FloatArray:
        """Constants, shape (outputs,)."""
        check_is_fitted(self)
        return self.expansion_.intercept

    def decision_function(self, X: Any) -> FloatArray:
        """Values of the functions, shape (n,) for two classes (positive for the second), else (n, classes)."""
        return flat_decision(self._evaluate(X))

    def predict(self, X: Any) -> AnyArray:
        """Predict the class of each row."""
        return decide(self._evaluate(X), self.classes_)

    def _encoder(self, classes: Any, *, first: bool) -> OneVsRest:
        if first:
            return OneVsRest(classes)
        if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            msg = f"classes={classes!r} differ from those of the first call, {self.classes_.tolist()}."
            raise ValueError(msg)
        return OneVsRest(self.classes_)

    def _check_mergeable(self, other: Self) -> None:
        if not np.array_equal(self.classes_, other.classes_):
            msg = f"cannot merge models with different classes: {self.classes_.tolist()}, {other.classes_.tolist()}."
            raise ValueError(msg)
        super()._check_mergeable(other)
