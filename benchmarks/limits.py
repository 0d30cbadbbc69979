"""What the machine allows: its own rates of dsyrk, dgemm and exp, with one busy thread per core."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from benchmarks.clock import best_of
from mercer.engine.executors.threads import blas_threads, effective_jobs
from mercer.kernels import Gaussian
from mercer.solvers.dense import add_gram

_TILE, _REPEATS = 512, 60


@dataclass(frozen=True)
class Rates:
    """Operations per second of all cores together."""

    threads: int
    syrk: float
    gemm: float
    numpy_exp: float
    exp: float

    def fit_limit(self, n: int, d: int, m: int) -> float:
        """Seconds for n rows, d features, m basis points: the product of the exponents, their exp, the sums."""
        return 2 * n * (d + 2) * m / self.gemm + n * m / self.exp + n * m * (m + 1) / self.syrk

    def predict_limit(self, n: int, d: int, m: int) -> float:
        """Seconds for the kernel values alone; the product with the coefficients is 2·n·m operations more."""
        return 2 * n * (d + 2) * m / self.gemm + n * m / self.exp + 2 * n * m / self.gemm


def measure_rates(d: int, m: int) -> Rates:
    """Measure with the shapes of the benchmark, data in the cache."""
    threads = effective_jobs(None)
    random = np.random.default_rng(0)
    tiles = [random.random((_TILE, m)) for _ in range(threads)]
    sums = [np.zeros((m, m)) for _ in range(threads)]
    rows = random.random((_TILE, d + 2))
    points = random.random((d + 2, m))
    exponents = [-20 * random.random((_TILE, m)) for _ in range(threads)]
    out = [np.empty((_TILE, m)) for _ in range(threads)]
    values = _TILE * m
    profile = Gaussian().profile(np.dtype(np.float64))

    def exp_in_place(i: int) -> None:
        np.copyto(out[i], exponents[i])
        profile(out[i])

    def copy(i: int) -> None:
        np.copyto(out[i], exponents[i])

    with ThreadPoolExecutor(threads) as pool, blas_threads(1):
        syrk = _seconds(pool, threads, lambda i: add_gram(sums[i], tiles[i]))
        gemm = _seconds(pool, threads, lambda i: np.matmul(rows, points, out=out[i]))
        numpy_exp = _seconds(pool, threads, lambda i: np.exp(exponents[i], out=out[i]))
        exp = _seconds(pool, threads, exp_in_place) - _seconds(pool, threads, copy)
    work = threads * _REPEATS
    return Rates(
        threads=threads,
        syrk=work * values * (m + 1) / syrk,
        gemm=work * 2 * values * (d + 2) / gemm,
        numpy_exp=work * values / numpy_exp,
        exp=max(work * values / exp, work * values / numpy_exp),
    )


def _seconds(pool: ThreadPoolExecutor, threads: int, step: Callable[[int], object]) -> float:
    def loop(i: int) -> None:
        for _ in range(_REPEATS):
            step(i)

    return best_of(lambda: list(pool.map(loop, range(threads))), rounds=5)
