"""Weights of a robust fit: rows far from the first one count little in the second."""

from __future__ import annotations

import numpy as np

from mercer._typing import FloatArray

__all__ = ["hampel_weights"]

_HAMPEL = (2.5, 3.0)  # robust standard deviations: full weight up to the first, almost none from the second on
_OUTLIER = 1e-4  # weight of outliers
_NORMAL = 1.4826  # standard deviations of a normal law in a median absolute deviation
_ROUNDING = 1e-9  # of a share of all weights


def hampel_weights(residuals: FloatArray, weights: FloatArray) -> FloatArray:
    """Weights of rows by their residuals (n, p): 1 up to 2.5 robust standard deviations, falling to 1e-4 at 3.

    Of several outputs the one that is farthest out decides.
    """
    middle = [_median(column, weights) for column in residuals.T]
    scale = [_NORMAL * _median(np.abs(column - m), weights) for column, m in zip(residuals.T, middle, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(np.array(scale) > 0, np.abs(residuals) / scale, 0.0)  # no spread: no outliers
    first, last = _HAMPEL
    worst = np.max(ratio, axis=1)
    return np.asarray(np.clip((last - worst) / (last - first), _OUTLIER, 1.0))


def _median(values: FloatArray, weights: FloatArray) -> float:
    """Median of rows that count by their weights: a row of weight 2 is the row twice."""
    order = np.argsort(values, kind="stable")
    values, shares = values[order], np.cumsum(weights[order]) / np.sum(weights)
    below, above = np.searchsorted(shares, [0.5 * (1.0 - _ROUNDING), 0.5 * (1.0 + _ROUNDING)])
    return float(values[below] + values[min(int(above), len(values) - 1)]) / 2
