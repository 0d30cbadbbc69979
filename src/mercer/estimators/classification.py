"""What all classifiers share: labels encoded for a fit, decisions at its end."""

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from mercer._typing import AnyArray, FloatArray
from mercer._validation import check_is_fitted, check_labels, check_sample_weight
from mercer.engine import ArrayTable
from mercer.estimators.shell import Shell, read_rows
from mercer.model import OneVsRest


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

    def _read(self, X: Any, y: Any, sample_weight: Any, *, first: bool, classes: Any = None) -> ArrayTable:
        """The table of a first or a later call; labels travel as codes."""
        rows = read_rows(self, X, reset=first)
        labels = check_labels(y, n_rows=rows.n_rows)
        outputs = self._encoding(labels if first and classes is None else classes, first=first)
        self.classes_ = outputs.classes
        weights = check_sample_weight(sample_weight, n_rows=rows.n_rows)
        return ArrayTable(rows, outputs.codes(labels), weights, outputs)

    def _encoding(self, classes: Any, *, first: bool) -> OneVsRest:
        """The encoding by these classes; a later call has those of the first, which it may name again."""
        if first:
            return OneVsRest.from_labels(classes)
        if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            raise ValueError(f"classes={classes!r} differ from those of the first call, {self.classes_.tolist()}.")
        return OneVsRest.from_labels(self.classes_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
