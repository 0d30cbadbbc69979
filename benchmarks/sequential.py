"""The sequential learner beside a plain compiled loop and the NumPy reference, with the same decisions."""

import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from benchmarks.forest import error, split
from mercer import OnlineRegressor
from mercer.datasets import make_waves
from mercer.engine import SequentialLearner
from mercer.kernels import Gaussian
from mercer.reports.table import format_table
from mercer.solvers.recursive import Rules
from papers.recursion import ReferenceRecursion

KERNEL = Gaussian(length_scale=np.sqrt(27.0))
NOVELTY, GAIN = 1e-2, 1e-4


def report(rounds: int) -> str:
    """Run and describe the results."""
    return f"{_race(rounds)}\n\n{_all_rows()}\n\n{_package()}"


def _race(rounds: int) -> str:
    data = split(10_000)
    X, y = np.ascontiguousarray(data.X), data.y
    noise = 1e-5 * len(X)
    for loop in (plain, plain_with_views):
        loop(X[:200], y[:200], 1 / 54, (noise, NOVELTY, GAIN), 20)  # compiles
    _ours(X[:500], y[:500], noise, 50)
    rows = []
    for m in (100, 300, 500, 1000):
        times: dict[str, list[float]] = {}
        births = {}
        for _ in range(rounds):
            for name, run in CONTESTANTS.items():
                seconds = []
                for _ in range(max(1, 1000 // m)):  # short runs are taken more often, all alike
                    start = time.perf_counter()
                    births[name] = np.sort(run(X, y, noise, m))
                    seconds.append(time.perf_counter() - start)
                times.setdefault(name, []).append(1e6 * min(seconds) / len(X))
        ratios = [float(np.median(np.array(times[name]) / times["mercer"])) for name in ("loops", "views")]
        same = "yes" if all(np.array_equal(births["loops"], other) for other in births.values()) else "no"
        reference = _reference(X[:2000], y[:2000], noise, m) if m == 300 else "-"
        rows.append([m, *(min(t) for t in times.values()), *ratios, same, reference])
    header = [
        "functions", "mercer", "plain loops", "plain, with @",
        "loops / ours", "@ / ours", "same dictionary", "NumPy reference",
    ]  # fmt: skip
    return format_table(header, rows) + (
        "\n\nForest, 10 000 rows (2000 for the reference), microseconds per row (best; ratios: median of the rounds,\n"
        "the best of 1000/functions runs of each).\n"
        "The plain recursion, compiled: with loops over both matrices, or with NumPy's products of their parts in use."
    )


def _all_rows() -> str:
    data = split()
    model = OnlineRegressor(
        KERNEL, noise=1e-5 * len(data.y), max_basis=500, novelty_tol=NOVELTY, gain_tol=GAIN, intercept=False
    )
    start = time.perf_counter()
    model.fit(data.X, data.y)
    once = time.perf_counter() - start
    wrong = error(model, data)
    start = time.perf_counter()
    model.refit(data.X, data.y)
    again = time.perf_counter() - start
    rows = [["one pass", once, wrong], ["second pass", again, error(model, data)]]
    return format_table(["forest, 500 000 rows, 500 functions", "seconds", "error, %"], rows)


def _package() -> str:
    try:
        from krls.krls import KRLS  # type: ignore[import-untyped]
    except ImportError:
        return "The package krls is not installed."
    X, y = make_waves(3000, n_features=4, random_state=0)
    ours = OnlineRegressor(
        Gaussian(1.5), noise=1e-8, max_basis=len(y), selection="novelty", novelty_tol=NOVELTY, intercept=False
    )
    ours.fit(X[:100], y[:100])
    start = time.perf_counter()
    ours.fit(X, y)
    middle = time.perf_counter()
    theirs = KRLS(nu=NOVELTY, N=len(y), kernel_type="RBF", gamma=1 / (2 * 1.5**2))
    theirs.fit(X, y)
    stop = time.perf_counter()
    rows = [
        ["mercer", middle - start, len(ours.basis_)],
        ["krls", stop - middle, theirs.parameters_dict["Dict"].shape[1]],
    ]
    table = format_table(["KRLS, 3000 rows", "seconds", "functions"], rows)
    return f"{table}\n\nkrls takes {(stop - middle) / (middle - start):.0f} times as long."


def _ours(X: Any, y: Any, noise: float, m: int) -> Any:
    learner = SequentialLearner(KERNEL, Rules(noise, m, NOVELTY, GAIN), X.shape[1], 1)
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
    return _recursion(X, y, gamma, rules, most, False)


@numba.njit(fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def plain_with_views(X: Any, y: Any, gamma: float, rules: Any, most: int) -> Any:
    """The same with NumPy's products, of views."""
    return _recursion(X, y, gamma, rules, most, True)


@numba.njit(fastmath=True, cache=True)  # type: ignore[untyped-decorator]
def _recursion(X: Any, y: Any, gamma: float, rules: Any, most: int, views: bool) -> Any:
    noise, novelty_tol, gain_tol = rules
    P, K = np.zeros((most + 1, most + 1)), np.zeros((most + 1, most + 1))
    points, w = np.empty((most + 1, X.shape[1])), np.zeros(most + 1)
    births = np.empty(most + 1, dtype=np.int64)
    m = 0
    for t in range(len(X)):
        k = _kernel_values(X[t], points, m, gamma)
        u, a = _products(P, K, k, m, views)
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
def _products(P: Any, K: Any, k: Any, m: int, views: bool) -> Any:
    if views:
        return P[:m, :m] @ k, K[:m, :m] @ k
    u, a = np.empty(m), np.empty(m)
    for i in range(m):
        of_P, of_K = 0.0, 0.0
        for j in range(m):
            of_P += P[i, j] * k[j]
            of_K += K[i, j] * k[j]
        u[i], a[i] = of_P, of_K
    return u, a


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


CONTESTANTS: dict[str, Callable[[Any, Any, float, int], Any]] = {
    "mercer": _ours,
    "loops": lambda X, y, noise, m: plain(X, y, 1 / 54, (noise, NOVELTY, GAIN), m),
    "views": lambda X, y, noise, m: plain_with_views(X, y, 1 / 54, (noise, NOVELTY, GAIN), m),
}
