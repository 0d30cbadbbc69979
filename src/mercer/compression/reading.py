"""What a model says, in our terms: an expansion, and what its outputs mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from mercer._typing import AnyArray, FloatArray
from mercer.compression.foreign_kernels import KernelPlusConstant
from mercer.model import KernelExpansion
from mercer.kernels import Linear

__all__ = ["Reading", "dense", "make_expansion"]


@dataclass(frozen=True)
class Reading:
    """A fitted model as an expansion.

    Attributes
    ----------
    expansion : KernelExpansion
    kind : {"regressor", "classifier", "outlier_detector"}
    flat : bool
        Whether predictions have one dimension.
    classes : array or None
    decision_rule : {"threshold", "largest", "pairs"} or None
        How a classifier decides: one output, positive for the second class; one output per class, the largest; one
        output per pair of classes i < j, positive for i, the most votes.
    decision_function_shape : {"ovr", "ovo"}
        For pairs, whether ``decision_function`` returns one value per class or the pairs.
    break_ties : bool
        For pairs, whether ties of votes are broken by the values.
    offset : float
        Of an outlier detector: what its ``score_samples`` exceeds its decision function by.
    """

    expansion: KernelExpansion
    kind: str = "regressor"
    flat: bool = True
    classes: AnyArray | None = None
    decision_rule: str | None = None
    decision_function_shape: str = "ovr"
    break_ties: bool = False
    offset: float = 0.0

    def with_expansion(self, expansion: KernelExpansion) -> Reading:
        """The same model on another expansion."""
        return replace(self, expansion=expansion)


def dense(array: Any) -> FloatArray:
    """An array in float64, also from a sparse one."""
    return np.array(array.toarray() if issparse(array) else array, dtype=np.float64)


def make_expansion(
    kernel: KernelPlusConstant, points: FloatArray, coefficients: FloatArray, intercept: Any
) -> KernelExpansion:
    """The expansion in a kernel plus a constant, which joins the intercept; points (m, d), coefficients (m, p)."""
    constants = intercept + kernel.constant * np.sum(coefficients, axis=0)
    if kernel.kernel is None or len(points) == 0:  # a constant: any kernel will do, with no weight
        return KernelExpansion(Linear(), np.zeros((1, points.shape[1])), np.zeros((1, len(constants))), constants)
    return KernelExpansion(kernel.kernel, points, coefficients, constants)
