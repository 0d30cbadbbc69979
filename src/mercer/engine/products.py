"""Products with kernel matrices that are never stored."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer.engine.passes import Executor, Pass, RowPass, Tile
from mercer.engine.rows import Rows
from mercer.engine.statistics import Features
from mercer.engine.table import ArrayTable
from mercer.kernels import Kernel, Section

# Widest tile: beyond it the points are walked in chunks, so that a tile of many points keeps a good shape in the cache.
_CHUNK = 1024


@dataclass(frozen=True)
class _Chunked:
    """Kernel values between rows and many points, some of the points at a time."""

    kernel: Kernel
    points: FloatArray  # (m, d)

    kind = np.float64  # dtype in which the kernel is computed

    @cached_property
    def chunks(self) -> list[tuple[slice, Section]]:
        starts = range(0, max(len(self.points), 1), _CHUNK)  # no points are a chunk, too
        parts = [self.points[start : start + _CHUNK] for start in starts]
        return [(slice(i, i + len(p)), self.kernel.bind(p, self.kind)) for i, p in zip(starts, parts, strict=True)]

    @property
    def width(self) -> int:
        """Of the widest chunk."""
        return min(len(self.points), _CHUNK)

    def prepare(self) -> None:
        """Bind the kernel to the points."""
        _ = self.chunks

    def values(self, section: Section, tile: Tile) -> FloatArray:
        """k(rows, some points), in the worker's memory."""
        return section.tile(tile.rows, tile.scratch.array("values", (tile.n_rows, section.n_points), section.dtype))


@dataclass(frozen=True)
class Evaluation(_Chunked, RowPass):
    """K_nm v: kernel values between rows and points times vectors, summed in float64."""

    vectors: FloatArray  # (m, p)
    kind: Any = np.float64

    name = "kernel times vectors"

    @property
    def shape(self) -> tuple[int, ...]:
        """One value per vector."""
        return (self.vectors.shape[1],)

    def apply(self, tile: Tile, out: AnyArray) -> None:
        """Σ over the chunks."""
        out[...] = 0.0
        for where, section in self.chunks:
            out += self.values(section, tile) @ self.vectors[where].astype(self.kind, copy=False)


@dataclass(frozen=True)
class _TransposedTimes(_Chunked, Pass[FloatArray, FloatArray]):
    """K_mn u, with u as targets."""

    n_vectors: int

    name = "kernel transposed"

    def start(self) -> FloatArray:
        return np.zeros((len(self.points), self.n_vectors))

    def add(self, state: FloatArray, tile: Tile) -> None:
        for where, section in self.chunks:
            state[where] += self.values(section, tile).T @ tile.targets


@dataclass(frozen=True)
class OnFeatures:
    """Something computed from the features φ of a tile."""

    features: Features

    @property
    def width(self) -> int:
        """Of the features."""
        return self.features.n_features

    def prepare(self) -> None:
        """Bind the kernel to the points."""
        self.features.prepare()

    def phi(self, tile: Tile) -> FloatArray:
        """Features of the rows, in the worker's memory."""
        return self.features.tile(tile.rows, tile.scratch.array("features", (tile.n_rows, self.features.n_features)))


@dataclass(frozen=True)
class _FeaturesTimes(OnFeatures, RowPass):
    """φ T, or φ itself."""

    matrix: FloatArray | None = None  # (m, b)

    name = "features"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features.n_features if self.matrix is None else self.matrix.shape[1],)

    def apply(self, tile: Tile, out: AnyArray) -> None:
        if self.matrix is None:
            self.features.tile(tile.rows, out)
        else:
            np.matmul(self.phi(tile), self.matrix, out=out)


@dataclass(frozen=True)
class _Projected(OnFeatures):
    """φ T in the worker's memory."""

    matrix: FloatArray  # (m, b)

    @property
    def width(self) -> int:
        return self.features.n_features + int(self.matrix.shape[1])

    def projections(self, tile: Tile) -> FloatArray:
        out = tile.scratch.array("projections", (tile.n_rows, self.matrix.shape[1]))
        return np.matmul(self.phi(tile), self.matrix, out=out)


@dataclass(frozen=True)
class _RowSquares(_Projected, RowPass):
    """Σ_j (φ T)_ij²."""

    name, fewest, shape = "projections", 64, ()

    def apply(self, tile: Tile, out: AnyArray) -> None:
        part = self.projections(tile)
        np.einsum("ij,ij->i", part, part, out=out)


@dataclass(frozen=True)
class _ColumnSquares(_Projected, Pass[FloatArray, FloatArray]):
    """Σ_i ω_i (φ T)_ij²."""

    name, fewest = "projections", 64

    def start(self) -> FloatArray:
        return np.zeros(self.matrix.shape[1])

    def add(self, state: FloatArray, tile: Tile) -> None:
        squares = self.projections(tile) ** 2
        state += squares.sum(axis=0) if tile.weights is None else tile.weights @ squares


@dataclass(frozen=True)
class _NewColumns(OnFeatures, RowPass):
    """(K_nP - F Bᵀ) C⁻ᵀ, with the rows of F as targets."""

    lower: FloatArray  # B, (b, m)
    inverse: FloatArray  # C⁻¹, (b, b)

    name, fewest = "projections", 64

    @property
    def width(self) -> int:
        return 3 * self.features.n_features + int(self.lower.shape[1])

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features.n_features,)

    def apply(self, tile: Tile, out: AnyArray) -> None:
        out[...] = (self.phi(tile) - tile.targets @ self.lower.T) @ self.inverse.T


@dataclass(frozen=True)
class _Diagonal(RowPass):
    """k(x, x)."""

    kernel: Kernel
    width: int = 1  # features of a row

    name, shape = "diagonal", ()

    def apply(self, tile: Tile, out: AnyArray) -> None:
        out[...] = self.kernel.diagonal(tile.rows)


def kernel_times(
    rows: Rows, kernel: Kernel, points: FloatArray, vectors: FloatArray, *, executor: Executor
) -> FloatArray:
    """K_nm v: kernel values between rows and points times vectors (m, p); returns float64 (n, p)."""
    return executor.map(Evaluation(kernel, points, vectors), ArrayTable(rows))


def features_times(rows: Rows, features: Features, vectors: FloatArray, *, executor: Executor) -> FloatArray:
    """V u: features of the rows, whitened or not, times vectors (m, p); returns (n, p)."""
    return executor.map(_FeaturesTimes(features, vectors), ArrayTable(rows))


def feature_matrix(rows: Rows, features: Features, *, executor: Executor) -> FloatArray:
    """V itself, shape (n, m), for methods that need it stored."""
    return executor.map(_FeaturesTimes(features), ArrayTable(rows))


def squared_projections(
    rows: Rows, kernel: Kernel, points: FloatArray, matrix: FloatArray, *, executor: Executor
) -> FloatArray:
    """Σ_j (K_nm T)_ij² of every row, T (m, b); returns (n,) and stores nothing larger."""
    return executor.map(_RowSquares(Features(kernel, points), matrix), ArrayTable(rows))


def column_squares(
    rows: Rows,
    kernel: Kernel,
    points: FloatArray,
    matrix: FloatArray,
    weights: FloatArray | None = None,
    *,
    executor: Executor,
) -> FloatArray:
    """Σ_i ω_i (K_nm T)_ij² of every column, T (m, b); returns (b,)."""
    return executor.reduce(_ColumnSquares(Features(kernel, points), matrix), ArrayTable(rows, weights=weights))


def extend_factor(
    rows: Rows,
    kernel: Kernel,
    points: FloatArray,
    lower: FloatArray,
    inverse: FloatArray,
    factor: FloatArray,
    *,
    executor: Executor,
) -> None:
    """Fill the next columns of a stored factor F (n, room) of the kernel matrix with (K_nP - F Bᵀ) C⁻ᵀ.

    B (b, m) is ``lower``, the new points' rows of the factor; C⁻¹ (b, b) is ``inverse``.
    """
    size, new = lower.shape[1], len(points)
    table = ArrayTable(rows, labels=factor[:, :size])
    factor[:, size : size + new] = executor.map(_NewColumns(Features(kernel, points), lower, inverse), table)


def transposed_times(
    rows: Rows, kernel: Kernel, points: FloatArray, vectors: FloatArray, *, executor: Executor
) -> FloatArray:
    """K_mn u: kernel values between points and rows times vectors (n, p); returns (m, p)."""
    return executor.reduce(_TransposedTimes(kernel, points, vectors.shape[1]), ArrayTable(rows, labels=vectors))


def kernel_matrix(rows: Rows, kernel: Kernel, points: FloatArray, *, executor: Executor) -> FloatArray:
    """K_nm itself, float64, for methods that need it stored."""
    return feature_matrix(rows, Features(kernel, points), executor=executor)


def gram_matrix(rows: Rows, kernel: Kernel, *, executor: Executor) -> FloatArray:
    """K_nn itself, float64; the rows are held in memory beside it."""
    points = rows.take(np.arange(rows.n_rows)).astype(np.float64, copy=False)
    return kernel_matrix(rows, kernel, points, executor=executor)


def kernel_diagonal(rows: Rows, kernel: Kernel, *, executor: Executor) -> FloatArray:
    """k(x, x) of every row, shape (n,)."""
    return executor.map(_Diagonal(kernel, rows.n_features), ArrayTable(rows))
