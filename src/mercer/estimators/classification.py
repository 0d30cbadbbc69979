"""What all classifiers share: labels encoded for a fit, decisions at its end."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer._validation import check_is_fitted, check_labels
from mercer.engine import ArrayTable
from mercer.estimators.shell import Shell, read_rows, read_table
from mercer.model import OneVsRest

__all__ = ["KernelClassifier", "Labels"]


class Labels:
    """Encodes labels, by classes that are given or found in the first labels.

    Attributes
    ----------
    outputs : OneVsRest or None
        None until labels were encoded, unless classes are given.
    """

    def __init__(self, outputs: OneVsRest | None = None) -> None:
        self.outputs = outputs

    @property
    def classes(self) -> AnyArray:
        """The classes, sorted."""
        if self.outputs is None:
            msg = "no labels were encoded yet."
            raise ValueError(msg)
        return self.outputs.classes

    def codes(self, y: Any, n_rows: int) -> IntArray:
        """Place of each label among the classes, shape (n,)."""
        labels = check_labels(y, n_rows=n_rows)
        if self.outputs is None:
            self.outputs = OneVsRest.from_labels(labels)
        return self.outputs.codes(labels)

    def __call__(self, y: Any, n_rows: int) -> tuple[IntArray, OneVsRest]:
        """Codes (n,), and what makes columns of ±1 of them, for ``read_table``."""
        codes = self.codes(y, n_rows)
        return codes, OneVsRest(self.classes)


class KernelClassifier(ClassifierMixin, Shell):
    """A classifier that ends in an expansion, one class against the rest."""

    classes_: AnyArray

    @property
    def outputs_(self) -> OneVsRest:
        """What the columns of the expansion mean."""
        check_is_fitted(self)
        return OneVsRest(self.classes_)

    @property
    def coefficients_(self) -> FloatArray:
        """Weights of the expansion's points, shape (m, outputs): one output for two classes, else one per class."""
        check_is_fitted(self)
        return self._mean_expansion().coefficients

    @property
    def intercept_(self) -> FloatArray:
        """Constants, shape (outputs,)."""
        check_is_fitted(self)
        return self._mean_expansion().intercept

    def decision_function(self, X: Any) -> FloatArray:
        """Values of the functions, shape (n,) for two classes (positive for the second), else (n, classes)."""
        outputs = self.outputs_
        return outputs.decision(self._evaluate(X))

    def predict(self, X: Any) -> AnyArray:
        """Predict the class of each row."""
        outputs = self.outputs_
        return outputs.predict(self._evaluate(X))

    def _evaluate(self, X: Any) -> FloatArray:
        return self._evaluate_rows(read_rows(self, X, reset=False))

    def _labels(self, classes: Any = None, *, first: bool = True) -> Labels:
        """What encodes the labels of a first or a later call; ``classes`` are those that the user names."""
        if first:
            return Labels(None if classes is None else OneVsRest.from_labels(classes))
        if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            msg = f"classes={classes!r} differ from those of the first call, {self.classes_.tolist()}."
            raise ValueError(msg)
        return Labels(OneVsRest.from_labels(self.classes_))

    def _read(self, X: Any, y: Any, sample_weight: Any, *, first: bool, classes: Any = None) -> ArrayTable:
        """The table of a first or a later call."""
        labels = self._labels(classes, first=first)
        table = read_table(self, X, y, sample_weight, encode=labels, reset=first)
        self.classes_ = labels.classes
        return table

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_mergeable(self, other: Self) -> None:
        if not np.array_equal(self.classes_, other.classes_):
            msg = f"cannot merge models with different classes: {self.classes_.tolist()}, {other.classes_.tolist()}."
            raise ValueError(msg)
        super()._check_mergeable(other)
