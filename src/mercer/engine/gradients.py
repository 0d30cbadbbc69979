r"""Gradients of a function of the whitened features, by the basis points and the parameters of the kernel.

A function F of :math:`v_i = L^{-1}k_m(x_i)` and :math:`k(x_i, x_i)`, with gradients :math:`g_i` and :math:`h_i` by
them, depends on the kernel between rows and points with the gradient :math:`L^{-\top}g_i`; what comes by way of L is
left to the caller.
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

__all__ = ["FeatureGradient", "feature_gradient"]

# From a tile of whitened features, k(x, x) and the span of rows to gradients by them, (T, m) and (T,), and a number
# that is summed over the rows.
Pullback = Callable[[FloatArray, FloatArray, slice], tuple[FloatArray, FloatArray, float]]


@dataclass
class FeatureGradient:
    """Gradients, summed over the rows.

    Attributes
    ----------
    points : array (m, d)
    parameters : dict
        By the kernel's log-parameters.
    weighted_gram : array (m, m)
        Σ h v vᵀ, which the gradient by L needs.
    extra : float
        Sum of the numbers of the pullback.
    """

    points: FloatArray
    parameters: dict[str, FloatArray]
    weighted_gram: FloatArray
    extra: float = 0.0

    def merge_in_place(self, other: FeatureGradient) -> None:
        """Add the other's sums to one's own."""
        self.points += other.points
        self.parameters = add_parameters(self.parameters, other.parameters)
        self.weighted_gram += other.weighted_gram
        self.extra += other.extra


def feature_gradient(
    rows: Rows, features: Features, inverse: FloatArray, pullback: Pullback, *, executor: Executor
) -> FeatureGradient:
    """Sum over all rows in one pass.

    Parameters
    ----------
    rows : Rows (n, d)
    features : Features
        Whitened.
    inverse : array (m, m)
        L⁻¹.
    pullback : callable
    executor : Threads
    """
    features.prepare()
    kernel, points, m = features.kernel, features.points, features.n_features
    workers = accumulator_workers(executor.n_jobs, 8 * m**2)
    tile = tile_rows(6 * m, workers=workers, fewest=128)  # what the gradients of a kernel need beside the features

    def prepare() -> tuple[FeatureGradient, Callable[[FloatArray, int, int], None]]:
        partial = FeatureGradient(np.zeros(points.shape), {}, np.zeros((m, m)))

        def add(block: FloatArray, start: int, stop: int) -> None:
            block = np.asarray(block, dtype=np.float64)
            V = features.tile(block)
            by_features, by_prior, extra = pullback(V, kernel.diagonal(block), slice(start, stop))
            by_kernel = by_features @ inverse
            partial.points += kernel.points_gradient(block, points, by_kernel)
            partial.parameters = add_parameters(
                partial.parameters,
                kernel.parameter_gradient(block, points, by_kernel),
                kernel.diagonal_gradient(block, by_prior),
            )
            partial.weighted_gram += (by_prior[:, np.newaxis] * V).T @ V
            partial.extra += extra

        return partial, add

    return reduce_rows(rows, executor, tile=tile, workers=workers, prepare=prepare, name="gradient")


def add_parameters(*gradients: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Sum gradients name by name."""
    names = dict.fromkeys(name for gradient in gradients for name in gradient)
    return {name: np.sum([g[name] for g in gradients if name in g], axis=0) for name in names}
