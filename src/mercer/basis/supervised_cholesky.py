r"""Cholesky with side information: pivots that approximate the kernel matrix and predict the targets.

With the factor :math:`G` of the pivots so far, the next one lowers

.. math:: J = (1 - \kappa)\frac{\operatorname{tr}(K - GG^\top)}{\operatorname{tr}K}
          + \kappa\,\frac{\min_W |Y - GW|^2}{|Y|^2}

most. A pivot i would append :math:`g_i = (K - GG^\top)_{:i}/\sqrt{d_i}`, which costs a column of kernel values for each
row tried. Instead, a few further columns :math:`\hat G` of a plain decomposition are kept (look-ahead), and
:math:`g_i \approx \hat G\hat G_i^\top/\sqrt{d_i}` for all rows at once.

==============  ==================  =====================================================
symbol          code                shape
==============  ==================  =====================================================
G               ``factor``          (n, m)
Q               ``orthonormal``     (n, m), the span of G
Ĝ               ``ahead``           (n, δ), columns of the pivots T given those chosen
(I - QQᵀ)Ĝ      ``free``            (n, δ)
d               ``diagonal``        (n,), what is left of k(x, x)
==============  ==================  =====================================================
"""

from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer._validation import Integral, Interval, Real, parameters
from mercer.basis.base import Basis, BasisStrategy, Task
from mercer.engine import blas_threads, kernel_diagonal, kernel_matrix

_ROUNDINGS = 1e-13  # residuals below this share of the largest k(x, x), for each pivot, are zero


@stored
@parameters
class SupervisedCholesky(BasisStrategy):
    """Incomplete Cholesky decomposition of the kernel matrix that also uses the targets (CSI).

    Cost: about n·m·(2m + 6δ²) multiply-adds and n·(2m + δ) kernel values; memory n·(2m + 2δ).

    Parameters
    ----------
    trade_off : float, default=0.99
        κ, between 0 (approximate the kernel matrix) and 1 (predict the targets).
    look_ahead : int, default=40
        δ, columns from which the gains of all rows are estimated. With as many as there are rows the gains are exact.

    References
    ----------
    F. R. Bach, M. I. Jordan: Predictive low-rank decomposition for kernel methods, ICML 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.basis import SupervisedCholesky
    >>> from mercer.kernels import Gaussian
    >>> X = np.linspace(-5, 5, 1000)[:, np.newaxis]
    >>> y = np.exp(-np.abs(X[:, 0] - 3))  # a peak at 3
    >>> SupervisedCholesky().select(X, y, Gaussian(0.5), 3).points[:, 0].round()
    array([3., 2., 4.])
    """

    trade_off: float = field(default=0.99, kw_only=False)
    look_ahead: int = 40

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "trade_off": [Interval(Real, 0, 1, closed="both")],
        "look_ahead": [Interval(Integral, 1, None, closed="left")],
    }

    @property
    def needs_targets(self) -> bool:
        """Whether there is no choice without targets."""
        return True

    def choose(self, task: Task) -> Basis:
        """Choose at most ``n_basis`` rows."""
        state = _Decomposition(task)
        with blas_threads(1):  # for products as thin as these BLAS is faster on one thread
            while len(state.index) < min(task.n_basis, task.rows.n_rows):
                state.look(self.look_ahead)
                if not state.pivots_ahead:
                    break
                gains = state.gains(self.trade_off)
                best = int(np.argmax(gains))
                if not np.isfinite(gains[best]):  # nothing is left of any row
                    break
                state.append(best)
        index, left = np.array(state.index, dtype=np.intp), state.weighted_sum(state.diagonal)
        share = left / state.trace if state.trace > 0 else 0.0
        return task.basis(index, "they span all rows to rounding", residual_trace=share)


class _Decomposition:
    """Columns chosen, columns ahead, and what is left. Rows are multiplied by the roots of their weights."""

    def __init__(self, task: Task) -> None:
        n_rows, weights = task.rows.n_rows, task.weights
        self._task = task
        self._roots = np.ones(n_rows) if weights is None else np.sqrt(weights)
        self._targets = self._roots[:, np.newaxis] * task.targets  # less their projection on Q
        self._total = float(np.sum(self._targets**2))
        prior = kernel_diagonal(task.rows, task.kernel, executor=task.executor)
        self.trace = self.weighted_sum(prior)
        self.diagonal = np.where(self._roots > 0, prior, 0.0)
        self._lost = _ROUNDINGS * float(np.max(prior, initial=0.0))
        self._factor = np.empty((n_rows, min(task.n_basis, n_rows)), order="F")
        self._orthonormal = np.empty_like(self._factor)
        self._ahead: FloatArray = np.empty((n_rows, 0))
        self._free: FloatArray = np.empty((n_rows, 0))
        self.index: list[int] = []
        self.pivots_ahead: list[int] = []

    def weighted_sum(self, values: FloatArray) -> float:
        """Σ ω times the values, one per row."""
        return float(np.sum(self._roots**2 * values))

    def look(self, number: int) -> None:
        """Have ``number`` columns ahead, those of the largest residuals, or as many as there are."""
        while len(self.pivots_ahead) < number:
            left = self.diagonal - np.einsum("ij,ij->i", self._ahead, self._ahead)
            left[self.pivots_ahead] = 0.0
            pivot = int(np.argmax(left))
            if left[pivot] <= self._lost * (len(self.index) + len(self.pivots_ahead) + 1):
                return
            column = (self._residual_column(pivot) - self._ahead @ self._ahead[pivot]) / np.sqrt(left[pivot])
            self._ahead = np.column_stack([self._ahead, column])
            self._free = np.column_stack([self._free, self._orthogonal(self._roots * column)])
            self.pivots_ahead.append(pivot)

    def gains(self, trade_off: float) -> FloatArray:
        """By how much each row would lower J, estimated from the columns ahead."""
        ahead, free = self._ahead, self._free
        weighted = self._roots[:, np.newaxis] * ahead
        # |g_i|² and |Yᵀg_i|²/|g_i orthogonal to Q|², with g_i = Ĝ Ĝ_iᵀ/√d_i
        traces = np.einsum("ij,ij->i", ahead @ (weighted.T @ weighted), ahead)
        products = ahead @ (free.T @ self._targets)
        norms = np.einsum("ij,ij->i", ahead @ (free.T @ free), ahead)
        usable = (self.diagonal > self._lost * (len(self.index) + 1)) & (self._roots > 0)
        gains = (1.0 - trade_off) / self.trace * traces / np.where(usable, self.diagonal, 1.0)
        if self._total > 0:
            spanned = norms <= self._lost * traces
            squares = np.einsum("ij,ij->i", products, products) / np.where(spanned, 1.0, norms)
            gains = gains + trade_off / self._total * np.where(spanned, 0.0, squares)
        return np.where(usable, gains, -np.inf)

    def append(self, pivot: int) -> None:
        """Make a row a pivot."""
        size = len(self.index)
        column = self._residual_column(pivot) / np.sqrt(self.diagonal[pivot])
        self._factor[:, size] = column
        new = self._orthogonal(self._roots * column)
        norm = float(np.linalg.norm(new))
        self._orthonormal[:, size] = new / norm if norm > 0 else 0.0
        q = self._orthonormal[:, size : size + 1]
        self._targets = self._targets - q @ (q.T @ self._targets)
        self.index.append(pivot)
        self._turn(pivot, column)
        self._free -= q @ (q.T @ self._free)
        self.diagonal = np.maximum(self.diagonal - column**2, 0.0)
        self.diagonal[self.diagonal <= self._lost * (size + 2)] = 0.0
        self.diagonal[pivot] = 0.0

    def _turn(self, pivot: int, column: FloatArray) -> None:
        """Take the new column out of those ahead."""
        if pivot in self.pivots_ahead:
            # ĜĜᵀ = ggᵀ + Ĝ'Ĝ'ᵀ: a reflection that turns the row of the pivot, hence the column, to the first axis
            row = self._ahead[pivot] / np.linalg.norm(self._ahead[pivot])
            reflector = row.copy()
            reflector[0] += 1.0 if row[0] >= 0 else -1.0
            self._ahead, self._free = _reflected(self._ahead, reflector), _reflected(self._free, reflector)
            self.pivots_ahead.remove(pivot)
            return
        # Ĝ' = (ĜĜ_Tᵀ - gg_Tᵀ)C⁻ᵀ, with CCᵀ its rows at T; orthogonal to the new q, g has no part
        pivots, at_pivots = self.pivots_ahead, self._ahead[self.pivots_ahead]
        kept, C = _factored(at_pivots @ at_pivots.T - np.outer(column[pivots], column[pivots]))
        inverse = solve_triangular(C, np.eye(len(kept)), lower=True).T
        turn = at_pivots[kept].T @ inverse
        self._ahead = self._ahead @ turn - np.outer(column, column[[pivots[i] for i in kept]] @ inverse)
        self._free = self._free @ turn
        self.pivots_ahead = [pivots[i] for i in kept]

    def _orthogonal(self, vector: FloatArray) -> FloatArray:
        """The vector less its projection on Q."""
        Q = self._orthonormal[:, : len(self.index)]
        for _ in range(2):  # projected out twice, the rest is orthogonal to rounding
            vector = vector - Q @ (Q.T @ vector)
        return vector

    def _residual_column(self, pivot: int) -> FloatArray:
        """(K - GGᵀ) of one column."""
        point = self._task.points(np.array([pivot]))
        column = kernel_matrix(self._task.rows, self._task.kernel, point, executor=self._task.executor)[:, 0]
        factor = self._factor[:, : len(self.index)]
        return np.asarray(column - factor @ factor[pivot])


def _reflected(columns: FloatArray, reflector: FloatArray) -> FloatArray:
    """All columns but the first, after a reflection."""
    scaled = 2.0 / float(reflector @ reflector) * reflector[1:]
    return np.asarray(columns[:, 1:] - np.outer(columns @ reflector, scaled))


def _factored(square: FloatArray) -> tuple[list[int], FloatArray]:
    """Which pivots of a residual matrix (δ, δ) are not spanned by the others, and the factor C of their part."""
    square = (square + square.T) / 2
    values = np.diagonal(square)
    kept = [int(i) for i in np.flatnonzero(values > _ROUNDINGS * max(float(np.max(values, initial=0.0)), 1e-300))]
    while kept:
        try:
            return kept, np.linalg.cholesky(square[np.ix_(kept, kept)])
        except np.linalg.LinAlgError:
            kept.pop()
    return [], np.empty((0, 0))
