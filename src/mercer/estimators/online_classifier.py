"""Classification from a stream."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray, IntArray
from mercer._validation import parameters
from mercer.engine import ArrayTable
from mercer.estimators.classification import CLASS_WEIGHT, KernelClassifier
from mercer.estimators.online_machine import OnlineMachine
from mercer.estimators.shell import all_or_nothing
from mercer.model import Calibration, Probabilities

# What probabilities were fitted to, and they. Not attributes: a copy or an archive does not need them.
_recent: WeakKeyDictionary["OnlineClassifier", tuple[bytes, Probabilities]] = WeakKeyDictionary()
_LEAST = 1e-3  # of a probability before they are made to sum to one
_STEPS = 4  # leading bits of a number of rows that count: steps are an eighth to a sixteenth of it


@stored
@parameters
class OnlineClassifier(KernelClassifier, OnlineMachine):
    """Sequential LS-SVM classification: least squares on ±1, one class against the rest, one dictionary for all.

    See ``OnlineRegressor`` for the method, the parameters and the attributes; here there are also ``classes_``,
    and the parameter ``class_weight`` of ``NystromClassifier``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from mercer import OnlineClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = OnlineClassifier(max_basis=200, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.9
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {**OnlineMachine._parameter_constraints, **CLASS_WEIGHT}
    _by_class: ClassVar[bool] = True

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn more rows; the first call must name all ``classes``, unless all occur in its labels."""
        self._refuse_balanced()
        return self._add_rows(X, y, sample_weight, classes)

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn one row given as a mapping from features to numbers, as river has it; w is its weight.

        The first row names the features; later a missing one is 0, and others are ignored. Classes may appear at any
        time: for a new one, all earlier rows count as rows of other classes.
        """
        self._refuse_balanced()
        if isinstance(self.class_weight, Mapping):
            w = w * self.class_weight.get(y, 1.0)
        if w == 0:
            return
        if y is None or y != y:  # noqa: PLR0124  NaN is not itself
            raise ValueError(f"y is {y!r}, which is not a label.")
        with all_or_nothing(self):
            if not hasattr(self, "_state"):
                # One class: an output as if for a second one, all -1, and a hidden one, all 1.
                self._begin_with(x, n_outputs=2, hidden=1)
                self.classes_ = np.array([y])
            elif y not in self.classes_:
                self._meet(y)
            coding = self._coding
            target = coding.columns(coding.codes(np.array([y])))
            if self._learner.recursion.rules.hidden:
                target = np.append(target, [[1.0]], axis=1)
            self._learn_one(self._one(x), target, float(w))

    def predict_one(self, x: Mapping[Any, Any]) -> Any:
        """Predict the class of one row; None before anything was learned."""
        if not hasattr(self, "_state"):
            return None
        if len(self.classes_) == 1:
            return self.classes_[0].item()
        return self._coding.predict(self._evaluate_one(self._one(x))[np.newaxis])[0].item()

    def predict_proba_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        """Probabilities of the classes of one row, those of ``predict_proba``; empty before anything was learned.

        While no row was predicted before it was learned (and for models of earlier versions), they come from the values
        themselves, as least squares on ±1 estimate 2P - 1.
        """
        if not hasattr(self, "_state"):
            return {}
        labels = [label.item() for label in self.classes_]
        if len(labels) == 1:
            return {labels[0]: 1.0}
        values, fitted = self._evaluate_one(self._one(x)), self._probabilities()
        if fitted is not None:
            return dict(zip(labels, fitted.of(values[np.newaxis])[0].tolist(), strict=True))
        values = np.array([-values[0], values[0]]) if len(labels) == 2 else values
        shares = np.clip((1.0 + values) / 2.0, _LEAST, None)
        return dict(zip(labels, (shares / np.sum(shares)).tolist(), strict=True))

    def _calibration(self) -> Calibration | None:
        """Of the rows up to a number that grows in steps of an eighth: probabilities are not fitted to each new row."""
        n_seen = self._learner.recursion.n_seen
        step = 1 << max(n_seen.bit_length() - _STEPS, 0)
        return self._state.calibration(by_class=self._by_class, before=n_seen - n_seen % step)

    def _fit_probabilities(self, values: FloatArray, codes: IntArray, weights: FloatArray) -> Probabilities:
        """Fitted again when the sample of rows has changed: of many rows few enter it."""
        sample = b"".join(each.tobytes() for each in (np.int64(len(self.classes_)), values, codes, weights))
        before = _recent.get(self)
        if before is None or before[0] != sample:
            before = _recent[self] = sample, super()._fit_probabilities(values, codes, weights)
        return before[1]

    def _read(self, X: Any, y: Any, sample_weight: Any, *, first: bool, classes: Any = None) -> ArrayTable:
        """The table, with targets for the hidden output if there is one."""
        table = super()._read(X, y, sample_weight, first=first, classes=classes)
        if first or not self._learner.recursion.rules.hidden:
            return table
        return replace(table, labels=np.column_stack([table.targets, np.ones(table.n_rows)]), coding=None)

    def _evaluate(self, X: Any) -> FloatArray:
        if len(self.classes_) == 1:
            raise ValueError(f"only one class was seen: {self.classes_.tolist()}.")
        return super()._evaluate(X)

    def _meet(self, label: Any) -> None:
        """Make room for a class: the rows so far were none of it, and the hidden output knows what they would give."""
        learner = self._learner.copy()
        recursion = learner.recursion
        if not recursion.rules.hidden:
            msg = f"{label!r} is not among the classes {self.classes_.tolist()} that the model was fitted to."
            raise ValueError(msg)
        classes = np.unique(np.append(self.classes_, label))
        if classes.dtype.kind != self.classes_.dtype.kind:
            raise ValueError(f"{label!r} is of another type than the classes so far, {self.classes_.tolist()}.")
        place = int(np.flatnonzero(classes == label)[0])
        *columns, ones = np.eye(learner.n_outputs)
        if len(classes) == 2:  # one output, positive for the second class
            columns = [columns[0] if place == 1 else -columns[0]]
        else:
            if len(classes) == 3:
                columns, recursion.cost = [-columns[0], columns[0]], 2 * recursion.cost
            columns.insert(place, -ones)
            recursion.cost += recursion.hidden_cost
        signs = np.column_stack([*columns, ones])
        learner.map_outputs(signs)
        first = self._state.first
        first = None if first is None else replace(first, targets=first.targets @ signs)
        self.classes_, self._state = classes, replace(self._state, learner=learner, first=first, left_out=None)
