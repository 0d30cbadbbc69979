r"""Sums over rows whose targets are correlated given the function at the basis: one frame, three approximations.

With :math:`\Lambda` the covariance that is assumed for the targets given the function at the basis points, the weights
of the basis points solve

.. math:: (K_{mm} + K_{mn}\Lambda^{-1}K_{nm})\,w = K_{mn}\Lambda^{-1}y,

or whitened, with :math:`K_{mm} = LL^\top` and :math:`v = L^{-1}k_m`, :math:`(I + V^\top\Lambda^{-1}V)\,u =
V^\top\Lambda^{-1}y`. Block by block, :math:`\Lambda_B = R^\top R` turns rows :math:`[v, y, 1]` into
:math:`R^{-\top}[v, y, 1]`, and what is left is the sum of their products, as for rows without correlation.

==================================  ==============================  ==========================================
Λ                                   method                          function
==================================  ==============================  ==========================================
λW⁻¹                                subset of representers          ``normal_statistics``: λ is not in the sums
diag(λW⁻¹ + K_nn - VVᵀ)             FITC                            ``conditional_statistics``, no blocks
blockdiag(λW⁻¹ + K_nn - VVᵀ)        Bayesian committee machine      ``conditional_statistics`` with blocks
==================================  ==============================  ==========================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mercer._stored import stored
from mercer._stored.checks import need
from mercer._typing import FloatArray
from mercer.engine.blocks import BlockTable
from mercer.engine.passes import Executor, Tile
from mercer.engine.statistics import AugmentedPass, Features, NormalStatistics
from mercer.engine.table import ArrayTable, Block
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel
from mercer.solvers.dense import add_gram, factor_upper, solve_upper, subtract_products

__all__ = ["ConditionalStatistics", "conditional_statistics"]

# A conditional variance is the difference of k(x, x) and a sum of m squares: below this many roundings of k(x, x), for
# each of the m features and of the rows of its block, it is not known to differ from zero.
_ROUNDINGS = 8.0
# Shares of k(x, x) that are added, in turn, where a block is singular: first some hundred times that rounding. Λ weighs
# the rows and does not bias the fit, so the jitter may be smaller than for a system that is solved; but not much, as
# rows of enormous weight leave no digits of the others in the sums.
_JITTERS = (0.0, 1e-10, 1e-8, 1e-6)
_SEMIDEFINITE = 1e-3  # a variance below minus this share of k(x, x) is no rounding


@stored
@dataclass
class ConditionalStatistics:
    """Sums of [v, y, 1]ᵀ Λ⁻¹ [v, y, 1], and log|Λ|; they add up over blocks.

    Attributes
    ----------
    normal : NormalStatistics
        The sums, of whitened features.
    log_determinant : float
        log|Λ|.
    n_used : int
        Rows with a finite variance: those of weight zero have no say.
    n_blocks, n_singular : int
        Blocks summed, and how many of them were singular to rounding and got jitter; without blocks each row is one.
    jitter : float
        The most that was added to a diagonal entry, 0 in regular cases.
    """

    normal: NormalStatistics
    log_determinant: float = 0.0
    n_used: int = 0
    n_blocks: int = 0
    n_singular: int = 0
    jitter: float = 0.0

    def check_stored(self) -> None:
        """Refuse sums of plain features."""
        need(self.normal.is_whitened, "sums of a committee are of whitened features.")

    @classmethod
    def zeros(cls, n_features: int, n_outputs: int) -> ConditionalStatistics:
        """Statistics of no rows."""
        return cls(NormalStatistics.zeros(n_features, n_outputs, is_whitened=True))

    def __add__(self, other: ConditionalStatistics) -> ConditionalStatistics:
        """Statistics of both sets of blocks."""
        both = replace(self, normal=replace(self.normal, sums=self.normal.sums.copy()))
        both.merge_in_place(other)
        return both

    def merge_in_place(self, other: ConditionalStatistics) -> None:
        """Take in the other's sums."""
        self.normal.merge_in_place(other.normal)
        self.n_blocks += other.n_blocks
        self._record(other.log_determinant, n_used=other.n_used, n_singular=other.n_singular, jitter=other.jitter)

    def _record(self, log_determinant: float, *, n_used: int, n_singular: int, jitter: float) -> None:
        self.log_determinant += log_determinant
        self.n_used += n_used
        self.n_singular += n_singular
        self.jitter = max(self.jitter, jitter)

    def with_targets_shifted(self, shift: FloatArray) -> ConditionalStatistics:
        """Statistics for the targets y + shift, from those for y."""
        return replace(self, normal=self.normal.with_targets_shifted(shift))


@dataclass(frozen=True)
class _Conditional(AugmentedPass[ConditionalStatistics]):
    """Sum [v, y, 1]ᵀ Λ⁻¹ [v, y, 1] over the rows."""

    noise: float

    def start(self) -> ConditionalStatistics:
        """Zeros, with the padding of the tiles."""
        sums = np.zeros((self.width, self.width))
        return ConditionalStatistics(NormalStatistics(sums, self.features.n_features, n_rows=0, is_whitened=True))

    def finish(self, state: ConditionalStatistics) -> ConditionalStatistics:
        """Both triangles, without the padding."""
        return replace(state, normal=replace(state.normal, sums=self.sums(state.normal.sums)))

    def noises(self, tile: Tile) -> FloatArray:
        """λ/ω of the rows, infinite where ω is zero."""
        if tile.weights is None:
            return np.full(tile.n_rows, self.noise)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return np.where(tile.weights > 0, self.noise / tile.weights, np.inf)


@dataclass(frozen=True)
class RowwisePass(_Conditional):
    """FITC: Λ is a diagonal."""

    name = "rows"
    fewest = 256  # beside so many rows the pass over the m × m accumulator is small

    def add(self, state: ConditionalStatistics, tile: Tile) -> None:
        """Divide each row by the root of its variance given the basis."""
        values = self.values(tile)
        # Λ_ii = λ/ω + k(x,x) - |v|²
        features = values[:, : self.features.n_features]
        residual, unit = _residual_variances(self.features.kernel, tile.rows, features)
        variances = self.noises(tile) + residual
        jitter = np.where(variances > 0, 0.0, _JITTERS[1] * unit)
        variances += jitter
        used = np.isfinite(variances)
        values *= (1.0 / np.sqrt(variances))[:, np.newaxis]
        add_gram(state.normal.sums, values)
        state.normal.n_rows += tile.n_rows
        state.n_blocks += int(np.sum(used))
        state._record(
            float(np.sum(np.log(variances[used]))),
            n_used=int(np.sum(used)),
            n_singular=int(np.sum(jitter > 0)),
            jitter=float(np.max(jitter, initial=0.0)),
        )


@dataclass(frozen=True)
class BlockwisePass(_Conditional):
    """The committee: each tile is a block of Λ."""

    name = "blocks"

    def tile_numbers(self, n_rows: int) -> int:
        """Features of a block, and its covariance."""
        return n_rows * (self.width + n_rows)

    def add(self, state: ConditionalStatistics, tile: Tile) -> None:
        """Whiten the block by its covariance given the basis."""
        rows, size = np.asarray(tile.rows, dtype=np.float64), tile.n_rows
        values = self.values(replace(tile, rows=rows))
        covariance = tile.scratch.array("covariance", (size, size))
        # Λ_B = λW_B⁻¹ + K_BB - V_BV_Bᵀ = RᵀR, and [v, y, 1] ← R⁻ᵀ[v, y, 1]
        features = values[:, : self.features.n_features]
        jitter = _factor_block(self.features.kernel, rows, features, self.noises(tile), covariance)
        solve_upper(covariance, values)
        add_gram(state.normal.sums, values)
        state.normal.n_rows += size
        state.n_blocks += 1
        log_determinant = 2.0 * float(np.sum(np.log(np.diagonal(covariance))))
        state._record(log_determinant, n_used=size, n_singular=int(jitter > 0), jitter=jitter)


def conditional_statistics(
    table: ArrayTable,
    features: Features,
    *,
    noise: float,
    blocks: Sequence[Block] | None = None,
    executor: Executor,
) -> ConditionalStatistics:
    """Sum the statistics of all rows, or of all blocks, in one pass.

    Cost with blocks of size B: n·(2m² + 2mB + B²/3) operations beside the kernel values (n·2m² without blocks). Each
    worker holds one block's matrix B × B, its features B × m and an accumulator m × m, nothing else.

    Parameters
    ----------
    table : ArrayTable
        A row of weight ω has the noise λ/ω, and is left out if that is infinite.
    features : Features
        Whitened, float64.
    noise : float
        λ; 0 is allowed: what is singular to rounding gets jitter, and is counted.
    blocks : sequence of slices or index arrays, or None
        Rows whose targets are correlated given the basis, without rows of weight zero; None for FITC, as if each row
        were a block of its own.
    executor : Executor
    """
    if features.lower is None or features.dtype != np.float64:
        msg = "conditional statistics need whitened float64 features: differences of kernel values are taken."
        raise ValueError(msg)
    if blocks is None:
        return executor.reduce(RowwisePass(features, table.n_outputs, noise), table)
    total = executor.reduce(BlockwisePass(features, table.n_outputs, noise), BlockTable(table, blocks))
    total.normal.n_rows = table.n_rows  # with those that are in no block
    return total


def _factor_block(
    kernel: Kernel, block: FloatArray, features: FloatArray, noises: FloatArray, out: FloatArray
) -> float:
    """Fill the upper triangle of ``out`` with the factor of Λ_B; returns the most that had to be added to it.

    If it is not positive definite as it is, rows that the basis spans are taken to be uncorrelated with others, which
    they are up to the root of rounding; then jitter is added.
    """
    size, section = len(block), kernel.bind(block)
    residual, unit = _residual_variances(kernel, block, features)
    spanned = np.flatnonzero(residual == 0)
    diagonal, lost = np.einsum("ii->i", out), _roundings(size, features.shape[1]) * unit
    least = np.where(residual + noises > 0, 0.0, _JITTERS[1])  # rows without any variance
    for share, apart in [(0.0, False), *((jitter, True) for jitter in _JITTERS)]:
        section.tile(block, out)
        subtract_products(out, features)
        if apart:
            out[spanned], out[:, spanned], lost[spanned] = 0.0, 0.0, 0.0
        jitter = np.maximum(share, least) * unit
        diagonal += noises + jitter
        if factor_upper(out) and np.all(diagonal**2 > lost):
            return float(np.max(jitter, initial=0.0))
    msg = (
        f"the covariance of a block of {size} rows given the basis is not positive definite (the noise is "
        f"{np.min(noises):.3g} or more). Use a positive definite kernel, or a larger noise."
    )
    raise NotPositiveDefiniteError(msg)


def _residual_variances(kernel: Kernel, block: FloatArray, features: FloatArray) -> tuple[FloatArray, FloatArray]:
    """k(x,x) - |v|² of each row, zero where it is rounding: the basis spans the row; and the scale of its jitter."""
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        prior = kernel.diagonal(np.asarray(block, dtype=np.float64))
        residual = prior - np.einsum("ij,ij->i", features, features)
    if not np.all(np.isfinite(residual)):
        msg = "kernel values overflow on these rows: scale X."
        raise ValueError(msg)
    if np.any(residual < -_SEMIDEFINITE * prior):
        msg = (
            "a variance given the basis is negative: the kernel is not positive definite, or basis points lie so close "
            "together that rounding shows far from them. Use another kernel, or fewer or other basis points."
        )
        raise NotPositiveDefiniteError(msg)
    residual[residual <= _roundings(1, features.shape[1]) * prior] = 0.0
    largest = float(np.max(prior, initial=0.0))
    return residual, np.where(prior > 0, prior, largest if largest > 0 else 1.0)


def _roundings(size: int, n_features: int) -> float:
    return float(_ROUNDINGS * (n_features + size) * np.finfo(np.float64).eps)
