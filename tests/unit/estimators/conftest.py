"""Data that several files of this folder learn from."""

import numpy as np
import pytest

from tests.walks import N


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(N, 3))


@pytest.fixture
def data():
    """Rows, targets, new rows and weights."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(200, 2))
    targets = np.sin(2 * rows[:, 0]) * rows[:, 1] + 0.1 * rng.normal(size=200) + 1.0
    return rows, targets, rng.uniform(-3, 3, size=(30, 2)), rng.uniform(0.1, 3.0, size=200)


@pytest.fixture
def basis():
    """A grid: far apart, so that dense algebra without whitening is a reference to 1e-8."""
    ticks = np.linspace(-1.8, 1.8, 4)
    return np.array([[a, b] for a in ticks for b in ticks])
