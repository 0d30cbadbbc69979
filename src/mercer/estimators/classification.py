"""What all classifiers share: labels encoded for a fit, class weights, decisions and probabilities at its end."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from mercer._stored import Sometimes
from mercer._typing import AnyArray, FloatArray, IntArray
from mercer._validation import StrOptions, check_is_fitted, check_sample_weight, is_fitted, parameters
from mercer.engine import ArrayTable
from mercer.estimators.collections import lazily
from mercer.estimators.shell import Shell, make_executor, on_its_threads, read_rows
from mercer.estimators.sources import coded_table, described_labels, read_weights
from mercer.model import OneVsRest, Probabilities

# To be joined with those of the method.
CLASS_WEIGHT: dict[str, list[Any]] = {"class_weight": [dict, StrOptions({"balanced"}), None]}


def _has_probabilities(model: "KernelClassifier") -> bool:
    """Refuse, with the reason, a model that knows no probabilities, or will not when it is fitted."""
    if not is_fitted(model):
        known = type(model)._calibration is not Shell._calibration and getattr(model, "solver", None) != "cg"
    else:
        known = len(model.classes_) < 2 or model.outputs_.probabilities is not None
    if not known:
        raise AttributeError(
            "probabilities are fitted to leave-one-out values, which this model does not have: fit it with a noise "
            "above zero and, where there is a choice, with solver='cholesky', by this version of mercer. Or wrap it in "
            "sklearn.calibration.CalibratedClassifierCV."
        )
    return True


@parameters
class KernelClassifier(ClassifierMixin, Shell):
    """A classifier that ends in an expansion, one class against the rest."""

    class_weight: Sometimes[Mapping[Any, float] | Literal["balanced"] | None] = None

    classes_: AnyArray = field(init=False)

    @property
    def _coding(self) -> OneVsRest:
        """What the columns of the expansion mean, without probabilities, which take time."""
        check_is_fitted(self)
        return OneVsRest(self.classes_)

    @property
    def outputs_(self) -> OneVsRest:
        """What the columns of the expansion mean, with probabilities where the method gives them."""
        return replace(self._coding, probabilities=self._probabilities())

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

    @on_its_threads
    def decision_function(self, X: Any) -> FloatArray:
        """Values of the functions, shape (n,) for two classes (positive for the second), else (n, classes)."""
        coding = self._coding
        return coding.decision(self._evaluate(X))

    @on_its_threads
    def predict(self, X: Any) -> AnyArray:
        """Predict the class of each row."""
        coding = self._coding
        return coding.predict(self._evaluate(X))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    @lazily
    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of the classes, (n, classes), in the order of ``classes_``.

        A sigmoid of the decision value for two classes, the softmax of a linear map of all values for up to 50, one
        sigmoid for all of more, fitted to leave-one-out values of a sample of the rows. The likeliest class is the one
        that ``predict`` gives. With ``class_weight`` or ``sample_weight`` probabilities are those among rows that occur
        as often as their weights say.
        """
        return np.asarray(np.exp(self.predict_log_proba(X)))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    @on_its_threads
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Logarithms of ``predict_proba``, finite where a probability is too small for a number."""
        check_is_fitted(self)
        values = self._evaluate(X)
        probabilities: Any = self.outputs_.probabilities  # which _has_probabilities has seen
        return np.asarray(probabilities.logarithms(values))

    def _evaluate(self, X: Any) -> FloatArray:
        return self._evaluate_rows(read_rows(self, X, reset=False))

    @on_its_threads
    def _probabilities(self) -> Probabilities | None:
        """Fitted when they are first asked for, and kept with the values that they were fitted to."""
        calibration, coding = self._calibration(), self._coding
        if calibration is None or len(calibration.residuals) == 0 or len(self.classes_) < 2:
            return None
        kept, p = vars(calibration), coding.n_columns
        if "_probabilities" not in kept:
            codes = coding.codes_of(calibration.targets[:, :p])
            kept["_probabilities"] = self._fit_probabilities(calibration.values[:, :p], codes, calibration.weights)
        found: Probabilities = kept["_probabilities"]
        return found

    def _fit_probabilities(self, values: FloatArray, codes: IntArray, weights: FloatArray) -> Probabilities:
        return Probabilities.fit(values, codes, weights, n_classes=len(self.classes_))

    def _read(self, X: Any, y: Any, sample_weight: Any, *, first: bool, classes: Any = None) -> ArrayTable:
        """The table of a first or a later call; labels travel as codes."""
        if not first:
            self._refuse_balanced()
        rows, executor = read_rows(self, X, reset=first), make_executor(self)
        labels, described = described_labels(rows, y, executor)
        outputs = self._encoding(labels if first and classes is None else classes, first=first)
        self.classes_, codes = outputs.classes, outputs.codes(labels)
        weights = read_weights(rows, sample_weight, described, executor)
        if described is not None:
            factors = self._factors(outputs, codes, np.array([described.totals[label] for label in labels.tolist()]))
            return coded_table(rows, outputs, weights, factors)
        if self.class_weight is not None:
            factors = class_factors(self.class_weight, outputs.classes, codes, weights)[codes]
            weights = check_sample_weight(factors if weights is None else factors * weights, n_rows=rows.n_rows)
        return ArrayTable(rows, codes, weights, outputs, relative=self.class_weight is not None)

    def _factors(self, outputs: OneVsRest, codes: IntArray, totals: FloatArray) -> FloatArray | None:
        """By what rows of each class are weighed, if ``class_weight`` says so."""
        if self.class_weight is None:
            return None
        return check_sample_weight(
            class_factors(self.class_weight, outputs.classes, codes, totals), n_rows=len(outputs.classes)
        )

    def _refuse_balanced(self) -> None:
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs the classes of all rows, of which only some are given here: "
                "use a dict, such as sklearn.utils.class_weight.compute_class_weight finds for labels that are typical."
            )

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


def class_factors(
    class_weight: Mapping[Any, float] | Literal["balanced"], classes: AnyArray, codes: IntArray, weights: Any = None
) -> FloatArray:
    """By what rows of each class are weighed, (k,): as scikit-learn has it, a row of weight 2 being two rows.

    "balanced" gives all classes the same total weight, N/k. A class that a mapping does not name has the weight 1.
    """
    if class_weight == "balanced":
        counts = np.bincount(codes, weights, minlength=len(classes))
        shares = np.sum(counts) / (np.count_nonzero(counts) * np.where(counts > 0, counts, np.inf))
        return np.where(counts > 0, shares, 1.0)
    named = [label in class_weight for label in classes.tolist()]
    if not all(named) and sum(named) != len(class_weight):
        unknown = [label for label in class_weight if label not in classes.tolist()]
        raise ValueError(f"class_weight has labels that are not among the classes {classes.tolist()}: {unknown}.")
    factors = np.array([class_weight.get(label, 1.0) for label in classes.tolist()], dtype=np.float64)
    if not np.all(np.isfinite(factors) & (factors >= 0)):
        raise ValueError(f"class_weight must hold finite weights of at least zero, got {class_weight!r}.")
    return factors
