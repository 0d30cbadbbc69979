"""Exponents E = -|x̃ - z̃|²/2 of stationary kernels: rows and points whose product they are, and pairs that it spoils."""

from typing import Any

import numpy as np

from mercer._jit import array_at, callback, jit, jit_sum
from mercer._typing import FloatArray, IntArray

__all__ = ["recompute_pairs", "scale_points", "scale_rows", "scaled_exponent", "scaling_callback"]


@jit_sum
def _half_square(rows: FloatArray, i: Any, n_features: Any) -> Any:
    """|x̃|²/2 of a row, in a loop that stores nothing.

    Where a loop stores, compiled code sums in another order if it finds the arrays close to each other in memory, and
    results would differ in their last bits from one call to the next.
    """
    square = rows.dtype.type(0)
    for k in range(n_features):
        square += rows[i, k] * rows[i, k]
    return square * rows.dtype.type(0.5)


@jit_sum
def scale_rows(rows: FloatArray, shift: FloatArray, inverse_scale: FloatArray, out: FloatArray) -> Any:
    """Fill out (T, d+2) with [x̃, -|x̃|²/2, 1], x̃ = (x - shift) · inverse_scale; return the largest |x̃|²/2."""
    n_features = rows.shape[1]
    one = out.dtype.type(1)
    largest: Any = 0.0
    for i in range(rows.shape[0]):
        for k in range(n_features):
            out[i, k] = (rows[i, k] - shift[k]) * inverse_scale[k]
        half_norm = _half_square(out, i, n_features)
        out[i, n_features] = -half_norm
        out[i, n_features + 1] = one
        if half_norm > largest:  # noqa: PLR1730  max would be compiled as a function of its own
            largest = half_norm
    return largest


def scaling_callback() -> int:
    """``scale_rows`` for compiled code; see ``Factors``. Scales: shift, then inverse scale."""
    return callback(_scale_rows, "fiifff")


def _scale_rows(rows: Any, n_rows: Any, n_features: Any, scales: Any, left: Any, largest: Any) -> None:
    n, d = n_rows[0], n_features[0]
    both, out = array_at(scales, (2, d)), array_at(left, (n, d + 2))
    array_at(largest, 1)[0] = scale_rows(array_at(rows, (n, d)), both[0], both[1], out)


@jit_sum
def scale_points(
    points: FloatArray,
    places: IntArray,
    shift: FloatArray,
    inverse_scale: FloatArray,
    scaled: FloatArray,
    folded: FloatArray,
) -> Any:
    """Fill rows ``places`` of z̃ (m, d) and [z̃, 1, -|z̃|²/2] (m, d+2), float64 inside; return whether all are finite."""
    n_features, finite = points.shape[1], True
    for place in places:
        for k in range(n_features):
            value = scaled.dtype.type((points[place, k] - shift[k]) * inverse_scale[k])
            scaled[place, k] = value
            folded[place, k] = value
        half_norm = _half_square(scaled, place, n_features)
        folded[place, n_features + 1] = -half_norm
        finite = finite and bool(np.isfinite(half_norm))
    return finite


@jit_sum
def _exponent(row: FloatArray, point: FloatArray, inverse_scale: FloatArray) -> Any:
    squares = 0.0
    for k in range(inverse_scale.size):
        difference = (np.float64(row[k]) - point[k]) * inverse_scale[k]
        squares += difference * difference
    return -0.5 * squares


@jit
def recompute_pairs(
    tile: FloatArray, norms: FloatArray, rows: FloatArray, points: FloatArray, inverse_scale: FloatArray, limits: Any
) -> None:
    """Recompute, by their definition and in float64, the exponents whose error could be seen.

    The product of folded norms cancels with an error of about eps·|x̃|². It is seen in kernel values that are not
    negligible, of rows with a large norm; and, by kernels with a kink at r = 0, where r is small beside |x̃|: an error
    of 1e-15 in r² is one of 3e-8 in r.

    Parameters
    ----------
    tile : array (T, m)
        Exponents, changed in place.
    norms : array (T,)
        -|x̃|²/2.
    rows : array (T, d)
    points : array (m, d), float64
    inverse_scale : array (d,), float64
    limits : four or five numbers
        Norm |x̃|²/2 above which rows are looked at; exponent above which a value is not negligible; relative error of an
        exponent's parts; share of |x̃|²/2 below which an exponent is recomputed whatever the norm (0 without a kink);
        exponent below which kernel values are exactly zero, and never recomputed (none without the fifth).
    """
    far, negligible, rounding, kink = limits[:4]
    edge = limits[-1] if len(limits) > 4 else -np.inf
    for i in range(tile.shape[0]):
        norm = -np.float64(norms[i])
        if norm <= far:
            if kink == 0.0:
                continue
            bound = max(-kink * norm, edge - rounding * norm)
        elif norm < np.inf:
            bound = max(min(-kink * norm, negligible - rounding * norm), edge - rounding * norm)
        else:
            bound = -np.inf
        for j in range(tile.shape[1]):
            if not (tile[i, j] < bound):  # NaN counts
                tile[i, j] = _exponent(rows[i], points[j], inverse_scale)


@jit_sum
def scaled_exponent(rows: FloatArray, i: Any, points: FloatArray, j: Any) -> Any:
    """Exponent of a row (T, d+2) and a column of points (d+2, m), both scaled, from their differences."""
    squares = 0.0
    for k in range(rows.shape[1] - 2):
        difference = rows[i, k] - points[k, j]
        squares += difference * difference
    return -0.5 * squares
