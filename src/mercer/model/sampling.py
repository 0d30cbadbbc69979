"""Draws of functions from their distribution at some rows."""

import numpy as np
from scipy.linalg import eigh

from mercer._typing import FloatArray
from mercer.exceptions import NotPositiveDefiniteError

MOST_ROWS = 4000  # whose eigenvectors take about half a minute
_ROUNDING = 1e-6  # how far below zero eigenvalues may be, relative to the prior's variance


def draw_jointly(covariance: FloatArray, normal: FloatArray, *, prior: float) -> FloatArray:
    """C^(1/2)z for standard normal z (n, k), with the symmetric root of C (n, n).

    Rounding leaves eigenvalues below zero where C is singular: they count as zero, nothing is added to others. The
    symmetric root depends on C continuously, so that a seed gives the same draws on all machines. Cost: 9n³.
    """
    values, vectors = eigh(covariance, check_finite=False)
    if not values[0] >= -_ROUNDING * prior:
        raise NotPositiveDefiniteError(
            f"the covariance at these rows has an eigenvalue of {values[0]:.3g}, below zero, beside a prior variance "
            f"of {prior:.3g}: there is no such distribution to draw from. Use a positive definite kernel and, instead "
            "of ReducedRankRegressor, NystromRegressor or CommitteeRegressor, whose error bars are proper."
        )
    roots = np.sqrt(np.maximum(values, 0.0))
    return np.asarray(vectors @ (roots[:, np.newaxis] * (vectors.T @ normal)))
