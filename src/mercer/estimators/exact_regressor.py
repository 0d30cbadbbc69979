"""Regression on the full kernel matrix."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.engine import Rows
from mercer.estimators.exact_machine import ExactMachine
from mercer.estimators.regression import KernelRegressor, Targets
from mercer.estimators.shell import all_or_nothing, read_table
from mercer.methods.exact import leave_one_out

__all__ = ["ExactRegressor"]


@stored
class ExactRegressor(KernelRegressor, ExactMachine):
    r"""Kernel regression on the full kernel matrix: Gaussian process, kernel ridge, or LS-SVM.

    Minimises :math:`\sum_i\omega_i(y_i - f(x_i) - b)^2 + \lambda|f|^2` over functions of the kernel's space, which is
    the posterior mean of a Gaussian process with noise variance :math:`\lambda/\omega_i`.

    Time grows with n³ and memory with n² (one matrix); with ``solver="cg"`` with n² per iteration and n.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        A name ("gaussian", "matern", "linear", "polynomial"), a kernel of ``mercer.kernels``, a function of two
        matrices, or "precomputed": X is then the kernel matrix. By name, length scales are the median distance of the
        rows.
    noise : float, default=0.1
        λ, added to the diagonal of the kernel matrix. 0 interpolates.
    intercept : bool, default=False
        Whether to add a constant b that is not penalised; True gives the LS-SVM.
    solver : {"cholesky", "cg"}, default="cholesky"
        "cg" never stores the kernel matrix; it gives no error bars.
    tol : float, default=1e-6
        Relative residual at which conjugate gradients stop.
    max_iter : int, default=1000
        Iterations after which conjugate gradients give up, with a ``ConvergenceWarning``.
    random_state : int, RandomState or None, default=None
        For the rows of the preconditioner, and for those on which a median distance is found.
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
    jitter_ : float
        What was added to the diagonal beyond the noise; usually 0.
    n_iter_ : int
        Iterations of the solver.
    expansion_ : KernelExpansion
        The model.

    See Also
    --------
    NystromRegressor : The same on a basis of few points, for many rows.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import ExactRegressor
    >>> from mercer.kernels import Gaussian
    >>> X = np.linspace(0, 6, 30)[:, np.newaxis]
    >>> model = ExactRegressor(Gaussian(length_scale=1.0), noise=1e-4).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5], [30.0]], return_std=True)
    >>> mean.round(3), std.round(3)
    (array([0.997, 0.   ]), array([0.005, 1.   ]))
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and targets y (n,) or (n, p); a weight ω divides the noise of its row."""
        self._validate_params()
        with all_or_nothing(self):
            targets = Targets()
            self._fit(read_table(self, X, y, sample_weight, encode=targets, reset=True), keep_factor=True)
            self._flat = targets.flat
        return self

    def loo_residuals(self) -> FloatArray:
        """Leave-one-out residuals of the training rows, exact and without a second fit; NaN for rows of weight zero.

        Row i without itself is predicted with an error of α_i / M⁻¹_ii, with M the system that was solved: H, bordered
        by ones if there is an intercept. Cost: n³/3.
        """
        factor, coefficients = self._need_factor("loo_residuals"), self.expansion_.coefficients
        residuals = np.full((self._n_rows, coefficients.shape[1]), np.nan)
        residuals[self._index] = leave_one_out(factor, coefficients, self._eta)
        return self.outputs_.predict(residuals)

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        self._need_factor("return_std")
        return super()._standard_deviations(rows)

    def _covariance(self, rows: Rows) -> FloatArray:
        self._need_factor("return_cov")
        return super()._covariance(rows)
