r"""Stationary kernels: functions of the scaled distance between two rows.

A tile is one matrix product and one pass of elementwise work in place. With :math:`\tilde x = (x - c)/\ell` the
exponent is

.. math::

    E = -\tfrac12|\tilde x - \tilde z|^2
      = [\tilde x,\, -\tfrac12|\tilde x|^2,\, 1]\cdot[\tilde z,\, 1,\, -\tfrac12|\tilde z|^2],

so the norms ride along as two more columns. The common shift c, the mean of the points, keeps the cancellation small;
where it is not small the exponents are computed again from the differences (see ``profiles``).
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

# Largest tolerated error of an exponent, eps·|x̃|²/2, before a row is computed from differences.
EXPONENT_ERROR = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-4}


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
        return StationarySection(self, points, dtype=dtype, profile=self.profile(dtype))

    def diagonal(self, rows: FloatArray) -> FloatArray:
        """k(x, x) = amplitude."""
        return np.full(len(rows), float(self.amplitude))

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` for an amplitude or a length scale that is not positive or does not fit the rows."""
        check_positive(self.amplitude, "amplitude")
        if isinstance(self.length_scale, str):
            if self.length_scale != "median":
                msg = f"length_scale must be positive numbers or 'median', got {self.length_scale!r}."
                raise ValueError(msg)
            return
        scale = np.asarray(self.length_scale, dtype=np.float64)
        if scale.ndim > 1 or scale.size == 0 or not np.all(np.isfinite(scale) & (scale > 0)):
            msg = f"length_scale must be a finite number above zero or one per feature, got {self.length_scale!r}."
            raise ValueError(msg)
        if scale.ndim == 1 and n_features is not None and scale.size != n_features:
            msg = f"length_scale has {scale.size} values, but the rows have {n_features} features."
            raise ValueError(msg)

    def resolve(self, sample: FloatArray, weights: FloatArray | None = None) -> Self:
        """Replace ``length_scale="median"`` by the median distance of the sample."""
        self.check(n_features=sample.shape[1])
        resolved = clone(self)
        if isinstance(self.length_scale, str):
            resolved.length_scale = median_distance(sample, weights)
        return resolved  # type: ignore[no-any-return]

    def points_gradient(self, rows: FloatArray, points: FloatArray, weights: FloatArray) -> FloatArray:
        """Contract the gradient with respect to the points; see ``Kernel``."""
        contracted, section = self._weighted_slopes(rows, points, weights)
        # Σ_i g_ij k'(E_ij) (x̃_i - z̃_j)/ℓ
        pulled = contracted.T @ section.scaled(rows) - np.sum(contracted, axis=0)[:, np.newaxis] * section.points
        return np.asarray(pulled * section.inverse_scale)

    def parameter_gradient(self, rows: FloatArray, points: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """Contract the gradient with respect to log length scale and log amplitude; see ``Kernel``."""
        contracted, section = self._weighted_slopes(rows, points, weights)
        x, z = section.scaled(rows), section.points
        # Σ_ij g_ij k'(E_ij) (x̃_if - z̃_jf)² for each feature f, without an array of size n·m·d
        squares = (
            np.sum(contracted, axis=1) @ x**2
            + np.sum(contracted, axis=0) @ z**2
            - 2 * np.sum(x * (contracted @ z), axis=0)
        )
        by_scale = np.asarray(squares if np.ndim(self.length_scale) == 1 else np.sum(squares))
        return {"length_scale": by_scale, "amplitude": np.asarray(np.sum(weights * self(rows, points)))}

    def _weighted_slopes(
        self, rows: FloatArray, points: FloatArray, weights: FloatArray
    ) -> tuple[FloatArray, StationarySection]:
        rows = np.asarray(rows, dtype=np.float64)
        dtype = np.dtype(np.float64)
        section = StationarySection(self, points, dtype=dtype, profile=self.slope(dtype))
        slopes = section.tile(rows)
        slopes *= weights
        return slopes, section


class StationarySection(Section):
    """Scaled and shifted points, with their norms folded in."""

    def __init__(self, kernel: Stationary, points: FloatArray, *, dtype: np.dtype[Any], profile: Profile) -> None:
        n_points, n_features = points.shape
        kernel.check(n_features)
        points = np.asarray(points, dtype=np.float64)
        self.n_points, self.dtype = n_points, dtype
        self._profile, self._near = profile, not kernel.smooth_at_zero
        # The shift and the scale in the tile's own dtype, so that rows and points are moved by exactly the same amount.
        self.shift = np.mean(points, axis=0).astype(dtype)
        inverse_scale = 1.0 / np.asarray(kernel.length_scale, dtype=np.float64)
        self.inverse_scale = np.broadcast_to(inverse_scale, n_features).astype(dtype)
        self.points = (points.astype(dtype) - self.shift) * self.inverse_scale  # z̃, (m, d)
        folded = np.empty((n_points, n_features + 2), dtype=dtype)
        folded[:, :-2] = self.points
        folded[:, -2] = 1.0
        with np.errstate(over="ignore"):  # the rows that meet such points are computed from differences
            folded[:, -1] = -0.5 * np.einsum("ij,ij->i", self.points, self.points)
        self._folded = folded.T  # (d+2, m)
        self._far = dtype.type(EXPONENT_ERROR[dtype] / np.finfo(dtype).eps)
        self._tolerance = dtype.type(np.sqrt(np.finfo(dtype).eps))

    def scaled(self, rows: FloatArray) -> FloatArray:
        """x̃ = (x - shift)/ℓ."""
        return np.asarray((np.asarray(rows, dtype=self.dtype) - self.shift) * self.inverse_scale)

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Kernel values (or slopes) between rows and points."""
        rows = np.ascontiguousarray(rows, dtype=self.dtype)
        out = tile_buffer(self, len(rows), out)
        folded = np.empty((rows.shape[0], rows.shape[1] + 2), dtype=self.dtype)
        largest = profiles.scale_rows(rows, self.shift, self.inverse_scale, folded)
        if largest <= self._far:
            np.matmul(folded, self._folded, out=out)
        else:
            with np.errstate(all="ignore"):
                np.matmul(folded, self._folded, out=out)
            profiles.recompute_far_rows(out, folded, self.points, self._far)
        if self._near:
            profiles.recompute_near_pairs(out, folded, self.points, self._tolerance)
        self._profile(out)
        return out


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
        amplitude = dtype.type(self.amplitude)
        return lambda tile: profiles.gaussian(tile, amplitude)

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
        if self.nu == 0.5:
            return lambda tile: profiles.exponential(tile, amplitude, root)
        if self.nu == 1.5:
            return lambda tile: profiles.linear_exponential(tile, amplitude, root)
        third = dtype.type(self.amplitude / 3)
        return lambda tile: profiles.quadratic_exponential(tile, amplitude, third, root)

    def slope(self, dtype: np.dtype[Any]) -> Profile:
        """dk/dE: A e^{-r}/r, 3A e^{-s}, (5/3)A (1+s) e^{-s}."""
        amplitude, root = self.amplitude, dtype.type(np.sqrt(2.0 * self.nu))
        if self.nu == 0.5:
            return lambda tile: profiles.exponential_over_distance(tile, dtype.type(amplitude))
        if self.nu == 1.5:
            return lambda tile: profiles.exponential(tile, dtype.type(3 * amplitude), root)
        return lambda tile: profiles.linear_exponential(tile, dtype.type(5 * amplitude / 3), root)
