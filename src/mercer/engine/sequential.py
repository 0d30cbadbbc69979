"""A dictionary of rows that grows and prunes itself while rows stream by."""

from __future__ import annotations

from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_finite, check_kernel, check_shape, need
from mercer._typing import FloatArray, IntArray
from mercer.engine.executors.sequence import Sequence
from mercer.engine.executors.threads import blas_threads
from mercer.engine.passes import Pass, Tile
from mercer.engine.prequential import Learned, Moments, Prequential
from mercer.engine.statistics import NormalStatistics
from mercer.engine.stream_values import StreamValues
from mercer.engine.table import Table
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel, Precomputed
from mercer.solvers.recursive import BlockRecursion, Rules, inverse

_LARGEST = 1e153  # of targets and kernel values: squares must be numbers
_SMALL = 200  # kernel values
_LARGE = 200  # functions
_PIECE = 256  # rows whose kernel values, also among each other, are made together; half of it for small dictionaries
# Rows that are learned together, where compiled code computes their kernel values, times what a row takes: a tenth of a
# second or so, as nothing can be interrupted in between.
_WORK = 500_000_000
# The same for a second or so, and bytes: rows of a source that are read and learned together.
_SECOND, _MEMORY = 4_000_000_000, 1 << 25
_TRACKED = 1 << 15  # rows whose residuals are kept together


@stored
class SequentialLearner:
    """Learn rows in their order; memory m² and m·d for m functions, whatever the number of rows."""

    kernel: Kernel  # with numbers for parameters
    recursion: BlockRecursion  # coefficients, cost, counts
    points: FloatArray  # (m, d), the dictionary
    track: Sometimes[Prequential | None]  # None in files of earlier versions, until rows are learned
    moments: Sometimes[Moments | None]  # None if gains are measured in squared units of the targets

    def __init__(
        self, kernel: Kernel, rules: Rules, n_features: int, n_outputs: int, *, moments: Moments | None = None
    ) -> None:
        self.kernel = kernel
        self.recursion = BlockRecursion(rules, n_outputs)
        self.points = np.empty((0, n_features))
        self.track, self.moments = Prequential.nothing(n_outputs), moments
        self._values = StreamValues(kernel)

    def learn(self, rows: FloatArray, targets: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        """Learn rows (n, d) with targets (n, p), one after the other; weights are above zero.

        Returns the squared error of each row before it was learned, summed over outputs.
        """
        if np.max(np.abs(targets), initial=0.0) > _LARGEST:
            raise ValueError(f"the targets go up to {np.max(np.abs(targets)):.1g}: their squares overflow. Scale y.")
        # One layout, so that code is compiled once: C order, writable.
        weights = np.ones(len(rows)) if weights is None else weights
        rows, targets, weights = (np.require(given, np.float64, ["C", "W"]) for given in (rows, targets, weights))
        pieces = [slice(start, start + _TRACKED) for start in range(0, len(rows), _TRACKED)]
        return np.concatenate([np.empty(0), *(self._track(rows[p], targets[p], weights[p]) for p in pieces)])

    def _track(self, rows: FloatArray, targets: FloatArray, weights: FloatArray) -> FloatArray:
        """Learn rows, and keep track of their residuals."""
        shifts, units = self._shifts_and_units(targets, weights)
        first, is_free = self.recursion.n_seen, self.has_constant and self.recursion.n_seen == 0
        residuals, variances = self._learn(rows, targets - shifts if self._is_centred else targets, weights, units)
        learned = Learned(first, targets, weights, residuals, variances)
        rules, track = self.recursion.rules, self.track or Prequential.nothing(self.n_outputs)
        self.track = track.plus(learned, noise=rules.noise, forgetting=rules.forgetting, free=is_free)
        squares = np.sum(rules.scored(residuals) ** 2, axis=1)
        if is_free:  # nothing was known of the constant
            squares[0] = np.sum(rules.scored(targets[0]) ** 2)
        return np.asarray(squares)

    def _shifts_and_units(self, targets: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What is subtracted from the targets of each row if they are centred, and the unit of its gain."""
        if self.moments is None:
            return targets, np.ones(len(targets))
        rules = self.recursion.rules
        moments = self.moments.plus(targets, weights, forgetting=rules.forgetting, hidden=rules.hidden)
        self.moments, shifts, units = moments
        return shifts, units

    def _learn(
        self, rows: FloatArray, targets: FloatArray, weights: FloatArray, units: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Learn rows; returns their residuals (n, p) before that, and the variances (n,) that were expected."""
        start, prior, n_grown = 0, self._prior(rows), self.recursion.n_grown
        residuals, variances = np.empty(targets.shape), np.empty(len(rows))
        if self.recursion.rules.intercept and self.recursion.n_seen == 0:
            if self.recursion.begin(float(prior[0]), targets[0], float(weights[0])):
                self.points = rows[:1].copy()
            start, residuals[0], variances[0] = 1, targets[0], prior[0]
        n_left = len(rows) - start
        small = n_left * (n_left + len(self.points)) < _SMALL  # holding BLAS would take longer than the work
        # The products of a block are too small for more threads of BLAS.
        with nullcontext() if small else blas_threads(1):
            while start < len(rows):
                rest = slice(start, None)
                found = self._learn_some(rows[rest], prior[rest], targets[rest], weights[rest], units[rest])
                done = slice(start, start + len(found[1]))
                residuals[done], variances[done] = found
                start = done.stop
        self.recursion.mirror(n_grown)
        return residuals, variances

    def _learn_some(
        self, rows: FloatArray, prior: FloatArray, targets: FloatArray, weights: FloatArray, units: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Learn some of the first rows, as many as can be interrupted soon and as their kernel values allow."""
        m, fixed = len(self.points), int(self.recursion.rules.intercept)
        most = max(m, min(self.recursion.rules.max_basis, max(2 * m, m + _PIECE)))
        number = max(_PIECE, _WORK // _row_work(most, rows.shape[1]))
        source = self._values.factored(self.points, rows[:number], fixed, most)
        if source is None:
            number = _PIECE if m >= _LARGE else _PIECE // 2
            source = self._values.tabulated(self.points, rows[:number], fixed)
        some = slice(number)
        origin, residuals, variances = self.recursion.learn(
            source, prior[some], targets[some], weights[some], units[some]
        )
        origin = origin[fixed:]  # without the constant
        if np.any(origin >= 0):
            points = np.empty((len(origin), rows.shape[1]))  # who has taken the old ones keeps them
            points[:m], points[origin >= 0] = self.points, rows[origin[origin >= 0]]
            self.points = points
        if len(variances) < min(number, len(rows)):
            self._values.unbind(len(variances))
        return residuals, variances

    def copy(self) -> SequentialLearner:
        """A learner with the same future that shares nothing that changes: points are replaced, not written to."""
        other = copy(self)
        other.recursion = self.recursion.copy()
        # What is bound goes with the copy, which is the one that goes on; if it fails, this one binds again.
        other._values, self._values = self._values, StreamValues(self.kernel)
        return other

    def rest(self) -> None:
        """Let go of memory and of the centre that the last rows had: the next ones are learned as after a pickle."""
        self.recursion.rest()
        self._values = StreamValues(self.kernel)

    def merge(self, other: SequentialLearner) -> None:
        """Take in what another learner, of the same kernel and rules, without forgetting or hidden outputs, has seen.

        What each knows of its rows is their products on its own dictionary. On the union of both dictionaries, the
        functions of the other's points are represented as well as one's own dictionary can: the rule by which the
        recursion itself extends what it knows to a new function. The union is then pruned to its budget.
        """
        if not other.recursion.n_seen:
            return
        if not self.recursion.n_seen:
            self.recursion, self.points = other.recursion.copy(), other.points
            self.track, self.moments = other.track, other.moments
            return
        both = self.track is not None and other.track is not None
        self.track = self.track.merged(other.track) if both else None  # type: ignore[union-attr,arg-type]
        both = self.moments is not None and other.moments is not None
        self.moments = self.moments.merged(other.moments) if both else None  # type: ignore[union-attr,arg-type]
        mine, theirs, fixed = self.recursion, other.recursion, int(self.recursion.rules.intercept)
        points, new = self._union(other)
        K = self.kernel(points)
        data, cross, squares = self._products(points)
        their_data, their_cross, their_squares = other._products(points)
        mine.births = np.concatenate([mine.births, theirs.births[fixed:][new] + mine.n_seen])
        mine.K_inverse, mine.gram = np.pad(inverse(K), (fixed, 0)), np.pad(K, (fixed, 0))
        explained = mine.restate(data + their_data, K, cross + their_cross)
        mine.cost = squares + their_squares - float(np.sum(explained))
        mine.n_seen, mine.n_grown = mine.n_seen + theirs.n_seen, mine.n_grown + len(new)
        self.points = points
        self.change(mine.rules)

    def change(self, rules: Rules) -> None:
        """Go on with other rules, of the same noise and with the same constant; a smaller budget holds at once."""
        self.recursion.rules = rules
        self.points = self.points[self.recursion.shrink()]
        self._values = StreamValues(self.kernel)

    def _union(self, other: SequentialLearner) -> tuple[FloatArray, IntArray]:
        """Both dictionaries, without those of the other's points that are not new, and which of them are."""
        points, new = self.points, np.empty(0, dtype=np.intp)
        lower = np.linalg.cholesky(self.kernel(points))
        prior = self.kernel.diagonal(other.points)
        for i, point in enumerate(other.points):
            k = self.kernel(points, point[np.newaxis])[:, 0]
            row = solve_triangular(lower, k, lower=True) if len(k) else k
            novelty = float(prior[i] - row @ row)
            if self.recursion.rules.is_new(novelty, float(prior[i])):
                lower = np.block([[lower, np.zeros((len(points), 1))], [row[np.newaxis], np.sqrt(novelty)]])
                points, new = np.vstack([points, point]), np.append(new, i)
        return points, new

    def _products(self, points: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """K̃ᵀK̃, K̃ᵀy and yᵀy of the rows seen, on other points."""
        recursion, fixed = self.recursion, int(self.recursion.rules.intercept)
        P = np.linalg.inv(recursion.P_inverse)
        cross = P @ recursion.coefficients
        squares = recursion.cost + float(np.sum(cross * recursion.coefficients))
        data = P.copy()
        data[fixed:, fixed:] -= recursion.rules.noise * self.kernel(self.points)
        A = np.zeros((len(P), fixed + len(points)))
        A[:fixed, :fixed] = 1.0
        A[fixed:, fixed:] = recursion.K_inverse[fixed:, fixed:] @ self.kernel(self.points, points)
        return A.T @ data @ A, A.T @ cross, squares

    def restate(self, sums: NormalStatistics) -> None:
        """Solve for the coefficients anew, from sums of [φ, y, 1][φ, y, 1]ᵀ on the dictionary; y is shifted."""
        recursion, m = self.recursion, len(self.points)
        order = [-1] * recursion.n_fixed + [*range(m)]  # of [φ, y, 1] the constant comes first
        data_part, cross = sums.sums[np.ix_(order, order)], sums.sums[order, m:-1]
        explained = recursion.restate(data_part, self.kernel(self.points), cross)
        costs = np.diagonal(sums.moments)[:-1] - explained
        recursion.cost = float(np.sum(recursion.rules.scored(costs)))
        recursion.hidden_cost = float(np.sum(costs)) - recursion.cost
        track = self.track or Prequential.nothing(self.n_outputs)
        squares, n_targets = np.maximum(costs, 0.0) / recursion.rules.noise, sums.n_targets
        count = sums.n_rows if sums.counted else n_targets
        self.track = track.of_fit(squares, n_targets, count, free=self.has_constant)

    def map_outputs(self, signs: FloatArray) -> None:
        """Go on with other outputs, each of which is plus or minus one of these: columns of ``signs`` (p, q)."""
        self.recursion.coefficients = np.ascontiguousarray(self.recursion.coefficients @ signs)
        self.track = None if self.track is None else self.track.mapped(signs)
        self.moments = None if self.moments is None else self.moments.mapped(signs)

    @property
    def intercept(self) -> FloatArray:
        """The constant of each output, (p,): a function of its own, the mean of the targets, or zero."""
        return self.recursion.coefficients[0].copy() if self.recursion.n_fixed else self.shift

    @property
    def shift(self) -> FloatArray:
        """What is subtracted from targets, (p,): their mean, if they are centred, or zero."""
        return self.moments.mean if self._is_centred else np.zeros(self.n_outputs)  # type: ignore[union-attr]

    @property
    def _is_centred(self) -> bool:
        return self.moments is not None and self.moments.centred

    @property
    def has_constant(self) -> bool:
        """Whether there is an intercept, of either kind."""
        return self._is_centred or self.recursion.rules.intercept

    @property
    def n_outputs(self) -> int:
        """p."""
        return int(self.recursion.coefficients.shape[1])

    @property
    def n_scored(self) -> int:
        """Outputs that count."""
        return self.n_outputs - self.recursion.rules.hidden

    def check_stored(self) -> None:
        """Refuse a dictionary of another size than the recursion's."""
        m = len(self.recursion.births) - self.recursion.n_fixed
        need(self.points.ndim == 2, "the dictionary is no table.")
        check_shape(self.points, (m, self.points.shape[1]), "the dictionary")
        check_kernel(self.kernel, self.points.shape[1])
        need(not isinstance(self.kernel, Precomputed), "the kernel of a dictionary needs rows.")
        need(self.points.dtype == np.float64, "the dictionary is not float64.")
        track, moments = (vars(self).get(name) for name in ("track", "moments"))
        if track is not None:
            check_shape(track.squares, (self.n_outputs,), "squares of residuals")
        if moments is not None:
            check_shape(moments.origin, (self.n_outputs,), "the origin of moments")
        check_finite(self.points, "the dictionary")

    def rebuild_stored(self) -> None:
        """Begin without bound rows; files of earlier versions have no track."""
        for name in ("track", "moments"):
            vars(self).setdefault(name, None)
        self._values = StreamValues(self.kernel)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_values": StreamValues(self.kernel)}  # without rows that were seen

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


def _row_work(m: int, n_features: int) -> int:
    """What a row takes: as much as the square of functions, if they are many."""
    return m**2 + 16 * (m + n_features) + 1000


class Progressed(NamedTuple):
    """How far a learner was after some rows."""

    n_seen: int
    n_functions: int
    error: float  # mean squared error, summed over outputs, of the rows learned since the last, before they were


@dataclass
class _Learned:
    """A learner, and how far it was after each tile."""

    learner: SequentialLearner
    history: list[Progressed]


@dataclass(frozen=True)
class _Learning(Pass[_Learned, _Learned]):
    """Learn a tile after the other."""

    learner: SequentialLearner
    record: bool

    name = "rows learned"

    @property
    def width(self) -> int:
        return int(self.learner.points.shape[1]) + self.learner.recursion.rules.max_basis

    @property
    def rows_together(self) -> int:  # type: ignore[override]
        """Rows that take a second or so to learn, and not too much memory; one tile, where each is recorded."""
        n_features, most = self.learner.points.shape[1], self.learner.recursion.rules.max_basis
        many = min(_MEMORY // (8 * (n_features + 1)), _SECOND // _row_work(most, n_features))
        return 1 if self.record else many

    def start(self) -> _Learned:
        return _Learned(self.learner, [])

    def add(self, state: _Learned, tile: Tile) -> None:
        rows, targets, weights = tile.rows, tile.targets, tile.weights
        if weights is not None:
            used = weights > 0
            rows, targets, weights = rows[used], targets[used], weights[used]
        learner = state.learner
        squares = learner.learn(rows, targets, weights)
        learner.rest()
        if self.record and len(squares):
            state.history.append(Progressed(learner.recursion.n_seen, len(learner.points), float(np.mean(squares))))


def learn_table(
    learner: SequentialLearner, table: Table, *, record: bool = False, verbose: int = 0
) -> tuple[SequentialLearner, list[Progressed]]:
    """Learn the rows of a table in their order, without those of weight zero; returns the learner to go on with.

    ``record`` says how far it was after each tile; without it many rows are learned at once, which is faster. The
    learner that is given may change.
    """
    learned = Sequence(verbose=verbose).reduce(_Learning(learner, record), table)
    return learned.learner, learned.history
