r"""The mean squared difference of two expansions on given inputs, as a function of the smaller one.

With :math:`\Phi = k(X, z)` and y the values of f on N inputs, coefficients and offset eliminated,

.. math:: J(z) = \min_{\beta, b}\ \tfrac1N|y - \Phi\beta - b|^2 + \delta|\beta|^2, \qquad
          \partial_{z_j} J = -\tfrac2N \sum_i r_i\,\beta_j\,\partial_{z_j} k(x_i, z_j), \quad r = y - \Phi\beta - b:

the residuals are the coefficients of an expansion on the inputs, whose gradient at the vectors is what is needed.
Outputs count in units of their standard deviations on the inputs.
"""

from __future__ import annotations

import numpy as np

from mercer._typing import FloatArray
from mercer.compression.distance import Distance, Evaluation, solve_definite
from mercer.compression.inner_products import InnerProducts
from mercer.engine import ArrayRows, ArrayTable, Executor, Features, kernel_diagonal, kernel_times, normal_statistics
from mercer.model import KernelExpansion

__all__ = ["DataDistance", "output_units"]

_CONSTANT = 1e-12  # share of its size below which an output's deviation is nothing but rounding


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
        self._table = ArrayTable(self._rows, labels=self._targets)
        self._diagonal = float(np.mean(kernel_diagonal(self._rows, self.kernel, executor=executor))) ** 2

    def eliminated(self, vectors: FloatArray, ridge: float) -> Evaluation:
        """J and its gradient."""
        coefficients, offset, used = self._solve(vectors, ridge)
        value, residuals = self._compare(vectors, coefficients, offset)
        gradient, _ = self._gradient(vectors, coefficients, residuals)
        penalised = value + used * float(np.vdot(coefficients, coefficients))
        return self._evaluation(penalised, value, coefficients, gradient, offset=offset)

    def joint(self, vectors: FloatArray, coefficients: FloatArray) -> Evaluation:
        """The difference and its gradients; the offset is the best for these coefficients."""
        offset = np.zeros(coefficients.shape[1])
        value, residuals = self._compare(vectors, coefficients, offset)
        if self._offset:
            offset = np.mean(residuals, axis=0)
            residuals -= offset
            value = float(np.sum(np.mean(residuals**2, axis=0)))
        gradient, inner = self._gradient(vectors, coefficients, residuals)
        return self._evaluation(value, value, coefficients, gradient, inner, offset)

    def solve(self, vectors: FloatArray) -> Evaluation:
        """J alone."""
        coefficients, offset, _ = self._solve(vectors, self.ridge(len(vectors)))
        value, _ = self._compare(vectors, coefficients, offset)
        return self._evaluation(value, value, coefficients, offset=offset)

    def _solve(self, vectors: FloatArray, ridge: float) -> tuple[FloatArray, FloatArray, float]:
        """(ΦᵀΦ/N + δI)⁻¹ Φᵀy/N, of centred columns if there is an offset; the offset, and δ."""
        features = Features(self.kernel, vectors)
        sums = normal_statistics(self._table, features, executor=self.executor) * (1 / self._rows.n_rows)
        gram, cross, means = sums.gram, sums.cross[:, :-1], sums.cross[:, -1]
        if not self._offset:
            coefficients, used = solve_definite(gram, cross, ridge)
            return coefficients, np.zeros(cross.shape[1]), used
        middle = np.mean(self._targets, axis=0)
        coefficients, used = solve_definite(gram - np.outer(means, means), cross - np.outer(means, middle), ridge)
        return coefficients, middle - means @ coefficients, used

    def _compare(self, vectors: FloatArray, coefficients: FloatArray, offset: FloatArray) -> tuple[float, FloatArray]:
        residuals = self._targets - offset
        residuals -= kernel_times(self._rows, self.kernel, vectors, coefficients, executor=self.executor)
        return float(np.sum(np.mean(residuals**2, axis=0))), residuals

    def _gradient(
        self, vectors: FloatArray, coefficients: FloatArray, residuals: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        by_value = residuals * (-2.0 / len(residuals))
        here = InnerProducts(self.kernel, self.inputs, by_value, executor=self.executor, shift=self._middle).at(vectors)
        return here.gradient(coefficients), here.values


def output_units(deviations: FloatArray, sizes: FloatArray) -> FloatArray:
    """Standard deviations of outputs; of those that are constant their size, or 1."""
    constant = deviations <= _CONSTANT * sizes
    return np.where(constant, np.where(sizes > 0, sizes, 1.0), deviations)
