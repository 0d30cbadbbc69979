"""Stochastic gradient descent in the space of functions: a model that each row adds a term to, and that forgets."""

from __future__ import annotations

from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer._stored import stored
from mercer._stored.checks import check_finite, check_kernel, check_shape, need
from mercer._typing import FloatArray, IntArray
from mercer.engine.executors.sequence import Sequence
from mercer.engine.executors.threads import blas_threads
from mercer.engine.passes import Pass, Tile
from mercer.engine.prequential import Learned, Prequential
from mercer.engine.rows import ArrayRows, SparseRows
from mercer.engine.table import ArrayTable, Table
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel, Precomputed, Section
from mercer.solvers.stochastic import Block, Loss, Steps, descend

_PIECE = 256  # rows whose kernel values, also among each other, are made together
_SMALL = 200  # kernel values: holding BLAS would take longer than the work
_TRACKED = 1 << 15  # rows whose residuals are kept together
_MEMORY = 1 << 25  # bytes: rows of a source that are read and learned together
_ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of a spread, as a share of the largest target
_NORMAL = 1.4826  # standard deviations, by the median distance from the median
_LARGEST = 1e150  # of k(x, x) and predictions: squares must be numbers


@stored
@dataclass(frozen=True)
class Units:
    """By what targets are shifted and divided before they are learned."""

    shift: FloatArray  # (p,)
    unit: FloatArray  # (p,), above zero

    def check_stored(self) -> None:
        """Refuse units that are none."""
        check_shape(self.shift, (self.shift.size,), "the shift of targets")
        check_shape(self.unit, self.shift.shape, "units of targets")
        check_finite(self.shift, "the shift of targets")
        need(np.all(np.isfinite(self.unit) & (self.unit > 0)), "units of targets are not positive.")

    @classmethod
    def none(cls, n_outputs: int) -> Units:
        """Targets are learned as they are."""
        return cls(np.zeros(n_outputs), np.ones(n_outputs))

    @classmethod
    def of(cls, targets: FloatArray, weights: FloatArray | None, *, centred: bool, robust: bool = False) -> Units:
        """Mean, or zero, and root of the mean square about it; 1 where that is zero, or rounding.

        Robust: the median, and the median distance from it, by which a normal distribution has the same units; where
        more than half of the targets are equal, the root of the mean square about it.
        """
        largest = np.max(np.abs(targets), axis=0)
        safe = np.where(largest > 0, largest, 1.0)  # so that squares are numbers
        moved, weights = targets / safe, np.ones(len(targets)) if weights is None else weights
        shift: FloatArray = np.zeros(targets.shape[1])
        if centred:
            shift = _medians(moved, weights) if robust else np.average(moved, axis=0, weights=weights)
        spread = np.sqrt(np.average((moved - shift) ** 2, axis=0, weights=weights))
        if robust:
            middle = _NORMAL * _medians(np.abs(moved - shift), weights)
            spread = np.where(middle > _ROUNDING, middle, spread)
        spread = np.where(spread > _ROUNDING, spread, 1.0)
        return cls(shift * safe, np.maximum(spread * safe, np.finfo(np.float64).tiny))


def _medians(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Of each column, where half of the weight is reached."""
    order = np.argsort(values, axis=0)
    reached = np.cumsum(weights[order], axis=0) >= weights.sum() / 2
    middle = np.argmax(reached, axis=0)
    return np.asarray(np.take_along_axis(values, order, axis=0)[middle, np.arange(values.shape[1])])


@stored
class GradientLearner:
    """Learn rows in their order; memory m·d for m terms, whatever the number of rows."""

    kernel: Kernel  # with numbers for parameters
    loss: Loss
    steps: Steps
    units: Units
    points: FloatArray  # (m, d), oldest first
    coefficients: FloatArray  # (m, p)
    means: FloatArray  # (m, p): the same of the mean over late models
    births: IntArray  # (m,): number of the row that each term came from
    constants: FloatArray  # (6, p): intercept, threshold, norms of what was dropped and of all terms; means of two
    squares: FloatArray  # (p,), |f|², if it is recorded
    n_seen: int
    largest: float  # k(x, x)
    longest: float  # share η(k(x, x) + 1 + λ) of a step
    hidden: int  # so many of the last outputs are learned but not asked
    track: Prequential

    def __init__(
        self, kernel: Kernel, loss: Loss, steps: Steps, units: Units, *, n_features: int, hidden: int = 0
    ) -> None:
        p = len(units.shift)
        self.kernel, self.loss, self.steps, self.units, self.hidden = kernel, loss, steps, units, hidden
        self.points, self.coefficients, self.means = np.empty((0, n_features)), np.empty((0, p)), np.empty((0, p))
        self.births, self.squares = np.empty(0, dtype=np.intp), np.zeros(p)
        self.constants = np.zeros((6, p))
        self.constants[[1, 5]] = loss.shape
        self.n_seen, self.largest, self.longest = 0, 0.0, 0.0
        self.track = Prequential.nothing(p)
        self._section: Section | None = None  # kernel values of the last rows, in memory that is used again
        self._table: FloatArray = np.empty((0, 0))
        self._priors: FloatArray = np.empty(0)  # k(z, z)

    def learn(
        self, rows: FloatArray, targets: FloatArray, weights: FloatArray | None = None, *, record: bool = False
    ) -> FloatArray:
        """Learn rows (n, d) with targets (n, p), one after the other; weights are above zero.

        Returns what is recorded of each row, (n, 3, p): its loss and |f|² before it was learned, and the norm of what
        was dropped for it. It changes what this object has, and no array.
        """
        weights = np.ones(len(rows)) if weights is None else weights
        rows, targets, weights = (np.require(given, np.float64, ["C", "W"]) for given in (rows, targets, weights))
        pieces = [slice(start, start + _TRACKED) for start in range(0, len(rows), _TRACKED)]
        found = [self._track(rows[p], targets[p], weights[p], record) for p in pieces]
        return np.concatenate([np.empty((0, 3, self.n_outputs)), *found])

    def renumber(self, first: int, order: IntArray) -> None:
        """Rows from that number on were learned in this order: terms get the numbers that rows had before."""
        new = self.births >= first
        self.births = np.concatenate([self.births[~new], first + order[self.births[new] - first]])

    def _track(self, rows: FloatArray, targets: FloatArray, weights: FloatArray, record: bool) -> FloatArray:
        first, scaled = self.n_seen, (targets - self.units.shift) / self.units.unit
        prior, predictions, means = self._prior(rows), np.empty(targets.shape), np.empty(targets.shape)
        recorded = np.empty((len(rows) if record else 0, 3, self.n_outputs))
        n = len(rows)
        with nullcontext() if n * (n + len(self.points)) < _SMALL else blas_threads(1):
            for start in range(0, n, _PIECE):
                some = slice(start, start + _PIECE)
                block = self._learn(rows[some], scaled[some], weights[some], prior[some], recorded[some])
                predictions[some], means[some] = block.predictions, block.mean_predictions
        if record:
            recorded[:, 0] = self.loss.values(predictions, scaled)
        residuals = targets - (means * self.units.unit + self.units.shift)
        learned = Learned(first, targets, weights, residuals, np.zeros(n))
        self.track = self.track.plus(learned, noise=1.0, forgetting=1.0, free=False)
        return recorded

    def _learn(
        self, rows: FloatArray, targets: FloatArray, weights: FloatArray, prior: FloatArray, recorded: FloatArray
    ) -> Block:
        """Learn a block of rows; returns what was predicted of each, and all else that was found."""
        (m, p), n = self.coefficients.shape, len(rows)
        record, slots, means = len(recorded) > 0, np.zeros((p, m + n)), np.zeros((p, m + n))
        drops = m + n > self.steps.max_basis or self.steps.truncation > 0
        slots[:, :m], means[:, :m] = self.coefficients.T, self.means.T
        points = np.concatenate([self.points, rows])
        values = self._values_of(points, rows)
        gram = self.kernel(self.points) if record and drops and m else np.empty((0, 0))
        block = Block(
            values=values, prior=np.concatenate([self._priors, prior]), targets=targets, weights=weights,
            asked=p - self.hidden, coefficients=slots, means=means, factors=np.empty(3),
            used=np.repeat(np.array([1, 0]), [m, n]), constants=self.constants.copy(),
            clock=np.array([self.n_seen, self.largest, self.longest], dtype=np.float64),
            predictions=np.empty((n, p)), mean_predictions=np.empty((n, p)), slopes=np.empty(p), gram=gram,
            squares=self.squares.copy(), norms=np.empty((n if record else 0, p)), dropped=np.zeros((n, p)),
        )  # fmt: skip
        descend(self.steps, self.loss, block)
        if not (np.all(np.abs(block.predictions) < _LARGEST) and np.all(np.isfinite(slots))):
            if not np.all(np.isfinite(values)):
                msg = "kernel values contain NaN or infinity: the kernel overflows on these rows; scale them."
                raise NotPositiveDefiniteError(msg)
            raise ValueError(
                f"the model diverges with learning_rate={self.steps.rate:.3g}: lower it, or leave it to 'auto'."
            )
        if record:
            recorded[:, 1], recorded[:, 2] = block.norms, block.dropped
        kept = np.flatnonzero(block.used)
        births = np.concatenate([self.births, self.n_seen + np.arange(n)])
        self.points = points[kept]
        self.coefficients, self.births = np.ascontiguousarray(slots[:, kept].T), births[kept]
        self.means = np.ascontiguousarray(means[:, kept].T)
        self.constants, self.squares, self._priors = block.constants, block.squares, block.prior[kept]
        self.n_seen, self.largest, self.longest = self.n_seen + n, float(block.clock[1]), float(block.clock[2])
        return block

    def copy(self) -> GradientLearner:
        """A learner with the same future; arrays are replaced, not written to."""
        other: GradientLearner = copy(self)
        self._section = None  # what is bound goes with the copy, which is the one that goes on
        return other

    def rest(self) -> None:
        """Let go of what is bound to the last rows: the next ones are learned as after a pickle."""
        self._section, self._table = None, np.empty((0, 0))

    def _values_of(self, points: FloatArray, rows: FloatArray) -> FloatArray:
        """Kernel values of rows, in memory that the next call uses again."""
        bound, self._section = self._section, None
        with np.errstate(over="ignore"):
            section = bound if bound is not None and bound.replace(points) else self.kernel.bind(points)
            kept = self._table if section is bound and self._table.shape == (len(rows), len(points)) else None
            table = section.tile(rows, kept)
        self._section, self._table = section, table
        return table

    def map_outputs(self, signs: FloatArray) -> None:
        """Go on with other outputs, each of which is plus or minus one of these: columns of ``signs`` (p, q)."""
        sizes = np.abs(signs)
        self.coefficients, self.means = (np.ascontiguousarray(c @ signs) for c in (self.coefficients, self.means))
        signed = np.isin(np.arange(len(self.constants)), [0, 4])[:, np.newaxis]
        self.constants = np.where(signed, self.constants @ signs, self.constants @ sizes)
        self.squares, self.track = self.squares @ sizes, self.track.mapped(signs)
        self.units = replace(self.units, shift=self.units.shift @ signs, unit=self.units.unit @ sizes)

    @property
    def n_outputs(self) -> int:
        """p."""
        return int(self.coefficients.shape[1])

    def scored(self, values: FloatArray) -> FloatArray:
        """Those of the outputs, along the last axis, that count."""
        return np.asarray(values[..., : values.shape[-1] - self.hidden])

    @property
    def intercept(self) -> FloatArray:
        """b in units of the targets, (p,)."""
        return np.asarray(self.units.shift + self.units.unit * self.constants[4])

    @property
    def threshold(self) -> FloatArray:
        """ε or ρ in units of the targets, (p,)."""
        return np.asarray(self.units.unit * self.constants[5])

    @property
    def rate(self) -> float:
        """η₀."""
        return self.steps.first_rate(self.largest)

    @property
    def regularization(self) -> float:
        """λ."""
        return self.steps.decay(self.largest)

    @property
    def dropped_share(self) -> float:
        """Bound of the norm of what was dropped, as a share of that of all terms; of the worst output."""
        dropped, total = self.scored(self.constants[2:4])
        return float(np.max(np.divide(dropped, total, out=np.zeros(len(total)), where=total > 0), initial=0.0))

    def check_stored(self) -> None:
        """Refuse parts that do not fit together."""
        need(self.points.ndim == 2 and self.coefficients.ndim == 2, "the terms of a model are no table.")
        (m, d), p = self.points.shape, self.coefficients.shape[1]
        check_kernel(self.kernel, d)
        need(not isinstance(self.kernel, Precomputed), "the kernel of a stream needs rows.")
        check_shape(self.coefficients, (m, p), "coefficients of a stream")
        check_shape(self.births, (m,), "numbers of terms")
        check_shape(self.means, (m, p), "mean coefficients of a stream")
        check_shape(self.constants, (6, p), "constants of a stream")
        check_shape(self.squares, (p,), "norms of a stream")
        check_shape(self.units.shift, (p,), "the shift of targets")
        check_shape(self.track.squares, (p,), "squares of residuals")
        need(m <= self.steps.max_basis and 0 <= self.hidden < p, "a stream has more terms than its budget.")
        need(self.n_seen >= m and 0 <= self.largest < np.inf and self.longest >= 0, "counts of a stream are wrong.")
        for name in ("points", "coefficients", "means", "constants", "squares"):
            need(getattr(self, name).dtype == np.float64, f"{name} of a stream are not float64.")
            check_finite(getattr(self, name), f"{name} of a stream")

    def rebuild_stored(self) -> None:
        """Begin without bound rows."""
        self._section, self._table, self._priors = None, np.empty((0, 0)), self._prior(self.points)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_section": None, "_table": np.empty((0, 0))}  # without rows that were seen

    def _prior(self, rows: FloatArray) -> FloatArray:
        """k(x, x), checked."""
        with np.errstate(over="ignore"):
            prior = self.kernel.diagonal(rows)
        if not np.all(prior >= 0):
            msg = "k(x, x) is negative or NaN on some rows: the kernel is not positive definite."
            raise NotPositiveDefiniteError(msg)
        if np.max(prior, initial=0.0) > _LARGEST:
            msg = f"k(x, x) goes up to {np.max(prior):.1g}: kernel values overflow when they are squared. Scale X."
            raise ValueError(msg)
        return prior


@dataclass
class _Descended:
    """A learner, and what was recorded of its rows."""

    learner: GradientLearner
    recorded: list[FloatArray]


@dataclass(frozen=True)
class _Descent(Pass[_Descended, _Descended]):
    """Learn a tile after the other."""

    learner: GradientLearner
    record: bool
    seed: int | None = None  # by which rows that come together are shuffled

    name = "rows learned"

    @property
    def width(self) -> int:
        return int(self.learner.points.shape[1]) + self.learner.steps.max_basis

    @property
    def rows_together(self) -> int:  # type: ignore[override]
        """Rows that do not take too much memory."""
        return max(_MEMORY // (8 * (int(self.learner.points.shape[1]) + 1)), 1)

    def start(self) -> _Descended:
        return _Descended(self.learner, [])

    def add(self, state: _Descended, tile: Tile) -> None:
        rows, targets, weights = tile.rows, tile.targets, tile.weights
        if weights is not None:
            used = weights > 0
            rows, targets, weights = rows[used], targets[used], weights[used]
        if self.seed is None:
            state.recorded.append(state.learner.learn(rows, targets, weights, record=self.record))
        else:
            first, order = state.learner.n_seen, _order(self.seed, tile.first, len(rows))
            state.learner.learn(rows[order], targets[order], None if weights is None else weights[order])
            state.learner.renumber(first, order)
        state.learner.rest()


def _order(seed: int, first: int, n_rows: int) -> IntArray:
    """An order of rows that follows from the number of the first, wherever a pass begins."""
    return np.random.default_rng([seed, first]).permutation(n_rows)


def descend_table(
    learner: GradientLearner, table: Table, *, record: bool = False, verbose: int = 0, seed: int | None = None
) -> tuple[GradientLearner, FloatArray]:
    """Learn the rows of a table, without those of weight zero.

    With a seed in random order, of which nothing is recorded. Of rows that are not in memory those that are read
    together are shuffled, some 32 MB: they are read once. Returns the learner to go on with, and what is recorded,
    (n, 3, p). The learner that is given may change.
    """
    sequence = Sequence(verbose=verbose)
    if seed is not None and isinstance(table, ArrayTable) and isinstance(table.rows, (ArrayRows, SparseRows)):
        used = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights > 0)
        first, order = learner.n_seen, _order(seed, 0, len(used))
        learned = sequence.reduce(_Descent(learner, record=False), table.subset(used[order]))
        learned.learner.renumber(first, order)
    else:
        learned = sequence.reduce(_Descent(learner, record, seed), table)
    return learned.learner, np.concatenate([np.empty((0, 3, learner.n_outputs)), *learned.recorded])
