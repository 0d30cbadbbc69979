"""The Gaussian kernel."""

from typing import Any, ClassVar

import numpy as np

from mercer._jit import array_at, callback
from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.kernels.closed_form import OfDistance
from mercer.kernels.profiles import CUTOFF, exp, scaled_exponent, smallest_value, vanishing
from mercer.kernels.stationary import Formula, Stationary


@vanishing
def _value(E: Any) -> Any:
    return exp(E)


@stored
class Gaussian(Stationary):
    r"""Gaussian kernel, :math:`A\exp(-|x-z|^2/(2\ell^2))`.

    Parameters
    ----------
    length_scale : float, array of one per feature, matrix, Metric, "median" or "ard", default=1.0
        ℓ. ``"median"`` takes the median distance between rows when the model is fitted. With a matrix L (d, r), r ≤ d,
        distances are :math:`|L^+(x-z)|`, so that ``diag(ℓ)`` is the array ℓ; a ``Metric`` is any linear map.
        ``"ard"`` is one for each feature, with the largest marginal likelihood of the targets (see
        docs/gaussian_processes.md); not for online learners and ``CompactRegressor``.
    amplitude : float, default=1.0
        A, the value of k(x, x): the prior variance of the function.

    Examples
    --------
    >>> from mercer.kernels import Gaussian
    >>> Gaussian(length_scale=2.0)([[0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]).round(4)
    array([[1.    , 0.6065]])
    """

    name: ClassVar[str | None] = "gaussian"

    def __init__(self, length_scale: Any = 1.0, amplitude: float = 1.0) -> None:
        self.length_scale = length_scale
        self.amplitude = amplitude

    def formula(self) -> Formula:
        """exp(E), its own derivative."""
        return Formula(_value, _value)

    def closed_form(self, n_features: int) -> OfDistance:
        """A exp(-r²/2)."""
        return OfDistance(float(self.amplitude), self.inverse_scale(n_features), "squared")

    def callback(self) -> tuple[int, FloatArray] | None:
        """A exp(E); none for a subclass with a profile of its own, nor where A is so small that products underflow."""
        changed = type(self).formula is not Gaussian.formula or type(self).profile is not Stationary.profile
        dtype = np.dtype(np.float64)
        if changed or smallest_value(dtype, float(self.amplitude)) > CUTOFF[dtype]:
            return None
        return callback(_fill_rows, "fiiififif"), np.array([float(self.amplitude)])


def _fill_rows(  # noqa: PLR0917  a callback has no tuples
    tile: Any,
    n_rows: Any,
    n_columns: Any,
    stride: Any,
    left: Any,
    width: Any,
    right: Any,
    right_stride: Any,
    parameters: Any,
) -> None:
    """The profile for compiled code; see ``Factors``. Parameters: amplitude, and the first three limits."""
    table, rows = array_at(tile, (n_rows[0], stride[0])), array_at(left, (n_rows[0], width[0]))
    points, n_features = array_at(right, (width[0], right_stride[0])), width[0] - 2
    amplitude, far, negligible, rounding = array_at(parameters, 4)
    for i in range(n_rows[0]):
        norm = -rows[i, n_features]
        if norm > far:  # as in recompute_pairs
            for j in range(n_columns[0]):
                if table[i, j] >= negligible - rounding * norm:
                    table[i, j] = scaled_exponent(rows, i, points, j)
        for j in range(n_columns[0]):
            table[i, j] = amplitude * exp(table[i, j])
