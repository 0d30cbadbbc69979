r"""The mean of :math:`\nabla f(x)\nabla f(x)^\top` over rows: along which directions a function changes.

On a tile, slopes S = dk/dE give the gradients of an output as one product, :math:`S\,[w\circ\tilde z,\,w]`; nothing of
size n·d·p is formed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mercer._typing import FloatArray
from mercer.engine import Pass, Tile
from mercer.kernels import Kernel
from mercer.kernels.base import Section


@dataclass
class GradientSum:
    """Σ ω ∇f∇fᵀ, (d, d), and Σ ω."""

    products: FloatArray
    weight: float = 0.0

    def merge_in_place(self, other: "GradientSum") -> None:
        """Add the sums over other rows."""
        self.products += other.products
        self.weight += other.weight


@dataclass(frozen=True)
class GradientProduct(Pass[GradientSum, FloatArray]):
    """Weighted mean of ∇f∇fᵀ, summed over the outputs, (d, d)."""

    kernel: Kernel
    points: FloatArray  # (m, d)
    coefficients: FloatArray  # (m, p)

    name, fewest = "gradient products", 64

    @property
    def width(self) -> int:
        """Slopes, and gradients of one output."""
        return len(self.points) + 4 * int(self.points.shape[1])

    @cached_property
    def section(self) -> Section:
        """The kernel at the points."""
        return self.kernel.bind(self.points)

    def prepare(self) -> None:
        """Bind the kernel to the points."""
        _ = self.section

    def start(self) -> GradientSum:
        """No rows."""
        d = int(self.points.shape[1])
        return GradientSum(np.zeros((d, d)))

    def add(self, state: GradientSum, tile: Tile) -> None:
        """Output by output."""
        for gradient in self._gradients(tile):
            weighted = gradient if tile.weights is None else gradient * tile.weights[:, np.newaxis]
            state.products += weighted.T @ gradient
        state.weight += tile.n_rows if tile.weights is None else float(np.sum(tile.weights))

    def finish(self, state: GradientSum) -> FloatArray:
        """The mean, symmetric to the last bit."""
        mean = state.products / state.weight if state.weight > 0 else state.products
        return np.asarray((mean + mean.T) / 2)

    def _gradients(self, tile: Tile) -> Iterator[FloatArray]:
        """∇f_o of the rows, (T, d), for one output o after the other."""
        if hasattr(self.section, "row_gradients"):
            out = tile.scratch.array("slopes", (tile.n_rows, len(self.points)))
            yield from self.section.row_gradients(tile.rows, self.coefficients, out)
            return
        for column in self.coefficients.T:
            weights = np.repeat(column[:, np.newaxis], tile.n_rows, axis=1)
            # k is symmetric: the gradient by the row is the gradient by the second argument.
            yield self.kernel.points_gradient(self.points, tile.rows, weights)
