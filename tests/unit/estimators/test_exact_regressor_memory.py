"""What the exact model stores."""

import tracemalloc

import numpy as np

from mercer import ExactRegressor
from mercer.kernels import Gaussian


def peak_of_fit(model, rows, targets):
    tracemalloc.start()
    try:
        model.fit(rows, targets)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_cholesky_needs_one_matrix():
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(2000, 3)), rng.normal(size=2000)
    peak = peak_of_fit(ExactRegressor(Gaussian(), noise=0.1, intercept=False), rows, targets)
    # One matrix of n² float64, 32 MB; a tile or two on top, and no second matrix.
    assert 1.0 <= peak / (8 * 2000**2) < 1.3


def test_conjugate_gradients_never_store_the_matrix():
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(3000, 3)), rng.normal(size=3000)
    model = ExactRegressor(Gaussian(), noise=1.0, solver="cg", random_state=0, intercept=False)
    # n² float64 would be 72 MB; tiles of 2 MB per thread, and rank² of the preconditioner, are stored.
    assert peak_of_fit(model, rows, targets) < 20e6
