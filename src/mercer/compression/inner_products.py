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
from functools import cached_property, partial
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


class InnerProducts:
    """f(z) = Σ a_i k(x_i, z) as a function of few z: points (n, d), coefficients (n, p), and a middle of the points."""

    def __init__(
        self,
        kernel: Kernel,
        points: FloatArray,
        coefficients: FloatArray,
        *,
        executor: Executor,
        shift: FloatArray | None = None,
    ) -> None:
        self.kernel, self.points, self.coefficients = kernel, points, coefficients
        self.n_outputs = int(coefficients.shape[1])
        self._executor, self._rows = executor, ArrayRows(points, checked=True)
        self.stationary: Stationary | None = None
        right = coefficients
        if isinstance(kernel, Stationary) and self.n_outputs <= _FEW_OUTPUTS:
            kernel.check(points.shape[1])
            self.stationary = kernel.for_dimension(points.shape[1])
            self.shift = np.median(points, axis=0) if shift is None else shift
            right = self._weighted_points()
        self._table = ArrayTable(self._rows, labels=right)
        self._whole = next(self._table.tiles(len(points)))

    def _weighted_points(self) -> FloatArray:
        """[a_1 x̃, a_1, a_2 x̃, a_2, …], shape (n, p(d+1)): as large as the points, once per output."""
        n, d = self.points.shape
        right = np.empty((n, self.n_outputs, d + 1))
        np.multiply(self.coefficients[:, :, np.newaxis], (self.points - self.shift)[:, np.newaxis], out=right[..., :d])
        right[..., d] = self.coefficients
        return right.reshape(n, -1)

    def values(self, vectors: FloatArray) -> FloatArray:
        """f(z_j), shape (m, p)."""
        if len(self.points) * len(vectors) <= _ONE_TILE:
            return np.asarray(self.kernel.bind(vectors).tile(self._whole.rows).T @ self.coefficients)
        return transposed_times(self._rows, self.kernel, vectors, self.coefficients, executor=self._executor)

    def reduce(self, work: Pass[FloatArray, FloatArray]) -> FloatArray:
        """Sum over the points, with what ``work`` needs of them as targets."""
        if len(self.points) * work.width > _ONE_TILE:
            return self._executor.reduce(work, self._table)
        total = work.start()
        work.add(total, self._whole)
        return total

    def at(self, vectors: FloatArray) -> AtVectors:
        """All that is wanted at the same vectors."""
        return AtVectors(self, vectors) if self.stationary is None else _AllGradients(self, vectors, self.stationary)


class SmallTile(NamedTuple):
    """k between few rows and the vectors."""

    values: FloatArray  # (q, m)
    gradient: Callable[[FloatArray], FloatArray]  # from weights (q, m) to Σ_i w_ij ∂k(x_i, z_j), shape (m, d)


class AtVectors:
    """An expansion and its kernel at some vectors z."""

    values: FloatArray  # f(z_j), shape (m, p)

    def __init__(self, products: InnerProducts, vectors: FloatArray) -> None:
        self._products, self._vectors = products, vectors
        self.values = products.values(vectors)

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Σ_o w_jo ∂f_o(z_j), shape (m, d), for weights (m, p)."""
        return self._products.reduce(_Contraction(self._products.kernel, self._vectors, weights))

    def tile(self, rows: FloatArray) -> SmallTile:
        """The kernel between some rows and the vectors."""
        kernel, vectors = self._products.kernel, self._vectors
        return SmallTile(kernel(rows, vectors), partial(kernel.points_gradient, rows, vectors))


class _AllGradients(AtVectors):
    """The same for a stationary kernel and few outputs: all gradients come with the values, in one pass."""

    def __init__(self, products: InnerProducts, vectors: FloatArray, kernel: Stationary) -> None:
        work = self._work = _SlopesPass(kernel, vectors, products.n_outputs)
        d, self._vectors = vectors.shape[1], vectors
        total = products.reduce(work)
        pulled = total[..., :d] - total[..., d : d + 1] * (vectors - products.shift)[:, np.newaxis]
        self.values, self._gradients = total[..., d + 1], pulled * work.inverse_square

    def gradient(self, weights: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("jo,jod->jd", weights, self._gradients))

    def tile(self, rows: FloatArray) -> SmallTile:
        values, by_exponent = self._work.tiles(rows)
        return SmallTile(values, partial(self._pull, rows, by_exponent))

    def _pull(self, rows: FloatArray, by_exponent: FloatArray, weights: FloatArray) -> FloatArray:
        pulls, middle = by_exponent * weights, np.mean(self._vectors, axis=0)
        pulled = pulls.T @ (rows - middle) - np.sum(pulls, axis=0)[:, np.newaxis] * (self._vectors - middle)
        return np.asarray(pulled * self._work.inverse_square)


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
        _ = self._bound

    @cached_property
    def _bound(self) -> tuple[StationarySection, Profile, Profile | None]:
        """The kernel at the vectors, its slope and, unless it is its own slope, its value."""
        dtype = np.dtype(np.float64)
        value = self.kernel.profile(dtype)
        section = StationarySection(self.kernel, self.vectors, dtype)
        return (section, value, None) if self.kernel.own_slope else (section, self.kernel.slope(dtype), value)

    @property
    def inverse_square(self) -> FloatArray:
        """1/ℓ² of each feature."""
        return np.asarray(self._bound[0].inverse_scale ** 2)

    def tiles(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values and slopes of the kernel between rows and vectors, from the same exponents."""
        section, slope, value = self._bound
        values = section.exponents(rows)
        slopes = values if value is None else values.copy()
        slope(slopes)
        if value is not None:
            value(values)
        return values, slopes

    def start(self) -> FloatArray:
        m, d = self.vectors.shape
        return np.zeros((m, self.n_outputs, d + 2))

    def add(self, state: FloatArray, tile: Tile) -> None:
        (m, d), p = self.vectors.shape, self.n_outputs
        values, by_exponent = self.tiles(tile.rows)
        pulled = (by_exponent.T @ tile.targets).reshape(m, p, d + 1)
        state[..., : d + 1] += pulled
        coefficients = tile.targets.reshape(-1, p, d + 1)[..., d]
        state[..., d + 1] += pulled[..., d] if values is by_exponent else values.T @ coefficients
