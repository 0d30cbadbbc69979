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

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from mercer._stored import Sometimes, stored
from mercer._stored.checks import need
from mercer._typing import AnyArray, FloatArray
from mercer.engine.blocks import BlockTable
from mercer.engine.passes import Executor, RowPass, Tile
from mercer.engine.products import OnFeatures
from mercer.engine.rows import Block
from mercer.engine.statistics import AugmentedPass, Features, NormalStatistics
from mercer.engine.table import ArrayTable
from mercer.engine.weights import effective_number
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel
from mercer.solvers.dense import WEIGHING_JITTERS, add_gram, factor_upper, least_jitter, solve_upper, subtract_products
from mercer.solvers.ridge import RidgeSolution

# A conditional variance is the difference of k(x, x) and a sum of m squares: below this share of k(x, x), for each of
# the m features and of the rows of its block, it is not known to differ from zero.
_ROUNDING = 8.0 * float(np.finfo(np.float64).eps)
_SEMIDEFINITE = 1e-3  # a variance below minus this share of k(x, x) is no rounding
_KNOWN = 1e-12  # a difference below this share of what it is taken from is rounding
_LEAST_JITTER = WEIGHING_JITTERS[1]  # share of k(x, x) for a row without any variance


@stored
@dataclass
class ConditionalStatistics:
    """Sums of [v, y, 1]ᵀ Λ⁻¹ [v, y, 1], and log|Λ|; they add up over blocks."""

    normal: NormalStatistics  # the sums, of whitened features
    log_determinant: float = 0.0  # log|Λ|
    n_used: int = 0  # rows with a finite variance: those of weight zero do not count
    n_blocks: int = 0  # blocks summed; without blocks each row is one
    n_singular: int = 0  # of them, those that were singular to rounding and got jitter
    jitter: float = 0.0  # the most that was added to a diagonal entry, 0 in regular cases
    total_weight: Sometimes[float] = 0.0  # Σω; 0 in files of earlier versions
    log_weights: Sometimes[float] = 0.0  # Σ log ω
    log_repeats: Sometimes[float] = 0.0  # Σ (ω - 1) log λ: what a row of weight ω lacks in log|Λ| beside ω equal rows
    log_noises: Sometimes[float] = 0.0  # Σ log λ

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
        self.log_determinant += other.log_determinant
        self.n_used += other.n_used
        self.n_blocks += other.n_blocks
        self.n_singular += other.n_singular
        self.jitter = max(self.jitter, other.jitter)
        self.total_weight += other.total_weight
        self.log_weights += other.log_weights
        self.log_repeats += other.log_repeats
        self.log_noises += other.log_noises

    @property
    def n_targets(self) -> float:
        """How many targets the rows are worth in a likelihood; see ``weights``."""
        if not self.total_weight:
            return float(self.n_used)
        return effective_number(self.total_weight, self.normal.weight_squares, counted=self.normal.counted)

    @property
    def repeated_log_determinant(self) -> float:
        """log|Λ| of as many targets as the rows are worth."""
        repeats = self.log_repeats
        if not self.normal.counted:  # all rows alike
            repeats = (self.n_targets / max(self.n_used, 1) - 1.0) * self.log_noises
        return self.log_determinant + self.log_weights + repeats


@dataclass(frozen=True)
class _ConditionalPass(AugmentedPass[ConditionalStatistics]):
    """Sum [v, y, 1]ᵀ Λ⁻¹ [v, y, 1] over the rows."""

    noise: float

    def start(self) -> ConditionalStatistics:
        sums = np.zeros((self.width, self.width))
        return ConditionalStatistics(NormalStatistics(sums, self.features.n_features, n_rows=0, is_whitened=True))

    @abstractmethod
    def whiten(self, values: FloatArray, tile: Tile) -> tuple[FloatArray, FloatArray]:
        """[v, y, 1] ← R⁻ᵀ[v, y, 1] with Λ = RᵀR; returns log R_ii² of the rows used, and the jitter of each block."""

    def add(self, state: ConditionalStatistics, tile: Tile) -> None:
        values = self.values(tile)
        log_pivots, jitters = self.whiten(values, tile)
        add_gram(state.normal.sums, values)
        state.normal.n_rows += tile.n_rows
        state.log_determinant += float(np.sum(log_pivots))
        state.n_used += len(log_pivots)
        state.n_blocks += len(jitters)
        state.n_singular += int(np.sum(jitters > 0))
        state.jitter = max(state.jitter, float(np.max(jitters, initial=0.0)))
        self._count(state, tile, len(log_pivots))

    def _count(self, state: ConditionalStatistics, tile: Tile, n_used: int) -> None:
        if tile.weights is None:
            state.total_weight += n_used
            state.normal.weight_squares += n_used
            self._count_noises(state, n_used)
            return
        used = tile.weights[np.isfinite(self.noises(tile))]
        total = float(np.sum(used))
        state.total_weight += total
        state.normal.weight_squares += float(np.sum(used**2))
        state.log_weights += float(np.sum(np.log(used)))
        if self.noise > 0:
            state.log_repeats += (total - len(used)) * float(np.log(self.noise))
        self._count_noises(state, len(used))

    def _count_noises(self, state: ConditionalStatistics, n_used: int) -> None:
        state.log_noises += n_used * float(np.log(self.noise)) if self.noise > 0 else 0.0

    def finish(self, state: ConditionalStatistics) -> ConditionalStatistics:
        return replace(state, normal=replace(state.normal, sums=self.sums(state.normal.sums)))

    def noises(self, tile: Tile) -> FloatArray:
        """λ/ω of the rows, infinite where ω is zero."""
        return _noises(tile, self.noise)


@dataclass(frozen=True)
class _Rowwise(_ConditionalPass):
    """FITC: Λ is a diagonal."""

    name = "rows"
    fewest = 256  # beside so many rows the pass over the m × m accumulator is small

    def whiten(self, values: FloatArray, tile: Tile) -> tuple[FloatArray, FloatArray]:
        # Λ_ii = λ/ω + k(x,x) - |v|²
        features = values[:, : self.features.n_features]
        residual, unit = _residual_variances(self.features.kernel, tile.rows, features)
        variances = self.noises(tile) + residual
        jitters = np.where(variances > 0, 0.0, _LEAST_JITTER * unit)
        variances += jitters
        used = np.isfinite(variances)
        values *= (1.0 / np.sqrt(variances))[:, np.newaxis]
        return np.log(variances[used]), jitters[used]


@dataclass(frozen=True)
class _Blockwise(_ConditionalPass):
    """The committee: each tile is a block of Λ."""

    name = "blocks"

    def tile_numbers(self, n_rows: int) -> int:
        return n_rows * (self.width + n_rows)  # features of a block, and its covariance

    def whiten(self, values: FloatArray, tile: Tile) -> tuple[FloatArray, FloatArray]:
        rows, features = np.asarray(tile.rows, dtype=np.float64), values[:, : self.features.n_features]
        covariance = tile.scratch.array("covariance", (tile.n_rows, tile.n_rows))
        # Λ_B = λW_B⁻¹ + K_BB - V_BV_Bᵀ = RᵀR
        jitter = _factor_block(self.features.kernel, rows, features, self.noises(tile), covariance)
        solve_upper(covariance, values)
        return 2.0 * np.log(np.diagonal(covariance)), np.array([jitter])


def conditional_statistics(
    table: ArrayTable, features: Features, *, noise: float, blocks: Sequence[Block] | None = None, executor: Executor
) -> ConditionalStatistics:
    """Sum the statistics of all rows, or of all blocks, in one pass.

    A row of weight ω has the noise λ/ω, and is left out if that is infinite. λ may be 0: what is singular to rounding
    gets jitter, and is counted. Blocks are without rows of weight zero; without blocks (FITC) each row is one.

    Cost with blocks of size B: n·(2m² + 2mB + B²/3) operations beside the kernel values (n·2m² without blocks). Each
    worker holds one block's matrix B × B, its features B × m and an accumulator m × m, nothing else.
    """
    if features.lower is None or features.dtype != np.float64:
        msg = "conditional statistics need whitened float64 features: differences of kernel values are taken."
        raise ValueError(msg)
    if blocks is None:
        total = executor.reduce(_Rowwise(features, table.n_outputs, noise), table)
    else:
        total = executor.reduce(_Blockwise(features, table.n_outputs, noise), BlockTable(table, blocks))
        total.normal.n_rows = table.n_rows  # with those that are in no block
    return replace(total, normal=total.normal.weighed_as(table))


class Influences(NamedTuple):
    """What a solution says of rows that it was fitted to, and how far each row decides on it."""

    fitted: FloatArray  # (n, p): f(x)
    variances: FloatArray  # (n,): of f(x)
    slopes: FloatArray  # (n,): ∂f(x_i)/∂y_i
    coefficients: FloatArray  # (n, p): α = M⁻¹y, with M = VVᵀ + Λ, bordered by ones if there is an intercept
    precisions: FloatArray  # (n,): M⁻¹_ii


def influences(
    table: ArrayTable,
    features: Features,
    solution: RidgeSolution,
    intercept: FloatArray,
    *,
    noise: float,
    blocks: Sequence[Block] | None,
    executor: Executor,
) -> Influences:
    """Influences of the rows, or of those in the blocks, in their order; see ``conditional_statistics``.

    Cost with blocks of size B: n·(3m² + 4mB + 2B²) operations.
    """
    work = _InfluencePass(features, solution, intercept, noise, blocks is not None)
    found = executor.map(work, table if blocks is None else BlockTable(table, blocks))
    p = len(intercept)
    return Influences(found[:, :p], found[:, 2 * p], found[:, 2 * p + 1], found[:, p : 2 * p], found[:, 2 * p + 2])


@dataclass(frozen=True)
class _InfluencePass(OnFeatures, RowPass):
    """f, α, var f, ∂f/∂y and M⁻¹_ii of each row.

    With [v, 1] and w = [V, 1]ᵀΛ⁻¹e_i, and Σ the covariance of [u, b], ∂f(x_i)/∂y_i = [v, 1]ᵀΣw and
    M⁻¹_ii = Λ⁻¹_ii - wᵀΣw.
    """

    solution: RidgeSolution
    intercept: FloatArray  # (p,)
    noise: float
    by_blocks: bool

    name = "influences"

    @property
    def shape(self) -> tuple[int, ...]:
        return (2 * len(self.intercept) + 3,)

    def tile_numbers(self, n_rows: int) -> int:
        return n_rows * (4 * self.features.n_features + (3 * n_rows if self.by_blocks else 0))

    def apply(self, tile: Tile, out: AnyArray) -> None:
        V, p, ones = self.phi(tile), len(self.intercept), np.ones((tile.n_rows, 1))
        fitted = V @ self.solution.weights + self.intercept
        right = np.hstack([V, ones, tile.targets - fitted])
        left, inverse_diagonal = self._divided(V, right, tile)  # Λ⁻¹[V, 1, y - f]
        w = self._whitened(left[:, : V.shape[1]], left[:, V.shape[1]])
        v = self._whitened(V, ones[:, 0])
        precisions = inverse_diagonal - np.einsum("ij,ij->i", w, w)
        precisions[precisions <= _KNOWN * inverse_diagonal] = 0.0
        beyond, _ = _residual_variances(self.features.kernel, tile.rows, V)
        out[:, :p], out[:, p : 2 * p] = fitted, left[:, V.shape[1] + 1 :]
        out[:, 2 * p] = beyond + np.einsum("ij,ij->i", v, v)
        out[:, 2 * p + 1], out[:, 2 * p + 2] = np.einsum("ij,ij->i", v, w), precisions

    def _whitened(self, features: FloatArray, constants: FloatArray) -> FloatArray:
        """Σ^(1/2)[v, c] of each row."""
        centred = features - np.outer(constants, self.solution.mean)
        return np.column_stack([centred @ self.solution.root.T, np.sqrt(self.solution.constant) * constants])

    def _divided(self, V: FloatArray, right: FloatArray, tile: Tile) -> tuple[FloatArray, FloatArray]:
        """Λ⁻¹ times a matrix, and the diagonal of Λ⁻¹."""
        kernel, noises = self.features.kernel, _noises(tile, self.noise)
        if not self.by_blocks:
            residual, unit = _residual_variances(kernel, tile.rows, V)
            variances = noises + residual
            variances = np.where(variances > 0, variances, _LEAST_JITTER * unit)
            return right / variances[:, np.newaxis], 1.0 / variances
        covariance = np.empty((tile.n_rows, tile.n_rows))
        _factor_block(kernel, np.asarray(tile.rows, dtype=np.float64), V, noises, covariance)
        inverse, _ = lapack.dtrtri(np.triu(covariance))  # R⁻¹
        return inverse @ (inverse.T @ right), np.einsum("ij,ij->i", inverse, inverse)


def _noises(tile: Tile, noise: float) -> FloatArray:
    if tile.weights is None:
        return np.full(tile.n_rows, noise)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return np.where(tile.weights > 0, noise / tile.weights, np.inf)


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
    diagonal, lost = np.einsum("ii->i", out), _ROUNDING * (features.shape[1] + size) * unit
    least = np.where(residual + noises > 0, 0.0, _LEAST_JITTER)

    def factor(share: float, *, apart: bool = True) -> float | None:
        section.tile(block, out)
        subtract_products(out, features)
        if apart:
            out[spanned], out[:, spanned], lost[spanned] = 0.0, 0.0, 0.0
        jitter = np.maximum(share, least) * unit
        diagonal[:] += noises + jitter
        return float(np.max(jitter, initial=0.0)) if factor_upper(out) and np.all(diagonal**2 > lost) else None

    message = (
        f"the covariance of a block of {size} rows given the basis is not positive definite (the noise is "
        f"{np.min(noises, initial=np.inf):.3g} or more). Use a positive definite kernel, or a larger noise."
    )
    added = factor(0.0, apart=False)
    return least_jitter(WEIGHING_JITTERS, factor, message)[0] if added is None else added


def _residual_variances(kernel: Kernel, block: FloatArray, features: FloatArray) -> tuple[FloatArray, FloatArray]:
    """k(x,x) - |v|² of each row, zero where it is rounding: the basis spans the row; and the scale of its jitter."""
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        prior = kernel.diagonal(np.asarray(block, dtype=np.float64))
        residual = prior - np.einsum("ij,ij->i", features, features)
    if not np.all(np.isfinite(residual)):
        raise ValueError("kernel values overflow on these rows: scale X.")
    if np.any(residual < -_SEMIDEFINITE * prior):
        raise NotPositiveDefiniteError(
            "a variance given the basis is negative: the kernel is not positive definite, or basis points lie so close "
            "together that rounding shows far from them. Use another kernel, or fewer or other basis points."
        )
    residual[residual <= _ROUNDING * (features.shape[1] + 1) * prior] = 0.0
    largest = float(np.max(prior, initial=0.0))
    return residual, np.where(prior > 0, prior, largest if largest > 0 else 1.0)
