"""Compression after training: an abalone model to 25 vectors, and an expansion like that of an SVC on forest to 200."""

import time
from functools import cache
from typing import Any

import numpy as np

from benchmarks.clock import best_of
from mercer import ExactRegressor
from mercer.compression.reduced_set import reduce_expansion
from mercer.datasets import load_abalone, load_forest
from mercer.expansion import KernelExpansion
from mercer.kernels import Gaussian
from mercer.reports.table import format_table

N_SUPPORT, N_FOREST = 8000, 200


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
    model = ExactRegressor(Gaussian(np.sqrt(0.5 * 10**1.5)), noise=10**-1.5).fit(X, y)
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
    """A regression on the labels stands in for the machine: what counts is the size of the expansion."""
    X, y = load_forest()
    order = np.random.default_rng(0).permutation(len(X))[: N_SUPPORT + 10_000]
    rows = np.asarray(X[order], dtype=np.float64)
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    labels = np.where(y[order] == 2, 1.0, -1.0)
    model = ExactRegressor(Gaussian(np.sqrt(27.0)), noise=0.1).fit(rows[:N_SUPPORT], labels[:N_SUPPORT])
    new, truth = rows[N_SUPPORT:], labels[N_SUPPORT:]
    full: KernelExpansion = model.expansion_
    lines = [["full", "-", N_SUPPORT, _accuracy(full, new, truth), best_of(lambda: full.evaluate(new))]]
    for metric in ("feature", "data"):
        start = time.perf_counter()
        small = reduce_expansion(full, N_FOREST, metric=metric, max_iter=300, random_state=0).expansion
        seconds = time.perf_counter() - start
        took = best_of(lambda small=small: small.evaluate(new))  # type: ignore[misc]
        lines.append([metric, seconds, len(small.points), _accuracy(small, new, truth), took])
    header = ["forest, 54 features", "compression, s", "vectors", "accuracy, %", "10 000 predictions, s"]
    return format_table(header, lines)


def _accuracy(expansion: KernelExpansion, rows: Any, truth: Any) -> float:
    return float(100 * np.mean(np.sign(expansion.evaluate(rows)[:, 0]) == truth))
