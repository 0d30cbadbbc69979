r"""How far two expansions are from each other, as a function of the smaller one.

In feature space:

================  =====================  ==================================================================
document          here                   what
================  =====================  ==================================================================
f, x_j, α_j       products               the expansion, its points (n, d), coefficients (n, p)
f', z_i, β_i      vectors, coefficients  what it is replaced by, (m, d) and (m, p)
ρ²                distance               :math:`|f - f'|^2 = |f|^2 - 2\,\beta^\top c + \beta^\top K\beta`
K^z, K^zx α       K, c                   k(z_i, z_j), shape (m, m), and f(z_i), shape (m, p)
================  =====================  ==================================================================

For given vectors the best coefficients solve :math:`K\beta = c`. With them eliminated (variable projection) the
distance is a function of the vectors alone, and its gradient is that for fixed coefficients (the envelope theorem):

.. math:: J(z) = |f|^2 - c^\top(K + \delta I)^{-1}c = \min_\beta\ \rho^2 + \delta|\beta|^2, \qquad
          \partial_{z_i} J = -2\beta_i\,\partial f(z_i) + 2\sum_j \beta_i\beta_j\,\partial_{z_i} k(z_i, z_j).

δ keeps J smooth where vectors meet. Several outputs share the vectors, and each counts in units of its own norm:
:math:`\rho^2` is the sum over outputs of :math:`\rho_o^2\,\overline{|f|^2}/|f_o|^2`, which for one output is the
document's.

On given inputs, the mean squared difference: with :math:`\Phi = k(X, z)` and y the values of f on N inputs,
coefficients and offset eliminated,

.. math:: J(z) = \min_{\beta, b}\ \tfrac1N|y - \Phi\beta - b|^2 + \delta|\beta|^2, \qquad
          \partial_{z_j} J = -\tfrac2N \sum_i r_i\,\beta_j\,\partial_{z_j} k(x_i, z_j), \quad r = y - \Phi\beta - b:

the residuals are the coefficients of an expansion on the inputs, whose gradient at the vectors is what is needed.
Outputs count in units of their standard deviations on the inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from mercer._typing import FloatArray
from mercer.compression.inner_products import InnerProducts
from mercer.engine import ArrayRows, ArrayTable, Executor, Features, kernel_diagonal, kernel_times, normal_statistics
from mercer.exceptions import NotPositiveDefiniteError
from mercer.model import KernelExpansion

# δ per vector, as a share of the mean of k(x, x): rounding of K is about m·eps of it.
RIDGE = 1e-12
# In a descent δ|β|² is, at the start, this share of the distance. Without it vectors pair off with coefficients of
# opposite signs, ten times as large, and L-BFGS then ends at worse distances; 1e-6 to 1e-4 make little difference.
PENALTY = 1e-5
_INDEFINITE = 1e-12  # a norm below zero by more than this share of its bound is no rounding
_WORST_RIDGE = 1e6  # times the first: a matrix that is then still indefinite is no matter of rounding
_CONSTANT = 1e-12  # share of its size below which an output's deviation is nothing but rounding
_NONE = np.empty(0)


class Evaluation(NamedTuple):
    """A distance at some vectors; arrays that were not asked for are empty."""

    value: float  # what is minimised: the distance and, if coefficients are eliminated, δ|β|²
    distance: float
    coefficients: FloatArray  # (m, p)
    by_vectors: FloatArray = _NONE  # gradient of the value, (m, d)
    by_coefficients: FloatArray = _NONE  # (m, p), where coefficients are not eliminated
    offset: FloatArray = _NONE  # (p,), a constant that is part of what is compared

    def times(self, norm: float) -> Evaluation:
        """From numbers in units of the norm; the distance is not below zero, where rounding may leave it."""
        value, distance, gradient, inner = self.value, max(self.distance, 0.0), self.by_vectors, self.by_coefficients
        return Evaluation(norm * value, norm * distance, self.coefficients, norm * gradient, norm * inner, self.offset)


class Distance(ABC):
    """What a descent minimises over vectors (m, d)."""

    units: FloatArray  # (p,), in which the outputs are compared, and coefficients are given
    norm: float  # the distance in units of itself is this much
    _diagonal: float  # what the ridge is a share of

    @abstractmethod
    def eliminated(self, vectors: FloatArray, ridge: float) -> Evaluation:
        """With the best coefficients for these vectors."""

    @abstractmethod
    def joint(self, vectors: FloatArray, coefficients: FloatArray) -> Evaluation:
        """With given coefficients, in units of the outputs."""

    @abstractmethod
    def solve(self, vectors: FloatArray) -> Evaluation:
        """As ``eliminated`` with the least δ, without gradients."""

    def ridge(self, n_vectors: int) -> float:
        """The least δ, for a single solution."""
        return RIDGE * n_vectors * self._diagonal

    def penalty(self, start: Evaluation) -> float:
        """δ for a descent, such that δ|β|² is a small share of the distance where it starts."""
        squares, least = float(np.vdot(start.coefficients, start.coefficients)), self.ridge(len(start.coefficients))
        return max(least, PENALTY * start.distance / self.norm / squares) if squares > 0 and self.norm > 0 else least


class FeatureDistance(Distance):
    """ρ² of an expansion and what is to replace it; outputs in units of their norms.

    One pass over n² kernel values for the norm; then n·m kernel values per evaluation, in tiles.
    """

    def __init__(self, expansion: KernelExpansion, *, executor: Executor) -> None:
        self.kernel, self.points, coefficients = expansion.kernel, expansion.points, expansion.coefficients
        rows = ArrayRows(self.points, checked=True)
        # f at its own points, without the intercept
        self.values = kernel_times(rows, self.kernel, self.points, coefficients, executor=executor)
        diagonal = kernel_diagonal(rows, self.kernel, executor=executor)
        self._diagonal = float(np.mean(diagonal))
        squares = np.einsum("ij,ij->j", coefficients, self.values)  # αᵀKα
        # No norm is larger than this, and rounding is a share of it.
        bounds = (np.sqrt(np.maximum(diagonal, 0.0)) @ np.abs(coefficients)) ** 2
        if np.any(diagonal < 0) or np.any(squares < -_INDEFINITE * bounds):
            msg = "the expansion has a negative norm: its kernel is not positive definite on its points."
            raise NotPositiveDefiniteError(msg)
        squares = np.where(squares > np.finfo(np.float64).eps * bounds, squares, 0.0)  # else coefficients cancel
        self.units = np.sqrt(np.where(squares > 0, squares, 1.0))  # |f_o|
        self._count = float(np.sum(squares > 0))  # |f|² of an output in its own unit is 1, or 0
        self.norm = float(np.sum(squares)) / max(self._count, 1.0)
        self.start = self.norm * self._count  # the distance without any vector
        scaled, middle = coefficients / self.units, np.median(self.points, axis=0)
        self.products = InnerProducts(self.kernel, self.points, scaled, shift=middle, executor=executor)

    def eliminated(self, vectors: FloatArray, ridge: float) -> Evaluation:
        """J and its gradient."""
        here = self.products.at(vectors, vectors)
        solved, value, distance = self._solve(here.tile, here.values, ridge)
        gradient = here.gradient(-2.0 * solved, 2.0 * solved @ solved.T)
        return Evaluation(value, distance, solved, gradient).times(self.norm)

    def joint(self, vectors: FloatArray, coefficients: FloatArray) -> Evaluation:
        """ρ² and its gradients."""
        here = self.products.at(vectors, vectors)
        gradient = here.gradient(-2.0 * coefficients, 2.0 * coefficients @ coefficients.T)
        fitted = here.tile @ coefficients
        value = self._count + float(np.vdot(coefficients, fitted - 2.0 * here.values))
        return Evaluation(value, value, coefficients, gradient, 2.0 * (fitted - here.values)).times(self.norm)

    def solve(self, vectors: FloatArray) -> Evaluation:
        """J alone."""
        K, c = self.kernel(vectors), self.products.values(vectors)
        solved, value, distance = self._solve(K, c, self.ridge(len(vectors)))
        return Evaluation(value, distance, solved).times(self.norm)

    def _solve(self, K: FloatArray, c: FloatArray, ridge: float) -> tuple[FloatArray, float, float]:
        """β = (K + δI)⁻¹c, J and ρ²."""
        solved, ridge = _solve_definite(K, c, ridge)
        value = self._count - float(np.vdot(c, solved))
        return solved, value, value - ridge * float(np.vdot(solved, solved))

    def between(self, vectors: FloatArray, coefficients: FloatArray) -> float:
        """ρ² for given coefficients, in the outputs' own units."""
        scaled = coefficients / self.units
        difference = self.kernel(vectors) @ scaled - 2.0 * self.products.values(vectors)
        return self.norm * max(self._count + float(np.vdot(scaled, difference)), 0.0)


class DataDistance(Distance):
    """Mean squared difference on inputs; outputs in units of their standard deviations.

    N·m² operations and three times N·m kernel values per evaluation, in tiles. ``values`` (N, p) are those of the
    expansion on the inputs (N, d), without its intercept; ``offset`` says whether a constant is fitted along.
    """

    def __init__(
        self, expansion: KernelExpansion, inputs: FloatArray, values: FloatArray, *, offset: bool, executor: Executor
    ) -> None:
        self.kernel, self.inputs, self.executor = expansion.kernel, inputs, executor
        self._rows, self._offset = ArrayRows(inputs, checked=True), offset
        self._middle = np.median(inputs, axis=0)
        sizes = np.sqrt(np.mean(values**2, axis=0))
        self.units = output_units(np.std(values, axis=0) if offset else sizes, sizes)
        self.norm = float(np.mean(self.units**2))
        self._targets = np.asarray(values / self.units)
        self._centre = np.mean(self._targets, axis=0) * offset
        self._table = ArrayTable(self._rows, labels=self._targets)
        self._diagonal = float(np.mean(kernel_diagonal(self._rows, self.kernel, executor=executor))) ** 2

    def eliminated(self, vectors: FloatArray, ridge: float) -> Evaluation:
        """J and its gradient."""
        coefficients, offset, used = self._solve(vectors, ridge)
        value, residuals = self._compare(vectors, coefficients, offset)
        gradient, _ = self._gradient(vectors, coefficients, residuals)
        penalised = value + used * float(np.vdot(coefficients, coefficients))
        return Evaluation(penalised, value, coefficients, gradient, offset=offset).times(self.norm)

    def joint(self, vectors: FloatArray, coefficients: FloatArray) -> Evaluation:
        """The difference and its gradients; the offset is the best for these coefficients."""
        _, residuals = self._compare(vectors, coefficients, np.zeros(coefficients.shape[1]))
        offset = np.mean(residuals, axis=0) * self._offset
        residuals -= offset
        value = float(np.sum(np.mean(residuals**2, axis=0)))
        gradient, inner = self._gradient(vectors, coefficients, residuals)
        return Evaluation(value, value, coefficients, gradient, inner, offset).times(self.norm)

    def solve(self, vectors: FloatArray) -> Evaluation:
        """J alone."""
        coefficients, offset, _ = self._solve(vectors, self.ridge(len(vectors)))
        value, _ = self._compare(vectors, coefficients, offset)
        return Evaluation(value, value, coefficients, offset=offset).times(self.norm)

    def _solve(self, vectors: FloatArray, ridge: float) -> tuple[FloatArray, FloatArray, float]:
        """(ΦᵀΦ/N + δI)⁻¹ Φᵀy/N, of centred columns if there is an offset; the offset, and δ."""
        features = Features(self.kernel, vectors)
        sums = normal_statistics(self._table, features, executor=self.executor) * (1 / self._rows.n_rows)
        means = sums.cross[:, -1] if self._offset else np.zeros(len(vectors))
        gram, cross = sums.gram - np.outer(means, means), sums.cross[:, :-1] - np.outer(means, self._centre)
        coefficients, used = _solve_definite(gram, cross, ridge)
        return coefficients, self._centre - means @ coefficients, used

    def _compare(self, vectors: FloatArray, coefficients: FloatArray, offset: FloatArray) -> tuple[float, FloatArray]:
        residuals = self._targets - offset
        residuals -= kernel_times(self._rows, self.kernel, vectors, coefficients, executor=self.executor)
        return float(np.sum(np.mean(residuals**2, axis=0))), residuals

    def _gradient(
        self, vectors: FloatArray, coefficients: FloatArray, residuals: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        by_value = residuals * (-2.0 / len(residuals))
        products = InnerProducts(self.kernel, self.inputs, by_value, shift=self._middle, executor=self.executor)
        here = products.at(vectors, vectors[:0])
        return here.gradient(coefficients, here.tile), here.values


def output_units(deviations: FloatArray, sizes: FloatArray) -> FloatArray:
    """Standard deviations of outputs; of those that are constant their size, or 1."""
    constant = deviations <= _CONSTANT * sizes
    return np.where(constant, np.where(sizes > 0, sizes, 1.0), deviations)


def _solve_definite(matrix: FloatArray, right: FloatArray, ridge: float) -> tuple[FloatArray, float]:
    """(M + δI)⁻¹ right, and δ, which grows tenfold until rounding leaves the matrix definite."""
    most = _WORST_RIDGE * ridge
    while ridge <= most:
        square = np.array(matrix, order="F")
        square[np.diag_indices_from(square)] += ridge
        lower, info = lapack.dpotrf(square, lower=1, overwrite_a=1)
        if info == 0:
            solution, _ = lapack.dpotrs(lower, right, lower=1)
            return np.asarray(solution), ridge
        ridge *= 10.0
    raise NotPositiveDefiniteError("the kernel matrix of the vectors is not positive definite. Use a kernel that is.")
