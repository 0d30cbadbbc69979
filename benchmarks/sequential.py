"""The sequential learner beside a plain compiled loop and the NumPy reference, with the same decisions."""

import time
from typing import Any

import numba
import numpy as np

from benchmarks.forest import split
from mercer.engine import SequentialLearner
from mercer.kernels import Gaussian
from mercer.reports.table import format_table
from mercer.solvers.recursive import ReferenceRecursion, Rules

KERNEL = Gaussian(length_scale=np.sqrt(27.0))
NOVELTY, GAIN = 1e-2, 1e-4


def report(rounds: int) -> str:
    """Run and describe the results."""
    data = split(10_000)
    X, y = np.ascontiguousarray(data.X), data.y
    noise = 1e-5 * len(X)
    plain(X[:200], y[:200], 1 / 54, (noise, NOVELTY, GAIN), 20)  # compiles
    rows = []
    for m in (100, 300, 500, 1000):
        fast, slow, births, theirs = [], [], np.empty(0), np.empty(0)
        for _ in range(rounds):
            start = time.perf_counter()
            births = _ours(X, y, noise, m)
            middle = time.perf_counter()
            theirs = plain(X, y, 1 / 54, (noise, NOVELTY, GAIN), m)
            fast.append(1e6 * (middle - start) / len(X))
            slow.append(1e6 * (time.perf_counter() - middle) / len(X))
        ratio = float(np.median(np.array(slow) / np.array(fast)))
        same = "yes" if np.array_equal(np.sort(births), np.sort(theirs)) else "no"
        reference = _reference(X[:2000], y[:2000], noise, m) if m == 300 else "-"
        rows.append([m, min(fast), min(slow), ratio, same, reference])
    header = ["functions", "mercer", "plain loop", "ratio (median)", "same dictionary", "NumPy reference"]
    return format_table(header, rows) + "\n\nForest, 10 000 rows (2000 for the reference), microseconds per row (best)."


def _ours(X: Any, y: Any, noise: float, m: int) -> Any:
    learner = SequentialLearner(KERNEL, Rules(noise, m, NOVELTY, GAIN), X.shape[1], 1, n_jobs=2)
    learner.learn(X, y[:, np.newaxis])
    return learner.recursion.births


def _reference(X: Any, y: Any, noise: float, m: int) -> float:
    model, points = ReferenceRecursion(Rules(noise, m, NOVELTY, GAIN)), np.empty((0, X.shape[1]))
    start = time.perf_counter()
    for row, target in zip(X, y, strict=True):
        k = KERNEL(points, row[np.newaxis])[:, 0] if len(points) else np.empty(0)
        place = model.learn(k, 1.0, np.array([target]))
        if place == len(points):
            points = np.vstack([points, row])
        elif place >= 0:
            points[place] = row
    return 1e6 * (time.perf_counter() - start) / len(X)


@numba.njit(fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def plain(X: Any, y: Any, gamma: float, rules: Any, most: int) -> Any:
    """The recursion as one would write it: every row updates both matrices in place."""
    noise, novelty_tol, gain_tol = rules
    P, K = np.zeros((most + 1, most + 1)), np.zeros((most + 1, most + 1))
    points, w = np.empty((most + 1, X.shape[1])), np.zeros(most + 1)
    births = np.empty(most + 1, dtype=np.int64)
    m = 0
    for t in range(len(X)):
        k = _kernel_values(X[t], points, m, gamma)
        u, a = np.empty(m), np.empty(m)
        for i in range(m):
            of_P, of_K = 0.0, 0.0
            for j in range(m):
                of_P += P[i, j] * k[j]
                of_K += K[i, j] * k[j]
            u[i], a[i] = of_P, of_K
        Delta, delta, rho = 1.0 + k @ u, 1.0 - k @ a, y[t] - k @ w[:m]
        for i in range(m):
            for j in range(m):
                P[i, j] -= u[i] * u[j] / Delta
            w[i] += rho / Delta * u[i]
        gain = delta * rho**2 / (Delta * (noise * Delta + delta))
        if delta <= novelty_tol or delta * gain <= gain_tol:
            continue
        pivot, kappa = delta * (noise + delta / Delta), rho / (noise * Delta + delta)
        v, g = np.empty(m + 1), np.empty(m + 1)
        v[:m], v[m], g[:m], g[m] = -a - delta / Delta * u, 1.0, -a, 1.0
        P[m, : m + 1], P[: m + 1, m], K[m, : m + 1], K[: m + 1, m], w[m] = 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(m + 1):
            for j in range(m + 1):
                P[i, j] += v[i] * v[j] / pivot
                K[i, j] += g[i] * g[j] / delta
            w[i] += kappa * v[i]
        points[m], births[m] = X[t], t
        m += 1
        if m <= most:
            continue
        place = _weakest(w[:m] ** 2 / np.diag(P)[:m], births)
        h, f = P[place, :m] / P[place, place], K[place, :m] / K[place, place]
        h_p, f_p, w_p = P[place, place], K[place, place], w[place]
        for i in range(m):
            for j in range(m):
                P[i, j] -= h[i] * h[j] * h_p
                K[i, j] -= f[i] * f[j] * f_p
            w[i] -= w_p * h[i]
        m -= 1
        if place < m:
            P[place, :m], P[:m, place], K[place, :m], K[:m, place] = P[m, :m], P[:m, m], K[m, :m], K[:m, m]
            P[place, place], K[place, place], w[place] = P[m, m], K[m, m], w[m]
            points[place], births[place] = points[m], births[m]
    return births[:m]


@numba.njit(fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def _kernel_values(x: Any, points: Any, m: int, gamma: float) -> Any:
    k = np.empty(m)
    for i in range(m):
        square = 0.0
        for j in range(len(x)):
            square += (x[j] - points[i, j]) ** 2
        k[i] = np.exp(-gamma * square)
    return k


@numba.njit(fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def _weakest(scores: Any, births: Any) -> Any:
    lowest, place = np.min(scores) * (1.0 + 1e-9), -1
    for i in range(len(scores)):
        if scores[i] <= lowest and (place < 0 or births[i] > births[place]):
            place = i
    return place
