"""Regression and classification on a kernel of compact support."""

from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_estimator, need
from mercer._typing import FloatArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted, check_random_state, parameters
from mercer.engine import ArrayTable, Rows, SparseGram, SparseKernel
from mercer.estimators.classification import CLASS_WEIGHT, KernelClassifier
from mercer.estimators.regression import KernelRegressor
from mercer.estimators.shell import Shell, all_or_nothing, make_executor, on_its_threads
from mercer.exceptions import GeneralisationWarning, StarvedWarning, warn
from mercer.kernels import Compact, Kernel, Wendland
from mercer.methods.compact import CompactFit, CompactVariance, fit_compact, resolve_compact
from mercer.methods.compact_noise import error_left_out, unexplained_share
from mercer.methods.compact_system import CompactSystem, Options
from mercer.methods.linear_error import linear_error
from mercer.model import Calibration, KernelExpansion, as_dtype

_FEW = 5  # neighbours: fewer say little
_CORRELATED = 1e-4  # kernel value, relative to k(x, x), above which a row is a neighbour: with less it says nothing
_STARVED = 0.5  # share of rows with few neighbours at which a warning is due
_UNKNOWN = 0.9  # share of the variance of a row, given all others, at which a warning is due
_WORKS = 0.8  # squared error of rows that are left out, relative to that of the mean, below which none is
_LINEAR = 1.2  # times the squared error of a linear regression, above which a warning is due
_FINE = 0.05  # squared error of rows that are left out, relative to that of the mean, below which none is
_REMEDY = (
    "rows say little about each other, and predictions are little more than the intercept. Use a larger length scale "
    "(length_scale='auto' gives 50 neighbours on average), a less steep kernel (a lower dimension of Wendland, a lower "
    "exponent of CompactGaussian: whether it is definite on the rows is checked), fewer features or a learned metric, "
    "or another estimator, such as NystromRegressor."
)


@parameters
class CompactMachine(Shell):
    """Parameters, fit and evaluation that regression and classification share."""

    kernel: Any = field(default="wendland", kw_only=False)
    noise: float | Literal["auto", "loo"] = "auto"
    intercept: bool = True
    solver: Literal["auto", "cholesky", "cg"] = "auto"
    ordering: Literal["amd", "colamd", "rcm", "natural"] = "amd"
    preconditioner: Literal["auto", "jacobi", "incomplete", "two-level"] | None = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": "no_validation",  # type: ignore[dict-item]  # checked, with messages of its own, by resolve_compact
        "noise": [Interval(Real, 0, None, closed="left"), StrOptions({"auto", "loo"})],
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

    _in_memory: ClassVar[bool] = True
    kernel_: Compact = field(init=False)
    coverage_: float = field(init=False)
    min_eigenvalue_: float | None = field(init=False)
    nnz_: int = field(init=False)
    n_iter_: int = field(init=False)
    solver_: str = field(init=False)
    fill_in_: float | None = field(init=False)
    condition_estimate_: float = field(init=False)
    expansion_: KernelExpansion = field(init=False)
    noise_: Sometimes[float] = field(init=False)
    robust_weights_: Sometimes[FloatArray] = field(init=False)
    _calibrated: Sometimes[Calibration | None] = field(init=False)
    _sparse_kernel: SparseKernel = field(init=False)
    _eta: FloatArray | None = field(init=False)

    def check_stored(self) -> None:
        """Refuse a grid of other points than the expansion's."""
        (n, d), n_outputs = self.expansion_.points.shape, self.expansion_.coefficients.shape[1]
        check_estimator(self, n_outputs=n_outputs, n_features=d)
        need(self.kernel_.equals(self.expansion_.kernel), "a model has another kernel than its expansion.")
        need(self._sparse_kernel.is_of(self.kernel_, self.expansion_.points), "the grid of a model has other points.")
        need(self._eta is None or self._eta.shape == (n,), "the solution for the intercept has other points.")

    def _kernel_object(self, kernel: Any) -> Kernel:
        return Wendland("auto") if isinstance(kernel, str) and kernel == "wendland" else super()._kernel_object(kernel)

    def _fit(self, table: ArrayTable) -> None:
        if self.solver == "cg" and self._total_noise == 0:
            raise ValueError("noise must be above zero with solver='cg'; use solver='cholesky' to interpolate.")
        rng, executor = self._rng(), make_executor(self)
        kernel = resolve_compact(self.kernel, table, rng=rng, random_state=self.random_state, executor=executor)
        # solver="auto" does not turn to conjugate gradients, which cannot interpolate.
        noise = self._total_noise
        solver = "cholesky" if noise == 0 else self.solver
        fit = fit_compact(
            table,
            kernel,
            noise=noise,
            intercept=bool(self.intercept),
            options=Options(solver, self.ordering, self.preconditioner, float(self.tol), int(self.max_iter)),
            robust=getattr(self, "robust", False),
            rng=rng,
            executor=executor,
        )
        factor = fit.system.factor
        self.kernel_, self.nnz_, self.n_iter_ = kernel, fit.system.gram.n_nonzeros, fit.system.n_iter
        self.solver_ = "cg" if factor is None else "cholesky"
        self.fill_in_ = None if factor is None else factor.fill_in
        self.min_eigenvalue_, self.condition_estimate_ = fit.min_eigenvalue, fit.condition
        self.expansion_, self._sparse_kernel, self._eta = fit.expansion, fit.sparse_kernel, fit.eta
        self.__dict__.pop("robust_weights_", None)
        if fit.robust_weights is not None:
            self.robust_weights_ = fit.robust_weights
        self.noise_, self._calibrated = fit.noise, fit.calibration
        self._keep(fit)
        self._check_neighbours(fit.system.gram, table)

    def _keep(self, fit: CompactFit) -> None:
        """A classifier does not need the system any more."""

    def _check_neighbours(self, gram: SparseGram, table: ArrayTable) -> None:
        """Warn if rows have no neighbours, or none that say anything; else if the model does not generalise."""
        n_neighbours = gram.counts_above(_CORRELATED * float(np.max(gram.values))) - 1  # of each row, without itself
        self.coverage_ = float(np.mean(n_neighbours >= _FEW))
        if len(n_neighbours) <= _FEW:
            return
        unknown, works = unexplained_share(gram), error_left_out(self._calibration()) < _WORKS
        if works or (1.0 - self.coverage_ <= _STARVED and unknown <= _UNKNOWN):
            self._check_calibration()
            self._check_linear(table)
            return
        reason = f"given all others with little noise, {100 * unknown:.0f} % of the variance of a row remain"
        if 1.0 - self.coverage_ > _STARVED:
            reason = f"{100 * (1 - self.coverage_):.0f} % of the rows have fewer than {_FEW} neighbours that matter"
        warn(f"{reason}: {_REMEDY}", StarvedWarning)

    def _check_linear(self, table: ArrayTable) -> None:
        """Warn if rows that are left out are predicted worse than by a linear regression."""
        error = error_left_out(self._calibration())
        if not _FINE < error < np.inf:
            return
        linear = linear_error(table)
        if error > _LINEAR * linear:
            warn(
                f"rows that are left out are predicted with {np.sqrt(error):.2g} times the error of the mean of the "
                f"others, and by a linear regression with {np.sqrt(linear):.2g} times: length scales do not suit the "
                "features. Scale these, or use tune_cutoff, a learned metric, or another estimator, such as "
                "NystromRegressor.",
                GeneralisationWarning,
            )

    def _calibration(self) -> Calibration | None:
        return getattr(self, "_calibrated", None)

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(check_random_state(self.random_state).randint(2**31))

    def _evaluate_rows(self, rows: Rows) -> FloatArray:
        vectors = self.expansion_.coefficients[self._sparse_kernel.order]
        values = self._sparse_kernel.times(rows, vectors, executor=make_executor(self))
        return as_dtype(values + self.expansion_.intercept, rows.dtype)


@stored
@parameters
class CompactRegressor(KernelRegressor, CompactMachine):
    r"""LS-SVM, or Gaussian process, on a kernel of compact support: the exact system, on a sparse matrix.

    Minimises :math:`\sum_i\omega_i(y_i - f(x_i) - b)^2 + \lambda|f|^2` over functions of the kernel's space. If the
    kernel reaches 50 of a million rows, the matrix has 50 million numbers, and a fit takes minutes.

    Time and memory grow with the number of neighbours of all rows, ``nnz_``; with ``solver="cholesky"`` with the
    non-zeros of the factor, ``fill_in_`` times as many. Use it for inputs of few dimensions and many rows: in many
    dimensions a row has no neighbours, or all rows are neighbours.

    A row without neighbours has the intercept as its mean, and the prior's standard deviation ``scale_`` (for
    k(x, x) = 1) plus that of the intercept. Each standard deviation needs a solution of the system: milliseconds with
    a factor, much longer by conjugate gradients. With ``solver="auto"`` a model without a factor makes one when
    standard deviations of so many rows are asked for that it is cheaper, if there is memory; it is kept until the next
    fit, but not saved. If it will take minutes without, a warning says so.

    Parameters
    ----------
    kernel : "wendland" or kernel of compact support, default="wendland"
        ``Wendland`` or ``CompactGaussian``. With ``length_scale="auto"``, as by name, rows have 50 neighbours on
        average. A kernel below the rule that guarantees definiteness is checked on the rows: see ``min_eigenvalue_``.
    noise : float, "auto" or "loo", default="auto"
        λ, added to the diagonal of the kernel matrix. "auto" takes the likeliest one (marginal likelihood, restricted
        with an intercept, at the best σ), or that of the least leave-one-out error if the likeliest predicts rows that
        are left out worse than the mean does; "loo" always the latter. It is shared by all outputs. Up to 1500 rows,
        and where the factor has up to two million entries, all rows decide; else the rows nearest to eight centres,
        1500 in all (rows at random would have no neighbours). With conjugate gradients it is at least 1e-4 k(x, x),
        and for a kernel below the rule at least what makes the matrix safely positive definite.
    intercept : bool, default=True
        As in ``NystromRegressor``; the LS-SVM has one.
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
    n_jobs, verbose
        As in ``NystromRegressor``.

    Attributes
    ----------
    kernel_, intercept_, expansion_
        As in ``NystromRegressor``.
    coefficients_ : array (n,) or (n, p)
        Weights of the training rows (those of positive weight).
    noise_ : float
        λ in use: the noise variance is λ·scale_².
    scale_, calibration_, loo_error_
        As in ``NystromRegressor``, from 1024 rows. Without a factor, what the variance of such a row is comes from its
        150 nearest neighbours, which makes residuals up to some percent larger.
    log_marginal_likelihood_ : float
        Of the targets, at the best σ, summed over the outputs; needs a factor.
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
        Share of the training rows that have at least 5 neighbours with a kernel value above 1e-4 k(x, x); the others
        are starved. A ``StarvedWarning`` is given if these are most, or if a row is hardly known given all others,
        unless rows that are left out are predicted clearly better than by the mean.
    robust_weights_ : array (n,)
        Hampel's weights of the rows, with ``robust=True``.
    n_iter_ : int
        Iterations of the solver.

    See Also
    --------
    ExactRegressor : The same for any kernel, on a dense matrix.
    NystromRegressor : An approximation for smooth kernels.

    Notes
    -----
    A weight ω divides the noise of its row. Weights that are all whole count equal rows: 2 is the row twice. Of others
    only ratios matter to the noise that is chosen, and to what is said of rows that are left out.

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
    (array([-0.14 ,  0.001]), array([0.004, 0.099]))
    """

    robust: bool = False

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **CompactMachine._parameter_constraints,
        "robust": ["boolean"],
    }

    _system: CompactSystem = field(init=False)
    _log_likelihood: Sometimes[float | None] = field(init=False)

    def check_stored(self) -> None:
        """Refuse a system of other points, too."""
        super().check_stored()
        need(self._system.gram.n_points == len(self.expansion_.points), "the system of a model has other points.")

    def _keep(self, fit: CompactFit) -> None:
        self._system, self._log_likelihood = fit.system, fit.log_likelihood

    @property
    def log_marginal_likelihood_(self) -> float:
        """Logarithm of the likelihood of the targets at the best σ (restricted, with an intercept), over all outputs.

        The density of y under N(0, scale_²(K + λW⁻¹)); with an intercept b, integrated over all b (flat prior, REML).
        Weights that are whole numbers count as rows.
        """
        check_is_fitted(self)
        value: float | None = getattr(self, "_log_likelihood", None)
        if value is None:
            raise ValueError("log_marginal_likelihood_ needs the factor of the matrix: fit with solver='cholesky'.")
        return value

    @on_its_threads
    def log_determinant(self) -> tuple[float, float]:
        """Logarithm of |K + λW⁻¹| and its standard error: 0 with a factor, else it is estimated (Lanczos)."""
        check_is_fitted(self)
        return self._system.log_determinant(self._rng(), make_executor(self))

    def _variance(self, n_rows: int) -> CompactVariance:
        with all_or_nothing(self):  # one thread at a time makes a factor
            factor = self._system.factor_for(n_rows, make_executor(self))
        return CompactVariance(self.kernel_, self._sparse_kernel, self._system, self._eta, factor)

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        return np.sqrt(self._variance(rows.n_rows).variances(rows, make_executor(self)))

    def _covariance(self, rows: Rows) -> FloatArray:
        return self._variance(rows.n_rows).covariance(rows, make_executor(self))


@stored
@parameters
class CompactClassifier(KernelClassifier, CompactMachine):
    """LS-SVM classifier on a kernel of compact support: least squares on ±1, one class against the rest.

    Parameters
    ----------
    kernel, noise, intercept, solver, ordering, preconditioner, tol, max_iter, random_state, n_jobs, verbose
        As in ``CompactRegressor``.
    class_weight : dict, "balanced" or None, default=None
        What the weights of rows are multiplied by: a number for each class, or such numbers that all classes have the
        same total weight.

    Attributes
    ----------
    classes_ : array (classes,)
    coefficients_ : array (n, outputs)
        Weights of the training rows: one output for two classes, one per class for more.
    intercept_ : array (outputs,)
    kernel_, noise_, nnz_, solver_, fill_in_, condition_estimate_, min_eigenvalue_, coverage_, n_iter_, expansion_
        As in ``CompactRegressor``.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**CompactMachine._parameter_constraints, **CLASS_WEIGHT}
