r"""Scalers that an expansion can take in: x' = ax + b, feature by feature.

A stationary kernel sees differences only, :math:`(x' - z')/\ell = (x - z)/(\ell/a)`, so a scaler before it is another
length scale and other points. A linear kernel alone, and a polynomial one without a shift, can also be folded, as other
points; sums and products of these with others cannot, as each would need points of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from mercer._typing import FloatArray
from mercer._validation import check_is_fitted
from mercer.kernels import Kernel, Linear, Polynomial, Product, Sum
from mercer.kernels.stationary import Stationary
from mercer.model import KernelExpansion

__all__ = ["Affine", "affine_map", "fold", "is_nothing"]


class Affine(NamedTuple):
    """x' = factor · x + shift, feature by feature; both arrays (d,), no factor zero."""

    factor: FloatArray
    shift: FloatArray


def is_nothing(step: Any) -> bool:
    """Whether a step of a pipeline passes rows through."""
    return step is None or (isinstance(step, str) and step == "passthrough")


def affine_map(step: Any) -> Affine | None:
    """What a fitted scaler does to rows; None for any other step."""
    kind = type(step)
    if kind not in (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler):
        return None
    check_is_fitted(step)
    if getattr(step, "clip", False):  # not affine beyond the range seen
        return None
    if kind is MinMaxScaler:
        return Affine(np.asarray(step.scale_, dtype=np.float64), np.asarray(step.min_, dtype=np.float64))
    scale, centre = getattr(step, "scale_", None), getattr(step, "center_", None)  # None for 1, and for 0
    if kind is StandardScaler:  # which has a mean even if it does not subtract it
        centre = step.mean_ if step.with_mean else None
    scale = np.ones(step.n_features_in_) if scale is None else np.asarray(scale, dtype=np.float64)
    centre = np.zeros(step.n_features_in_) if centre is None else np.asarray(centre, dtype=np.float64)
    return Affine(1.0 / scale, -centre / scale)


def fold(expansion: KernelExpansion, affine: Affine, *, name: str) -> KernelExpansion:
    """The expansion of the rows before the scaler, f(ax + b) as a function of x; ``name`` is the step's."""
    kernel = expansion.kernel
    if _is_stationary(kernel):
        points = (expansion.points - affine.shift) / affine.factor
        return replace(expansion, kernel=_rescaled(kernel, affine.factor), points=points)
    if type(kernel) is Linear:
        # Σ w_i A (ax + b)·z_i = Σ w_i A x·(a z_i) + A Σ w_i b·z_i
        constants = kernel.amplitude * (expansion.points @ affine.shift) @ expansion.coefficients
        points, intercept = expansion.points * affine.factor, expansion.intercept + constants
        return replace(expansion, points=points, intercept=intercept, variance=None)
    if type(kernel) is Polynomial and not np.any(affine.shift):
        return replace(expansion, points=expansion.points * affine.factor, variance=None)
    msg = (
        f"the step {name!r} cannot be folded into the kernel {kernel!r}: only into stationary kernels, a linear "
        "kernel, and a polynomial one if the step does not shift the rows. Take the model behind it: "
        "as_expansion(pipeline[-1])."
    )
    raise ValueError(msg)


def _is_stationary(kernel: Kernel) -> bool:
    if isinstance(kernel, (Sum, Product)):
        return _is_stationary(kernel.left) and _is_stationary(kernel.right)
    return isinstance(kernel, Stationary)


def _rescaled(kernel: Any, factor: FloatArray) -> Kernel:
    if isinstance(kernel, (Sum, Product)):
        return type(kernel)(_rescaled(kernel.left, factor), _rescaled(kernel.right, factor))
    scale = np.asarray(kernel.length_scale, dtype=np.float64) / np.abs(factor)
    # One number again, where the steps of all features are alike.
    one = bool(np.all(scale == scale.flat[0]))
    rescaled: Kernel = clone(kernel).set_params(length_scale=float(scale.flat[0]) if one else scale)
    return rescaled
