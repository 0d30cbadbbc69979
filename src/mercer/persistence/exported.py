"""What is exported of a model: an expansion, and for a classifier its classes and how it decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer._validation import check_is_fitted
from mercer.expansion import KernelExpansion
from mercer.kernels.closed_form import Form, closed_form

__all__ = ["Exported", "Rule", "read_model"]

_LARGEST_LABEL = 2**63 - 1

Rule: TypeAlias = Literal["threshold", "largest", "pairs"]


@dataclass(frozen=True)
class Exported:
    """An expansion as arrays and a formula.

    Attributes
    ----------
    kind : str
        Name of the model's class, for comments.
    kernel : str
        The kernel in words, for comments.
    form : Form
    points : array (m, d), float64
    coefficients : array (m, p), float64
    intercept : array (p,), float64
    classes : array or None
        int64, float64 or str; None for a model that does not classify.
    rule : {"threshold", "largest", "pairs"} or None
        How outputs decide: by the sign of one; by the greatest, one per class; by votes, one per pair of classes.
    """

    kind: str
    kernel: str
    form: Form
    points: FloatArray
    coefficients: FloatArray
    intercept: FloatArray
    classes: AnyArray | None
    rule: Rule | None

    @property
    def n_outputs(self) -> int:
        """Number of outputs, p."""
        return int(self.coefficients.shape[1])


def read_model(model: Any) -> Exported:
    """Read an expansion, or any fitted model that has one."""
    expansion = model if isinstance(model, KernelExpansion) else _expansion_of(model)
    points = np.array(expansion.points, dtype=np.float64)
    if points.size == 0:
        msg = f"model must have at least one vector and one feature to be exported, got points of shape {points.shape}."
        raise ValueError(msg)
    coefficients = np.array(expansion.coefficients, dtype=np.float64)
    intercept = np.array(expansion.intercept, dtype=np.float64)
    if not all(np.all(np.isfinite(array)) for array in (points, coefficients, intercept)):
        msg = "model must consist of finite numbers to be exported; it has NaN or infinity among them."
        raise ValueError(msg)
    classes = None if isinstance(model, KernelExpansion) else _classes_of(model)
    rule = None if classes is None else _rule_of(model, len(classes), coefficients.shape[1])
    form = closed_form(expansion.kernel, points.shape[1])
    kernel = " ".join(repr(expansion.kernel).split())
    return Exported(type(model).__name__, kernel, form, points, coefficients, intercept, classes, rule)


def _expansion_of(model: Any) -> KernelExpansion:
    if hasattr(model, "fit"):
        check_is_fitted(model)
    try:
        expansion = model.expansion_
    except AttributeError as error:
        name = type(model).__name__
        msg = (
            f"model must be a fitted model of mercer, or a KernelExpansion; got a {name}. For models of scikit-learn, "
            "and pipelines of them, see compress and as_expansion of mercer.compression."
        )
        if hasattr(type(model), "expansion_"):  # it has one, but not now, and says why
            msg = f"this {name} cannot be exported: {error}"
        raise TypeError(msg) from error
    if not isinstance(expansion, KernelExpansion):
        msg = f"expansion_ of the model must be a KernelExpansion, got a {type(expansion).__name__}."
        raise TypeError(msg)
    return expansion


def _classes_of(model: Any) -> AnyArray | None:
    classes = getattr(model, "classes_", None)
    if classes is None:
        return None
    values = np.asarray(classes).tolist()
    if all(isinstance(value, str) for value in values):
        return np.array(values, dtype=np.str_)
    if all(isinstance(value, int) and abs(value) <= _LARGEST_LABEL for value in values):  # True and False among them
        return np.array(values, dtype=np.int64)
    if all(isinstance(value, float) for value in values):
        return np.array(values, dtype=np.float64)
    msg = f"classes of a model to be exported must all be integers, all floats, or all strings; got {values}."
    raise TypeError(msg)


def _rule_of(model: Any, n_classes: int, n_outputs: int) -> Rule:
    rule = getattr(model, "decision_rule_", "threshold" if n_outputs == 1 else "largest")
    expected = {"threshold": 1, "largest": n_classes, "pairs": n_classes * (n_classes - 1) // 2}
    if expected.get(rule) != n_outputs or (rule == "threshold" and n_classes != 2):
        msg = (
            f"decision_rule_ of the model must be 'threshold' (two classes, one output), 'largest' (one output per "
            f"class) or 'pairs' (one per pair of classes); got {rule!r}, {n_classes} classes and {n_outputs} output(s)."
        )
        raise ValueError(msg)
    return cast("Rule", rule)
