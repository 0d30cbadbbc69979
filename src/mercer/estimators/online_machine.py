"""Sequential regression and classification: what both share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from operator import attrgetter
from typing import Any, ClassVar, Literal, Self

import numpy as np

from mercer._stored.checks import check_estimator, need
from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted, parameters
from mercer.engine import ArrayRows, ArrayTable, Features, Moments, SequentialLearner, learn_table, normal_statistics
from mercer.estimators.collections import takes_collections
from mercer.estimators.mapped_rows import MappedRows, has_no_weight
from mercer.estimators.online_state import FIRST, FirstRows, State
from mercer.estimators.shell import Mergeable, all_or_nothing, check_same_outputs, make_executor
from mercer.kernels import Kernel
from mercer.methods.frame import given_kernel, resolve_kernel, used_rows
from mercer.model import Calibration, KernelExpansion, Sample, leave_one_out
from mercer.solvers.recursive import Rules

_ENOUGH = 200  # rows: of fewer, residuals before learning say little of the model after all of them


def _learned(path: str, doc: str) -> Any:
    """A property of what was learned: an attribute of the learner."""

    def get(self: OnlineMachine) -> Any:
        check_is_fitted(self)
        return attrgetter(path)(self._learner)

    return property(get, doc=doc)


@parameters
class OnlineMachine(MappedRows, Mergeable):
    """Parameters and fitted state."""

    kernel: Any = field(default="gaussian", kw_only=False)
    noise: float = 0.1
    max_basis: int = 500
    novelty_tol: float = 1e-2
    gain_tol: float = 1e-4
    selection: Literal["supervised", "novelty"] = "supervised"
    forgetting: float = 1.0
    intercept: bool = True
    second_pass: bool = False
    record: bool = False
    random_state: RandomState = None
    n_jobs: int | None = None
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": "no_validation",  # checked, with a message of its own, by as_kernel
        "noise": [Interval(Real, 0, None, closed="neither")],
        "max_basis": [Interval(Integral, 1, None, closed="left")],
        "novelty_tol": [Interval(Real, 0, None, closed="left")],
        "gain_tol": [Interval(Real, 0, None, closed="left")],
        "selection": [StrOptions({"supervised", "novelty"})],
        "forgetting": [Interval(Real, 0, 1, closed="right")],
        "intercept": ["boolean"],
        "second_pass": ["boolean"],
        "record": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
    }

    _by_class: ClassVar[bool] = False  # whether early rows are left out of the calibration class by class

    _state: State = field(init=False)

    kernel_ = _learned("kernel", "The kernel with its parameters as numbers.")
    basis_ = _learned("points", "The dictionary, shape (m, d).")
    cost_ = _learned("recursion.cost", "ξ, what the recursion has not explained, with the penalty.")
    n_seen_ = _learned("recursion.n_seen", "Rows learned.")
    n_grown_ = _learned("recursion.n_grown", "Rows that became functions.")
    n_pruned_ = _learned("recursion.n_pruned", "Functions that were removed for others.")

    def check_stored(self) -> None:
        """Refuse outputs and features that are not those of the learner."""
        n_outputs, n_features = self._learner.n_scored, self._learner.points.shape[1]
        fewest = 1 if self._learner.recursion.rules.hidden else 2  # classes may come one after the other
        check_estimator(self, n_outputs=n_outputs, n_features=n_features, fewest_classes=fewest)
        need(len(vars(self).get("_features", ())) in (0, n_features), "a model has names for other features.")

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn rows X (n, d) and their targets or labels y in their order, from the beginning.

        The error of a row of weight ω counts ω times; whether the row joins the dictionary is decided once.
        """
        return super().fit(X, y, sample_weight)

    def _fit(self, table: ArrayTable) -> None:
        if self.second_pass and self.forgetting < 1:
            raise ValueError("a second pass weighs all rows alike, a model that forgets does not: use one of the two.")
        self._start(table)
        self._learn(self._counted(table))
        if self.second_pass:
            self._refit(table)
        if self.n_seen_ >= _ENOUGH:
            self._check_calibration()

    @takes_collections
    def _add_rows(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        """Learn more rows, in their order; a batch without weight is checked, and left out."""
        if not (hasattr(self, "_state") and has_no_weight(sample_weight, y)):
            return super()._add_rows(X, y, sample_weight, classes)
        self._validate_params()
        with all_or_nothing(self):
            self._read(X, y, None, first=False, classes=classes)
        return self

    def _partial_fit(self, table: ArrayTable) -> None:
        table = self._counted(table)
        if not hasattr(self, "_state"):
            self._start(table)
            self._keep_first_rows()
        self._learn(table)

    def _keep_first_rows(self) -> None:
        """Keep rows until they are enough to decide a length scale, where that is a median."""
        if given_kernel(self.kernel, self._learner.points.shape[1]).needs_data:
            first = FirstRows.nothing(self._learner.points.shape[1], self._learner.n_outputs)
            self._state = replace(self._state, first=first)

    @takes_collections
    def refit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Solve for the coefficients exactly on these rows, with the dictionary as it is.

        The recursion knows past rows only as well as the dictionary at that time represented them; from the rows
        themselves, this solves the subset of representers on the same dictionary. Learning may continue.
        """
        self._validate_params()
        check_is_fitted(self)
        with all_or_nothing(self):
            self._refit(self._read(X, y, sample_weight, first=False))
        return self

    def _start(self, table: ArrayTable) -> None:
        """Start over, with a kernel whose parameters may come from these rows."""
        kernel = resolve_kernel(self.kernel, table, self.random_state)
        self._state = State(self._new_learner(kernel, self._rules(), table.n_features, table.n_outputs))

    def _new_learner(self, kernel: Kernel, rules: Rules, n_features: int, n_outputs: int) -> SequentialLearner:
        """One that has seen nothing; with forgetting, an intercept is the mean of the rows that count."""
        is_mean = self.intercept and not rules.intercept
        moments = Moments.nothing(n_outputs, centred=is_mean, about_mean=self.intercept)
        return SequentialLearner(kernel, rules, n_features, n_outputs, moments=moments)

    def _counted(self, table: ArrayTable) -> ArrayTable:
        """The table, with weights of zero where they are too small."""
        if table.weights is None:
            return table
        weights, used = np.zeros(table.n_rows), used_rows(table, self._total_noise)
        weights[used] = table.weights[used]
        return replace(table, weights=weights)

    def _learn(self, table: ArrayTable) -> None:
        """Learn the rows in their order."""
        make_executor(self)  # which refuses n_jobs=0 before anything is learned
        learner, first = self._with_length_scale(self._next_learner(), table)
        learner, new = learn_table(learner, table, record=self.record, verbose=self.verbose)
        self._state.history.extend((each.n_seen, each.n_functions, each.error) for each in new)
        self._state = State(learner, self._state.history, first)

    def _with_length_scale(
        self, learner: SequentialLearner, table: ArrayTable
    ) -> tuple[SequentialLearner, FirstRows | None]:
        """The learner to go on with: if there were few rows so far, one with the length scale of those and these."""
        before = self._state.first
        if before is None:
            return learner, None
        if len(before.rows) == 0 and table.n_rows >= FIRST:
            first, deciding = None, table
        else:
            first = before.plus(table.subset(np.arange(min(table.n_rows, FIRST))))
            deciding = first.table()
        kernel = resolve_kernel(self.kernel, deciding, self.random_state)
        again = self._new_learner(kernel, learner.recursion.rules, table.n_features, learner.n_outputs)
        again.learn(before.rows, before.targets, before.weights)
        return again, None if first is None or len(first.rows) >= FIRST else first

    def _next_learner(self, *, check_kernel: bool = True) -> SequentialLearner:
        """A copy to go on with, so that nothing is lost if that fails or is interrupted.

        It has the rules of today: those that may change, that is; that another was changed is refused.
        """
        old = self._learner.recursion.rules
        rules = self._rules()._replace(hidden=old.hidden)
        if check_kernel:
            kernel = given_kernel(self.kernel, self._learner.points.shape[1])
            resolved = self.kernel_ if kernel.needs_data else kernel.resolve(self._learner.points[:0])
            if type(kernel) is not type(self.kernel_) or not resolved.equals(self.kernel_):
                msg = f"the kernel was {self.kernel_} when the first rows were learned and cannot change: call fit."
                raise ValueError(msg)
        given = {"noise": (old.noise, rules.noise), "intercept": (self._learner.has_constant, bool(self.intercept))}
        for name, (before, now) in given.items():
            if before != now:
                msg = f"{name} was {before} when the first rows were learned and cannot change: call fit."
                raise ValueError(msg)
        if old.intercept != rules.intercept:
            msg = "a model with an intercept either forgets or never does (forgetting=1), and cannot change: call fit."
            raise ValueError(msg)
        learner = self._learner.copy()
        if rules != old:
            learner.change(rules)
        return learner

    def _begin_with(self, x: Mapping[Any, Any], n_outputs: int, hidden: int = 0) -> None:
        """Start over with the features of a mapping; a median length scale is decided by the first rows."""
        self._validate_params()
        make_executor(self)  # which refuses n_jobs=0
        n_features = self._name_features(x)
        rules, nothing = self._rules()._replace(hidden=hidden), np.zeros((1, n_features))
        kernel = resolve_kernel(self.kernel, ArrayTable(ArrayRows(nothing, checked=True)), None)
        self._state = State(self._new_learner(kernel, rules, n_features, n_outputs))
        self._keep_first_rows()

    def _learn_one(self, row: FloatArray, target: FloatArray, weight: float) -> None:
        """Learn one row, without the checks that arrays need; wholly or not at all."""
        if not (np.all(np.isfinite(row)) and np.all(np.isfinite(target)) and 0.0 < weight < np.inf):
            raise ValueError("a row, its target or its weight is NaN, infinite or negative.")
        learner, weights = self._next_learner(check_kernel=False), np.array([weight])  # that takes longer than the row
        table = ArrayTable(ArrayRows(row, checked=True), target, weights)
        learner, first = self._with_length_scale(learner, table)
        square = learner.learn(row, target, weights)
        if self.record:
            self._state.history.append((learner.recursion.n_seen, len(learner.points), float(square[0])))
        self._state = State(learner, self._state.history, first)

    def _evaluate_one(self, row: FloatArray) -> FloatArray:
        """The model's values at one row, without the machinery that many rows need."""
        mean = self._state.mean
        return np.asarray(mean.intercept + mean.kernel(row, mean.points)[0] @ mean.coefficients)

    def _refit(self, table: ArrayTable) -> None:
        """Solve for the coefficients exactly, by one pass over rows, on the dictionary found."""
        learner, executor = self._next_learner(), make_executor(self)
        if not len(learner.points):  # then the recursion is exact, as it has represented nothing
            return
        sums = normal_statistics(
            table.shifted(learner.shift), Features(learner.kernel, learner.points), executor=executor
        )
        learner.restate(sums)
        state, n_scored = State(learner, self._state.history), learner.n_scored
        sample = Sample.draw(table)
        some = replace(sample, targets=sample.targets[:, :n_scored]).table(counted=table.counted)
        left_out = leave_one_out(state.expansion, some, noise=self.noise_, executor=executor)
        self._state = replace(state, left_out=left_out)

    def _rules(self) -> Rules:
        return Rules(
            noise=self._total_noise,
            max_basis=int(self.max_basis),
            novelty_tol=float(self.novelty_tol),
            gain_tol=float(self.gain_tol) if self.selection == "supervised" else None,
            forgetting=float(self.forgetting),
            intercept=bool(self.intercept) and self.forgetting == 1,
        )

    def merge(self, other: Self) -> Self:
        """Take in what another model has seen, as well as both dictionaries together can represent it.

        Parameters
        ----------
        other : estimator of the same class
            With the same kernel, noise and intercept; neither forgets, as that depends on the order of rows.

        Returns
        -------
        self
        """
        return super().merge(other)

    def _merge(self, other: Self) -> None:
        learner = self._next_learner()
        learner.merge(other._learner)
        self._state = State(learner, self._state.history)

    def _check_mergeable(self, other: Self) -> None:
        mine, theirs = self._learner.recursion.rules, other._learner.recursion.rules
        if mine.hidden or theirs.hidden:
            raise ValueError("cannot merge classifiers that learned by learn_one: their classes were added one by one.")
        if not self.kernel_.equals(other.kernel_):
            raise ValueError(f"cannot merge models with different kernels, {self.kernel_} and {other.kernel_}.")
        if (mine.noise, self._learner.has_constant) != (theirs.noise, other._learner.has_constant):
            raise ValueError("cannot merge models of different noise, or with and without an intercept.")
        if mine.forgetting < 1.0 or theirs.forgetting < 1.0:
            raise ValueError("cannot merge models that forget: their state depends on when they saw each row.")
        check_same_outputs(self._n_outputs, other._n_outputs)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    @property
    def _learner(self) -> SequentialLearner:
        return self._state.learner

    @property
    def _n_outputs(self) -> int:
        return self._learner.n_outputs

    def _mean_expansion(self) -> KernelExpansion:
        return self._state.mean

    def _calibration(self) -> Calibration | None:
        return self._state.calibration(by_class=self._by_class)

    @property
    def noise_(self) -> float:
        """λ in use."""
        check_is_fitted(self)
        return self._learner.recursion.rules.noise

    @property
    def basis_index_(self) -> IntArray:
        """Which of the rows learned (those of weight zero are not) are in the dictionary, counted from 0."""
        check_is_fitted(self)
        return self._learner.recursion.births[self._learner.recursion.n_fixed :]

    @property
    def history_(self) -> dict[str, FloatArray]:
        """With ``record=True``: rows seen, functions, and mean squared error of rows before they were learned."""
        check_is_fitted(self)
        table = np.array(self._state.history, dtype=np.float64).reshape(-1, 3)
        return {"n_seen": table[:, 0], "n_basis": table[:, 1], "squared_error": table[:, 2]}

    @property
    def expansion_(self) -> KernelExpansion:
        """The model as it is now."""
        check_is_fitted(self)
        return self._state.expansion
