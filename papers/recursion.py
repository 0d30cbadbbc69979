r"""The sequential LS-SVM as published, written to be read: one row at a time, every matrix explicit.

Tests compare the decisions of ``mercer.solvers.recursive`` with this one's.

State, symbols and the three steps (normal, growing, pruning) are those of ``mercer.solvers.recursive.recursion``, whose
description has their formulas; the code below transcribes them.

Forgetting, before a row, takes the posterior back to the prior by a share:
:math:`P^{-1} \leftarrow \varphi P^{-1} + (1-\varphi)K_{mm}^{-1}/\lambda`, :math:`w \leftarrow \sqrt\varphi\,w`. All
outputs share P and the dictionary; squares of ρ, κ and w are summed over them.

With an intercept the first function is the constant 1: k begins with a 1, the first row and column of K_mm⁻¹ are zero.
The first row alone decides its coefficient: P = ω, w = y, and all formulas hold in the limit Δ → ∞, u/Δ → 1.
"""

from __future__ import annotations

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.solvers.recursive.rules import Rules, weakest

__all__ = ["ReferenceRecursion"]


class ReferenceRecursion:
    """The plain recursion.

    Parameters
    ----------
    rules : Rules
    n_outputs : int

    Attributes
    ----------
    P_inverse, K_inverse : arrays (m, m)
    coefficients : array (m, p)
    births : array (m,)
        Number of the row that each function came from.
    cost, hidden_cost : float
        ξ of the outputs that count, and of the others.
    n_seen, n_grown, n_pruned : int
    """

    def __init__(self, rules: Rules, n_outputs: int = 1) -> None:
        self.rules = rules
        self.P_inverse: FloatArray = np.empty((0, 0))
        self.K_inverse: FloatArray = np.empty((0, 0))
        self.coefficients: FloatArray = np.empty((0, n_outputs))
        self.births: IntArray = np.empty(0, dtype=np.intp)
        self.cost = self.hidden_cost = 0.0
        self.n_seen = self.n_grown = self.n_pruned = 0

    def learn(self, k: FloatArray, prior: float, target: FloatArray, weight: float = 1.0) -> int:
        """Learn a row.

        Parameters
        ----------
        k : array (m,)
            Its kernel values to the functions in use; with an intercept the first is 1.
        prior : float
            k(x, x).
        target : array (p,)
        weight : float, default=1.0
            ω > 0.

        Returns
        -------
        int
            The place among the functions that the row has taken, or -1.
        """
        noise = self.rules.noise
        if self.rules.intercept and self.n_seen == 0:
            return self._begin(prior, target, weight)
        self._forget()
        u, a = self.P_inverse @ k, self.K_inverse @ k
        Delta, delta = 1.0 / weight + float(k @ u), prior - float(k @ a)
        rho = target - k @ self.coefficients

        self.P_inverse = self.P_inverse - np.outer(u, u) / Delta
        self.coefficients = self.coefficients + np.outer(u, rho) / Delta
        self._add_cost(rho**2 / Delta)
        self.n_seen += 1

        if delta <= 0:
            return -1
        Delta_b, kappa = delta * (noise + delta / Delta), rho / (noise * Delta + delta)
        gain = float(np.sum(self.rules.scored(kappa) ** 2)) * Delta_b
        if not self.rules.wants(delta, gain, prior):
            return -1
        self._grow(np.append(-a - (delta / Delta) * u, 1.0), Delta_b, kappa)
        self.K_inverse = _bordered(self.K_inverse, np.append(-a, 1.0), delta)
        self._add_cost(-(kappa**2) * Delta_b)
        if len(self.births) - self.rules.intercept <= self.rules.max_basis:
            self.n_grown += 1
            return len(self.births) - 1
        return self._prune()

    def _begin(self, prior: float, target: FloatArray, weight: float) -> int:
        self.P_inverse, self.K_inverse = np.array([[1.0 / weight]]), np.zeros((1, 1))
        self.coefficients, self.births = np.array(target, dtype=np.float64)[np.newaxis], np.array([-1])
        self.n_seen = 1
        if not self.rules.wants(prior, 0.0, prior):
            return -1
        self._grow(np.array([-prior, 1.0]), self.rules.noise * prior, np.zeros(len(target)))
        self.K_inverse = _bordered(self.K_inverse, np.array([0.0, 1.0]), prior)
        self.n_grown = 1
        return 1

    def _forget(self) -> None:
        share = self.rules.forgetting
        if share < 1.0:
            self.P_inverse = share * self.P_inverse + (1.0 - share) / self.rules.noise * self.K_inverse
            self.coefficients = np.sqrt(share) * self.coefficients
            self.cost *= share
            self.hidden_cost *= share

    def _add_cost(self, costs: FloatArray) -> None:
        """Add to the cost, by output."""
        scored = float(np.sum(self.rules.scored(costs)))
        self.cost += scored
        self.hidden_cost += float(np.sum(costs)) - scored

    def _grow(self, v: FloatArray, Delta_b: float, kappa: FloatArray) -> None:
        self.P_inverse = _bordered(self.P_inverse, v, Delta_b)
        self.coefficients = np.concatenate([self.coefficients, np.zeros((1, len(kappa)))]) + np.outer(v, kappa)
        self.births = np.append(self.births, self.n_seen - 1)

    def _prune(self) -> int:
        """Remove the weakest function; the newcomer takes its place, unless it is the weakest itself."""
        w, diagonal = self.coefficients, np.diagonal(self.P_inverse)
        scores = np.sum(self.rules.scored(w) ** 2, axis=1) / diagonal
        if self.rules.intercept:
            scores[0] = np.inf
        place = weakest(scores, self.births)
        self._add_cost(w[place] ** 2 / diagonal[place])
        self.coefficients = w - np.outer(self.P_inverse[place] / diagonal[place], w[place])
        newcomer = len(self.births) - 1
        order = np.arange(newcomer)
        if place < newcomer:
            order[place] = newcomer
            self.n_grown += 1
            self.n_pruned += 1
        self.coefficients, self.births = self.coefficients[order], self.births[order]
        self.P_inverse = _without(self.P_inverse, place)[np.ix_(order, order)]
        self.K_inverse = _without(self.K_inverse, place)[np.ix_(order, order)]
        return place if place < newcomer else -1


def _bordered(inverse: FloatArray, vector: FloatArray, pivot: float) -> FloatArray:
    """Inverse of a matrix with one more row and column: [B⁻¹ 0; 0 0] + vvᵀ/pivot."""
    size = len(inverse) + 1
    larger = np.zeros((size, size))
    larger[:-1, :-1] = inverse
    return np.asarray(larger + np.outer(vector, vector) / pivot)


def _without(inverse: FloatArray, place: int) -> FloatArray:
    """Inverse of the matrix without a row and column, which are left as zeros."""
    row = inverse[place]
    return np.asarray(inverse - np.outer(row, row) / row[place])
