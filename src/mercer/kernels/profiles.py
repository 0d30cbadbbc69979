r"""Elementwise profiles of the stationary kernels, compiled and vectorised.

A stationary kernel is a function of the exponent :math:`E = -r^2/2`, with :math:`r` the scaled distance. The functions
below turn a tile of exponents into a tile of kernel values, or of derivatives :math:`\partial k/\partial E`, in place
and in one pass. Scalars come in the tile's dtype: a float64 constant would turn float32 loops into float64 ones. Tiles
are C-contiguous, and the loops run over them flat: a loop per row costs half as much again.

=============  ==========================================  ============================================
kernel         k(E), with r = sqrt(-2E)                    dk/dE
=============  ==========================================  ============================================
Gaussian       exp(E)                                      exp(E)
Matérn 1/2     exp(-r)                                     exp(-r) / r  (0 at r = 0)
Matérn 3/2     (1 + √3 r) exp(-√3 r)                       3 exp(-√3 r)
Matérn 5/2     (1 + √5 r + 5r²/3) exp(-√5 r)               5/3 (1 + √5 r) exp(-√5 r)
compact        b^ν exp(E), b = max(0, 1 - r/θ)             b^(ν-1) (b + ν/(θr)) exp(E)  (0 at r = 0)
Wendland 0     t^p, t = max(0, 1 - r)                      p t^(p-1) / r  (0 at r = 0)
Wendland 1     t^p (1 + p r)                               p(p+1) t^(p-1)
Wendland 2     t^p (1 + p r + (p²-1)/3 r²)                 (p+1)(p+2)/3 t^(p-1) (1 + (p-1) r)
=============  ==========================================  ============================================

The exponential is our own because NumPy's is scalar in float64 on machines without AVX-512: a polynomial after
Cody-Waite reduction, within 3 units in the last place, four to five times as fast. Exponentials below ``CUTOFF``
(1e-150 in float64, 1e-18 in float32) become zero: their products would be subnormal numbers, with which BLAS runs ten
times slower. ``lowest`` is the logarithm below which that happens; a tiny amplitude raises it. Powers of the compact
kernels below exp(``lowest``) become zero for the same reason.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mercer._jit import (
    array_at,
    bits_to_float,
    callback,
    float_to_bits,
    inlined,
    jit,
    overload,
    wide_vectors,
)
from mercer._typing import FloatArray
from mercer.kernels.exponents import scaled_exponent

__all__ = [
    "CUTOFF",
    "LARGEST_INTEGER_POWER",
    "compact_gaussian",
    "compact_gaussian_slope",
    "exponential",
    "exponential_over_distance",
    "gaussian",
    "gaussian_callback",
    "linear_exponential",
    "quadratic_exponential",
    "wendland",
    "wendland_over_distance",
]

_wide: Any = wide_vectors

CUTOFF = {np.dtype(np.float64): 1e-150, np.dtype(np.float32): 1e-18}

# Integer powers up to here are products of repeated squares, seven of them at the most.
LARGEST_INTEGER_POWER = 127

_LOWEST64 = math.log(1e-150)
_LOWEST32 = np.float32(math.log(1e-18))
_LOG2E = 1.0 / math.log(2.0)
_LOG2E32 = np.float32(_LOG2E)
# ln 2 in two parts, the first with trailing zero bits so that its product with an integer is exact.
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LN2_HIGH32, _LN2_LOW32 = np.float32(0.693359375), np.float32(-2.12194440e-4)
# Adding 1.5·2^52 (1.5·2^23) rounds to an integer and leaves it in the low bits.
_ROUND64, _ROUND32 = 6755399441055744.0, np.float32(12582912.0)
_ONE_BITS64, _ONE_BITS32 = np.int64(1023 << 52), np.int32(127 << 23)
_MANTISSA64, _MANTISSA32 = np.int64(52), np.int32(23)
# Taylor coefficients 1/k!: on |t| <= ln(2)/2 the first omitted term is below 2^-53 (2^-24).
_T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9, _T10, _T11, _T12 = (1.0 / math.factorial(k) for k in range(2, 13))
_F2, _F3, _F4, _F5, _F6, _F7 = (np.float32(1.0 / math.factorial(k)) for k in range(2, 8))
_ONE32, _ZERO32 = np.float32(1.0), np.float32(0.0)


def _exp(x: Any, lowest: Any) -> Any:
    """exp(min(x, 0)), zero where x <= lowest. In compiled code; see the two versions below."""
    raise NotImplementedError


def _exp64(x: Any, lowest: Any) -> Any:
    clipped = max(min(x, 0.0), _LOWEST64)
    rounded = clipped * _LOG2E + _ROUND64
    k = rounded - _ROUND64
    t = (clipped - k * _LN2_HIGH) - k * _LN2_LOW
    p = _T12 * t + _T11
    p = p * t + _T10
    p = p * t + _T9
    p = p * t + _T8
    p = p * t + _T7
    p = p * t + _T6
    p = p * t + _T5
    p = p * t + _T4
    p = p * t + _T3
    p = p * t + _T2
    p = p * t + 1.0
    p = p * t + 1.0
    power = bits_to_float((float_to_bits(rounded) << _MANTISSA64) + _ONE_BITS64)
    return p * power if x > lowest else 0.0


def _exp32(x: Any, lowest: Any) -> Any:
    clipped = max(min(x, _ZERO32), _LOWEST32)
    rounded = clipped * _LOG2E32 + _ROUND32
    k = rounded - _ROUND32
    t = (clipped - k * _LN2_HIGH32) - k * _LN2_LOW32
    p = _F7 * t + _F6
    p = p * t + _F5
    p = p * t + _F4
    p = p * t + _F3
    p = p * t + _F2
    p = p * t + _ONE32
    p = p * t + _ONE32
    # Numba widens 32-bit integer arithmetic to 64 bits: narrow it again.
    power = bits_to_float(np.int32((float_to_bits(rounded) << _MANTISSA32) + _ONE_BITS32))
    return p * power if x > lowest else _ZERO32


@overload(_exp, inline="always", jit_options={"fastmath": {"contract"}})
def _choose_exp(x: Any, lowest: Any) -> Callable[[Any, Any], Any]:
    return _exp64 if x.bitwidth == 64 else _exp32


@inlined
def _distance(exponent: Any) -> Any:
    # |E| and not -E: rounding may leave the exponent of two equal points slightly positive.
    return np.sqrt(abs(exponent + exponent))


@jit
def gaussian(tile: FloatArray, amplitude: Any, lowest: Any) -> None:
    """Replace E by amplitude · exp(E)."""
    flat = tile.reshape(tile.size)
    for i in range(flat.size):
        flat[i] = amplitude * _exp(flat[i], lowest)


def gaussian_callback() -> int:
    """``gaussian`` for compiled code; see ``Factors``. Parameters: amplitude, lowest, limits."""
    return callback(_gaussian_rows, "fiiififif")


def _gaussian_rows(  # noqa: PLR0917  a callback has no tuples
    tile: Any,
    n_rows: Any,
    n_columns: Any,
    stride: Any,
    left: Any,
    width: Any,
    right: Any,
    right_stride: Any,
    parameters: Any,
) -> None:
    _wide()
    table, rows = array_at(tile, (n_rows[0], stride[0])), array_at(left, (n_rows[0], width[0]))
    points, n_features = array_at(right, (width[0], right_stride[0])), width[0] - 2
    amplitude, lowest, far, negligible, rounding = array_at(parameters, 5)
    for i in range(n_rows[0]):
        norm = -rows[i, n_features]
        if norm > far:  # as in recompute_pairs
            for j in range(n_columns[0]):
                if table[i, j] >= negligible - rounding * norm:
                    table[i, j] = scaled_exponent(rows, i, points, j)
        for j in range(n_columns[0]):
            table[i, j] = amplitude * _exp(table[i, j], lowest)


@jit
def exponential(tile: FloatArray, amplitude: Any, root: Any, lowest: Any) -> None:
    """Replace E by amplitude · exp(-s), s = root · r."""
    flat = tile.reshape(tile.size)
    for i in range(flat.size):
        flat[i] = amplitude * _exp(-root * _distance(flat[i]), lowest)


@jit
def linear_exponential(tile: FloatArray, amplitude: Any, root: Any, lowest: Any) -> None:
    """Replace E by amplitude · (1 + s) exp(-s), s = root · r."""
    flat = tile.reshape(tile.size)
    farthest = -(lowest + lowest)  # there the exponential is zero; s stops, lest ∞ · 0 be NaN
    for i in range(flat.size):
        s = min(root * _distance(flat[i]), farthest)
        flat[i] = (amplitude + amplitude * s) * _exp(-s, lowest)


@jit
def quadratic_exponential(tile: FloatArray, amplitude: Any, third: Any, root: Any, lowest: Any) -> None:
    """Replace E by (amplitude · (1 + s) + third · s²) exp(-s), s = root · r."""
    flat = tile.reshape(tile.size)
    farthest = -(lowest + lowest)
    for i in range(flat.size):
        s = min(root * _distance(flat[i]), farthest)
        flat[i] = (amplitude + s * (amplitude + third * s)) * _exp(-s, lowest)


@jit
def exponential_over_distance(tile: FloatArray, amplitude: Any, lowest: Any) -> None:
    """Replace E by amplitude · exp(-r) / r, and by 0 where r = 0."""
    flat = tile.reshape(tile.size)
    for i in range(flat.size):
        r = _distance(flat[i])
        if r > 0:
            flat[i] = amplitude * _exp(-r, lowest) / r
        else:
            flat[i] = r  # a zero of the tile's dtype


def _power(base: Any, exponent: Any, one: Any) -> Any:
    """base^exponent, base >= 0. In compiled code, by the type of the exponent; see the two versions below."""
    raise NotImplementedError


def _integer_power(base: Any, exponent: Any, one: Any) -> Any:
    # The bits are the same for the whole tile: without a loop over them the loop over the tile vectorises. Squares that
    # are not used stay at one, lest they be subnormal.
    result = base if exponent & 1 else one
    square = base if exponent > 1 else one
    square = square * square
    result = result * square if exponent & 2 else result
    square = square if exponent > 3 else one
    square = square * square
    result = result * square if exponent & 4 else result
    square = square if exponent > 7 else one
    square = square * square
    result = result * square if exponent & 8 else result
    square = square if exponent > 15 else one
    square = square * square
    result = result * square if exponent & 16 else result
    square = square if exponent > 31 else one
    square = square * square
    result = result * square if exponent & 32 else result
    square = square if exponent > 63 else one
    return result * (square * square) if exponent & 64 else result


def _real_power(base: Any, exponent: Any, one: Any) -> Any:
    return base**exponent


@overload(_power, inline="always", jit_options={"fastmath": {"contract"}})
def _choose_power(base: Any, exponent: Any, one: Any) -> Callable[[Any, Any, Any], Any]:
    return _integer_power if hasattr(exponent, "signed") else _real_power  # integer types alone have a sign to declare


@jit
def compact_gaussian(tile: FloatArray, amplitude: Any, support: Any, exponent: Any, lowest: Any) -> None:
    """Replace E by amplitude · b^exponent exp(E), b = max(0, 1 - r/support)."""
    flat = tile.reshape(tile.size)
    one, zero = tile.dtype.type(1), tile.dtype.type(0)
    inverse, smallest = one / support, np.exp(lowest)
    for i in range(flat.size):
        r = _distance(flat[i])
        base = max(one - r * inverse, zero)
        value = _power(base, exponent, one) * _exp(flat[i], lowest)
        flat[i] = amplitude * value if (r < support) & (value > smallest) else zero


@jit
def compact_gaussian_slope(
    tile: FloatArray, amplitude: Any, support: Any, exponent: Any, less: Any, lowest: Any
) -> None:
    """Replace E by amplitude · b^less (b + exponent/(support · r)) exp(E), less = exponent - 1; by 0 where r = 0."""
    flat = tile.reshape(tile.size)
    one, zero = tile.dtype.type(1), tile.dtype.type(0)
    inverse = one / support
    for i in range(flat.size):
        r = _distance(flat[i])
        base = max(one - r * inverse, zero)
        if r > zero and r < support and base > zero:
            decay = amplitude * _power(base, less, one) * _exp(flat[i], lowest)
            flat[i] = decay * (base + exponent * inverse / r)
        else:
            flat[i] = zero


@jit
def wendland(tile: FloatArray, amplitude: Any, exponent: Any, linear: Any, quadratic: Any, lowest: Any) -> None:
    """Replace E by amplitude · t^exponent (1 + linear · r + quadratic · r²), t = max(0, 1 - r), falling with r."""
    flat = tile.reshape(tile.size)
    one, zero = tile.dtype.type(1), tile.dtype.type(0)
    smallest = np.exp(lowest)
    for i in range(flat.size):
        r = min(_distance(flat[i]), one)
        value = min(_power(one - r, exponent, one) * (one + r * (linear + quadratic * r)), one)  # rounding may exceed 1
        flat[i] = amplitude * value if (r < one) & (value > smallest) else zero


@jit
def wendland_over_distance(tile: FloatArray, amplitude: Any, exponent: Any) -> None:
    """Replace E by amplitude · t^exponent / r, t = max(0, 1 - r), and by 0 where r = 0."""
    flat = tile.reshape(tile.size)
    one, zero = tile.dtype.type(1), tile.dtype.type(0)
    for i in range(flat.size):
        r = _distance(flat[i])
        if r > zero and r < one:
            flat[i] = amplitude * _power(one - r, exponent, one) / r
        else:
            flat[i] = zero
