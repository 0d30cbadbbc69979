"""Kernel machines on the full kernel matrix: regression and classification."""

from dataclasses import field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_estimator, check_index, check_shape, need
from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted, parameters
from mercer.engine import ArrayTable, Rows
from mercer.estimators.classification import CLASS_WEIGHT, KernelClassifier
from mercer.estimators.regression import KernelRegressor
from mercer.estimators.shell import Shell, make_executor
from mercer.exceptions import warn
from mercer.kernels import Kernel, Precomputed
from mercer.methods.exact import ExactFit, fit_exact, leave_one_out
from mercer.methods.length_scales import fitted_kernel
from mercer.model import Calibration, KernelExpansion
from mercer.solvers.conjugate_gradient import IterativeSolution
from mercer.solvers.dense import CholeskyFactor
from mercer.solvers.ridge import Choice


@parameters
class ExactMachine(Shell):
    """Parameters, fit and evaluation that regression and classification share."""

    kernel: Any = field(default="gaussian", kw_only=False)
    noise: float | Choice = "auto"
    intercept: bool = True
    solver: Literal["cholesky", "cg"] = "cholesky"
    tol: float = 1e-6
    max_iter: int = 1000
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0

    _in_memory: ClassVar[bool] = True
    _keeps_factor: ClassVar[bool] = True

    kernel_: Kernel = field(init=False)
    jitter_: float = field(init=False)
    noise_: Sometimes[float] = field(init=False)
    n_iter_: int = field(init=False)
    expansion_: KernelExpansion = field(init=False)
    _factor: CholeskyFactor | None = field(init=False)
    _eta: FloatArray | None = field(init=False)
    _index: IntArray = field(init=False)
    _n_rows: int = field(init=False)
    _calibrated: Sometimes[Calibration | None] = field(init=False)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": "no_validation",  # type: ignore[dict-item]  # checked, with a message of its own, by as_kernel
        "noise": [Interval(Real, 0, None, closed="left"), StrOptions({"auto", "gcv", "loo"})],
        "intercept": ["boolean"],
        "solver": [StrOptions({"cholesky", "cg"})],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }

    def check_stored(self) -> None:
        """Refuse a factor and row numbers that are not those of the expansion."""
        (m, width), kernel = self.expansion_.points.shape, self.expansion_.kernel
        if isinstance(kernel, Precomputed):
            numbers = self.expansion_.points[:, 0].astype(np.intp)
            need(np.all(numbers == self.expansion_.points[:, 0]), "rows of the kernel matrix have no numbers.")
            check_index(numbers, self.n_features_in_, "rows of the kernel matrix")
        n_features = None if isinstance(kernel, Precomputed) else width
        check_estimator(self, n_outputs=self.expansion_.coefficients.shape[1], n_features=n_features)
        need(self.kernel_.equals(kernel), "a model has another kernel than its expansion.")
        need(self._factor is None or len(self._factor.lower) == m, "the factor of a model has other points.")
        check_shape(self._index, (m,), "row numbers")
        check_index(self._index, self._n_rows, "row numbers")
        need(self._eta is None or self._eta.shape == (m,), "the solution for the intercept has other points.")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._precomputed
        return tags

    @property
    def _precomputed(self) -> bool:
        function = self.kernel.without_noise() if isinstance(self.kernel, Kernel) else self.kernel
        return isinstance(function, Precomputed) or (isinstance(function, str) and function == "precomputed")

    def _fit(self, table: ArrayTable) -> None:
        self._check_table(table)
        kernel = Precomputed() if self._precomputed else fitted_kernel(
            self.kernel, table, self.random_state, noise=self._total_noise, intercept=bool(self.intercept),
            executor=make_executor(self),
        )  # fmt: skip
        fit = fit_exact(
            table, kernel, noise=self._total_noise, intercept=bool(self.intercept), solver=self.solver,
            tol=float(self.tol), max_iter=int(self.max_iter), random_state=self.random_state,
            executor=make_executor(self),
        )  # fmt: skip
        self._warn_of(fit.iterative)
        self.kernel_ = kernel
        self.jitter_ = 0.0 if fit.factor is None else fit.factor.jitter
        self.n_iter_ = 1 if fit.iterative is None else fit.iterative.iterations
        self.expansion_ = fit.expansion if self._keeps_factor else replace(fit.expansion, variance=None)
        self._factor = fit.factor if self._keeps_factor else None
        self._eta, self._index, self._n_rows = fit.eta, fit.index, table.n_rows
        self.noise_, self._calibrated = fit.noise, fit.calibration
        self._keep(fit)
        self._check_calibration()

    def _keep(self, fit: ExactFit) -> None:
        """A classifier has no likelihood."""

    def _calibration(self) -> Calibration | None:
        return getattr(self, "_calibrated", None)

    def _warn_of(self, result: IterativeSolution | None) -> None:
        if result is not None and not result.converged:
            warn(
                f"conjugate gradients stopped after {result.iterations} iterations at a relative residual of "
                f"{result.residual:.1e}, above tol={self.tol:.1e}: the model is not the solution asked for. "
                "Raise max_iter, tol or noise, or use NystromRegressor.",
                ConvergenceWarning,
            )

    def _check_table(self, table: ArrayTable) -> None:
        if self._precomputed and table.n_features != table.n_rows:
            raise ValueError(
                "with kernel='precomputed' X must be the square kernel matrix of the training rows, "
                f"got shape ({table.n_rows}, {table.n_features})."
            )
        if self.solver == "cg" and self._total_noise == 0:
            raise ValueError("noise must be above zero with solver='cg'; use solver='cholesky' to interpolate.")

    def _need_factor(self, what: str) -> CholeskyFactor:
        check_is_fitted(self)
        if self._factor is None:
            raise ValueError(f"{what} needs the factor of the kernel matrix: fit with solver='cholesky'.")
        return self._factor


@stored
class ExactRegressor(KernelRegressor, ExactMachine):
    r"""Kernel regression on the full kernel matrix: Gaussian process, kernel ridge, or LS-SVM.

    Minimises :math:`\sum_i\omega_i(y_i - f(x_i) - b)^2 + \lambda|f|^2` over functions of the kernel's space, which is
    the posterior mean of a Gaussian process with noise variance :math:`\lambda/\omega_i`.

    Time grows with n³ and memory with n² (one matrix); with ``solver="cg"`` with n² per iteration and n.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        As in ``NystromRegressor``, or "precomputed": X is then the kernel matrix.
    noise : float, "auto", "gcv" or "loo", default="auto"
        λ, added to the diagonal of the kernel matrix. How it is chosen: see ``NystromRegressor``; of more than 1500
        rows, 1500 decide. 0 interpolates.
    intercept : bool, default=True
        Whether to add a constant b that is not penalised; True gives the LS-SVM.
    solver : {"cholesky", "cg"}, default="cholesky"
        "cg" never stores the kernel matrix; it gives no error bars.
    tol : float, default=1e-6
        Relative residual at which conjugate gradients stop.
    max_iter : int, default=1000
        Iterations after which conjugate gradients give up, with a ``ConvergenceWarning``.
    random_state : int, RandomState or None, default=None
        For the rows of the preconditioner, and for those on which a median distance is found.
    n_jobs, verbose
        As in ``NystromRegressor``.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with its parameters as numbers.
    coefficients_ : array (n,) or (n, p)
        Weights of the training rows (those of positive weight).
    intercept_ : float or array (p,)
    noise_ : float
        λ in use: the one given or chosen; the noise variance is λ·scale_².
    scale_ : float or array (p,)
        σ, the likeliest standard deviation of the prior, in units of y; standard deviations are multiplied by it.
    calibration_, loo_error_ : float or array (p,)
        As in ``NystromRegressor``; not with ``solver="cg"``, nor without noise.
    log_marginal_likelihood_ : float
        Of the targets, at the best σ, summed over the outputs (restricted, with an intercept); needs
        ``solver="cholesky"``.
    jitter_ : float
        What was added to the diagonal beyond the noise; usually 0.
    n_iter_ : int
        Iterations of the solver.
    expansion_ : KernelExpansion
        The model.

    See Also
    --------
    NystromRegressor : The same on a basis of few points, for many rows.
    CompactRegressor : The same with a kernel of compact support, on a sparse matrix.

    Notes
    -----
    A weight ω divides the noise of its row. Weights that are all whole count equal rows: 2 is the row twice. Of others
    only ratios matter to the noise that is chosen, and to what is said of rows that are left out.

    Beside ``predict`` there are ``predict_interval`` and ``log_density`` for new observations, and ``loo_residuals``.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import ExactRegressor
    >>> from mercer.kernels import Gaussian
    >>> X = np.linspace(0, 6, 30)[:, np.newaxis]
    >>> model = ExactRegressor(Gaussian(length_scale=1.0), noise=1e-4).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5], [30.0]], return_std=True)
    >>> mean.round(3), std.round(3)
    (array([ 0.997, -0.039]), array([0.002, 0.356]))
    """

    _log_likelihood: Sometimes[float | None]

    def _keep(self, fit: ExactFit) -> None:
        self._log_likelihood = fit.log_likelihood

    @property
    def log_marginal_likelihood_(self) -> float:
        """Logarithm of the likelihood of the targets at the best σ (restricted, with an intercept), over all outputs.

        The density of y under N(0, scale_²(K + λW⁻¹)); with an intercept b, integrated over all b (flat prior, REML).
        Weights that are whole numbers count as rows: that is the density of the rows given one by one.
        """
        self._need_factor("log_marginal_likelihood_")
        value: float | None = getattr(self, "_log_likelihood", None)
        if value is None:
            raise ValueError("log_marginal_likelihood_ was not computed by the version of mercer that fitted this.")
        return value

    def loo_residuals(self) -> FloatArray:
        """Leave-one-out residuals of the training rows, exact and without a second fit; NaN for rows of weight zero.

        Row i without itself is predicted with an error of α_i / M⁻¹_ii, with M the system that was solved: H, bordered
        by ones if there is an intercept. Cost: n³/3.
        """
        factor, coefficients = self._need_factor("loo_residuals"), self.expansion_.coefficients
        residuals = np.full((self._n_rows, coefficients.shape[1]), np.nan)
        residuals[self._index], _ = leave_one_out(factor, coefficients, self._eta)
        return self.outputs_.predict(residuals)

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        self._need_factor("return_std")
        return super()._standard_deviations(rows)

    def _covariance(self, rows: Rows) -> FloatArray:
        self._need_factor("return_cov")
        return super()._covariance(rows)


@stored
@parameters
class ExactClassifier(KernelClassifier, ExactMachine):
    """Kernel classification on the full kernel matrix: least squares on ±1, one class against the rest.

    With ``intercept=True``, the default, this is the LS-SVM classifier.

    Parameters
    ----------
    kernel, noise, intercept, solver, tol, max_iter, random_state, n_jobs, verbose
        As in ``ExactRegressor``.
    class_weight : dict, "balanced" or None, default=None
        What the weights of rows are multiplied by: a number for each class, or such numbers that all classes have the
        same total weight.

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
    noise_ : float
        λ in use: the one given or chosen.
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**ExactMachine._parameter_constraints, **CLASS_WEIGHT}

    _keeps_factor = False
