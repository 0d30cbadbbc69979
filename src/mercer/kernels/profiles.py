r"""Formulas of stationary kernels as compiled loops.

A stationary kernel is a function of the exponent :math:`E = -r^2/2`, with :math:`r` the scaled distance.
``elementwise`` turns such a formula, a function of one number, into a loop that replaces a tile of exponents by kernel
values, in place and in one pass::

    @elementwise
    def value(E, shape):
        return (1 - E / shape) ** -shape

Tiles are C-contiguous, and the loops run over them flat: a loop per row costs half as much again. Numbers that a
formula takes come in the tile's dtype, integers as they are: a literal ``1`` in the formula would turn float32 loops
into float64 ones, which is as precise but slower.

``exp`` is our own because NumPy's is scalar in float64 on machines without AVX-512: a polynomial after Cody-Waite
reduction, within 3 units in the last place, four to five times as fast. Exponentials, and values of kernels, below
``CUTOFF`` (1e-150 in float64, 1e-18 in float32) become zero: their products would be subnormal numbers, with which BLAS
runs ten times slower.
"""

import hashlib
import math
from collections.abc import Callable
from functools import cached_property, partial
from types import FunctionType
from typing import Any

import numpy as np

from mercer._jit import array_at, inlined, jit, jit_sum, overload, scalar
from mercer._typing import FloatArray
from mercer.kernels.closed_form import is_product

Profile = Callable[[FloatArray], None]  # replaces exponents by values, in place

CUTOFF = {np.dtype(np.float64): 1e-150, np.dtype(np.float32): 1e-18}


def exp(x: Any) -> Any:
    """exp(min(x, 0)), zero where that is below the cutoff; in compiled code one of the two versions below."""
    return math.exp(min(x, 0.0))


def _exp_of(real: Any, integer: Any, ln2_high: float, ln2_low: float, degree: int) -> Callable[[Any], Any]:
    """The exponential of a dtype, with integers of its size, by Taylor's polynomial on |t| <= ln(2)/2.

    ln 2 is given in two parts, the first with trailing zero bits so that its product with an integer is exact.
    """
    lowest, zero, log2e = real(math.log(CUTOFF[np.dtype(real)])), real(0.0), real(1.0 / math.log(2.0))
    high, low, n_bits, one_bits = real(ln2_high), real(ln2_low), integer(np.finfo(real).nmant), real(1.0).view(integer)
    rounding = real(1.5 * 2.0 ** np.finfo(real).nmant)  # added, it rounds to an integer and leaves it in the low bits
    leading, *others = (real(1.0 / math.factorial(k)) for k in range(degree, -1, -1))
    coefficients = tuple(others)

    def compiled(x: Any) -> Any:
        clipped = max(min(x, zero), lowest)
        rounded = clipped * log2e + rounding
        k = rounded - rounding
        t = (clipped - k * high) - k * low
        p = leading
        for coefficient in coefficients:
            p = p * t + coefficient
        # Numba widens 32-bit integer arithmetic to 64 bits: narrow it again.
        power = integer((real(rounded).view(integer) << n_bits) + one_bits).view(real)
        return p * power if x > lowest else zero

    return compiled


# The first omitted terms are below 2^-53 and 2^-24.
_exp64 = _exp_of(np.float64, np.int64, 6.93147180369123816490e-01, 1.90821492927058770002e-10, 12)
_exp32 = _exp_of(np.float32, np.int32, 0.693359375, -2.12194440e-4, 7)


@overload(exp, inline="always", jit_options={"fastmath": {"contract"}})
def _choose_exp(x: Any) -> Callable[[Any], Any]:
    return _exp64 if x.bitwidth == 64 else _exp32


@inlined
def distance(exponent: Any) -> Any:
    """r = √(-2E)."""
    # |E| and not -E: rounding may leave the exponent of two equal points slightly positive.
    return np.sqrt(abs(exponent + exponent))


def power(base: Any, exponent: Any, one: Any) -> Any:
    """base^exponent, base >= 0, and one in its dtype; compiled by the type of the exponent, see ``as_power``."""
    return base**exponent * one


def _integer_power(base: Any, exponent: Any, one: Any) -> Any:
    # A fixed number of steps, so that the loop over the tile vectorises. Squares that are not used stay at one: they
    # cannot be subnormal.
    result, square = one, base
    for bit in (1, 2, 4, 8, 16, 32, 64):
        result = result * square if exponent & bit else result
        square = square if exponent >= bit + bit else one
        square = square * square
    return result


def _real_power(base: Any, exponent: Any, one: Any) -> Any:
    return base**exponent


@overload(power, inline="always", jit_options={"fastmath": {"contract"}})
def _choose_power(base: Any, exponent: Any, one: Any) -> Callable[[Any, Any, Any], Any]:
    return _integer_power if hasattr(exponent, "signed") else _real_power  # integer types alone have a sign to declare


def as_power(exponent: float) -> float:
    """An integer, where ``power`` is to be a product of squares, else a float."""
    return int(exponent) if is_product(exponent) else float(exponent)


# -------------------------------------------------------------------------------------------------------------- loops


def _fill(tile: FloatArray, amplitude: Any, *numbers: Any) -> None:
    flat = tile.reshape(tile.size)
    for i in range(flat.size):
        flat[i] = amplitude * formula(flat[i], *numbers)  # type: ignore[name-defined]  # noqa: F821


def _fill_and_flush(tile: FloatArray, amplitude: Any, smallest: Any, *numbers: Any) -> None:
    flat = tile.reshape(tile.size)
    zero = smallest - smallest
    for i in range(flat.size):
        value = formula(flat[i], *numbers)  # type: ignore[name-defined]  # noqa: F821
        flat[i] = amplitude * value if abs(value) > smallest else zero  # NaN (∞ · 0, far away) becomes zero, too


class Elementwise:
    """A compiled loop over tiles of a formula of one exponent; the loop is compiled on its first use.

    ``formula(E, *numbers)`` may use whatever Numba supports, and ``exp``, ``distance`` and ``power`` of this module.
    """

    def __init__(self, formula: Callable[..., Any], *, vanishes: bool = False) -> None:
        given: Any = formula
        if given.__closure__ or given.__defaults__ or given.__kwdefaults__:  # compiled code would be told apart by none
            msg = f"the formula {formula.__qualname__} must take its numbers as arguments, not from its surroundings."
            raise TypeError(msg)
        self.formula, self._vanishes = formula, vanishes

    def profile(self, dtype: np.dtype[Any], amplitude: float, numbers: tuple[float, ...]) -> Profile:
        """The function that replaces the exponents of a tile by amplitude · formula(E, *numbers)."""
        factor, smallest = dtype.type(amplitude), smallest_value(dtype, amplitude)
        given = tuple(n if isinstance(n, int) else dtype.type(representable(n, dtype)) for n in numbers)
        if self._vanishes and smallest == CUTOFF[dtype]:
            plain = self._plain
            return lambda tile: plain(tile, factor, *given)
        flushing, least = self._flushing, dtype.type(smallest)
        return lambda tile: flushing(tile, factor, least, *given)

    @cached_property
    def _plain(self) -> Any:
        return self._loop(_fill)

    @cached_property
    def _flushing(self) -> Any:
        return self._loop(_fill_and_flush)

    def _loop(self, template: Any) -> Any:
        """The template with this formula, under the formula's name and place: by these its code is found on disk."""
        own: Any = self.formula
        text = own.__code__
        used = {name: own.__globals__[name] for name in text.co_names if name in own.__globals__}
        numbers = {name: value for name, value in used.items() if isinstance(value, int | float)}
        content = repr((text.co_code, text.co_consts, text.co_names, numbers)).encode()
        mark = hashlib.sha256(content).hexdigest()[:8]  # tells formulas of one name and line apart
        name = f"{own.__qualname__}{template.__name__}_{mark}"
        place = {"co_filename": text.co_filename, "co_firstlineno": text.co_firstlineno}
        code = template.__code__.replace(co_name=name, co_qualname=name, **place)
        loop: Any = FunctionType(code, {"formula": scalar(own), "__name__": own.__module__}, name)
        # Code on disk notices numbers, and sources of mercer; not what a formula takes from elsewhere.
        loop.is_kept = all(name in numbers or _is_ours(value) for name, value in used.items())
        return jit(loop)


def _is_ours(value: Any) -> bool:
    """Whether something is mercer's own, or a module of mathematics."""
    module = str(getattr(value, "__module__", None) or getattr(value, "__name__", ""))
    return module in {"math", "numpy"} or module.partition(".")[0] == "mercer"


elementwise = Elementwise
# Of a formula that is itself zero wherever it would be below ``CUTOFF``, as ``exp`` is.
vanishing = partial(Elementwise, vanishes=True)


def smallest_value(dtype: np.dtype[Any], amplitude: float) -> float:
    """Value below which a kernel becomes zero: the cutoff, or where amplitude times it is subnormal."""
    return max(CUTOFF[dtype], min(2.0 * float(np.finfo(dtype).tiny) / amplitude, 1.0))


def representable(number: float, dtype: np.dtype[Any]) -> float:
    """A number, moved to where its square and its inverse are normal numbers of that dtype; zero stays."""
    smallest = float(np.sqrt(np.finfo(dtype).tiny)) * 2.0
    return math.copysign(min(max(abs(number), smallest), 1.0 / smallest), number) if number != 0 else 0.0


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


def scale_rows_at(rows: Any, n_rows: Any, n_features: Any, scales: Any, left: Any, largest: Any) -> None:
    """``scale_rows`` as a callback of compiled code; see ``Factors``. Scales: shift, then inverse scale."""
    n, d = n_rows[0], n_features[0]
    both, out = array_at(scales, (2, d)), array_at(left, (n, d + 2))
    array_at(largest, 1)[0] = scale_rows(array_at(rows, (n, d)), both[0], both[1], out)


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

    The tile (T, m) of exponents is changed in place; norms (T,) are -|x̃|²/2; points (m, d) and the inverse scale (d,)
    are float64. The limits are: norm |x̃|²/2 above which rows are looked at; exponent above which a value is not
    negligible; relative error of an exponent's parts; share of |x̃|²/2 below which an exponent is recomputed whatever
    the norm (0 without a kink); exponent below which kernel values are exactly zero, and never recomputed.
    """
    far, negligible, rounding, kink, edge = limits
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
