"""Stochastic gradient descent on the regularised risk (NORMA): what regression, classification and novelty share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, Literal, Self

import numpy as np

from mercer._stored import stored
from mercer._stored.checks import check_estimator, need
from mercer._typing import FloatArray, RandomState
from mercer._validation import (
    Integral,
    Interval,
    Real,
    StrOptions,
    check_is_fitted,
    check_random_state,
    parameters,
)
from mercer.engine import ArrayRows, ArrayTable, GradientLearner, Units, descend_table
from mercer.estimators.collections import takes_collections
from mercer.estimators.mapped_rows import MappedRows, has_no_weight
from mercer.estimators.online_state import FIRST, FirstRows
from mercer.estimators.shell import Shell, all_or_nothing, make_executor
from mercer.exceptions import warn
from mercer.kernels import Kernel
from mercer.methods.frame import given_kernel, resolve_kernel
from mercer.model import Calibration, KernelExpansion
from mercer.solvers.stochastic import LOSSES, SCHEDULES, Loss, Steps

_MOST_DROPPED = 0.5  # of all norms, where rates fall: beyond, the terms in use are no longer most of the model


@stored(name="NormaState")
@dataclass(frozen=True)
class NormaState:
    """What was learned; replaced as a whole."""

    learner: GradientLearner
    history: list[FloatArray] = field(default_factory=list)  # (n, 3p) of rows; grows, while learners are replaced
    first: FirstRows | None = None  # while length scale and units are not decided

    def check_stored(self) -> None:
        """Refuse a history of other outputs."""
        width = 3 * self.learner.n_outputs
        need(all(each.ndim == 2 and each.shape[1] == width for each in self.history), "a history has other outputs.")

    @cached_property
    def expansion(self) -> KernelExpansion:
        """The model."""
        learner, scored = self.learner, self.learner.scored
        return KernelExpansion(
            kernel=learner.kernel,
            points=learner.points,
            coefficients=np.ascontiguousarray(scored(learner.means * learner.units.unit)),
            intercept=scored(learner.intercept),
            scale=scored(learner.track.scale),
        )

    def calibration(self, *, by_class: bool) -> Calibration:
        """Residuals before learning of late rows."""
        track, scored = self.learner.track, self.learner.scored
        late = track.late(by_target=by_class)
        targets, residuals = scored(track.targets[late]), scored(track.residuals[late])
        return Calibration(targets, residuals, track.variances[late], track.weights[late])


def _as_history(recorded: FloatArray) -> list[FloatArray]:
    """What is recorded of rows, (n, 3, p), as a table, if there is any."""
    return [recorded.reshape(len(recorded), -1)] if len(recorded) else []


def _learned(path: str, doc: str) -> Any:
    """A property of what was learned: an attribute of the learner."""

    def get(self: NormaMachine) -> Any:
        check_is_fitted(self)
        return attrgetter(path)(self._learner)

    return property(get, doc=doc)


@parameters
class NormaMachine(MappedRows, Shell):
    """Parameters and fitted state."""

    kernel: Any = field(default="gaussian", kw_only=False)
    regularization: float | Literal["auto"] = "auto"
    learning_rate: float | Literal["auto"] = "auto"
    schedule: Literal["constant", "inverse_sqrt", "inverse"] = "constant"
    max_basis: int = 1000
    truncation: float = 1e-4
    average: bool = True
    shuffle: bool = True
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0

    _instead_of_noise = "regularization"
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": "no_validation",  # checked, with a message of its own, by as_kernel
        "regularization": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "schedule": [StrOptions(set(SCHEDULES))],
        "max_basis": [Interval(Integral, 1, None, closed="left")],
        "truncation": [Interval(Real, 0, 1, closed="left")],
        "average": ["boolean"],
        "shuffle": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }
    _by_class: ClassVar[bool] = False  # whether early rows are left out of the calibration class by class

    _state: NormaState = field(init=False)

    kernel_ = _learned("kernel", "The kernel with its parameters as numbers.")
    basis_ = _learned("points", "The rows in use, oldest first, shape (m, d).")
    basis_index_ = _learned("births", "Numbers of these rows among those learned.")
    n_seen_ = _learned("n_seen", "Rows learned.")
    learning_rate_ = _learned("rate", "η₀.")
    regularization_ = _learned("regularization", "λ.")
    truncation_error_ = _learned(
        "dropped_share", "Bound of the norm of what was dropped, as a share of the sum of the norms of all terms."
    )

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn rows X (n, d) and their targets or labels y from the beginning, in random order.

        A row of weight ω takes a step ω times as long, but not beyond what the derivative of its loss asks for.
        """
        return super().fit(X, y, sample_weight)

    def _fit(self, table: ArrayTable) -> None:
        is_shuffled = self.shuffle and not self._records
        seed = int(check_random_state(self.random_state).randint(2**31 - 1)) if is_shuffled else None
        learner = self._new_learner(*self._resolved(table), table.n_features)
        self._learn(learner, table, None, seed=seed)

    @takes_collections
    def _add_rows(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        """Learn more rows, in their order; a batch without weight is checked, and left out."""
        self._validate_params()
        is_first = not hasattr(self, "_state")
        with all_or_nothing(self):
            if not is_first and has_no_weight(sample_weight, y):
                self._read(X, y, None, first=False, classes=classes)
                return self
            self._partial_fit(self._read(X, y, sample_weight, first=is_first, classes=classes))
        return self

    def _partial_fit(self, table: ArrayTable) -> None:
        """Learn more rows, after those before; of few rows so far, start over with all."""
        if not hasattr(self, "_state"):
            learner = self._new_learner(*self._resolved(table), table.n_features)
            n_features, p = table.n_features, learner.n_outputs
            first = FirstRows.nothing(n_features, p) if self._needs_rows(n_features) else None
        else:
            learner, first = self._next_learner(), self._state.first
        if first is not None and len(first.rows) == 0 and table.n_rows >= FIRST:
            first = None  # these rows have decided everything
        elif first is not None:
            before, first = first, first.plus(table.subset(np.arange(min(table.n_rows, FIRST))))
            again = self._new_learner(*self._resolved(first.table()), table.n_features, hidden=learner.hidden)
            recorded = again.learn(before.rows, before.targets, before.weights, record=self._records)
            learner = again
            if hasattr(self, "_state"):
                self._state = replace(self._state, history=_as_history(recorded))
            first = None if len(first.rows) >= FIRST else first
        self._learn(learner, table, first, history=self._state.history if hasattr(self, "_state") else ())

    def _learn(
        self,
        learner: GradientLearner,
        table: ArrayTable,
        first: FirstRows | None,
        history: Sequence[FloatArray] = (),
        seed: int | None = None,
    ) -> None:
        """Learn the rows of a table; the learner may change, and what it becomes is the model."""
        make_executor(self)  # which refuses n_jobs=0 before anything is learned
        options: dict[str, Any] = {"record": self._records, "verbose": int(self.verbose), "seed": seed}
        learner, recorded = descend_table(learner, table, **options)
        self._state = NormaState(learner, [*history, *_as_history(recorded)], first)
        self._check_steps()

    def _resolved(self, table: ArrayTable) -> tuple[Kernel, Units]:
        """Kernel and units by these rows."""
        kernel = resolve_kernel(self.kernel, table, self.random_state)
        if not self._has_units:
            return kernel, Units.none(table.n_outputs)
        intercept = bool(getattr(self, "intercept", True))
        robust = self._loss().steepest is not None
        return kernel, Units.of(table.targets, table.weights, centred=intercept, robust=robust)

    def _needs_rows(self, n_features: int) -> bool:
        """Whether something is decided by the first rows."""
        return self._has_units or given_kernel(self.kernel, n_features).needs_data

    def _new_learner(self, kernel: Kernel, units: Units, n_features: int, *, hidden: int = 0) -> GradientLearner:
        return GradientLearner(kernel, self._loss(), self._steps(), units, n_features=n_features, hidden=hidden)

    def _loss(self) -> Loss:
        """The loss, in units of the targets."""
        raise NotImplementedError

    def _steps(self) -> Steps:
        rate, regularization = (
            0.0 if value == "auto" else float(value) for value in (self.learning_rate, self.regularization)
        )
        if rate * regularization >= 1.0:
            raise ValueError(
                f"learning_rate={self.learning_rate} times regularization={self.regularization} is "
                f"{rate * regularization:.3g}: each row would erase the model, and the bound on the regret does not "
                f"hold. Let learning_rate be below {1 / regularization:.3g}, or 'auto'."
            )
        return Steps(
            schedule=SCHEDULES[self.schedule],
            rate=rate,
            regularization=regularization,
            intercept=bool(getattr(self, "intercept", False)),
            max_basis=int(self.max_basis),
            truncation=float(self.truncation),
            average=bool(self.average),
        )

    def _next_learner(self) -> GradientLearner:
        """A copy to go on with, so that nothing is lost if that fails or is interrupted; with the steps of today."""
        old = self._learner
        kernel = given_kernel(self.kernel, old.points.shape[1])
        resolved = old.kernel if kernel.needs_data else kernel.resolve(old.points[:0])
        same = {
            "the kernel": type(kernel) is type(old.kernel) and resolved.equals(old.kernel),
            "the loss": self._loss() == old.loss,
            "intercept": bool(getattr(self, "intercept", False)) == old.steps.intercept,
        }
        for name, is_same in same.items():
            if not is_same:
                raise ValueError(f"{name} was another when the first rows were learned and cannot change: call fit.")
        learner = old.copy()
        learner.steps = self._steps()
        return learner

    def _check_steps(self) -> None:
        """Warn of rates and budgets by which the model means less than it seems to."""
        learner = self._learner
        if learner.loss.kind == LOSSES["squared_error"] and learner.longest > 1.0:
            total = learner.longest / learner.rate
            warn(
                f"learning_rate={learner.rate:.3g} times k(x, x) + λ (+ 1 for the intercept), {total:.3g}, is "
                f"{learner.longest:.3g}: above 1 the bound on the regret of the squared loss does not hold, and the "
                f"model may diverge. Let learning_rate be {1 / total:.3g} at the most, or 'auto'.",
                UserWarning,
            )
        if self.schedule != "constant" and learner.dropped_share > _MOST_DROPPED:
            warn(
                f"max_basis={self.max_basis} has dropped up to {learner.dropped_share:.0%} of the model: with "
                f"schedule={self.schedule!r} new rows count ever less. Use schedule='constant', or a larger max_basis.",
                UserWarning,
            )

    def _begin_with(self, x: Mapping[Any, Any], n_outputs: int, hidden: int = 0) -> None:
        """Start over with the features of a mapping."""
        self._validate_params()
        make_executor(self)  # which refuses n_jobs=0
        n_features = self._name_features(x)
        nothing = ArrayTable(ArrayRows(np.zeros((1, n_features)), checked=True))
        kernel = resolve_kernel(self.kernel, nothing, None)
        learner = self._new_learner(kernel, Units.none(n_outputs), n_features, hidden=hidden)
        first = FirstRows.nothing(n_features, n_outputs) if self._needs_rows(n_features) else None
        self._state = NormaState(learner, [], first)

    def _learn_one(self, row: FloatArray, target: FloatArray, weight: float) -> None:
        """Learn one row, without the checks that arrays need; wholly or not at all."""
        if not (np.all(np.isfinite(row)) and np.all(np.isfinite(target)) and 0.0 < weight < np.inf):
            raise ValueError("a row, its target or its weight is NaN, infinite or negative.")
        table = ArrayTable(ArrayRows(row, checked=True), target, np.array([weight]))
        if self._state.first is not None:
            self._partial_fit(table)
            return
        learner = self._learner.copy()
        recorded = learner.learn(row, target, np.array([weight]), record=self._records)
        self._state.history.extend(_as_history(recorded))
        self._state = NormaState(learner, self._state.history)

    def _evaluate_one(self, row: FloatArray) -> FloatArray:
        """The model's values at one row, without the machinery that many rows need."""
        model = self._mean_expansion()
        return np.asarray(model.intercept + model.kernel(row, model.points)[0] @ model.coefficients)

    @property
    def _has_units(self) -> bool:
        """Whether targets are learned in units of their own."""
        return False

    @property
    def _records(self) -> bool:
        recorded = bool(getattr(self, "record", False))
        if recorded and self._loss().nu > 0:
            raise ValueError("record=True compares rows by one loss: with nu given, its threshold moves. Use nu=None.")
        return recorded

    def check_stored(self) -> None:
        """Refuse outputs and features that are not those of the learner."""
        learner = self._learner
        n_outputs, n_features = learner.n_outputs - learner.hidden, learner.points.shape[1]
        fewest = 1 if learner.hidden else 2  # classes may come one after the other
        check_estimator(self, n_outputs=n_outputs, n_features=n_features, fewest_classes=fewest)
        need(len(vars(self).get("_features", ())) in (0, n_features), "a model has names for other features.")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    @property
    def _learner(self) -> GradientLearner:
        return self._state.learner

    @property
    def _n_outputs(self) -> int:
        return self._learner.n_outputs

    def _mean_expansion(self) -> KernelExpansion:
        return self._state.expansion

    def _calibration(self) -> Calibration | None:
        return self._state.calibration(by_class=self._by_class)

    @property
    def expansion_(self) -> KernelExpansion:
        """The model as it is now."""
        check_is_fitted(self)
        return self._mean_expansion()

    @property
    def history_(self) -> dict[str, FloatArray]:
        """With ``record=True``, for each row: loss and |f|² before it was learned, and the norm of what was dropped.

        Loss and norms are in units of the targets; shapes are (n_seen, p).
        """
        check_is_fitted(self)
        p = self._learner.n_outputs
        table = np.concatenate([np.empty((0, 3 * p)), *self._state.history]).reshape(-1, 3, p)
        return {name: self._learner.scored(table[:, i]) for i, name in enumerate(("loss", "squared_norm", "dropped"))}
