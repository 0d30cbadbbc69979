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
from typing import NamedTuple

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.engine import (
    ArrayRows,
    ArrayTable,
    Executor,
    Features,
    Influences,
    Pass,
    Rows,
    Tile,
    features_times,
    gram_matrix,
    kernel_diagonal,
    transposed_times,
)
from mercer.kernels import Section
from mercer.methods.frame import Frame, used_rows
from mercer.methods.left_out import leave_out
from mercer.methods.nystrom import Settings, Summary
from mercer.model import Calibration, KernelExpansion
from mercer.model.calibration import sample_rows
from mercer.solvers.ridge import Choice, RidgeSolution

ROUNDING = 1e-8  # a variance above minus this share of the prior's is zero
_CALIBRATING_ROWS = 256  # that are left out: each takes a product of all rows with the basis
_KNOWN = 1e-12  # a difference below this share of what it is taken from is rounding
_REFUSED_ERROR = 1e-3  # rounding of predictions, as a share of the targets, beyond which a noise is too small
_CHOSEN_ERROR = 5e-10  # the same, about, of a noise that is chosen
_EPS = float(np.finfo(np.float64).eps)


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

    def influences(self, index: IntArray, expansion: KernelExpansion, executor: Executor) -> Influences:
        """Of some of the points: see ``left_out``."""
        solution, points, precisions = self.solution, self.points[index], self.precisions[index]
        v, root, left, products = self._residuals(points, executor, full=False)
        # [V, 1]ᵀΛ⁻¹e_i is ω/λ [v, 1], and with [v - h, 1 - 1ᵀΛ⁻¹e] as above ∂f/∂y = [v - h, …]ᵀΣ[v, 1]ω/λ + e_iω/λ
        own = (v - solution.mean) @ solution.root.T
        prior = self.frame.kernel.diagonal(points)
        slopes = np.einsum("ij,ij->i", root, own) + solution.constant * left + prior - _squares(v)
        variances = prior + _squares(root) - _squares(v) + solution.constant * left**2 - products[-1]
        # M⁻¹_ii = ω/λ - (ω/λ)² [v, 1]ᵀΣ[v, 1]
        share = 1.0 - precisions * (_squares(own) + solution.constant)
        share[share <= _KNOWN] = 0.0
        rows, kernel = ArrayRows(self.points, checked=True), expansion.kernel
        fitted = transposed_times(rows, kernel, points, expansion.coefficients, executor=executor) + expansion.intercept
        return Influences(fitted, variances, precisions * slopes, expansion.coefficients[index], precisions * share)

    def _residuals(
        self, queries: FloatArray, executor: Executor, *, full: bool
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """v, Σ^(1/2)[v - h, …] without its last entry, 1 - 1ᵀΛ⁻¹e, and the sums of ``_ResidualPass``."""
        solution, features = self.solution, self.frame.features(whitened=True)
        queries = queries.astype(np.float64, copy=False)
        table = ArrayTable(ArrayRows(self.points, checked=True), weights=self.precisions)
        products, m = executor.reduce(_ResidualPass(features, queries, full), table), features.n_features
        v = features.tile(queries)
        left = 1.0 - products[m]  # of the constant's weight
        return v, (v - products[:m].T - np.outer(left, solution.mean)) @ solution.root.T, left, products

    def _correction(self, queries: FloatArray, executor: Executor, *, full: bool) -> FloatArray:
        """What the data take from the prior (co)variance of the queries."""
        solution, m = self.solution, len(self.frame.lower)
        v, root, left, products = self._residuals(queries, executor, full=full)
        if full:
            return root @ root.T + solution.constant * np.outer(left, left) - v @ v.T - products[m + 1 :]
        return np.asarray(_squares(root) - _squares(v) + solution.constant * left**2 - products[m + 1])


def _squares(matrix: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", matrix, matrix))


class ReducedRankFit(NamedTuple):
    """The model, what its error bars are computed from, and how it does on rows that are left out."""

    expansion: KernelExpansion
    variance: ReducedRankVariance
    calibration: Calibration


def fit_reduced_rank(
    table: ArrayTable, frame: Frame, *, noise: float | Choice, intercept: bool, executor: Executor
) -> ReducedRankFit:
    """Solve for the weights of all rows of positive weight."""
    features, settings = frame.features(whitened=True), Settings(noise, intercept, prior=True)
    # The targets have the distribution that the subset of representers gives them, and with it their likelihood.
    summary = Summary.start(frame, table, settings).plus(table, executor)
    index = used_rows(table, 1.0 if isinstance(noise, str) else noise)
    points = table.rows.take(index).astype(np.float64, copy=False)
    weights = np.ones(len(index)) if table.weights is None else table.weights[index]
    chosen = summary.solved[1]
    if isinstance(noise, str):
        # Roundings of n rows add up like √n; a row of weight 2 is the same as the row twice.
        rounding = _EPS * np.sqrt(np.sum(weights)) * float(np.max(frame.kernel.diagonal(points)))
        chosen = max(chosen, rounding / _CHOSEN_ERROR)
    _check_rounding(frame, points, weights, chosen)
    # (I + VᵀΛ⁻¹V) u = VᵀΛ⁻¹y
    shift = summary.target_shift
    solution = frame.problem(summary.statistics, shift, intercept=intercept).solve(chosen)
    # α = Λ⁻¹(y - b - Vu)
    rows, precisions, targets = ArrayRows(points, checked=True), weights / chosen, table.targets[index]
    fitted = features_times(rows, features, solution.weights, executor=executor) + solution.intercept
    coefficients = precisions[:, np.newaxis] * (table.shifted(shift).targets[index] - fitted)
    expansion = KernelExpansion(
        frame.kernel, points, coefficients, solution.shifted_intercept(shift), scale=solution.scale
    )
    variance = ReducedRankVariance(frame, points, solution, precisions)
    some = sample_rows(np.arange(len(points)), _CALIBRATING_ROWS)
    found = variance.influences(some, expansion, executor)
    left_out = leave_out(found, targets[some], weights[some], counted=table.counted, noise=chosen)
    return ReducedRankFit(expansion, variance, left_out)


def _smallest_noise(frame: Frame, points: FloatArray, weights: FloatArray) -> float:
    """The least noise that rounding allows, by a bound that is high."""
    # Residuals are known to eps|y|; divided by the noise and summed with n kernel values this is what comes of it.
    largest = float(np.max(weights * frame.kernel.diagonal(points), initial=0.0))
    return _EPS * len(points) * largest / _REFUSED_ERROR


def _check_rounding(frame: Frame, points: FloatArray, weights: FloatArray, noise: float) -> None:
    smallest = _smallest_noise(frame, points, weights)
    if not noise >= smallest:
        raise ValueError(
            f"noise={noise:.3g} is too small for {len(points)} rows: weights are residuals divided by the noise, and "
            f"rounding would be {_REFUSED_ERROR * smallest / noise:.1g} of the targets. Use {smallest:.1g} or more, or "
            "NystromRegressor."
        )
