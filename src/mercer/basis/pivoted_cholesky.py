r"""Incomplete Cholesky decomposition of the kernel matrix, which is never formed.

With pivots S so far and :math:`K_{SS} = LL^\top`, the residual of a row is :math:`d(x) = k(x,x) - |L^{-1}k_S(x)|^2`. A
block P of new pivots extends the factor by :math:`B = K_{PS}L^{-\top}` and :math:`CC^\top = K_{PP} - BB^\top`, and
lowers the residuals by :math:`|C^{-1}(k_P(x) - BL^{-1}k_S(x))|^2`: one product of the kernel values of all rows with a
small matrix.
"""

from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import solve_triangular

from mercer._stored import stored
from mercer._typing import FloatArray, IntArray
from mercer._validation import Integral, Interval, Real, StrOptions, parameters
from mercer.basis.base import Basis, BasisStrategy, Task
from mercer.engine import column_squares, extend_factor, kernel_diagonal, squared_projections

# A residual below this many roundings of the largest k(x, x), for each pivot, is zero.
_ROUNDINGS = 16.0
_POOL = 256  # rows among which greedy pivots are looked for at once
# In a block a pivot below this share of the row's residual would spoil the factor; the row comes back in a later one.
_SMALLEST_PIVOT = 1e-10


@stored
@parameters
class PivotedCholesky(BasisStrategy):
    r"""Rows that the others chosen do not span: pivots of an incomplete Cholesky decomposition of the kernel matrix.

    ``pivots="greedy"`` takes the row with the largest residual next and ignores weights other than zero.
    ``pivots="random"`` draws rows in proportion to weight times residual (randomly pivoted Cholesky), which covers
    clusters in proportion to their size and is not misled by outliers; rows are proposed in blocks and rejected so that
    they are distributed as if drawn one at a time.

    Cost: n·m²/2 multiply-adds and n·m kernel values per block of pivots; memory O(n). Residuals fall as rows are added,
    so greedy pivots, too, are found in blocks: as long as the best row of a pool is better than all rows outside.

    Parameters
    ----------
    pivots : {"random", "greedy"}, default="random"
    tol : float, default=0.0
        Stop when the residuals sum to this share of the trace of the kernel matrix, a bound of the error (in the trace
        norm) of the approximation.
    block_size : int or None, default=None
        Rows proposed at once; None for a fifth of the number of points, 16 at least.
    store : bool, default=False
        Whether to keep the factor, n × m numbers, instead of computing kernel values again for each block.

    References
    ----------
    S. Fine, K. Scheinberg: Efficient SVM training using low-rank kernel representations, JMLR 2, 2001. F. R. Bach,
    M. I. Jordan: Kernel independent component analysis, JMLR 3, 2002. Y. Chen, E. N. Epperly, J. A. Tropp,
    R. J. Webber: Randomly pivoted Cholesky, CPAM 78, 2025. E. N. Epperly, J. A. Tropp, R. J. Webber: Embrace rejection,
    2024.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromRegressor
    >>> from mercer.basis import PivotedCholesky
    >>> X = np.linspace(0, 6, 1000)[:, np.newaxis]
    >>> model = NystromRegressor("gaussian", basis=PivotedCholesky(tol=1e-6), random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.rank_ < 15
    True
    """

    pivots: Literal["random", "greedy"] = field(default="random", kw_only=False)
    tol: float = 0.0
    block_size: int | None = None
    store: bool = False

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "pivots": [StrOptions({"random", "greedy"})],
        "tol": [Interval(Real, 0, 1, closed="left")],
        "block_size": [None, Interval(Integral, 1, None, closed="left")],
        "store": ["boolean"],
    }

    def choose(self, task: Task) -> Basis:
        """Choose at most ``n_basis`` rows."""
        residual, n_basis = _Residual(task, store=self.store), task.n_basis
        trace, block = residual.total, self.block_size or max(16, n_basis // 5)
        least = self.tol * trace
        while len(residual.index) < n_basis and residual.total > least and residual.any_left:
            if self.pivots == "greedy":
                chosen = _greedy_pivots(residual)
            else:
                chosen = _random_pivots(residual, block, task.random_state)
            if len(chosen):
                residual.extend(chosen[: n_basis - len(residual.index)], least=least)
        left = residual.total
        reached = left <= least and residual.any_left
        why = "the tolerance is reached" if reached else "they span all rows to rounding"
        return task.basis(residual.index, why, residual_trace=left / trace if trace > 0 else 0.0)


class _Residual:
    """What the pivots chosen so far leave of each row's k(x, x)."""

    def __init__(self, task: Task, *, store: bool) -> None:
        n_rows = task.rows.n_rows
        self._task = task
        self.weights = np.ones(n_rows) if task.weights is None else task.weights
        # d(x), shape (n,): zero for rows that are chosen, spanned or of weight zero
        self.diagonal = kernel_diagonal(task.rows, task.kernel, executor=task.executor)
        self._rounding = _ROUNDINGS * float(np.finfo(np.float64).eps) * float(np.max(self.diagonal, initial=0.0))
        self.diagonal[self.weights <= 0] = 0.0
        self.index: IntArray = np.empty(0, dtype=np.intp)
        self._points: FloatArray = np.empty((0, task.rows.n_features))
        self._lower: FloatArray = np.empty((0, 0))
        self._factor = np.empty((n_rows, min(task.n_basis, n_rows))) if store else None

    @property
    def total(self) -> float:
        """Σ ω d, what is left of the trace."""
        return float(np.sum(self.weights * self.diagonal))

    @property
    def any_left(self) -> bool:
        """Whether a row is left that the pivots do not span."""
        return bool(np.max(self.diagonal, initial=0.0) > self.lost())

    def lost(self, more: int = 0) -> float:
        """What rounding may leave of a row that is spanned, after so many more pivots."""
        return self._rounding * (len(self.index) + more + 1)

    def block(self, candidates: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Points of some rows, B = K_PS L⁻ᵀ, and their residual kernel matrix K_PP - BBᵀ."""
        points, kernel = self._task.points(candidates), self._task.kernel
        B: FloatArray = np.empty((len(points), 0))
        if len(self.index):
            B = np.asarray(solve_triangular(self._lower, kernel(self._points, points), lower=True).T)
        return points, B, np.asarray(kernel(points) - B @ B.T)

    def extend(self, new: IntArray, *, least: float = 0.0) -> None:
        """Make rows pivots, in their order, without those that are not needed to bring the total down to ``least``."""
        rows, kernel, executor = self._task.rows, self._task.kernel, self._task.executor
        points, B, left = self.block(new)
        try:
            C = np.linalg.cholesky(left)
        except np.linalg.LinAlgError:  # by rounding: try fewer
            if len(new) == 1:
                self.diagonal[new] = 0.0
            else:
                self.extend(new[: len(new) // 2], least=least)
            return
        everything, inverse = np.concatenate([self._points, points]), solve_triangular(C, np.eye(len(new)), lower=True)
        # T with [k_S, k_P] T = C⁻¹(k_P - BL⁻¹k_S), a row for each x
        old = solve_triangular(self._lower, B.T, lower=True, trans="T") if len(self.index) else B.T
        T = np.concatenate([-old @ inverse.T, inverse.T])
        if self._factor is None:
            squares = squared_projections(rows, kernel, everything, T, executor=executor)
        else:
            extend_factor(rows, kernel, points, B, inverse, self._factor, executor=executor)
            columns = self._factor[:, len(self.index) : len(everything)]
            squares = np.einsum("ij,ij->i", columns, columns)
        lowered = np.maximum(self.diagonal - squares, 0.0)
        if least > 0 and np.sum(self.weights * lowered) <= least:
            gains = column_squares(rows, kernel, everything, T, self._task.weights, executor=executor)
            needed = 1 + int(np.searchsorted(np.cumsum(gains), self.total - least))
            if needed < len(new):
                self.extend(new[:needed])
                return
        self._lower = np.block([[self._lower, np.zeros((len(self.index), len(new)))], [B, C]])
        self.index, self._points = np.concatenate([self.index, new]), everything
        lowered[new] = 0.0
        self.diagonal = np.where(lowered > self.lost(), lowered, 0.0)


def _greedy_pivots(residual: _Residual) -> IntArray:
    """Rows with the largest residual, one after the other, as far as they are known without a pass over the rows.

    Residuals only fall: as long as the largest within a pool is not below what those outside had, it is the largest of
    all. Of equals the first row is taken.
    """
    diagonal = residual.diagonal
    size = min(_POOL, len(diagonal))
    limit = np.partition(diagonal, -size)[-size]
    pool = np.flatnonzero(diagonal > limit)
    pool = np.sort(np.concatenate([pool, np.flatnonzero(diagonal == limit)[: size - len(pool)]]))
    pool = pool[diagonal[pool] > 0]  # rows that are chosen, spanned or of weight zero have nothing left
    outside = limit if size < len(diagonal) else 0.0
    _, _, left = residual.block(pool)
    residual.diagonal[pool[np.diagonal(left) <= residual.lost()]] = 0.0
    chosen: list[int] = []
    while len(chosen) < len(pool):
        values = np.diagonal(left)
        best = int(np.argmax(values))
        enough = max(outside, _SMALLEST_PIVOT * diagonal[pool[best]]) if chosen else 0.0
        if values[best] <= residual.lost(len(chosen)) or values[best] < enough:
            break
        chosen.append(best)
        left = _eliminated(left, best)
    return pool[chosen]


def _eliminated(left: FloatArray, pivot: int) -> FloatArray:
    """What a pivot leaves of a residual matrix."""
    column = left[:, pivot] / np.sqrt(left[pivot, pivot])
    left = left - np.outer(column, column)
    left[pivot], left[:, pivot] = 0.0, 0.0
    return left


def _random_pivots(residual: _Residual, block: int, random_state: np.random.RandomState) -> IntArray:
    """Rows drawn one after the other in proportion to their residual given those before.

    A block is drawn in proportion to the residuals before it, and each of its rows is kept with the share that those
    kept before leave of its residual.
    """
    weighted = residual.weights * residual.diagonal
    proposed = random_state.choice(len(weighted), size=block, p=weighted / np.sum(weighted))
    draws = random_state.uniform(size=block)
    _, _, left = residual.block(proposed)
    before = np.diagonal(left).copy()
    residual.diagonal[proposed[before <= residual.lost()]] = 0.0
    chosen: list[int] = []
    for i in range(block):
        least = max(residual.lost(len(chosen)), _SMALLEST_PIVOT * before[i] if chosen else 0.0)
        if draws[i] * before[i] < left[i, i] and left[i, i] > least:
            chosen.append(i)
            left = _eliminated(left, i)
    return proposed[chosen]
