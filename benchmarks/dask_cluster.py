"""Forest cover type on a Dask cluster of this machine, its rows on the workers, against as many threads."""

from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from distributed import wait

import mercer
from benchmarks.clock import race
from benchmarks.forest import N_TRAIN, Split, ours, split
from mercer.engine import Threads, using
from mercer.reports.table import format_table

N_BASIS = 500
CASES = ((1, 16), (2, 16), (2, 64))  # workers, and chunks of rows: 14 MB or 3.4 MB each


def report(rounds: int, n_rows: int = N_TRAIN) -> str:
    """Run all and describe the results."""
    data = split(n_rows)
    rows = [_against_threads(data, n_workers, n_chunks, rounds) for n_workers, n_chunks in CASES]
    header = ["workers", "chunks", "threads s (best)", "Dask s (best)", "Dask / threads", "largest difference"]
    return (
        f"n = {n_rows:,}, d = {data.X.shape[1]}, m = {N_BASIS}, rows in chunks that the workers hold. The ratio is "
        "the median over the rounds, the difference that of predictions.\n\n" + format_table(header, rows)
    )


def _against_threads(data: Split, n_workers: int, n_chunks: int, rounds: int) -> list[Any]:
    models = {name: ours(len(data.X), N_BASIS) for name in ("threads", "Dask")}
    with mercer.local_cluster(n_workers) as client:
        client.run(mercer.warmup)
        X, y = client.persist([_chunked(each, n_chunks) for each in (data.X, data.y)])
        wait([X, y])
        contestants = {
            "threads": partial(_on_threads, models["threads"], data, n_workers),
            "Dask": partial(models["Dask"].fit, X, y),
        }
        race(contestants, 1)  # compiles
        times = race(contestants, rounds)
    apart = np.max(np.abs(models["Dask"].predict(data.X_test) - models["threads"].predict(data.X_test)))
    return [
        n_workers,
        n_chunks,
        times.best("threads"),
        times.best("Dask"),
        times.ratio("Dask", "threads"),
        float(apart),
    ]


def _on_threads(model: Any, data: Split, n_workers: int) -> None:
    with using(Threads(n_workers)):
        model.fit(data.X, data.y)


def _chunked(array: Any, n_chunks: int) -> Any:
    return da.from_array(array, chunks=(-(-len(array) // n_chunks), *array.shape[1:]))
