r"""The distance of two expansions in feature space, as a function of the smaller one.

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
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import lapack

from mercer._typing import FloatArray
from mercer.compression.inner_products import InnerProducts
from mercer.engine import ArrayRows, Executor, kernel_diagonal, kernel_times
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel
from mercer.model import KernelExpansion

__all__ = ["Distance", "Evaluation", "FeatureDistance", "solve_definite"]

# δ per vector, as a share of the mean of k(x, x): rounding of K is about m·eps of it.
RIDGE = 1e-12
# In a descent δ|β|² is, at the start, this share of the distance. Without it vectors pair off with coefficients of
# opposite signs, ten times as large, and L-BFGS then ends at worse distances; 1e-6 to 1e-4 make little difference.
PENALTY = 1e-5
_INDEFINITE = 1e-12  # a norm below zero by more than this share of its bound is no rounding
_WORST_RIDGE = 1e6  # times the first: a matrix that is then still indefinite is no matter of rounding


@dataclass(frozen=True)
class Evaluation:
    """A distance at some vectors.

    Attributes
    ----------
    value : float
        What is minimised: the distance and, if coefficients are eliminated, δ|β|².
    distance : float
        Without δ|β|².
    coefficients : array (m, p)
    by_vectors : array (m, d)
        Gradient of the value.
    by_coefficients : array (m, p)
        Zero where coefficients are eliminated.
    offset : array (p,)
        A constant that is part of what is compared.
    """

    value: float
    distance: float
    coefficients: FloatArray
    by_vectors: FloatArray
    by_coefficients: FloatArray
    offset: FloatArray = field(default_factory=lambda: np.zeros(1))


class Distance(ABC):
    """What a descent minimises over vectors (m, d).

    Attributes
    ----------
    units : array (p,)
        In which the outputs are compared, and coefficients are given.
    norm : float
        The distance in units of itself is this much.
    """

    units: FloatArray
    norm: float
    _diagonal: float  # what the ridge is a share of

    @abstractmethod
    def eliminated(self, vectors: FloatArray, ridge: float) -> Evaluation:
        """With the best coefficients for these vectors."""

    @abstractmethod
    def joint(self, vectors: FloatArray, coefficients: FloatArray) -> Evaluation:
        """With given coefficients."""

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

    Parameters
    ----------
    expansion : KernelExpansion
        In float64.
    executor : Executor

    Attributes
    ----------
    values : array (n, p)
        f at the expansion's own points, without its intercept.
    units : array (p,)
        |f_o|.
    norm : float
        Mean of |f_o|² over the outputs that are not zero.
    """

    def __init__(self, expansion: KernelExpansion, *, executor: Executor) -> None:
        self.kernel: Kernel = expansion.kernel
        self.points, self.executor = expansion.points, executor
        rows = ArrayRows(self.points, checked=True)
        self.values = kernel_times(rows, self.kernel, self.points, expansion.coefficients, executor=executor)
        diagonal = kernel_diagonal(rows, self.kernel, executor=executor)
        self._diagonal = float(np.mean(diagonal))
        squares = np.einsum("ij,ij->j", expansion.coefficients, self.values)  # αᵀKα
        # No norm is larger than this, and rounding is a share of it.
        bounds = (np.sqrt(np.maximum(diagonal, 0.0)) @ np.abs(expansion.coefficients)) ** 2
        if np.any(diagonal < 0) or np.any(squares < -_INDEFINITE * bounds):
            msg = "the expansion has a negative norm: its kernel is not positive definite on its points."
            raise NotPositiveDefiniteError(msg)
        squares = np.where(squares > np.finfo(np.float64).eps * bounds, squares, 0.0)  # else coefficients cancel
        self.units = np.sqrt(np.where(squares > 0, squares, 1.0))
        self._count = float(np.sum(squares > 0))  # |f|² of an output in its own unit is 1, or 0
        self.norm = float(np.sum(squares)) / max(self._count, 1.0)
        self.products = InnerProducts(self.kernel, self.points, expansion.coefficients / self.units, executor=executor)

    @property
    def n_outputs(self) -> int:
        """How many functions share the vectors."""
        return self.products.n_outputs

    @property
    def start(self) -> float:
        """The distance without any vector."""
        return self.norm * self._count

    def eliminated(self, vectors: FloatArray, ridge: float) -> Evaluation:
        """With the best coefficients for these vectors."""
        here = self.products.bind(vectors)
        K = here.tile(vectors)
        solved: FloatArray = np.empty(0)
        used = ridge

        def weigh(c: FloatArray) -> FloatArray:
            nonlocal solved, used
            solved, used = solve_definite(K.values, c, ridge)
            return -2.0 * solved

        c, gradient = here.values_and_gradient(weigh)
        gradient += 2.0 * K.gradient(solved @ solved.T)
        value = self._count - float(np.vdot(c, solved))
        distance = value - used * float(np.vdot(solved, solved))
        return self._evaluation(value, distance, solved, gradient, np.zeros_like(solved))

    def joint(self, vectors: FloatArray, coefficients: FloatArray) -> Evaluation:
        """With given coefficients, in units of the outputs."""
        here = self.products.bind(vectors)
        K = here.tile(vectors)
        c, gradient = here.values_and_gradient(lambda _: -2.0 * coefficients)
        gradient += 2.0 * K.gradient(coefficients @ coefficients.T)
        fitted = K.values @ coefficients
        value = self._count + float(np.vdot(coefficients, fitted - 2.0 * c))
        return self._evaluation(value, value, coefficients, gradient, 2.0 * (fitted - c))

    def solve(self, vectors: FloatArray) -> Evaluation:
        """With the best coefficients, without gradients."""
        K, c = self.kernel(vectors), self.products.values(vectors)
        solved, ridge = solve_definite(K, c, self.ridge(len(vectors)))
        value = self._count - float(np.vdot(c, solved))
        distance = value - ridge * float(np.vdot(solved, solved))
        return self._evaluation(value, distance, solved, np.empty(0), np.empty(0))

    def between(self, vectors: FloatArray, coefficients: FloatArray) -> float:
        """ρ² for given coefficients, in the outputs' own units."""
        scaled = coefficients / self.units
        difference = self.kernel(vectors) @ scaled - 2.0 * self.products.values(vectors)
        return self.norm * max(self._count + float(np.vdot(scaled, difference)), 0.0)

    def _evaluation(
        self, value: float, distance: float, coefficients: FloatArray, gradient: FloatArray, inner: FloatArray
    ) -> Evaluation:
        norm = self.norm
        return Evaluation(norm * value, norm * max(distance, 0.0), coefficients, norm * gradient, norm * inner)


def solve_definite(matrix: FloatArray, right: FloatArray, ridge: float) -> tuple[FloatArray, float]:
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
    msg = "the kernel matrix of the vectors is not positive definite. Use a kernel that is."
    raise NotPositiveDefiniteError(msg)
