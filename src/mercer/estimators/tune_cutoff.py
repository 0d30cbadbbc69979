r"""The metric and the cut-off of a kernel of compact support, by the error on rows that are held out.

The number of neighbours, not the length scale, is what is chosen: a metric (one scale per feature, up to a factor) and
a mean number of neighbours determine the cut-off. So a metric that was found on some of the rows holds for all of them.
"""

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import column_or_1d

from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import check_random_state, check_table
from mercer.engine import ArrayRows
from mercer.estimators.compact import CompactMachine
from mercer.estimators.shell import make_executor
from mercer.exceptions import GeneralisationWarning, NotPositiveDefiniteError, StarvedWarning
from mercer.kernels import Compact, Wendland
from mercer.methods.compact import with_neighbours

_MOST_HELD_OUT, _FEWEST_ROWS = 20_000, 10
_FACTORS = (2.0, 0.5, 16.0, 1 / 16)  # large ones for features that do not matter at all as they are, and might
_SAME = 1e-9  # logarithms of scales that differ less are the same
_LOOSE = 1e-3  # relative residual that is enough to compare errors


@dataclass(frozen=True, eq=False)
class Trial:
    """A choice, and what came of it.

    The error is that on the rows held out: the share of wrong classes, or the mean squared error in variances of y;
    infinite if the choice was refused.
    """

    scales: FloatArray  # (d,), the metric: features are divided by these
    n_neighbours: float  # on average within the cut-off
    noise: float
    error: float = np.inf
    seconds: float = 0.0
    n_rows: int = 0  # that were learned


@dataclass(frozen=True)
class CutoffSearch:
    """What ``tune_cutoff`` has found: the model, not fitted, has the chosen kernel and noise, for all rows."""

    model: Any
    best: Trial
    trials: list[Trial]  # in their order


def tune_cutoff(
    model: CompactMachine,
    X: Any,
    y: Any,
    *,
    n_neighbours: Sequence[float] = (15, 30, 60, 120),
    noises: Sequence[float] = (0.01, 0.1, 1.0),
    groups: Sequence[Sequence[int]] | None = None,
    held_out: float = 0.1,
    max_rows: int = 50_000,
    max_trials: int = 100,
    random_state: RandomState = None,
    verbose: int = 0,
) -> CutoffSearch:
    """Choose the metric, the cut-off and the noise of a model on a kernel of compact support.

    First the features as they are and standardised are compared. Then the scale of each feature is increased and
    decreased as long as that helps. Last, the number of neighbours and the noise are chosen on all rows. A change helps
    if it lowers the error on held-out rows by more than a standard error of the difference, row by row.

    Parameters
    ----------
    model : CompactRegressor or CompactClassifier
        Its kernel's length scale and its noise are replaced.
    X, y : arrays (n, d), (n,) or (n, p)
    n_neighbours, noises : sequences of numbers
        To choose from; the metric is chosen with those in the middle.
    groups : sequence of sequences of int, optional
        Features that share a scale; by default all that have two values only are a group, others are by themselves.
    held_out : float, default=0.1
        Share of the rows that are held out, 20 000 at most.
    max_rows : int, default=50_000
        Rows on which the metric is chosen.
    max_trials : int, default=100
        Most fits.
    random_state : int, RandomState or None, default=None
        For the rows that are drawn.
    verbose : int, default=0
        1 prints each trial.

    Returns
    -------
    CutoffSearch

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import CompactRegressor, tune_cutoff
    >>> X = np.random.default_rng(0).uniform(size=(2000, 2)) * [1.0, 1000.0]
    >>> found = tune_cutoff(CompactRegressor(), X, np.sin(9 * X[:, 0]), random_state=0)
    >>> as_it_is, standardised = found.trials[:2]
    >>> round(as_it_is.error, 2), round(standardised.error, 4), round(found.best.error, 4)
    (1.18, 0.0019, 0.0)
    """
    for name, numbers in (("n_neighbours", n_neighbours), ("noises", noises), ("max_trials", [max_trials])):
        if not len(numbers) or not all(number > 0 for number in numbers):
            raise ValueError(f"{name} must be above zero, and at least one must be given; got {numbers!r}.")
    search = _Search(model, X, y, held_out=held_out, max_rows=max_rows, random_state=random_state, verbose=verbose)
    some, learned = search.some, search.learned
    middle = Trial(np.ones(search.n_features), n_neighbours[len(n_neighbours) // 2], noises[len(noises) // 2])
    search.consider(middle, some)
    if max_trials > 1:
        spread = np.std(search.some_rows, axis=0)
        search.consider(replace(middle, scales=np.where(spread > 0, spread, 1.0)), some)
    search.check()
    moves = [partial(replace, n_neighbours=k) for k in n_neighbours]
    moves += [partial(replace, noise=noise) for noise in noises]
    scale_moves = [partial(_rescaled, group=g, factor=factor) for g in search.groups(groups) for factor in _FACTORS]
    search.improve(scale_moves, some, most=max_trials - len(moves) - 1)
    if len(some) < len(learned) and len(search.trials) < max_trials:
        # Judge the best again, on all rows; if it is refused there, whatever is not is better.
        search.best = replace(search.best, error=np.inf)
        search.consider(search.best, learned)
    search.improve(moves, learned, most=max_trials)
    search.check()
    return CutoffSearch(search.configured(search.best, np.arange(search.n_rows)), search.best, search.trials)


def _rescaled(best: Trial, group: list[int], factor: float) -> Trial:
    scales = best.scales.copy()
    scales[group] *= factor
    return replace(best, scales=scales)


class _Search:
    """Rows to learn and rows to judge by; the trials, and the best: its error is infinite until one is accepted."""

    def __init__(
        self, model: CompactMachine, X: Any, y: Any, *, held_out: float, max_rows: int, random_state: Any, verbose: int
    ) -> None:
        if not isinstance(model, CompactMachine):
            raise TypeError(f"model must be a CompactRegressor or CompactClassifier, got {type(model).__name__}.")
        self._model, self._X, self._y = clone(model), check_table(clone(model), X, reset=True), np.asarray(y)
        self.n_rows, self.n_features = self._X.shape
        if not 0 < held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1, got {held_out}.")
        if len(self._y) != self.n_rows or self.n_rows < _FEWEST_ROWS:
            msg = f"there must be {_FEWEST_ROWS} rows, and y as long as X; got {self.n_rows} and {len(self._y)}."
            raise ValueError(msg)
        if is_classifier(model):
            self._y = column_or_1d(self._y)
        order = check_random_state(random_state).permutation(self.n_rows)
        n_held_out = max(1, min(int(held_out * self.n_rows), _MOST_HELD_OUT))
        self._held_out, self.learned = order[:n_held_out], np.sort(order[n_held_out:])
        self.some = np.sort(order[n_held_out:][:max_rows])
        self.some_rows = np.asarray(self._X[self.some], dtype=np.float64)
        self.trials: list[Trial] = []
        self.best, self._verbose = Trial(np.ones(self.n_features), 0.0, 0.0), verbose
        self._losses: FloatArray = np.empty(0)  # of the best, by row

    def groups(self, given: Sequence[Sequence[int]] | None) -> list[list[int]]:
        """Groups of features as they are given, else one by one, those of two values together."""
        if given is not None:
            wrong = [j for group in given for j in group if not 0 <= j < self.n_features]
            if wrong:
                raise ValueError(f"groups must hold numbers of features, 0 to {self.n_features - 1}; got {wrong}.")
            return [list(group) for group in given]
        two = [j for j in range(self.n_features) if len(np.unique(self.some_rows[:, j])) <= 2]
        return [[j] for j in range(self.n_features) if j not in two] + ([two] if two else [])

    def configured(self, trial: Trial, index: IntArray) -> Any:
        """The model of a trial for some rows."""
        by_name = isinstance(self._model.kernel, str) and self._model.kernel == "wendland"
        kernel = Wendland() if by_name else self._model.kernel
        if not isinstance(kernel, Compact):
            raise TypeError(f"the kernel must be 'wendland' or of compact support, got {kernel!r}.")
        rows = ArrayRows(np.asarray(self._X[index], dtype=np.float64) / trial.scales, checked=True)
        number, rng = max(1, round(trial.n_neighbours)), np.random.default_rng(0)
        kernel = with_neighbours(kernel, rows, number, rng=rng, executor=make_executor(self._model))
        kernel.length_scale = kernel.length_scale * trial.scales
        return clone(self._model).set_params(kernel=kernel, noise=trial.noise)

    def _losses_of(self, trial: Trial, index: IntArray) -> FloatArray:
        """Loss of each row held out, for a model of the rows of the index."""
        model = self.configured(trial, index).set_params(tol=max(_LOOSE, self._model.tol), random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StarvedWarning)
            warnings.simplefilter("ignore", GeneralisationWarning)
            model.fit(self._X[index], self._y[index])
        truth, found = self._y[self._held_out], model.predict(self._X[self._held_out])
        if is_classifier(model):
            return np.asarray(found != truth, dtype=np.float64)
        squares = ((found - truth) ** 2 / np.maximum(np.var(self._y, axis=0), 1e-300)).reshape(len(truth), -1)
        return np.asarray(np.mean(squares, axis=1))

    def check(self) -> None:
        """Raise if no trial was accepted."""
        if not np.isfinite(self.best.error):
            raise NotPositiveDefiniteError(
                "every trial was refused: the kernel is not positive definite on these rows, or its matrix does not "
                "fit into memory. Use a guaranteed kernel, more noise, or fewer neighbours."
            )

    def consider(self, trial: Trial, index: IntArray) -> bool:
        """Try, and return whether it is better than the best."""
        start = time.perf_counter()
        try:
            losses = self._losses_of(trial, index)
        except (NotPositiveDefiniteError, MemoryError):
            losses = np.full(1, np.inf)
        seconds = time.perf_counter() - start
        trial = replace(trial, error=float(np.mean(losses)), seconds=seconds, n_rows=len(index))
        self.trials.append(trial)
        if self._verbose:
            print(f"mercer: trial {len(self.trials)}: error {trial.error:.4g} ({seconds:.1f} s)", file=sys.stderr)
        better = np.isfinite(trial.error)
        if better and np.isfinite(self.best.error):  # by more than a standard error of the difference
            difference = self._losses - losses
            better = np.mean(difference) > np.std(difference) / np.sqrt(len(difference))
        if better:
            self.best, self._losses = trial, losses
        return bool(better)

    def improve(self, moves: Sequence[Callable[[Trial], Trial]], index: IntArray, *, most: int) -> None:
        """Make moves for as long as they help, again and again until none does, or so many trials were made."""
        better = True
        while better:
            better = False
            for move in moves:
                while len(self.trials) < most and self._is_new(trial := move(self.best), index):
                    if not self.consider(trial, index):
                        break
                    better = True

    def _is_new(self, trial: Trial, index: IntArray) -> bool:
        """Whether a trial was not made yet; a common factor of the scales makes no difference."""
        return not any(
            (trial.n_neighbours, trial.noise, len(index)) == (other.n_neighbours, other.noise, other.n_rows)
            and np.ptp(np.log(trial.scales / other.scales)) < _SAME
            for other in self.trials
        )
