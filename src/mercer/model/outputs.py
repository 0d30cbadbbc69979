"""What the columns of an expansion mean: from values (n, p) to predictions, and from targets to columns.

==============  =======================================  ==================  ===========================
outputs         columns                                  ``predict``         ``decision``
==============  =======================================  ==================  ===========================
``Regression``  targets                                  the values          the same
``OneVsRest``   two classes: one, positive for the       by sign             (n,)
                second; more: one per class              the largest         (n, classes)
``OneVsOne``    one per pair i < j, positive for i       the most votes      (n, classes) or (n, pairs)
``Components``  components of a transformer              the values          the same
``Novelty``     one, negative for outliers               1 or -1             (n,)
==============  =======================================  ==================  ===========================
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils.multiclass import _ovr_decision_function

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine import Coding
from mercer.model.probabilities import Probabilities

Rule = Literal["threshold", "largest", "pairs"]


class Outputs:
    """What the columns of an expansion mean."""

    kind: ClassVar[str]  # scikit-learn's word: "regressor", "classifier", "transformer" or "outlier_detector"

    @property
    def n_columns(self) -> int | None:
        """Columns of the expansion; None for any number."""
        return None

    def decision(self, values: FloatArray) -> FloatArray:
        """Decision values from those of the expansion (n, p), as scikit-learn shapes them: (n,) for one column."""
        return values[:, 0] if self.n_columns == 1 else values

    def predict(self, values: FloatArray) -> AnyArray:
        """Predictions from the values of the expansion (n, p): these themselves, where nothing is decided."""
        return self.decision(values)


@dataclass(frozen=True)
class Regression(Outputs):
    """Columns are targets.

    Attributes
    ----------
    flat : bool
        Whether y had one dimension, as predictions then have.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.model import Regression
    >>> Regression(flat=True).predict(np.array([[1.0], [2.0]]))
    array([1., 2.])
    """

    flat: bool

    kind: ClassVar[str] = "regressor"

    @property
    def n_columns(self) -> int | None:
        """One if y had one dimension, else any number."""
        return 1 if self.flat else None

    def columns(self, targets: FloatArray) -> FloatArray:
        """Targets (n,) or (n, p) as columns."""
        return targets[:, np.newaxis] if self.flat else targets


@dataclass(frozen=True, eq=False)
class OneVsRest(Outputs, Coding):
    """Each column separates one class from the rest; two classes share one column, positive for the second.

    Attributes
    ----------
    classes : array (k,)
        Sorted. Two or more; a single one only while a stream has shown no other.
    probabilities : Probabilities or None
        What turns values into probabilities of the classes, where that is known.

    Examples
    --------
    >>> from mercer.model import OneVsRest
    >>> outputs = OneVsRest.from_labels(["b", "a", "c", "b"])
    >>> codes = outputs.codes(["c", "a"])
    >>> codes
    array([2, 0])
    >>> outputs.columns(codes)
    array([[-1., -1.,  1.],
           [ 1., -1., -1.]])
    >>> outputs.predict(outputs.columns(codes)).tolist()
    ['c', 'a']
    """

    classes: AnyArray
    probabilities: Probabilities | None = None

    kind: ClassVar[str] = "classifier"

    @classmethod
    def from_labels(cls, labels: Any) -> Self:
        """The classes among labels, of which there must be at least two."""
        classes = np.unique(np.asarray(labels))
        if len(classes) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: found {classes.tolist()}.")
        return cls(classes)

    @property
    def rule(self) -> Rule:
        """How columns decide: the sign of one, or the largest of several."""
        return "threshold" if self.n_columns == 1 else "largest"

    @property
    def n_columns(self) -> int:
        """One for two classes, one per class for more."""
        return 1 if len(self.classes) <= 2 else len(self.classes)

    def codes(self, labels: Any) -> IntArray:
        """Place of each label among the classes, shape (n,)."""
        labels = np.asarray(labels)
        codes = np.minimum(np.searchsorted(self.classes, labels), len(self.classes) - 1)
        unknown = labels[np.asarray(self.classes[codes] != labels, dtype=bool)]
        if len(unknown):
            found, known = np.unique(unknown).tolist(), self.classes.tolist()
            raise ValueError(f"y contains labels that are not among the classes {known}: {found}.")
        return np.asarray(codes, dtype=np.intp)

    def columns(self, codes: IntArray) -> FloatArray:
        """Codes (n,) as columns of ±1, to be made a tile at a time: n·k numbers."""
        column = np.arange(self.n_columns) if self.n_columns > 1 else np.array([1])
        return np.where(codes[:, np.newaxis] == column, 1.0, -1.0)

    def codes_of(self, columns: FloatArray) -> IntArray:
        """Codes (n,) of what columns decide: by sign for two classes, by the largest for more; undoes ``columns``."""
        return (columns[:, 0] > 0).astype(np.intp) if self.n_columns == 1 else np.argmax(columns, axis=1)

    def predict(self, values: FloatArray) -> AnyArray:
        """The class of each row: by sign for two classes, by the largest value for more."""
        return np.asarray(self.classes[self.codes_of(values)])


@dataclass(frozen=True, eq=False)
class OneVsOne(Outputs):
    """Each column separates classes i and j, positive for i: the pairs (0, 1), (0, 2), …, (1, 2), … of libsvm."""

    classes: AnyArray  # (k,)
    # {"ovr", "ovo"}: whether decision values are one per class, as scikit-learn's ``SVC`` makes them, or those of the
    # pairs.
    decision_function_shape: str = "ovr"
    # Whether equal votes are decided by the values (with "ovr" only, as in scikit-learn; exported models do not).
    break_ties: bool = False

    kind: ClassVar[str] = "classifier"
    rule: ClassVar[Rule] = "pairs"

    @property
    def n_columns(self) -> int:
        """One per pair of classes."""
        return len(self.classes) * (len(self.classes) - 1) // 2

    def decision(self, values: FloatArray) -> FloatArray:
        """Shape (n, classes), votes with the values to break ties; or (n, pairs)."""
        if self.decision_function_shape == "ovr":
            return np.asarray(_ovr_decision_function(values < 0, -values, len(self.classes)))
        return values

    def predict(self, values: FloatArray) -> AnyArray:
        """The class with the most votes, the first of equal ones unless ties are broken."""
        by_values = self.break_ties and self.decision_function_shape == "ovr"
        scores = self.decision(values) if by_values else self.votes(values)
        return np.asarray(self.classes[np.argmax(scores, axis=1)])

    def votes(self, values: FloatArray) -> IntArray:
        """How many pairs voted for each class, shape (n, classes)."""
        votes = np.zeros((len(values), len(self.classes)), dtype=np.intp)
        for column, i, j in zip(values.T, *np.triu_indices(len(self.classes), 1), strict=True):
            votes[:, i] += column > 0
            votes[:, j] += column <= 0
        return votes


@dataclass(frozen=True)
class Components(Outputs):
    """Columns are components of a transformer."""

    kind: ClassVar[str] = "transformer"


@dataclass(frozen=True)
class Novelty(Outputs):
    """One column, negative for rows unlike those seen."""

    offset: float  # what scores exceed decision values by

    kind: ClassVar[str] = "outlier_detector"
    n_columns: ClassVar[int] = 1

    def scores(self, values: FloatArray) -> FloatArray:
        """Decision values without the offset."""
        return self.decision(values) + self.offset

    def predict(self, values: FloatArray) -> IntArray:
        """1 for rows like those seen, -1 for others."""
        return np.where(self.decision(values) >= 0, 1, -1)


def read_outputs(model: Any, n_columns: int) -> Outputs:
    """What the columns of a fitted model mean.

    That is its ``outputs_``; a model without is read by scikit-learn's conventions. A classifier (``classes_``) decides
    as its ``decision_rule_`` says, or by sign if it has one column, else by the largest; then there are detectors
    (``offset_``), transformers (no ``predict``), and regressors.
    """
    outputs = getattr(model, "outputs_", None)
    if isinstance(outputs, Outputs):
        if isinstance(outputs, OneVsRest) and len(outputs.classes) < 2:
            raise ValueError(f"the model has seen only one class so far: {outputs.classes.tolist()}.")
        return outputs
    if getattr(model, "classes_", None) is not None:
        return _read_classes(model, np.asarray(model.classes_), n_columns)
    if hasattr(model, "offset_"):
        return Novelty(float(np.ravel(model.offset_)[0]))
    if hasattr(model, "transform") and not hasattr(model, "predict"):
        return Components()
    return Regression(flat=n_columns == 1)


def _read_classes(model: Any, classes: AnyArray, n_columns: int) -> OneVsRest | OneVsOne:
    rule = getattr(model, "decision_rule_", "threshold" if n_columns == 1 else "largest")
    outputs = OneVsOne(classes) if rule == "pairs" else OneVsRest(classes)
    if (rule, n_columns) != (outputs.rule, outputs.n_columns) or len(classes) < 2:
        raise ValueError(
            "decision_rule_ of the model must be 'threshold' (two classes, one output), 'largest' (one output per "
            "class, three or more) or 'pairs' (one output per pair of classes); got "
            f"{rule!r}, {len(classes)} classes and {n_columns} output(s)."
        )
    return outputs
