"""The plain recursion against its definition: the approximated design matrix of all rows, and dense inverses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mercer.kernels import Gaussian
from mercer.solvers.recursive import Rules
from mercer.solvers.recursive.rules import weakest
from papers.recursion import ReferenceRecursion


class Definition:
    """P, w and the cost from the design matrix K̃, which is kept; growing and pruning change its columns."""

    def __init__(self, rules, kernel, n_outputs):
        self.rules, self.kernel = rules, kernel
        self.rows, self.births = [], []
        self.design, self.targets, self.weights = np.empty((0, 0)), np.empty((0, n_outputs)), np.empty(0)

    @property
    def points(self):
        return np.array(self.rows).reshape(len(self.rows), -1)

    def gram(self):
        return self.kernel(self.points) if self.rows else np.empty((0, 0))

    def penalty(self):
        """K_mm, with zeros for the constant."""
        fixed = int(self.rules.intercept)
        penalty = np.zeros((fixed + len(self.rows),) * 2)
        penalty[fixed:, fixed:] = self.gram()
        return penalty

    def with_constant(self):
        return np.column_stack([np.ones(len(self.targets)), self.design]) if self.rules.intercept else self.design

    def solve(self):
        design, penalty = self.with_constant(), self.rules.noise * self.penalty()
        if not design.shape[1]:
            costs = self.weights @ self.targets**2
            return np.empty((0, 0)), np.empty((0, self.targets.shape[1])), float(np.sum(self.rules.scored(costs)))
        weighted = self.weights[:, np.newaxis] * design
        P = design.T @ weighted + penalty
        w = np.linalg.solve(P, weighted.T @ self.targets)
        errors = self.targets - design @ w
        costs = self.weights @ errors**2 + np.diagonal(w.T @ penalty @ w)
        return P, w, float(np.sum(self.rules.scored(costs)))

    def learn(self, row, target, weight):
        size = len(self.rows)
        k = self.kernel(self.points, row[np.newaxis])[:, 0] if size else np.empty(0)
        a = np.linalg.solve(self.gram(), k) if size else k
        novelty = float(self.kernel.diagonal(row[np.newaxis])[0] - k @ a)
        before = np.vstack([self.design, k[np.newaxis]]) if size else np.empty((len(self.targets) + 1, 0))
        self.design = before
        self.targets = np.vstack([self.targets, target])
        self.weights = np.append(self.weights, weight)
        cost = self.solve()[2]
        if novelty <= self.rules.novelty_tol:
            return
        column = np.append(self.design[:-1] @ a, self.kernel.diagonal(row[np.newaxis])[0])
        state = (self.design, list(self.rows), list(self.births))
        self.design = np.column_stack([self.design, column])
        self.rows.append(row)
        self.births.append(len(self.targets) - 1)
        gain = cost - self.solve()[2]
        if abs(gain) < 1e-13 * np.sum(self.weights @ self.targets**2):  # a difference of costs is known to rounding
            gain = 0.0
        if not self.rules.wants(novelty, gain, 1.7):
            self.design, self.rows, self.births = state
        elif len(self.rows) > self.rules.max_basis:
            self.prune()

    def prune(self):
        P, w, _ = self.solve()
        scores = np.sum(self.rules.scored(w) ** 2, axis=1) / np.diagonal(np.linalg.inv(P))
        place = weakest(scores[int(self.rules.intercept) :], np.array(self.births))
        last = len(self.rows) - 1
        order = [last if i == place else i for i in range(last)]  # the newcomer takes the place
        self.design = self.design[:, order]
        self.rows, self.births = [self.rows[i] for i in order], [self.births[i] for i in order]


def assert_same(model, truth):
    fixed = int(truth.rules.intercept)
    np.testing.assert_array_equal(model.births, [-1] * fixed + truth.births)
    P, w, cost = truth.solve()
    size = len(w)
    if size > fixed:
        # Inverses are known to rounding times the condition number; 2e-13 of it were seen.
        loose, tight = (1e-9 + 1e-12 * np.linalg.cond(matrix) for matrix in (P, truth.gram()))
        np.testing.assert_allclose(model.P_inverse @ P, np.eye(size), rtol=0, atol=loose)
        identity = np.diag(np.arange(size) >= fixed).astype(float)
        np.testing.assert_allclose(model.K_inverse @ truth.penalty(), identity, rtol=0, atol=tight)
        np.testing.assert_allclose(model.coefficients, w, rtol=0, atol=loose * np.max(np.abs(w)))
        assert model.cost == pytest.approx(cost, rel=1e-7, abs=1e-7)


streams = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "n_rows": st.integers(1, 30),
        "n_outputs": st.integers(1, 3),
        "max_basis": st.sampled_from([1, 2, 4, 7, 100]),
        "noise": st.sampled_from([1e-2, 0.1, 3.0]),
        "gain_tol": st.sampled_from([None, 0.0, 1e-3]),
        "weighted": st.booleans(),
        "hidden": st.booleans(),
        "repeated": st.booleans(),
        "intercept": st.booleans(),
    }
)


@settings(max_examples=60, deadline=None)
@given(streams)
def test_every_step_is_that_of_the_definition(stream):
    rng = np.random.default_rng(stream["seed"])
    rows = rng.normal(size=(stream["n_rows"], 2))
    if stream["repeated"]:
        rows[::3] = rows[0]
    targets = np.column_stack([np.sin(3 * rows[:, 0] + i) for i in range(stream["n_outputs"])])
    targets += 0.1 * rng.normal(size=targets.shape)
    weights = rng.uniform(0.2, 3.0, size=len(rows)) if stream["weighted"] else np.ones(len(rows))
    hidden = int(stream["hidden"] and stream["n_outputs"] > 1)
    rules = Rules(
        stream["noise"], stream["max_basis"], 1e-3, stream["gain_tol"], intercept=stream["intercept"], hidden=hidden
    )
    kernel = Gaussian(1.0, 1.7)
    model, truth = ReferenceRecursion(rules, stream["n_outputs"]), Definition(rules, kernel, stream["n_outputs"])
    for row, target, weight in zip(rows, targets, weights, strict=True):
        k = kernel(truth.points, row[np.newaxis])[:, 0] if truth.rows else np.empty(0)
        k = np.append(1.0, k) if rules.intercept else k
        model.learn(k, 1.7, target, weight)
        truth.learn(row, target, weight)
        assert_same(model, truth)
    assert model.n_seen == len(rows)
    assert model.n_grown - model.n_pruned == len(truth.births) <= rules.max_basis


def test_a_dictionary_of_all_rows_is_ridge_regression():
    rng = np.random.default_rng(0)
    rows, kernel = rng.normal(size=(40, 3)), Gaussian(1.5)
    targets = rng.normal(size=(40, 2))
    model = ReferenceRecursion(Rules(0.1, 100, 0.0, None), 2)
    for t in range(40):
        model.learn(kernel(rows[:t], rows[t : t + 1])[:, 0] if t else np.empty(0), 1.0, targets[t])
    expected = np.linalg.solve(kernel(rows) + 0.1 * np.eye(40), targets)
    np.testing.assert_allclose(model.coefficients, expected, rtol=0, atol=1e-8)
    assert model.cost == pytest.approx(0.1 * np.sum(targets * expected), rel=1e-8)


def test_forgetting_goes_back_to_the_prior():
    """P = D + λK with D, what the data say, discounted so that the posterior covariance goes back to the prior."""
    rng = np.random.default_rng(0)
    rows, kernel, noise, share = rng.normal(size=(12, 2)), Gaussian(1.0), 0.1, 0.8
    model = ReferenceRecursion(Rules(noise, 100, 1e-6, None, forgetting=share))
    used = np.empty((0, 2))
    for t in range(12):
        K = kernel(used) if t else np.empty((0, 0))
        before = noise * K @ model.P_inverse @ K, K @ model.coefficients  # covariance and mean of the function
        model._forget()
        np.testing.assert_allclose(noise * K @ model.P_inverse @ K, share * before[0] + (1 - share) * K, atol=1e-9)
        np.testing.assert_allclose(K @ model.coefficients, np.sqrt(share) * before[1], atol=1e-9)
        model.rules = Rules(noise, 100, 1e-6, None)
        model.learn(kernel(used, rows[t : t + 1])[:, 0] if t else np.empty(0), 1.0, rng.normal(size=1))
        model.rules = Rules(noise, 100, 1e-6, None, forgetting=share)
        used = rows[: t + 1]
    assert len(model.births) == 12


def test_ties_go_to_the_newest():
    assert weakest(np.array([2.0, 1.0, 1.0 + 1e-12, 3.0]), np.array([0, 1, 2, 3])) == 2
    assert weakest(np.array([2.0, 1.0, 1.0 + 1e-12, 3.0]), np.array([0, 5, 2, 3])) == 1
    assert weakest(np.array([0.0, 0.0]), np.array([1, 0])) == 0
