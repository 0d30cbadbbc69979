r"""A linear map of the inputs in place of length scales: distances :math:`|A^\top(x - z)|`.

A kernel with a metric is the same kernel with ℓ = 1 on mapped rows. The map may have fewer columns than inputs (a
metric of low rank) and rows of zeros (inputs that do not matter), which an array of length scales, whose inverse would
be the map, cannot express; so the map itself is what is given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer._stored import stored
from mercer._stored.checks import check_finite, check_shape, need
from mercer._typing import FloatArray


@stored
@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    r"""Distances :math:`|B^\top D^{-1}(x - z)|`, as the ``length_scale`` of a stationary kernel.

    Parameters
    ----------
    map : array (d, r)
        B. Differences of inputs, in their units, times B are r numbers whose Euclidean length is the scaled distance.
    unit : array (d,), optional
        The diagonal of D, above zero: a unit for each input, its standard deviation say. By default 1.

    Attributes
    ----------
    importance : array (d,)
        Share of each input in the metric: the diagonal of BBᵀ, divided by its sum. It depends on the units.

    Examples
    --------
    >>> from mercer.kernels import Gaussian, Metric
    >>> kernel = Gaussian(Metric([[1.0], [-1.0]]))  # of the difference of two inputs
    >>> kernel([[0.0, 0.0]], [[1.0, 1.0], [1.0, 0.0]]).round(4)
    array([[1.    , 0.6065]])
    >>> kernel
    Gaussian(length_scale=Metric(2 inputs, rank 1))
    """

    map: FloatArray
    unit: FloatArray | None = None

    def __post_init__(self) -> None:
        for name in ("map", "unit"):
            if getattr(self, name) is not None:
                array = np.array(getattr(self, name), dtype=np.float64, order="C")
                array.flags.writeable = False
                object.__setattr__(self, name, array)
        if self.map.ndim != 2 or 0 in self.map.shape or not np.all(np.isfinite(self.map)) or not np.any(self.map):
            raise ValueError("the map of a metric must be a matrix (inputs, rank) of finite numbers, not all zero.")
        if self.unit is not None and (
            self.unit.shape != self.map.shape[:1] or not np.all(np.isfinite(self.unit) & (self.unit > 0))
        ):
            raise ValueError(f"the unit of a metric must be {len(self.map)} finite numbers above zero.")
        if not np.all(np.isfinite(self.matrix)):
            raise ValueError("the map of a metric divided by its units overflows.")

    def check_stored(self) -> None:
        """Refuse a map and units that do not fit each other."""
        need(self.map.ndim == 2, "the map of a metric is no matrix.")
        check_finite(self.map, "the map of a metric")
        if self.unit is not None:
            check_shape(self.unit, self.map.shape[:1], "the unit of a metric")

    @property
    def n_features(self) -> int:
        """Inputs."""
        return len(self.map)

    @property
    def rank(self) -> int:
        """Columns of the map: the dimension in which distances are taken."""
        return int(self.map.shape[1])

    @property
    def matrix(self) -> FloatArray:
        """A = D⁻¹B, (d, r): rows x become xA."""
        with np.errstate(over="ignore"):
            return self.map if self.unit is None else np.asarray(self.map / self.unit[:, np.newaxis])

    @property
    def importance(self) -> FloatArray:
        """Share of each input, (d,)."""
        squares = np.sum((self.map / np.max(np.abs(self.map))) ** 2, axis=1)
        return np.asarray(squares / np.sum(squares))

    @property
    def size(self) -> float:
        """A length scale in units of D: 1/√(mean square of the inputs' scales); ℓ if B = I/ℓ."""
        largest = float(np.max(np.abs(self.map)))
        mean = float(np.sum((self.map / largest) ** 2)) / self.n_features
        return 1.0 / (largest * float(np.sqrt(mean)))

    @property
    def steps(self) -> FloatArray:
        """How far each input alone goes for a distance of one, (d,): 1/√M_ff, M = AAᵀ, or infinity."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / np.linalg.norm(self.matrix, axis=1))

    def scaled(self, factor: float) -> Metric:
        """All length scales times a factor: distances are divided by it."""
        return replace(self, map=self.map / factor)

    def of_scaled_inputs(self, factor: Any) -> Metric:
        """The metric of rows x by which rows x·factor have this one."""
        unit = np.ones(self.n_features) if self.unit is None else self.unit
        signs = np.where(np.broadcast_to(factor, unit.shape) < 0, -1.0, 1.0)
        return Metric(self.map * signs[:, np.newaxis], unit / np.abs(factor))

    def apply(self, rows: FloatArray, centre: FloatArray) -> FloatArray:
        """(x - centre) A, (n, r), in float64."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((np.asarray(rows, dtype=np.float64) - centre) @ self.matrix)

    def __eq__(self, other: object) -> bool:
        """Whether the maps are the same."""
        return isinstance(other, Metric) and np.array_equal(self.matrix, other.matrix)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Metric({self.n_features} inputs, rank {self.rank})"


def as_metric(length_scale: Any) -> Metric | None:
    """The metric of a length scale that is one, or a matrix L: distances are |L⁺(x - z)|; None of any other.

    So ``diag(ℓ)`` is the same as the array ℓ. L has as many rows as inputs, and columns that are linearly independent.
    """
    if isinstance(length_scale, Metric):
        return length_scale
    if isinstance(length_scale, str) or np.ndim(length_scale) != 2:
        return None
    matrix = np.asarray(length_scale, dtype=np.float64)
    usable = matrix.size and matrix.shape[1] <= matrix.shape[0] and np.all(np.isfinite(matrix))
    unit = np.max(np.abs(matrix), axis=1) if usable else np.zeros(0)
    if not usable or not np.all(unit > 0) or np.linalg.matrix_rank(matrix / unit[:, np.newaxis]) < matrix.shape[1]:
        if usable and np.any(unit == 0) and np.linalg.matrix_rank(matrix) == matrix.shape[1]:
            return Metric(np.linalg.pinv(matrix).T)
        raise ValueError(
            "length_scale must be, as a matrix, of finite numbers, with independent columns and one row per feature; "
            "for any other linear map there is mercer.kernels.Metric."
        )
    if matrix.shape[0] == matrix.shape[1]:  # L⁻¹ = (U⁻¹L)⁻¹U⁻¹, where inputs of different units do no harm
        return Metric(np.linalg.inv(matrix / unit[:, np.newaxis]).T, unit)
    return Metric(np.linalg.pinv(matrix).T)
