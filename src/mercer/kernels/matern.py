"""Matérn's kernels."""

from typing import Any, ClassVar

import numpy as np

from mercer._stored import stored
from mercer.kernels.closed_form import OfDistance
from mercer.kernels.profiles import distance, exp, vanishing
from mercer.kernels.stationary import Formula, Stationary

_FAR = 1000.0  # s is no larger: there the exponential is zero, and so is its product with a polynomial of s


@vanishing
def _exponential(E: Any, root: Any) -> Any:
    return exp(-root * distance(E))


@vanishing
def _linear(E: Any, one: Any, root: Any, far: Any) -> Any:
    s = min(root * distance(E), far)
    return (one + s) * exp(-s)


@vanishing
def _quadratic(E: Any, one: Any, third: Any, root: Any, far: Any) -> Any:
    s = min(root * distance(E), far)
    return (one + s * (one + third * s)) * exp(-s)


@vanishing
def _over_distance(E: Any) -> Any:
    r = distance(E)
    return exp(-r) / r if r > 0 else r


@stored
class Matern(Stationary):
    r"""Matérn kernel of smoothness ν = 1/2, 3/2 or 5/2.

    With :math:`s = \sqrt{2\nu}\,|x-z|/\ell`: :math:`A e^{-s}`, :math:`A(1+s)e^{-s}`, :math:`A(1+s+s^2/3)e^{-s}`.

    Parameters
    ----------
    length_scale : float, array of one per feature, matrix, Metric, "median" or "ard", default=1.0
        ℓ. ``"median"`` takes the median distance between rows when the model is fitted. With a matrix L (d, r), r ≤ d,
        distances are :math:`|L^+(x-z)|`, so that ``diag(ℓ)`` is the array ℓ; a ``Metric`` is any linear map.
        ``"ard"`` is one for each feature, with the largest marginal likelihood of the targets (see
        docs/gaussian_processes.md); not for online learners and ``CompactRegressor``.
    nu : {0.5, 1.5, 2.5}, default=1.5
        Smoothness: the function is differentiable ⌈ν⌉-1 times.
    amplitude : float, default=1.0
        A, the value of k(x, x): the prior variance of the function.

    Examples
    --------
    >>> from mercer.kernels import Matern
    >>> Matern(length_scale=2.0, nu=0.5)([[0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]).round(4)
    array([[1.    , 0.3679]])
    """

    name: ClassVar[str | None] = "matern"
    smooth_at_zero: ClassVar[bool] = False  # Matérn 1/2 has a kink, the others' high derivatives have

    def __init__(self, length_scale: Any = 1.0, nu: float = 1.5, amplitude: float = 1.0) -> None:
        self.length_scale = length_scale
        self.nu = nu
        self.amplitude = amplitude

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` also for a smoothness that is not implemented."""
        super().check(n_features)
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {self.nu!r}; nu → ∞ is the Gaussian kernel.")

    def formula(self) -> Formula:
        """The formula of the class, with s = √(2ν) r; slopes e^{-r}/r (0 at r = 0), 3 e^{-s}, (5/3)(1+s) e^{-s}."""
        root = float(np.sqrt(2.0 * self.nu))
        if self.nu == 0.5:
            return Formula(_exponential, _over_distance, (root,), ())
        if self.nu == 1.5:
            return Formula(_linear, _exponential, (1.0, root, _FAR), (root,), slope_factor=3.0)
        return Formula(_quadratic, _linear, (1.0, 1 / 3, root, _FAR), (1.0, root, _FAR), slope_factor=5 / 3)

    def closed_form(self, n_features: int) -> OfDistance:
        """A polynomial of s times exp(-s)."""
        polynomial = {0.5: (1.0,), 1.5: (1.0, 1.0), 2.5: (1.0, 1.0, 1.0 / 3.0)}[float(self.nu)]
        inverse_scale = float(np.sqrt(2.0 * self.nu)) * self.inverse_scale(n_features)
        return OfDistance(float(self.amplitude), inverse_scale, "plain", polynomial)
