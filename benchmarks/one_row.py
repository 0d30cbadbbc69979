"""What it costs to predict one row: overhead, since one row is next to no arithmetic."""

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.svm import SVR

from benchmarks.clock import race
from mercer import CompactRegressor, ExactRegressor, NystromClassifier, NystromRegressor, OnlineRegressor, compress
from mercer.reports.table import format_table

N_ROWS, N_FEATURES, N_CALLS = 1000, 8, 200
SIZES = (30, 300)  # basis points


def report(rounds: int) -> str:
    """Run and describe the results."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_FEATURES))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=N_ROWS)
    models = _models(X, y)
    contestants = {name: _many(predict, X[:1]) for name, predict in models.items()}
    race(contestants, 1)  # compiles, binds points, fills caches
    times = race(contestants, rounds)
    rows = [
        [name, 1e6 * times.best(name) / N_CALLS, times.ratio(name, "scikit-learn SVR"), times.ratio(name, "mercer SVR")]
        for name in contestants
    ]
    return (
        f"One row of {N_FEATURES} features, {N_CALLS} calls of `predict`; microseconds of the fastest round, and "
        "the median ratio to an SVR's, as it is and as `compress` keeps it with all its vectors.\n\n"
        + format_table(["model", "µs", "times SVR", "times SVR in mercer"], rows)
    )


def _models(X: np.ndarray, y: np.ndarray) -> dict[str, Callable[[np.ndarray], object]]:
    machine = SVR().fit(X, y)
    models = {"scikit-learn SVR": machine.predict, "mercer SVR": compress(machine, N_ROWS).predict}
    for size in SIZES:
        options = {"n_basis": size, "random_state": 0}
        regressor = NystromRegressor(**options).fit(X, y)
        models[f"NystromRegressor, {size} points"] = regressor.predict
        models[f"the same, with its standard deviation, {size} points"] = _with_std(regressor)
        models[f"NystromClassifier, {size} points"] = NystromClassifier(**options).fit(X, y > 0).predict
        models[f"OnlineRegressor, {size} points"] = (
            OnlineRegressor(max_basis=size, random_state=0, intercept=False).fit(X, y).predict
        )
    models[f"ExactRegressor, {N_ROWS} points"] = ExactRegressor(noise=0.1, intercept=False).fit(X, y).predict
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few neighbours
        models[f"CompactRegressor, {N_ROWS} points"] = CompactRegressor(random_state=0, noise=0.1).fit(X, y).predict
    return models


def _with_std(model: NystromRegressor) -> Callable[[np.ndarray], object]:
    return lambda row: model.predict(row, return_std=True)


def _many(predict: Callable[[np.ndarray], object], row: np.ndarray) -> Callable[[], None]:
    def run() -> None:
        for _ in range(N_CALLS):
            predict(row)

    return run


if __name__ == "__main__":
    print(report(7))
