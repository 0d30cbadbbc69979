"""What classifiers add to a shell: classes, one-vs-rest targets of ±1, decisions."""

from typing import Any

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer._validation import check_labels

__all__ = ["OneVsRest", "decide", "flat_decision"]


class OneVsRest:
    """Encode labels as ±1: one column for the second of two classes, else one column per class."""

    def __init__(self, classes: Any = None) -> None:
        self._classes: AnyArray | None = None if classes is None else _two_or_more(np.unique(np.asarray(classes)))

    @property
    def classes(self) -> AnyArray:
        """The classes, sorted: given, or found in the first labels that were encoded."""
        if self._classes is None:
            msg = "no labels were encoded yet."
            raise ValueError(msg)
        return self._classes

    def __call__(self, y: Any, n_rows: int) -> tuple[FloatArray, bool]:
        """Targets of the labels, shape (n, 1) or (n, classes); labels always have one dimension."""
        labels = check_labels(y, n_rows=n_rows)
        if self._classes is None:
            self._classes = _two_or_more(np.unique(labels))
        unknown = np.setdiff1d(labels, self.classes)
        if len(unknown):
            msg = f"y contains labels that are not among the classes {self.classes.tolist()}: {unknown.tolist()}."
            raise ValueError(msg)
        columns = self.classes[1:] if len(self.classes) == 2 else self.classes
        return np.where(labels[:, np.newaxis] == columns, 1.0, -1.0), True


def flat_decision(values: FloatArray) -> FloatArray:
    """Decision values as scikit-learn shapes them: (n,) for two classes, (n, classes) for more."""
    return values[:, 0] if values.shape[1] == 1 else values


def decide(values: FloatArray, classes: AnyArray) -> AnyArray:
    """Return the class of each row: by sign for two classes, by the greatest value for more."""
    index = (values[:, 0] > 0).astype(np.intp) if values.shape[1] == 1 else np.argmax(values, axis=1)
    return np.asarray(classes[index])


def _two_or_more(classes: AnyArray) -> AnyArray:
    if len(classes) < 2:
        msg = f"Classifier can't train when only one class is present: found {classes.tolist()}."
        raise ValueError(msg)
    return classes
