"""What is read of a model: its expansion, and what the columns mean."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from mercer._typing import FloatArray
from mercer.compression.foreign_kernels import KernelPlusConstant
from mercer.kernels import Linear
from mercer.model import KernelExpansion, Outputs

__all__ = ["Reading", "dense", "make_expansion"]


class Reading(NamedTuple):
    """A fitted model as an expansion, and what its columns mean."""

    expansion: KernelExpansion
    outputs: Outputs


def dense(array: Any) -> FloatArray:
    """An array in float64, also from a sparse one."""
    return np.array(array.toarray() if issparse(array) else array, dtype=np.float64)


def make_expansion(
    kernel: KernelPlusConstant, points: FloatArray, coefficients: FloatArray, intercept: Any
) -> KernelExpansion:
    """The expansion in a kernel plus a constant, which joins the intercept; coefficients (m,) or (m, p)."""
    coefficients = coefficients[:, np.newaxis] if coefficients.ndim == 1 else coefficients
    constants = intercept + kernel.constant * np.sum(coefficients, axis=0)
    if kernel.kernel is None or len(points) == 0:  # a constant: any kernel will do, with no weight
        return KernelExpansion(Linear(), np.zeros((1, points.shape[1])), np.zeros((1, len(constants))), constants)
    return KernelExpansion(kernel.kernel, points, coefficients, constants)
