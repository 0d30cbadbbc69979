r"""The system of the LS-SVM on a sparse kernel matrix, :math:`H = K + \lambda W^{-1}`, and its solution.

Everything is in the order of places of the sparse kernel (see ``mercer.engine.sparse_kernel``).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning

from mercer._typing import FloatArray, IntArray
from mercer.engine import SparseGram, SparseKernel, Threads
from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.conjugate_gradient import conjugate_gradient
from mercer.solvers.dense import pivoted_cholesky
from mercer.solvers.lanczos import extreme_eigenvalues, smallest_eigenvalue, stochastic_log_determinant
from mercer.solvers.preconditioners import NystromPreconditioner
from mercer.solvers.sparse_cholesky import SparseFactor, sparse_cholesky
from mercer.solvers.sparse_preconditioners import Incomplete, Jacobi
from mercer.solvers.sparse_symbolic import count_fill, ordering_permutation

__all__ = ["CompactSystem", "Options", "least_eigenvalue"]

Operator = Callable[[FloatArray], FloatArray]

_PART = 4096  # rows from whose factor the size of the whole is guessed
_SLACK = 3.0  # by which that guess may be wrong
_FACTORED = 10_000_000  # non-zeros of the factor up to which it is made: seconds, and 120 megabytes
_COARSE = 500  # points of the coarse level of the preconditioner
_RANK_TOLERANCE = 1e-10
_PROBES, _STEPS = 16, 60  # of the stochastic log-determinant
_SAFE = 0.5  # share of the noise that negative eigenvalues of K may not reach into
_SPECTRUM_STEPS, _DEFINITE_STEPS = 30, 400  # of Lanczos: for the condition number; until the least eigenvalue is known


@dataclass(frozen=True)
class Options:
    """How the system is solved; see ``CompactRegressor``."""

    solver: str
    ordering: Any
    preconditioner: str | None
    tol: float
    max_iter: int


class CompactSystem:
    """H = K + λW⁻¹, factored or not.

    Attributes
    ----------
    factor : SparseFactor or None
    n_iter : int
        Iterations of the last solution; 1 with a factor.
    """

    def __init__(
        self, kernel: SparseKernel, gram: SparseGram, diagonal: FloatArray, options: Options, executor: Threads
    ) -> None:
        self.gram, self.diagonal, self.options = gram, diagonal, options
        self.n_iter = 1
        matrix = self._matrix() if options.solver != "cg" else None
        permutation = self._worth_factoring(matrix)
        self.factor: SparseFactor | None = None
        self._precondition: Operator | None = None
        if permutation is not None:
            self.factor = sparse_cholesky(matrix, ordering=permutation)
        else:
            self._precondition = self._make_preconditioner(kernel, executor)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_precondition": None}

    def apply(self, vectors: FloatArray, executor: Threads) -> FloatArray:
        """H v for vectors (n, p)."""
        return self.gram.times(vectors, executor=executor) + self.diagonal[:, np.newaxis] * vectors

    def solve(self, right: FloatArray, executor: Threads) -> FloatArray:
        """H⁻¹ right, for right-hand sides (n, p)."""
        if self.factor is not None:
            return self.factor.solve(right)
        options = self.options

        def report(iteration: int, residual: float) -> None:
            print(f"mercer: conjugate gradients: iteration {iteration}, residual {residual:.1e}", file=sys.stderr)

        # Squares of tiny or huge numbers are none: the columns are solved for at a size of 1.
        size = np.max(np.abs(right), axis=0, initial=0.0)
        size[size == 0] = 1.0
        result = conjugate_gradient(
            lambda vectors: self.apply(vectors, executor), right / size,
            precondition=self._precondition or Jacobi(self.diagonal + self._prior()),
            tol=options.tol, max_iter=options.max_iter, callback=report if executor.verbose else None,
        )  # fmt: skip
        self.n_iter = result.iterations
        if not result.converged:
            warnings.warn(
                f"conjugate gradients stopped after {result.iterations} iterations at a relative residual of "
                f"{result.residual:.1e}, above tol={options.tol:.1e}: the model is not the solution asked for. "
                "Raise max_iter, tol or noise, or use another preconditioner.",
                ConvergenceWarning,
                stacklevel=6,
            )
        return np.asarray(result.value * size)

    def log_determinant(self, rng: np.random.Generator, executor: Threads) -> tuple[float, float]:
        """Logarithm of |H|, and its standard error: 0 where it is known from a factor."""
        if self.factor is not None:
            return self.factor.log_determinant, 0.0
        return stochastic_log_determinant(
            lambda vectors: self.apply(vectors, executor),
            self.gram.n_points, n_probes=_PROBES, n_steps=_STEPS, rng=rng,
        )  # fmt: skip

    def condition(self, rng: np.random.Generator, executor: Threads) -> float:
        """Estimate of the condition number of H, from a few steps of Lanczos."""
        noise = float(np.min(self.diagonal))
        found = extreme_eigenvalues(
            lambda vectors: self.apply(vectors, executor), self.gram.n_points,
            tol=0.1 * _SAFE, max_iter=_SPECTRUM_STEPS, rng=rng, scale=noise,
        )  # fmt: skip
        # The least eigenvalue is found slowly, from above; the noise bounds it from below if K is positive definite.
        return found.largest.value / max(found.smallest.value, noise)

    def _prior(self) -> FloatArray:
        """The diagonal of K."""
        return np.full(self.gram.n_points, float(np.max(self.gram.values, initial=0.0)))

    def _matrix(self) -> Any:
        return self.gram.plus_diagonal(self.diagonal)

    def _worth_factoring(self, matrix: Any) -> IntArray | None:
        """The order in which H is to be factored, or None if it is not to be."""
        if self.options.solver == "cg" or (self.options.solver == "auto" and self._fills_up(matrix)):
            return None
        permutation = ordering_permutation(matrix, self.options.ordering)
        if self.options.solver == "auto" and count_fill(matrix, permutation) > _FACTORED:
            return None
        return permutation

    def _fills_up(self, matrix: Any) -> bool:
        """Whether the factor would be so large that not even its size is worth finding out, by that of small parts.

        Where rows fill many dimensions, the entries of the factor grow with n², and an ordering takes long to find.
        """
        half, whole = (sparse.csr_array(matrix[:size, :size]) for size in (_PART // 2, _PART))
        if self.gram.n_points <= _PART:
            return False
        fill = [count_fill(part, ordering_permutation(part, "amd")) for part in (half, whole)]
        growth = fill[1] * (self.gram.n_points / _PART) ** np.log2(fill[1] / fill[0])
        return bool(growth > _SLACK * _FACTORED)

    def _make_preconditioner(self, kernel: SparseKernel, executor: Threads) -> Operator:
        name = self.options.preconditioner
        if name is None:
            return lambda vectors: vectors
        if name == "jacobi":
            return Jacobi(self.diagonal + self._prior())
        if name == "incomplete":
            return Incomplete(self._matrix())
        return _two_level(kernel, self.diagonal)


def least_eigenvalue(gram: SparseGram, noise: float, rng: np.random.Generator, executor: Threads) -> float:
    """Bound the least eigenvalue of K from below; raise if K + λI is not safely positive definite."""
    found = smallest_eigenvalue(
        lambda vectors: gram.times(vectors, executor=executor), gram.n_points,
        tol=0.1 * _SAFE, max_iter=_DEFINITE_STEPS, rng=rng, scale=noise,
    )  # fmt: skip
    if not found.bound > -_SAFE * noise:
        state = "is" if found.converged else "could only be bounded by"
        msg = (
            f"the least eigenvalue of the kernel matrix {state} {found.bound:.3g}, and the noise {noise:.3g} does "
            "not make up for it: the kernel is below the rule that guarantees definiteness, and on these rows that "
            "matters. Use a larger noise, a larger exponent or dimension of the kernel (None guarantees it), or a "
            "smaller length scale."
        )
        raise NotPositiveDefiniteError(msg)
    return found.bound


def _two_level(kernel: SparseKernel, diagonal: FloatArray) -> NystromPreconditioner:
    """The inverse of diag + K_nr K_rr⁻¹ K_rn, on points spread over the places."""
    n_points = len(diagonal)
    places = np.unique(np.linspace(0, n_points - 1, min(_COARSE, n_points)).astype(np.intp))
    columns = kernel.columns(places)  # (n, r), sparse
    factor = pivoted_cholesky(columns[places].toarray(), tolerance=_RANK_TOLERANCE)
    columns, lower = sparse.csr_array(columns[:, factor.order]), factor.lower
    noise = float(np.min(diagonal))
    weights = noise / diagonal
    inner = (columns.T @ (columns * weights[:, np.newaxis])).toarray()
    half = solve_triangular(lower, inner, lower=True)
    gram = solve_triangular(lower, half.T, lower=True)

    def features(vectors: FloatArray) -> FloatArray:
        return np.asarray(columns @ solve_triangular(lower, vectors, lower=True, trans="T"))

    def transposed(vectors: FloatArray) -> FloatArray:
        return np.asarray(solve_triangular(lower, columns.T @ vectors, lower=True))

    return NystromPreconditioner(features, transposed, gram, noise, weights)
