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

    N·m² operations and three times N·m kernel values per evaluation, in tiles.

    Parameters
    ----------
    expansion : KernelExpansion
    inputs : array (N, d), float64
    values : array (N, p)
        The expansion on the inputs, without its intercept.
    offset : bool
        Whether a constant is fitted along.
    executor : Executor

    Attributes
    ----------
    units : array (p,)
        Standard deviations of the outputs.
    norm : float
        Mean of their squares.
    """

    def __init__(
        self,
        expansion: KernelExpansion,
        inputs: FloatArray,
        values: FloatArray,
        *,
        offset: bool,
        executor: Executor,
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
        """With the best coefficients and offset for these vectors."""
        coefficients, offset, used = self._solve(vectors, ridge)
        value, residuals = self._compare(vectors, coefficients, offset)
        gradient, _ = self._gradient(vectors, coefficients, residuals)
        penalised = value + used * float(np.vdot(coefficients, coefficients))
        return self._evaluation(penalised, value, coefficients, gradient, np.zeros_like(coefficients), offset)

    def joint(self, vectors: FloatArray, coefficients: FloatArray) -> Evaluation:
        """With given coefficients; the offset is the best for them."""
        offset = np.zeros(coefficients.shape[1])
        _, residuals = self._compare(vectors, coefficients, offset)
        if self._offset:
            offset = np.mean(residuals, axis=0)
            residuals -= offset
        gradient, inner = self._gradient(vectors, coefficients, residuals)
        value = float(np.sum(np.mean(residuals**2, axis=0)))
        return self._evaluation(value, value, coefficients, gradient, inner, offset)

    def solve(self, vectors: FloatArray) -> Evaluation:
        """With the best coefficients and offset, without gradients."""
        coefficients, offset, _ = self._solve(vectors, self.ridge(len(vectors)))
        value, _ = self._compare(vectors, coefficients, offset)
        return self._evaluation(value, value, coefficients, np.empty(0), np.empty(0), offset)

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
        products = InnerProducts(self.kernel, self.inputs, by_value, executor=self.executor, shift=self._middle)
        inner, gradient = products.values_and_gradient(vectors, lambda _: coefficients)
        return gradient, inner

    def _evaluation(
        self,
        value: float,
        distance: float,
        coefficients: FloatArray,
        gradient: FloatArray,
        inner: FloatArray,
        offset: FloatArray,
    ) -> Evaluation:
        norm = self.norm
        return Evaluation(norm * value, norm * distance, coefficients, norm * gradient, norm * inner, offset)


def output_units(deviations: FloatArray, sizes: FloatArray) -> FloatArray:
    """Standard deviations of outputs; of those that are constant their size, or 1."""
    constant = deviations <= _CONSTANT * sizes
    return np.where(constant, np.where(sizes > 0, sizes, 1.0), deviations)
