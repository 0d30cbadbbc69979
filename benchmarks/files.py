"""Rows in files against the same in memory: time, peak of memory, and growth with the rows."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.clock import race
from benchmarks.memory import peak_megabytes
from mercer import NormaRegressor, NystromRegressor, OnlineRegressor, scan
from mercer.kernels import Gaussian
from mercer.reports.table import format_table

N, D, GROUP = 10_000_000, 20, 500_000
M = 500
STREAMED, DICTIONARY = 500_000, 100  # rows that learners take one after the other, and functions that they keep
NAMES = [*(f"x{j}" for j in range(D)), "y"]


def _rows(n_rows: int) -> Iterator[Any]:
    """Blocks of inputs with the target behind them."""
    rng = np.random.default_rng(0)
    for start in range(0, n_rows, GROUP):
        X = rng.normal(size=(min(n_rows - start, GROUP), D))
        yield np.column_stack([X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=len(X))])


@contextmanager
def written(n_rows: int) -> Iterator[Path]:
    """A Parquet file of so many rows (1.6 GB for ten million), which is removed at the end."""
    schema = pa.schema([(name, pa.float64()) for name in NAMES])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        with parquet.ParquetWriter(path, schema) as writer:
            for block in _rows(n_rows):
                writer.write_table(pa.table(list(block.T), schema=schema), row_group_size=GROUP)
        yield path


def in_memory(n_rows: int) -> tuple[Any, Any]:
    """The same rows as arrays."""
    X, y = np.empty((n_rows, D)), np.empty(n_rows)
    start = 0
    for block in _rows(n_rows):
        X[start : start + len(block)], y[start : start + len(block)] = block[:, :-1], block[:, -1]
        start += len(block)
    return X, y


def nystrom() -> NystromRegressor:
    """The model that is timed: everything given, so that a fit is one pass."""
    return NystromRegressor(Gaussian(4.0), n_basis=M, noise=0.1, random_state=0)


def learners() -> dict[str, Any]:
    """Sequential learners."""
    return {
        "OnlineRegressor": OnlineRegressor(Gaussian(4.0), noise=0.1, max_basis=DICTIONARY),
        "NormaRegressor": NormaRegressor(Gaussian(4.0)),
    }


def warmed(path: str) -> str:
    """The path, when libraries are loaded and all is compiled."""
    X, y = in_memory(20_000)
    for model in (nystrom(), *learners().values()):
        model.fit(X, y)
    with written(20_000) as small:
        fit_file(str(small))
    return path


class Warmed:
    """Prepare a process to fit to a file; pickles."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __call__(self) -> str:
        return warmed(self.path)


def fit_file(path: str) -> None:
    nystrom().fit(scan(path, target="y"))


def report(rounds: int, n_rows: int = N) -> str:
    """Run all and describe the results; the arrays of the whole size take 1.7 GB."""
    warmed("")
    n_streamed = max(n_rows * STREAMED // N, 1)
    return "\n\n".join([_whole(rounds, n_rows), _growth(rounds, n_rows), _streams(rounds, n_streamed)])


def _whole(rounds: int, n_rows: int) -> str:
    with written(n_rows) as path:
        peak = peak_megabytes(Warmed(path), fit_file)
        X, y = in_memory(n_rows)
        times = race({"file": lambda: fit_file(str(path)), "array": lambda: nystrom().fit(X, y)}, rounds)
        size = path.stat().st_size / 2**20
    lines = [[name, f"{times.best(name):.1f}", f"{n_rows / times.best(name):,.0f}"] for name in ("file", "array")]
    share = 100 / times.ratio("file", "array")
    return (
        f"{n_rows:,} rows × {D} columns in Parquet ({size:.0f} MB), Nyström with {M} points.\n"
        f"{format_table(['rows in', 'seconds', 'rows/s'], lines)}\n"
        f"The file has {share:.0f} % of the throughput of the arrays, and takes {peak:.0f} MB of memory at most beyond "
        "what a small fit took."
    )


def _growth(rounds: int, n_rows: int) -> str:
    """Exponent of time in the number of rows, from a tenth of them to all."""
    seconds = {}
    for part in (n_rows // 10, n_rows):
        with written(part) as path:
            seconds[part] = race({"file": lambda path=path: fit_file(str(path))}, rounds).best("file")  # type: ignore[misc]
    exponent = np.log10(seconds[n_rows] / seconds[n_rows // 10])
    return f"From {n_rows // 10:,} to {n_rows:,} rows time grows with the power {exponent:.3f} of their number."


def _streams(rounds: int, n_rows: int) -> str:
    lines = []
    with written(n_rows) as path:
        X, y = in_memory(n_rows)
        for name, model in learners().items():
            contestants = {"file": lambda m=model: m.fit(scan(path, target="y")), "array": lambda m=model: m.fit(X, y)}
            times = race(contestants, rounds)
            rates = (f"{n_rows / times.best(each):,.0f}" for each in contestants)
            lines.append([name, *rates, f"{1 / times.ratio('file', 'array'):.0%}"])
    table = format_table(["learner", "rows/s, file", "rows/s, array", "file / array"], lines)
    return f"One row after the other, {n_rows:,} rows, up to {DICTIONARY} functions.\n{table}"
