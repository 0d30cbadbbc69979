"""What ``reduce_expansion`` accepts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer._validation import Integral, Real
from mercer.compression.refine import OPTIMISERS
from mercer.compression.shrink import Settings
from mercer.kernels import Precomputed
from mercer.model import KernelExpansion

__all__ = ["check_arguments", "distinct_points", "has_gradient"]

METRICS = ("feature", "data")
STARTS = ("best", "proportional")
_LARGEST = 1e100  # of coefficients, whose products with kernel values are squared


def check_arguments(expansion: KernelExpansion, n_vectors: Any, tol: Any, settings: Settings) -> Settings:
    """Raise ``ValueError`` for what is out of range; return the settings with inputs as an array."""
    if n_vectors is None and tol is None:
        msg = "n_vectors or tol must be given: how many vectors, or how close they must come."
        raise ValueError(msg)
    if n_vectors is not None:
        _check_whole("n_vectors", n_vectors, 1)
    if tol is not None and not (isinstance(tol, Real) and 0 < float(tol) < np.inf):
        msg = f"tol must be a finite number above zero, got {tol!r}."
        raise ValueError(msg)
    for name, value, allowed in (
        ("metric", settings.metric, METRICS),
        ("optimiser", settings.optimiser, OPTIMISERS),
        ("starts", settings.starts, STARTS),
    ):
        if value not in allowed:
            msg = f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}."
            raise ValueError(msg)
    _check_whole("n_starts", settings.n_starts, 1)
    _check_whole("search_iter", settings.search_iter, 0)
    _check_whole("max_iter", settings.max_iter, 1)
    _check_expansion(expansion)
    return replace(settings, inputs=_inputs(settings.inputs, expansion.points.shape[1]))


def distinct_points(expansion: KernelExpansion) -> KernelExpansion:
    """The expansion in float64, each point once, none without a coefficient (but one at least), without variance."""
    points = np.ascontiguousarray(expansion.points, dtype=np.float64)
    coefficients = np.ascontiguousarray(expansion.coefficients, dtype=np.float64)
    distinct, first, place = np.unique(points, axis=0, return_index=True, return_inverse=True)
    if len(distinct) < len(points):
        sums = np.zeros((len(distinct), coefficients.shape[1]))
        np.add.at(sums, place.ravel(), coefficients)
        order = np.argsort(first)
        points, coefficients = distinct[order], sums[order]
    used = np.any(coefficients != 0, axis=1)
    used[0] |= not np.any(used)
    intercept = np.asarray(expansion.intercept, dtype=np.float64)
    return KernelExpansion(expansion.kernel, points[used], coefficients[used], intercept)


def has_gradient(expansion: KernelExpansion) -> bool:
    """Whether the kernel can be differentiated by its points."""
    point = expansion.points[:1]
    try:
        expansion.kernel.points_gradient(point, point, np.ones((1, 1)))
    except NotImplementedError:
        return False
    return True


def _check_expansion(expansion: KernelExpansion) -> None:
    if isinstance(expansion.kernel, Precomputed):
        msg = "a model on a precomputed kernel cannot be compressed: its points are not known. Use a kernel and rows."
        raise ValueError(msg)  # noqa: TRY004  the value of a parameter of the model
    if len(expansion.points) == 0:
        msg = "the expansion has no points."
        raise ValueError(msg)
    if not (np.all(np.isfinite(expansion.points)) and np.all(np.isfinite(expansion.coefficients))):
        msg = "the points and coefficients of the expansion must be finite."
        raise ValueError(msg)
    largest = np.max(np.abs(expansion.coefficients), axis=0)
    if np.any((largest > 0) & ~((largest > 1 / _LARGEST) & (largest < _LARGEST))):
        msg = f"coefficients of an output go up to {largest.tolist()}: their squares are no numbers. Scale the targets."
        raise ValueError(msg)


def _inputs(inputs: Any, n_features: int) -> FloatArray | None:
    if inputs is None:
        return None
    array = np.ascontiguousarray(inputs, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != n_features or len(array) == 0:
        msg = f"inputs must be an array of at least one row and {n_features} columns, got shape {array.shape}."
        raise ValueError(msg)
    if not np.all(np.isfinite(array)):
        msg = "inputs contain NaN or infinity."
        raise ValueError(msg)
    return array


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        msg = f"{name} must be a whole number of at least {least}, got {value!r}."
        raise ValueError(msg)
