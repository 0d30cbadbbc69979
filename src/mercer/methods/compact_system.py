r"""The system of the LS-SVM on a sparse kernel matrix, :math:`H = K + \lambda W^{-1}`, and its solution.

Everything is in the order of places of the sparse kernel (see ``mercer.engine.sparse_kernel``).
"""

from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning

from mercer._stored import stored
from mercer._stored.checks import check_finite, check_shape, need
from mercer._typing import FloatArray, IntArray
from mercer.engine import Executor, Sequence, SparseGram, available_memory
from mercer.exceptions import NotPositiveDefiniteError, warn
from mercer.methods.compact_cost import Elimination, Request
from mercer.solvers.conjugate_gradient import conjugate_gradient
from mercer.solvers.dense import pivoted_cholesky
from mercer.solvers.lanczos import extreme_eigenvalues, stochastic_log_determinant
from mercer.solvers.preconditioners import Incomplete, Jacobi, NystromPreconditioner, Unchanged
from mercer.solvers.sparse_cholesky import SparseFactor, sparse_cholesky
from mercer.solvers.sparse_symbolic import canonical, count_fill, elimination_tree, ordering_permutation

_PART = 4096  # rows from whose factor the size of the whole is guessed
_SLACK = 3.0  # by which that guess may be wrong
_FACTORED = 10_000_000  # non-zeros of the factor up to which it is made: seconds, and 120 megabytes
_COARSE = 500  # points of the coarse level of the preconditioner
_RANK_TOLERANCE = 1e-10
_PROBES, _STEPS, _MOST_STEPS = 16, 60, 960  # of the stochastic log-determinant
_SAFE = 0.5  # share of the noise that negative eigenvalues of K may not reach into
_ABOVE = 1.01  # by which a noise that is chosen exceeds what is needed
_TOLERANCE = 0.05  # of eigenvalues, relative to their size or to the noise
_SPECTRUM_STEPS = 30  # of Lanczos, for the condition number
_LEAST_STEPS, _DEFINITE_STEPS, _MOST_DEFINITE_STEPS = 50, 400, 4000  # until the least eigenvalue is known
_DEFINITE_WORK = 1e9  # multiplications that may go into it: more steps for small matrices
_MANY_STEPS = 150  # of conjugate gradients, beyond which an incomplete factor is worth its making
_BYTES_FOR_INCOMPLETE = 60  # per entry of the matrix, while an incomplete factor is made
_BYTES_OF_FACTOR = 12  # per entry; entries are not counted beyond what memory could hold
_BYTES_WHILE_FACTORING = 48  # per entry of the factor: an index, a number, and what SuperLU needs besides

Preconditioner: TypeAlias = Incomplete | Jacobi | Unchanged | NystromPreconditioner


@stored
@dataclass(frozen=True)
class Options:
    """How the system is solved; see ``CompactRegressor``."""

    solver: str
    ordering: Any
    preconditioner: str | None
    tol: float
    max_iter: int


@stored
class CompactSystem:
    """H = K + λW⁻¹, factored or not."""

    gram: SparseGram
    diagonal: FloatArray  # (n,), of λW⁻¹
    options: Options
    n_iter: int  # of the last solution; 1 with a factor
    factor: SparseFactor | None
    _precondition: Preconditioner | None

    def __init__(self, gram: SparseGram, diagonal: FloatArray, options: Options) -> None:
        self.gram, self.diagonal, self.options = gram, diagonal, options
        self.n_iter = 1
        self.factor = self._factored()
        self._precondition = None  # until it is needed
        self.rebuild_stored()

    def rebuild_stored(self) -> None:
        """Begin without a factor for variances: a file does not depend on what was predicted."""
        self._late: SparseFactor | None = None
        self._rows_without = self._rows_refused = (
            0  # whose variances were found without it; for which it was not worth it
        )

    def __getstate__(self) -> dict[str, Any]:
        # What is made of functions cannot be pickled, and is made again where it is needed.
        state = vars(self) | {"_late": None, "_rows_without": 0, "_rows_refused": 0}
        return state | ({"_precondition": None} if self.options.preconditioner == "two-level" else {})

    def check_stored(self) -> None:
        """Refuse a diagonal, a factor or a preconditioner of another size."""
        n = self.gram.n_points
        check_shape(self.diagonal, (n,), "noises")
        check_finite(self.diagonal, "noises")
        for part in (self.factor, self._precondition):
            pivots = getattr(part, "pivots", getattr(part, "diagonal", None))
            need(pivots is None or len(pivots) == n, "a factor is not of the size of its matrix.")
        need(self.factor is not None or np.all(self.diagonal > 0), "noises are not positive.")

    def with_diagonal(self, diagonal: FloatArray) -> Self:
        """The same for another λW⁻¹, factored in the same order if this one is."""
        other = copy(self)
        other.diagonal, other.n_iter, other._precondition = diagonal, 1, None
        other.rebuild_stored()
        if self.factor is not None:
            other.factor = sparse_cholesky(self.gram.plus_diagonal(diagonal), ordering=self.factor.order)
        return other

    def inverse_entries(self, places: IntArray) -> FloatArray:
        """Entries H⁻¹_ii: exact with a factor, else from the nearest neighbours, which is less by up to a percent."""
        if self.factor is not None:
            return self.factor.inverse_entries(places)
        return self.gram.local_inverse_entries(places, self.diagonal)

    def apply(self, vectors: FloatArray, executor: Executor) -> FloatArray:
        """H v for vectors (n, p)."""
        return self.gram.times(vectors, executor=executor) + self.diagonal[:, np.newaxis] * vectors

    def solve(self, right: FloatArray, executor: Executor) -> FloatArray:
        """H⁻¹ right, for right-hand sides (n, p)."""
        if self.factor is not None:
            return self.factor.solve(right)
        if self._precondition is None:
            self._precondition = self._make_preconditioner()
        options, apply, verbose = self.options, partial(self.apply, executor=executor), executor.verbose
        right = right.astype(np.float64, copy=False)  # or steps would be rounded to float32
        result = conjugate_gradient(
            apply, right, precondition=self._precondition, tol=options.tol, max_iter=options.max_iter, verbose=verbose
        )
        self.n_iter = result.iterations
        if not result.converged:
            warn(
                f"conjugate gradients stopped after {result.iterations} iterations at a relative residual of "
                f"{result.residual:.1e}, above tol={options.tol:.1e}: the model is not the solution asked for. "
                "Raise max_iter, tol or noise, or use another preconditioner.",
                ConvergenceWarning,
            )
        return result.value

    def log_determinant(self, rng: np.random.Generator, executor: Executor) -> tuple[float, float]:
        """Logarithm of |H|, and its standard error: 0 where it is known from a factor."""
        if self.factor is not None:
            return self.factor.log_determinant, 0.0
        seed, steps, before = int(rng.integers(2**31)), _STEPS, np.inf
        apply, n_points = partial(self.apply, executor=executor), self.gram.n_points
        while True:
            rng = np.random.default_rng(seed)
            value, error = stochastic_log_determinant(apply, n_points, n_probes=_PROBES, n_steps=steps, rng=rng)
            # With too few steps the estimate is biased, which the spread of the probes does not tell.
            change = abs(value - before)
            if change <= error or steps >= _MOST_STEPS:
                return value, float(np.hypot(error, change))
            before, steps = value, 2 * steps

    def condition(self, least: float, rng: np.random.Generator, executor: Executor) -> float:
        """Estimate of the condition number of H, from above if there is noise; ``least`` bounds eigenvalues of K."""
        noise, apply, n = float(np.min(self.diagonal)), partial(self.apply, executor=executor), self.gram.n_points
        found = extreme_eigenvalues(apply, n, tol=_TOLERANCE, max_iter=_SPECTRUM_STEPS, rng=rng, scale=noise)
        # The largest eigenvalue is found at once, the least slowly and from above: noise bounds it from below.
        return found.largest / (noise + least if noise + least > 0 else found.smallest)

    def _factored(self) -> SparseFactor | None:
        """The factor, if it is asked for, or if it is small."""
        choose = self.options.solver == "auto"
        if self.options.solver == "cg" or (choose and self._fills_up(_FACTORED)):
            return None
        matrix, available = self.gram.plus_diagonal(self.diagonal), available_memory()
        permutation = ordering_permutation(matrix, self.options.ordering)
        countable = 2**62 if available is None else available // _BYTES_OF_FACTOR
        n_entries = count_fill(matrix, permutation, most=_FACTORED if choose else countable)
        if choose and n_entries > _FACTORED:
            return None
        needed = _BYTES_WHILE_FACTORING * n_entries
        if available is not None and needed > available:
            raise MemoryError(
                f"the factor of the kernel matrix would have at least {n_entries:.2g} entries, and need "
                f"{needed / 1e9:.1f} GB to make, where {available / 1e9:.1f} GB are available. Use solver='cg', or a "
                "smaller length scale."
            )
        return sparse_cholesky(matrix, ordering=permutation)

    def factor_for(self, n_rows: int, executor: Executor) -> SparseFactor | None:
        """The factor, if there is one, or if variances of so many rows more are cheaper with it.

        Rows that were asked for before count, too: what was spent on them would have been saved. One thread at a time.
        """
        if self.factor is not None or self._late is not None:
            return self.factor or self._late
        asked = self._rows_without + n_rows
        workers = int(getattr(executor, "n_jobs", 1))
        request = Request(asked, self.gram.n_points, self.gram.nnz, self.n_iter, workers)
        obstacle = "solver='cg' makes no factor, as solver='auto' does where that is cheaper and fits into memory"
        if self.options.solver == "auto":
            obstacle = "the factor of the matrix would take longer"
            # An analysis that came to nothing is not worth repeating for a few rows more.
            if request.is_worth_a_look and asked >= 2 * self._rows_refused:
                self._rows_refused, obstacle = asked, self._factor_late(request)
        self._rows_without = asked
        told = request._replace(n_rows=n_rows).warning(obstacle) if self._late is None else None
        if told is not None:
            warn(told, UserWarning)
        return self._late

    def _factor_late(self, request: Request) -> str:
        """Make the factor if it is cheaper and fits; else why not."""
        available = available_memory()
        fitting = np.inf if available is None else available / _BYTES_WHILE_FACTORING
        most, reason = min(request.most_entries, fitting), "the factor of the matrix would take longer"
        if fitting < request.most_entries:
            reason = (
                f"the factor of the matrix does not fit into the {(available or 0) / 1e9:.1f} GB of memory available"
            )
        if self._fills_up(most):
            return reason
        matrix = self.gram.plus_diagonal(self.diagonal)
        permutation = ordering_permutation(matrix, self.options.ordering)
        parent, counts = elimination_tree(canonical(matrix), permutation, int(min(most, 2.0**62)))
        if np.sum(counts) > most:
            return reason
        if not request.is_cheaper(Elimination.of(parent, counts)):
            return "the factor of the matrix would take longer"
        try:
            self._late = sparse_cholesky(matrix, ordering=permutation)
        except MemoryError:  # what is available is a guess
            return "there is not enough memory for the factor of the matrix"
        return ""

    def _fills_up(self, most: float) -> bool:
        """Whether the factor would be so large that not even its size is worth finding out, by that of small parts.

        Where rows fill many dimensions, the entries of the factor grow with n², and an ordering takes long to find.
        """
        if self.gram.n_points <= _PART:
            return False
        parts = (self.gram.as_scipy()[:size, :size] for size in (_PART // 2, _PART))
        half_fill, fill = (count_fill(part, ordering_permutation(part, "amd")) for part in parts)
        guess = fill * (self.gram.n_points / _PART) ** np.log2(fill / half_fill)
        return bool(guess > _SLACK * most)

    def _make_preconditioner(self) -> Preconditioner:
        name, prior = self.options.preconditioner, float(np.max(self.gram.values))  # which is on the diagonal of K
        if name == "auto":
            available = available_memory()
            fits = available is None or _BYTES_FOR_INCOMPLETE * self.gram.nnz < available
            name = "incomplete" if fits and self._takes_long() else "jacobi"
        if name is None:
            return Unchanged()
        if name == "jacobi":
            return Jacobi(self.diagonal + prior)
        if name == "incomplete":
            return Incomplete(self.gram.plus_diagonal(self.diagonal))
        return _two_level(self.gram, self.diagonal, prior)

    def _takes_long(self) -> bool:
        """Whether conjugate gradients would need many steps: √κ/2 · log(2/tol), with κ bounded by sums of rows."""
        ones = np.ones((self.gram.n_points, 1))
        largest = np.max(self.gram.times(ones, executor=Sequence())) + np.max(self.diagonal)
        steps = 0.5 * np.sqrt(largest / np.min(self.diagonal)) * np.log(2.0 / self.options.tol)
        return bool(steps > _MANY_STEPS)


class LeastEigenvalue(NamedTuple):
    """A lower bound of the least eigenvalue of K, and whether it is close."""

    bound: float
    is_close: bool

    @property
    def needed_noise(self) -> float:
        """The least noise with which K + λI is safely positive definite."""
        return max(0.0, -self.bound) / _SAFE * _ABOVE

    def check(self, noise: float) -> None:
        """Raise if K + λI is not safely positive definite."""
        if not self.bound > -_SAFE * noise:
            state = "is" if self.is_close else "could only be bounded by"
            raise NotPositiveDefiniteError(
                f"the least eigenvalue of the kernel matrix {state} {self.bound:.3g}, and the noise {noise:.3g} does "
                "not make up for it: the kernel is below the rule that guarantees definiteness, and on these rows that "
                "matters. Use a larger noise, a larger exponent or dimension of the kernel (None guarantees it), or a "
                "smaller length scale."
            )


def least_eigenvalue(gram: SparseGram, noise: float, rng: np.random.Generator, executor: Executor) -> LeastEigenvalue:
    """Bound the least eigenvalue of K from below, as closely as it takes to compare it with a noise."""
    scale = min(noise, 0.1 * float(np.max(gram.values, initial=0.0)))
    most = min(max(_DEFINITE_STEPS, int(_DEFINITE_WORK / gram.nnz)), _MOST_DEFINITE_STEPS)
    apply, n = partial(gram.times, executor=executor), gram.n_points
    found = extreme_eigenvalues(apply, n, tol=_TOLERANCE, min_iter=_LEAST_STEPS, max_iter=most, rng=rng, scale=scale)
    # A residual tells that some eigenvalue is that close, and may be smaller than its distance from the least: what is
    # subtracted is the tolerance, which is larger.
    bound = min(found.bound, found.smallest - _TOLERANCE * max(abs(found.smallest), scale))
    return LeastEigenvalue(bound, found.converged)


def _two_level(gram: SparseGram, diagonal: FloatArray, prior: float) -> NystromPreconditioner:
    """The inverse of Q + diag(K - Q) + λW⁻¹, with Q = K_nr K_rr⁻¹ K_rn on points spread over the places."""
    places = np.unique(np.linspace(0, len(diagonal) - 1, min(_COARSE, len(diagonal))).astype(np.intp))
    columns = gram.as_scipy()[:, places]  # (n, r), sparse
    factor = pivoted_cholesky(columns[places].toarray(), tolerance=_RANK_TOLERANCE)
    columns, lower = sparse.csr_array(columns[:, factor.order]), factor.lower
    # What the coarse points cannot represent of a row counts as noise of its own.
    spread = diagonal + np.maximum(prior - _squared_norms(columns, lower), 0.0)
    noise = float(np.min(spread))
    weights = noise / spread
    inner = (columns.T @ (columns * weights[:, np.newaxis])).toarray()
    half = solve_triangular(lower, inner, lower=True)
    return NystromPreconditioner(
        times=lambda vectors: columns @ vectors,
        transposed_times=lambda vectors: columns.T @ vectors,
        lower=lower,
        gram=solve_triangular(lower, half.T, lower=True),
        noise=noise,
        weights=weights,
    )


def _squared_norms(columns: Any, lower: FloatArray) -> FloatArray:
    """|L⁻¹k|² of sparse rows k (n, r), a few at a time."""
    norms = np.empty(columns.shape[0])
    for start in range(0, len(norms), _PART):
        white = solve_triangular(lower, columns[start : start + _PART].toarray().T, lower=True)
        norms[start : start + _PART] = np.einsum("ij,ij->j", white, white)
    return norms
