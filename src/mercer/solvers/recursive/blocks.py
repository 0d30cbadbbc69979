r"""The sequential LS-SVM on blocks of rows: the decisions of the plain recursion, most of its work in matrix products.

Within a block no function moves and no matrix is changed. Slots 0..m-1 are the functions before the block, slot m+t is
row t of it; a slot is alive (a function in use), dead, or not yet born. With forgetting,

.. math:: P^{-1} = \sigma M + \tau K_{mm}^{-1}, \qquad M = P_0^{-1} + \sum_j c_j v_jv_j^\top, \qquad
          K_{mm}^{-1} = K_0^{-1} + \sum_j d_j g_jg_j^\top,

where :math:`P_0^{-1}, K_0^{-1}` are those before the block, so that :math:`P^{-1}k` and :math:`K_{mm}^{-1}k` of its
rows are two matrix products at its start and a few vectors per row; the sums are applied at its end. What happens to a
row is in ``steps``.
"""

from __future__ import annotations

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.solvers.blas import add_gram, mirror
from mercer.solvers.recursive.rules import Rules
from mercer.solvers.recursive.steps import GROWN, N_G, N_V, PRUNED, SIZE, Limits, State, learn_rows

__all__ = ["BlockRecursion", "block_rows"]

_FOLD = 16  # rows after which vectors are folded into the products of the rows to come
_MOST_ROWS = 128


def block_rows(n_functions: int) -> int:
    """Rows of a block: more where matrices are large."""
    return 16 if n_functions < 200 else 64 if n_functions < 700 else _MOST_ROWS


class BlockRecursion:
    """The recursion on blocks; see ``ReferenceRecursion`` for the parameters and attributes."""

    def __init__(self, rules: Rules, n_outputs: int = 1) -> None:
        self.rules = rules
        self.P_inverse: FloatArray = np.empty((0, 0))
        self.K_inverse: FloatArray = np.empty((0, 0))
        self.coefficients: FloatArray = np.empty((0, n_outputs))
        self.births: IntArray = np.empty(0, dtype=np.intp)
        self.cost = 0.0
        self.n_seen = self.n_grown = self.n_pruned = 0

    def learn(self, values: FloatArray, prior: FloatArray, targets: FloatArray, weights: FloatArray) -> IntArray:
        """Learn a block of rows.

        Parameters
        ----------
        values : array (b, m + b)
            Kernel values between the rows and the functions in use, and among the rows.
        prior : array (b,)
            k(x, x).
        targets : array (b, p)
        weights : array (b,)
            Above zero.

        Returns
        -------
        array (m',)
            For each function in use after the block, the row of the block that it came from, or -1 if it was there.
        """
        n_rows = len(values)
        block = _Block(self, np.ascontiguousarray(values), len(self.births))
        for start in range(0, n_rows, _FOLD):
            stop = min(start + _FOLD, n_rows)
            block.learn(start, stop, prior, targets, weights)
            block.fold(stop)
        return block.close()


class _Block:
    """A block under way."""

    def __init__(self, owner: BlockRecursion, values: FloatArray, m: int) -> None:
        n_rows, slots = values.shape
        self._owner, self._m = owner, m
        u, a = np.zeros((n_rows, slots)), np.zeros((n_rows, slots))
        if m:
            np.matmul(values[:, :m], owner.P_inverse, out=u[:, :m])
            np.matmul(values[:, :m], owner.K_inverse, out=a[:, :m])
        w, diagonals = np.zeros((owner.coefficients.shape[1], slots)), np.zeros((2, slots))
        w[:, :m] = owner.coefficients.T
        diagonals[:, :m] = np.diagonal(owner.P_inverse), np.diagonal(owner.K_inverse)
        alive = np.zeros(slots, dtype=np.bool_)
        alive[:m] = True
        self._state = State(
            values=values,
            u=u,
            a=a,
            w=w,
            P_diagonal=diagonals[0],
            K_diagonal=diagonals[1],
            alive=alive,
            births=np.concatenate([owner.births, owner.n_seen + np.arange(n_rows)]),
            homes=np.concatenate([np.arange(m), np.full(n_rows, -1)]),
            P0=owner.P_inverse,
            K0=owner.K_inverse,
            V=np.empty((5 * n_rows, slots)),
            c=np.empty(5 * n_rows),
            G=np.empty((2 * n_rows, slots)),
            d=np.empty(2 * n_rows),
            folded=np.zeros(2, dtype=np.intp),
            counts=np.array([0, 0, m, 0, 0]),
            numbers=np.array([1.0, 0.0, owner.cost]),
        )

    def learn(self, start: int, stop: int, prior: FloatArray, targets: FloatArray, weights: FloatArray) -> None:
        """Learn rows of the block one after the other."""
        rules = self._owner.rules
        gain_tol = -1.0 if rules.gain_tol is None else rules.gain_tol
        limits = Limits(rules.noise, rules.max_basis, rules.novelty_tol, gain_tol, rules.forgetting)
        learn_rows(self._state, limits, (start, stop), prior, targets, weights)

    def fold(self, stop: int) -> None:
        """Account for all vectors so far in the products of the rows that are left."""
        state = self._state
        left, (first_v, first_g) = state.values[stop:], state.folded
        for vectors, factors, products, first, last in (
            (state.V, state.c, state.u, first_v, state.counts[N_V]),
            (state.G, state.d, state.a, first_g, state.counts[N_G]),
        ):
            if last > first and len(left):
                new = vectors[first:last]
                products[stop:] += ((left @ new.T) * factors[first:last]) @ new
        state.folded[:] = state.counts[N_V], state.counts[N_G]

    def close(self) -> IntArray:
        """Apply what was learned to the owner."""
        owner, state, m = self._owner, self._state, self._m
        born = m + np.flatnonzero(state.alive[m:])
        source: IntArray = np.arange(int(state.counts[SIZE]))
        source[state.homes[born]] = born
        sigma, tau, cost = state.numbers
        owner.K_inverse = _applied(owner.K_inverse, state.G, state.d, int(state.counts[N_G]), source)
        P_inverse = _applied(owner.P_inverse, state.V, state.c, int(state.counts[N_V]), source)
        if owner.rules.forgetting < 1.0:
            P_inverse = sigma * P_inverse + tau * owner.K_inverse
        owner.P_inverse = P_inverse
        owner.coefficients = np.ascontiguousarray(state.w[:, source].T)
        owner.births, owner.cost = state.births[source], float(cost)
        owner.n_seen += len(state.values)
        owner.n_grown += int(state.counts[GROWN])
        owner.n_pruned += int(state.counts[PRUNED])
        return np.where(source >= m, source - m, -1)


def _applied(matrix: FloatArray, vectors: FloatArray, factors: FloatArray, number: int, source: IntArray) -> FloatArray:
    """The matrix plus Σ c vvᵀ, with slots moved to their places."""
    size, m = len(source), len(matrix)
    new = source >= m
    if np.any(new):
        larger = np.zeros((size, size))
        larger[:m, :m] = matrix
        larger[new], larger[:, new] = 0.0, 0.0
        matrix = larger
    scaled = vectors[:number, source] * np.sqrt(np.abs(factors[:number]))[:, np.newaxis]
    positive = factors[:number] > 0
    add_gram(matrix, scaled[positive])
    add_gram(matrix, scaled[~positive], -1.0)
    mirror(matrix)
    return matrix
