r"""Forward selection of kernel functions by least squares: the one that lowers the objective most, one after the other.

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

from dataclasses import field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray, IntArray
from mercer._validation import Integral, Interval, Real, StrOptions, parameters
from mercer.basis.base import Basis, BasisStrategy, Task
from mercer.engine import are_counts, kernel_diagonal, kernel_matrix, kernel_times, number_of
from mercer.kernels import Kernel

GREEDY_CONSTRAINTS: dict[str, list[Any]] = {
    "candidates": [None, Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0, 1, closed="left")],
}
_PATIENCE = 10  # functions added without a better score before GCV stops
# A function whose squared norm falls below this share when those chosen are projected out is spanned by them.
_SPANNED = 1e-13
_SQUARABLE = (1e-100, 1e100)  # kernel values outside are scaled before they are squared


@stored
@parameters
class ForwardSelection(BasisStrategy):
    """Greedy forward selection by orthogonal least squares (OLS), supervised.

    Each step adds the candidate that lowers the squared error of the targets most, all outputs together. Of 59
    candidates drawn at random the best is among the best 5 % of all with 95 % certainty, at a cost that does not grow
    with their number.

    Cost: n·m²·c/2 multiply-adds for c candidates per step (with all rows as candidates n² kernel values per step);
    memory n·(m + c), with all rows as candidates also a copy of them.

    Parameters
    ----------
    candidates : int or None, default=59
        Rows tried per step; None for all.
    stop : {"budget", "gcv"}, default="budget"
        "budget" stops at ``n_basis``; "gcv" where generalised cross-validation is least, or at ``n_basis``.
    tol : float, default=0.0
        Stop when the best gain falls below this share of the targets' sum of squares.

    References
    ----------
    S. Chen, C. F. N. Cowan, P. M. Grant: Orthogonal least squares learning algorithm for radial basis function
    networks, 1991. A. J. Smola, P. L. Bartlett: Sparse greedy Gaussian process regression, NIPS 2000 (the rule of 59).

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromRegressor
    >>> from mercer.basis import ForwardSelection
    >>> X = np.linspace(0, 6, 1000)[:, np.newaxis]
    >>> basis = ForwardSelection(tol=1e-6)
    >>> model = NystromRegressor("gaussian", basis=basis, noise=1e-6, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.rank_ < 10
    True
    """

    candidates: int | None = field(default=59, kw_only=False)
    stop: Literal["budget", "gcv"] = "budget"
    tol: float = 0.0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GREEDY_CONSTRAINTS,
        "stop": [StrOptions({"budget", "gcv"})],
    }

    @property
    def needs_targets(self) -> bool:
        """Whether there is no choice without targets."""
        return True

    def choose(self, task: Task) -> Basis:
        """Choose at most ``n_basis`` rows."""
        return grow(task, 0.0, self.candidates, self.tol, gcv=self.stop == "gcv")


def grow(task: Task, noise: float, candidates: int | None, tol: float, *, gcv: bool = False) -> Basis:
    """Add functions until the room is used, nothing is gained, or GCV has passed its least."""
    room, why = min(task.n_basis, task.rows.n_rows), ""
    weights = np.ones(task.rows.n_rows) if task.weights is None else task.weights
    number = number_of(weights, counted=are_counts(weights))
    fit = _AllRows(task, noise) if candidates is None else _GrowingFit(task, noise, candidates)
    least, scores = tol * fit.squares, list[float]()
    while len(fit.index) < room:
        candidate = fit.next_best() if fit.squares > 0 and np.any(fit.free) else None
        if candidate is None or not candidate.gain > least:
            why = f"no candidate gains {tol:g} of the sum of squares" if tol > 0 else "no other row gains anything"
            break
        if fit.add(candidate) and gcv:
            # what is left of the objective, over (1 - m/n)²
            share = 1.0 - len(fit.index) / number
            scores.append(fit.squares / share**2 if share > 0 else np.inf)
            if len(scores) - int(np.argmin(scores)) > _PATIENCE:
                break
    size = int(np.argmin(scores)) + 1 if scores else len(fit.index)
    if scores and (size < len(fit.index) or not why):
        why = "generalised cross-validation is least there"
    return task.basis(np.array(fit.index[:size], dtype=np.intp), why or "there are no more rows")


class _Candidate(NamedTuple):
    """A row that may be chosen, and by how much it would lower the objective."""

    row: int
    column: FloatArray  # (n,), values of its function at the rows, times the roots of the weights
    products: FloatArray  # (m,), with the functions chosen so far
    gain: float


class _GrowingFit:
    """Functions chosen so far, and what some rows drawn at random would gain; memory n × n_basis.

    Units of targets and kernel do not matter to the choice: both are scaled so that they can be squared.
    """

    def __init__(self, task: Task, noise: float, number: int = 1) -> None:
        n_rows, targets, weights = task.rows.n_rows, task.targets, task.weights
        self.task, self.kernel, self.noise, self._number = task, task.kernel, noise, number
        size = float(np.max(kernel_diagonal(task.rows, task.kernel, executor=task.executor), initial=0.0))
        if size > 0 and not _SQUARABLE[0] < size < _SQUARABLE[1]:
            self.kernel, self.noise = task.kernel * (1.0 / size), noise / size
        self.roots = np.ones(n_rows) if weights is None else np.sqrt(weights / np.max(weights))
        # Rows of positive weight that are not chosen yet, nor known to be spanned by those that are.
        self.free = self.roots > 0
        largest = float(np.max(np.abs(targets), initial=0.0))
        self.targets = self.roots[:, np.newaxis] * (targets / largest if largest > 0 else targets)
        self._room = np.empty((n_rows, min(task.n_basis, n_rows)), order="F")
        self.index: list[int] = []
        self.points: FloatArray = np.empty((0, task.rows.n_features))
        self.beta: FloatArray = np.empty((0, 0))
        self.projections: FloatArray = np.empty((0, targets.shape[1]))
        self.squares = float(np.sum(self.targets**2))  # what is left of the objective

    @property
    def values(self) -> FloatArray:
        """Orthonormal functions at the rows, shape (n, m)."""
        return self._room[:, : len(self.index)]

    def next_best(self) -> _Candidate | None:
        """The best of some free rows drawn at random; while none of them gains anything, of others."""
        free, number, random_state = np.flatnonzero(self.free), self._number, self.task.random_state
        first = free if len(free) <= number else random_state.choice(free, number, replace=False)
        candidate = self.best(first)
        if candidate.gain > 0:
            return candidate
        others = random_state.permutation(np.setdiff1d(free, first))
        tried = (self.best(others[start : start + number]) for start in range(0, len(others), number))
        return next((candidate for candidate in tried if candidate.gain > 0), None)

    def best(self, candidates: IntArray) -> _Candidate:
        """The candidate that would lower the objective most."""
        points = self.task.points(candidates)
        columns = kernel_matrix(self.task.rows, self.kernel, points, executor=self.task.executor)
        columns *= self.roots[:, np.newaxis]
        r = self.values.T @ columns
        if self.noise and self.index:
            r += self.noise * (self.beta.T @ self.kernel(self.points, points))
        norms = np.einsum("ij,ij->j", columns, columns) + self.noise * self.kernel.diagonal(points)
        left = norms - np.einsum("ij,ij->j", r, r)
        gains = _gains(columns.T @ self.targets - r.T @ self.projections, left, norms)
        self.free[candidates[left <= _SPANNED * norms]] = False  # they stay spanned
        best = int(np.argmax(gains))
        return _Candidate(int(candidates[best]), columns[:, best].copy(), r[:, best].copy(), float(gains[best]))

    def add(self, candidate: _Candidate) -> bool:
        """Choose a row, unless those chosen span it to rounding; either way it is not free any more."""
        points = np.concatenate([self.points, self.task.points(np.array([candidate.row]))])
        cross = self.kernel(points)
        coefficients = np.append(-self.beta @ candidate.products, 1.0)
        # Projected out twice, the rest is orthogonal to rounding.
        new = candidate.column - self.values @ candidate.products
        r = self.values.T @ new + self.noise * (self.beta.T @ (cross[:-1] @ coefficients))
        new -= self.values @ r
        coefficients[:-1] -= self.beta @ r
        norm = float(np.sqrt(max(float(new @ new + self.noise * coefficients @ cross @ coefficients), 0.0)))
        self.free[candidate.row] = False
        if norm == 0:
            return False
        g = new @ self.targets / norm
        self._room[:, len(self.index)] = new / norm
        corner = np.zeros((1, len(self.index)))
        self.beta = np.block([[self.beta, coefficients[:-1, np.newaxis] / norm], [corner, 1.0 / norm]])
        self.index.append(candidate.row)
        self.points, self.projections = points, np.concatenate([self.projections, g[np.newaxis]])
        self.squares = max(self.squares - float(np.sum(g**2)), 0.0)
        return True


class _AllRows(_GrowingFit):
    """Gains of all rows, kept up to date by one product with the kernel matrix per function; it is not stored."""

    def __init__(self, task: Task, noise: float) -> None:
        super().__init__(task, noise)
        self._known, self._every = 0, task.points(np.arange(task.rows.n_rows))
        roots = self.roots[:, np.newaxis]
        self._numerators = self._times(self.kernel, self._every, roots * self.targets)
        squares = self._times(self.kernel * self.kernel, self._every, roots**2)[:, 0]
        self._norms = squares + self.noise * kernel_diagonal(task.rows, self.kernel, executor=task.executor)
        self._left = self._norms.copy()

    def next_best(self) -> _Candidate:
        """The row with the largest gain, the first of equals."""
        if self._known < len(self.index):  # account for the function that was chosen last
            r = self._times(self.kernel, self._every, self.roots[:, np.newaxis] * self.values[:, -1:])
            if self.noise:
                r += self.noise * self._times(self.kernel, self.points, self.beta[:, -1:])
            self._numerators -= r * self.projections[-1]
            self._left -= r[:, 0] ** 2
            self._known = len(self.index)
        gains = _gains(self._numerators, self._left, self._norms)
        gains[~self.free] = 0.0
        row = int(np.argmax(gains))
        return self.best(np.array([row]))._replace(gain=float(gains[row]))

    def _times(self, kernel: Kernel, points: FloatArray, coefficients: FloatArray) -> FloatArray:
        return kernel_times(self.task.rows, kernel, points, coefficients, executor=self.task.executor)


def _gains(numerators: FloatArray, left: FloatArray, norms: FloatArray) -> FloatArray:
    regular = left > _SPANNED * norms
    squares = np.einsum("ij,ij->i", numerators, numerators)
    return np.where(regular, squares / np.where(regular, left, 1.0), 0.0)
