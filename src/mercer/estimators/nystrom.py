"""Kernel machines on a basis of few points (the subset of representers): regression and classification."""

from dataclasses import field
from typing import Any, ClassVar, Literal, Self

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer._validation import Interval, Real, StrOptions, check_is_fitted, check_numbers, parameters
from mercer.engine import ArrayTable, NormalStatistics
from mercer.estimators.classification import CLASS_WEIGHT, KernelClassifier
from mercer.estimators.collections import takes_collections
from mercer.estimators.regression import KernelRegressor
from mercer.estimators.shell import BASIS_CONSTRAINTS, SummedOnBasis, all_or_nothing, make_executor, on_its_threads
from mercer.methods.nystrom import NoisePath, Settings, Summary
from mercer.model import Calibration, KernelExpansion
from mercer.solvers.ridge import Choice


@parameters
class NystromMachine(SummedOnBasis):
    """Parameters and fitted state; all of the state is one ``Summary``, replaced as a whole."""

    noise: float | Choice = "auto"
    intercept: bool = True
    variance: Literal["dtc", "sor"] = "dtc"

    _summary: Summary = field(init=False)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BASIS_CONSTRAINTS,
        "noise": [Interval(Real, 0, None, closed="left"), StrOptions({"auto", "gcv", "loo"})],
        "variance": [StrOptions({"dtc", "sor"})],
    }

    def _fit(self, table: ArrayTable) -> None:
        frame, executor = self._choose_frame(table, table.dtype), make_executor(self)
        self._summary = Summary.start(frame, table, self._settings(), once=executor).plus(table, executor)
        _ = self._solved  # what cannot be solved is refused here, not when it is first used

    def _partial_fit(self, table: ArrayTable) -> None:
        if hasattr(self, "_summary"):
            summary = self._summary.with_settings(self._settings())
        else:
            frame = self._choose_frame(table, table.dtype)
            summary = Summary.start(frame, table, self._settings())
        self._summary = summary.plus(table, make_executor(self))

    @takes_collections
    def forget(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Remove rows; they must have been added with these targets (or labels) and weights.

        Exact up to the rounding of the sums. Rows of enormous weight or targets leave few digits of the others: where
        what remains could be off by more than a thousandth or so, that is refused, or warned of if the noise is chosen.
        """
        self._validate_params()
        check_is_fitted(self)
        with all_or_nothing(self):
            summary = self._summary.with_settings(self._settings())
            self._summary = summary.minus(self._read(X, y, sample_weight, first=False), make_executor(self))
        return self

    def _merge(self, other: Self) -> None:
        self._summary = self._summary.merged(other._summary).with_settings(self._settings())

    @on_its_threads
    def noise_path(self, noises: Any) -> NoisePath:
        """Solve for many noises at the price of one eigendecomposition, from what was seen so far.

        Parameters
        ----------
        noises : array (k,)
            Values of λ.

        Returns
        -------
        NoisePath
        """
        check_is_fitted(self)
        return self._summary.path(check_noises(noises))

    def _settings(self) -> Settings:
        return Settings(noise=self._total_noise, intercept=bool(self.intercept), prior=self.variance == "dtc")

    def _calibration(self) -> Calibration | None:
        _ = self._solved
        return self._summary.calibration

    @property
    def _solved(self) -> tuple[KernelExpansion, float]:
        """The model and its noise, judged when it is solved for directly: after ``partial_fit``, on first access."""
        is_new = "solved" not in vars(self._summary)
        solved = self._summary.solved
        if is_new and self._summary.is_solved_directly:
            self._check_calibration()
        return solved

    @property
    def statistics_(self) -> NormalStatistics:
        """What was kept of the rows."""
        check_is_fitted(self)
        return self._summary.statistics

    @property
    def expansion_(self) -> KernelExpansion:
        """The model, solved for on first access."""
        check_is_fitted(self)
        return self._solved[0]

    @property
    def noise_(self) -> float:
        """The noise in use: the one given, or the one that was chosen."""
        check_is_fitted(self)
        return self._solved[1]

    @property
    def n_seen_(self) -> int:
        """Rows in the statistics."""
        return self.statistics_.n_rows

    @property
    def _whitened(self) -> bool:
        return self.statistics_.is_whitened


def check_noises(noises: Any, name: str = "noises", *, positive: bool = False) -> FloatArray:
    """Refuse what are no noises, or other such numbers; a single number is one of them."""
    values = np.atleast_1d(np.asarray(check_numbers(noises, name)))
    numbers = values.ndim == 1 and len(values) and values.dtype.kind in "iuf"
    if not (numbers and np.all(np.isfinite(values) & ((values > 0) if positive else (values >= 0)))):
        least = "above zero" if positive else "of at least zero"
        raise ValueError(f"{name} must be finite numbers {least}, at least one; got {noises!r}.")
    return values.astype(np.float64)


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
        A name ("gaussian" or "rbf", "matern", "rational_quadratic", "periodic", "linear", "polynomial" or "poly"), a
        kernel of ``mercer.kernels`` or of ``sklearn.gaussian_process.kernels``, or a function of two matrices. By name,
        length scales are the median distance of the rows. ``White`` in it is added to the noise.
    n_basis : int, default=500
        m; if there are fewer rows, all are taken.
    basis : str, strategy or array (m, d), default="uniform"
        How basis points are chosen: a name ("uniform"), a strategy of ``mercer.basis``, or the points themselves.
        ``partial_fit`` chooses them from the first rows it is given.
    noise : float, "auto", "gcv" or "loo", default="auto"
        λ, relative to the prior's variance; one for all outputs. "auto" takes the likeliest (marginal likelihood,
        restricted with an intercept, at the best ``scale_``), or that of the least leave-one-out error if the likeliest
        predicts rows that are left out worse than the mean does; "loo" always the latter; "gcv" minimises generalised
        cross-validation. All come from one eigendecomposition. 0 interpolates. For weights see the notes.
    intercept : bool, default=True
        Whether to add a constant b that is not penalised.
    variance : {"dtc", "sor"}, default="dtc"
        Form of the predictive variance. "dtc" grows to the prior's far from the basis; "sor" leaves out what the basis
        cannot represent and shrinks to zero there, which is misleading: it is for comparison only.
    random_state : int, RandomState or None, default=None
        For the choice of the basis, and of the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads; None for as many as BLAS may use.
    verbose : int, default=0
        1 shows progress on a terminal, 2 elsewhere, too.

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
        λ in use: the one given or chosen; the noise variance is λ·scale_².
    scale_ : float or array (p,)
        σ, the likeliest standard deviation of the prior, in units of y; standard deviations are multiplied by it.
    calibration_ : float or array (p,)
        Mean squared standardised residual of rows that are left out: 1 if the spread is right, above if it is too
        small. This and ``loo_error_`` need a noise above zero, and come from up to 2048 of the rows seen, without the
        basis points if 200 others are among them.
    loo_error_ : float or array (p,)
        Root of the mean squared residual of rows that are left out.
    log_marginal_likelihood_ : float
        Of the targets seen, by the model on the basis, at the best σ, summed over the outputs (restricted, with an
        intercept).
    n_seen_ : int
        Rows in the statistics.
    statistics_ : NormalStatistics
        What was kept of the rows.
    expansion_ : KernelExpansion
        The model.

    See Also
    --------
    ExactRegressor : All rows as basis.
    CommitteeRegressor : Accounts for what the basis leaves of the kernel.
    cross_validate_path : Errors of held-out rows for many noises, in one pass.

    Notes
    -----
    A weight ω divides the noise of its row. Weights that are all whole count equal rows: 2 is the row twice. Of others
    only ratios matter to the noise that is chosen, and to what is said of rows that are left out.

    Beside ``predict`` there are ``predict_interval`` and ``log_density`` for new observations, ``noise_path`` for many
    noises, and ``partial_fit``, ``merge`` and ``forget`` for rows that come and go. If rows that are left out are
    predicted worse than by the mean, ``fit`` gives a ``GeneralisationWarning``; after ``partial_fit`` the first use of
    the model does.

    If the noise is a number, up to m/8 rows that come after the model was used change it in O(m²) operations for each
    row (the online ridge update), with the same result to rounding. The factor of the system, in O(m³), is made anew,
    and the model judged anew, when half the rows have changed, or when rounding has added up to 1e-9 of a variance.
    Rows that go are followed, too, but a check that the sums remain positive takes m³/3 operations. A noise that is
    chosen needs O(m³) for each choice: for a stream, keep one by ``model.set_params(noise=model.noise_)``.

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
    >>> model = NystromRegressor(n_basis=50, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.5], [3.0]], return_std=True)
    >>> mean.round(2)
    array([1.  , 0.14])
    """

    @property
    def log_marginal_likelihood_(self) -> float:
        """Logarithm of the likelihood of the targets seen, as this model has it, over all outputs.

        The density of y under N(0, scale_²(Q + λW⁻¹)), Q being the basis's approximation of K, at the best σ; with an
        intercept b, integrated over all b (flat prior, REML). Weights that are whole numbers count as rows. Compare
        noises and kernels by it, not bases: what the basis leaves of K is not in it.
        """
        check_is_fitted(self)
        return self._summary.log_likelihood

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows; the basis is chosen by the first call, and no row is kept."""
        return self._add_rows(X, y, sample_weight)


@stored
@parameters
class NystromClassifier(KernelClassifier, NystromMachine):
    """Kernel classification on a basis of m points: least squares on ±1, one class against the rest.

    Time n·m² and memory m² per thread, however many rows; one pass over the data.

    Parameters
    ----------
    kernel, n_basis, basis, noise, intercept, variance, random_state, n_jobs, verbose
        As in ``NystromRegressor``; ``variance`` is that of ``expansion_``.
    class_weight : dict, "balanced" or None, default=None
        What the weights of rows are multiplied by: a number for each class, or such numbers that all classes have the
        same total weight. ``partial_fit`` takes no "balanced", as it does not see all rows.

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
    cross_validate_path : Errors of held-out rows for many noises, in one pass.

    Notes
    -----
    ``predict_proba`` is fitted to leave-one-out values, for which the noise must be above zero.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from mercer import NystromClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = NystromClassifier(n_basis=300, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.94
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**NystromMachine._parameter_constraints, **CLASS_WEIGHT}

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add rows; the first call must name all ``classes``, unless all occur in its labels."""
        self._refuse_balanced()
        return self._add_rows(X, y, sample_weight, classes)
