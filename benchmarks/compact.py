"""Kernels of compact support: how time and memory grow with the rows of a plane, and all rows of forest."""

import time
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.spatial import KDTree
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from benchmarks.memory import peak_megabytes
from mercer import CompactClassifier, CompactRegressor, tune_cutoff
from mercer.datasets import load_forest
from mercer.engine import SparseKernel, Threads
from mercer.engine.all_pairs import AllPairs
from mercer.engine.neighbours import Grid
from mercer.kernels import Wendland
from mercer.reports.table import format_table
from mercer.solvers.sparse_symbolic import count_fill, ordering_permutation

SIZES = (10_000, 100_000, 1_000_000)
FACTORED = 100_000  # rows up to which the matrix is factored
NEIGHBOURS = 60
N_QUERIES, N_TRAIN = 100_000, 500_000


def report(rounds: int) -> str:
    """Run and describe the results."""
    return f"{_plane()}\n\n{_searches()}\n\n{_forest()}"


def _searches() -> str:
    """Each pair of neighbours once, about 60 for a row, in one thread: cells, all distances, and SciPy's KD-tree.

    The tree finds pairs only, the others squared distances, too.
    """
    rng, n = np.random.default_rng(0), 20_000
    sets = {f"uniform, {d} dimensions": rng.uniform(size=(n, d)) for d in (1, 2, 3, 5, 8)}
    sets |= {f"normal, {d} dimensions": rng.normal(size=(n, d)) for d in (10, 20, 50)}
    sets |= {f"{k} dimensions in 20": rng.normal(size=(n, k)) @ rng.normal(size=(k, 20)) for k in (3, 5, 8)}
    sets["forest, metres"] = forest_rows()[0][:: N_TRAIN // n][:n]
    sets["forest, standardised"] = _standardised(sets["forest, metres"])
    _searched(sets["uniform, 2 dimensions"][:3000])  # compiles
    header = ["20 000 rows", "cells, s", "all distances, s", "KD-tree, s", "neighbours", "share looked at", "chosen"]
    with threadpool_limits(1):
        return format_table(header, [[name, *_searched(X)] for name, X in sets.items()])


def _standardised(X: Any) -> Any:
    spread = np.std(X, axis=0)
    return X / np.where(spread > 0, spread, 1.0)


def _searched(X: Any) -> list[Any]:
    n, tree = len(X), KDTree(X)
    radius = float(np.median(tree.query(X[:500], k=NEIGHBOURS)[0][:, -1]))
    grid = Grid(X / radius)
    start = time.perf_counter()
    chosen, grid.all_pairs = "cells" if grid.all_pairs is None else "all distances", None
    near = grid.among(0, n)
    second = time.perf_counter()
    grid.all_pairs = AllPairs(grid.cells.points)
    grid.among(0, n)
    third = time.perf_counter()
    pairs = KDTree(X).query_pairs(radius, output_type="ndarray")
    stop = time.perf_counter()
    if len(near.index) != n + len(pairs):
        raise RuntimeError(f"the grid found {len(near.index) - n} pairs, the tree {len(pairs)}")
    times = [second - start, third - second, stop - third]
    return [*times, 2 * len(pairs) / n, grid.share_looked_at, chosen]


def plane(n: int) -> tuple[Any, Any]:
    """Rows in the unit square, and a noisy function of them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 2))
    return X, np.sin(20 * X[:, 0]) * np.cos(15 * X[:, 1]) + 0.1 * rng.normal(size=n)


def model(n: int, solver: str) -> CompactRegressor:
    """Wendland's kernel on as many neighbours, whatever the number of rows."""
    radius = float(np.sqrt(NEIGHBOURS / (np.pi * n)))
    return CompactRegressor(Wendland(radius), noise=0.1, solver=solver, random_state=0)


def _fit(solver: str, data: tuple[Any, Any]) -> Any:
    return model(len(data[1]), solver).fit(*data)


def _plane() -> str:
    _fit("cg", plane(2000)), _fit("cholesky", plane(2000))  # compiles
    rows = [_measured(n, solver) for n in SIZES for solver in ("cg", "cholesky") if solver == "cg" or n <= FACTORED]
    header = [
        "rows", "solver", "non-zeros", "fill-in", "iterations", "fit, s", "MB beyond the rows",
        f"{N_QUERIES:,} predictions, s", "log-determinant",
    ]  # fmt: skip
    growth = [
        f"{name} of {solver}: {_exponent([(row[0], row[column]) for row in rows if row[1] == solver]):.2f}"
        for solver in ("cg", "cholesky")
        for name, column in (("time", 5), ("memory", 6))
    ]
    notes = f"The log-determinant is part of a fit by Cholesky. Powers of the rows: {', '.join(growth)}."
    return f"{format_table(header, rows)}\n\n{notes} The fill-in of matrices that are not factored is counted."


def _measured(n: int, solver: str) -> list[Any]:
    start = time.perf_counter()
    fitted = _fit(solver, plane(n))
    determinant = fitted.log_determinant()[0] if solver == "cholesky" else "-"
    seconds = time.perf_counter() - start
    queries = np.random.default_rng(1).uniform(size=(N_QUERIES, 2))
    start = time.perf_counter()
    fitted.predict(queries)
    predicted = time.perf_counter() - start
    fill_in = fitted.fill_in_ or (_counted_fill(n) if n > FACTORED else "-")
    nnz, n_iter = fitted.nnz_, fitted.n_iter_
    del fitted  # before another process makes its own
    memory = peak_megabytes(partial(plane, n), partial(_fit, solver))
    return [n, solver, nnz, fill_in, n_iter, seconds, memory, predicted, determinant]


def _counted_fill(n: int) -> float:
    """Entries that a factor would have, in those of the matrix's triangle."""
    gram = SparseKernel(model(n, "cg").kernel, plane(n)[0]).gram(executor=Threads(None))
    matrix = gram.plus_diagonal(np.ones(n))
    return count_fill(matrix, ordering_permutation(matrix, "amd")) / ((gram.nnz + n) / 2)


def _exponent(points: list[tuple[float, float]]) -> float:
    return float(np.polyfit(*np.log(np.array(points)).T, 1)[0])


@cache
def forest_rows() -> tuple[Any, Any, Any, Any]:
    """Rows of forest in the units of the data, class 2 or not: 500 000 to train, then those to test."""
    X, y = load_forest()
    order = np.random.default_rng(0).permutation(len(X))
    X, y = np.ascontiguousarray(X[order], dtype=np.float64), y[order] == 2
    return X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], y[N_TRAIN:]


def _forest_fit(model: Any, data: tuple[Any, Any, Any, Any]) -> Any:
    return model.fit(data[0][:, : model.kernel.length_scale.size], data[1])


def _forest() -> str:
    rows = [
        _tuned("checked, (1 - r)²", Wendland(smoothness=0, dimension=3), 54, (15, 30, 60)),
        _tuned("guaranteed, (1 - r)²⁸", Wendland(smoothness=0), 54, (15, 30, 60)),
        _tuned("guaranteed, (1 - r)⁶, 10 columns", Wendland(smoothness=0), 10, (30, 60, 120)),
        _boosted(),
    ]
    header = [
        "forest", "trials", "tuning, s", "fit, s", "predict, s", "error, %", "non-zeros", "MB beyond the rows",
        "least eigenvalue",
    ]  # fmt: skip
    note = "All 500 000 rows in the units of the data, 81 012 to test; tuned on a part of the training rows."
    return f"{format_table(header, rows)}\n\n{note}"


def _tuned(name: str, kernel: Wendland, n_columns: int, n_neighbours: tuple[int, ...]) -> list[Any]:
    """The first columns are quantities, the others indicators."""
    X, y, X_test, y_test = forest_rows()
    start = time.perf_counter()
    found = tune_cutoff(
        CompactClassifier(kernel, tol=1e-4, solver="cg", random_state=0, noise=0.1), X[:, :n_columns], y,
        n_neighbours=n_neighbours, noises=(0.03, 0.1, 0.3), random_state=0,
    )  # fmt: skip
    middle = time.perf_counter()
    fitted = found.model.fit(X[:, :n_columns], y)
    stop = time.perf_counter()
    wrong = 100 * np.mean(fitted.predict(X_test[:, :n_columns]) != y_test)
    predicted = time.perf_counter() - stop
    memory = peak_megabytes(forest_rows, partial(_forest_fit, clone(found.model)))
    least = "-" if fitted.min_eigenvalue_ is None else fitted.min_eigenvalue_
    return [name, len(found.trials), middle - start, stop - middle, predicted, wrong, fitted.nnz_, memory, least]


def _boosted() -> list[Any]:
    X, y, X_test, y_test = forest_rows()
    start = time.perf_counter()
    model = HistGradientBoostingClassifier(max_iter=500, max_leaf_nodes=255, random_state=0).fit(X, y)
    middle = time.perf_counter()
    wrong = 100 * np.mean(model.predict(X_test) != y_test)
    predicted = time.perf_counter() - middle
    return ["gradient boosting, 500 trees", "-", "-", middle - start, predicted, wrong, "-", "-", "-"]
