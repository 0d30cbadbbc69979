"""Classification from a stream."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin

from mercer._typing import AnyArray, FloatArray
from mercer._validation import check_is_fitted
from mercer.estimators.classification import OneVsRest, decide, flat_decision
from mercer.estimators.online_machine import OnlineMachine
from mercer.estimators.shell import all_or_nothing, make_threads, read_data, read_rows

__all__ = ["OnlineClassifier"]


class OnlineClassifier(ClassifierMixin, OnlineMachine):
    """Sequential LS-SVM classification: least squares on ±1, one class against the rest, one dictionary for all.

    See ``OnlineRegressor`` for the method, the parameters and the attributes; here there is also ``classes_``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from mercer import OnlineClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = OnlineClassifier(max_basis=200, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.9
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn rows X (n, d) and labels y (n,) in their order, from the beginning."""
        self._validate_params()
        with all_or_nothing(self):
            encode = OneVsRest()
            data = read_data(self, X, y, sample_weight, encode=encode, reset=True)
            self.classes_ = encode.classes
            self._start(data)
            self._learn(data)
            if self.second_pass:
                self._refit(data)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn more rows; the first call must name all ``classes``, unless its labels show them all."""
        self._validate_params()
        with all_or_nothing(self):
            first = not hasattr(self, "_state")
            encode = OneVsRest(classes) if first else self._later(classes)
            data = read_data(self, X, y, sample_weight, encode=encode, reset=first)
            if first:
                self.classes_ = encode.classes
                self._start(data)
            self._learn(data)
        return self

    def refit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Solve for the coefficients exactly on these rows, with the dictionary as it is."""
        self._validate_params()
        check_is_fitted(self)
        with all_or_nothing(self):
            self._refit(read_data(self, X, y, sample_weight, encode=OneVsRest(self.classes_), reset=False))
        return self

    @property
    def coefficients_(self) -> FloatArray:
        """Weights of the functions, shape (m, outputs)."""
        return self.expansion_.coefficients

    @property
    def intercept_(self) -> FloatArray:
        """Constants, shape (outputs,)."""
        return self.expansion_.intercept

    def decision_function(self, X: Any) -> FloatArray:
        """Values of the functions, shape (n,) for two classes (positive for the second), else (n, classes)."""
        return flat_decision(self._evaluate(X))

    def predict(self, X: Any) -> AnyArray:
        """Predict the class of each row."""
        return decide(self._evaluate(X), self.classes_)

    def _evaluate(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        return self.expansion_.evaluate(read_rows(self, X, reset=False), executor=make_threads(self))

    def _check_mergeable(self, other: Self) -> None:
        if not np.array_equal(self.classes_, other.classes_):
            msg = f"cannot merge models with different classes: {self.classes_.tolist()}, {other.classes_.tolist()}."
            raise ValueError(msg)
        super()._check_mergeable(other)

    def _later(self, classes: Any) -> OneVsRest:
        if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            msg = f"classes={classes!r} differ from those of the first call, {self.classes_.tolist()}."
            raise ValueError(msg)
        return OneVsRest(self.classes_)
