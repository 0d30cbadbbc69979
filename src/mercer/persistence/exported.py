"""What is exported of a model: an expansion as a formula, and what its columns mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer._validation import check_is_fitted
from mercer.kernels.closed_form import Form, closed_form
from mercer.model import KernelExpansion, OneVsOne, OneVsRest, Outputs, Regression, read_outputs

__all__ = ["Exported", "read_model"]

_LARGEST_LABEL = 2**63 - 1


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
    outputs : Outputs
        Classes are int64, float64 or str.
    """

    kind: str
    kernel: str
    form: Form
    points: FloatArray
    coefficients: FloatArray
    intercept: FloatArray
    outputs: Outputs

    @property
    def n_outputs(self) -> int:
        """Number of outputs, p."""
        return int(self.coefficients.shape[1])

    @property
    def decision(self) -> OneVsRest | OneVsOne | None:
        """The outputs of a classifier; None for a model whose values are the result."""
        return self.outputs if isinstance(self.outputs, (OneVsRest, OneVsOne)) else None


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
    outputs = _outputs_of(model, coefficients.shape[1])
    form = closed_form(expansion.kernel, points.shape[1])
    kernel = " ".join(repr(expansion.kernel).split())
    return Exported(type(model).__name__, kernel, form, points, coefficients, intercept, outputs)


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


def _outputs_of(model: Any, n_outputs: int) -> Outputs:
    if isinstance(model, KernelExpansion):
        return Regression(flat=False)
    outputs = read_outputs(model, n_outputs)
    if isinstance(outputs, (OneVsRest, OneVsOne)):
        return replace(outputs, classes=_plain_labels(outputs.classes))
    return outputs


def _plain_labels(classes: AnyArray) -> AnyArray:
    """Classes as types that ONNX and C know: int64, float64 or str."""
    values = np.asarray(classes).tolist()
    if all(isinstance(value, str) for value in values):
        return np.array(values, dtype=np.str_)
    if all(isinstance(value, int) and abs(value) <= _LARGEST_LABEL for value in values):  # True and False among them
        return np.array(values, dtype=np.int64)
    if all(isinstance(value, float) for value in values):
        return np.array(values, dtype=np.float64)
    msg = f"classes of a model to be exported must all be integers, all floats, or all strings; got {values}."
    raise TypeError(msg)
