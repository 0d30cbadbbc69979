"""What every method needs first: rows that count, the shift of the targets, the kernel with numbers for parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.random import sample_without_replacement

from mercer._typing import FloatArray, IntArray
from mercer._validation import check_random_state
from mercer.engine import ArrayTable
from mercer.kernels import Kernel, Precomputed, as_kernel

__all__ = ["resolve_kernel", "target_shift", "used_rows"]

_MEDIAN_SAMPLE = 1000  # rows from which data-dependent kernel parameters are found


def used_rows(table: ArrayTable, noise: float) -> IntArray:
    """Numbers of the rows whose noise λ/ω is finite: rows of weight zero are left out."""
    if table.weights is None:
        return np.arange(table.n_rows)
    with np.errstate(over="ignore", divide="ignore"):
        index = np.flatnonzero(np.isfinite(max(noise, 1.0) / table.weights))
    if not len(index):
        msg = "sample_weight is so small that no row counts: scale it."
        raise ValueError(msg)
    return index


def target_shift(table: ArrayTable, *, intercept: bool) -> FloatArray:
    """What to subtract from the targets, shape (p,): their mean where an intercept takes it up again.

    A large offset would otherwise cost the sums their digits. Without an intercept it is zero.
    """
    return table.mean_target() if intercept else np.zeros(table.n_outputs)


def resolve_kernel(kernel: Any, table: ArrayTable, random_state: Any) -> Kernel:
    """Return the kernel with all parameters as numbers, found on a sample of the rows where they depend on data."""
    if isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel == "precomputed"):
        msg = "kernel='precomputed' is for ExactRegressor and ExactClassifier: a basis needs the rows themselves."
        raise ValueError(msg)
    unresolved: Kernel = as_kernel(kernel)
    if not unresolved.needs_data:
        return unresolved.resolve(np.empty((0, table.n_features)))
    positive = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights)
    if len(positive) > _MEDIAN_SAMPLE:
        chosen = sample_without_replacement(
            len(positive), _MEDIAN_SAMPLE, random_state=check_random_state(random_state)
        )
        positive = positive[np.sort(chosen)]
    weights = None if table.weights is None else table.weights[positive]
    return unresolved.resolve(table.rows.take(positive), weights)
