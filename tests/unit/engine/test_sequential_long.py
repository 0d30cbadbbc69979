"""A million rows: what rounding does to the recursion, beside sums that know nothing of inverses."""

import numba
import numpy as np

from mercer.engine.sequential import SequentialLearner
from mercer.kernels import Gaussian
from mercer.solvers.recursive import Rules

N, MOST, NOISE, NOVELTY, GAIN = 1_000_000, 30, 0.1, 1e-2, 1e-4


def stream():
    """Rows in a window that goes round in a circle, so that functions come and go for ever."""
    rng = np.random.default_rng(0)
    angles = np.linspace(0.0, 200.0, N)
    rows = 1.5 * np.column_stack([np.cos(angles), np.sin(angles)]) + rng.uniform(-1, 1, size=(N, 2))
    return rows, np.sin(2 * rows[:, 0]) + 0.5 * rows[:, 1] + 0.1 * rng.normal(size=N)


@numba.njit
def move(matrix, m, p):
    """The last function takes the place of another."""
    for i in range(m):
        matrix[i, p] = matrix[i, m]
    for j in range(m):
        matrix[p, j] = matrix[m, j]
    matrix[p, p] = matrix[m, m]


@numba.njit
def sums(X, y):
    """The plain recursion takes the decisions; beside it P and K̃ᵀy are summed forward, where nothing is inverted."""
    size = MOST + 1
    Q, R, P = np.zeros((size, size)), np.zeros((size, size)), np.zeros((size, size))  # P⁻¹, K⁻¹, P
    w, c, births, m, n_grown = np.zeros(size), np.zeros(size), np.zeros(size, dtype=np.int64), 0, 0
    for t in range(len(X)):
        k = np.array([np.exp(-0.5 * ((X[t] - X[births[i]]) ** 2).sum()) for i in range(m)])
        u = np.array([(Q[i, :m] * k).sum() for i in range(m)])
        a = np.array([(R[i, :m] * k).sum() for i in range(m)])
        Delta, delta, rho = 1.0 + (k * u).sum(), 1.0 - (k * a).sum(), y[t] - (k * w[:m]).sum()
        gain = delta * rho**2 / (Delta * (NOISE * Delta + delta))
        if delta > NOVELTY and delta * gain > GAIN:  # with P and c as they were before the row
            column = np.array([(P[i, :m] * a).sum() for i in range(m)])
            P[:m, m] = column + k
            P[m, :m] = P[:m, m]
            P[m, m] = (a * column).sum() + NOISE * delta + 1.0
            c[m] = (a * c[:m]).sum() + y[t]
        for i in range(m):
            w[i] += rho / Delta * u[i]
            c[i] += k[i] * y[t]
            for j in range(m):
                Q[i, j] -= u[i] * u[j] / Delta
                P[i, j] += k[i] * k[j]
        if delta <= NOVELTY or delta * gain <= GAIN:
            continue
        pivot, kappa = delta * (NOISE + delta / Delta), rho / (NOISE * Delta + delta)
        v, g = np.ones(m + 1), np.ones(m + 1)
        v[:m], g[:m] = -a - delta / Delta * u, -a
        Q[m, :], Q[:, m], R[m, :], R[:, m], w[m] = 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(m + 1):
            w[i] += kappa * v[i]
            for j in range(m + 1):
                Q[i, j] += v[i] * v[j] / pivot
                R[i, j] += g[i] * g[j] / delta
        births[m] = t
        m += 1
        if m <= MOST:
            n_grown += 1
            continue
        p = np.argmin(np.array([w[i] ** 2 / Q[i, i] for i in range(m)]))
        h, f = Q[p, :m].copy(), R[p, :m].copy()
        ratio = w[p] / h[p]
        for i in range(m):
            w[i] -= ratio * h[i]
            for j in range(m):
                Q[i, j] -= h[i] * h[j] / h[p]
                R[i, j] -= f[i] * f[j] / f[p]
        m -= 1
        n_grown += p < m  # one that goes at once has not come
        move(Q, m, p)
        move(R, m, p)
        move(P, m, p)
        w[p], c[p], births[p] = w[m], c[m], births[m]
    return P[:m, :m], c[:m], births[:m], n_grown


def test_inverses_and_predictions_after_a_million_rows():
    X, y = stream()
    kernel = Gaussian(1.0)
    learner = SequentialLearner(kernel, Rules(NOISE, MOST, NOVELTY, GAIN), 2, 1)
    learner.learn(X, y[:, np.newaxis])
    P, c, births, n_grown = sums(X, y)
    recursion = learner.recursion
    order = np.argsort(recursion.births)
    np.testing.assert_array_equal(recursion.births[order], np.sort(births))
    assert recursion.n_grown == n_grown > 500
    assert recursion.n_seen == N
    same = np.argsort(births)
    P, c, points = P[np.ix_(same, same)], c[same], X[np.sort(births)]
    for mine, matrix in ((recursion.P_inverse, P), (recursion.K_inverse, kernel(points))):
        direct = np.linalg.inv(matrix)
        error = np.max(np.abs(mine[np.ix_(order, order)] - direct))
        assert error < 1e-7 * np.max(np.abs(direct)), error / np.max(np.abs(direct))
    predicted = kernel(X[:1000], learner.points) @ recursion.coefficients[:, 0]
    expected = kernel(X[:1000], points) @ np.linalg.solve(P, c)
    assert np.max(np.abs(predicted - expected)) < 1e-8 * np.max(np.abs(expected))
