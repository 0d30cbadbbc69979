"""Regression by stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer._validation import Interval, Real, StrOptions, check_is_fitted, parameters
from mercer.engine import ArrayTable, Rows
from mercer.estimators.norma_machine import NormaMachine
from mercer.estimators.regression import KernelRegressor
from mercer.estimators.shell import all_or_nothing, on_its_threads, read_rows
from mercer.solvers.stochastic import Loss

_ENOUGH = 200  # rows: of fewer, residuals before learning say little of the model after all of them
_HUBER, _EPSILON = 1.35, 0.1  # spreads of the targets


@stored
@parameters
class NormaRegressor(KernelRegressor, NormaMachine):
    r"""Stochastic gradient descent on the regularised risk, in the space of functions (NORMA).

    Row t moves the model against the gradient of its own regularised risk,

    .. math:: f_{t+1} = (1 - \eta_t\lambda) f_t - \eta_t\,\ell'(f_t(x_t), y_t)\,k(x_t, \cdot), \qquad
              R_t(f) = \ell(f(x_t), y_t) + \tfrac{\lambda}{2}|f|^2,

    so each row whose loss has a slope adds a term, and older terms shrink. The oldest is dropped when there are more
    than ``max_basis``, or when it is negligible. Whatever the rows are, the sum of R_t(f_t) exceeds that of any fixed
    function by a√n + b at the most (``mercer.reports.regret``). The mean over late f_t predicts.

    Beside ``OnlineRegressor``, a row costs m operations and not m², and there are other losses; but the model is less
    accurate, and has intervals for its only error bars.

    Time m·d per row and memory m·d, with m terms, whatever the number of rows. For a given kernel and given units the
    result does not depend on how rows are batched.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        As in ``NystromRegressor``. A median length scale is that of the rows of ``fit``, or of the first 128 rows (or
        more, if one batch has them): until then ``partial_fit`` and ``learn_one`` start over with all rows so far.
    loss : {"squared_error", "huber", "epsilon_insensitive", "quantile"}, default="squared_error"
        (f - y)²/2, so that its derivative is f - y; the same up to ``epsilon`` and linear beyond; the distance beyond
        ``epsilon``; ``quantile`` times the distance above f, and 1 - ``quantile`` times that below.
    epsilon : float or None, default=None
        The threshold of "huber" (None: 1.35) and "epsilon_insensitive" (0.1), in spreads of the targets; see
        ``scale_targets``.
    nu : float or None, default=None
        With "epsilon_insensitive", the share of rows that the tube leaves out: ε is then learned, from ``epsilon`` on.
    quantile : float, default=0.5
        With "quantile", which one.
    regularization : float or "auto", default="auto"
        λ. Kernel ridge regression on n rows with ``noise=n*regularization`` has the same regularised risk. "auto" is
        1/(η₀(max_basis + 1)): by the time a term is dropped, a constant rate has left 1/e of it.
    learning_rate : float or "auto", default="auto"
        η₀. "auto" is 1/(2(k(x, x) + 1 + λ)), with the largest k(x, x) so far, and without the 1 if there is no
        intercept: half of what the squared loss bears.
    schedule : {"constant", "inverse_sqrt", "inverse"}, default="constant"
        η_t = η₀, η₀/√t or η₀/(1 + λη₀(t-1)). With rates that fall, later rows count less and less: use them where
        ``max_basis`` is not reached.
    max_basis : int, default=1000
        Most terms.
    truncation : float, default=1e-4
        The oldest terms are dropped, too, while the norms of all that was dropped are below this share of the norms of
        all terms; 0 never does. See ``truncation_error_``.
    average : bool, default=True
        Whether to predict with the mean over about as many of the last models as are a tenth of ``max_basis`` (or of
        the rows so far); otherwise with the last, which follows the last rows. Thresholds are means, too.
    shuffle : bool, default=True
        Whether ``fit`` learns rows in random order; of rows that are not in memory it shuffles some 32 MB at a time.
        ``partial_fit``, and ``fit`` with ``record=True``, learn them in their order.
    intercept : bool, default=True
        Whether to add a constant, which is learned at the same rate, from the mean or median of the targets on.
    scale_targets : bool, default=True
        Whether to learn targets in units of their spread about the mean (without an intercept: about zero), which the
        same rows decide as a median length scale: their standard deviation or, of losses that bear outliers, 1.48 times
        the median distance from the median. Otherwise the units of y matter.
    record : bool, default=False
        Whether to keep ``history_``: three numbers per row and output, and up to twice the time.
    random_state : int, RandomState or None, default=None
        For the order of the rows, and those on which a median distance is found.
    n_jobs : int or None, default=None
        Threads for predictions; learning uses one.
    verbose : int, default=0
        1 shows progress on a terminal, 2 elsewhere, too.

    Attributes
    ----------
    kernel_ : Kernel
    basis_, basis_index_ : arrays (m, d), (m,)
        The rows in use, oldest first, and their numbers among all rows learned.
    coefficients_ : array (m,) or (m, p)
    intercept_ : float or array (p,)
    learning_rate_, regularization_ : float
        η₀ and λ.
    epsilon_ : float or array (p,)
        The threshold in units of y.
    truncation_error_ : float
        Bound of the norm of what was dropped, as a share of the sum of the norms of all terms.
    scale_ : float or array (p,)
        Root of the mean squared residual before learning.
    calibration_, loo_error_ : float or array (p,)
        Of a sample of late rows, before they were learned.
    n_seen_ : int
    history_ : dict of arrays
    expansion_ : KernelExpansion

    See Also
    --------
    OnlineRegressor : Recursive least squares on a dictionary.

    References
    ----------
    J. Kivinen, A. Smola, R. Williamson: Online learning with kernels, IEEE Transactions on Signal Processing 52, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NormaRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(20_000, 2))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(2, size=20_000)
    >>> model = NormaRegressor(loss="huber", random_state=0).fit(X, y)
    >>> len(model.basis_), bool(abs(model.predict([[1.0, 0.0]])[0] - np.sin(1.0)) < 0.1)
    (1000, True)
    """

    loss: Literal["squared_error", "huber", "epsilon_insensitive", "quantile"] = "squared_error"
    epsilon: float | None = None
    nu: float | None = None
    quantile: float = 0.5
    intercept: bool = True
    scale_targets: bool = True
    record: bool = False

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **NormaMachine._parameter_constraints,
        "loss": [StrOptions({"squared_error", "huber", "epsilon_insensitive", "quantile"})],
        "epsilon": [None, Interval(Real, 0, None, closed="left")],
        "nu": [None, Interval(Real, 0, 1, closed="neither")],
        "quantile": [Interval(Real, 0, 1, closed="neither")],
        "intercept": ["boolean"],
        "scale_targets": ["boolean"],
        "record": ["boolean"],
    }

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn more rows, in their order; rates, regularisation and budget may have been changed since the last."""
        return self._add_rows(X, y, sample_weight)

    @on_its_threads
    def predict(self, X: Any) -> FloatArray:  # type: ignore[override]  # there is no standard deviation
        """Predict the targets of rows X (n, d), in the units of y."""
        outputs, rows = self.outputs_, read_rows(self, X, reset=False)
        return np.asarray(outputs.predict(self._evaluate_rows(rows)))

    def learn_one(self, x: Mapping[Any, Any], y: float, w: float = 1.0) -> None:
        """Learn one row given as a mapping from features to numbers, as river has it; w is its weight.

        The first row names the features; later a missing one is 0, and others are ignored.
        """
        if w == 0:
            return
        with all_or_nothing(self):
            if not hasattr(self, "_state"):
                self._begin_with(x, n_outputs=1)
                self._flat = True
            if self._n_outputs != 1:
                raise ValueError(f"the model has {self._n_outputs} outputs: learn_one takes one.")
            self._learn_one(self._one(x), np.array([[float(y)]]), float(w))

    def predict_one(self, x: Mapping[Any, Any]) -> float:
        """Predict the target of one row; 0 before anything was learned."""
        return float(self._evaluate_one(self._one(x))[0]) if hasattr(self, "_state") else 0.0

    @property
    def epsilon_(self) -> Any:
        """The threshold of the loss in units of y, a number or an array (p,)."""
        check_is_fitted(self)
        return self._by_output(self._learner.threshold)

    @property
    def _has_units(self) -> bool:
        return bool(self.scale_targets)

    def _fit(self, table: ArrayTable) -> None:
        super()._fit(table)
        if self.n_seen_ >= _ENOUGH and self.loss != "quantile":
            self._check_calibration()

    def _loss(self) -> Loss:
        if self.nu is not None and self.loss != "epsilon_insensitive":
            raise ValueError(f"nu={self.nu} is for loss='epsilon_insensitive'; with {self.loss!r} it must be None.")
        if self.loss == "quantile":
            return Loss.named(self.loss, float(self.quantile))
        shape = {"squared_error": 0.0, "huber": _HUBER, "epsilon_insensitive": _EPSILON}[self.loss]
        return Loss.named(self.loss, shape if self.epsilon is None else float(self.epsilon), self.nu)

    def _standard_deviations(self, rows: Rows) -> FloatArray:
        """None of the function is known."""
        return np.zeros(rows.n_rows)

    def _observation_noise(self) -> float:
        """In units of the mean squared residual."""
        return 1.0
