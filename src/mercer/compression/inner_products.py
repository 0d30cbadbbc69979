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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer.engine import ArrayRows, ArrayTable, Executor, Pass, Tile, transposed_times
from mercer.kernels import Kernel
from mercer.kernels.stationary import Stationary, StationarySection

__all__ = ["AtVectors", "InnerProducts", "SmallTile"]

# Beyond so many outputs a second tile costs less than the products of all outputs.
_FEW_OUTPUTS = 3


class InnerProducts:
    """f(z) = Σ a_i k(x_i, z) as a function of few z.

    Parameters
    ----------
    kernel : Kernel
    points : array (n, d)
    coefficients : array (n, p)
    executor : Executor
    shift : array (d,) or None
        A middle of the points, where it is known.
    """

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
        self._rows, self._executor = ArrayRows(points, checked=True), executor
        self._table = ArrayTable(self._rows, labels=coefficients)
        self._fused = isinstance(kernel, Stationary) and self.n_outputs <= _FEW_OUTPUTS
        self._shift = np.median(points, axis=0) if shift is None else shift
        self._right = self._weighted_points() if self._fused else np.empty(0)

    def _weighted_points(self) -> FloatArray:
        """[a_1 x̃, a_1, a_2 x̃, a_2, …], shape (n, p(d+1)): as large as the points, once per output."""
        n, d = self.points.shape
        right = np.empty((n, self.n_outputs, d + 1))
        np.multiply(self.coefficients[:, :, np.newaxis], (self.points - self._shift)[:, np.newaxis], out=right[..., :d])
        right[..., d] = self.coefficients
        return right.reshape(n, -1)

    def values(self, vectors: FloatArray) -> FloatArray:
        """f(z_j), shape (m, p)."""
        return transposed_times(self._rows, self.kernel, vectors, self.coefficients, executor=self._executor)

    def bind(self, vectors: FloatArray) -> AtVectors:
        """All that is wanted at the same vectors, prepared once."""
        return AtVectors(self, vectors, _Slopes(self.kernel, vectors) if self._fused else None)

    def values_and_gradient(
        self, vectors: FloatArray, weigh: Callable[[FloatArray], FloatArray]
    ) -> tuple[FloatArray, FloatArray]:
        """See ``AtVectors``."""
        return self.bind(vectors).values_and_gradient(weigh)

    def contracted(self, vectors: FloatArray, weights: FloatArray) -> FloatArray:
        """Σ_o w_jo ∂f_o(z_j), by the kernel's own contraction."""
        return self._executor.reduce(_Contraction(self.kernel, vectors, weights), self._table)

    def all_gradients(self, vectors: FloatArray, slopes: _Slopes) -> tuple[FloatArray, FloatArray]:
        """Values (m, p) and gradients (m, p, d) from one tile of exponents."""
        (m, d), p = vectors.shape, self.n_outputs
        total = self._executor.reduce(_SlopesPass(slopes, (m, p, d)), replace(self._table, labels=self._right))
        pulled = total[..., :d] - total[..., d : d + 1] * (vectors - self._shift)[:, np.newaxis]
        return total[..., d + 1], pulled * slopes.inverse_square


class AtVectors:
    """An expansion and its kernel at some vectors z."""

    def __init__(self, products: InnerProducts, vectors: FloatArray, slopes: _Slopes | None) -> None:
        self._products, self._vectors, self._slopes = products, vectors, slopes

    def values_and_gradient(self, weigh: Callable[[FloatArray], FloatArray]) -> tuple[FloatArray, FloatArray]:
        """f(z_j), and Σ_o w_jo ∂f_o(z_j) of shape (m, d), where ``weigh`` gives the weights (m, p) for the values."""
        products, vectors = self._products, self._vectors
        if self._slopes is not None:
            values, gradients = products.all_gradients(vectors, self._slopes)
            return values, np.asarray(np.einsum("jo,jod->jd", weigh(values), gradients))
        values = products.values(vectors)
        return values, products.contracted(vectors, weigh(values))

    def tile(self, rows: FloatArray) -> SmallTile:
        """The kernel between some rows and the vectors."""
        kernel, vectors, slopes = self._products.kernel, self._vectors, self._slopes
        if slopes is None:
            return SmallTile(kernel(rows, vectors), lambda weights: kernel.points_gradient(rows, vectors, weights))
        values, by_exponent = slopes.tiles(rows)

        def gradient(weights: FloatArray) -> FloatArray:
            pulls, middle = by_exponent * weights, np.mean(vectors, axis=0)
            pulled = pulls.T @ (rows - middle) - np.sum(pulls, axis=0)[:, np.newaxis] * (vectors - middle)
            return np.asarray(pulled * slopes.inverse_square)

        return SmallTile(values, gradient)


@dataclass(frozen=True)
class SmallTile:
    """k between few rows and the vectors.

    Attributes
    ----------
    values : array (q, m)
    gradient : callable
        From weights (q, m) to Σ_i w_ij ∂k(x_i, z_j), shape (m, d).
    """

    values: FloatArray
    gradient: Callable[[FloatArray], FloatArray]


class _Slopes:
    """Values and slopes of a stationary kernel between rows and vectors, from the same exponents."""

    def __init__(self, kernel: Kernel, vectors: FloatArray) -> None:
        if not isinstance(kernel, Stationary):  # pragma: no cover  the caller has looked
            raise TypeError
        kernel.check(vectors.shape[1])
        kernel, dtype = kernel.for_dimension(vectors.shape[1]), np.dtype(np.float64)
        self._arguments = kernel, vectors
        self._value, self._slope = kernel.profile(dtype), kernel.slope(dtype)
        self._own = kernel.own_slope
        self._section = StationarySection(kernel, vectors, dtype=dtype, profile=self._value)
        self.inverse_square = np.asarray(self._section.inverse_scale**2)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Slopes, self._arguments

    def tiles(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        values = self._section.exponents(rows)
        slopes = values if self._own else values.copy()
        self._slope(slopes)
        if not self._own:
            self._value(values)
        return values, slopes


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

    slopes: _Slopes
    sizes: tuple[int, int, int]  # m, p, d

    name = "slopes"

    @property
    def width(self) -> int:
        m, p, d = self.sizes
        return 2 * m + p * (d + 1)

    def start(self) -> FloatArray:
        m, p, d = self.sizes
        return np.zeros((m, p, d + 2))

    def add(self, state: FloatArray, tile: Tile) -> None:
        m, p, d = self.sizes
        values, by_exponent = self.slopes.tiles(tile.rows)
        pulled = (by_exponent.T @ tile.targets).reshape(m, p, d + 1)
        state[..., : d + 1] += pulled
        coefficients = tile.targets.reshape(-1, p, d + 1)[..., d]
        state[..., d + 1] += pulled[..., d] if values is by_exponent else values.T @ coefficients
