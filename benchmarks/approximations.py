"""The approximations of the full kernel system, side by side: what they cost, and how good mean and error bars are."""

import time
import warnings
from typing import Any

import numpy as np

from benchmarks.clock import race
from benchmarks.limits import measure_rates
from benchmarks.memory import peak_megabytes
from mercer import CommitteeRegressor, ExactRegressor, NystromRegressor, ReducedRankRegressor
from mercer.datasets import make_waves
from mercer.exceptions import NegativeVarianceWarning
from mercer.kernels import Gaussian, Matern
from mercer.reports.table import format_table

WAVES = Gaussian(length_scale=2.0)


def report(rounds: int) -> str:
    """Run and describe the results."""
    return "\n\n".join([_speed(rounds), _growth(rounds), *_evidence()])


# -------------------------------------------------------------------------------------------------- cost


def _speed(rounds: int) -> str:
    X, y = make_waves(10_000, n_features=5, noise=0.03, random_state=0)
    options = {"n_basis": 1000, "noise": 1e-3, "random_state": 0, "intercept": False}
    lines = []
    for name, kernel in (("length scale 2, sums whitened", WAVES), ("length scale 0.7, plain sums", Gaussian(0.7))):
        models = {
            "SRM": NystromRegressor(kernel, **options),
            "FITC": CommitteeRegressor(kernel, block_size=1, **options),
            "BCM": CommitteeRegressor(kernel, block_size=1000, **options),
            "RRA": ReducedRankRegressor(kernel, **options),
        }
        models["SRM"].fit(X[:200], y[:200])  # compiles
        times = race({method: lambda model=model: model.fit(X, y) for method, model in models.items()}, rounds)
        whitened = models["SRM"].statistics_.is_whitened
        assert whitened == ("whitened" in name), "the title must tell how SRM summed"
        lines += [[method, name, times.best(method), times.ratio(method, "SRM")] for method in models]
    table = format_table(["n = 10 000, m = B = 1000", "kernel", "fit s (best)", "times SRM (median)"], lines)
    return f"{table}\n\nThe arithmetic of BCM is 4.3 times that of plain sums."


def _committee() -> CommitteeRegressor:
    return CommitteeRegressor(WAVES, n_basis=500, block_size=500, noise=1e-2, random_state=0, intercept=False)


def _hundred_thousand() -> Any:
    X, y = make_waves(100_000, n_features=10, random_state=0)
    _committee().fit(X[:1000], y[:1000])  # loads libraries and compiles
    return X, y


def _fit(data: Any) -> None:
    _committee().fit(*data)


def _growth(rounds: int) -> str:
    X, y = _hundred_thousand()
    sizes = (25_000, 50_000, 100_000)
    times = race({str(n): lambda n=n: _fit((X[:n], y[:n])) for n in sizes}, rounds)
    rates, m = measure_rates(10, 500), 500
    operations = 2 * m**2 + 2 * m * m + m**2 / 3
    rows = [
        [n, times.best(str(n)), 1e6 * times.best(str(n)) / n, 100 * n * operations / rates.syrk / times.best(str(n))]
        for n in sizes
    ]
    table = format_table(["BCM, m = B = 500", "fit s (best)", "microseconds per row", "% of the dsyrk rate"], rows)
    return f"{table}\n\nPeak memory beyond the data at 100 000 rows: {peak_megabytes(_hundred_thousand, _fit):.0f} MB."


# ----------------------------------------------------------------------------------------------- quality


def _evidence() -> list[str]:
    smooth = make_waves(9000, n_features=4, noise=0.1, random_state=1)
    return [
        _compare("a smooth function of four inputs, Gaussian kernel", *smooth, Gaussian(1.5), 0.01),
        _compare("a draw from a rough prior, two inputs, Matérn-1/2", *_rough(9000), Matern(1.0, nu=0.5), 0.01),
    ]


def _rough(n: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    X = random.uniform(0, 4, size=(n, 2))
    K = Matern(1.0, nu=0.5)(X)
    K[np.diag_indices(n)] += 0.01  # the noise
    return X, np.linalg.cholesky(K) @ random.normal(size=n)


def _compare(title: str, X: Any, y: Any, kernel: Any, noise: float) -> str:
    options = {"n_basis": 300, "noise": noise, "random_state": 0, "intercept": False}
    committee = {
        name: CommitteeRegressor(kernel, partition=name, block_size=300, **options) for name in ("random", "kmeans")
    }
    again = {"transduce": True, "batch_size": 1000}
    contestants = [
        ("exact", ExactRegressor(kernel, noise=noise, intercept=False), {}),
        ("SRM", NystromRegressor(kernel, **options), {}),
        ("FITC", CommitteeRegressor(kernel, block_size=1, **options), {}),
        ("BCM, random blocks", committee["random"], {}),
        ("BCM, k-means blocks", committee["kmeans"], {}),
        ("FITC, transduced", CommitteeRegressor(kernel, block_size=1, **options), again),
        ("BCM, random, transduced", committee["random"], again),
        ("BCM, k-means, transduced", committee["kmeans"], again),
        ("RRA", ReducedRankRegressor(kernel, **options), {}),
    ]
    n = len(X) - 1000
    rows = []
    for name, model, how in contestants:
        start = time.perf_counter()
        model.fit(X[:n], y[:n])
        fitted = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NegativeVarianceWarning)
            mean, std = model.predict(X[n:], return_std=True, **how)
        variance = std**2 + noise * model.scale_**2
        squares = (y[n:] - mean) ** 2
        known = np.isfinite(variance)
        rows.append([
            name, fitted - start, time.perf_counter() - fitted, float(np.sqrt(np.mean(squares))),
            float(np.mean(squares[known] / variance[known])) if np.all(known) else f"{np.mean(~known):.0%} negative",
            float(np.mean(squares / variance + np.log(2 * np.pi * variance)) / 2) if np.all(known) else "-",
        ])  # fmt: skip
    header = [title, "fit s", "predict s", "RMS error", "mean z² (ideal 1)", "neg. log density"]
    return format_table(header, rows) + f"\n\nn = {n}, m = B = 300, noise variance {noise}, 1000 test rows."
