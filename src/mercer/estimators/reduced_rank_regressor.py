r"""The reduced rank approximation: all rows as kernels, their weights from a Gram matrix of low rank.

=================  ==========================  ==========  ==================================================
document 000       code                        shape       meaning
=================  ==========================  ==========  ==================================================
Σ^{m,b}, Σ^{b,b}   K_nm = VLᵀ, K_mm = LLᵀ                  the Gram matrix is taken for VVᵀ (6)
w_opt              ``coefficients`` α          (n, p)      (VVᵀ + Λ)⁻¹y, Λ = λW⁻¹ (section 4)
\-                 ``solution.weights`` u      (m, p)      (I + VᵀΛ⁻¹V) u = VᵀΛ⁻¹y: the subset of representers
=================  ==========================  ==========  ==================================================

By Woodbury :math:`\alpha = \Lambda^{-1}(y - Vu)`: the residuals of the subset of representers over their noise. At a
new input, with :math:`k_n(x) = Vv(x) + e(x)`, the mean is :math:`v^\top u + e^\top\alpha`, so both methods agree where
the basis spans the kernel, :math:`e = 0`. With :math:`h = V^\top\Lambda^{-1}e` the variance is

.. math:: k(x,x) - |v|^2 - e^\top\Lambda^{-1}e + (v - h)^\top(I + V^\top\Lambda^{-1}V)^{-1}(v - h),

and nothing keeps it from being negative.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from mercer._stored import stored
from mercer._stored.checks import check_estimator, check_shape, need
from mercer._typing import FloatArray, RandomState
from mercer._validation import Interval, Real
from mercer.engine import (
    ArrayRows,
    Rows,
    features_times,
    gram_matrix,
    kernel_diagonal,
    normal_statistics,
    residual_products,
)
from mercer.estimators.frame import Frame
from mercer.estimators.on_basis import BASIS_CONSTRAINTS, OnBasis
from mercer.estimators.regression import KernelRegressor
from mercer.estimators.shell import (
    Data,
    all_or_nothing,
    encode_targets,
    make_executor,
    read_data,
    rows_with_a_say,
)
from mercer.exceptions import NegativeVarianceWarning
from mercer.model import KernelExpansion
from mercer.solvers.ridge import RidgeSolution

__all__ = ["ReducedRankRegressor"]

_ROUNDING = 1e-8  # a variance above minus this share of the prior's is zero
_REFUSED_ERROR = 1e-3  # rounding of predictions, as a share of the targets, beyond which a noise is too small


@stored
class ReducedRankRegressor(KernelRegressor, OnBasis, BaseEstimator):
    r"""Reduced rank approximation: n kernels, weighted by a Gram matrix of rank m.

    Solves :math:`(K_{nm}K_{mm}^{-1}K_{mn} + \lambda W^{-1})\,\alpha = y` by the Woodbury formula, and predicts
    :math:`\sum_i\alpha_i k(x, x_i)` with the kernel itself (Williams and Seeger). At the basis points this equals
    ``NystromRegressor``; elsewhere it is usually worse, and slower: it is here to be compared.

    Time n·m² to fit, n kernel values per prediction; the training rows are kept. Away from the basis points the
    approximation may give a negative variance: the standard deviation is then NaN, with a ``NegativeVarianceWarning``,
    and the covariance is given as it is.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        A name ("gaussian", "matern", "linear", "polynomial"), a kernel of ``mercer.kernels``, or a function of two
        matrices. By name, length scales are the median distance of the rows.
    n_basis : int, default=500
        m; if there are fewer rows, all are taken.
    basis : str, strategy or array (m, d), default="uniform"
        How basis points are chosen: a name ("uniform"), a strategy of ``mercer.basis``, or the points themselves.
    noise : float, default=0.1
        λ, above zero: the weights are residuals over λ.
    intercept : bool, default=False
        Whether to add a constant b that is not penalised.
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
        Basis points in use.
    basis_index_ : array (rank_,) or None
        Their row numbers, where they are rows.
    rank_ : int
        Numerical rank of the basis.
    coefficients_ : array (n,) or (n, p)
        Weights of the training rows (those of positive weight).
    intercept_ : float or array (p,)
    expansion_ : KernelExpansion
        The model.

    See Also
    --------
    NystromRegressor : The same system on m kernels.
    CommitteeRegressor : Minds what the basis leaves of the kernel.

    References
    ----------
    C. K. I. Williams, M. Seeger: Using the Nyström method to speed up kernel machines, NIPS 2000. V. Tresp,
    A. Schwaighofer: Scalable kernel systems, ICANN 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import ReducedRankRegressor
    >>> X = np.linspace(0, 6, 200)[:, np.newaxis]
    >>> model = ReducedRankRegressor(n_basis=20, noise=0.01, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.coefficients_.shape, model.predict([[1.5]]).round(2)
    ((200,), array([1.]))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BASIS_CONSTRAINTS,
        "noise": [Interval(Real, 0, None, closed="left")],
    }

    expansion_: KernelExpansion
    _used_frame: Frame
    _solution: RidgeSolution
    _precisions: FloatArray

    def check_stored(self) -> None:
        """Refuse weights and a solution of another expansion or basis."""
        (n, width), n_outputs = self.expansion_.points.shape, self.expansion_.coefficients.shape[1]
        check_estimator(self, n_outputs=n_outputs, n_features=width, flat=self._flat)
        check_shape(self._precisions, (n,), "precisions")
        check_shape(self._solution.mean, (len(self._used_frame.lower),), "means of features")
        need(self._used_frame.basis.points.shape[1] == width, "the basis has other features.")
        need(self._used_frame.kernel.equals(self.expansion_.kernel), "the basis has another kernel.")

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        n_basis: int = 500,
        basis: Any = "uniform",
        noise: float = 0.1,
        intercept: bool = False,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_basis = n_basis
        self.basis = basis
        self.noise = noise
        self.intercept = intercept
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d) and targets y (n,) or (n, p); weight 2 is the same as the row twice."""
        self._validate_params()
        if self.noise == 0:
            msg = (
                "noise=0 is not possible here: the weights are residuals divided by the noise. Use a small noise, or "
                "NystromRegressor or CommitteeRegressor, which interpolate."
            )
            raise ValueError(msg)
        with all_or_nothing(self):
            data = read_data(self, X, y, sample_weight, encode=encode_targets, reset=True)
            self._solve(data, self._choose_frame(data, np.dtype(np.float64)))
            self._flat = data.flat
        return self

    @property
    def _frame(self) -> Frame:
        return self._used_frame

    def _solve(self, data: Data, frame: Frame) -> None:
        threads, features, noise = make_executor(self), frame.features(whitened=True), float(self.noise)
        n_outputs = data.targets.shape[1]
        shift = np.average(data.targets, axis=0, weights=data.weights) if self.intercept else np.zeros(n_outputs)
        targets = data.targets - shift
        # (I + VᵀΛ⁻¹V) u = VᵀΛ⁻¹y
        sums = normal_statistics(data.table.shifted(shift), features, executor=threads)
        solution = frame.problem(sums, shift, intercept=bool(self.intercept)).solve(noise)
        # α = Λ⁻¹(y - b - Vu)
        index = rows_with_a_say(data, noise)
        rows = ArrayRows(data.rows.take(index).astype(np.float64, copy=False), checked=True)
        precisions = np.full(len(index), 1.0 / noise) if data.weights is None else data.weights[index] / noise
        fitted = features_times(rows, features, solution.weights, executor=threads) + solution.intercept
        coefficients = precisions[:, np.newaxis] * (targets[index] - fitted)
        points = rows.read(0, rows.n_rows)
        _check_rounding(frame, points, precisions, noise)
        self.expansion_ = KernelExpansion(frame.kernel, points, coefficients, solution.shifted_intercept(shift))
        self._used_frame, self._solution, self._precisions = frame, solution, precisions

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        size = max(256, self.rank_)
        prior = kernel_diagonal(rows, self.kernel_, executor=make_executor(self))
        variances = np.empty(rows.n_rows)
        for start, stop, queries in rows.tiles(0, rows.n_rows, size):
            variances[start:stop] = prior[start:stop] + self._correction(queries, full=False)
        rounding = np.abs(variances) <= _ROUNDING * prior
        variances[rounding] = np.maximum(variances[rounding], 0.0)
        _warn_if_negative(variances)
        return np.sqrt(np.where(variances < 0, np.nan, variances))

    def _covariance(self, rows: Rows) -> FloatArray:
        queries = rows.take(np.arange(rows.n_rows))
        prior = gram_matrix(rows, self.kernel_, executor=make_executor(self))
        result = prior + self._correction(queries, full=True)
        _warn_if_negative(np.diagonal(result) + _ROUNDING * np.diagonal(prior))
        return np.asarray((result + result.T) / 2)

    def _correction(self, queries: FloatArray, *, full: bool) -> FloatArray:
        """What the data take from the prior (co)variance of the queries."""
        points, solution = self.expansion_.points, self._solution
        features = self._used_frame.features(whitened=True)
        queries = queries.astype(np.float64, copy=False)
        products = residual_products(
            ArrayRows(points, checked=True), features, queries, self._precisions,
            full=full, executor=make_executor(self),
        )  # fmt: skip
        v = features.tile(queries)
        left = 1.0 - products.sums  # of the constant's weight
        root = (v - products.projections.T - np.outer(left, solution.mean)) @ solution.root.T
        if full:
            return root @ root.T + solution.constant * np.outer(left, left) - v @ v.T - products.squares
        squares = np.einsum("ij,ij->i", root, root) - np.einsum("ij,ij->i", v, v)
        return np.asarray(squares + solution.constant * left**2 - products.squares)


def _check_rounding(frame: Frame, points: FloatArray, precisions: FloatArray, noise: float) -> None:
    # Residuals are known to eps|y|; divided by the noise and summed with n kernel values this is what comes of it.
    largest = float(np.max(precisions * frame.kernel.diagonal(points), initial=0.0))
    error = float(np.finfo(np.float64).eps) * len(points) * largest
    if not error <= _REFUSED_ERROR:
        msg = (
            f"noise={noise:.3g} is too small for {len(points)} rows: weights are residuals divided by the noise, and "
            f"rounding would be {error:.1g} of the targets. Use {noise * error / _REFUSED_ERROR:.1g} or more, or "
            "NystromRegressor."
        )
        raise ValueError(msg)


def _warn_if_negative(variances: FloatArray) -> None:
    negative = int(np.sum(variances < 0))
    if negative:
        warnings.warn(
            f"the reduced rank approximation gives a negative variance for {negative} of {len(variances)} rows, which "
            "lie away from the basis points. NystromRegressor and CommitteeRegressor have proper error bars.",
            NegativeVarianceWarning,
            stacklevel=4,
        )
