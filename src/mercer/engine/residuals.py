r"""Products with what the basis leaves of the kernel between rows and queries.

The kernel between n rows and q queries is :math:`K_{nq} = V v^\top + E`, with whitened features :math:`V` of the rows
and :math:`v` of the queries; :math:`E` vanishes for queries that the basis spans.
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

__all__ = ["ResidualProducts", "residual_products"]


@dataclass
class ResidualProducts:
    """Sums over the rows, with precisions on the diagonal of Λ⁻¹.

    Attributes
    ----------
    projections : array (m, q)
        VᵀΛ⁻¹E.
    sums : array (q,)
        1ᵀΛ⁻¹E.
    squares : array (q,) or (q, q)
        EᵀΛ⁻¹E, or its diagonal.
    """

    projections: FloatArray
    sums: FloatArray
    squares: FloatArray

    def merge_in_place(self, other: ResidualProducts) -> None:
        """Add the other's sums to one's own."""
        self.projections += other.projections
        self.sums += other.sums
        self.squares += other.squares


def residual_products(
    rows: Rows,
    features: Features,
    queries: FloatArray,
    precisions: FloatArray,
    *,
    full: bool,
    executor: Executor,
) -> ResidualProducts:
    """Sum over all rows in one pass; ``full`` asks for all of EᵀΛ⁻¹E, not its diagonal alone.

    Cost: n·m·(m + 4q) operations, n·(m + q) kernel values; q·(m + q) numbers per worker and a tile.

    Parameters
    ----------
    rows : Rows (n, d)
    features : Features
        Whitened.
    queries : array (q, d)
    precisions : array (n,)
        ω/λ.
    full : bool
    executor : Threads
    """
    features.prepare()
    m, q = features.n_features, len(queries)
    whitened = features.tile(queries)
    section = features.kernel.bind(queries)
    workers = accumulator_workers(executor.n_jobs, 8 * q * (m + q))
    tile = tile_rows(m + 2 * q, workers=workers, fewest=64)

    def prepare() -> tuple[ResidualProducts, Callable[[FloatArray, int, int], None]]:
        partial = ResidualProducts(np.zeros((m, q)), np.zeros(q), np.zeros((q, q) if full else q))

        def add(block: FloatArray, start: int, stop: int) -> None:
            V = features.tile(block)
            E = section.tile(block) - V @ whitened.T
            scaled = precisions[start:stop, np.newaxis] * E
            partial.projections += V.T @ scaled
            partial.sums += np.sum(scaled, axis=0)
            partial.squares += E.T @ scaled if full else np.einsum("ij,ij->j", E, scaled)

        return partial, add

    return reduce_rows(rows, executor, tile=tile, workers=workers, prepare=prepare, name="residuals")
