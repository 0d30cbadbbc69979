"""Support vector machines on a basis of few points: classification and regression."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_estimator, check_shape
from mercer._typing import FloatArray
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted, parameters
from mercer.engine import ArrayTable
from mercer.estimators.classification import CLASS_WEIGHT, KernelClassifier
from mercer.estimators.nystrom import check_noises
from mercer.estimators.regression import MeanRegressor
from mercer.estimators.shell import BASIS_CONSTRAINTS, OnBasis, Shell, make_executor, on_its_threads
from mercer.exceptions import warn
from mercer.methods.frame import Frame
from mercer.methods.margins import Loss
from mercer.methods.support_vectors import Settings, Solution, fit_support_vectors
from mercer.model import Calibration, KernelExpansion


@dataclass(frozen=True)
class SVMPath:
    """Models for many C on one basis.

    Attributes
    ----------
    C : array (k,)
    coefficients : array (k, m, p)
    intercepts : array (k, p)
    n_support : list of k arrays
        As ``n_support_`` of a model.
    duality_gaps : array (k, p)
    n_iter : array (k,)
        Passes over the rows.
    """

    C: FloatArray
    coefficients: FloatArray
    intercepts: FloatArray
    n_support: list[Any]
    duality_gaps: FloatArray
    n_iter: Any


@parameters
class SupportVectorMachine(OnBasis, Shell):
    """Parameters, fitted state, and the fit."""

    C: float = 1.0
    intercept: bool = True
    tol: float = 1e-5
    max_iter: int = 500

    _instead_of_noise = "C"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BASIS_CONSTRAINTS,
        "C": [Interval(Real, 0, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    expansion_: KernelExpansion = field(init=False)
    n_support_: Any = field(init=False)
    duality_gap_: FloatArray = field(init=False)
    n_iter_: int = field(init=False)
    _fitted_frame: Frame = field(init=False)
    _left_out: Sometimes[Calibration] = field(init=False)

    def check_stored(self) -> None:
        """Refuse a model on another basis."""
        n_outputs = self.expansion_.coefficients.shape[1]
        check_estimator(self, n_outputs=n_outputs, n_features=self.expansion_.points.shape[1])
        check_shape(self.duality_gap_, (n_outputs,), "duality gaps")
        self._frame.check_expansion(self.expansion_, n_outputs)

    def _fit(self, table: ArrayTable) -> None:
        frame = self._choose_frame(table, table.dtype)
        solution = self._solve(table, frame, float(self.C))
        self._fitted_frame, self.expansion_, self._left_out = frame, solution.expansion, solution.calibration
        self.duality_gap_, self.n_iter_ = solution.gaps, solution.n_passes
        self.n_support_ = self._count(solution.support)

    def _solve(self, table: ArrayTable, frame: Frame, cost: float, start: KernelExpansion | None = None) -> Solution:
        settings = Settings(self._loss(cost), bool(self.intercept), float(self.tol), int(self.max_iter))
        solution = fit_support_vectors(table, frame, settings, executor=make_executor(self), start=start)
        if not solution.converged:
            remedy = "Rounding hides what is left: lower C." if solution.rounded else "Raise max_iter or lower C."
            warn(
                f"after {solution.n_passes} passes the objective may be {np.max(solution.gaps):.1g} of itself above "
                f"its minimum (C={cost:.3g}, tol={settings.tol:.1g}). {remedy}",
                ConvergenceWarning,
            )
        return solution

    @abstractmethod
    def _loss(self, cost: float) -> Loss:
        """The loss, for a value of C."""

    @abstractmethod
    def _count(self, support: FloatArray) -> Any:
        """``n_support_``, from numbers of rows (p, 2) that pull a function up and down."""

    @on_its_threads
    def path(self, X: Any, y: Any, C: Any, sample_weight: Any = None) -> SVMPath:
        """Fit for many C on the basis of this model, each from the solution of the last.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``; the rows are given again, because none is kept.
        C : array (k,)
            Positive numbers; in rising or falling order it takes the fewest steps.

        Returns
        -------
        SVMPath
            The model itself stays as it is.
        """
        check_is_fitted(self)
        costs = check_noises(C, "C", positive=True)
        table, start, found = self._read(X, y, sample_weight, first=False), self.expansion_, []
        for cost in costs:
            found.append(self._solve(table, self._frame, float(cost), start))
            start = found[-1].expansion
        return SVMPath(
            C=costs,
            coefficients=np.array([each.expansion.coefficients for each in found]),
            intercepts=np.array([each.expansion.intercept for each in found]),
            n_support=[self._count(each.support) for each in found],
            duality_gaps=np.array([each.gaps for each in found]),
            n_iter=np.array([each.n_passes for each in found]),
        )

    def _calibration(self) -> Calibration | None:
        return getattr(self, "_left_out", None)

    @property
    def _frame(self) -> Frame:
        return self._fitted_frame


@stored
@parameters
class NystromSVC(KernelClassifier, SupportVectorMachine):
    r"""Support vector classification on a basis of m points, for any number of rows.

    Minimises :math:`\tfrac12|f|^2 + C\sum_i\omega_i\,\ell(y_i(f(x_i) + b))` over
    :math:`f = \sum_j w_j k(\cdot, z_j)`, with :math:`y_i = \pm 1` and the squared hinge
    :math:`\ell(t) = (1 - t)_+^2` or the hinge :math:`(1 - t)_+` (the reduced support vector machine). With all rows as
    basis and the hinge this is scikit-learn's ``SVC``, with the same C.

    Each step is one pass over the rows, of time n·m plus m² for each row inside the margin, and one pass more if it is
    too long. The squared hinge takes 5 to 25 passes, the hinge 40 to 150; more of them for C above 1000. Memory is m²
    per class and thread, within ``working_memory`` (classes take turns where it is short), and for the hinge 2 numbers
    per row and class. Where the features of all rows fit into half of scikit-learn's ``working_memory``, they are
    computed once.

    Parameters
    ----------
    kernel, n_basis, basis, random_state, n_jobs, verbose
        As in ``NystromRegressor``; ``White`` cannot be part of the kernel.
    C : float, default=1.0
        What an error costs, relative to the size of the function; above zero. The smaller it is, the smoother f.
    loss : {"squared_hinge", "hinge"}, default="squared_hinge"
        The hinge leaves more rows without influence, and takes several times as long.
    intercept : bool, default=True
        Whether to add a constant b that is not penalised.
    class_weight : dict, "balanced" or None, default=None
        What C is multiplied by for rows of each class: a number, or such numbers that all classes have the same total
        weight.
    tol : float, default=1e-5
        The fit stops when the duality gap is below this share of the objective, which is then at most so far above its
        minimum.
    max_iter : int, default=500
        Passes over the rows after which it stops in any case, with a ``ConvergenceWarning``.

    Attributes
    ----------
    classes_ : array (classes,)
    n_support_ : array (classes,)
        Support rows, those with an influence on f: of two classes the number in each, of more the number for each
        function.
    duality_gap_ : array (outputs,)
        By how much the objective exceeds its minimum at most, as a share of it.
    n_iter_ : int
        Passes over the rows.
    coefficients_ : array (rank_, outputs)
        One output for two classes, one per class for more (one against the rest).
    intercept_ : array (outputs,)
    kernel_, basis_, basis_index_, rank_, basis_note_, expansion_
        As in ``NystromRegressor``.

    See Also
    --------
    NystromClassifier : Least squares on ±1: one pass, and a noise that is chosen.
    NystromSVR : Regression.

    Notes
    -----
    A row of weight ω has C·ω in place of C, so weight 2 is the row twice.

    ``predict_proba`` is fitted to decision values of up to 2048 rows that are left out. They are in closed form, as if
    the others stayed inside or outside the margin, where they are: an approximation.

    Newton's method on the squared hinge ends exactly, once the rows inside the margin stay the same. The hinge is
    minimised by augmented Lagrangians, each by Newton's method. For large C the former begins with smaller ones, the
    latter with more smoothing.

    References
    ----------
    Y.-J. Lee, O. L. Mangasarian (2001). RSVM: Reduced support vector machines. SIAM Data Mining.

    S. S. Keerthi, D. DeCoste (2005). A modified finite Newton method for fast solution of large scale linear SVMs.
    JMLR 6.

    O. Chapelle, V. Vapnik, O. Bousquet, S. Mukherjee (2002). Choosing multiple parameters for support vector machines.
    Machine Learning 46. (Their span of the support vectors is what leaves out a row here.)

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromSVC
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> y = np.where(np.sum(X**2, axis=1) > 1.4, "outside", "inside")
    >>> model = NystromSVC(n_basis=50, C=10.0, random_state=0).fit(X[:4000], y[:4000])
    >>> model.score(X[4000:], y[4000:]) > 0.98
    True
    """

    loss: Literal["squared_hinge", "hinge"] = "squared_hinge"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SupportVectorMachine._parameter_constraints,
        **CLASS_WEIGHT,
        "loss": [StrOptions({"squared_hinge", "hinge"})],
    }

    def _loss(self, cost: float) -> Loss:
        return Loss.named(self.loss, cost)

    def _refuse_balanced(self) -> None:
        """All rows are given to a later call, too: that is a path."""

    def _count(self, support: FloatArray) -> Any:
        # of two classes, β > 0 in rows of the second
        counts = support[0, ::-1] if len(self.classes_) == 2 else np.sum(support, axis=1)
        return counts.astype(np.intp)


@stored
@parameters
class NystromSVR(MeanRegressor, SupportVectorMachine):
    r"""Support vector regression on a basis of m points, for any number of rows.

    Minimises :math:`\tfrac12|f|^2 + C\sum_i\omega_i\,\ell(y_i - f(x_i) - b)` over
    :math:`f = \sum_j w_j k(\cdot, z_j)`, with :math:`\ell(e) = (|e| - \varepsilon)_+^2` or
    :math:`(|e| - \varepsilon)_+`. With all rows as basis and the latter this is scikit-learn's ``SVR``, with the same C
    and ε.

    Each step is one pass over the rows, of time n·m plus m² for each row outside the tube.

    Parameters
    ----------
    kernel, n_basis, basis, C, intercept, tol, max_iter, random_state, n_jobs, verbose
        As in ``NystromSVC``.
    epsilon : float, default=0.1
        ε, the error that costs nothing, in units of y.
    loss : {"squared_epsilon_insensitive", "epsilon_insensitive"}, default="squared_epsilon_insensitive"
        The second one is robust: an outlier counts by its error, not by its square.

    Attributes
    ----------
    n_support_ : int or array (p,)
        Rows with an error above ε, or at it.
    loo_error_ : float or array (p,)
        Root of the mean squared residual of up to 2048 rows that are left out, for the squared loss: in closed form, as
        if the others stayed inside or outside the tube, which is an approximation if ε is above zero.
    duality_gap_ : array (p,)
        By how much the objective exceeds its minimum at most, as a share of it.
    n_iter_ : int
        Passes over the rows.
    coefficients_ : array (rank_,) or (rank_, p)
    intercept_ : float or array (p,)
    kernel_, basis_, basis_index_, rank_, basis_note_, expansion_
        As in ``NystromRegressor``.

    See Also
    --------
    NystromRegressor : Least squares, with error bars and a noise that is chosen.
    NystromSVC : Classification.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromSVR
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, size=(5000, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(1.5, size=5000)  # with outliers
    >>> model = NystromSVR(n_basis=30, loss="epsilon_insensitive", random_state=0).fit(X, y)
    >>> model.predict([[1.5], [3.0]]).round(1)
    array([1. , 0.1])
    """

    epsilon: float = 0.1
    loss: Literal["squared_epsilon_insensitive", "epsilon_insensitive"] = "squared_epsilon_insensitive"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SupportVectorMachine._parameter_constraints,
        "epsilon": [Interval(Real, 0, None, closed="left")],
        "loss": [StrOptions({"squared_epsilon_insensitive", "epsilon_insensitive"})],
    }

    def _loss(self, cost: float) -> Loss:
        return Loss.named(self.loss, cost, float(self.epsilon))

    def _count(self, support: FloatArray) -> Any:
        counts = np.sum(support, axis=1).astype(np.intp)
        return int(counts[0]) if self._flat else counts

    @property
    def loo_error_(self) -> Any:
        """Root of the mean squared residual of rows that are left out, a number or an array (p,)."""
        check_is_fitted(self)
        if not self._loss(1.0).squared:
            raise AttributeError("loo_error_ is known for loss='squared_epsilon_insensitive' only: cross-validate.")
        return self._by_output(self._left_out.error)
