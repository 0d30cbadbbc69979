"""Products with kernel matrices that are never stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer.engine.executors.base import Executor
from mercer.engine.features import Features
from mercer.engine.rows import Rows
from mercer.engine.tiles import tile_rows
from mercer.engine.walk import ArraySum, map_rows, reduce_rows
from mercer.kernels import Kernel, Section

__all__ = [
    "column_squares",
    "extend_factor",
    "features_times",
    "gram_matrix",
    "gram_times",
    "kernel_diagonal",
    "kernel_matrix",
    "kernel_times",
    "squared_projections",
    "transposed_times",
]

# Widest tile: beyond it the points are walked in chunks, so that a tile of many points keeps a good shape in the cache.
_CHUNK = 1024


def kernel_times(
    rows: Rows, kernel: Kernel, points: FloatArray, vectors: FloatArray, *, executor: Executor, dtype: Any = np.float64
) -> FloatArray:
    """K_nm v: kernel values between rows and points times vectors (m, p); returns float64 (n, p)."""
    chunks = _chunks(kernel, points, dtype)
    tile = _chunk_tile(points, dtype, executor)
    vectors = np.asarray(vectors, dtype=dtype)
    result = np.empty((rows.n_rows, vectors.shape[1]))

    def prepare() -> Callable[[FloatArray, FloatArray], None]:
        buffers = _buffers(chunks, tile)

        def function(block: FloatArray, target: FloatArray) -> None:
            target[...] = 0.0
            for (first, section), buffer in zip(chunks, buffers, strict=True):
                values = section.tile(block, buffer[: len(block)])
                target += values @ vectors[first : first + section.n_points]

        return function

    map_rows(rows, executor, tile=tile, prepare=prepare, out=result, name="kernel times vectors")
    return result


def features_times(rows: Rows, features: Features, vectors: FloatArray, *, executor: Executor) -> FloatArray:
    """V u: features of the rows, whitened or not, times vectors (m, p); returns (n, p)."""
    features.prepare()
    tile = tile_rows(features.width, workers=executor.n_jobs, fewest=64)
    result = np.empty((rows.n_rows, vectors.shape[1]))

    def prepare() -> Callable[[FloatArray, FloatArray], None]:
        buffer = np.empty((tile, features.width))

        def function(block: FloatArray, target: FloatArray) -> None:
            np.matmul(features.tile(block, buffer[: len(block)]), vectors, out=target)

        return function

    map_rows(rows, executor, tile=tile, prepare=prepare, out=result, name="features times vectors")
    return result


def squared_projections(
    rows: Rows, kernel: Kernel, points: FloatArray, matrix: FloatArray, *, executor: Executor
) -> FloatArray:
    """Σ_j (K_nm T)_ij² of every row, T (m, b); returns (n,) and stores nothing larger."""
    section = kernel.bind(points)
    tile = tile_rows(len(points) + matrix.shape[1], workers=executor.n_jobs, fewest=64)
    result = np.empty(rows.n_rows)

    def prepare() -> Callable[[FloatArray, FloatArray], None]:
        values, projected = np.empty((tile, len(points))), np.empty((tile, matrix.shape[1]))

        def function(block: FloatArray, target: FloatArray) -> None:
            part = projected[: len(block)]
            np.matmul(section.tile(block, values[: len(block)]), matrix, out=part)
            np.einsum("ij,ij->i", part, part, out=target)

        return function

    map_rows(rows, executor, tile=tile, prepare=prepare, out=result, name="projections")
    return result


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
    section = kernel.bind(points)
    tile = tile_rows(len(points) + matrix.shape[1], workers=executor.n_jobs, fewest=64)

    def prepare() -> tuple[ArraySum, Callable[[FloatArray, int, int], None]]:
        partial = ArraySum(np.zeros(matrix.shape[1]))

        def add(block: FloatArray, start: int, stop: int) -> None:
            squares = (section.tile(block) @ matrix) ** 2
            partial.value += squares.sum(axis=0) if weights is None else weights[start:stop] @ squares

        return partial, add

    workers = executor.n_jobs
    return reduce_rows(rows, executor, tile=tile, workers=workers, prepare=prepare, name="projections").value


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
    section, size, new = kernel.bind(points), lower.shape[1], len(points)

    def prepare() -> Callable[[FloatArray, FloatArray], None]:
        def function(block: FloatArray, target: FloatArray) -> None:
            target[:, size : size + new] = (section.tile(block) - target[:, :size] @ lower.T) @ inverse.T

        return function

    tile = tile_rows(3 * new + size, workers=executor.n_jobs, fewest=64)
    map_rows(rows, executor, tile=tile, prepare=prepare, out=factor, name="projections")


def transposed_times(
    rows: Rows, kernel: Kernel, points: FloatArray, vectors: FloatArray, *, executor: Executor
) -> FloatArray:
    """K_mn u: kernel values between points and rows times vectors (n, p); returns (m, p)."""
    chunks = _chunks(kernel, points, np.float64)
    tile = _chunk_tile(points, np.float64, executor)

    def prepare() -> tuple[ArraySum, Callable[[FloatArray, int, int], None]]:
        partial, buffers = ArraySum(np.zeros((len(points), vectors.shape[1]))), _buffers(chunks, tile)

        def add(block: FloatArray, start: int, stop: int) -> None:
            for (first, section), buffer in zip(chunks, buffers, strict=True):
                values = section.tile(block, buffer[: stop - start])
                partial.value[first : first + section.n_points] += values.T @ vectors[start:stop]

        return partial, add

    workers = executor.n_jobs
    return reduce_rows(rows, executor, tile=tile, workers=workers, prepare=prepare, name="kernel transposed").value


def gram_times(
    rows: Rows, features: Features, vectors: FloatArray, *, weights: FloatArray | None = None, executor: Executor
) -> FloatArray:
    """K_mn W (K_nm v) in one pass, each tile computed once; returns (m, p)."""
    tile = tile_rows(features.n_features, workers=executor.n_jobs)
    features.prepare()

    def prepare() -> tuple[ArraySum, Callable[[FloatArray, int, int], None]]:
        partial = ArraySum(np.zeros((features.n_features, vectors.shape[1])))
        buffer = np.empty((tile, features.n_features))

        def add(block: FloatArray, start: int, stop: int) -> None:
            phi = features.tile(block, buffer[: stop - start])
            product = phi @ vectors
            if weights is not None:
                product *= weights[start:stop, np.newaxis]
            partial.value += phi.T @ product

        return partial, add

    workers = executor.n_jobs
    return reduce_rows(rows, executor, tile=tile, workers=workers, prepare=prepare, name="normal product").value


def kernel_matrix(rows: Rows, kernel: Kernel, points: FloatArray, *, executor: Executor) -> FloatArray:
    """K_nm itself, float64, for those who need it stored."""
    section = kernel.bind(points)
    result = np.empty((rows.n_rows, len(points)))

    def prepare() -> Callable[[FloatArray, FloatArray], None]:
        def function(block: FloatArray, target: FloatArray) -> None:
            section.tile(block, target)

        return function

    map_rows(rows, executor, tile=tile_rows(len(points)), prepare=prepare, out=result, name="kernel matrix")
    return result


def gram_matrix(rows: Rows, kernel: Kernel, *, executor: Executor) -> FloatArray:
    """K_nn itself, float64; the rows are held in memory beside it."""
    points = rows.take(np.arange(rows.n_rows)).astype(np.float64, copy=False)
    return kernel_matrix(rows, kernel, points, executor=executor)


def kernel_diagonal(rows: Rows, kernel: Kernel, *, executor: Executor) -> FloatArray:
    """k(x, x) of every row, shape (n,)."""
    result = np.empty(rows.n_rows)

    def prepare() -> Callable[[FloatArray, FloatArray], None]:
        def function(block: FloatArray, target: FloatArray) -> None:
            target[...] = kernel.diagonal(block)

        return function

    map_rows(rows, executor, tile=tile_rows(rows.n_features), prepare=prepare, out=result, name="diagonal")
    return result


def _chunks(kernel: Kernel, points: FloatArray, dtype: Any) -> list[tuple[int, Section]]:
    starts = range(0, max(len(points), 1), _CHUNK)  # no points are a chunk, too
    return [(start, kernel.bind(points[start : start + _CHUNK], dtype)) for start in starts]


def _chunk_tile(points: FloatArray, dtype: Any, executor: Executor) -> int:
    width = min(len(points), _CHUNK)
    return tile_rows(width, itemsize=np.dtype(dtype).itemsize, workers=executor.n_jobs)


def _buffers(chunks: list[tuple[int, Section]], tile: int) -> list[FloatArray]:
    # One memory for all chunks: only the last may be narrower.
    widest = np.empty(tile * max((section.n_points for _, section in chunks), default=0), dtype=chunks[0][1].dtype)
    return [widest[: tile * section.n_points].reshape(tile, section.n_points) for _, section in chunks]
