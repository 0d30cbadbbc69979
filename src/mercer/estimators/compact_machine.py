r"""The LS-SVM on a kernel of compact support: the exact system, on a sparse matrix.

===========  ==================  ============  ==========================================
symbol       code                shape         meaning
===========  ==================  ============  ==========================================
Ω            ``gram``            (n, n)        kernel matrix, sparse
H            ``system``          (n, n)        Ω + W⁻¹/γ, with 1/γ = ``noise``
η, ν         ``eta``, ``nu``     (n,), (n, p)  H⁻¹1 and H⁻¹y
s            ``total``                         1ᵀη
b            ``intercept``       (p,)          ηᵀy/s
α            ``coefficients``    (n, p)        ν - ηb
===========  ==================  ============  ==========================================

Variance of the function: :math:`k(x,x) - k^\top H^{-1}k + (1-\eta^\top k)^2/s`, the last term with an intercept only.
"""

from __future__ import annotations

import warnings
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator

from mercer._stored import Sometimes
from mercer._stored.checks import check_estimator, need
from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_random_state
from mercer.engine import Executor, Rows, SomeRows, SparseGram, SparseKernel, neighbour_distance
from mercer.estimators.compact_system import CompactSystem, Options, least_eigenvalue
from mercer.estimators.shell import Data, make_executor, resolve_kernel, rows_with_a_say
from mercer.exceptions import StarvedWarning
from mercer.kernels import Compact, Wendland
from mercer.model import KernelExpansion, as_dtype

__all__ = ["CompactMachine"]

Reweight: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]

_SAMPLE = 256  # rows whose neighbours are counted for length_scale="auto"
_NEIGHBOURS = 50  # that a row is to have on average with length_scale="auto"
_FEW = 5  # neighbours: fewer say little
_STARVED = 0.5  # share of rows with few neighbours at which a warning is due


class CompactMachine(BaseEstimator, ABC):
    """Parameters, fit and evaluation that regression and classification share."""

    kernel_: Compact
    coverage_: float
    min_eigenvalue_: float | None
    nnz_: int
    n_iter_: int
    solver_: str
    fill_in_: float | None
    condition_estimate_: float
    expansion_: KernelExpansion
    robust_weights_: Sometimes[FloatArray]
    _sparse_kernel: SparseKernel
    _eta: FloatArray | None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": "no_validation",  # type: ignore[dict-item]  # checked, with messages of its own, by _resolve
        "noise": [Interval(Real, 0, None, closed="left")],
        "intercept": ["boolean"],
        "solver": [StrOptions({"auto", "cholesky", "cg"})],
        "ordering": [StrOptions({"amd", "colamd", "rcm", "natural"})],
        "preconditioner": [StrOptions({"auto", "jacobi", "incomplete", "two-level"}), None],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        kernel: Any = "wendland",
        *,
        noise: float = 0.1,
        intercept: bool = True,
        solver: Literal["auto", "cholesky", "cg"] = "auto",
        ordering: Literal["amd", "colamd", "rcm", "natural"] = "amd",
        preconditioner: Literal["auto", "jacobi", "incomplete", "two-level"] | None = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.intercept = intercept
        self.solver = solver
        self.ordering = ordering
        self.preconditioner = preconditioner
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def check_stored(self) -> None:
        """Refuse a grid of other points than the expansion's."""
        (n, d), n_outputs = self.expansion_.points.shape, self.expansion_.coefficients.shape[1]
        check_estimator(self, n_outputs=n_outputs, n_features=d, flat=getattr(self, "_flat", False))
        need(self.kernel_.equals(self.expansion_.kernel), "a model has another kernel than its expansion.")
        need(self._sparse_kernel.is_of(self.kernel_, self.expansion_.points), "the grid of a model has other points.")
        need(self._eta is None or self._eta.shape == (n,), "the solution for the intercept has other points.")

    def _fit(self, data: Data, reweight: Reweight | None = None) -> CompactSystem:
        """Fit, and return the system; ``reweight`` makes of residuals (n, p) and weights those of a second one."""
        if self.solver == "cg" and self.noise == 0:
            msg = "noise must be above zero with solver='cg'; use solver='cholesky' to interpolate."
            raise ValueError(msg)
        threads = make_executor(self)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        kernel = self._resolve(data, rng, threads)
        index = rows_with_a_say(data, float(self.noise))
        points = data.rows.take(index).astype(np.float64, copy=False)
        sparse_kernel = SparseKernel(kernel, points, data.rows.dtype)
        sparse_kernel.check_memory(rng)
        gram, order = sparse_kernel.gram(executor=threads), sparse_kernel.order
        self._note_neighbours(np.diff(gram.starts) - 1)
        weights = (np.ones(len(index)) if data.weights is None else data.weights[index])[order]
        targets = data.targets[index][order]
        guaranteed = kernel.is_guaranteed(points.shape[1])
        noise = float(np.min(self.noise / weights))
        # Before the matrix is factored: an indefinite one has pivots that tell nothing.
        self.min_eigenvalue_ = None if guaranteed else least_eigenvalue(gram, noise, rng, threads)
        system = self._make_system(sparse_kernel, gram, weights)
        solution = _solve(system, targets, weights, threads, intercept=self.intercept)
        if reweight is not None:
            shares = reweight(solution.coefficients * system.diagonal[:, np.newaxis], weights)
            system = self._make_system(sparse_kernel, gram, weights * shares)
            solution = _solve(system, targets, weights * shares, threads, intercept=self.intercept)
            self.robust_weights_ = np.zeros(data.rows.n_rows)
            self.robust_weights_[index[order]] = shares
        self.kernel_, self.nnz_, self.n_iter_ = kernel, gram.nnz, solution.n_iter
        self.solver_ = "cg" if system.factor is None else "cholesky"
        self.fill_in_ = None if system.factor is None else system.factor.fill_in
        self.condition_estimate_ = system.condition(self.min_eigenvalue_ or 0.0, rng, threads)
        coefficients = np.empty_like(solution.coefficients)
        coefficients[order] = solution.coefficients
        self.expansion_ = KernelExpansion(kernel, points, coefficients, solution.intercept, None)
        self._sparse_kernel, self._eta = sparse_kernel, solution.eta
        return system

    def _make_system(self, kernel: SparseKernel, gram: SparseGram, weights: FloatArray) -> CompactSystem:
        # Conjugate gradients do not interpolate: see _fit.
        solver = self.solver if self.noise > 0 else "cholesky"
        options = Options(solver, self.ordering, self.preconditioner, float(self.tol), int(self.max_iter))
        return CompactSystem(kernel, gram, float(self.noise) / weights, options)

    def _resolve(self, data: Data, rng: np.random.Generator, threads: Executor) -> Compact:
        """The kernel with numbers for parameters."""
        kernel = (
            Wendland(length_scale="auto") if isinstance(self.kernel, str) and self.kernel == "wendland" else self.kernel
        )
        if not isinstance(kernel, Compact):
            msg = (
                "kernel must be 'wendland' or a kernel of compact support (Wendland, CompactGaussian), whose matrix is "
                f"sparse; got {self.kernel!r}. For others there are ExactRegressor and NystromRegressor."
            )
            raise ValueError(msg)  # noqa: TRY004  as for other values of this parameter
        if kernel.is_automatic:
            kernel.check(data.rows.n_features)
            index = np.arange(data.rows.n_rows) if data.weights is None else np.flatnonzero(data.weights)
            sample = data.rows.take(np.sort(rng.permutation(index)[:_SAMPLE]))
            distance = neighbour_distance(SomeRows(data.rows, index), sample, _NEIGHBOURS, executor=threads)
            kernel = kernel.with_radius(distance)
        resolved: Compact = resolve_kernel(kernel, data, self.random_state)
        return resolved

    def _note_neighbours(self, counts: IntArray) -> None:
        """Tell how many rows have few neighbours."""
        self.coverage_ = float(np.mean(counts >= _FEW))
        if 1.0 - self.coverage_ > _STARVED and len(counts) > _FEW:
            warnings.warn(
                f"{100 * (1 - self.coverage_):.0f} % of the rows have fewer than {_FEW} neighbours within the kernel's "
                "support: predictions there are little more than the intercept. Use a larger length scale or cut-off "
                "(length_scale='auto' gives 50 neighbours on average), or another kernel.",
                StarvedWarning,
                stacklevel=4,
            )

    def _sparse_values(self, rows: Rows) -> FloatArray:
        expansion = self.expansion_
        vectors = expansion.coefficients[self._sparse_kernel.order]
        values = self._sparse_kernel.times(rows, vectors, executor=make_executor(self))
        values += expansion.intercept
        return as_dtype(values, rows.dtype)


@dataclass(frozen=True)
class _Solution:
    coefficients: FloatArray  # (n, p), in places
    intercept: FloatArray  # (p,)
    eta: FloatArray | None
    n_iter: int


def _solve(
    system: CompactSystem, targets: FloatArray, weights: FloatArray, threads: Executor, *, intercept: bool
) -> _Solution:
    """Hη = 1 and Hν = y; b = ηᵀy/s, α = ν - ηb. Without an intercept Hα = y."""
    if not intercept:
        return _Solution(system.solve(targets, threads), np.zeros(targets.shape[1]), None, system.n_iter)
    # The model moves with a constant added to y: without y's offset nothing is lost to it.
    shift = np.average(targets, axis=0, weights=weights)
    right = np.column_stack([targets - shift, np.ones(len(targets))])
    solution = system.solve(right, threads)
    nu, eta = solution[:, :-1], solution[:, -1]
    b = eta @ right[:, :-1] / np.sum(eta)
    return _Solution(nu - np.outer(eta, b), b + shift, eta, system.n_iter)
