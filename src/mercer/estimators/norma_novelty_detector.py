"""Novelty detection by stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import OutlierMixin

from mercer._stored import stored
from mercer._typing import FloatArray, IntArray
from mercer._validation import Interval, Real, check_is_fitted, parameters
from mercer.engine import ArrayTable
from mercer.estimators.norma_machine import NormaMachine
from mercer.estimators.shell import all_or_nothing, make_executor, on_its_threads, read_rows
from mercer.estimators.sources import read_weights
from mercer.model import Calibration, KernelExpansion, Novelty
from mercer.solvers.stochastic import Loss


@stored
@parameters
class NormaNoveltyDetector(OutlierMixin, NormaMachine):
    r"""Novelty detection from a stream: rows where a function that is learned of all rows is small (NORMA).

    .. math:: R_t(f, \rho) = \max(\rho - f(x_t), 0) + \tfrac{\lambda}{2}|f|^2 - \nu\rho

    is the risk of the one-class support vector machine. A row below the threshold ρ adds a term, and ρ falls by
    η(1 - ν); any other row raises it by ην. So in the long run a share ν of the rows was below ρ when it came.

    Time m·d per row and memory m·d, with m terms, whatever the number of rows; see ``NormaRegressor`` for the method,
    and for the parameters and attributes that are not listed here.

    Parameters
    ----------
    kernel : str, kernel or callable, default="gaussian"
    nu : float, default=0.1
        The share of rows to call novel.
    regularization, learning_rate, schedule, max_basis, truncation, average, shuffle, random_state, n_jobs, verbose
        As in ``NormaRegressor``; λ is but a scale of the scores.

    Attributes
    ----------
    offset_ : float
        ρ: ``decision_function`` is ``score_samples`` less it.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NormaNoveltyDetector
    >>> X = np.random.default_rng(0).normal(size=(20_000, 2))
    >>> model = NormaNoveltyDetector(nu=0.05, random_state=0).fit(X)
    >>> model.predict([[0.0, 0.0], [5.0, 5.0]])
    array([ 1, -1])
    """

    nu: float = 0.1

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **NormaMachine._parameter_constraints,
        "nu": [Interval(Real, 0, 1, closed="neither")],
    }

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn rows X (n, d) from the beginning, in random order; y is ignored."""
        return super().fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn more rows, in their order; y is ignored."""
        return self._add_rows(X, y, sample_weight)

    @on_its_threads
    def score_samples(self, X: Any) -> FloatArray:
        """The function at rows X (n, d): the smaller, the more unlike those seen."""
        outputs = self.outputs_
        return outputs.scores(self._evaluate_rows(read_rows(self, X, reset=False)))

    @on_its_threads
    def decision_function(self, X: Any) -> FloatArray:
        """Scores less ρ, negative for novel rows."""
        outputs = self.outputs_
        return outputs.decision(self._evaluate_rows(read_rows(self, X, reset=False)))

    @on_its_threads
    def predict(self, X: Any) -> IntArray:
        """1 for rows like those seen, -1 for novel ones."""
        outputs = self.outputs_
        return outputs.predict(self._evaluate_rows(read_rows(self, X, reset=False)))

    def learn_one(self, x: Mapping[Any, Any], w: float = 1.0) -> None:
        """Learn one row given as a mapping from features to numbers, as river has it; w is its weight."""
        if w == 0:
            return
        with all_or_nothing(self):
            if not hasattr(self, "_state"):
                self._begin_with(x, n_outputs=1)
            self._learn_one(self._one(x), np.zeros((1, 1)), float(w))

    def score_one(self, x: Mapping[Any, Any]) -> float:
        """How novel a row is, as river has it: ρ less the function, positive for novel rows; 0 at the beginning."""
        return -float(self._evaluate_one(self._one(x))[0]) if hasattr(self, "_state") else 0.0

    @property
    def offset_(self) -> float:
        """ρ."""
        check_is_fitted(self)
        return float(self._learner.threshold[0])

    @property
    def outputs_(self) -> Novelty:
        """What the column of the expansion means."""
        return Novelty(self.offset_)

    @property
    def coefficients_(self) -> FloatArray:
        """Weights of the rows in use, shape (m,)."""
        check_is_fitted(self)
        return self._mean_expansion().coefficients[:, 0]

    def _mean_expansion(self) -> KernelExpansion:
        expansion = self._state.expansion
        return replace(expansion, intercept=expansion.intercept - self._learner.threshold, scale=None)

    def _calibration(self) -> Calibration | None:
        return None

    def _loss(self) -> Loss:
        return Loss.named("novelty", 0.0, float(self.nu))

    def _read(self, X: Any, y: Any, sample_weight: Any, *, first: bool, classes: Any = None) -> ArrayTable:
        """The table, whose targets mean nothing."""
        rows = read_rows(self, X, reset=first)
        targets = np.broadcast_to(np.zeros(1), (rows.n_rows, 1))
        return ArrayTable(rows, targets, read_weights(rows, sample_weight, None, make_executor(self)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
