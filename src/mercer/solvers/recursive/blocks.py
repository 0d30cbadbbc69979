r"""The sequential LS-SVM on blocks of rows: the decisions of the plain recursion, most of its work in matrix products.

Within a block no function moves and no matrix is changed. Slots 0..m-1 are the functions before the block, slot m+t is
row t of it; a slot is alive (a function in use), dead, or not yet born. With forgetting,

.. math:: P^{-1} = \sigma M + \tau K_{mm}^{-1}, \qquad M = P_0^{-1} + \sum_j c_j v_jv_j^\top, \qquad
          K_{mm}^{-1} = K_0^{-1} + \sum_j d_j g_jg_j^\top,

where :math:`P_0^{-1}, K_0^{-1}` are those before the block, so that :math:`P^{-1}k` and :math:`K_{mm}^{-1}k` of its
rows are two matrix products at its start and a few vectors per row; the sums are applied at its end. Between blocks
only the upper triangles of the inverses are kept. What happens to a
row is in ``steps``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import solve_triangular

from mercer._typing import FloatArray, IntArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.blas import mirror, multiply_symmetric
from mercer.solvers.recursive.reference import ReferenceRecursion
from mercer.solvers.recursive.rules import LEAST_NOVELTY, TIE, Rules, weakest
from mercer.solvers.recursive.steps import (
    COST,
    GROWN,
    HIDDEN,
    LEAST,
    N_G,
    N_V,
    PRUNED,
    SCORED,
    SIGMA,
    SIZE,
    TAU,
    Limits,
    State,
    learn_rows,
)
from mercer.solvers.recursive.updates import apply, inverse, lower_factor

__all__ = ["BlockRecursion", "Together", "block_rows", "one_after_the_other"]


_LEAST_LEFT = 1e-50
_NEGATIVE = 1e-4  # of k(x, x): a novelty so far below zero is not rounding

Together: TypeAlias = Callable[[Callable[[], object], Callable[[], object]], None]


def block_rows(n_functions: int, forgetting: float = 1.0) -> int:
    """Rows of a block: products of larger blocks are faster, but rows have more slots to mind.

    What is left of the state before a block after forgetting must be a number, and its inverse, too.
    """
    rows = 64 if n_functions < 700 else 128
    return rows if forgetting == 1.0 else max(1, min(rows, int(np.log(_LEAST_LEFT) / np.log(forgetting))))


def one_after_the_other(first: Callable[[], object], second: Callable[[], object]) -> None:
    """Call two functions."""
    first()
    second()


class BlockRecursion:
    """The recursion on blocks; see ``ReferenceRecursion`` for the parameters and attributes."""

    def __init__(self, rules: Rules, n_outputs: int = 1) -> None:
        self.rules = rules
        self.P_inverse: FloatArray = np.empty((0, 0))
        self.K_inverse: FloatArray = np.empty((0, 0))
        self.coefficients: FloatArray = np.empty((0, n_outputs))
        self.births: IntArray = np.empty(0, dtype=np.intp)
        self.cost = self.hidden_cost = 0.0
        self.n_seen = self.n_grown = self.n_pruned = 0
        self._memories: list[State | None] = [None, None]

    def begin(self, prior: float, target: FloatArray, weight: float) -> bool:
        """Learn the first row, where there is an intercept; returns whether it has become a function."""
        first = ReferenceRecursion(self.rules, len(target))
        grown = first.learn(np.ones(1), prior, target, weight) > 0
        for name in ("P_inverse", "K_inverse", "coefficients", "births", "n_seen", "n_grown"):
            setattr(self, name, getattr(first, name))
        return grown

    def learn(
        self,
        values: FloatArray,
        prior: FloatArray,
        targets: FloatArray,
        weights: FloatArray,
        *,
        together: Together = one_after_the_other,
    ) -> tuple[IntArray, FloatArray]:
        """Learn rows, in blocks. If it fails, some blocks may have been learned: work on a copy, as estimators do.

        Parameters
        ----------
        values : array (n, m + n)
            Kernel values between the rows and the functions in use, and among the rows; with an intercept, for which
            ``begin`` has been called, the first column is 1.
        prior : array (n,)
            k(x, x).
        targets : array (n, p)
        weights : array (n,)
            Above zero.
        together : callable
            Calls two functions, which may run at the same time.

        Returns
        -------
        origin : array (m',)
            For each function in use afterwards, the row that it came from, or -1 if it was there.
        residuals : array (n,)
            Squared error of each row before it was learned, summed over outputs.
        """
        m, before, residuals = len(self.births), self.n_seen, np.empty(len(values))
        columns = np.arange(m)  # of the functions in use
        spans = list(self._spans(len(values)))
        block = self._prepare(values, columns, spans[0])
        self._multiply(block, together)
        for span, following in zip(spans, [*spans[1:], None], strict=True):
            learn_rows(block, self._limits(), prior[span], targets[span], weights[span])
            if not block.numbers[LEAST] > -_NEGATIVE:
                msg = (
                    f"a row's squared distance from the dictionary is {block.numbers[LEAST]:.2g} of k(x, x): "
                    "the kernel is not positive definite on these rows."
                )
                raise NotPositiveDefiniteError(msg)
            residuals[span] = block.residuals
            source = self._take(block)
            columns = np.concatenate([columns, m + np.arange(span.start, span.stop)])[source]
            ahead = None if following is None else self._prepare(values, columns, following)
            self._apply(block, source, ahead, together)
            block = block if ahead is None else ahead
        mirror(self.P_inverse)
        mirror(self.K_inverse)
        return np.where(self.births >= before, self.births - before, -1), residuals

    def _spans(self, n_rows: int) -> Iterator[slice]:
        start = 0
        while start < n_rows:
            stop = min(start + block_rows(len(self.births), self.rules.forgetting), n_rows)
            yield slice(start, stop)
            start = stop

    def _limits(self) -> Limits:
        rules, fixed = self.rules, int(self.rules.intercept)
        return Limits(
            noise=rules.noise,
            max_basis=rules.max_basis + fixed,
            fixed=fixed,
            novelty_tol=rules.novelty_tol,
            gain_tol=-1.0 if rules.gain_tol is None else rules.gain_tol,
            forgetting=rules.forgetting,
            least_novelty=LEAST_NOVELTY,
            tie=TIE,
        )

    def restate(self, data: FloatArray, gram: FloatArray, cross: FloatArray) -> FloatArray:
        """Replace K̃ᵀK̃, of which K_mm is the penalty, and K̃ᵀy (m, p), and with them the coefficients.

        Returns what they explain of yᵀy, by output. The dictionary stays; the cost is for the caller to set. The system
        is solved whitened by K_mm = LLᵀ, where the noise governs its condition; what rounding has made negative of
        K̃ᵀK̃ is zero.
        """
        fixed = len(data) - len(gram)
        white = np.eye(len(data))
        white[fixed:, fixed:] = solve_triangular(lower_factor(gram), np.eye(len(gram)), lower=True).T
        values, vectors = np.linalg.eigh(white.T @ data @ white)
        system = (vectors * np.maximum(values, 0.0)) @ vectors.T
        system[fixed:, fixed:] += self.rules.noise * np.eye(len(gram))
        P_inverse = white @ inverse(system) @ white.T
        self.P_inverse = (P_inverse + P_inverse.T) / 2
        self.coefficients = np.ascontiguousarray(self.P_inverse @ cross)
        return np.asarray(np.sum(cross * self.coefficients, axis=0))

    def shrink(self) -> IntArray:
        """Remove the weakest functions until no more than ``max_basis`` are left; returns which stay."""
        fixed = int(self.rules.intercept)
        kept = np.arange(len(self.births))
        while len(kept) - fixed > self.rules.max_basis:
            scores = np.sum(self.rules.scored(self.coefficients) ** 2, axis=1) / np.diagonal(self.P_inverse)
            place = fixed + weakest(scores[fixed:], self.births[fixed:])
            self.cost += float(scores[place])
            row = self.P_inverse[place] / self.P_inverse[place, place]
            self.coefficients = np.delete(self.coefficients - np.outer(row, self.coefficients[place]), place, axis=0)
            self.P_inverse, self.K_inverse = _removed(self.P_inverse, place), _removed(self.K_inverse, place)
            self.births, kept = np.delete(self.births, place), np.delete(kept, place)
            self.n_pruned += 1
        return kept

    def copy(self) -> BlockRecursion:
        """A recursion with the same future that shares nothing."""
        other = BlockRecursion(self.rules, self.coefficients.shape[1])
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, np.ndarray) else value)
        other._memories = [None, None]
        return other

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_memories": [None, None]}

    def _prepare(self, values: FloatArray, columns: IntArray, span: slice) -> State:
        """The state of a block, but for what its rows are to the functions before it."""
        n_rows, m, n_outputs = span.stop - span.start, len(columns), self.coefficients.shape[1]
        shape = (n_rows, m + n_rows)
        self._memories.reverse()  # the other one is at work
        memory = self._memories[0]
        if memory is None or memory.u.shape != shape:
            self._memories[0] = memory = _memory(*shape, n_outputs)
        block = memory._replace(P0=self.P_inverse, K0=self.K_inverse)
        own = np.arange(span.start, span.stop) + values.shape[1] - len(values)
        np.take(values[span], np.concatenate([columns, own]), axis=1, out=block.values, mode="clip")
        block.u[:, m:], block.a[:, m:] = 0.0, 0.0
        block.w[:, :m], block.w[:, m:] = self.coefficients.T, 0.0
        block.used[:m], block.used[m:] = 1.0, 0.0
        block.births[:m], block.births[m:] = self.births, np.arange(self.n_seen, self.n_seen + n_rows)
        block.homes[:m], block.homes[m:] = np.arange(m), -1
        block.counts[:] = 0
        block.counts[SIZE], block.counts[SCORED] = m, n_outputs - self.rules.hidden
        block.numbers[:] = 1.0, 0.0, self.cost, 1.0, self.hidden_cost
        return block

    def _multiply(self, block: State, together: Together) -> None:
        together(
            lambda: _multiplied(self.P_inverse, block.values, block.u, block.P_diagonal),
            lambda: _multiplied(self.K_inverse, block.values, block.a, block.K_diagonal),
        )

    def _take(self, block: State) -> IntArray:
        """Coefficients and counts after a block; returns the slot that each function in use has."""
        m, size = len(self.births), int(block.counts[SIZE])
        born = m + np.flatnonzero(block.used[m:])
        source = np.arange(size)
        source[block.homes[born]] = born
        if size > m:
            self.P_inverse, self.K_inverse = _enlarged(self.P_inverse, size), _enlarged(self.K_inverse, size)
        self.coefficients = np.ascontiguousarray(block.w[:, source].T)
        self.births = block.births[source]
        self.cost, self.hidden_cost = float(block.numbers[COST]), float(block.numbers[HIDDEN])
        self.n_seen += len(block.values)
        self.n_grown += int(block.counts[GROWN])
        self.n_pruned += int(block.counts[PRUNED])
        return source

    def _apply(self, block: State, source: IntArray, ahead: State | None, together: Together) -> None:
        """Apply what was learned to the upper triangles, and go ahead to the next block, each inverse on its own."""
        n_v, n_g = int(block.counts[N_V]), int(block.counts[N_G])
        forgets = self.rules.forgetting < 1.0

        def care_for_p() -> None:
            apply(self.P_inverse, block.V, block.c, n_v, source)
            if ahead is not None and not forgets:
                _multiplied(self.P_inverse, ahead.values, ahead.u, ahead.P_diagonal)

        def care_for_k() -> None:
            if n_g:
                apply(self.K_inverse, block.G, block.d, n_g, source)
            if ahead is not None and not forgets:
                _multiplied(self.K_inverse, ahead.values, ahead.a, ahead.K_diagonal)

        together(care_for_p, care_for_k)
        if forgets:
            self.P_inverse *= block.numbers[SIGMA]  # in place: the next block refers to it
            self.P_inverse += block.numbers[TAU] * self.K_inverse
            if ahead is not None:
                self._multiply(ahead, together)


def _multiplied(matrix: FloatArray, values: FloatArray, products: FloatArray, diagonal: FloatArray) -> None:
    """Fill in the products of rows with an inverse, and its diagonal; empty slots have zeros."""
    m = len(matrix)
    multiply_symmetric(values[:, :m], matrix, products[:, :m])
    diagonal[:m], diagonal[m:] = np.diagonal(matrix), 0.0


def _removed(matrix: FloatArray, place: int) -> FloatArray:
    """Inverse of a matrix without a row and column, from its inverse."""
    row = matrix[place]
    smaller = matrix - np.outer(row, row) / row[place]
    return np.delete(np.delete(smaller, place, axis=0), place, axis=1)


def _memory(n_rows: int, slots: int, n_outputs: int) -> State:
    return State(
        values=np.empty((n_rows, slots)),
        u=np.empty((n_rows, slots)),
        a=np.empty((n_rows, slots)),
        w=np.empty((n_outputs, slots)),
        P_diagonal=np.empty(slots),
        K_diagonal=np.empty(slots),
        used=np.empty(slots),
        births=np.empty(slots, dtype=np.intp),
        homes=np.empty(slots, dtype=np.intp),
        P0=np.empty((0, 0)),
        K0=np.empty((0, 0)),
        V=np.empty((5 * n_rows, slots)),
        c=np.empty(5 * n_rows),
        G=np.empty((2 * n_rows, slots)),
        d=np.empty(2 * n_rows),
        counts=np.zeros(6, dtype=np.intp),
        numbers=np.zeros(5),
        residuals=np.empty(n_rows),
    )


def _enlarged(matrix: FloatArray, size: int) -> FloatArray:
    """The matrix with zeros for newcomers."""
    larger = np.zeros((size, size))
    larger[: len(matrix), : len(matrix)] = matrix
    return larger
