"""A function that drifts, learned from a stream with and without forgetting: error and dictionary against time.

Run it: ``python examples/stream.py [picture]``.
"""

import sys

import numpy as np

from mercer import OnlineRegressor
from mercer.kernels import Gaussian
from mercer.reports.plots import plot_curves

N_BATCHES, BATCH = 200, 100


def batches():
    """Rows in a square; the wave over it moves, and stands still in the second quarter."""
    rng, phase = np.random.default_rng(0), 0.0
    for i in range(N_BATCHES):
        phase += 0.0 if N_BATCHES // 4 <= i < N_BATCHES // 2 else 0.04
        X = rng.uniform(-2, 2, size=(BATCH, 2))
        yield X, np.sin(2 * X[:, 0] + phase) * np.cos(X[:, 1]) + 0.1 * rng.normal(size=BATCH)


def main():
    errors, sizes = {}, {}
    for label, forgetting in (("never forgets", 1.0), ("forgetting=0.998", 0.998)):
        model = OnlineRegressor(Gaussian(1.0), noise=0.1, max_basis=60, forgetting=forgetting, record=True)
        for X, y in batches():
            model.partial_fit(X, y)
        history = model.history_
        errors[label] = (history["n_seen"], np.sqrt(history["squared_error"]))
        sizes[label] = (history["n_seen"], history["n_basis"])
        late = float(np.sqrt(np.mean(history["squared_error"][-50:])))
        print(f"{label:18s} error in the last quarter {late:.3f}, {len(model.basis_)} functions")
    if len(sys.argv) > 1:
        panels = {"error before a batch is learned (noise: 0.1)": errors, "functions": sizes}
        plot_curves(sys.argv[1], panels, xlabel="rows seen", ylabel="", scale="linear")


if __name__ == "__main__":
    main()
