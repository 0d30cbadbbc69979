r"""Stationary kernels: functions of the scaled distance between two rows.

A tile is one matrix product and one pass of elementwise work in place. With :math:`\tilde x = (x - c)/\ell` the
exponent is

.. math::

    E = -\tfrac12|\tilde x - \tilde z|^2
      = [\tilde x,\, -\tfrac12|\tilde x|^2,\, 1]\cdot[\tilde z,\, 1,\, -\tfrac12|\tilde z|^2],

so the norms ride along as two more columns. The common shift c, the median of the points, keeps the cancellation small;
where it is not small and could be seen, the exponents are computed again from differences
(``profiles.recompute_pairs``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.base import clone

from mercer._jit import callback
from mercer._typing import FloatArray
from mercer.kernels.base import Factors, Gradients, Kernel, Section, check_positive, tile_buffer
from mercer.kernels.median_distance import median_distance
from mercer.kernels.metric import Metric, as_metric
from mercer.kernels.profiles import Elementwise, Profile, recompute_pairs, scale_rows, scale_rows_at

# Rows with |x̃|²/2 above this are looked at: below, the error of an exponent is 32 roundings at the most.
FAR = 32.0
# Up to here differences of scaled rows are as good as scaled differences, to 1000 roundings of an exponent.
FARTHEST = 1e4


class Formula(NamedTuple):
    """φ(E) and its derivative dφ/dE, both ``elementwise``, with the numbers that they take after E.

    The derivative is ``slope_factor · slope(E, *slope_numbers)``.
    """

    value: Elementwise
    slope: Elementwise
    numbers: tuple[float, ...] = ()
    slope_numbers: tuple[float, ...] | None = None  # those of the value unless given
    slope_factor: float = 1.0


class Stationary(Kernel):
    """A kernel amplitude · φ(E), E = -|x - z|²/(2ℓ²), with φ(0) = 1, given by its ``formula`` alone.

    A subclass has the parameters ``length_scale``, ``amplitude`` and whatever its formula needs.
    """

    log_parameters: ClassVar[tuple[str, ...]] = ("length_scale", "amplitude")
    same_diagonal: ClassVar[bool] = True
    smooth_at_zero: ClassVar[bool] = True  # whether the kernel, as a function of r, has no kink at r = 0

    length_scale: Any
    amplitude: Any

    @abstractmethod
    def formula(self) -> Formula:
        """φ and dφ/dE, of a kernel whose parameters are numbers."""

    @property
    def own_slope(self) -> bool:
        """Whether dk/dE = k."""
        formula = self.formula()
        return formula.value is formula.slope and formula.slope_numbers is None and formula.slope_factor == 1.0

    def profile(self, dtype: np.dtype[Any]) -> Profile:
        """The function that replaces exponents by kernel values in place."""
        formula = self.formula()
        return formula.value.profile(dtype, float(self.amplitude), formula.numbers)

    def slope(self, dtype: np.dtype[Any]) -> Profile:
        """The function that replaces exponents by derivatives dk/dE in place."""
        formula = self.formula()
        numbers = formula.numbers if formula.slope_numbers is None else formula.slope_numbers
        return formula.slope.profile(dtype, formula.slope_factor * float(self.amplitude), numbers)

    def callback(self) -> tuple[int, FloatArray] | None:
        """``profile`` for float64 and compiled code, with its parameters; see ``Factors``."""
        return None

    @property
    def metric(self) -> Metric | None:
        """The linear map of the inputs, where ``length_scale`` is one."""
        return as_metric(self.length_scale)

    @property
    def metric_importance_(self) -> FloatArray:
        """Share of each input in the metric, (d,); of an array of length scales, that of their inverse squares."""
        metric = self.metric
        if metric is not None:
            return metric.importance
        if np.ndim(self.length_scale) != 1:
            raise AttributeError("metric_importance_ is that of a metric or of one length scale per feature.")
        return Metric(np.diag(self.inverse_scale(np.size(self.length_scale)))).importance

    def on_mapped(self) -> Self:
        """The kernel of mapped rows: this one, with ℓ = 1 in place of the metric."""
        return clone(self).set_params(length_scale=1.0)  # type: ignore[no-any-return]

    def inverse_scale(self, n_features: int) -> FloatArray:
        """1/ℓ of each feature; of each mapped one, if there is a metric."""
        if isinstance(self.length_scale, str):
            raise ValueError(  # noqa: TRY004  as for other values of this parameter
                f"length_scale={self.length_scale!r} is a number only for given rows: fit a model, or call "
                "kernel.resolve(rows)."
            )
        metric = self.metric
        if metric is not None:
            return np.ones(metric.rank)
        return np.full(n_features, 1.0 / np.asarray(self.length_scale, dtype=np.float64))

    def for_dimension(self, n_features: int) -> Self:
        """The kernel as it is on rows of that width: itself, where no parameter depends on the width."""
        return self

    def limits(self, dtype: np.dtype[Any]) -> tuple[float, ...]:
        """When exponents are computed again from differences; see ``profiles.recompute_pairs``."""
        eps = float(np.finfo(dtype).eps)
        kink = 0.0 if self.smooth_at_zero else float(np.sqrt(eps))
        return FAR, float(np.log(eps)) - 2.0, 8.0 * eps, kink, -np.inf

    def bind(self, points: FloatArray, dtype: Any = np.float64) -> StationarySection | MappedSection:
        """Prepare k(·, points) for many tiles of rows."""
        self.check(np.shape(points)[1])
        metric = self.metric
        if metric is not None:
            return MappedSection(self, metric, points, np.dtype(dtype))
        return StationarySection(self.for_dimension(np.shape(points)[1]), points, np.dtype(dtype))

    def diagonal(self, rows: FloatArray) -> FloatArray:
        """k(x, x) = amplitude."""
        return np.full(len(rows), float(self.amplitude))

    def check(self, n_features: int | None = None) -> None:
        """Raise ``ValueError`` for an amplitude or a length scale that is not positive or does not fit the rows."""
        check_positive(self.amplitude, "amplitude")
        if isinstance(self.length_scale, str) and self.length_scale in ("median", "ard"):
            return
        metric = self.metric
        if metric is not None:
            if n_features is not None and metric.n_features != n_features:
                raise ValueError(f"{metric} is the length_scale, but the rows have {n_features} features.")
            return
        try:
            scale = np.asarray(self.length_scale, dtype=np.float64)
        except (TypeError, ValueError):
            scale = np.empty(0)
        if scale.ndim > 1 or scale.size == 0 or not np.all(np.isfinite(scale) & (scale > 0)):
            raise ValueError(
                "length_scale must be 'median', 'ard' or positive, one or one per feature, or a Metric; "
                f"got {self.length_scale!r}."
            )
        if scale.ndim == 1 and n_features is not None and scale.size != n_features:
            raise ValueError(f"length_scale has {scale.size} values, but the rows have {n_features} features.")

    @property
    def needs_data(self) -> bool:
        """Whether the length scale is to be the median distance, or fitted to targets."""
        return isinstance(self.length_scale, str)

    def resolve(self, sample: FloatArray, weights: FloatArray | None = None) -> Self:
        """Replace ``length_scale="median"`` by the median distance of the sample."""
        resolved = super().resolve(sample, weights)
        if isinstance(self.length_scale, str) and self.length_scale == "ard":
            raise ValueError(
                "length_scale='ard' is fitted to targets, which is done by ExactRegressor, NystromRegressor, "
                "CommitteeRegressor, ReducedRankRegressor, PseudoInputRegressor and their classifiers: give kernel_ of "
                "such a model, numbers, or length_scale='median'."
            )
        if self.needs_data:
            resolved.length_scale = median_distance(sample, weights)
        return resolved

    def gradients(
        self, rows: FloatArray, points: FloatArray, weights: FloatArray, *, parameters: bool = True
    ) -> Gradients:
        """Both contractions, from one tile of exponents."""
        metric = self.metric
        if metric is not None:
            centre = centre_of(points)
            x, z = metric.apply(rows, centre), metric.apply(points, centre)
            mapped = self.for_dimension(metric.n_features).on_mapped()
            by_points, by_parameter = mapped.gradients(x, z, weights, parameters=parameters)
            return by_points @ metric.matrix.T, by_parameter
        self.check(np.shape(points)[1])
        rows = np.asarray(rows, dtype=np.float64)
        section = StationarySection(self.for_dimension(rows.shape[1]), points, np.dtype(np.float64))
        kernel, exponents = section.kernel, section.exponents(rows)
        slopes = exponents.copy()
        kernel.slope(slopes.dtype)(slopes)
        slopes *= weights  # g_ij k'(E_ij)
        x, z = (rows - section.shift) * section.inverse_scale, section.points
        with np.errstate(over="ignore", invalid="ignore"):
            by_points, by_scale = kernel._contract(slopes, exponents, x, z)
        if not (np.all(np.isfinite(by_points)) and np.all(np.isfinite(by_scale))):
            # Pairs so far apart that they have no weight may have exponents and squares that are not finite.
            used = slopes != 0
            x = np.where(np.any(used, axis=1)[:, np.newaxis], x, 0.0)
            z = np.where(np.any(used, axis=0)[:, np.newaxis], z, 0.0)
            by_points, by_scale = kernel._contract(slopes, np.where(used, exponents, 0.0), x, z)
        by_points *= section.inverse_scale
        if not parameters:
            return by_points, {}
        values = slopes
        if not kernel.own_slope:
            values = exponents.copy()
            kernel.profile(values.dtype)(values)
            values *= weights  # g_ij k(E_ij)
        others = kernel._by_others(exponents, values)
        by_scale = kernel._by_length_scale(by_scale, exponents, slopes, values)
        return by_points, {"length_scale": by_scale, "amplitude": np.asarray(np.sum(values)), **others}

    def _by_length_scale(
        self, by_scale: FloatArray, exponents: FloatArray, slopes: FloatArray, values: FloatArray
    ) -> FloatArray:
        """The gradient by log ℓ, from that by way of the exponents and contracted tiles; the same, if φ has no ℓ."""
        return by_scale

    def _by_others(self, exponents: FloatArray, values: FloatArray) -> dict[str, FloatArray]:
        """The gradients by logarithms of further parameters of φ, from contracted values g_ij k(E_ij)."""
        return {}

    def _contract(
        self, slopes: FloatArray, exponents: FloatArray, x: FloatArray, z: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        by_point, pulled = np.sum(slopes, axis=0), slopes.T @ x
        by_points = pulled - by_point[:, np.newaxis] * z  # Σ_i g_ij k'(E_ij) (x̃_i - z̃_j)
        if np.ndim(self.length_scale) == 0:
            return by_points, np.asarray(-2.0 * np.vdot(slopes, exponents))  # ∂E/∂log ℓ = -2E
        # Σ_ij g_ij k'(E_ij) (x̃_if - z̃_jf)² for each feature f, without an array of size n·m·d
        squares = np.sum(slopes, axis=1) @ x**2 + by_point @ z**2 - 2.0 * np.sum(z * pulled, axis=0)
        return by_points, squares

    def diagonal_gradient(self, rows: FloatArray, weights: FloatArray) -> dict[str, FloatArray]:
        """k(x, x) is the amplitude, whatever the other parameters."""
        amplitude = np.asarray(np.sum(weights) * float(self.amplitude))
        nothing = {name: np.zeros_like(value) for name, value in self.get_log_parameters().items()}
        return {**nothing, "amplitude": amplitude}

    def get_log_parameters(self) -> dict[str, FloatArray]:
        """Logarithms of the parameters; of a metric, that of its size, a common factor of all length scales."""
        metric = self.metric
        if metric is None:
            return super().get_log_parameters()
        return self.on_mapped().get_log_parameters() | {"length_scale": np.log(np.asarray(metric.size))}

    def with_log_parameters(self, values: Mapping[str, FloatArray]) -> Self:
        """Return a copy with the parameters at exp(values); a metric is scaled to that size."""
        metric, rest = self.metric, dict(values)
        if metric is None or "length_scale" not in rest:
            return super().with_log_parameters(values)
        factor = float(np.exp(rest.pop("length_scale"))) / metric.size
        return super().with_log_parameters(rest).set_params(length_scale=metric.scaled(factor))  # type: ignore[no-any-return]

    def rescaled(self, factor: float) -> Self:
        """A copy whose length scales are multiplied by a factor."""
        metric = self.metric
        scale = self.length_scale * factor if metric is None else metric.scaled(factor)
        return clone(self).set_params(length_scale=scale)  # type: ignore[no-any-return]


class StationarySection(Section):
    """Scaled and shifted points, with their norms folded in."""

    def __init__(self, kernel: Stationary, points: FloatArray, dtype: np.dtype[Any]) -> None:
        points = np.asarray(points, dtype=np.float64)
        self.n_points, self.n_features = points.shape
        self._inverse_scale64 = kernel.inverse_scale(self.n_features)
        self.kernel, self.dtype, self._profile = kernel, dtype, kernel.profile(dtype)
        # The shift in the tile's own dtype, so that rows and points are moved by exactly the same amount; the median,
        # because an outlier among the points must not move the others.
        self.shift = centre_of(points).astype(dtype)
        self.inverse_scale = self._inverse_scale64.astype(dtype)
        self._limits = kernel.limits(dtype)
        self.replace(points)

    def replace(self, points: FloatArray) -> bool:
        """Take as many other points; the centre stays."""
        if len(points) != self.n_points:
            return False
        d, self._given = self.n_features, np.array(points)  # a copy: the caller's points may change
        folded = np.empty((self.n_points, d + 2), dtype=self.dtype)
        scale_rows(self._given, self.shift, self._inverse_scale64, folded)  # float64 inside
        folded[:, d + 1] = folded[:, d]
        folded[:, d] = 1.0
        self.points, self.right_factors = folded[:, :d], folded.T  # z̃, (m, d), and [z̃, 1, -|z̃|²/2]
        # Where norms overflow, pairs with such points are computed from differences.
        if not np.all(np.isfinite(folded[:, d + 1])):
            self._limits = (-1.0, *self._limits[1:])
        return True

    def exponents(self, rows: FloatArray, out: FloatArray | None = None, *, exact: bool = False) -> FloatArray:
        """E = -|x̃ - z̃|²/2, to rounding where the kernel is not negligible; ``exact`` leaves float64 rows so."""
        rows = np.ascontiguousarray(rows, dtype=np.float64 if exact else self.dtype)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise ValueError(f"rows must have {self.n_features} features as the points have, got shape {rows.shape}.")
        out = tile_buffer(self, len(rows), out)
        folded = np.empty((len(rows), self.n_features + 2), dtype=self.dtype)
        largest = scale_rows(rows, self.shift, self.inverse_scale, folded)
        far = not largest <= self._limits[0]
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is recomputed
            np.matmul(folded, self.right_factors, out=out)
        if far or self._limits[3] > 0:
            norms = folded[:, self.n_features]
            recompute_pairs(out, norms, rows, self._given, self._inverse_scale64, self._limits)
        return out

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Kernel values between rows and points."""
        out = self.exponents(rows, out)
        self._profile(out)
        return out

    def row_gradients(
        self, rows: FloatArray, coefficients: FloatArray, out: FloatArray | None = None, *, exact: bool = False
    ) -> Iterator[FloatArray]:
        """By the row, Σ_j w_jo ∂k(x_i, z_j)/∂x_i, shape (rows, d), of one output o after the other."""
        slopes = self.exponents(rows, out, exact=exact)
        self.kernel.slope(self.dtype)(slopes)
        x = (np.asarray(rows, dtype=np.float64) - self.shift) * self._inverse_scale64
        for column in coefficients.T.astype(self.dtype):
            # Σ_j w_j k'(E_ij) [z̃_j, 1], and ∂E/∂x̃ = z̃ - x̃
            pulled = slopes @ np.column_stack([self.points * column[:, np.newaxis], column])
            yield (pulled[:, :-1] - pulled[:, -1:] * x) * self._inverse_scale64

    def factors(self) -> Factors | None:
        """Rows with their norms folded in; None if exponents would have to be computed from differences."""
        profile = self.kernel.callback() if self.dtype == np.float64 and not self._limits[3] > 0 else None
        if profile is None:
            return None
        scales = np.concatenate([self.shift, self.inverse_scale])
        parameters, scaling = np.concatenate([profile[1], self._limits[:3]]), callback(scale_rows_at, "fiifff")
        return Factors(self.n_features + 2, scaling, scales, FARTHEST, profile[0], parameters)


class MappedSection(Section):
    """Points mapped by a metric, in float64 whatever the tiles are, and the section of the mapped ones."""

    def __init__(self, kernel: Stationary, metric: Metric, points: FloatArray, dtype: np.dtype[Any]) -> None:
        self.metric, self.n_features, self.dtype = metric, metric.n_features, dtype
        # Where rows are far from zero, their differences are small beside them: the map takes them from the centre.
        self.centre = centre_of(np.asarray(points, dtype=np.float64))
        mapped = kernel.for_dimension(self.n_features).on_mapped()
        self.inner = StationarySection(mapped, metric.apply(points, self.centre), dtype)
        self.kernel, self.n_points = mapped, self.inner.n_points

    def replace(self, points: FloatArray) -> bool:
        """Take as many other points; the centre stays."""
        return len(points) == self.n_points and self.inner.replace(self.metric.apply(points, self.centre))

    def exponents(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Those of the mapped rows."""
        rows = np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise ValueError(f"rows must have {self.n_features} features as the points have, got shape {rows.shape}.")
        return self.inner.exponents(self.metric.apply(rows, self.centre), out, exact=True)

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Kernel values between rows and points."""
        out = self.exponents(rows, out)
        self.inner._profile(out)
        return out

    def row_gradients(
        self, rows: FloatArray, coefficients: FloatArray, out: FloatArray | None = None
    ) -> Iterator[FloatArray]:
        """Those of the mapped rows, mapped back."""
        matrix = self.metric.matrix
        mapped = self.inner.row_gradients(self.metric.apply(rows, self.centre), coefficients, out, exact=True)
        return (gradient @ matrix.T for gradient in mapped)


def centre_of(points: FloatArray) -> FloatArray:
    """The median, which an outlier among the points does not move; zero without points."""
    return np.asarray(np.median(points, axis=0) if len(points) else np.zeros(np.shape(points)[1]), dtype=np.float64)
