r"""Least squares on kernel functions that are added one at a time.

Functions :math:`a_i = k(\cdot, x_i)` have the inner product
:math:`\langle a_i, a_j\rangle = \sum_r \omega_r k(x_r, x_i)k(x_r, x_j) + \lambda k(x_i, x_j)`: their values at the
rows, and the penalty. In it the functions chosen so far are made orthonormal, :math:`q_l = \sum_s \beta_{sl} a_s`; a
further function lowers :math:`\sum_r\omega_r(y_r - f(x_r))^2 + \lambda|f|^2` by

.. math:: \frac{(\langle a_i, y\rangle - \sum_l r_l g_l)^2}{\langle a_i, a_i\rangle - \sum_l r_l^2},
          \qquad r_l = \langle q_l, a_i\rangle,\quad g_l = \langle q_l, y\rangle.

==============  ==================  =========================================
symbol          code                shape
==============  ==================  =========================================
q (at rows)     ``values``          (n, m), with the roots of the weights
β               ``beta``            (m, m), upper triangular
g               ``projections``     (m, p)
==============  ==================  =========================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.basis.base import Task
from mercer.engine import kernel_diagonal, kernel_matrix, kernel_times
from mercer.kernels import Kernel

__all__ = ["AllCandidates", "Candidate", "GrowingFit"]

# A function whose squared norm falls below this share when those chosen are projected out is spanned by them.
_SPANNED = 1e-13
_SQUARABLE = (1e-100, 1e100)  # kernel values outside are scaled before they are squared


_BLOCK = 2048  # rows


@dataclass(frozen=True)
class Candidate:
    """A row that may be chosen.

    Attributes
    ----------
    row : int
    column : array (n,)
        Values of its function at the rows, times the roots of the weights.
    products : array (m,)
        Its inner products with the functions chosen so far.
    """

    row: int
    column: FloatArray
    products: FloatArray


class GrowingFit:
    """Functions chosen so far, and what candidates would gain; memory n × n_basis.

    Units of targets and kernel do not matter to the choice: both are scaled so that they can be squared.

    Parameters
    ----------
    task : Task
    noise : float
        λ.
    """

    def __init__(self, task: Task, *, noise: float) -> None:
        rows, targets, weights = task.rows, task.targets, task.weights
        self.rows, self.executor = rows, task.executor
        self.kernel, self.noise = _scaled(task, noise)
        self.roots = np.ones(rows.n_rows) if weights is None else np.sqrt(weights / np.max(weights))
        self._free = self.roots > 0  # rows that may still be chosen
        largest = float(np.max(np.abs(targets), initial=0.0))
        self.targets = self.roots[:, np.newaxis] * (targets / largest if largest > 0 else targets)
        self._room = np.empty((rows.n_rows, min(task.n_basis, rows.n_rows)), order="F")
        self.index: list[int] = []
        self.points: FloatArray = np.empty((0, rows.n_features))
        self.beta: FloatArray = np.empty((0, 0))
        self.projections: FloatArray = np.empty((0, targets.shape[1]))
        self.squares = float(np.sum(self.targets**2))  # what is left of the objective

    @property
    def values(self) -> FloatArray:
        """Orthonormal functions at the rows, shape (n, m)."""
        return self._room[:, : len(self.index)]

    @property
    def free(self) -> AnyArray:
        """Which rows may still be chosen, shape (n,)."""
        return self._free

    @property
    def eligible(self) -> IntArray:
        """Rows of positive weight that are not chosen yet, nor known to be spanned by those that are."""
        return np.flatnonzero(self._free)

    def best(self, candidates: IntArray) -> tuple[Candidate, float]:
        """The candidate that would lower the objective most, and by how much."""
        points = self.rows.take(candidates).astype(np.float64)
        columns = self.columns(points)
        r = self._products(points, columns)
        norms = np.einsum("ij,ij->j", columns, columns) + self.noise * self.kernel.diagonal(points)
        left = norms - np.einsum("ij,ij->j", r, r)
        numerators = columns.T @ self.targets - r.T @ self.projections
        gains = _gains(numerators, left, norms)
        self._free[candidates[left <= _SPANNED * norms]] = False  # they stay spanned
        best = int(np.argmax(gains))
        return Candidate(int(candidates[best]), columns[:, best].copy(), r[:, best].copy()), float(gains[best])

    def candidate(self, row: int) -> Candidate:
        """What is to be known of a row to choose it."""
        point = self.rows.take(np.array([row])).astype(np.float64)
        column = self.columns(point)
        return Candidate(row, column[:, 0], self._products(point, column)[:, 0])

    def add(self, candidate: Candidate) -> float:
        """Choose a row; returns by how much the objective fell."""
        point = self.rows.take(np.array([candidate.row])).astype(np.float64)
        points = np.concatenate([self.points, point])
        cross = self.kernel(points)
        coefficients = np.append(-self.beta @ candidate.products, 1.0)
        # Projected out twice, the rest is orthogonal to rounding. Each row block is read once for both.
        new, r = np.empty(len(candidate.column)), self.noise * (self.beta.T @ (cross[:-1] @ coefficients))
        for start in range(0, len(new), _BLOCK):
            block = self.values[start : start + _BLOCK]
            new[start : start + _BLOCK] = candidate.column[start : start + _BLOCK] - block @ candidate.products
            r += block.T @ new[start : start + _BLOCK]
        new -= self.values @ r
        coefficients[:-1] -= self.beta @ r
        norm = float(np.sqrt(max(float(new @ new + self.noise * coefficients @ cross @ coefficients), 0.0)))
        self._free[candidate.row] = False
        if norm == 0:
            return 0.0
        g = new @ self.targets / norm
        self._room[:, len(self.index)] = new / norm
        corner = np.zeros((1, len(self.index)))
        self.beta = np.block([[self.beta, coefficients[:-1, np.newaxis] / norm], [corner, 1.0 / norm]])
        self.index.append(candidate.row)
        self.points, self.projections = points, np.concatenate([self.projections, g[np.newaxis]])
        gain = float(np.sum(g**2))
        self.squares = max(self.squares - gain, 0.0)
        return gain

    def columns(self, points: FloatArray) -> FloatArray:
        """Values of functions at the rows, times the roots of the weights, shape (n, c)."""
        columns = kernel_matrix(self.rows, self.kernel, points, executor=self.executor)
        columns *= self.roots[:, np.newaxis]
        return columns

    def _products(self, points: FloatArray, columns: FloatArray) -> FloatArray:
        """⟨q, a⟩ of functions with values ``columns``, shape (m, c)."""
        products = self.values.T @ columns
        if self.noise and self.index:
            products += self.noise * (self.beta.T @ self.kernel(self.points, points))
        return products


class AllCandidates:
    """Gains of all rows, kept up to date by one product with the kernel matrix per function; it is not stored."""

    def __init__(self, fit: GrowingFit) -> None:
        self._fit = fit
        rows, kernel, executor = fit.rows, fit.kernel, fit.executor
        self._points = rows.take(np.arange(rows.n_rows)).astype(np.float64)
        roots = fit.roots[:, np.newaxis]
        self._numerators = kernel_times(rows, kernel, self._points, roots * fit.targets, executor=executor)
        squares = kernel_times(rows, kernel * kernel, self._points, roots**2, executor=executor)[:, 0]
        self._norms = squares + fit.noise * kernel_diagonal(rows, kernel, executor=executor)
        self._left = self._norms.copy()

    def best(self) -> tuple[Candidate, float]:
        """The row with the largest gain, the first of equals, and the gain."""
        gains = _gains(self._numerators, self._left, self._norms)
        gains[~self._fit.free] = 0.0
        row = int(np.argmax(gains))
        return self._fit.candidate(row), float(gains[row])

    def update(self) -> None:
        """Account for the function that was chosen last."""
        fit = self._fit
        values = fit.roots[:, np.newaxis] * fit.values[:, -1:]
        r = kernel_times(fit.rows, fit.kernel, self._points, values, executor=fit.executor)
        if fit.noise:
            penalty = kernel_times(fit.rows, fit.kernel, fit.points, fit.beta[:, -1:], executor=fit.executor)
            r += fit.noise * penalty
        self._numerators -= r * fit.projections[-1]
        self._left -= r[:, 0] ** 2


def _scaled(task: Task, noise: float) -> tuple[Kernel, float]:
    """The kernel, and λ, such that kernel values can be squared."""
    size = float(np.max(kernel_diagonal(task.rows, task.kernel, executor=task.executor), initial=0.0))
    if size == 0 or _SQUARABLE[0] < size < _SQUARABLE[1]:
        return task.kernel, noise
    return task.kernel * (1.0 / size), noise / size


def _gains(numerators: FloatArray, left: FloatArray, norms: FloatArray) -> FloatArray:
    regular = left > _SPANNED * norms
    squares = np.einsum("ij,ij->i", numerators, numerators)
    return np.where(regular, squares / np.where(regular, left, 1.0), 0.0)
