"""Wendland's polynomials of compact support."""

from numbers import Integral
from typing import Any, Self

from sklearn.base import clone

from mercer._stored import stored
from mercer.kernels.closed_form import OfDistance
from mercer.kernels.compact import Compact
from mercer.kernels.profiles import as_power, distance, elementwise, power
from mercer.kernels.stationary import Formula


@elementwise
def _value(E: Any, one: Any, p: Any, linear: Any, quadratic: Any) -> Any:
    r = min(distance(E), one)
    return min(power(one - r, p, one) * (one + r * (linear + quadratic * r)), one)  # rounding may exceed 1


@elementwise
def _slope_of_kink(E: Any, one: Any, zero: Any, less: Any) -> Any:
    r = min(distance(E), one)
    return power(one - r, less, one) / r if (r > zero) & (r < one) else zero


@stored
class Wendland(Compact):
    r"""Wendland's polynomials of the least degree for their smoothness; zero from r = 1 on, :math:`r=|(x-z)/\ell|`.

    With :math:`q=\lfloor\text{dimension}/2\rfloor+\text{smoothness}+1`, for smoothness 0, 1 and 2:
    :math:`A(1-r)_+^q`, :math:`A(1-r)_+^{q+1}((q+1)r+1)`, :math:`A(1-r)_+^{q+2}((q^2+4q+3)r^2+(3q+6)r+3)/3`.

    Parameters
    ----------
    length_scale : float, array of one per feature, matrix, Metric, "median" or "auto", default=1.0
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

    radius = 1.0  # the length scale is the radius

    def __init__(
        self, length_scale: Any = 1.0, smoothness: int = 1, dimension: int | None = None, amplitude: float = 1.0
    ) -> None:
        self.length_scale = length_scale
        self.smoothness = smoothness
        self.dimension = dimension
        self.amplitude = amplitude

    @property
    def steepness(self) -> float:
        """The power p for smoothness 0, else 0."""
        return float(self._p) if self.smoothness == 0 else 0.0

    @property
    def smooth_at_zero(self) -> bool:  # type: ignore[override]
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
        """Raise ``ValueError`` also for a smoothness that is not implemented, or an invalid dimension."""
        super().check(n_features)
        if self.smoothness not in (0, 1, 2):
            raise ValueError(f"smoothness must be 0, 1 or 2, got {self.smoothness!r}.")
        d = self.dimension
        if d is not None and not (isinstance(d, Integral) and not isinstance(d, bool) and int(d) >= 1):
            msg = f"dimension must be an integer above zero, or None for that of the rows; got {self.dimension!r}."
            raise ValueError(msg)

    def formula(self) -> Formula:
        """t^p (1 + c₁ r + c₂ r²), t = max(0, 1 - r), with p = q + smoothness, c₁ = p, c₂ = (p² - 1)/3 or 0.

        The slope -(dk/dr)/r is p t^(p-1)/r (0 at r = 0), p(p+1) t^(p-1), (p+1)(p+2)/3 t^(p-1) (1 + (p-1) r).
        """
        p, (_, linear, quadratic) = self._p, (*self._polynomial, 0.0, 0.0)[:3]
        numbers, less = (1.0, as_power(p), linear, quadratic), as_power(p - 1)
        if self.smoothness == 0:
            return Formula(_value, _slope_of_kink, numbers, (1.0, 0.0, less), slope_factor=p)
        if self.smoothness == 1:
            return Formula(_value, _value, numbers, (1.0, less, 0.0, 0.0), slope_factor=p * (p + 1))
        return Formula(_value, _value, numbers, (1.0, less, p - 1.0, 0.0), slope_factor=(p + 1) * (p + 2) / 3)

    def closed_form(self, n_features: int) -> OfDistance:
        """A (1 - r)₊^p times a polynomial."""
        kernel, scale = self.for_dimension(n_features), self.inverse_scale(n_features)
        polynomial, p = kernel._polynomial, float(kernel._p)
        return OfDistance(float(self.amplitude), scale, "none", polynomial, radius=1.0, power=p)

    @property
    def _p(self) -> int:
        return int(self._number("dimension")) // 2 + 2 * int(self.smoothness) + 1

    @property
    def _polynomial(self) -> tuple[float, ...]:
        return (1.0, float(self._p), (self._p**2 - 1) / 3)[: int(self.smoothness) + 1]
