"""Regression on pseudo-inputs: basis points, kernel and noise fitted together."""

from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_estimator
from mercer._validation import Integral, Interval, Real, StrOptions, parameters
from mercer.engine import ArrayTable
from mercer.estimators.regression import KernelRegressor
from mercer.estimators.shell import BASIS_CONSTRAINTS, OnBasis, Shell, make_executor
from mercer.exceptions import warn
from mercer.methods.frame import Frame, used_rows
from mercer.methods.pseudo_inputs import Freedom, fit_pseudo_inputs
from mercer.model import Calibration, KernelExpansion


@stored
@parameters
class PseudoInputRegressor(KernelRegressor, OnBasis, Shell):
    r"""Sparse Gaussian process whose basis points, kernel and noise are fitted together.

    Maximises, by L-BFGS with exact gradients, the marginal likelihood of the FITC approximation (Snelson and
    Ghahramani), or the variational lower bound of the exact marginal likelihood (Titsias), over the positions of m
    basis points, the kernel's parameters and the noise.

    Time n·m² per step, for two passes over the rows (a third, to sum k(x, x), for the bound); seven passes
    before the first step, or 28; memory m² per thread and n.

    Parameters
    ----------
    kernel : str or kernel, default="gaussian"
        Where the parameters start: as in ``NystromRegressor``, a kernel that has gradients. Parameters are searched
        within a factor of 10 000. One length scale per feature is fitted if the kernel has an array of them.
    n_basis : int, default=100
        m; if there are fewer rows, all are taken.
    basis : str, strategy or array (m, d), default="uniform"
        Where the basis points start.
    objective : {"vfe", "fitc"}, default="vfe"
        The variational bound, which does not overfit as points are added, or the marginal likelihood of FITC, whose
        variances may follow noise that differs between inputs.
    noise : float or "auto", default="auto"
        Where λ starts; above zero. "auto" is the best of seven ratios to the prior variance. If kernel and noise are
        both fitted, the search starts with the best of them and the best common factor of kernel and noise: neither
        this value nor the units of the targets matter. If length scales are so short that no noise is better than
        another (as many points as rows, which are then interpolated), it starts with the best of 2, 4 or 8 times them.
        The result is at least 1e-6 of the targets' mean square.
    fit_points, fit_kernel, fit_noise : bool, default=True
        What is fitted.
    intercept : bool, default=True
        Whether to add a constant b that is not penalised. The objective is then that of the targets less their mean.
    max_iter : int, default=300
        Most steps of L-BFGS.
    tol : float, default=1e-5
        Stop when a step gains less than this per row (or than this share of the objective, if it is above 1 per row),
        or when no step gains more than rounding.
    random_state, n_jobs, verbose
        As in ``NystromRegressor``.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel as fitted.
    basis_ : array (rank_, d)
        Basis points as fitted; points that coincide with others are left out.
    noise_ : float
        λ as fitted; add it to the variance of the function for that of an observation.
    objective_value_ : float
        Log marginal likelihood (of FITC) or its lower bound.
    n_iter_ : int
        Steps of L-BFGS.
    scale_ : float or array (p,)
        1 where kernel or noise is fitted: they have the units of y. If both are given, as in ``NystromRegressor``.
    calibration_, loo_error_
        As in ``NystromRegressor``, with basis points, kernel and noise as they are.
    rank_, coefficients_, intercept_, expansion_
        As in ``NystromRegressor``.

    See Also
    --------
    NystromRegressor : Fixed basis points; much faster.

    Notes
    -----
    A row of whole weight ω counts as ω rows; for ``objective="fitc"`` the weight divides the noise of its row. Of other
    weights only ratios matter.

    References
    ----------
    E. Snelson, Z. Ghahramani: Sparse Gaussian processes using pseudo-inputs, NIPS 2005. M. K. Titsias: Variational
    learning of inducing variables in sparse Gaussian processes, AISTATS 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import PseudoInputRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, size=(500, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=500)
    >>> model = PseudoInputRegressor(n_basis=8, random_state=0).fit(X, y)
    >>> bool(0.008 < model.noise_ < 0.012)
    True
    """

    n_basis: int = 100
    objective: Literal["vfe", "fitc"] = "vfe"
    noise: float | Literal["auto"] = "auto"
    fit_points: bool = True
    fit_kernel: bool = True
    fit_noise: bool = True
    intercept: bool = True
    max_iter: int = 300
    tol: float = 1e-5

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BASIS_CONSTRAINTS,
        "objective": [StrOptions({"fitc", "vfe"})],
        "noise": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "fit_points": ["boolean"],
        "fit_kernel": ["boolean"],
        "fit_noise": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }

    noise_: float = field(init=False)
    n_iter_: int = field(init=False)
    objective_value_: float = field(init=False)
    expansion_: KernelExpansion = field(init=False)
    _fitted_frame: Frame = field(init=False)
    _calibrated: Sometimes[Calibration | None] = field(init=False)

    def check_stored(self) -> None:
        """Refuse an expansion on another basis."""
        points, n_outputs = self.expansion_.points, self.expansion_.coefficients.shape[1]
        check_estimator(self, n_outputs=n_outputs, n_features=points.shape[1])
        self._fitted_frame.check_expansion(self.expansion_, n_outputs)

    def _fit(self, table: ArrayTable) -> None:
        start = self._choose_frame(table, np.dtype(np.float64))
        total = self._total_noise
        noise = None if isinstance(total, str) else total
        fit = fit_pseudo_inputs(
            table.subset(used_rows(table, 1.0 if noise is None else noise)),
            start,
            kind=self.objective,
            noise=noise,
            intercept=bool(self.intercept),
            freedom=Freedom(self.fit_points, self.fit_kernel, self.fit_noise),
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            executor=make_executor(self),
        )
        self._fitted_frame, self.noise_, self.expansion_ = fit.frame, fit.noise, fit.expansion
        self.n_iter_, self.objective_value_, self._calibrated = fit.n_iter, fit.objective, fit.calibration
        # A line search that fails has reached the rounding of the objective, however steep it is there: where points
        # meet rows, the likelihood of FITC has ridges too narrow to climb any further.
        if not fit.is_over:
            warn(f"the objective still grew after {fit.n_iter} steps: raise max_iter, or tol.", ConvergenceWarning)
        self._check_calibration()

    def _calibration(self) -> Calibration | None:
        return getattr(self, "_calibrated", None)

    @property
    def _frame(self) -> Frame:
        return self._fitted_frame
