r"""The reduced rank approximation: all rows as kernels, their weights from a Gram matrix of low rank.

=================  ==========================  ==========  ==================================================
document 000       code                        shape       meaning
=================  ==========================  ==========  ==================================================
Σ^{m,b}, Σ^{b,b}   K_nm = VLᵀ, K_mm = LLᵀ                  the Gram matrix is taken for VVᵀ (6)
w_opt              ``coefficients`` α          (n, p)      (VVᵀ + Λ)⁻¹y, Λ = λW⁻¹ (section 4)
\-                 ``solution.weights`` u      (m, p)      (I + VᵀΛ⁻¹V) u = VᵀΛ⁻¹y: the subset of representers
=================  ==========================  ==========  ==================================================

By Woodbury :math:`\alpha = \Lambda^{-1}(y - Vu)`: the residuals of the subset of representers over their noise. At a
new input, with :math:`k_n(x) = Vv(x) + e(x)`, the mean is :math:`v^\top u + e^\top\alpha`, so both methods agree where
the basis spans the kernel, :math:`e = 0`. With :math:`h = V^\top\Lambda^{-1}e` the variance is

.. math:: k(x,x) - |v|^2 - e^\top\Lambda^{-1}e + (v - h)^\top(I + V^\top\Lambda^{-1}V)^{-1}(v - h),

and nothing keeps it from being negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mercer._typing import FloatArray
from mercer.engine import (
    ArrayRows,
    ArrayTable,
    Executor,
    Features,
    Pass,
    Rows,
    Tile,
    features_times,
    gram_matrix,
    kernel_diagonal,
    normal_statistics,
)
from mercer.kernels import Section
from mercer.methods.frame import Frame, target_shift, used_rows
from mercer.model import KernelExpansion
from mercer.solvers.ridge import RidgeSolution

ROUNDING = 1e-8  # a variance above minus this share of the prior's is zero
_REFUSED_ERROR = 1e-3  # rounding of predictions, as a share of the targets, beyond which a noise is too small


@dataclass(frozen=True)
class _ResidualPass(Pass[FloatArray, FloatArray]):
    """What the basis leaves of the kernel between rows, whose weights are precisions, and queries: E = K_nq - Vvᵀ.

    The sum is [V, 1, E]ᵀΛ⁻¹E, shape (m+1+q, q), or with the diagonal of EᵀΛ⁻¹E alone for a last row (m+2, q).
    Cost: n·m·(m + 4q) operations, n·(m + q) kernel values; q·(m + q) numbers per worker and a tile.
    """

    features: Features  # whitened
    queries: FloatArray  # (q, d)
    full: bool  # all of EᵀΛ⁻¹E, not its diagonal alone

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

    def start(self) -> FloatArray:
        q = len(self.queries)
        return np.zeros((self.features.n_features + 1 + (q if self.full else 1), q))

    def add(self, state: FloatArray, tile: Tile) -> None:
        (whitened, section), precisions, m = self._bound, tile.weights, self.features.n_features
        assert precisions is not None
        V = self.features.tile(tile.rows)
        E = section.tile(tile.rows) - V @ whitened.T
        scaled = precisions[:, np.newaxis] * E
        state[:m] += V.T @ scaled
        state[m] += np.sum(scaled, axis=0)
        state[m + 1 :] += E.T @ scaled if self.full else np.einsum("ij,ij->j", E, scaled)


@dataclass(frozen=True)
class ReducedRankVariance:
    """What the error bars are computed from."""

    frame: Frame
    points: FloatArray  # (n, d), of the expansion
    solution: RidgeSolution
    precisions: FloatArray  # (n,), ω/λ

    def variances(self, rows: Rows, executor: Executor) -> FloatArray:
        """Variance of the function at the rows, shape (n,), as it comes out: perhaps negative, but not by rounding."""
        prior = kernel_diagonal(rows, self.frame.kernel, executor=executor)
        variances = np.empty(rows.n_rows)
        for start, stop, queries in rows.tiles(0, rows.n_rows, max(256, len(self.frame.lower))):
            variances[start:stop] = prior[start:stop] + self._correction(queries, executor, full=False)
        rounding = np.abs(variances) <= ROUNDING * prior
        variances[rounding] = np.maximum(variances[rounding], 0.0)
        return variances

    def covariance(self, rows: Rows, executor: Executor) -> tuple[FloatArray, FloatArray]:
        """Covariance of the function between the rows, shape (n, n), and the prior variances (n,)."""
        queries = rows.take(np.arange(rows.n_rows))
        prior = gram_matrix(rows, self.frame.kernel, executor=executor)
        result = prior + self._correction(queries, executor, full=True)
        return np.asarray((result + result.T) / 2), np.diagonal(prior)

    def _correction(self, queries: FloatArray, executor: Executor, *, full: bool) -> FloatArray:
        """What the data take from the prior (co)variance of the queries."""
        solution, features = self.solution, self.frame.features(whitened=True)
        queries = queries.astype(np.float64, copy=False)
        table = ArrayTable(ArrayRows(self.points, checked=True), weights=self.precisions)
        products, m = executor.reduce(_ResidualPass(features, queries, full), table), features.n_features
        v = features.tile(queries)
        left = 1.0 - products[m]  # of the constant's weight
        root = (v - products[:m].T - np.outer(left, solution.mean)) @ solution.root.T
        if full:
            return root @ root.T + solution.constant * np.outer(left, left) - v @ v.T - products[m + 1 :]
        squares = np.einsum("ij,ij->i", root, root) - np.einsum("ij,ij->i", v, v)
        return np.asarray(squares + solution.constant * left**2 - products[m + 1])


def fit_reduced_rank(
    table: ArrayTable, frame: Frame, *, noise: float, intercept: bool, executor: Executor
) -> tuple[KernelExpansion, ReducedRankVariance]:
    """Solve for the weights of all rows of positive weight."""
    features, shift = frame.features(whitened=True), target_shift(table, intercept=intercept)
    shifted = table.shifted(shift)
    # (I + VᵀΛ⁻¹V) u = VᵀΛ⁻¹y
    sums = normal_statistics(shifted, features, executor=executor)
    solution = frame.problem(sums, shift, intercept=intercept).solve(noise)
    # α = Λ⁻¹(y - b - Vu)
    index = used_rows(table, noise)
    points = table.rows.take(index).astype(np.float64, copy=False)
    precisions = np.full(len(index), 1.0 / noise) if table.weights is None else table.weights[index] / noise
    _check_rounding(frame, points, precisions, noise)
    rows = ArrayRows(points, checked=True)
    fitted = features_times(rows, features, solution.weights, executor=executor) + solution.intercept
    coefficients = precisions[:, np.newaxis] * (shifted.targets[index] - fitted)
    expansion = KernelExpansion(frame.kernel, points, coefficients, solution.shifted_intercept(shift))
    return expansion, ReducedRankVariance(frame, points, solution, precisions)


def _check_rounding(frame: Frame, points: FloatArray, precisions: FloatArray, noise: float) -> None:
    # Residuals are known to eps|y|; divided by the noise and summed with n kernel values this is what comes of it.
    largest = float(np.max(precisions * frame.kernel.diagonal(points), initial=0.0))
    error = float(np.finfo(np.float64).eps) * len(points) * largest
    if not error <= _REFUSED_ERROR:
        raise ValueError(
            f"noise={noise:.3g} is too small for {len(points)} rows: weights are residuals divided by the noise, and "
            f"rounding would be {error:.1g} of the targets. Use {noise * error / _REFUSED_ERROR:.1g} or more, or "
            "NystromRegressor."
        )
