"""What tests of the online learners share."""

import numpy as np

from mercer import OnlineRegressor
from mercer.kernels import Gaussian

N = 400


def make(**options):
    return OnlineRegressor(**({"kernel": Gaussian(1.0), "noise": 0.1, "max_basis": 25, "intercept": False} | options))


def close(actual, expected, tolerance=1e-8):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))
