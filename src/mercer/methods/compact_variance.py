r"""Error bars of a compact model: :math:`k(x,x) - k^\top H^{-1}k + (1-\eta^\top k)^2/1^\top\eta`.

The last term is there with an intercept only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer.engine import ArrayTable, Executor, RowPass, Rows, Sequence, SparseKernel, Tile
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Compact
from mercer.methods.compact_system import CompactSystem

__all__ = ["CompactVariance"]

_ROUNDING = 1e-9  # of k(x, x): variances so far below zero are zero
_MOST_SLACK = 1e-3  # of k(x, x): the same for conjugate gradients of a large tolerance
_TILE = 256  # rows whose variances a worker finds at a time
_COLUMNS = 32  # right-hand sides of conjugate gradients at a time


@dataclass(frozen=True)
class CompactVariance:
    """What the error bars are computed from; ``eta`` (n,) is H⁻¹1, with an intercept."""

    kernel: Compact
    sparse_kernel: SparseKernel
    system: CompactSystem
    eta: FloatArray | None

    def variances(self, rows: Rows, executor: Executor) -> FloatArray:
        """Variance of the function at the rows, shape (n,)."""
        quadratic: Callable[[Any], FloatArray]
        if self.system.factor is not None:
            quadratic, rows_at_once = self.system.factor.half_norms, _TILE
        else:  # one tile after the other: the products themselves use all workers
            quadratic, rows_at_once = partial(_by_gradients, self.system, executor), _COLUMNS
            executor = Sequence()
        work = _Reduction(self.sparse_kernel, self.eta, quadratic, rows_at_once)
        return self._not_negative(float(self.kernel.amplitude) + executor.map(work, ArrayTable(rows)))

    def covariance(self, rows: Rows, executor: Executor) -> FloatArray:
        """Covariance of the function between the rows, shape (n, n)."""
        block = rows.read(0, rows.n_rows).astype(np.float64)
        values = self.sparse_kernel.cross(block)
        result = self.kernel(block) - values @ self.system.solve(_columns(values), executor)
        if self.eta is not None:
            residual = 1.0 - values @ self.eta
            result += np.outer(residual, residual) / np.sum(self.eta)
        result = (result + result.T) / 2
        if len(result):
            self._refuse_negative(float(np.linalg.eigvalsh(result)[0]) / len(result), "an eigenvalue of the covariance")
        diagonal = np.einsum("ii->i", result)
        diagonal[...] = self._not_negative(diagonal)
        return np.asarray(result)

    def _not_negative(self, variances: FloatArray) -> FloatArray:
        """Refuse variances below zero by more than rounding, or what the tolerance of conjugate gradients allows."""
        self._refuse_negative(float(np.min(variances, initial=0.0)), "a predictive variance")
        return np.maximum(variances, 0.0)

    def _refuse_negative(self, least: float, what: str) -> None:
        tol = _ROUNDING if self.system.factor is not None else 10.0 * self.system.options.tol
        if least < -min(max(_ROUNDING, tol), _MOST_SLACK) * float(self.kernel.amplitude):
            msg = (
                f"{what} is {least:.3g}, below zero: the kernel is not positive definite on these rows and the "
                "training rows together. Use a larger exponent or dimension of the kernel (None guarantees "
                "definiteness), or predict without return_std and return_cov."
            )
            raise NotPositiveDefiniteError(msg)


@dataclass(frozen=True)
class _Reduction(RowPass):
    """What the data take from the prior variance, kᵀH⁻¹k of sparse rows k (q, n), and what an intercept adds to it."""

    kernel: SparseKernel
    eta: FloatArray | None
    quadratic: Callable[[Any], FloatArray]
    rows_at_once: int

    name, shape = "rows", ()
    width = 1024  # a solution for each row

    def apply(self, tile: Tile, out: AnyArray) -> None:
        values = self.kernel.cross(tile.rows)
        out[...] = -self.quadratic(values)
        if self.eta is not None:
            out += (1.0 - values @ self.eta) ** 2 / np.sum(self.eta)


def _by_gradients(system: CompactSystem, executor: Executor, values: Any) -> FloatArray:
    return np.asarray(values.multiply(system.solve(_columns(values), executor).T).sum(axis=1))


def _columns(values: Any) -> FloatArray:
    """Sparse rows as right-hand sides, in float64 as conjugate gradients need it."""
    return np.asarray(values.T.toarray(), dtype=np.float64)
