"""Classification from a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin

from mercer._typing import AnyArray, FloatArray
from mercer._validation import check_is_fitted
from mercer.engine import SequentialLearner
from mercer.estimators.classification import OneVsRest, decide, flat_decision
from mercer.estimators.online_machine import OnlineMachine, State, has_no_weight, one_at_a_time
from mercer.estimators.shell import Data, make_threads, read_data, read_rows

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
        self._check_choices()
        with one_at_a_time(self):
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
        with one_at_a_time(self):
            first = not hasattr(self, "_state")
            encode = OneVsRest(classes) if first else self._later(classes)
            if not first and has_no_weight(sample_weight, y):
                read_data(self, X, y, None, encode=encode, reset=False)  # checked, and left out
                return self
            data = read_data(self, X, y, sample_weight, encode=encode, reset=first)
            if first:
                self.classes_ = encode.classes
                self._start(data)
            self._learn(self._with_hidden(data))
        return self

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn one row given as a mapping from features to numbers, as river has it; w is its weight.

        The first row names the features; later a missing one is 0, and others are ignored. Classes may appear at any
        time: to a new one, the rows so far are rows of other classes. A kernel whose length scale is a median must be
        given another: there are no rows to find it from.
        """
        if w == 0:
            return
        if y is None or y != y:  # noqa: PLR0124  NaN is not itself
            msg = f"y is {y!r}, which is not a label."
            raise ValueError(msg)
        with one_at_a_time(self):
            if not hasattr(self, "_state"):
                self._begin_with(x, y)
            elif y not in self.classes_:
                self._meet(y)
            columns = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
            target = np.where(columns == y, 1.0, -1.0) if len(self.classes_) > 1 else np.array([-1.0])
            if self._learner.recursion.rules.hidden:
                target = np.append(target, 1.0)
            self._learn_one(self._one(x, first=False), target[np.newaxis], float(w))

    def predict_one(self, x: Mapping[Any, Any]) -> Any:
        """Predict the class of one row; None before anything was learned."""
        if not hasattr(self, "_state"):
            return None
        if len(self.classes_) == 1:
            return self.classes_[0].item()
        return decide(self._evaluate_one(self._one(x, first=False))[np.newaxis], self.classes_)[0].item()

    def refit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Solve for the coefficients exactly on these rows, with the dictionary as it is."""
        self._validate_params()
        check_is_fitted(self)
        with one_at_a_time(self):
            data = read_data(self, X, y, sample_weight, encode=OneVsRest(self.classes_), reset=False)
            self._refit(self._with_hidden(data))
        return self

    @property
    def coefficients_(self) -> FloatArray:
        """Weights of the functions, shape (m, outputs)."""
        check_is_fitted(self)
        return self._state.mean.coefficients

    @property
    def intercept_(self) -> FloatArray:
        """Constants, shape (outputs,)."""
        check_is_fitted(self)
        return self._state.mean.intercept

    def decision_function(self, X: Any) -> FloatArray:
        """Values of the functions, shape (n,) for two classes (positive for the second), else (n, classes)."""
        return flat_decision(self._evaluate(X))

    def predict(self, X: Any) -> AnyArray:
        """Predict the class of each row."""
        return decide(self._evaluate(X), self.classes_)

    def _evaluate(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        if len(self.classes_) == 1:
            msg = f"only one class was seen: {self.classes_.tolist()}."
            raise ValueError(msg)
        return self._state.mean.evaluate(read_rows(self, X, reset=False), executor=make_threads(self))

    def _begin_with(self, x: Mapping[Any, Any], y: Any) -> None:
        """Start with one class: one output as if for a second one, all -1, and a hidden one, all 1."""
        self._validate_params()
        row = self._one(x, first=True)
        self.n_features_in_ = row.shape[1]
        self._note_names()
        self.classes_ = np.array([y])
        kernel = self._check_length_scale().resolve(row[:0])
        rules = replace(self._rules(), hidden=1)
        self._state = State(SequentialLearner(kernel, rules, row.shape[1], 2))

    def _meet(self, label: Any) -> None:
        """Make room for a class: the rows so far were none of it, and the hidden output knows what they would give."""
        learner = self._learner.copy()
        recursion = learner.recursion
        if not recursion.rules.hidden:
            msg = f"{label!r} is not among the classes {self.classes_.tolist()} that the model was fitted to."
            raise ValueError(msg)
        *columns, ones = recursion.coefficients.T
        classes = np.unique(np.append(self.classes_, label))
        if classes.dtype.kind != self.classes_.dtype.kind:
            msg = f"{label!r} is of another type than the classes so far, {self.classes_.tolist()}."
            raise ValueError(msg)
        place = int(np.flatnonzero(classes == label)[0])
        if len(classes) == 2:  # one output, positive for the second class
            columns = [columns[0] if place == 1 else -columns[0]]
        else:
            if len(classes) == 3:
                columns, recursion.cost = [-columns[0], columns[0]], 2 * recursion.cost
            columns.insert(place, -ones)
            recursion.cost += recursion.hidden_cost
        recursion.coefficients = np.ascontiguousarray(np.column_stack([*columns, ones]))
        self.classes_, self._state = classes, State(learner, self._state.history)

    def _with_hidden(self, data: Data) -> Data:
        """The data with targets for the hidden output, if there is one."""
        if not self._learner.recursion.rules.hidden:
            return data
        return replace(data, targets=np.column_stack([data.targets, np.ones(len(data.targets))]))

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
