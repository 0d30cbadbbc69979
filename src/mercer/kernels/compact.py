r"""Stationary kernels of compact support: exactly zero beyond a radius, so that Gram matrices are sparse.

The rule for the exponent guarantees a positive definite kernel on any rows in d dimensions, but in many dimensions it
makes the kernel so steep that a row hardly sees its neighbours. A smaller exponent is accepted too: the matrix of rows
that do not fill the d dimensions is often positive definite all the same, which is then to be checked on these rows.

==========  ==================  ============================================================
symbol      code                meaning
==========  ==================  ============================================================
ℓ           ``length_scale``    of the Gaussian; for Wendland the radius of the support
θ           ``radius``          of the support, in units of ℓ
ν           ``exponent``        of Askey's factor
k           ``smoothness``      functions of the model are differentiable k times
q           ``_q``              ⌊dimension/2⌋ + k + 1
==========  ==================  ============================================================
"""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.kernels import profiles
from mercer.kernels.base import check_positive
from mercer.kernels.stationary import Contraction, Profile, Stationary, lowest_logarithm

__all__ = ["Compact", "CompactGaussian", "Wendland"]

DEFAULT_RADIUS = 3.0 * math.sqrt(2.0)  # three times σ = √2 ℓ


class Compact(Stationary):
    """A stationary kernel that is exactly zero where r = |(x - z)/ℓ| is at least ``support``.

    A subclass gives, of a kernel whose parameters are numbers, the radius and the steepness, besides the profiles.
    """

    @property
    @abstractmethod
    def radius(self) -> float:
        """θ, of a kernel whose length scale is a number."""

    @property
    @abstractmethod
    def steepness(self) -> float:
        """-dk/d(r/θ) at r = 0 relative to the amplitude, of a kernel for a given dimension; 0 without a kink."""

    @abstractmethod
    def is_guaranteed(self, n_features: int) -> bool:
        """Whether the kernel is known to be positive definite on all rows of that width."""

    @abstractmethod
    def for_dimension(self, n_features: int) -> Self:
        """A copy in which the parameters that follow the rows' width are numbers."""

    def support(self, n_features: int) -> float:
        """Radius, in units of x/length_scale, from which on the kernel is exactly zero."""
        self.check(n_features)
        return self.radius

    def with_radius(self, radius: float) -> Self:
        """A copy whose support has that radius, in the units of the features, the same for all."""
        copy: Self = clone(self)
        copy.length_scale = 1.0
        copy.length_scale = radius / copy.radius
        return copy

    def check(self, n_features: int | None = None) -> None:
        """Let ``length_scale="auto"`` pass, which estimators on sparse matrices replace by a number."""
        if not self.is_automatic:
            super().check(n_features)

    @property
    def is_automatic(self) -> bool:
        """Whether the length scale is to be found by counting neighbours."""
        return isinstance(self.length_scale, str) and self.length_scale == "auto"

    def resolve(self, sample: FloatArray, weights: FloatArray | None = None) -> Self:
        """Replace ``"median"``, and what follows the rows' width, by numbers."""
        if self.is_automatic:
            msg = "length_scale='auto' is for CompactRegressor and CompactClassifier, which count neighbours."
            raise ValueError(msg)
        return super().resolve(sample, weights).for_dimension(sample.shape[1])

    def of_squares(self, squares: FloatArray, n_features: int) -> None:
        """Replace squared scaled distances r² by kernel values, in place.

        Parameters
        ----------
        squares : array of any shape, float32 or float64, C-contiguous
            Σ_f (x_f - z_f)²/ℓ_f²; values that overflowed to infinity are welcome.
        n_features : int
            Width of the rows.
        """
        if squares.dtype not in profiles.CUTOFF or not squares.flags.c_contiguous:
            msg = f"squares must be a C-contiguous float32 or float64 array, got {squares.dtype} {squares.shape}."
            raise ValueError(msg)
        self.check(n_features)
        profile = self.for_dimension(n_features).profile(squares.dtype)
        squares *= -0.5  # E = -r²/2
        profile(squares.reshape(1, squares.size))

    def limits(self, dtype: np.dtype[Any]) -> tuple[float, ...]:
        """Look at rows farther from the centre than the support, and there at pairs within the support.

        So the kernel is as precise, and its edge as sharp, for a narrow support as for a wide one.
        """
        far, _, rounding, kink = super().limits(dtype)
        radius = _representable(self.radius, dtype)
        edge = -0.5 * radius**2
        # Of rows that are not far |x̃| is at most 8 or the radius, and with it grows the error of r: the steepness times
        # that error is to be no larger than for a Matérn kernel.
        steep = max(1.0, self.steepness / max(radius, 8.0))
        negligible = max(edge, float(np.log(profiles.CUTOFF[dtype])))
        return min(far, -edge), negligible, rounding, kink * steep**2, edge


@stored
class CompactGaussian(Compact):
    r"""Gaussian kernel times Askey's factor, :math:`A\,(1-r/\theta)_+^{\nu}\,e^{-r^2/2}` with :math:`r=|(x-z)/\ell|`.

    Positive definite in d dimensions if :math:`\nu\ge(d+1)/2`. It has a kink at r = 0: functions of the model are
    continuous, not differentiable.

    Parameters
    ----------
    length_scale : float, array of one per feature, "median" or "auto", default=1.0
        ℓ. ``"median"`` takes the median distance between rows when the model is fitted; ``"auto"``, of estimators on
        sparse matrices, one for which rows have 50 neighbours on average.
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
        return DEFAULT_RADIUS if self.cutoff is None else float(self.cutoff) / _geometric_mean(self.length_scale)

    @property
    def steepness(self) -> float:
        """The exponent."""
        return self._exponent

    @property
    def smooth_at_zero(self) -> bool:
        """No: Askey's factor has a kink."""
        return False

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
            msg = "the radius of the support is that of the cut-off, which is given: leave cutoff=None."
            raise ValueError(msg)
        return super().with_radius(radius)

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` also for a cutoff or an exponent that is not positive."""
        super().check(n_features)
        if self.cutoff is not None:
            check_positive(self.cutoff, "cutoff")
            if self.is_automatic:
                msg = "length_scale='auto' chooses the cut-off: leave cutoff=None."
                raise ValueError(msg)
        if self.exponent is not None:
            check_positive(self.exponent, "exponent")

    def profile(self, dtype: np.dtype[Any]) -> Profile:
        """A b^ν exp(E), b = max(0, 1 - r/θ)."""
        amplitude, radius = dtype.type(self.amplitude), dtype.type(_representable(self.radius, dtype))
        power, lowest = _as_power(self._exponent, dtype), lowest_logarithm(dtype, self.amplitude)
        return lambda tile: profiles.compact_gaussian(tile, amplitude, radius, power, lowest)

    def slope(self, dtype: np.dtype[Any]) -> Profile:
        """dk/dE: A b^(ν-1) (b + ν/(θr)) exp(E)."""
        amplitude, radius = dtype.type(self.amplitude), dtype.type(_representable(self.radius, dtype))
        power, lowest = _as_power(self._exponent - 1, dtype), lowest_logarithm(dtype, self.amplitude)
        exponent = dtype.type(self._exponent)
        return lambda tile: profiles.compact_gaussian_slope(tile, amplitude, radius, exponent, power, lowest)

    def contraction(self, rows: FloatArray, points: FloatArray, weights: FloatArray) -> Contraction:
        """All gradients of one tile, contracted; a given cutoff stays where it is when the length scale changes."""
        if self.cutoff is None:
            return super().contraction(rows, points, weights)
        self.check(np.shape(points)[1])
        return _CutContraction(self.for_dimension(np.shape(points)[1]), rows, points, weights)

    @property
    def _exponent(self) -> float:
        if self.exponent is None:
            msg = "exponent=None is a number only for rows of a given width: call kernel.for_dimension(n_features)."
            raise ValueError(msg)
        return float(self.exponent)


class _CutContraction(Contraction):
    """Gradients for a cutoff in the units of the features: θ = cutoff/ℓ̄ falls when a length scale grows."""

    def by_parameters(self) -> dict[str, FloatArray]:
        gradient = super().by_parameters()
        # ∂k/∂log θ = A ν b^(ν-1) (r/θ) exp(E) = r² (dk/dE - k); pairs outside may have an infinite r
        squares = np.where(self._slopes != 0, -2.0 * self._exponents, 0.0)
        by_radius = np.vdot(squares, self._slopes - self._values())
        # ∂log θ/∂log ℓ_f = -1/d
        gradient["length_scale"] = gradient["length_scale"] - by_radius / np.size(self._kernel.length_scale)
        return gradient


@stored
class Wendland(Compact):
    r"""Wendland's polynomials of the least degree for their smoothness; zero from r = 1 on, :math:`r=|(x-z)/\ell|`.

    With :math:`q=\lfloor\text{dimension}/2\rfloor+\text{smoothness}+1`, for smoothness 0, 1 and 2:
    :math:`A(1-r)_+^q`, :math:`A(1-r)_+^{q+1}((q+1)r+1)`, :math:`A(1-r)_+^{q+2}((q^2+4q+3)r^2+(3q+6)r+3)/3`.

    Parameters
    ----------
    length_scale : float, array of one per feature, "median" or "auto", default=1.0
        ℓ, the radius of the support. ``"median"`` takes the median distance between rows when the model is fitted;
        ``"auto"``, of estimators on sparse matrices, one for which rows have 50 neighbours on average.
    smoothness : {0, 1, 2}, default=1
        Functions of the model are differentiable that many times.
    dimension : int, optional
        Largest dimension in which the kernel is guaranteed to be positive definite; by default that of the rows.
        Smaller values are accepted, but then some rows may have an indefinite matrix.
    amplitude : float, default=1.0
        A, the value of k(x, x): the prior variance of the function.

    See Also
    --------
    CompactGaussian : A Gaussian kernel cut off smoothly.

    References
    ----------
    H. Wendland (1995). Piecewise polynomial, positive definite and compactly supported radial functions of minimal
    degree. Advances in Computational Mathematics 4, 389-396.

    Examples
    --------
    >>> from mercer.kernels import Wendland
    >>> Wendland(length_scale=4.0)([[0.0]], [[0.0], [1.0], [2.0], [4.0]]).round(4)
    array([[1.    , 0.7383, 0.3125, 0.    ]])
    >>> Wendland(dimension=2).is_guaranteed(2), Wendland(dimension=2).is_guaranteed(50)
    (True, False)
    """

    def __init__(
        self, length_scale: Any = 1.0, smoothness: int = 1, dimension: int | None = None, amplitude: float = 1.0
    ) -> None:
        self.length_scale = length_scale
        self.smoothness = smoothness
        self.dimension = dimension
        self.amplitude = amplitude

    @property
    def radius(self) -> float:
        """One: the length scale is the radius."""
        return 1.0

    @property
    def steepness(self) -> float:
        """The power q for smoothness 0, else 0."""
        return float(self._q) if self.smoothness == 0 else 0.0

    @property
    def smooth_at_zero(self) -> bool:
        """Whether the smoothness is above 0."""
        return self.smoothness > 0

    def is_guaranteed(self, n_features: int) -> bool:
        """Whether ``dimension`` is at least that of the rows; 2 and 3 are the same kernel, as 4 and 5, and so on."""
        return self.dimension is None or self.dimension // 2 >= n_features // 2

    def for_dimension(self, n_features: int) -> Self:
        """A copy whose dimension is a number."""
        copy: Self = clone(self)
        if copy.dimension is None:
            copy.dimension = n_features
        return copy

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` also for a smoothness that is not built, or a dimension that is not one."""
        super().check(n_features)
        if self.smoothness not in (0, 1, 2):
            msg = f"smoothness must be 0, 1 or 2, got {self.smoothness!r}."
            raise ValueError(msg)
        if self.dimension is not None and not _is_count(self.dimension):
            msg = f"dimension must be an integer above zero, or None for that of the rows; got {self.dimension!r}."
            raise ValueError(msg)

    def profile(self, dtype: np.dtype[Any]) -> Profile:
        """A t^p (1 + c₁ r + c₂ r²) with p = q + smoothness, c₁ = p and c₂ = (p² - 1)/3 where they are not 0."""
        p = self._q + self.smoothness
        linear = p if self.smoothness > 0 else 0
        quadratic = (p**2 - 1) / 3 if self.smoothness > 1 else 0
        return _polynomial(dtype, self.amplitude, p, linear, quadratic)

    def slope(self, dtype: np.dtype[Any]) -> Profile:
        """dk/dE = -(dk/dr)/r: A p t^(p-1)/r, A p(p+1) t^(p-1), A (p+1)(p+2)/3 t^(p-1) (1 + (p-1) r)."""
        p = self._q + self.smoothness
        if self.smoothness == 0:
            factor, power = dtype.type(self.amplitude * p), _as_power(p - 1, dtype)
            return lambda tile: profiles.wendland_over_distance(tile, factor, power)
        if self.smoothness == 1:
            return _polynomial(dtype, self.amplitude * p * (p + 1), p - 1, 0, 0)
        return _polynomial(dtype, self.amplitude * (p + 1) * (p + 2) / 3, p - 1, p - 1, 0)

    @property
    def _q(self) -> int:
        if self.dimension is None:
            msg = "dimension=None is a number only for rows of a given width: call kernel.for_dimension(n_features)."
            raise ValueError(msg)
        return int(self.dimension) // 2 + int(self.smoothness) + 1


def _polynomial(dtype: np.dtype[Any], amplitude: float, power: int, linear: float, quadratic: float) -> Profile:
    """Wendland's form amplitude · t^power (1 + linear · r + quadratic · r²) as a profile of that dtype."""
    exponent, lowest = _as_power(power, dtype), lowest_logarithm(dtype, amplitude)
    numbers = dtype.type(amplitude), exponent, dtype.type(linear), dtype.type(quadratic), lowest
    return lambda tile: profiles.wendland(tile, *numbers)


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _as_power(exponent: float, dtype: np.dtype[Any]) -> Any:
    """An integer, where the power is to be a product, else a number of the tile's dtype."""
    is_product = float(exponent).is_integer() and 0 <= exponent <= profiles.LARGEST_INTEGER_POWER
    return int(exponent) if is_product else dtype.type(exponent)


def _representable(radius: float, dtype: np.dtype[Any]) -> float:
    """The radius, moved to where its square and its inverse are normal numbers of that dtype."""
    smallest = float(np.sqrt(np.finfo(dtype).tiny)) * 2.0
    return min(max(radius, smallest), 1.0 / smallest)


def _geometric_mean(length_scale: Any) -> float:
    if isinstance(length_scale, str):
        msg = "a cutoff is a number of length scales only when these are numbers: call kernel.resolve(rows)."
        raise ValueError(msg)  # noqa: TRY004  as for other values of this parameter
    scales = np.ravel(np.asarray(length_scale, dtype=np.float64))
    logarithms = np.log(scales)
    # Relative to the first, so that equal length scales have exactly their value as mean.
    return float(scales[0] * np.exp(np.mean(logarithms - logarithms[0])))
