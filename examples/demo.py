"""What mercer does, in under two minutes: `make demo`.

Fits exact models and all approximations to 100 000 generated rows, prints what they cost and how well they do, and
saves a plot of fits with error bars.
"""

import time
import tracemalloc
from pathlib import Path

import numpy as np

from mercer import AutoRegressor, CommitteeRegressor, ExactRegressor, NystromRegressor
from mercer.datasets import make_bumps, make_waves
from mercer.kernels import Gaussian
from mercer.reports.plots import plot_fits
from mercer.reports.table import format_table

NOISE = 0.1  # standard deviation of the noise in the data


def measure(name, model, X, y, X_test, y_test, **options):
    """Fit, predict and report one row of the table."""
    tracemalloc.start()
    start = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    error = np.sqrt(np.mean((model.predict(X_test, **options) - y_test) ** 2))
    predicted = time.perf_counter()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    size = len(model.expansion_.points)
    return [name, len(X), size, fitted - start, predicted - fitted, float(error), round(peak)]


def set_nothing(train, test):
    """Print what comes out if nothing is set."""
    start = time.perf_counter()
    model = AutoRegressor(random_state=0).fit(*train)
    seconds = time.perf_counter() - start
    X, y = test
    error = np.sqrt(np.mean((model.predict(X) - y) ** 2))
    lower, upper = model.predict_interval(X, coverage=0.95)
    covered = np.mean((lower <= y) & (y <= upper))
    print("100 000 rows, 6 features, a smooth function plus noise of standard deviation 0.1; 2 000 other rows.\n")
    print(f"AutoRegressor(), nothing set: {model.choice_['reason']}.")
    width = np.mean(upper - lower)
    print(f"  {seconds:.0f} s; error {error:.3f}; 95 % intervals cover {covered:.1%} and are {width:.2f} wide")
    print(f"  (if the function were known, {2 * 1.96 * NOISE:.2f}).\n")


def compare_methods(train, test):
    """Print the table of methods."""
    X, y = train
    kernel = Gaussian(length_scale=2.0)
    exact = ExactRegressor(kernel, noise=NOISE**2)
    on_500 = {"n_basis": 500, "noise": NOISE**2, "random_state": 0}
    committee = CommitteeRegressor(kernel, block_size=500, **on_500)
    CommitteeRegressor(kernel, n_basis=100, noise=0.01).fit(X[:2000], y[:2000])  # compiles the kernel once
    print("With kernel and noise given; errors are root mean squares, memory is the peak beyond the data.\n")
    contestants = [
        ("exact (subsample)", exact, 1000, {}),
        ("exact (subsample)", exact, 4000, {}),
        ("Nyström", NystromRegressor(kernel, **on_500 | {"n_basis": 100}), None, {}),
        ("Nyström", NystromRegressor(kernel, **on_500), None, {}),
        ("Nyström", NystromRegressor(kernel, **on_500 | {"n_basis": 1000}), None, {}),
        ("Nyström, noise by GCV", NystromRegressor(kernel, **on_500 | {"noise": "gcv"}), None, {}),
        ("FITC", CommitteeRegressor(kernel, block_size=1, **on_500), None, {}),
        ("committee", committee, None, {}),
        ("committee, transduced", committee, None, {"transduce": True, "batch_size": 1000}),
    ]
    rows = [
        measure(name, model, train[0][:used], train[1][:used], *test, **options)
        for name, model, used, options in contestants
    ]
    print(format_table(["method", "rows", "points", "fit s", "predict s", "test error", "peak MB"], rows))


def plot_error_bars(path):
    """Save a plot of two fits with error bars."""
    X, y = make_bumps(400, noise=NOISE, random_state=1)
    grid = np.linspace(-7.5, 7.5, 600)[:, np.newaxis]
    truth = np.sin(1.4 * grid[:, 0]) * np.exp(-0.02 * grid[:, 0] ** 2) + 0.15 * grid[:, 0]
    kernel = Gaussian(length_scale=1.0)
    exact = ExactRegressor(kernel, noise=NOISE**2).fit(X, y)
    few = {"kernel": kernel, "noise": NOISE**2, "n_basis": 15, "random_state": 0}
    nystrom = NystromRegressor(**few).fit(X, y)
    committee = CommitteeRegressor(**few, block_size=50, partition="kmeans").fit(X, y)
    titles = "exact, 400 points", f"Nyström, {nystrom.rank_} points", f"committee, {committee.rank_} points"
    plot_fits(
        path,
        X=X[:, 0],
        y=y,
        grid=grid[:, 0],
        fits={
            titles[0]: exact.predict(grid, return_std=True),
            titles[1]: nystrom.predict(grid, return_std=True),
            titles[2]: committee.predict(grid, return_std=True),
        },
        truth=truth,
        points={titles[1]: nystrom.basis_[:, 0], titles[2]: committee.basis_[:, 0]},
    )
    print(f"\nA fit with error bars: {path}")


if __name__ == "__main__":
    X, y = make_waves(102_000, n_features=6, noise=NOISE, random_state=0)
    train, test = (X[:100_000], y[:100_000]), (X[100_000:], y[100_000:])
    set_nothing(train, test)
    compare_methods(train, test)
    plot_error_bars(Path("demo.png"))
