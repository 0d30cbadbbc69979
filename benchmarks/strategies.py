"""Ways to choose the basis: what they cost beside the fit that follows."""

from typing import Any

import numpy as np

from benchmarks.clock import race
from benchmarks.forest import N_TRAIN, ours, split
from benchmarks.memory import peak_megabytes
from mercer.basis import (
    BasisStrategy,
    ForwardSelection,
    KMeans,
    Leverage,
    PivotedCholesky,
    SparseGreedy,
    SupervisedCholesky,
    Uniform,
)
from mercer.datasets import make_waves
from mercer.engine import Threads, as_rows
from mercer.kernels import Gaussian
from mercer.reports.table import format_table

FOREST = Gaussian(length_scale=np.sqrt(27.0))


def report(rounds: int) -> str:
    """Run and describe the results."""
    return "\n\n".join([_forest(min(rounds, 3)), _memory(), _supervised()])


def _select(strategy: BasisStrategy, X: Any, y: Any, kernel: Gaussian, number: int) -> Any:
    random_state = np.random.RandomState(0)
    return strategy.select(
        as_rows(X), y[:, np.newaxis], kernel, number, weights=None, random_state=random_state, executor=Threads()
    )


def _forest(rounds: int) -> str:
    data = split()
    strategies: dict[str, BasisStrategy] = {
        "uniform": Uniform(),
        "Cholesky, random": PivotedCholesky("random"),
        "Cholesky, random, factor stored": PivotedCholesky("random", store=True),
        "Cholesky, greedy": PivotedCholesky("greedy"),
        "leverage": Leverage(),
        "k-means": KMeans(),
    }
    for strategy in strategies.values():
        _select(strategy, data.X[:2000], data.y[:2000], FOREST, 50)  # compiles
    contestants: dict[str, Any] = {
        name: lambda strategy=strategy: _select(strategy, data.X, data.y, FOREST, 500)
        for name, strategy in strategies.items()
    }
    contestants["the fit that follows"] = lambda: ours(N_TRAIN, 500).fit(data.X, data.y)
    times = race(contestants, rounds)
    rows = [[name, times.best(name), times.ratio(name, "the fit that follows")] for name in contestants]
    return format_table(["forest, 500 000 x 54, m = 500", "s (best)", "times the fit (median)"], rows)


def _prepare() -> Any:
    data = split()
    _select(PivotedCholesky(), data.X[:2000], data.y[:2000], FOREST, 50)
    return data


def _choose(data: Any) -> None:
    _select(PivotedCholesky(), data.X, data.y, FOREST, 500)


def _choose_and_store(data: Any) -> None:
    _select(PivotedCholesky(store=True), data.X, data.y, FOREST, 500)


def _memory() -> str:
    without, stored = peak_megabytes(_prepare, _choose), peak_megabytes(_prepare, _choose_and_store)
    vector = 8 * N_TRAIN / 2**20
    return (
        f"Peak memory of the random pivots beyond the data: {without:.0f} MB ({without / vector:.0f} numbers per row); "
        f"with the factor stored {stored:.0f} MB, of which the factor is {500 * vector:.0f} MB."
    )


def _supervised() -> str:
    X, y = make_waves(10_000, n_features=6, random_state=0)
    strategies: dict[str, BasisStrategy] = {
        "OLS, 59 candidates": ForwardSelection(59),
        "sparse greedy, 59 candidates": SparseGreedy(1e-3),
        "CSI": SupervisedCholesky(),
    }
    contestants = {
        name: lambda strategy=strategy: _select(strategy, X, y, Gaussian(1.5), 500)
        for name, strategy in strategies.items()
    }
    times = race(contestants, 1)
    rows = [[name, times.best(name)] for name in contestants]
    return format_table(["n = 10 000, d = 6, m = 500", "s"], rows)
