"""Compression after training: an abalone model to 25 vectors, and scikit-learn's SVC on forest to 200."""

import time
from functools import cache
from typing import Any

import numpy as np
from sklearn.svm import SVC

from benchmarks.clock import best_of
from mercer import ExactRegressor, compress
from mercer.compression.reduced_set import reduce_expansion
from mercer.datasets import load_abalone, load_forest
from mercer.kernels import Gaussian
from mercer.reports.table import format_table

N_TRAIN, N_TEST, N_FOREST = 20_000, 10_000, 200


def report(rounds: int) -> str:
    """Run and describe the results."""
    return f"{_abalone()}\n\n{_forest()}"


@cache
def abalone() -> tuple[Any, Any, Any, Any]:
    """Rows of unit variance; 3000 to train, the others to test."""
    X, y = load_abalone()
    X[:, 3:] = (X[:, 3:] - X[:, 3:].mean(axis=0)) / X[:, 3:].std(axis=0)
    y, order = (y - y.mean()) / y.std(), np.random.default_rng(0).permutation(len(y))
    return X[order[:3000]], y[order[:3000]], X[order[3000:]], y[order[3000:]]


def _abalone() -> str:
    X, y, X_test, y_test = abalone()
    model = ExactRegressor(Gaussian(np.sqrt(0.5 * 10**1.5)), noise=10**-1.5, intercept=False).fit(X, y)
    full = float(np.mean((model.predict(X_test) - y_test) ** 2))
    reduce_expansion(model.expansion_, 3, random_state=0, max_iter=5)  # compiles
    rows = [_line("L-BFGS, coefficients eliminated", model.expansion_, 25, X_test, y_test, full)]
    others: dict[str, dict[str, Any]] = {
        "iRprop+, coefficients eliminated": {"optimiser": "irprop"},
        "iRprop+, coefficients moved along": {"optimiser": "joint"},
        "L-BFGS, on the training inputs": {"metric": "data"},
    }
    for name, options in others.items():
        rows.append(_line(name, model.expansion_, 25, X_test, y_test, full, **options))
    header = ["3000 vectors to 25", "s", "steps", "ρ²/|f|²", "test error / full model's"]
    return format_table(header, rows)


def _line(name: str, expansion: Any, size: int, X: Any, y: Any, full: float, **options: Any) -> list[Any]:
    start = time.perf_counter()
    found = reduce_expansion(expansion, size, random_state=0, **options)
    seconds = time.perf_counter() - start
    error = float(np.mean((found.expansion.evaluate(X)[:, 0] - y) ** 2))
    return [name, seconds, found.n_iter, found.relative_distance, error / full]


def _forest() -> str:
    X, y = load_forest()
    order = np.random.default_rng(0).permutation(len(X))[: N_TRAIN + N_TEST]
    rows = np.asarray(X[order], dtype=np.float64)
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    labels, new, truth = y[order] == 2, rows[N_TRAIN:], y[order][N_TRAIN:] == 2
    machine = SVC(C=10.0, gamma=1 / 54).fit(rows[:N_TRAIN], labels[:N_TRAIN])
    lines = [["SVC", "-", *_predicted(machine, len(machine.support_), new, truth)]]
    for metric in ("feature", "data"):
        start = time.perf_counter()
        small = compress(machine, N_FOREST, metric=metric, random_state=0)
        seconds = time.perf_counter() - start
        lines.append([f'metric="{metric}"', seconds, *_predicted(small, len(small.expansion_.points), new, truth)])
    header = [f"forest, {N_TRAIN:,} rows", "compression, s", "vectors", "accuracy, %", f"{N_TEST:,} predictions, s"]
    return format_table(header, lines)


def _predicted(model: Any, size: int, rows: Any, truth: Any) -> list[Any]:
    accuracy = float(100 * np.mean(model.predict(rows) == truth))
    return [size, accuracy, best_of(lambda: model.predict(rows), 1 if size > N_FOREST else 5)]
