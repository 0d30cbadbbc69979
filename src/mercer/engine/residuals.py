r"""Products with what the basis leaves of the kernel between rows and queries.

The kernel between n rows and q queries is :math:`K_{nq} = V v^\top + E`, with whitened features :math:`V` of the rows
and :math:`v` of the queries; :math:`E` vanishes for queries that the basis spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mercer._typing import FloatArray
from mercer.engine.executors.base import Executor
from mercer.engine.features import Features
from mercer.engine.passes import Pass
from mercer.engine.rows import Rows
from mercer.engine.table import ArrayTable
from mercer.engine.tile import Tile
from mercer.kernels import Section

__all__ = ["ResidualProducts", "residual_products"]


@dataclass
class ResidualProducts:
    """Sums over the rows, with precisions on the diagonal of Λ⁻¹."""

    projections: FloatArray  # VᵀΛ⁻¹E, shape (m, q)
    sums: FloatArray  # 1ᵀΛ⁻¹E, shape (q,)
    squares: FloatArray  # EᵀΛ⁻¹E, shape (q, q), or its diagonal (q,)

    def merge_in_place(self, other: ResidualProducts) -> None:
        """Add the other's sums to one's own."""
        self.projections += other.projections
        self.sums += other.sums
        self.squares += other.squares


@dataclass(frozen=True)
class _ResidualPass(Pass[ResidualProducts, ResidualProducts]):
    features: Features  # whitened
    queries: FloatArray  # (q, d)
    full: bool

    name, fewest = "residuals", 64

    @cached_property
    def _bound(self) -> tuple[FloatArray, Section]:
        return self.features.tile(self.queries), self.features.kernel.bind(self.queries)

    @property
    def width(self) -> int:
        return self.features.n_features + 2 * len(self.queries)

    @property
    def state_numbers(self) -> int:  # type: ignore[override]
        return len(self.queries) * (self.features.n_features + len(self.queries))

    def prepare(self) -> None:
        _ = self._bound

    def start(self) -> ResidualProducts:
        m, q = self.features.n_features, len(self.queries)
        return ResidualProducts(np.zeros((m, q)), np.zeros(q), np.zeros((q, q) if self.full else q))

    def add(self, state: ResidualProducts, tile: Tile) -> None:
        (whitened, section), precisions = self._bound, tile.weights
        assert precisions is not None
        V = self.features.tile(tile.rows)
        E = section.tile(tile.rows) - V @ whitened.T
        scaled = precisions[:, np.newaxis] * E
        state.projections += V.T @ scaled
        state.sums += np.sum(scaled, axis=0)
        state.squares += E.T @ scaled if self.full else np.einsum("ij,ij->j", E, scaled)


def residual_products(
    rows: Rows, features: Features, queries: FloatArray, precisions: FloatArray, *, full: bool, executor: Executor
) -> ResidualProducts:
    """Sum over the rows (n, d) in one pass, for queries (q, d) and precisions ω/λ (n,); the features are whitened.

    ``full`` asks for all of EᵀΛ⁻¹E, not its diagonal alone. Cost: n·m·(m + 4q) operations, n·(m + q) kernel values;
    q·(m + q) numbers per worker and a tile.
    """
    return executor.reduce(_ResidualPass(features, queries, full), ArrayTable(rows, weights=precisions))
