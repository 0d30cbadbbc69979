"""What the compact estimators share: parameters, fit and what is reported."""

from __future__ import annotations

import warnings
from abc import ABC
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator

from mercer._stored import Sometimes
from mercer._stored.checks import check_estimator, need
from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_random_state
from mercer.engine import ArrayTable, Rows, SparseKernel
from mercer.estimators.shell import make_executor
from mercer.exceptions import StarvedWarning
from mercer.kernels import Compact
from mercer.methods.compact import Reweight, fit_compact, resolve_compact
from mercer.methods.compact_system import CompactSystem, Options
from mercer.model import KernelExpansion, as_dtype

__all__ = ["CompactMachine"]

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

    def _fit(self, table: ArrayTable, reweight: Reweight | None = None) -> CompactSystem:
        """Fit, and return the system; ``reweight`` makes of residuals (n, p) and weights those of a second one."""
        if self.solver == "cg" and self.noise == 0:
            msg = "noise must be above zero with solver='cg'; use solver='cholesky' to interpolate."
            raise ValueError(msg)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        executor = make_executor(self)
        kernel = resolve_compact(self.kernel, table, rng=rng, random_state=self.random_state, executor=executor)
        fit = fit_compact(
            table, kernel, noise=float(self.noise), intercept=bool(self.intercept), options=self._options(),
            reweight=reweight, rng=rng, executor=executor,
        )  # fmt: skip
        self._note_neighbours(fit.n_neighbours)
        factor = fit.system.factor
        self.kernel_, self.nnz_, self.n_iter_ = kernel, fit.system.gram.nnz, fit.system.n_iter
        self.solver_ = "cg" if factor is None else "cholesky"
        self.fill_in_ = None if factor is None else factor.fill_in
        self.min_eigenvalue_, self.condition_estimate_ = fit.min_eigenvalue, fit.condition
        if fit.robust_weights is not None:
            self.robust_weights_ = fit.robust_weights
        self.expansion_, self._sparse_kernel, self._eta = fit.expansion, fit.sparse_kernel, fit.eta
        return fit.system

    def _options(self) -> Options:
        # Conjugate gradients do not interpolate: see _fit.
        solver = self.solver if self.noise > 0 else "cholesky"
        return Options(solver, self.ordering, self.preconditioner, float(self.tol), int(self.max_iter))

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
