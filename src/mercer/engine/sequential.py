"""A dictionary of rows that grows and prunes itself while rows stream by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from mercer._jit import jit
from mercer._typing import FloatArray, IntArray
from mercer.engine.executors.threads import blas_threads, pair
from mercer.engine.rows import Rows
from mercer.engine.tiles import tile_rows
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel, Section
from mercer.solvers.recursive import BlockRecursion, Rules, Together, inverse

__all__ = ["SequentialLearner"]

_LARGEST = 1e153  # of targets and kernel values: squares must be numbers
# How far K⁻¹(Kz) may be from z, of random signs, before K⁻¹ is computed anew; its relative error is then about 1e-9.
_SPOILT = 1e-7
_SMALL = 200
# Odd numbers that spread bits: 2^64 over the golden ratio, and two with which a third of the bits mix well.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIXERS = (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB))
_LARGE = 200  # functions
_PIECE = 256  # rows whose kernel values, also among each other, are made together; half of it for small dictionaries
_SIDE_BY_SIDE = 400  # functions from which on two products at the same time are worth a second thread


@dataclass(frozen=True)
class _Piece:
    """Rows with their kernel values, to the functions in use and among each other, and k(x, x)."""

    rows: FloatArray
    values: FloatArray
    prior: FloatArray


class SequentialLearner:
    """Learn rows in their order; memory m² and m·d for m functions, whatever the number of rows.

    Parameters
    ----------
    kernel : Kernel
        With numbers for parameters.
    rules : Rules
    n_features, n_outputs : int
    n_jobs : int, default=1
        Threads; more than two are not used.

    Attributes
    ----------
    points : array (m, d)
        The dictionary.
    recursion : BlockRecursion
        Coefficients, cost, counts.
    n_refreshed : int
        How often K⁻¹ was computed anew, because rounding had spoilt it.
    """

    def __init__(self, kernel: Kernel, rules: Rules, n_features: int, n_outputs: int, *, n_jobs: int = 1) -> None:
        self.kernel = kernel
        self.recursion = BlockRecursion(rules, n_outputs)
        self.points: FloatArray = np.empty((0, n_features))
        self.n_jobs = n_jobs
        self.n_refreshed = 0
        self._unchecked, self._drift = 0, 0.0
        self._together: Together | None = None
        self._gram: FloatArray = np.empty((0, 0))  # K_mm
        self._section: Section | None = None
        self._slots: FloatArray = np.empty((0, n_features))  # points of the section: the dictionary, then a block
        self._replaced: IntArray = np.empty(0, dtype=np.intp)  # places of the dictionary that are not in it yet

    def learn(self, rows: FloatArray, targets: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        """Learn rows (n, d) with targets (n, p), one after the other; weights are above zero.

        Returns
        -------
        array (n,)
            Squared error of each row before it was learned, summed over outputs.
        """
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        if np.max(np.abs(targets), initial=0.0) > _LARGEST:
            msg = f"the targets go up to {np.max(np.abs(targets)):.1g}: their squares overflow. Scale y."
            raise ValueError(msg)
        # One layout, lest compiled code be made for each: C, and such as can be written.
        targets = np.require(targets, dtype=np.float64, requirements=["C", "W"])
        weights = np.require(np.ones(len(rows)) if weights is None else weights, np.float64, ["C", "W"])
        start, residuals = 0, np.empty(len(rows))
        if self.recursion.rules.intercept and self.recursion.n_seen == 0 and len(rows):
            if self.recursion.begin(float(self._prior(rows[:1])[0]), targets[0], float(weights[0])):
                self.points = rows[:1].copy()
                self._gram = self.kernel(self.points)
            start, residuals[0] = 1, float(np.sum(targets[0] ** 2))
        n_left = len(rows) - start
        small = n_left * (n_left + len(self.points)) < _SMALL  # holding BLAS would take longer than the work
        # The products of a block are too small for more threads of BLAS; two products go side by side.
        with nullcontext() if small else blas_threads(1), self._pair(n_left) as self._together:
            for span, piece in self._pieces(rows, start):
                residuals[span] = self._learn_piece(piece, targets[span], weights[span])
            if self._unchecked:
                self._refresh()
        self.recursion.mirror()
        return residuals

    def _pieces(self, rows: FloatArray, start: int) -> Iterator[tuple[slice, _Piece]]:
        """Rows with their kernel values, some at a time."""
        while start < len(rows):
            stop = min(start + (_PIECE if len(self.points) >= _LARGE else _PIECE // 2), len(rows))
            yield slice(start, stop), self._piece(rows[start:stop])
            start = stop

    def stream(
        self, rows: Rows, targets: FloatArray, weights: FloatArray | None = None
    ) -> Iterator[tuple[int, FloatArray]]:
        """Learn a source of rows in its order; rows of weight zero are left out.

        Yields
        ------
        stop : int
            Rows read so far.
        squares : array
            As of ``learn``, for the rows that were learned since.
        """
        width = rows.n_features + min(self.recursion.rules.max_basis, rows.n_rows)
        for start, stop, block in rows.tiles(0, rows.n_rows, tile_rows(width)):
            span = slice(start, stop)
            if weights is None:
                yield stop, self.learn(block, targets[span])
            else:
                used = weights[span] > 0
                yield stop, self.learn(block[used], targets[span][used], weights[span][used])

    def copy(self) -> SequentialLearner:
        """A learner with the same future that shares nothing that changes."""
        rules = self.recursion.rules
        other = SequentialLearner(self.kernel, rules, self.points.shape[1], self.n_outputs, n_jobs=self.n_jobs)
        other.recursion, other.points = self.recursion.copy(), self.points.copy()
        other.n_refreshed, other._gram = self.n_refreshed, self._gram.copy()
        other._unchecked, other._drift = self._unchecked, self._drift
        # What is bound goes with the copy, which is the one that goes on; if it fails, this one binds again.
        section, self._section = self._section, None
        other._section, other._slots, other._replaced = section, self._slots, self._replaced
        return other

    def merge(self, other: SequentialLearner) -> None:
        """Take in what another learner, of the same kernel and rules, without forgetting or hidden outputs, has seen.

        What each knows of its rows is their products on its own dictionary. On the union of both dictionaries, the
        functions of the other's points are represented as well as one's own dictionary can: the rule by which the
        recursion itself extends what it knows to a new function. The union is then pruned to its budget.
        """
        if not other.recursion.n_seen:
            return
        if not self.recursion.n_seen:
            twin = other.copy()
            self.recursion, self.points, self._gram, self._section = twin.recursion, twin.points, twin._gram, None
            return
        mine, theirs, fixed = self.recursion, other.recursion, int(self.recursion.rules.intercept)
        points, new = self._union(other)
        K = self.kernel(points)
        (data, cross, squares), (their_data, their_cross, their_squares) = (
            self._products(points),
            other._products(points),
        )
        mine.births = np.concatenate([mine.births, theirs.births[fixed:][new] + mine.n_seen])
        mine.K_inverse = self._with_constant(inverse(K))
        explained = mine.restate(data + their_data, K, cross + their_cross)
        mine.cost = squares + their_squares - float(np.sum(explained))
        mine.n_seen, mine.n_grown = mine.n_seen + theirs.n_seen, mine.n_grown + len(new)
        self.points, self._gram = points, K
        self._shrink()

    def change(self, rules: Rules) -> None:
        """Go on with other rules, of the same noise and with the same constant; a smaller budget holds at once."""
        self.recursion.rules = rules
        self._shrink()

    def _shrink(self) -> None:
        fixed = int(self.recursion.rules.intercept)
        kept = self.recursion.shrink()[fixed:] - fixed
        self.points, self._gram, self._section = self.points[kept], self._gram[np.ix_(kept, kept)], None

    def _union(self, other: SequentialLearner) -> tuple[FloatArray, IntArray]:
        """Both dictionaries, without those of the other's points that are not new, and which of them are."""
        points, new = self.points, np.empty(0, dtype=np.intp)
        lower = np.linalg.cholesky(self.kernel(points)) if len(points) else np.empty((0, 0))
        prior = self.kernel.diagonal(other.points)
        for i, point in enumerate(other.points):
            k = self.kernel(points, point[np.newaxis])[:, 0] if len(points) else np.empty(0)
            row = solve_triangular(lower, k, lower=True) if len(k) else k
            novelty = float(prior[i] - row @ row)
            if self.recursion.rules.is_new(novelty, float(prior[i])):
                lower = np.block([[lower, np.zeros((len(points), 1))], [row[np.newaxis], np.sqrt(novelty)]])
                points, new = np.vstack([points, point]), np.append(new, i)
        return points, new

    def _products(self, points: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """K̃ᵀK̃, K̃ᵀy and yᵀy of the rows seen, on other points."""
        recursion, fixed = self.recursion, int(self.recursion.rules.intercept)
        size = fixed + len(points)
        if not recursion.n_seen:
            return np.zeros((size, size)), np.zeros((size, self.n_outputs)), 0.0
        P = np.linalg.inv(recursion.P_inverse)
        cross = P @ recursion.coefficients
        squares = recursion.cost + float(np.sum(cross * recursion.coefficients))
        data = P.copy()
        data[fixed:, fixed:] -= recursion.rules.noise * self.kernel(self.points)
        A = np.zeros((len(P), size))
        A[:fixed, :fixed] = 1.0
        A[fixed:, fixed:] = recursion.K_inverse[fixed:, fixed:] @ self.kernel(self.points, points)
        return A.T @ data @ A, A.T @ cross, squares

    def _with_constant(self, matrix: FloatArray) -> FloatArray:
        """The matrix with zeros for the constant, if there is one."""
        if not self.recursion.rules.intercept:
            return matrix
        return np.block([[np.zeros((1, 1)), np.zeros((1, len(matrix)))], [np.zeros((len(matrix), 1)), matrix]])

    @property
    def n_outputs(self) -> int:
        """P."""
        return int(self.recursion.coefficients.shape[1])

    def __getstate__(self) -> dict[str, Any]:
        empty = {"_slots": self.points[:0].copy(), "_replaced": np.empty(0, dtype=np.intp)}  # rows that were seen
        return vars(self) | {"_section": None, "_together": None} | empty

    def _pair(self, n_rows: int) -> AbstractContextManager[Together | None]:
        long = n_rows >= _SIDE_BY_SIDE and self.recursion.rules.max_basis >= _SIDE_BY_SIDE
        return pair() if long and self.n_jobs > 1 else nullcontext(None)

    def _piece(self, rows: FloatArray) -> _Piece:
        prior = self._prior(rows)
        with np.errstate(over="ignore"):
            values = self._bound(rows).tile(rows)
        if not np.isfinite(np.sum(values)):
            self._section = None
            msg = "kernel values contain NaN or infinity: the kernel overflows on these rows; scale them."
            raise NotPositiveDefiniteError(msg)
        if self.recursion.rules.intercept:
            values = np.column_stack([np.ones(len(rows)), values])
        return _Piece(rows, values, prior)

    def _learn_piece(self, piece: _Piece, targets: FloatArray, weights: FloatArray) -> FloatArray:
        together = self._together if len(self.points) >= _SIDE_BY_SIDE else None
        fixed = int(self.recursion.rules.intercept)
        origin, residuals = self.recursion.learn(piece.values, piece.prior, targets, weights, together=together)
        origin = origin[fixed:]  # without the constant
        places = np.flatnonzero(origin >= 0)
        if len(places):
            self._extend_gram(piece, origin, places)
            if len(origin) > len(self.points):
                more = np.empty((len(origin) - len(self.points), self.points.shape[1]))
                self.points = np.concatenate([self.points, more])
            else:
                self.points = self.points.copy()  # who has taken the old ones keeps them
            self.points[places] = piece.rows[origin[places]]
            self._replaced = np.union1d(self._replaced, places)
            self._unchecked += len(places)
            if 8 * self._unchecked >= len(self.points) or self._drift > 0.1 * _SPOILT:
                self._refresh()
        return residuals

    def _prior(self, rows: FloatArray) -> FloatArray:
        """k(x, x), checked."""
        with np.errstate(over="ignore"):
            prior = self.kernel.diagonal(rows)
        if not np.all(prior >= 0):
            msg = "k(x, x) is negative or NaN on some rows: the kernel is not positive definite."
            raise NotPositiveDefiniteError(msg)
        if np.max(prior) > _LARGEST:
            msg = f"k(x, x) goes up to {np.max(prior):.1g}: kernel values overflow when they are squared. Scale X."
            raise ValueError(msg)
        return prior

    def _extend_gram(self, piece: _Piece, origin: IntArray, places: IntArray) -> None:
        """Have the kernel values of newcomers in K_mm: those that the recursion was given."""
        m, size = len(self.points), len(origin)
        if size > m:
            larger = np.empty((size, size))
            larger[:m, :m] = self._gram
            self._gram = larger
        _fill_gram(self._gram, piece.values, piece.prior, (origin, places), (int(self.recursion.rules.intercept), m))

    def _refresh(self) -> None:
        """Compute K⁻¹ anew if it has drifted: if K⁻¹(Kz) is not z, for a z of random signs.

        Looked at when an eighth of the dictionary has changed, after each block once something is seen, and at the end
        of a batch.
        """
        fixed = int(self.recursion.rules.intercept)
        signs = _signs(len(self.points), self.recursion.n_seen)
        drift = self.recursion.K_inverse_times(np.concatenate([np.zeros(fixed), self._gram @ signs]))[fixed:] - signs
        self._unchecked, self._drift = 0, float(np.max(np.abs(drift)))
        if self._drift > _SPOILT:
            self.recursion.K_inverse = self._with_constant(inverse(self._gram))
            self.n_refreshed += 1

    def _bound(self, rows: FloatArray) -> Section:
        """The kernel bound to the dictionary and a block."""
        m, slots = len(self.points), len(self.points) + len(rows)
        if self._section is None or len(self._slots) != slots:
            self._slots = np.concatenate([self.points, rows])
            self._section = self.kernel.bind(self._slots)
        else:
            self._slots[m:] = rows
            self._section = self.kernel.rebind(self._section, self._slots, slice(m, slots))
            if len(self._replaced):
                self._slots[self._replaced] = self.points[self._replaced]
                self._section = self.kernel.rebind(self._section, self._slots, self._replaced)
        self._replaced = np.empty(0, dtype=np.intp)
        return self._section


def _signs(size: int, seed: int) -> FloatArray:
    """Signs that look random, in a few microseconds: a bit of a hash of place and seed."""
    bits = (np.arange(size, dtype=np.uint64) + np.uint64(seed)) * _GOLDEN
    for shift, factor in _MIXERS:
        bits = (bits ^ (bits >> shift)) * factor
    return np.where(bits >> np.uint64(63), 1.0, -1.0)


@jit
def _fill_gram(gram: FloatArray, values: FloatArray, prior: FloatArray, functions: Any, sizes: Any) -> None:
    """Fill in the rows and columns of newcomers; of two newcomers the later one has the value."""
    (origin, places), (fixed, m) = functions, sizes
    for place in places:
        row = origin[place]
        for j in range(len(origin)):
            other = origin[j]
            if other < row:
                gram[place, j] = gram[j, place] = values[row, fixed + (j if other < 0 else m + other)]
        gram[place, place] = prior[row]
