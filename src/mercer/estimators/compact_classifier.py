"""Classification on a kernel of compact support."""

from __future__ import annotations

from typing import Any, Self

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.engine import Rows
from mercer.estimators.classification import KernelClassifier
from mercer.estimators.compact_machine import CompactMachine
from mercer.estimators.shell import all_or_nothing, read_table

__all__ = ["CompactClassifier"]


@stored
class CompactClassifier(KernelClassifier, CompactMachine):
    """LS-SVM classifier on a kernel of compact support: least squares on ±1, one class against the rest.

    The exact system, on a sparse matrix. Parameters are those of ``CompactRegressor``.

    Parameters
    ----------
    kernel : "wendland" or kernel of compact support, default="wendland"
        See ``CompactRegressor``, as for the other parameters.
    noise : float, default=0.1
        λ, added to the diagonal of the kernel matrix.
    intercept : bool, default=True
        Whether to add a constant that is not penalised, as the LS-SVM does.
    solver : {"auto", "cholesky", "cg"}, default="auto"
        Whether to factor the matrix.
    ordering : {"amd", "colamd", "rcm", "natural"}, default="amd"
        In which order rows are eliminated.
    preconditioner : {"auto", "jacobi", "incomplete", "two-level"} or None, default="auto"
        Of conjugate gradients.
    tol : float, default=1e-6
        Relative residual at which conjugate gradients stop.
    max_iter : int, default=1000
        Iterations after which conjugate gradients give up, with a ``ConvergenceWarning``.
    random_state : int, RandomState or None, default=None
        For samples of rows and start vectors.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : array (classes,)
    kernel_ : Kernel
        The kernel with its parameters as numbers.
    coefficients_ : array (n, outputs)
        Weights of the training rows: one output for two classes, one per class for more.
    intercept_ : array (outputs,)
    nnz_, solver_, fill_in_, condition_estimate_, min_eigenvalue_, coverage_, n_iter_
        See ``CompactRegressor``.
    expansion_ : KernelExpansion
        The model.

    See Also
    --------
    NystromClassifier : An approximation for smooth kernels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mercer import CompactClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> float(round(CompactClassifier(random_state=0).fit(X, y).score(X, y), 2))
    1.0
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and labels y (n,); a weight ω divides the noise of its row."""
        self._validate_params()
        with all_or_nothing(self):
            encode = self._labels()
            self._fit(read_table(self, X, y, sample_weight, encode=encode, reset=True))
            self.classes_ = encode.classes
        return self

    def _evaluate_rows(self, rows: Rows) -> FloatArray:
        return self._sparse_values(rows)
