"""Regression on a basis of few points."""

from __future__ import annotations

from typing import Any, Self

from mercer._stored import stored
from mercer._validation import check_is_fitted
from mercer.estimators.nystrom_machine import NystromMachine
from mercer.estimators.regression import KernelRegressor

__all__ = ["NystromRegressor"]


@stored
class NystromRegressor(KernelRegressor, NystromMachine):
    r"""Kernel regression on a basis of m points, for any number of rows.

    Minimises :math:`\sum_i\omega_i(y_i - f(x_i) - b)^2 + \lambda|f|^2` over
    :math:`f = \sum_j w_j k(\cdot, z_j)` (subset of representers, Nyström ridge, deterministic training conditional of a
    Gaussian process).

    Time n·m² and memory m² per thread, however many rows; one pass over the data.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        A name ("gaussian", "matern", "linear", "polynomial"), a kernel of ``mercer.kernels``, or a function of two
        matrices. By name, length scales are the median distance of the rows.
    n_basis : int, default=500
        m; if there are fewer rows, all are taken.
    basis : str, strategy or array (m, d), default="uniform"
        How basis points are chosen: a name ("uniform"), a strategy of ``mercer.basis``, or the points themselves.
        ``partial_fit`` chooses them from the first rows it is given.
    noise : float or "gcv", default=0.1
        λ. "gcv" chooses it by generalised cross-validation on the whole path, from one eigendecomposition; a weight
        then counts as that many rows.
    intercept : bool, default=False
        Whether to add a constant b that is not penalised.
    variance : {"dtc", "sor"}, default="dtc"
        Form of the predictive variance. "dtc" grows to the prior's far from the basis; "sor" leaves out what the basis
        cannot represent and shrinks to zero there, which is misleading: it is for comparison only.
    random_state : int, RandomState or None, default=None
        For the choice of the basis, and of the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with its parameters as numbers.
    basis_ : array (rank_, d)
        Basis points in use, the most informative first.
    basis_index_ : array (rank_,) or None
        Their row numbers, where they are rows.
    rank_ : int
        Numerical rank of the basis; points that the others span to rounding (duplicates) are left out.
    basis_note_ : str
        Why there are fewer points than were asked for; empty if there are not.
    coefficients_ : array (rank_,) or (rank_, p)
    intercept_ : float or array (p,)
    noise_ : float
        λ in use.
    n_seen_ : int
        Rows in the statistics.
    statistics_ : NormalStatistics
        What was kept of the rows.
    expansion_ : KernelExpansion
        The model.

    See Also
    --------
    ExactRegressor : All rows as basis.

    Notes
    -----
    The system is solved in whitened form, :math:`\lambda I + L^{-1}K_{mn}K_{nm}L^{-\top}` with
    :math:`K_{mm} = LL^\top`. Where rounding of :math:`K_{mn}K_{nm}` could matter beside λ, the features are whitened
    tile by tile before they are summed, which takes about twice as long and loses half as many digits; a short pass
    over the rows always does so.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, size=(10_000, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=10_000)
    >>> model = NystromRegressor(n_basis=50, noise="gcv", random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.5], [3.0]], return_std=True)
    >>> mean.round(2)
    array([1.  , 0.14])
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and targets y (n,) or (n, p); weight 2 is the same as the row twice."""
        with self._fitting(X, y, sample_weight) as table:
            self._fit(table)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows; the basis is chosen by the first call, and no row is kept."""
        with self._fitting(X, y, sample_weight, go_on=True) as table:
            self._partial_fit(table)
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Remove rows; they must have been added with these targets and weights.

        Exact up to the rounding of the sums: rows of enormous weight leave few digits of the others.
        """
        check_is_fitted(self)
        with self._fitting(X, y, sample_weight, go_on=True) as table:
            self._forget(table)
        return self
