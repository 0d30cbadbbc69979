"""A model that several files of this folder save."""

import numpy as np
import pytest

from mercer import NystromRegressor


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    return X, np.sin(X[:, 0])


@pytest.fixture(scope="module")
def model(rows):
    return NystromRegressor(n_basis=7, random_state=0, noise=0.1, intercept=False).fit(*rows)
