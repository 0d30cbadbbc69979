r"""Inner products of an expansion with feature vectors, and their gradients.

:math:`\langle f_o, \phi(z_j)\rangle = f_o(z_j) = \sum_i a_{io}\,k(x_i, z_j)` for a few z and many x: every distance and
its gradient is made of these. The walk is over the points of the expansion, in tiles; memory does not grow with them.

A stationary kernel has values and slopes in one tile of exponents E, and weights that depend on the row alone leave the
gradient a matrix product: with :math:`S = dk/dE`,

.. math:: \partial f_o(z_j) = \sum_i S_{ij}\,a_{io}\,(x_i - z_j)/\ell^2,

so :math:`S^\top[a_1 \tilde x, a_1, a_2 \tilde x, a_2, \dots]` gives all outputs' gradients. Of other kernels, and of
many outputs, the gradients are contracted with the weights of the outputs in a second tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mercer._typing import FloatArray
from mercer.engine import ArrayRows, ArrayTable, Executor, Pass, Tile, transposed_times
from mercer.kernels import Kernel
from mercer.kernels.profiles import Profile
from mercer.kernels.stationary import Stationary, StationarySection

# Beyond so many outputs a second tile costs less than the products of all outputs.
_FEW_OUTPUTS = 3
# Passes over so few numbers (1 MB) are one tile, for one worker. To leave that to the executor takes a tenth longer.
_ONE_TILE = 1 << 17


class AtVectors(NamedTuple):
    """An expansion f, and its kernel with some rows x, at some vectors z."""

    values: FloatArray  # f(z_j), shape (m, p)
    tile: FloatArray  # k(x_i, z_j), shape (q, m)
    # From weights u (m, p) and w (q, m) to Σ_o u_jo ∂f_o(z_j) + Σ_i w_ij ∂k(x_i, z_j), shape (m, d)
    gradient: Callable[[FloatArray, FloatArray], FloatArray]


class InnerProducts:
    """f(z) = Σ a_i k(x_i, z) as a function of few z: points (n, d), coefficients (n, p), and a middle of the points."""

    def __init__(
        self, kernel: Kernel, points: FloatArray, coefficients: FloatArray, *, shift: FloatArray, executor: Executor
    ) -> None:
        self.kernel, self.points, self.coefficients = kernel, points, coefficients
        self.n_outputs = int(coefficients.shape[1])
        self._shift, self._executor, self._rows = shift, executor, ArrayRows(points, checked=True)
        self._stationary: Stationary | None = None
        targets = coefficients
        if isinstance(kernel, Stationary) and kernel.metric is None and self.n_outputs <= _FEW_OUTPUTS:
            kernel.check(points.shape[1])
            self._stationary = kernel.for_dimension(points.shape[1])
            # [a_1 x̃, a_1, a_2 x̃, a_2, …], shape (n, p(d+1)): as large as the points, once per output
            shifted = np.hstack([points - shift, np.ones((len(points), 1))])
            targets = (coefficients[:, :, np.newaxis] * shifted[:, np.newaxis]).reshape(len(points), -1)
        self._table = ArrayTable(self._rows, labels=targets)
        self._whole = next(self._table.tiles(len(points)))

    def values(self, vectors: FloatArray) -> FloatArray:
        """f(z_j), shape (m, p)."""
        if len(self.points) * len(vectors) <= _ONE_TILE:
            return np.asarray(self.kernel.bind(vectors).tile(self._whole.rows).T @ self.coefficients)
        return transposed_times(self._rows, self.kernel, vectors, self.coefficients, executor=self._executor)

    def at(self, vectors: FloatArray, rows: FloatArray) -> AtVectors:
        """f, k(rows, ·) and their gradients at the same vectors."""
        if self._stationary is not None:
            return self._at_once(self._stationary, vectors, rows)
        kernel = self.kernel

        def gradient(u: FloatArray, w: FloatArray) -> FloatArray:
            return self._sum(_Contraction(kernel, vectors, u)) + kernel.points_gradient(rows, vectors, w)

        return AtVectors(self.values(vectors), kernel(rows, vectors), gradient)

    def _at_once(self, kernel: Stationary, vectors: FloatArray, rows: FloatArray) -> AtVectors:
        """With all gradients of f from the pass that gives its values."""
        work = _SlopesPass(kernel, vectors, self.n_outputs)
        total, (tile, slopes) = self._sum(work), work.tiles(rows)
        d, middle, inverse_square = vectors.shape[1], np.mean(vectors, axis=0), work.bound[0].inverse_scale ** 2
        pulled = total[..., :d] - total[..., d : d + 1] * (vectors - self._shift)[:, np.newaxis]
        gradients = pulled * inverse_square  # ∂f_o(z_j), (m, p, d)

        def gradient(u: FloatArray, w: FloatArray) -> FloatArray:
            pulls = slopes * w
            pulled = pulls.T @ (rows - middle) - np.sum(pulls, axis=0)[:, np.newaxis] * (vectors - middle)
            return np.asarray(np.einsum("jo,jod->jd", u, gradients) + pulled * inverse_square)

        return AtVectors(total[..., d + 1], tile, gradient)

    def _sum(self, work: Pass[FloatArray, FloatArray]) -> FloatArray:
        """Over the points."""
        if len(self.points) * work.width > _ONE_TILE:
            return self._executor.reduce(work, self._table)
        total = work.start()
        work.add(total, self._whole)
        return total


@dataclass(frozen=True)
class _Contraction(Pass[FloatArray, FloatArray]):
    """Σ_o w_jo ∂f_o(z_j), with the coefficients of the expansion as targets."""

    kernel: Kernel
    vectors: FloatArray  # (m, d)
    weights: FloatArray  # (m, p)

    name = "slopes"

    @property
    def width(self) -> int:
        """Weights, exponents, slopes and what a kernel needs beside them."""
        return 4 * len(self.vectors)

    def start(self) -> FloatArray:
        return np.zeros(self.vectors.shape)

    def add(self, state: FloatArray, tile: Tile) -> None:
        state += self.kernel.points_gradient(tile.rows, self.vectors, tile.targets @ self.weights.T)


@dataclass(frozen=True)
class _SlopesPass(Pass[FloatArray, FloatArray]):
    """Σ_i S_ij [a_io x̃_i, a_io] and Σ_i a_io k_ij, with [a_1 x̃, a_1, …] as targets."""

    kernel: Stationary
    vectors: FloatArray  # (m, d)
    n_outputs: int

    name = "slopes"

    @property
    def width(self) -> int:
        return 2 * len(self.vectors) + self.n_outputs * (int(self.vectors.shape[1]) + 1)

    def prepare(self) -> None:
        _ = self.bound

    @cached_property
    def bound(self) -> tuple[StationarySection, Profile, Profile]:
        """The kernel at the vectors, its slope and its value."""
        dtype = np.dtype(np.float64)
        section = StationarySection(self.kernel, self.vectors, dtype)
        return section, self.kernel.slope(dtype), self.kernel.profile(dtype)

    def tiles(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values and slopes of the kernel between rows and vectors, from the same exponents."""
        section, slope, value = self.bound
        values = section.exponents(rows)
        slopes = values if self.kernel.own_slope else values.copy()
        slope(slopes)
        if slopes is not values:
            value(values)
        return values, slopes

    def start(self) -> FloatArray:
        m, d = self.vectors.shape
        return np.zeros((m, self.n_outputs, d + 2))

    def add(self, state: FloatArray, tile: Tile) -> None:
        (m, d), p = self.vectors.shape, self.n_outputs
        values, slopes = self.tiles(tile.rows)
        pulled = (slopes.T @ tile.targets).reshape(m, p, d + 1)
        state[..., : d + 1] += pulled
        coefficients = tile.targets.reshape(-1, p, d + 1)[..., d]
        state[..., d + 1] += pulled[..., d] if values is slopes else values.T @ coefficients
