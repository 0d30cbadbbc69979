"""The full kernel matrix of 5000 rows, against scikit-learn's KernelRidge."""

from typing import Any

import numpy as np
from sklearn.kernel_ridge import KernelRidge

from benchmarks.clock import race
from benchmarks.memory import peak_megabytes
from mercer import ExactRegressor
from mercer.datasets import make_waves
from mercer.kernels import Gaussian
from mercer.reports.table import format_table

N = 5000


def _ours() -> ExactRegressor:
    return ExactRegressor(Gaussian(length_scale=2.0), noise=0.01, intercept=False)


def _peer() -> KernelRidge:
    return KernelRidge(kernel="rbf", gamma=1 / 8, alpha=0.01)


def _data() -> Any:
    X, y = make_waves(N + 1000, n_features=10, random_state=0)
    _ours().fit(X[:100], y[:100])  # loads libraries and compiles
    _peer().fit(X[:100], y[:100])
    return X, y


def _fit_ours(data: Any) -> None:
    _ours().fit(data[0][:N], data[1][:N])


def _fit_peer(data: Any) -> None:
    _peer().fit(data[0][:N], data[1][:N])


def report(rounds: int) -> str:
    """Run and describe the results."""
    X, y = _data()
    models = {"mercer ExactRegressor": _ours(), "scikit-learn KernelRidge": _peer()}
    fits = race({name: lambda model=model: model.fit(X[:N], y[:N]) for name, model in models.items()}, rounds)
    difference = np.ptp([model.predict(X[N:]) for model in models.values()], axis=0).max()
    memory = {
        "mercer ExactRegressor": peak_megabytes(_data, _fit_ours),
        "scikit-learn KernelRidge": peak_megabytes(_data, _fit_peer),
    }
    table = format_table(
        [f"n = {N}, d = 10", "fit s (best)", "peak MB beyond the data"],
        [[name, fits.best(name), round(memory[name])] for name in models],
    )
    ratio = fits.ratio("scikit-learn KernelRidge", "mercer ExactRegressor")
    return (
        f"{table}\n\nscikit-learn / mercer: {ratio:.2f}; one n × n matrix is {N**2 * 8 / 2**20:.0f} MB; "
        f"predictions differ by {difference:.0e} at most."
    )
