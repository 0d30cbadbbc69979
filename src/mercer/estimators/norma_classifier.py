"""Classification by stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer._validation import Interval, Real, StrOptions, check_is_fitted, parameters
from mercer.engine import ArrayTable
from mercer.estimators.classification import CLASS_WEIGHT, KernelClassifier
from mercer.estimators.norma_machine import NormaMachine
from mercer.estimators.shell import all_or_nothing
from mercer.solvers.stochastic import Loss


@stored
@parameters
class NormaClassifier(KernelClassifier, NormaMachine):
    """Stochastic gradient descent on the regularised risk, one class against the rest, the same rows for all (NORMA).

    See ``NormaRegressor`` for the method, its cost, and the parameters and attributes that are not listed here.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
    loss : {"hinge", "log_loss", "squared_error"}, default="hinge"
        max(ρ - yf, 0) with y = ±1; log(1 + exp(-yf)); (f - y)²/2.
    nu : float or None, default=None
        With "hinge", the share of rows whose yf is to be below the margin ρ, which is then learned, each class its own;
        with None the margin is 1.
    class_weight : dict, "balanced" or None, default=None
        As in ``NystromClassifier``.
    intercept : bool, default=False
        Whether to add a constant, which is learned at the same rate. Where classes are of different size it follows
        the last labels, which costs accuracy; without it the kernel has to represent the constant.
    regularization, learning_rate, schedule, max_basis, truncation, average, shuffle, record
        As in ``NormaRegressor``.
    random_state, n_jobs, verbose
        As in ``NormaRegressor``.

    Attributes
    ----------
    classes_ : array (k,)
    margin_ : array (outputs,)
        ρ.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from mercer import NormaClassifier
    >>> X, y = make_classification(5000, 10, n_informative=5, flip_y=0.05, random_state=0)
    >>> model = NormaClassifier(random_state=0).fit(X[:4000], y[:4000])
    >>> model.score(X[4000:], y[4000:]) > 0.8
    True
    """

    loss: Literal["hinge", "log_loss", "squared_error"] = "hinge"
    nu: float | None = None
    intercept: bool = False
    record: bool = False

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **NormaMachine._parameter_constraints,
        **CLASS_WEIGHT,
        "loss": [StrOptions({"hinge", "log_loss", "squared_error"})],
        "nu": [None, Interval(Real, 0, 1, closed="neither")],
        "intercept": ["boolean"],
        "record": ["boolean"],
    }
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
            if self._learner.hidden:
                target = np.append(target, [[1.0]], axis=1)
            self._learn_one(self._one(x), target, float(w))

    def predict_one(self, x: Mapping[Any, Any]) -> Any:
        """Predict the class of one row; None before anything was learned."""
        if not hasattr(self, "_state"):
            return None
        if len(self.classes_) == 1:
            return self.classes_[0].item()
        return self._coding.predict(self._evaluate_one(self._one(x))[np.newaxis])[0].item()

    @property
    def margin_(self) -> FloatArray:
        """ρ of each output."""
        check_is_fitted(self)
        return self._learner.scored(self._learner.threshold)

    def _loss(self) -> Loss:
        if self.nu is not None and self.loss != "hinge":
            raise ValueError(f"nu={self.nu} is for loss='hinge'; with loss={self.loss!r} it must be None.")
        return Loss.named(self.loss, 1.0 if self.loss == "hinge" else 0.0, self.nu)

    def _read(self, X: Any, y: Any, sample_weight: Any, *, first: bool, classes: Any = None) -> ArrayTable:
        """The table, with targets for the hidden output if there is one."""
        table = super()._read(X, y, sample_weight, first=first, classes=classes)
        if first or not self._learner.hidden:
            return table
        return replace(table, labels=np.column_stack([table.targets, np.ones(table.n_rows)]), coding=None)

    def _evaluate(self, X: Any) -> FloatArray:
        if len(self.classes_) == 1:
            raise ValueError(f"only one class was seen: {self.classes_.tolist()}.")
        return super()._evaluate(X)

    def _meet(self, label: Any) -> None:
        """Make room for a class: the rows so far were none of it, and the hidden output knows what they would give."""
        learner = self._learner.copy()
        if not learner.hidden:
            msg = f"{label!r} is not among the classes {self.classes_.tolist()} that the model was fitted to."
            raise ValueError(msg)
        classes = np.unique(np.append(self.classes_, label))
        if classes.dtype.kind != self.classes_.dtype.kind:
            raise ValueError(f"{label!r} is of another type than the classes so far, {self.classes_.tolist()}.")
        place = int(np.flatnonzero(classes == label)[0])
        signs = signs_with_class(len(classes), place, learner.n_outputs)
        learner.map_outputs(signs)
        first, sizes = self._state.first, np.kron(np.eye(3), np.abs(signs))
        first = None if first is None else replace(first, targets=first.targets @ signs)
        history = [each @ sizes for each in self._state.history]
        self.classes_, self._state = classes, replace(self._state, learner=learner, first=first, history=history)


def signs_with_class(n_classes: int, place: int, n_outputs: int) -> FloatArray:
    """Outputs (old, new), the last one hidden, when the class of that place has come: columns are ±1 or 0."""
    *columns, ones = np.eye(n_outputs)
    if n_classes == 2:  # one output, positive for the second class
        columns = [columns[0] if place == 1 else -columns[0]]
    else:
        if n_classes == 3:
            columns = [-columns[0], columns[0]]
        columns.insert(place, -ones)
    return np.column_stack([*columns, ones])
