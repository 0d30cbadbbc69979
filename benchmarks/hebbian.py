"""The kernel Hebbian algorithm beside the same algorithm as a loop in NumPy, one row at a time."""

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from benchmarks.clock import race
from mercer import HebbianPCA
from mercer.kernels import Gaussian
from mercer.reports.table import format_table

N_ROWS, N_LOOP, N_FEATURES, N_COMPONENTS = 20_000, 300, 10, 10
SIZES = (100, 300, 500)
LENGTH_SCALE = 4.0


def report(rounds: int) -> str:
    """Run and describe the results."""
    X = np.random.default_rng(0).normal(size=(N_ROWS, N_FEATURES))
    table = format_table(
        ["dictionary", "mercer, µs", "NumPy, µs", "NumPy / mercer", "difference"], [_row(X, m, rounds) for m in SIZES]
    )
    return (
        f"`HebbianPCA.partial_fit` of {N_ROWS} rows of {N_FEATURES} features, {N_COMPONENTS} components, a full "
        f"dictionary, one thread; the loop learns {N_LOOP}. Microseconds per row (best), the median ratio, and the "
        f"largest difference of components after 50 rows.\n\n{table}"
    )


def _row(X: np.ndarray, m: int, rounds: int) -> list[Any]:
    options: dict[str, Any] = {"n_components": N_COMPONENTS, "max_basis": m, "novelty_tol": 0.0, "n_jobs": 1}
    model = HebbianPCA(Gaussian(LENGTH_SCALE), **options).partial_fit(X[: 2 * m])
    loop = NumpyLoop(model)
    difference = float(np.max(np.abs(loop.after(X[:50]) - _after(model, X[:50]))))
    contestants = {"mercer": lambda: model.partial_fit(X), "NumPy": lambda: loop.learn(X[:N_LOOP])}
    race(contestants, 1)
    times = race(contestants, rounds)
    ours, theirs = 1e6 * times.best("mercer") / N_ROWS, 1e6 * times.best("NumPy") / N_LOOP
    return [m, ours, theirs, times.ratio("NumPy", "mercer") * N_ROWS / N_LOOP, f"{difference:.0e}"]


class NumpyLoop:
    """The steps of a model with a full dictionary, as one would write them."""

    def __init__(self, model: HebbianPCA) -> None:
        learner = model._learner.copy()
        self._points, self._lower = learner.dictionary.points, learner.dictionary.lower
        self._W, self._mean, self._variances = learner.directions, learner.centre, learner.variances
        self._n, self._t, self._ages = learner.n_seen, learner.n_steps, learner.ages
        self._rate, self._decay = model.learning_rate, model.decay

    def learn(self, X: np.ndarray) -> None:
        """Learn rows."""
        for x in X:
            k = np.exp(-np.sum((self._points - x) ** 2, axis=1) / (2 * LENGTH_SCALE**2))
            v = solve_triangular(self._lower, k, lower=True, check_finite=False)
            self._n += 1
            self._mean = self._mean + (v - self._mean) / self._n
            u = v - self._mean
            y = self._W @ u
            self._ages = self._ages + 1
            self._variances = self._variances + 2 / (self._ages + 1) * (y**2 - self._variances)
            share = self._decay / (self._decay + self._t)
            eta = np.minimum(self._rate * share / self._variances, 1 / (u @ u))
            self._t += 1
            self._W = self._W + eta[:, np.newaxis] * (np.outer(y, u) - np.tril(np.outer(y, y)) @ self._W)

    def after(self, X: np.ndarray) -> np.ndarray:
        """Directions after some rows, of a copy."""
        other = object.__new__(NumpyLoop)
        vars(other).update(vars(self))
        other.learn(X)
        return other._W


def _after(model: HebbianPCA, X: np.ndarray) -> np.ndarray:
    learner = model._learner.copy()
    learner.learn(X, model._rules())
    return np.asarray(learner.directions)


if __name__ == "__main__":
    print(report(5))
