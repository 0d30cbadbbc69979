r"""Stationary kernels: functions of the scaled distance between two rows.

A tile is one matrix product and one pass of elementwise work in place. With :math:`\tilde x = (x - c)/\ell` the
exponent is

.. math::

    E = -\tfrac12|\tilde x - \tilde z|^2
      = [\tilde x,\, -\tfrac12|\tilde x|^2,\, 1]\cdot[\tilde z,\, 1,\, -\tfrac12|\tilde z|^2],

so the norms ride along as two more columns. The common shift c, the mean of the points, keeps the cancellation small;
where it is not small and could be seen, the exponents are computed again from differences (see ``profiles``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from mercer._typing import FloatArray
from mercer.kernels import profiles
from mercer.kernels.base import Kernel, Section, check_positive, tile_buffer
from mercer.kernels.length_scale import median_distance

__all__ = ["Gaussian", "Matern", "Stationary"]

Profile = Callable[[FloatArray], None]

# Rows with |x̃|²/2 above this are looked at: below, the error of an exponent is 32 roundings at the most.
FAR = 32.0


class Stationary(Kernel):
    """A kernel amplitude · φ(E), E = -|x - z|²/(2ℓ²), given by compiled profiles for φ and dφ/dE."""

    log_parameters: ClassVar[tuple[str, ...]] = ("length_scale", "amplitude")
    smooth_at_zero: ClassVar[bool] = True

    length_scale: Any
    amplitude: Any

    @abstractmethod
    def profile(self, dtype: np.dtype[Any]) -> Profile:
        """The function that replaces exponents by kernel values in place."""

    @abstractmethod
    def slope(self, dtype: np.dtype[Any]) -> Profile:
        """The function that replaces exponents by derivatives dk/dE in place."""

    def bind(self, points: FloatArray, dtype: Any = np.float64) -> StationarySection:
        """Prepare k(·, points) for many tiles of rows."""
        dtype = np.dtype(dtype)
        self.check(np.shape(points)[1])
        if np.ndim(self.length_scale) == 0 and self.length_scale == "median":
            msg = "length_scale='median' is a number only for given rows: fit a model, or call kernel.resolve(rows)."
            raise ValueError(msg)
        return StationarySection(self, points, dtype=dtype, profile=self.profile(dtype))

    def diagonal(self, rows: FloatArray) -> FloatArray:
        """k(x, x) = amplitude."""
        return np.full(len(rows), float(self.amplitude))

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` for an amplitude or a length scale that is not positive or does not fit the rows."""
        check_positive(self.amplitude, "amplitude")
        if isinstance(self.length_scale, str) and self.length_scale == "median":
            return
        try:
            scale = np.asarray(self.length_scale, dtype=np.float64)
        except (TypeError, ValueError):
            scale = np.empty(0)
        if scale.ndim > 1 or scale.size == 0 or not np.all(np.isfinite(scale) & (scale > 0)):
            msg = f"length_scale must be 'median' or positive, one or one per feature; got {self.length_scale!r}."
            raise ValueError(msg)
        if scale.ndim == 1 and n_features is not None and scale.size != n_features:
            msg = f"length_scale has {scale.size} values, but the rows have {n_features} features."
            raise ValueError(msg)

    @property
    def needs_data(self) -> bool:
        """Whether the length scale is to be the median distance."""
        return isinstance(self.length_scale, str)

    def resolve(self, sample: FloatArray, weights: FloatArray | None = None) -> Self:
        """Replace ``length_scale="median"`` by the median distance of the sample."""
        self.check(n_features=sample.shape[1])
        resolved = clone(self)
        if self.needs_data:
            resolved.length_scale = median_distance(sample, weights)
        return resolved  # type: ignore[no-any-return]

    def points_gradient(self, rows: FloatArray, points: FloatArray, weights: FloatArray) -> FloatArray:
        """Contract the gradient with respect to the points; see ``Kernel``."""
        rows = np.asarray(rows, dtype=np.float64)
        contracted, section = self._weighted_slopes(rows, points, weights)
        x, z = _where_used(contracted, section.scaled(rows)), _where_used(contracted.T, section.points)
        # Σ_i g_ij k'(E_ij) (x̃_i - z̃_j)/ℓ
        pulled = contracted.T @ x - np.sum(contracted, axis=0)[:, np.newaxis] * z
        return np.asarray(pulled * section.inverse_scale)

    def parameter_gradient(self, rows: FloatArray, points: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Contract the gradient with respect to log length scale and log amplitude; see ``Kernel``."""
        rows = np.asarray(rows, dtype=np.float64)
        contracted, section = self._weighted_slopes(rows, points, weights)
        if np.ndim(self.length_scale) == 0:
            # ∂E/∂log ℓ = -2E
            exponents = section.exponents(rows)
            exponents[contracted == 0] = 0.0  # they may be infinite
            by_scale = -2 * np.sum(contracted * exponents)
        else:
            x, z = _where_used(contracted, section.scaled(rows)), _where_used(contracted.T, section.points)
            # Σ_ij g_ij k'(E_ij) (x̃_if - z̃_jf)² for each feature f, without an array of size n·m·d
            by_scale = (
                np.sum(contracted, axis=1) @ x**2
                + np.sum(contracted, axis=0) @ z**2
                - 2 * np.sum(x * (contracted @ z), axis=0)
            )
        by_amplitude = np.sum(weights * self.bind(points).tile(rows))
        return {"length_scale": np.asarray(by_scale), "amplitude": np.asarray(by_amplitude)}

    def diagonal_gradient(self, rows: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """k(x, x) is the amplitude, whatever the length scale."""
        amplitude = np.asarray(np.sum(weights) * float(self.amplitude))
        return {"length_scale": np.zeros(np.shape(self.length_scale)), "amplitude": amplitude}

    def _weighted_slopes(
        self, rows: FloatArray, points: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, StationarySection]:
        dtype = np.dtype(np.float64)
        self.check(np.shape(points)[1])
        section = StationarySection(self, points, dtype=dtype, profile=self.slope(dtype))
        slopes = section.tile(rows)
        slopes *= weights
        return slopes, section


class StationarySection(Section):
    """Scaled and shifted points, with their norms folded in."""

    def __init__(self, kernel: Stationary, points: FloatArray, *, dtype: np.dtype[Any], profile: Profile) -> None:
        points = np.asarray(points, dtype=np.float64)
        self.n_points, self.n_features = points.shape
        self.dtype, self._profile = dtype, profile
        self._given = np.array(points)  # a copy: the caller's points may change
        # The shift in the tile's own dtype, so that rows and points are moved by exactly the same amount; the median,
        # because an outlier among the points must not move the others.
        self.shift = (np.median(points, axis=0) if len(points) else np.zeros(self.n_features)).astype(dtype)
        inverse_scale = np.broadcast_to(1.0 / np.asarray(kernel.length_scale, dtype=np.float64), self.n_features)
        self._inverse_scale64 = np.ascontiguousarray(inverse_scale)
        self.inverse_scale = inverse_scale.astype(dtype)
        with np.errstate(over="ignore"):  # pairs with such points are computed from differences
            self.points = ((points - self.shift.astype(np.float64)) * inverse_scale).astype(dtype)  # z̃, (m, d)
        folded = np.empty((self.n_points, self.n_features + 2), dtype=dtype)
        folded[:, :-2] = self.points
        folded[:, -2] = 1.0
        with np.errstate(over="ignore"):
            folded[:, -1] = -0.5 * np.einsum("ij,ij->i", self.points, self.points)
        self._folded = folded.T  # (d+2, m)
        eps = float(np.finfo(dtype).eps)
        kink = 0.0 if kernel.smooth_at_zero else np.sqrt(eps)
        far = FAR if np.all(np.isfinite(folded)) else -1.0
        self._limits = (far, np.log(eps) - 2.0, 8.0 * eps, float(kink))

    def scaled(self, rows: FloatArray) -> FloatArray:
        """x̃ = (x - shift)/ℓ."""
        return np.asarray((np.asarray(rows, dtype=self.dtype) - self.shift) * self.inverse_scale)

    def exponents(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """E = -|x̃ - z̃|²/2, to rounding where the kernel is not negligible."""
        rows = np.ascontiguousarray(rows, dtype=self.dtype)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            msg = f"rows must have {self.n_features} features as the points have, got shape {rows.shape}."
            raise ValueError(msg)
        out = tile_buffer(self, len(rows), out)
        folded = np.empty((len(rows), self.n_features + 2), dtype=self.dtype)
        largest = profiles.scale_rows(rows, self.shift, self.inverse_scale, folded)
        far = not largest <= self._limits[0]
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is recomputed
            np.matmul(folded, self._folded, out=out)
        if far or self._limits[3] > 0:
            norms = folded[:, self.n_features]
            profiles.recompute_pairs(out, norms, rows, self._given, self._inverse_scale64, self._limits)
        return out

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Kernel values (or slopes) between rows and points."""
        out = self.exponents(rows, out)
        self._profile(out)
        return out


def _where_used(contracted: FloatArray, vectors: FloatArray) -> FloatArray:
    """The vectors, with those of no weight replaced by zero: they may be too large to square."""
    return np.where(np.any(contracted != 0, axis=1)[:, np.newaxis], vectors, 0.0)


def _lowest(dtype: np.dtype[Any], amplitude: float) -> Any:
    """Logarithm below which an exponential becomes zero: at the cutoff, or where amplitude times it is subnormal."""
    smallest_normal = float(np.finfo(dtype).tiny)
    return dtype.type(np.log(max(profiles.CUTOFF[dtype], min(2.0 * smallest_normal / amplitude, 1.0))))


class Gaussian(Stationary):
    r"""Gaussian kernel, :math:`A\exp(-|x-z|^2/(2\ell^2))`.

    Parameters
    ----------
    length_scale : float, array of one per feature, or "median", default=1.0
        ℓ. ``"median"`` takes the median distance between rows when the model is fitted.
    amplitude : float, default=1.0
        A, the value of k(x, x): the prior variance of the function.

    Examples
    --------
    >>> from mercer.kernels import Gaussian
    >>> Gaussian(length_scale=2.0)([[0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]).round(4)
    array([[1.    , 0.6065]])
    """

    def __init__(self, length_scale: Any = 1.0, amplitude: float = 1.0) -> None:
        self.length_scale = length_scale
        self.amplitude = amplitude

    def profile(self, dtype: np.dtype[Any]) -> Profile:
        """A exp(E)."""
        amplitude, lowest = dtype.type(self.amplitude), _lowest(dtype, self.amplitude)
        return lambda tile: profiles.gaussian(tile, amplitude, lowest)

    def slope(self, dtype: np.dtype[Any]) -> Profile:
        """A exp(E): the Gaussian is its own derivative."""
        return self.profile(dtype)


class Matern(Stationary):
    r"""Matérn kernel of smoothness ν = 1/2, 3/2 or 5/2.

    With :math:`s = \sqrt{2\nu}\,|x-z|/\ell`: :math:`A e^{-s}`, :math:`A(1+s)e^{-s}`, :math:`A(1+s+s^2/3)e^{-s}`.

    Parameters
    ----------
    length_scale : float, array of one per feature, or "median", default=1.0
        ℓ. ``"median"`` takes the median distance between rows when the model is fitted.
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

    smooth_at_zero: ClassVar[bool] = False

    def __init__(self, length_scale: Any = 1.0, nu: float = 1.5, amplitude: float = 1.0) -> None:
        self.length_scale = length_scale
        self.nu = nu
        self.amplitude = amplitude

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` also for a smoothness that is not built."""
        super().check(n_features)
        if self.nu not in (0.5, 1.5, 2.5):
            msg = f"nu must be 0.5, 1.5 or 2.5, got {self.nu!r}; nu → ∞ is the Gaussian kernel."
            raise ValueError(msg)

    def profile(self, dtype: np.dtype[Any]) -> Profile:
        """The formula of the class, with s = √(2ν) r."""
        amplitude, root = dtype.type(self.amplitude), dtype.type(np.sqrt(2.0 * self.nu))
        lowest = _lowest(dtype, self.amplitude)
        if self.nu == 0.5:
            return lambda tile: profiles.exponential(tile, amplitude, root, lowest)
        if self.nu == 1.5:
            return lambda tile: profiles.linear_exponential(tile, amplitude, root, lowest)
        third = dtype.type(self.amplitude / 3)
        return lambda tile: profiles.quadratic_exponential(tile, amplitude, third, root, lowest)

    def slope(self, dtype: np.dtype[Any]) -> Profile:
        """dk/dE: A e^{-r}/r, 3A e^{-s}, (5/3)A (1+s) e^{-s}."""
        root, lowest = dtype.type(np.sqrt(2.0 * self.nu)), _lowest(dtype, self.amplitude)
        if self.nu == 0.5:
            amplitude = dtype.type(self.amplitude)
            return lambda tile: profiles.exponential_over_distance(tile, amplitude, lowest)
        if self.nu == 1.5:
            triple = dtype.type(3 * self.amplitude)
            return lambda tile: profiles.exponential(tile, triple, root, lowest)
        five_thirds = dtype.type(5 * self.amplitude / 3)
        return lambda tile: profiles.linear_exponential(tile, five_thirds, root, lowest)
