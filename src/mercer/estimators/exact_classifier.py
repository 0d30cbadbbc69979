"""Classification on the full kernel matrix."""

from __future__ import annotations

from typing import Any, Self

from mercer._stored import stored
from mercer.estimators.classification import KernelClassifier
from mercer.estimators.exact_machine import ExactMachine
from mercer.estimators.shell import all_or_nothing, read_table

__all__ = ["ExactClassifier"]


@stored
class ExactClassifier(KernelClassifier, ExactMachine):
    """Kernel classification on the full kernel matrix: least squares on ±1, one class against the rest.

    With ``intercept=True`` this is the LS-SVM classifier. Parameters are those of ``ExactRegressor``.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        See ``ExactRegressor``, as for the other parameters.
    noise : float, default=0.1
        λ, added to the diagonal of the kernel matrix.
    intercept : bool, default=False
        Whether to add a constant that is not penalised; True gives the LS-SVM.
    solver : {"cholesky", "cg"}, default="cholesky"
        "cg" never stores the kernel matrix.
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
    classes_ : array (classes,)
    kernel_ : Kernel
        The kernel with its parameters as numbers.
    jitter_ : float
        What was added to the diagonal beyond the noise; usually 0.
    coefficients_ : array (n, outputs)
        Weights of the training rows (those of positive weight): one output for two classes, one per class for more.
    intercept_ : array (outputs,)
    expansion_ : KernelExpansion
        The model; it keeps no factor of the kernel matrix, so it is small, and has no variance.

    See Also
    --------
    NystromClassifier : The same on a basis of few points, for many rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mercer import ExactClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> float(round(ExactClassifier(noise=0.1).fit(X, y).score(X, y), 2))
    0.99
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and labels y (n,); a weight ω divides the noise of its row."""
        self._validate_params()
        with all_or_nothing(self):
            encode = self._labels()
            self._fit(read_table(self, X, y, sample_weight, encode=encode, reset=True), keep_factor=False)
            self.classes_ = encode.classes
        return self
