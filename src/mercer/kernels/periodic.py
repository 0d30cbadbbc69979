r"""The periodic kernel.

With a circle for each feature, :math:`u_j(x) = (\cos 2\pi x_j/p_j,\ \sin 2\pi x_j/p_j)`, the distance of two rows is

.. math:: |u_j(x) - u_j(z)|^2 = 4\sin^2(\pi(x_j - z_j)/p_j),

so the kernel is the Gaussian kernel of the rows mapped to 2d features. It is positive definite in any dimension.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.kernels.base import Gradients, Kernel, Section, check_each_positive, check_positive
from mercer.kernels.closed_form import OfDistance
from mercer.kernels.gaussian import Gaussian
from mercer.kernels.stationary import StationarySection


@stored
class Periodic(Kernel):
    r"""Periodic kernel, :math:`A\exp(-2\sum_j\sin^2(\pi(x_j-z_j)/p_j)/\ell_j^2)`.

    It is the product of a periodic kernel for each feature. For one feature it is scikit-learn's ``ExpSineSquared``;
    that of several features is a function of the Euclidean distance, which need not be positive definite.

    Parameters
    ----------
    period : float or array of one per feature, default=1.0
        p: functions repeat after it, in the units of the rows.
    length_scale : float or array of one per feature, default=1.0
        ℓ, without a unit: small for functions that vary much within a period.
    amplitude : float, default=1.0
        A, the value of k(x, x): the prior variance of the function.

    Examples
    --------
    >>> from mercer.kernels import Periodic
    >>> Periodic(period=2.0)([[0.0]], [[0.0], [0.5], [1.0], [6.0]]).round(4)
    array([[1.    , 0.3679, 0.1353, 1.    ]])
    """

    name: ClassVar[str | None] = "periodic"
    log_parameters: ClassVar[tuple[str, ...]] = ("period", "length_scale", "amplitude")
    same_diagonal: ClassVar[bool] = True

    def __init__(self, period: Any = 1.0, length_scale: Any = 1.0, amplitude: float = 1.0) -> None:
        self.period = period
        self.length_scale = length_scale
        self.amplitude = amplitude

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` for a parameter that is not positive or does not fit the rows."""
        check_each_positive(self.period, "period", n_features)
        check_each_positive(self.length_scale, "length_scale", n_features)
        check_positive(self.amplitude, "amplitude")

    def bind(self, points: FloatArray, dtype: Any = np.float64) -> PeriodicSection:
        """Prepare k(·, points) for many tiles of rows."""
        self.check(np.shape(points)[1])
        return PeriodicSection(self, points, np.dtype(dtype))

    def diagonal(self, rows: FloatArray) -> FloatArray:
        """k(x, x) = amplitude."""
        return np.full(len(rows), float(self.amplitude))

    def on_circles(self, n_features: int) -> Gaussian:
        """The kernel of mapped rows, with a length scale for each of their 2d features."""
        scales = np.broadcast_to(np.asarray(self.length_scale, dtype=np.float64), n_features)
        return Gaussian(np.tile(scales, 2), float(self.amplitude))

    def circles(self, rows: FloatArray) -> FloatArray:
        """[cos 2πx/p, sin 2πx/p], (n, 2d), in float64."""
        period = np.asarray(self.period, dtype=np.float64)
        # The remainder is exact: however many periods a row is away, it costs no digits.
        angles = np.fmod(np.asarray(rows, dtype=np.float64), period) * (2.0 * np.pi / period)
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)

    def gradients(
        self, rows: FloatArray, points: FloatArray, weights: FloatArray, *, parameters: bool = True
    ) -> Gradients:
        """Those of the mapped rows and points, by the chain rule."""
        points = np.asarray(points, dtype=np.float64)
        rows, d = np.asarray(rows, dtype=np.float64), points.shape[1]
        self.check(d)
        inner, x, z = self.on_circles(d), self.circles(rows), self.circles(points)
        by_circles, by_parameters = inner.gradients(x, z, weights, parameters=parameters)
        by_points = self._pulled_back(by_circles, z)
        if not parameters:
            return by_points, {}
        # ∂k/∂log p = (x - z) ∂k/∂z, and ∂k/∂x = -∂k/∂z: -Σ x_i ∂/∂x_i - Σ z_j ∂/∂z_j
        by_rows = self._pulled_back(inner.points_gradient(z, x, weights.T), x)
        centre = np.median(points, axis=0) if len(points) else np.zeros(d)
        by_period = -np.sum((rows - centre) * by_rows, axis=0) - np.sum((points - centre) * by_points, axis=0)
        by_scale = by_parameters["length_scale"][:d] + by_parameters["length_scale"][d:]
        return by_points, {
            "period": np.asarray(by_period if np.ndim(self.period) else np.sum(by_period)),
            "length_scale": np.asarray(by_scale if np.ndim(self.length_scale) else np.sum(by_scale)),
            "amplitude": by_parameters["amplitude"],
        }

    def _pulled_back(self, gradient: FloatArray, circles: FloatArray) -> FloatArray:
        """A gradient by the rows from that by their circles: (2π/p)(cos · ∂/∂sin - sin · ∂/∂cos)."""
        (cos, sin), (by_cos, by_sin) = np.hsplit(circles, 2), np.hsplit(gradient, 2)
        return np.asarray((cos * by_sin - sin * by_cos) * (2.0 * np.pi / np.asarray(self.period, dtype=np.float64)))

    def diagonal_gradient(self, rows: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """k(x, x) is the amplitude, whatever the other parameters."""
        amplitude = np.asarray(np.sum(weights) * float(self.amplitude))
        nothing = {name: np.zeros(np.shape(getattr(self, name))) for name in ("period", "length_scale")}
        return {**nothing, "amplitude": amplitude}

    def closed_form(self, n_features: int) -> OfDistance:
        """A exp(-r²/2), where r² is the sum of (2 sin(π(x - z)/p)/ℓ)²."""
        inverse_scale, waves = (
            np.full(n_features, factor / np.asarray(scale, dtype=np.float64))
            for factor, scale in ((np.pi, self.period), (2.0, self.length_scale))
        )
        return OfDistance(float(self.amplitude), inverse_scale, "squared", waves=waves)


class PeriodicSection(Section):
    """The Gaussian section of the mapped points."""

    def __init__(self, kernel: Periodic, points: FloatArray, dtype: np.dtype[Any]) -> None:
        self._kernel, self.n_features, self.dtype = kernel, np.shape(points)[1], dtype
        self._inner = StationarySection(kernel.on_circles(self.n_features), kernel.circles(points), dtype)
        self.n_points = self._inner.n_points

    def replace(self, points: FloatArray) -> bool:
        """Take as many other points."""
        return len(points) == self.n_points and self._inner.replace(self._kernel.circles(points))

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Kernel values between rows and points."""
        rows = np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise ValueError(f"rows must have {self.n_features} features as the points have, got shape {rows.shape}.")
        return self._inner.tile(self._kernel.circles(rows), out)
