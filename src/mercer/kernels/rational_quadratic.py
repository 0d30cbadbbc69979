"""The rational quadratic kernel."""

from math import log1p
from typing import Any, ClassVar

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.kernels.base import check_positive
from mercer.kernels.closed_form import OfDistance
from mercer.kernels.profiles import as_power, elementwise, exp, power, vanishing
from mercer.kernels.stationary import Formula, Stationary

# An exponent below this share of |x̃|²/2 is computed from differences: the kernel falls as a power of the distance, so
# that exponents matter by their relative error, however large they are.
_NEAR = 1.0 / 32.0


@elementwise
def _whole_power(E: Any, one: Any, inverse: Any, shape: Any) -> Any:
    return power(one / (one + inverse * abs(E)), shape, one)


@vanishing
def _any_power(E: Any, inverse: Any, shape: Any) -> Any:
    return exp(-shape * log1p(inverse * abs(E)))  # a large shape would magnify the rounding of 1 + r²/(2α)


@stored
class RationalQuadratic(Stationary):
    r"""Rational quadratic kernel, :math:`A\,(1+|x-z|^2/(2\alpha\ell^2))^{-\alpha}`.

    It is a mixture of Gaussian kernels of many length scales; for α → ∞ it is the Gaussian kernel.

    Parameters
    ----------
    length_scale : float, array of one per feature, matrix, Metric, or "median", default=1.0
        ℓ. ``"median"`` takes the median distance between rows when the model is fitted. With a matrix L (d, r), r ≤ d,
        distances are :math:`|L^+(x-z)|`, so that ``diag(ℓ)`` is the array ℓ; a ``Metric`` is any linear map.
    shape : float, default=1.0
        α: how slowly the kernel falls at large distances. Whole numbers up to 126 are several times as fast as others.
    amplitude : float, default=1.0
        A, the value of k(x, x): the prior variance of the function.

    Examples
    --------
    >>> from mercer.kernels import RationalQuadratic
    >>> RationalQuadratic(length_scale=2.0)([[0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]).round(4)
    array([[1.    , 0.6667]])
    """

    name: ClassVar[str | None] = "rational_quadratic"
    log_parameters: ClassVar[tuple[str, ...]] = ("length_scale", "shape", "amplitude")

    def __init__(self, length_scale: Any = 1.0, shape: float = 1.0, amplitude: float = 1.0) -> None:
        self.length_scale = length_scale
        self.shape = shape
        self.amplitude = amplitude

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` also for a shape that is not positive."""
        super().check(n_features)
        check_positive(self.shape, "shape")

    def formula(self) -> Formula:
        """(1 - E/α)^-α, and its derivative (1 - E/α)^-(α+1)."""
        shape = float(self.shape)
        powers = as_power(shape), as_power(shape + 1.0)
        if all(isinstance(each, int) for each in powers):
            first, second = ((1.0, 1.0 / shape, each) for each in powers)
            return Formula(_whole_power, _whole_power, first, second)
        return Formula(_any_power, _any_power, (1.0 / shape, shape), (1.0 / shape, shape + 1.0))

    def limits(self, dtype: np.dtype[Any]) -> tuple[float, ...]:
        """Also where an exponent is small beside the norms from which it is a difference."""
        far, negligible, rounding, _, edge = super().limits(dtype)
        return far, negligible, rounding, _NEAR, edge

    def _by_others(self, exponents: FloatArray, values: FloatArray) -> dict[str, FloatArray]:
        """∂k/∂log α = α k (u/(1+u) - log(1+u)), u = -E/α."""
        used = values != 0
        u = np.where(used, np.abs(exponents), 0.0) / self.shape
        return {"shape": np.asarray(self.shape * np.sum(values * (u / (1.0 + u) - np.log1p(u))))}

    def closed_form(self, n_features: int) -> OfDistance:
        """A (1 + r²)^-α, r in units of √(2α) ℓ."""
        inverse_scale = self.inverse_scale(n_features) / np.sqrt(2.0 * self.shape)
        return OfDistance(float(self.amplitude), inverse_scale, "rational", shape=float(self.shape))
