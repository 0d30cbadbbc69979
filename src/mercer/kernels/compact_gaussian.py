"""The Gaussian kernel, cut off by Askey's factor."""

import math
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.kernels.base import check_positive
from mercer.kernels.closed_form import OfDistance
from mercer.kernels.compact import Compact
from mercer.kernels.profiles import as_power, distance, elementwise, exp, power
from mercer.kernels.stationary import Formula

_DEFAULT_RADIUS = 3.0 * math.sqrt(2.0)  # three times σ = √2 ℓ


@elementwise
def _value(E: Any, one: Any, zero: Any, theta: Any, inverse: Any, nu: Any) -> Any:
    r = distance(E)
    return power(max(one - r * inverse, zero), nu, one) * exp(E) if r < theta else zero


@elementwise
def _slope(E: Any, one: Any, zero: Any, theta: Any, inverse: Any, nu: Any, less: Any) -> Any:  # noqa: PLR0917  numbers
    r = distance(E)
    base = max(one - r * inverse, zero)
    decay = power(base, less, one) * exp(E)
    return decay * (base + nu * inverse / r) if (r > zero) & (r < theta) & (base > zero) else zero


@stored
class CompactGaussian(Compact):
    r"""Gaussian kernel times Askey's factor, :math:`A\,(1-r/\theta)_+^{\nu}\,e^{-r^2/2}` with :math:`r=|(x-z)/\ell|`.

    Positive definite in d dimensions if :math:`\nu\ge(d+1)/2`. It has a kink at r = 0: functions of the model are
    continuous, not differentiable.

    Parameters
    ----------
    length_scale : float, array of one per feature, matrix, Metric, "median" or "auto", default=1.0
        ℓ, with names as in ``Wendland``.
    cutoff : float, optional
        Distance, in the units of the features, from which on the kernel is zero: θ = cutoff/ℓ, with the geometric mean
        of several length scales. By default θ = 3√2, three times σ = √2 ℓ, whatever ℓ is.
    exponent : float, optional
        ν; below 1 the kernel falls to zero vertically. By default the dimension of the rows, or the next number if that
        is even. Smaller values than (d+1)/2 are accepted, but then some rows have an indefinite matrix.
    amplitude : float, default=1.0
        A, the value of k(x, x): the prior variance of the function.

    See Also
    --------
    Wendland : Polynomials of compact support, differentiable ones among them.

    References
    ----------
    M. G. Genton (2001). Classes of kernels for machine learning: a statistics perspective. JMLR 2, 299-312.

    Examples
    --------
    >>> from mercer.kernels import CompactGaussian
    >>> CompactGaussian(length_scale=2.0, cutoff=4.0)([[0.0]], [[0.0], [2.0], [3.9], [4.0]]).round(4)
    array([[1.    , 0.3033, 0.0037, 0.    ]])
    >>> CompactGaussian(exponent=2).is_guaranteed(3), CompactGaussian(exponent=2).is_guaranteed(50)
    (True, False)
    """

    smooth_at_zero: ClassVar[bool] = False  # Askey's factor has a kink

    def __init__(
        self,
        length_scale: Any = 1.0,
        cutoff: float | None = None,
        exponent: float | None = None,
        amplitude: float = 1.0,
    ) -> None:
        self.length_scale = length_scale
        self.cutoff = cutoff
        self.exponent = exponent
        self.amplitude = amplitude

    @property
    def radius(self) -> float:
        """θ: 3√2, or the cutoff in units of the geometric mean of the length scales."""
        if self.cutoff is None:
            return _DEFAULT_RADIUS
        if isinstance(self.length_scale, str):
            msg = "a cutoff is a number of length scales only when these are numbers: call kernel.resolve(rows)."
            raise ValueError(msg)  # noqa: TRY004  as for other values of this parameter
        scales = np.ravel(np.asarray(self.length_scale, dtype=np.float64))
        # Relative to the first, so that equal length scales have exactly their value as mean.
        return float(self.cutoff) / float(scales[0] * np.exp(np.mean(np.log(scales) - np.log(scales[0]))))

    @property
    def steepness(self) -> float:
        """The exponent."""
        return float(self._number("exponent"))

    def is_guaranteed(self, n_features: int) -> bool:
        """Whether ν ≥ (d+1)/2."""
        return self.exponent is None or float(self.exponent) >= (n_features + 1) / 2

    def for_dimension(self, n_features: int) -> Self:
        """A copy whose exponent is a number: by default d, or d + 1 if d is even."""
        copy: Self = clone(self)
        if copy.exponent is None:
            copy.exponent = n_features + (n_features + 1) % 2
        return copy

    def with_radius(self, radius: float) -> Self:
        """A copy whose support has that radius; the cut-off must be left to it."""
        if self.cutoff is not None:
            raise ValueError("the radius of the support is that of the cut-off, which is given: leave cutoff=None.")
        return super().with_radius(radius)

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` also for a cutoff or an exponent that is not positive."""
        super().check(n_features)
        if self.cutoff is not None:
            check_positive(self.cutoff, "cutoff")
            if self.is_automatic:
                raise ValueError("length_scale='auto' chooses the cut-off: leave cutoff=None.")
            if self.metric is not None:
                raise ValueError("a cutoff has no unit where length_scale is a metric: leave cutoff=None.")
        if self.exponent is not None:
            check_positive(self.exponent, "exponent")

    def formula(self) -> Formula:
        """b^ν exp(E), b = max(0, 1 - r/θ), and b^(ν-1) (b + ν/(θr)) exp(E), 0 at r = 0."""
        nu, shared = self.steepness, (1.0, 0.0, self.radius, 1.0 / self.radius)
        return Formula(_value, _slope, (*shared, as_power(nu)), (*shared, nu, as_power(nu - 1)))

    def closed_form(self, n_features: int) -> OfDistance:
        """A (1 - r/θ)₊^ν exp(-r²/2)."""
        scale, exponent = self.inverse_scale(n_features), self.for_dimension(n_features).steepness
        return OfDistance(float(self.amplitude), scale, "squared", radius=self.radius, power=exponent)

    def _by_length_scale(
        self, by_scale: FloatArray, exponents: FloatArray, slopes: FloatArray, values: FloatArray
    ) -> FloatArray:
        """A given cutoff stays where it is when the length scale changes: θ = cutoff/ℓ̄ falls when ℓ grows."""
        if self.cutoff is None:
            return by_scale
        # ∂k/∂log θ = A ν b^(ν-1) (r/θ) exp(E) = r² (dk/dE - k); pairs outside may have an infinite r
        squares = np.where(slopes != 0, -2.0 * exponents, 0.0)
        by_radius = np.vdot(squares, slopes - values)
        return np.asarray(by_scale - by_radius / np.size(self.length_scale))  # ∂log θ/∂log ℓ_f = -1/d
