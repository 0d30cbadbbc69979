"""Forest cover type, class 2 against the rest: basis of 500 on 500 000 rows, basis of 2000 on 50 000."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline

from benchmarks.clock import race
from benchmarks.limits import Rates, measure_rates
from benchmarks.memory import peak_megabytes
from mercer import NystromRegressor
from mercer.datasets import load_forest
from mercer.kernels import Gaussian
from mercer.reports.table import format_table

N_TRAIN, RELATIVE_NOISE = 500_000, 1e-5


@dataclass(frozen=True)
class Split:
    """Standardised rows and targets of ±1, shuffled."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any


@cache
def split(n_train: int = N_TRAIN) -> Split:
    """Shuffle, take 500 000 rows to train and 81 012 to test, standardise by the training rows, keep n_train."""
    X, y = load_forest()
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order].astype(np.float64), np.where(y[order] == 2, 1.0, -1.0)
    mean, scale = X[:N_TRAIN].mean(axis=0), X[:N_TRAIN].std(axis=0)
    scale[scale == 0] = 1.0
    X = (X - mean) / scale
    return Split(X[:n_train], y[:n_train], X[N_TRAIN:], y[N_TRAIN:])


def ours(n: int, m: int, *, gamma: float = 1 / 54) -> NystromRegressor:
    """Gaussian kernel exp(-gamma r²)."""
    kernel = Gaussian(length_scale=np.sqrt(0.5 / gamma))
    return NystromRegressor(kernel, n_basis=m, noise=n * RELATIVE_NOISE, random_state=0, intercept=False)


def peer(n: int, m: int) -> Pipeline:
    """Return the same model by scikit-learn; no intercept, which is the faster case for it too."""
    features = Nystroem(gamma=1 / 54, n_components=m, random_state=0)
    return make_pipeline(features, Ridge(alpha=n * RELATIVE_NOISE, fit_intercept=False))


def error(model: Any, data: Split) -> float:
    """Share of test rows on the wrong side, in percent."""
    return float(100 * np.mean(np.sign(model.predict(data.X_test)) != data.y_test))


def _fit_for_memory(data: Split) -> None:
    ours(N_TRAIN, 500).fit(data.X, data.y)


def _prepare_for_memory() -> Split:
    data = split()
    ours(1000, 50).fit(data.X[:1000], data.y[:1000])  # loads libraries and compiles
    return data


def report(rounds: int) -> str:
    """Run all and describe the results."""
    data = split()
    ours(1000, 50).fit(data.X[:1000], data.y[:1000])
    rates = measure_rates(d=54, m=500)
    return "\n\n".join([_describe(rates), _large(data, rates, rounds), _wide(rounds, rates), _narrow(data, rounds)])


def _describe(rates: Rates) -> str:
    return (
        f"Rates of this machine, {rates.threads} threads together: dsyrk {rates.syrk / 1e9:.0f} GFlop/s, "
        f"dgemm {rates.gemm / 1e9:.0f} GFlop/s, exp {rates.exp / 1e9:.2f} G/s "
        f"(NumPy's {rates.numpy_exp / 1e9:.2f} G/s)."
    )


def _large(data: Split, rates: Rates, rounds: int) -> str:
    models = {"mercer": ours(N_TRAIN, 500), "scikit-learn": peer(N_TRAIN, 500)}
    times = race({name: lambda model=model: model.fit(data.X, data.y) for name, model in models.items()}, rounds)
    limit = rates.fit_limit(N_TRAIN, 54, 500)
    single = ours(N_TRAIN, 500)
    X32 = data.X.astype(np.float32)
    times32 = race({"float32": lambda: single.fit(X32, data.y)}, rounds)
    table = format_table(
        ["n = 500 000, d = 54, m = 500", "fit s (best)", "test error %"],
        [
            ["mercer, float64", times.best("mercer"), error(models["mercer"], data)],
            ["mercer, float32 rows", times32.best("float32"), error(single, data)],
            ["scikit-learn Nystroem + Ridge, float64", times.best("scikit-learn"), error(models["scikit-learn"], data)],
            ["limit by the rates above", limit, "-"],
        ],
    )
    memory = peak_megabytes(_prepare_for_memory, _fit_for_memory)
    return (
        f"{table}\n\n"
        f"scikit-learn / mercer: {times.ratio('scikit-learn', 'mercer'):.1f} (median of {rounds} rounds); "
        f"mercer reaches {100 * limit / times.best('mercer'):.0f} % of the limit; "
        f"peak memory beyond the data {memory:.0f} MB."
    )


def _wide(rounds: int, rates: Rates) -> str:
    n, m = 50_000, 2000
    data = split(n)
    models = {"mercer": ours(n, m), "scikit-learn": peer(n, m)}
    fits = race({name: lambda model=model: model.fit(data.X, data.y) for name, model in models.items()}, 1)
    predictions = race({name: lambda model=model: model.predict(data.X_test) for name, model in models.items()}, rounds)
    limit = rates.predict_limit(len(data.X_test), 54, m)
    rows = [[name, fits.best(name), predictions.best(name), error(model, data)] for name, model in models.items()]
    table = format_table(["n = 50 000, d = 54, m = 2000", "fit s", "predict 81 012 rows s", "test error %"], rows)
    return (
        f"{table}\n\nscikit-learn / mercer, prediction: {predictions.ratio('scikit-learn', 'mercer'):.1f}; "
        f"mercer reaches {100 * limit / predictions.best('mercer'):.0f} % of the limit ({limit:.2f} s)."
    )


def _narrow(data: Split, rounds: int) -> str:
    models = {"wide": ours(N_TRAIN, 500), "narrow": ours(N_TRAIN, 500, gamma=3.0)}
    times = race({name: lambda model=model: model.fit(data.X, data.y) for name, model in models.items()}, rounds)
    return f"exp(-3 r²) takes {times.ratio('narrow', 'wide'):.2f} times as long as exp(-r²/54): no subnormal numbers."
