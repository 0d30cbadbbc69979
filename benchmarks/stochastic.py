"""Stochastic gradient descent beside a plain NumPy loop, and novelty beside scikit-learn's linear one on features."""

import time
from functools import partial
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDOneClassSVM
from sklearn.pipeline import make_pipeline

from benchmarks.clock import race
from mercer import NormaNoveltyDetector, NormaRegressor
from mercer.engine import blas_threads
from mercer.kernels import Gaussian
from mercer.reports.table import format_table

D, SCALE = 10, 4.0
RATE, WEIGHT = 0.25, 0.008


def report(rounds: int) -> str:
    """Run and describe the results."""
    with blas_threads(1):
        return f"{_race(rounds)}\n\n{_novelty(rounds)}"


def _race(rounds: int) -> str:
    rows = []
    for m in (100, 500, 2000):
        n, few = 40_000, 2 * m + 500
        X = np.random.default_rng(0).normal(size=(n, D))
        y = np.sin(X[:, 0])
        ours(X[: few + 500], y[: few + 500], m)  # compiles
        contestants = {"mercer": partial(ours, X, y, m), "loop": partial(plain, X[:few], y[:few], m)}
        times = race(contestants, rounds)
        per_row = 1e6 * times.best("mercer") / n, 1e6 * times.best("loop") / few
        error = float(np.max(np.abs(ours(X[:few], y[:few], m).coefficients_ - plain(X[:few], y[:few], m))))
        rows.append([m, *per_row, 1e6 / per_row[0], times.ratio("loop", "mercer") * n / few, f"{error:.1e}"])
    header = ["terms", "mercer", "NumPy loop", "mercer, rows/s", "loop / mercer", "largest difference"]
    return format_table(header, rows) + (
        f"\n\nSquared loss, {D} features, one core; microseconds per row (best), ratios: median of the rounds.\n"
        "The loop is NORMA as one would write it in NumPy, with a ring buffer for its terms, on 2m + 500 rows."
    )


def ours(X: Any, y: Any, m: int) -> NormaRegressor:
    """NORMA by mercer."""
    model = NormaRegressor(
        Gaussian(SCALE), learning_rate=RATE, regularization=WEIGHT, max_basis=m, truncation=0.0,
        intercept=False, scale_targets=False, average=False, shuffle=False, n_jobs=1,
    )  # fmt: skip
    return model.fit(X, y)


def plain(X: Any, y: Any, m: int) -> Any:
    """NORMA in NumPy, row by row; its coefficients, oldest first."""
    points, c = np.zeros((m, X.shape[1])), np.zeros(m)
    for t in range(len(X)):
        k = np.exp(np.sum((points - X[t]) ** 2, axis=1) / (-2 * SCALE**2))
        slope = k @ c - y[t]
        c *= 1 - RATE * WEIGHT
        points[t % m], c[t % m] = X[t], -RATE * slope
    return np.roll(c, -(len(X) % m))


def _novelty(rounds: int) -> str:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, D))
    X_test = np.concatenate([rng.normal(size=(5000, D)), rng.normal(size=(500, D)) * 1.3 + 1.0])
    is_novel = np.arange(len(X_test)) >= 5000
    models = {
        "mercer": NormaNoveltyDetector(Gaussian(SCALE), nu=0.1, max_basis=500, n_jobs=1),
        "Nystroem + SGDOneClassSVM": make_pipeline(
            Nystroem(gamma=1 / (2 * SCALE**2), n_components=500, random_state=0), SGDOneClassSVM(nu=0.1, random_state=0)
        ),
    }
    rows = []
    for name, model in models.items():
        best = np.inf
        for _ in range(rounds):
            start = time.perf_counter()
            model.fit(X)
            best = min(best, time.perf_counter() - start)
        scores = model.score_samples(X_test)
        rows.append([name, best, _area(scores, is_novel), float(np.mean(model.predict(X_test[:5000]) < 0))])
    return format_table(["novelty, 20 000 rows, 500 functions", "seconds", "ROC AUC", "share refused"], rows)


def _area(scores: Any, is_novel: Any) -> float:
    ranks = np.argsort(np.argsort(scores))
    low, high = ranks[is_novel], ranks[~is_novel]
    return float((np.mean(high) - np.mean(low)) / len(scores) + 0.5)
