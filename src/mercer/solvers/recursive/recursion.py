r"""The sequential LS-SVM on blocks of rows: the decisions of one row at a time, most of the work in matrix products.

The dictionary :math:`z_1..z_m` approximates the function of every row seen by
:math:`k(x, \cdot) \approx \sum a_i k(z_i, \cdot)` at the time it was seen, so that the rows' design matrix
:math:`\tilde K` (n, m) is known without the rows. The state is

.. math:: P^{-1},\; P = \tilde K^\top W\tilde K + \lambda K_{mm};\qquad K_{mm}^{-1};\qquad w = P^{-1}\tilde K^\top Wy;
          \qquad \xi = \min_w |y - \tilde Kw|_W^2 + \lambda w^\top K_{mm}w.

A row with kernel values k to the dictionary, weight ω and target y has

.. math:: u = P^{-1}k,\quad \Delta = 1/\omega + k^\top u,\quad \rho = y - k^\top w,\quad a = K_{mm}^{-1}k,\quad
          \delta = k(x, x) - k^\top a.

=========  =============================================================================================
step       what changes
=========  =============================================================================================
normal     P⁻¹ - uuᵀ/Δ;  w + (ρ/Δ)u;  ξ + ρ²/Δ
growing    P⁻¹ + vvᵀ/Δ_b and w + κv with v = [-a - (δ/Δ)u, 1], Δ_b = δ(λ + δ/Δ), κ = ρ/(λΔ + δ);  ξ - κ²Δ_b;
           K_mm⁻¹ + ggᵀ/δ with g = [-a, 1]
pruning    P⁻¹ - hhᵀ/h_i with h its row i;  w - (w_i/h_i)h;  ξ + w_i²/h_i;  K_mm⁻¹ likewise
=========  =============================================================================================

All outputs share P and the dictionary. ``blocks`` describes the compiled code; here is what happens from one call to
the next. ``papers/recursion.py`` is the same, one row at a time.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri

from mercer._stored import stored
from mercer._stored.checks import check_columns, check_finite, check_index, check_square, need
from mercer._typing import FloatArray, IntArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.dense import mirror
from mercer.solvers.recursive.block import Block, Data, Matrices, aligned, good_length
from mercer.solvers.recursive.blocks import SPOILT, Source, learn_blocks
from mercer.solvers.recursive.rules import Rules, weakest

MOST_ROWS = 128  # of a block

_LEAST_LEFT = 1e-50  # of the state before a block, after forgetting: it must be a number, and its inverse, too
_NEGATIVE = 1e-4  # of k(x, x): a novelty so far below zero is not rounding


@stored
class BlockRecursion:
    """The recursion on blocks."""

    rules: Rules
    coefficients: FloatArray  # (m, p)
    births: IntArray  # (m,): number of the row that each function came from; -1 for the constant
    cost: float  # ξ of the outputs that count, and of the others
    hidden_cost: float
    n_seen: int  # rows learned, functions that came and went
    n_grown: int
    n_pruned: int
    n_refreshed: int  # how often K⁻¹ was computed again
    n_changed: int  # functions that came since it was checked
    drift: float  # its error then
    P_inverse: FloatArray  # (m, m): P⁻¹, K_mm⁻¹ and K_mm, in which the row and column of a constant mean nothing
    K_inverse: FloatArray
    gram: FloatArray

    def __init__(self, rules: Rules, n_outputs: int = 1) -> None:
        self.rules = rules
        self.P_inverse, self.K_inverse, self.gram = (np.empty((0, 0)) for _ in range(3))
        self.coefficients = np.empty((0, n_outputs))
        self.births = np.empty(0, dtype=np.intp)
        self.cost = self.hidden_cost = 0.0
        self.n_seen = self.n_grown = self.n_pruned = 0
        self.n_refreshed = self.n_changed = 0
        self.drift = 0.0
        self.rebuild_stored()

    def rebuild_stored(self) -> None:
        """Begin without memory to work in, and without matrices that have room for more functions."""
        self._block: Block | None = None
        self._matrices: Matrices | None = None

    @property
    def n_fixed(self) -> int:
        """Functions that are never removed: 1 with an intercept, once there is one."""
        return int(self.rules.intercept and self.n_seen > 0)

    def begin(self, prior: float, target: FloatArray, weight: float) -> bool:
        """Learn the first row, where there is an intercept; returns whether it has become a function.

        It alone decides the constant: P = ω, w = y, and all formulas hold in the limit Δ → ∞, u/Δ → 1.
        """
        grown, v = self.rules.wants(prior, 0.0, prior), np.array([-prior, 1.0])
        size, P, K = 1 + grown, np.diag([1.0 / weight, 0.0]), np.zeros((2, 2))
        if grown:
            P, K[1, 1] = P + np.outer(v, v) / (self.rules.noise * prior), 1.0 / prior
        self.P_inverse, self.K_inverse, self.gram = P[:size, :size], K[:size, :size], np.full((size, size), prior)
        self.coefficients, self.births = np.zeros((size, len(target))), np.arange(-1, size - 1)
        self.coefficients[0] = target
        self.n_seen, self.n_grown = 1, int(grown)
        return grown

    def learn(
        self, source: Source, prior: FloatArray, targets: FloatArray, weights: FloatArray, units: FloatArray
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Learn rows with k(x, x) and targets (n, p), in blocks; with an intercept, ``begin`` comes first.

        Returns the row that each function in use came from, or -1 if it was there, and the residuals ρ (n, p) of rows
        before they were learned and the variances δ + λkᵀu (n,) that were expected. If there are fewer than rows, the
        others were not learned: of a source that computes values, one is too far, or its room is used up. If it fails,
        some blocks may have been learned: work on a copy, as estimators do.
        """
        n_rows, before, done, fixed = len(prior), self.n_seen, 0, int(self.rules.intercept)
        data = Data(prior, targets, weights, units, np.empty(targets.shape), np.empty(n_rows), before)
        block, matrices = self._open(n_rows, source)
        while done < n_rows:
            done += int(learn_blocks(block, matrices, source, data, done))
            if block.tally["drift"][0] <= SPOILT:
                break
            used = slice(fixed, int(block.tally["size"][0]))
            gram = matrices.gram[used, used]
            mirror(gram)
            matrices.K[used, used] = inverse(gram)
            self.n_refreshed += 1
            block.tally["drift"] = 0.0
        self._close(block, matrices, done)
        return np.where(self.births >= before, self.births - before, -1), data.residuals[:done], data.variances[:done]

    def _open(self, n_rows: int, source: Source) -> tuple[Block, Matrices]:
        """Memory for blocks, with the state before them, and matrices with room for the functions that rows may become.

        If values are given, all rows may become functions; else, those of a block.
        """
        (m, n_outputs), rules = self.coefficients.shape, self.rules
        budget = max(m, rules.max_basis + int(rules.intercept))
        most = min(budget, m + n_rows)
        if source.profile:
            most = min(most, max(2 * m, m + MOST_ROWS), source.functions.shape[1] - MOST_ROWS)
        room = min(budget, max(most, 2 * m))  # for more functions than there may be after these rows
        given = (self.P_inverse, self.K_inverse, self.gram)
        last: Any = (None, None, None) if self._matrices is None else self._matrices
        self._matrices = Matrices(*(_with_room(*pair, most, room) for pair in zip(given, last, strict=True)))
        # Products of larger blocks are faster, but each row has more slots to update.
        rows = min(n_rows, 16 if most <= 128 else 32 if most <= 256 else 64 if most < 700 else MOST_ROWS)
        if rules.forgetting < 1.0:
            rows = max(1, min(rows, int(np.log(_LEAST_LEFT) / np.log(rules.forgetting))))
        shape, block = (rows, n_outputs), self._block
        if block is None or (len(block.values), len(block.w)) != shape or len(block.births) < most + shape[0]:
            block = Block.empty(*shape, room + shape[0], rules)
        gain_tol = -1.0 if rules.gain_tol is None else rules.gain_tol
        self._block = block = block._replace(rules=rules._replace(gain_tol=gain_tol))
        block.w[:, :m], block.births[:m], block.columns[:m] = self.coefficients.T, self.births, np.arange(m)
        block.tally[:] = 0
        for name in ("n_grown", "n_pruned", "n_changed", "cost", "hidden_cost", "drift"):
            block.tally[name] = getattr(self, name)
        block.tally["size"], block.tally["n_scored"], block.tally["least_novelty"] = m, n_outputs - rules.hidden, 1
        block.tally["room"] = most
        return block, self._matrices

    def _close(self, block: Block, matrices: Matrices, n_rows: int) -> None:
        """Take what is known after the last block."""
        novelty, size = block.tally["least_novelty"].item(), block.tally["size"].item()
        if not novelty > -_NEGATIVE:
            raise NotPositiveDefiniteError(
                f"a row's squared distance from the dictionary is {novelty:.2g} of k(x, x): "
                "the kernel is not positive definite on these rows."
            )
        self.coefficients, self.births = np.ascontiguousarray(block.w[:, :size].T), block.births[:size].copy()
        self.P_inverse, self.K_inverse, self.gram = (matrix[:size, :size] for matrix in matrices)
        self.n_seen += n_rows
        for name in ("n_grown", "n_pruned", "n_changed", "cost", "hidden_cost", "drift"):
            setattr(self, name, block.tally[name].item())

    def restate(self, data: FloatArray, gram: FloatArray, cross: FloatArray) -> FloatArray:
        """Replace K̃ᵀK̃, of which K_mm is the penalty, and K̃ᵀy (m, p), and with them the coefficients.

        Returns what they explain of yᵀy, by output. The dictionary stays; the cost is for the caller to set. The system
        is solved whitened by K_mm = LLᵀ, where the noise governs its condition; what rounding has made negative of
        K̃ᵀK̃ is zero.
        """
        fixed = len(data) - len(gram)
        white = np.eye(len(data))
        white[fixed:, fixed:] = solve_triangular(_lower_factor(gram), np.eye(len(gram)), lower=True).T
        values, vectors = np.linalg.eigh(white.T @ data @ white)
        system = (vectors * np.maximum(values, 0.0)) @ vectors.T
        system[fixed:, fixed:] += self.rules.noise * np.eye(len(gram))
        P_inverse = white @ inverse(system) @ white.T
        self.P_inverse = (P_inverse + P_inverse.T) / 2
        self.coefficients = np.ascontiguousarray(self.P_inverse @ cross)
        return np.asarray(np.sum(cross * self.coefficients, axis=0))

    def shrink(self) -> IntArray:
        """Remove the weakest functions until no more than ``max_basis`` are left; returns which stay, from 0."""
        fixed = self.n_fixed
        kept = np.arange(len(self.births) - fixed)
        while len(kept) > self.rules.max_basis:
            scores = np.sum(self.rules.scored(self.coefficients) ** 2, axis=1) / np.diagonal(self.P_inverse)
            place = fixed + weakest(scores[fixed:], self.births[fixed:])
            self.cost += float(scores[place])
            hidden = self.coefficients[place, self.coefficients.shape[1] - self.rules.hidden :]
            self.hidden_cost += float(hidden @ hidden / self.P_inverse[place, place])
            row = self.P_inverse[place] / self.P_inverse[place, place]
            self.coefficients = np.delete(self.coefficients - np.outer(row, self.coefficients[place]), place, axis=0)
            self.P_inverse, self.K_inverse = _removed(self.P_inverse, place), _removed(self.K_inverse, place)
            self.gram = np.delete(np.delete(self.gram, place, axis=0), place, axis=1)
            self.births, kept = np.delete(self.births, place), np.delete(kept, place - fixed)
            self.n_pruned += 1
        return kept

    def mirror(self, n_grown: int) -> None:
        """Fill in the lower triangles, which ``learn`` leaves as they were; ``n_grown`` is the number from before."""
        mirror(self.P_inverse)
        if self.n_grown > n_grown:
            mirror(self.K_inverse)
            mirror(self.gram)

    def copy(self) -> BlockRecursion:
        """A recursion with the same future; both share their matrices, which are copied before they change."""
        self._matrices = None
        other = copy(self)
        other.coefficients = self.coefficients.copy()  # may be a part of the memory to work in
        return other

    def rest(self) -> None:
        """Let go of the memory to work in."""
        self._block = self._matrices = None

    def check_stored(self) -> None:
        """Refuse matrices and counts that do not fit each other, or the rules."""
        m, rules = len(self.births), self.rules
        fixed = self.n_fixed
        check_square(self.P_inverse, m, "P_inverse", order="C")
        check_square(self.K_inverse, m, "K_inverse", order="C")
        check_square(self.gram, m, "the kernel matrix of the dictionary", order="C")
        check_columns(self.coefficients, m, "coefficients of a recursion")
        for name in ("P_inverse", "K_inverse", "gram", "coefficients"):  # whose least entries are looked for
            check_finite(getattr(self, name), f"{name} of a recursion")
        need(rules.hidden < self.coefficients.shape[1], "all outputs of a recursion are hidden.")
        need(fixed <= m <= rules.max_basis + fixed, "a recursion has more functions than its rules allow.")
        need(self.n_seen >= 0, "a recursion has seen fewer than no rows.")
        check_index(self.births, max(int(self.n_seen), 1), "births", least=-1)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_block": None, "_matrices": None}


def inverse(matrix: FloatArray) -> FloatArray:
    """Inverse of a positive definite matrix."""
    if not len(matrix):
        return matrix.copy()
    result = np.ascontiguousarray(dpotri(_lower_factor(matrix), lower=1)[0].T)  # the upper triangle, in rows
    mirror(result)
    return result


def _lower_factor(matrix: FloatArray) -> FloatArray:
    """L with LLᵀ = matrix, which must be positive definite; what is above the diagonal is zero."""
    lower, info = dpotrf(matrix, lower=1)
    if info != 0:
        msg = "the functions of the dictionary span each other to rounding. Use a larger novelty_tol, or noise."
        raise NotPositiveDefiniteError(msg)
    return np.asarray(lower)


def _removed(matrix: FloatArray, place: int) -> FloatArray:
    """Inverse of a matrix without a row and column, from its inverse."""
    row = matrix[place]
    smaller = matrix - np.outer(row, row) / row[place]
    return np.delete(np.delete(smaller, place, axis=0), place, axis=1)


def _with_room(matrix: FloatArray, last: FloatArray | None, most: int, room: int) -> FloatArray:
    """A larger array that begins with the matrix: the last one, if the matrix is still a part of it, or a new one."""
    if last is not None and matrix.base is last.base and len(last) >= most:
        return last
    length, size = good_length(room), len(matrix)
    larger = aligned(length, length)
    larger[:size, :size] = matrix
    return larger
