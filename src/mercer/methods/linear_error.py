r"""How well a linear regression predicts rows that are left out: a kernel that does worse has the wrong length scales.

With Q an orthonormal basis of the columns of :math:`W^{1/2}[1, X]`, the leverage of a row is :math:`h_i = |q_i|^2`, and
its residual without itself is the fitted one divided by :math:`1 - h_i`.
"""

import numpy as np

from mercer._typing import FloatArray
from mercer.engine import ArrayTable
from mercer.methods.exact import unit_targets
from mercer.model import Calibration
from mercer.model.calibration import sample_rows

_SAMPLE = 1024  # rows
_ROWS_PER_FEATURE = 5  # with fewer a linear regression is none to compare with
_RANK = 1e-10  # of a singular value, relative to the largest


def linear_error(table: ArrayTable) -> float:
    """Squared error of rows that are left out, relative to that of the mean; infinite if there are too few rows.

    Cost: that of a singular value decomposition of at most 1024 rows.
    """
    used = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights > 0)
    some = table.subset(sample_rows(used, _SAMPLE))
    if some.n_rows < _ROWS_PER_FEATURE * (table.n_features + 1):
        return np.inf
    weights = np.ones(some.n_rows) if some.weights is None else some.weights / np.max(some.weights)
    design = _design(some.rows.take(np.arange(some.n_rows)))
    roots = np.sqrt(weights)[:, np.newaxis]
    Q, values, _ = np.linalg.svd(roots * design, full_matrices=False)
    Q = Q[:, values > _RANK * values[0]]
    targets, _ = unit_targets(some.targets)
    residuals = targets - Q @ (Q.T @ (roots * targets)) / roots
    left = np.maximum(1.0 - np.sum(Q**2, axis=1), np.finfo(np.float64).eps)[:, np.newaxis]
    return Calibration(targets, residuals / left, np.ones(len(targets)), weights).relative_error()


def _design(rows: FloatArray) -> FloatArray:
    """[1, X] with columns of one size, (n, d + 1)."""
    rows = np.asarray(rows, dtype=np.float64)
    largest = np.max(np.abs(rows), axis=0)
    scaled = rows / np.where(largest > 0, largest, 1.0)
    scaled -= np.mean(scaled, axis=0)
    spread = np.std(scaled, axis=0)
    varied = spread > _RANK
    return np.column_stack([np.ones(len(rows)), scaled[:, varied] / spread[varied]])
