r"""Gradients of a function of the kernel between rows and basis points, by the points and the kernel's parameters.

The function comes as its gradient by each kernel value, which may depend on the whitened features
:math:`v_i = L^{-1}k_m(x_i)` of the row. What comes by way of L is left to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mercer._typing import FloatArray
from mercer.engine.executors.base import Executor
from mercer.engine.features import Features
from mercer.engine.rows import Rows
from mercer.engine.tiles import accumulator_workers, tile_rows
from mercer.engine.walk import reduce_rows
from mercer.solvers.blas import add_gram, mirror

__all__ = ["FeatureGradient", "Pull", "add_parameters", "feature_gradient"]


@dataclass(frozen=True)
class Pull:
    """What a function's gradient is at a tile of T rows.

    Attributes
    ----------
    by_kernel : array (T, m)
        By k(x_i, z_j).
    by_prior : array (T,)
        By k(x_i, x_i).
    gram_weights : array (T,) or None
        w ≥ 0 in the sum Σ w v vᵀ; None for zeros.
    extra : float
        Any number that is to be summed over the tiles.
    """

    by_kernel: FloatArray
    by_prior: FloatArray
    gram_weights: FloatArray | None = None
    extra: float = 0.0


# From a tile of whitened features, which may be overwritten, k(x, x) and the span of rows.
Pullback = Callable[[FloatArray, FloatArray, slice], Pull]


@dataclass
class FeatureGradient:
    """Gradients, summed over the rows.

    Attributes
    ----------
    points : array (m, d)
    parameters : dict
        By the kernel's log-parameters.
    gram : array (m, m)
        Σ w v vᵀ, which a gradient by L may need.
    extra : float
    """

    points: FloatArray
    parameters: dict[str, FloatArray]
    gram: FloatArray
    extra: float = 0.0

    def merge_in_place(self, other: FeatureGradient) -> None:
        """Add the other's sums to one's own."""
        self.points += other.points
        self.parameters = add_parameters(self.parameters, other.parameters)
        self.gram += other.gram
        self.extra += other.extra


def feature_gradient(rows: Rows, features: Features, pullback: Pullback, *, executor: Executor) -> FeatureGradient:
    """Sum over all rows in one pass; the features are whitened."""
    features.prepare()
    kernel, points, m = features.kernel, features.points, features.n_features
    workers = accumulator_workers(executor.n_jobs, 8 * m**2)
    tile = tile_rows(2 * m, workers=2 * workers)  # a few arrays of a tile's size are alive at once

    def prepare() -> tuple[FeatureGradient, Callable[[FloatArray, int, int], None]]:
        partial = FeatureGradient(np.zeros(points.shape), {}, np.zeros((m, m)))

        def add(block: FloatArray, start: int, stop: int) -> None:
            block = np.asarray(block, dtype=np.float64)
            V = features.tile(block)
            pull = pullback(V, kernel.diagonal(block), slice(start, stop))
            if pull.gram_weights is not None:
                V *= np.sqrt(pull.gram_weights)[:, np.newaxis]
                add_gram(partial.gram, V)
            by_points, by_parameters = kernel.gradients(block, points, pull.by_kernel)
            partial.points += by_points
            by_diagonal = kernel.diagonal_gradient(block, pull.by_prior)
            partial.extra += pull.extra
            partial.parameters = add_parameters(partial.parameters, by_parameters, by_diagonal)

        return partial, add

    sums = reduce_rows(rows, executor, tile=tile, workers=workers, prepare=prepare, name="gradient")
    mirror(sums.gram)
    return sums


def add_parameters(*gradients: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Sum gradients name by name."""
    names = dict.fromkeys(name for gradient in gradients for name in gradient)
    return {name: np.sum([g[name] for g in gradients if name in g], axis=0) for name in names}
