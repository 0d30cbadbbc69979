"""The length scale that kernels have by default: the median distance of the rows."""

import numpy as np
from scipy.spatial.distance import pdist

from mercer._typing import FloatArray


def median_distance(sample: FloatArray, weights: FloatArray | None = None) -> float:
    """Weighted median of the distances between distinct rows; 1 where there are no two distinct rows.

    Pairs of equal rows do not count, so that a row of weight 2 is the same as the row given twice. Time and memory grow
    with the square of the sample: give it a thousand rows, not all.
    """
    rows = np.asarray(sample, dtype=np.float64)
    spread = np.max(np.abs(rows - rows[0]), initial=0.0)  # divide by it: squares of huge values would overflow
    if spread == 0.0 or not np.isfinite(spread):
        return 1.0
    distances = pdist(rows / spread)
    first, second = np.triu_indices(len(rows), k=1)
    pair_weights = np.ones_like(distances) if weights is None else weights[first] * weights[second]
    counted = (distances > 0) & (pair_weights > 0)
    if not np.any(counted):
        return 1.0
    order = np.argsort(distances[counted])
    cumulative = np.cumsum(pair_weights[counted][order])
    middle = np.searchsorted(cumulative, cumulative[-1] / 2)
    return float(distances[counted][order][middle] * spread)
