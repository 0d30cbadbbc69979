"""Regression from a stream."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from mercer._stored import stored
from mercer.estimators.online_machine import OnlineMachine
from mercer.estimators.regression import KernelRegressor
from mercer.estimators.shell import all_or_nothing


@stored
class OnlineRegressor(KernelRegressor, OnlineMachine):
    r"""Sequential LS-SVM: sees each row once, keeps a dictionary of at most ``max_basis`` rows, predicts at any time.

    A row joins the dictionary if it is new (the squared distance δ of its function from the span of the dictionary
    exceeds ``novelty_tol``) and useful (δ times the cost that it would save exceeds ``gain_tol``); if the dictionary is
    full, the function whose removal costs least is dropped. Every row, whether it joins or not, is learned by
    regularised recursive least squares.

    Time m² per row and memory m², with m functions, whatever the number of rows. For a given kernel the result does not
    depend on how rows are batched.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
        As in ``NystromRegressor``. A median length scale is that of the rows of ``fit``, or of the first 128 rows (or
        more, if one batch has them): until then ``partial_fit`` and ``learn_one`` start over with all rows so far.
    noise : float, default=0.1
        λ, the variance of the noise in units of σ² (``scale_``); above zero.
    max_basis : int, default=500
        Most functions in the dictionary.
    novelty_tol : float, default=1e-2
        Least novelty δ, between 0 and k(x, x).
    gain_tol : float, default=1e-4
        Least novelty times saved cost, as a share of the targets' variance so far (without an intercept: mean square).
    selection : {"supervised", "novelty"}, default="supervised"
        "novelty" leaves ``gain_tol`` out: kernel recursive least squares (KRLS).
    forgetting : float, default=1.0
        φ in (0, 1]: before each row the model returns to its prior by the share 1 - φ, for functions that drift; rows
        more than 1/(1 - φ) ago count little.
    intercept : bool, default=True
        Whether to add a constant that is not penalised. With forgetting it is the discounted mean of the targets.
    second_pass : bool, default=False
        Whether ``fit`` solves for the coefficients exactly, by a second pass over the rows, once the dictionary is
        found; see ``refit``.
    record : bool, default=False
        Whether to keep ``history_``.
    random_state : int, RandomState or None, default=None
        For the rows on which a median distance is found.
    n_jobs : int or None, default=None
        Threads for predictions and the second pass; learning uses one.
    verbose : int, default=0
        1 shows progress on a terminal, 2 elsewhere, too.

    Attributes
    ----------
    kernel_ : Kernel
    basis_ : array (m, d)
        The dictionary.
    basis_index_ : array (m,)
        Numbers of these rows among all rows seen.
    coefficients_ : array (m,) or (m, p)
    intercept_ : float or array (p,)
    scale_ : float or array (p,)
        σ: root of the mean squared residual before learning, in units of what was expected.
    calibration_, loo_error_ : float or array (p,)
        Of a sample of late rows, before they were learned (after a second pass: left out).
    noise_ : float
    cost_ : float
        Regularised cost of all rows seen, as the recursion approximates it.
    n_seen_, n_grown_, n_pruned_ : int
        Rows learned, rows that joined the dictionary, functions that were removed.
    history_ : dict of arrays
        Rows seen, size of the dictionary, and squared error before learning, batch by batch.
    expansion_ : KernelExpansion

    References
    ----------
    T. Jung, D. Polani: Sequential learning with LS-SVM for large-scale data sets, ICANN 2006. Y. Engel, S. Mannor,
    R. Meir: The kernel recursive least squares algorithm, 2004. S. Van Vaerenbergh, M. Lázaro-Gredilla, I. Santamaría:
    Kernel recursive least-squares tracker for time-varying regression, 2012 (forgetting).

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import OnlineRegressor
    >>> rng = np.random.default_rng(0)
    >>> model = OnlineRegressor("gaussian", noise=0.01, max_basis=50)
    >>> for _ in range(10):
    ...     X = rng.uniform(0, 6, size=(100, 1))
    ...     _ = model.partial_fit(X, np.sin(X[:, 0]))
    >>> len(model.basis_) < 20, bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.05)
    (True, True)
    """

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn more rows, in their order.

        Budget, tolerances, selection and forgetting may have been changed since the last; kernel, noise and intercept
        may not.
        """
        return self._add_rows(X, y, sample_weight)

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

    def predict_one(self, x: Mapping[Any, Any], return_std: bool = False) -> Any:
        """Predict the mean of one row, and on request the standard deviation of the function there.

        Before anything was learned they are 0 and infinite.
        """
        if not hasattr(self, "_state"):
            return (0.0, np.inf) if return_std else 0.0
        row = self._one(x)
        mean = float(self._evaluate_one(row)[0])
        if not return_std:
            return mean
        return mean, float(np.sqrt(self._state.variance_one(row)) * self._scales()[0])
