"""Sequential LS-SVM on forest: Table 2 and Fig. 1."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mercer._typing import FloatArray
from mercer.basis import BasisStrategy, ForwardSelection, Uniform
from mercer.datasets import load_forest
from mercer.estimators.nystrom import NystromRegressor
from mercer.estimators.online_regressor import OnlineRegressor
from mercer.kernels import Gaussian
from mercer.reports.table import format_table
from papers.experiment import Kept

__all__ = ["PRINTED", "ForestSizes", "costs", "measure", "table"]

N_TRAIN, N_TEST = 500_000, 81_012
KERNEL = Gaussian(length_scale=float(np.sqrt(27.0)))  # exp(-r²/54)
METHODS = ("OLS-59", "online", "online, second pass", "uniform")

# Error in percent as the document prints it, by (rows, functions): OLS-59, and the sequential LS-SVM.
PRINTED: dict[tuple[int, int], tuple[str, str]] = {
    (10_000, 100): ("22.80 ± 0.18", "24.61 ± 2.31"),
    (10_000, 300): ("21.26 ± 0.23", "22.33 ± 0.51"),
    (10_000, 500): ("20.35 ± 0.11", "21.77 ± 0.34"),
    (50_000, 100): ("22.63 ± 0.11", "23.99 ± 1.96"),
    (50_000, 300): ("20.58 ± 0.15", "21.93 ± 0.36"),
    (50_000, 500): ("19.63 ± 0.12", "21.24 ± 0.42"),
    (200_000, 100): ("-", "24.49 ± 1.64"),
    (200_000, 300): ("-", "21.83 ± 0.36"),
    (200_000, 500): ("-", "21.19 ± 0.30"),
    (500_000, 100): ("-", "23.80 ± 0.64"),
    (500_000, 300): ("-", "21.77 ± 0.39"),
    (500_000, 500): ("-", "21.17 ± 0.32"),
}


@dataclass(frozen=True)
class ForestSizes:
    """How large the experiment is; orthogonal least squares have sizes of their own, as they take longest."""

    rows: tuple[int, ...] = (10_000, 50_000, 200_000, 500_000)
    functions: tuple[int, ...] = (100, 300, 500)
    repeats: int = 10
    ols_repeats: tuple[int, ...] = (10, 10, 1, 1)
    ols_memory: tuple[int, ...] = (10_000, 50_000)

    def has(self, method: str, n: int, repeat: int) -> bool:
        """Whether that is run."""
        return repeat < (self.ols_repeats[self.rows.index(n)] if method == "OLS-59" else self.repeats)


@lru_cache(maxsize=1)
def draw(repeat: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """A random split: rows of unit variance, targets ±1 (class 2 or not)."""
    X, y = load_forest()
    order = np.random.default_rng(repeat).permutation(len(y))
    rows, targets = X[order].astype(np.float64), np.where(y[order] == 2, 1.0, -1.0)
    rows -= rows.mean(axis=0)
    rows /= rows.std(axis=0)
    return rows[:N_TRAIN], targets[:N_TRAIN], rows[N_TRAIN:], targets[N_TRAIN:]


def _fit(method: str, m: int, X: FloatArray, y: FloatArray, seed: int) -> NystromRegressor | OnlineRegressor:
    noise = 1e-5 * len(y)
    if method.startswith("online"):
        again = method.endswith("second pass")
        online = OnlineRegressor(
            KERNEL, noise=noise, max_basis=m, novelty_tol=1e-2, gain_tol=1e-4, second_pass=again, intercept=False
        )
        return online.fit(X, y)
    strategy: BasisStrategy = ForwardSelection(59) if method == "OLS-59" else Uniform()
    return NystromRegressor(KERNEL, basis=strategy, n_basis=m, noise=noise, random_state=seed, intercept=False).fit(
        X, y
    )


def _run(method: str, n: int, m: int, repeat: int) -> dict[str, float]:
    X, y, X_test, y_test = draw(repeat)
    start, began = time.process_time(), time.perf_counter()
    model = _fit(method, m, X[:n], y[:n], repeat)
    cpu, wall = time.process_time() - start, time.perf_counter() - began
    wrong = np.mean((np.asarray(model.predict(X_test)) > 0) != (y_test > 0))
    return {"error": 100 * float(wrong), "cpu": cpu, "wall": wall}


def _memory(method: str, n: int, m: int) -> dict[str, float]:
    """Peak of what was allocated in training, beyond the rows."""
    X, y, _, _ = draw(0)
    tracemalloc.start()
    try:
        _fit(method, m, X[:n], y[:n], 0)
        return {"megabytes": tracemalloc.get_traced_memory()[1] / 1e6}
    finally:
        tracemalloc.stop()


def measure(sizes: ForestSizes, kept: Kept) -> None:
    """Run what is not known yet, a repeat of all methods after the other."""
    most = max(sizes.repeats, *sizes.ols_repeats)
    for repeat in range(most):
        for n in sizes.rows:
            for m in sizes.functions:
                for method in METHODS:
                    if sizes.has(method, n, repeat):
                        kept.get(_name(method, n, m, repeat), _later(_run, method, n, m, repeat), verbose=True)
    for n in sizes.rows:
        for m in sizes.functions:
            for method in METHODS:
                if method == "OLS-59" and n not in sizes.ols_memory:
                    continue
                kept.get(f"memory: {_name(method, n, m, 0)}", _later(_memory, method, n, m), verbose=True)


def _later(function: Callable[..., dict[str, float]], *arguments: object) -> Callable[[], dict[str, float]]:
    return lambda: function(*arguments)


def _name(method: str, n: int, m: int, repeat: int) -> str:
    return f"forest, {n} rows, {m} functions, {method}, {repeat}"


def _values(sizes: ForestSizes, kept: Kept, key: str, place: tuple[str, int, int]) -> list[float]:
    """What is known of one cell, over its repeats."""
    method, n, m = place
    names = [_name(method, n, m, r) for r in range(max(sizes.repeats, *sizes.ols_repeats)) if sizes.has(method, n, r)]
    return [kept.get(name, dict)[key] for name in names if kept.has(name)]


def table(sizes: ForestSizes, kept: Kept) -> str:
    """Table 2, printed values beside ours; in brackets the number of repeats, where they are fewer than all."""
    lines: list[Sequence[object]] = []
    for n in sizes.rows:
        for m in sizes.functions:
            printed = PRINTED.get((n, m), ("-", "-"))
            found = []
            for method in METHODS:
                errors = _values(sizes, kept, "error", (method, n, m))
                few = f" [{len(errors)}]" if 0 < len(errors) < sizes.repeats else ""
                found.append(f"{np.mean(errors):.2f} ± {np.std(errors):.2f}{few}" if errors else "-")
            lines.append([n, m, printed[0], found[0], printed[1], *found[1:]])
    header = ["rows", "functions", "OLS-59, printed", "OLS-59", "online, printed", "online", "second pass", "uniform"]
    return format_table(header, lines)


def costs(sizes: ForestSizes, kept: Kept) -> str:
    """Fig. 1 as a table: CPU seconds of training, seconds on the clock, and megabytes, of the first split."""
    lines: list[Sequence[object]] = []
    for n in sizes.rows:
        for m in sizes.functions:
            for method in METHODS:
                place = (method, n, m)
                cpu, wall = (_values(sizes, kept, key, place) for key in ("cpu", "wall"))
                name = f"memory: {_name(method, n, m, 0)}"
                memory = f"{kept.get(name, dict)['megabytes']:.1f}" if kept.has(name) else "-"
                if cpu:
                    lines.append([n, m, method, f"{cpu[0]:.1f}", f"{wall[0]:.1f}", memory])
    return format_table(["rows", "functions", "method", "CPU seconds", "seconds", "megabytes"], lines)
