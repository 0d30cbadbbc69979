r"""Features of a row on a basis: kernel values, or the same whitened.

With :math:`K_{mm} = LL^\top` the whitened features :math:`v(x) = L^{-1}k_m(x)` have unit prior covariance. They cost a
triangular solve per tile, as much again as the sums over it. Sums of plain features can be whitened afterwards, at no
cost per row, but then their rounding errors grow by the condition number of :math:`K_{mm}` and not by its root.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer.engine.passes import Shippable
from mercer.kernels import Kernel, Section
from mercer.solvers.blas import whiten

__all__ = ["Features"]


@dataclass(frozen=True)
class Features(Shippable):
    """Rows ↦ k(rows, points), or k(rows, points) L⁻ᵀ if ``lower`` is given; always float64.

    Attributes
    ----------
    kernel : Kernel
    points : array (m, d)
    lower : array (m, m) or None
        L, Fortran-contiguous float64.
    dtype : numpy.dtype
        In which the kernel is computed, before its values are widened.
    spare : int
        Columns left free behind the m features, for the caller to fill: one product over the tile then sums features
        and targets alike.
    """

    kernel: Kernel
    points: FloatArray
    lower: FloatArray | None = None
    dtype: Any = np.float64
    spare: int = 0

    @property
    def n_features(self) -> int:
        """Number of features, without the spare columns."""
        return len(self.points)

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.n_features + self.spare

    @cached_property
    def _section(self) -> Section:
        # Spare columns are computed as if they were points: a contiguous tile is worth more than the work. As copies of
        # the median they do not move the points' own, which kernels take for their centre.
        middle = np.median(self.points, axis=0) if len(self.points) else np.zeros(self.points.shape[1])
        padding = np.tile(middle, (self.spare, 1))
        return self.kernel.bind(np.concatenate([self.points, padding]), self.dtype)

    def prepare(self) -> None:
        """Do once what does not depend on the rows, before threads share it."""
        _ = self._section

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Features of a tile of rows, shape (T, width)."""
        if self._section.dtype == np.float64:
            values = self._section.tile(rows, out)
        else:
            values = np.empty((len(rows), self.width)) if out is None else out
            values[...] = self._section.tile(rows)
        if self.lower is not None:
            whiten(values[:, : self.n_features], self.lower)
        return values
