r"""Gradients of a function of the kernel between rows and basis points, by the points and the kernel's parameters.

The function comes as its gradient by each kernel value, which may depend on the whitened features
:math:`v_i = L^{-1}k_m(x_i)` of the row. What comes by way of L is left to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mercer._typing import FloatArray
from mercer.engine.executors.base import Executor
from mercer.engine.features import Features
from mercer.engine.passes import Pass
from mercer.engine.table import Table
from mercer.engine.tile import Tile
from mercer.solvers.blas import add_gram, mirror

__all__ = ["FeatureGradient", "Pull", "add_parameters", "feature_gradient"]


class Pull(NamedTuple):
    """What a function's gradient is at a tile of T rows."""

    by_kernel: FloatArray  # (T, m), by k(x_i, z_j)
    by_prior: FloatArray  # (T,), by k(x_i, x_i)
    gram_weights: FloatArray | None = None  # (T,), w ≥ 0 in the sum Σ w v vᵀ; None for zeros
    extra: float = 0.0  # any number that is to be summed over the tiles


# From whitened features, which may be overwritten, k(x, x) and the tile; it pickles.
Pullback = Callable[[FloatArray, FloatArray, Tile], Pull]


@dataclass
class FeatureGradient:
    """Gradients, summed over the rows."""

    points: FloatArray  # (m, d)
    parameters: dict[str, FloatArray]  # by the kernel's log-parameters
    gram: FloatArray  # Σ w v vᵀ, shape (m, m), which a gradient by L may need
    extra: float = 0.0

    def merge_in_place(self, other: FeatureGradient) -> None:
        """Add the other's sums to one's own."""
        self.points += other.points
        self.parameters = add_parameters(self.parameters, other.parameters)
        self.gram += other.gram
        self.extra += other.extra


@dataclass(frozen=True)
class _GradientPass(Pass[FeatureGradient, FeatureGradient]):
    """Contract a function's gradient by kernel values with those of the kernel, tile by tile."""

    features: Features  # whitened
    pullback: Pullback

    name = "gradient"

    @property
    def width(self) -> int:
        return 4 * self.features.n_features  # a few arrays of a tile's size are alive at once

    @property
    def state_numbers(self) -> int:  # type: ignore[override]
        return self.features.n_features**2

    def prepare(self) -> None:
        self.features.prepare()

    def start(self) -> FeatureGradient:
        m = self.features.n_features
        return FeatureGradient(np.zeros(self.features.points.shape), {}, np.zeros((m, m)))

    def add(self, state: FeatureGradient, tile: Tile) -> None:
        kernel, rows = self.features.kernel, np.asarray(tile.rows, dtype=np.float64)
        V = self.features.tile(rows)
        pull = self.pullback(V, kernel.diagonal(rows), tile)
        if pull.gram_weights is not None:
            V *= np.sqrt(pull.gram_weights)[:, np.newaxis]
            add_gram(state.gram, V)
        by_points, by_parameters = kernel.gradients(rows, self.features.points, pull.by_kernel)
        state.points += by_points
        by_diagonal = kernel.diagonal_gradient(rows, pull.by_prior)
        state.extra += pull.extra
        state.parameters = add_parameters(state.parameters, by_parameters, by_diagonal)

    def finish(self, state: FeatureGradient) -> FeatureGradient:
        mirror(state.gram)
        return state


def feature_gradient(table: Table, features: Features, pullback: Pullback, *, executor: Executor) -> FeatureGradient:
    """Sum over all rows in one pass; the features are whitened."""
    return executor.reduce(_GradientPass(features, pullback), table)


def add_parameters(*gradients: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Sum gradients name by name."""
    names = dict.fromkeys(name for gradient in gradients for name in gradient)
    return {name: np.sum([g[name] for g in gradients if name in g], axis=0) for name in names}
