"""Regression on a kernel of compact support."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np

from mercer._stored import stored
from mercer._stored.checks import need
from mercer._typing import FloatArray, RandomState
from mercer._validation import check_is_fitted, check_random_state
from mercer.engine import Rows
from mercer.estimators.compact_machine import CompactMachine
from mercer.estimators.shell import KernelRegressor, Targets, all_or_nothing, make_executor, read_table
from mercer.methods.compact_system import CompactSystem
from mercer.methods.compact_variance import CompactVariance
from mercer.methods.robust_weights import hampel_weights

__all__ = ["CompactRegressor"]


@stored
class CompactRegressor(KernelRegressor, CompactMachine):
    r"""LS-SVM, or Gaussian process, on a kernel of compact support: the exact system, on a sparse matrix.

    Minimises :math:`\sum_i\omega_i(y_i - f(x_i) - b)^2 + \lambda|f|^2` over functions of the kernel's space. If the
    kernel reaches 50 of a million rows, the matrix has 50 million numbers, and a fit takes minutes.

    Time and memory grow with the number of neighbours of all rows, ``nnz_``; with ``solver="cholesky"`` with the
    non-zeros of the factor, ``fill_in_`` times as many. Use it for inputs of few dimensions and many rows: in many
    dimensions a row has no neighbours, or all rows are neighbours.

    A row without neighbours has the intercept as its mean, and the prior's standard deviation plus that of the
    intercept. Each standard deviation needs a solution of the system: milliseconds with a factor, much longer by
    conjugate gradients.

    Parameters
    ----------
    kernel : "wendland" or kernel of compact support, default="wendland"
        ``Wendland`` or ``CompactGaussian``. With ``length_scale="auto"``, as by name, rows have 50 neighbours on
        average.
        A kernel below the rule that guarantees definiteness is checked on the rows: see ``min_eigenvalue_``.
    noise : float, default=0.1
        λ, added to the diagonal of the kernel matrix.
    intercept : bool, default=True
        Whether to add a constant b that is not penalised, as the LS-SVM does.
    solver : {"auto", "cholesky", "cg"}, default="auto"
        "auto" factors the matrix where the factor is small, and uses conjugate gradients elsewhere.
    ordering : {"amd", "colamd", "rcm", "natural"}, default="amd"
        In which order rows are eliminated: minimum degree, minimum degree by columns, reverse Cuthill-McKee, or the
        order of cells in space.
    preconditioner : {"auto", "jacobi", "incomplete", "two-level"} or None, default="auto"
        Of conjugate gradients: the diagonal, an incomplete factor, or a Nyström approximation on 500 rows. "auto" is
        the incomplete factor if many iterations are expected, else the diagonal.
    tol : float, default=1e-6
        Relative residual at which conjugate gradients stop.
    max_iter : int, default=1000
        Iterations after which conjugate gradients give up, with a ``ConvergenceWarning``.
    robust : bool, default=False
        Whether to fit a second time with Hampel's weights, which give outliers of the first fit little or no weight.
    random_state : int, RandomState or None, default=None
        For samples of rows and start vectors.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with its parameters as numbers.
    coefficients_ : array (n,) or (n, p)
        Weights of the training rows (those of positive weight).
    intercept_ : float or array (p,)
    nnz_ : int
        Non-zeros of the kernel matrix.
    solver_ : str
        "cholesky" or "cg".
    fill_in_ : float or None
        Non-zeros of the factor, relative to those of the matrix's triangle; None without a factor.
    condition_estimate_ : float
        Of the condition number of the system: the largest eigenvalue, found by Lanczos, over what the noise leaves the
        least; so it is from above.
    min_eigenvalue_ : float or None
        What the Lanczos method finds of the kernel matrix's least eigenvalue, less its tolerance (a lower bound, unless
        an eigenvector is all but orthogonal to the random start); None if the kernel guarantees that none is negative.
    coverage_ : float
        Share of the training rows that have at least 5 neighbours; the others are starved.
    robust_weights_ : array (n,)
        Hampel's weights of the rows, with ``robust=True``.
    n_iter_ : int
        Iterations of the solver.
    expansion_ : KernelExpansion
        The model.

    See Also
    --------
    ExactRegressor : The same for any kernel, on a dense matrix.
    NystromRegressor : An approximation for smooth kernels.

    References
    ----------
    B. Hamers, J. A. K. Suykens, B. De Moor (2002). Compactly supported RBF kernels for sparsifying the Gram matrix in
    LS-SVM regression models. ICANN.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import CompactRegressor
    >>> from mercer.kernels import Wendland
    >>> X = np.random.default_rng(0).uniform(size=(2000, 2))
    >>> y = np.sin(6 * X[:, 0]) * np.cos(6 * X[:, 1])
    >>> model = CompactRegressor(Wendland(length_scale=0.2), noise=1e-3).fit(X, y)
    >>> mean, std = model.predict([[0.5, 0.5], [9.0, 9.0]], return_std=True)
    >>> mean.round(3), std.round(3)
    (array([-0.14 ,  0.001]), array([0.043, 1.007]))
    """

    _system: CompactSystem

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
        robust: bool = False,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            kernel, noise=noise, intercept=intercept, solver=solver, ordering=ordering, preconditioner=preconditioner,
            tol=tol, max_iter=max_iter, random_state=random_state, n_jobs=n_jobs, verbose=verbose,
        )  # fmt: skip
        self.robust = robust

    _parameter_constraints = CompactMachine._parameter_constraints | {"robust": ["boolean"]}

    def check_stored(self) -> None:
        """Refuse a system of other points, too."""
        super().check_stored()
        need(self._system.gram.n_points == len(self.expansion_.points), "the system of a model has other points.")

    def rebuild_stored(self) -> None:
        """Make the preconditioner that needs the kernel."""
        self._system.rebuild_preconditioner(self._sparse_kernel)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and targets y (n,) or (n, p); a weight ω divides the noise of its row."""
        self._validate_params()
        with all_or_nothing(self):
            if hasattr(self, "robust_weights_"):
                del self.robust_weights_
            targets = Targets()
            table = read_table(self, X, y, sample_weight, encode=targets, reset=True)
            self._system = self._fit(table, hampel_weights if self.robust else None)
            self._flat = targets.flat
        return self

    def log_determinant(self) -> tuple[float, float]:
        """Logarithm of |K + λW⁻¹| and its standard error: 0 with a factor, else it is estimated (Lanczos)."""
        check_is_fitted(self)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        return self._system.log_determinant(rng, make_executor(self))

    def _evaluate_rows(self, rows: Rows) -> FloatArray:
        return self._sparse_values(rows)

    def _variance(self) -> CompactVariance:
        return CompactVariance(self.kernel_, self._sparse_kernel, self._system, self._eta)

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        return np.sqrt(self._variance().variances(rows, make_executor(self)))

    def _covariance(self, rows: Rows) -> FloatArray:
        return self._variance().covariance(rows, make_executor(self))
