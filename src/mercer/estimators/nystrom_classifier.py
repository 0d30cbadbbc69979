"""Classification on a basis of few points."""

from __future__ import annotations

from typing import Any, Self

from mercer._stored import stored
from mercer._validation import check_is_fitted
from mercer.estimators.classification import KernelClassifier
from mercer.estimators.nystrom_machine import NystromMachine
from mercer.estimators.shell import all_or_nothing, read_table

__all__ = ["NystromClassifier"]


@stored
class NystromClassifier(KernelClassifier, NystromMachine):
    """Kernel classification on a basis of m points: least squares on ±1, one class against the rest.

    Time n·m² and memory m² per thread, however many rows; one pass over the data.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        See ``NystromRegressor``, as for the other parameters.
    n_basis : int, default=500
        Number of basis points.
    basis : str, strategy or array (m, d), default="uniform"
        How basis points are chosen.
    noise : float or "gcv", default=0.1
        λ, or how to choose it.
    intercept : bool, default=False
        Whether to add a constant that is not penalised.
    variance : {"dtc", "sor"}, default="dtc"
        Form of the variance of ``expansion_``.
    random_state : int, RandomState or None, default=None
        For the choice of the basis, and of the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : array (classes,)
    coefficients_ : array (rank_, outputs)
        One output for two classes, one per class for more.
    intercept_ : array (outputs,)
    kernel_, basis_, basis_index_, rank_, noise_, n_seen_, statistics_, expansion_
        As in ``NystromRegressor``.

    See Also
    --------
    ExactClassifier : All rows as basis.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from mercer import NystromClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = NystromClassifier(n_basis=300, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.94
    True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and labels y (n,); weight 2 is the same as the row twice."""
        self._validate_params()
        with all_or_nothing(self):
            encode = self._labels()
            self._fit(read_table(self, X, y, sample_weight, encode=encode, reset=True))
            self.classes_ = encode.classes
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add rows; the first call must name all ``classes``, unless all occur in its labels."""
        self._validate_params()
        with all_or_nothing(self):
            first = not hasattr(self, "_summary")
            encode = self._labels(classes, first=first)
            table = read_table(self, X, y, sample_weight, encode=encode, reset=first)
            self.classes_ = encode.classes
            self._partial_fit(table)
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Remove rows; they must have been added with these labels and weights."""
        self._validate_params()
        check_is_fitted(self)
        with all_or_nothing(self):
            encode = self._labels(first=False)
            self._forget(read_table(self, X, y, sample_weight, encode=encode, reset=False))
        return self
