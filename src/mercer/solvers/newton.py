r"""Newton's method for convex functions with a piecewise linear gradient, such as squared hinge losses.

The Hessian is that of the piece in which a point lies. Near the minimum the piece stays the same, and one step of full
length ends there (Mangasarian 2002; Keerthi and DeCoste 2005); farther away a line search guards the steps. Values are
computed elsewhere: ``trial`` is the next point to evaluate, ``tell`` takes what was found there. One evaluation is
one pass over the data, and several searches share a pass. Slopes at other lengths of the step cost such a pass little:
with them, a step that is too long is followed by one of the right length.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from mercer._typing import FloatArray

_DECREASE = 1e-4  # share of what the slope promises that a step must gain (Armijo)
_FLAT = 0.1  # share of the slope at which the middle of a line is good enough, whatever the value says
_HALF = 0.5  # share of the slope that is left where a step was made longer
_LONGEST = 4.0  # times a step that goes on downhill
_MOST_CUTS = 60
# Other lengths of a step, as multiples of the tried one where it may go on, and of what is too long: where pieces are
# many, the right one may be a thousandth.
_OTHERS = 2.0 ** np.array([6, 4, 2, *range(-1, -11, -1)])
_SHORTER = 2.0 ** -np.arange(1.0, len(_OTHERS) + 1)
_INSIDE = 0.1  # of a bracket, from its ends
_SHIFTS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4)  # shares of the diagonal that rounding may ask for
_ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of values that are compared


class NewtonSearch:
    """A search for the minimum of one function of q variables.

    Attributes
    ----------
    trial : array (q,)
        The point to evaluate next.
    point : array (q,)
        The best point so far.
    direction : array (q,)
        Where ``trial`` lies from there, at ``length`` times this.
    lengths : array (k,)
        Other lengths at which slopes along this line are worth knowing.
    decrement : float
        What a step of full length from there is expected to gain, half of gᵀH⁻¹g.
    is_stuck : bool
        Whether rounding hides any further gain.
    """

    def __init__(self, start: FloatArray) -> None:
        self.trial = self.point = start
        self.decrement, self.is_stuck = np.inf, False
        self.direction, self.length, self.lengths = np.zeros_like(start), 0.0, np.zeros(len(_OTHERS))
        self._value = np.inf

    def tell(self, value: float, gradient: FloatArray, hessian: FloatArray, slopes: Iterable[float] = ()) -> bool:
        """Take what was found at the trial point, and slopes at ``lengths``; returns whether the search moved there."""
        slope = float(gradient @ self.direction) if np.isfinite(value) else np.inf
        if np.isfinite(self._value) and not self._accepts(value, slope):
            self._cut([(self.length, slope), *zip(self.lengths.tolist(), slopes, strict=False)])
            return False
        self.point, self._value = self.trial, value
        self.direction = -cho_solve(factor(hessian), gradient)
        self._slope = float(gradient @ self.direction)
        self.decrement = -self._slope / 2
        self.is_stuck = not self.decrement > _ROUNDING * abs(value)
        self._low, self._high, self._cuts = (0.0, self._slope), (np.inf, np.inf), 0
        self._try(1.0)
        return True

    def _accepts(self, value: float, slope: float) -> bool:
        if abs(slope) <= _FLAT * abs(self._slope):
            return True
        # A step may end early only where a longer one was tried, or gains little more.
        far_enough = np.isfinite(self._high[0]) or slope >= self._slope * (1 - _FLAT if self.length <= 1 else _HALF)
        return far_enough and value <= self._value + _DECREASE * self.length * self._slope

    def _cut(self, found: list[tuple[float, float]]) -> None:
        """Bracket the minimum along the line, where the slope vanishes, and go to where a secant says it is."""
        for length, slope in found:
            if slope <= 0:
                self._low = max(self._low, (length, slope))
            else:
                self._high = min(self._high, (length, slope))
        (low, falling), (high, rising) = self._low, self._high
        self._cuts += 1
        self.is_stuck = self._cuts > _MOST_CUTS
        if not np.isfinite(high):
            self._try(_LONGEST * low)
            return
        # Every other time the middle: where slopes differ by magnitudes, secants stay at one end.
        by_secant = np.isfinite(rising) and self._cuts % 2 == 1
        share = falling / (falling - rising) if by_secant else 0.5
        self._try(low + min(max(share, _INSIDE), 1 - _INSIDE) * (high - low))

    def _try(self, length: float) -> None:
        """Go on to that length, and to look at others."""
        low, high = self._low[0], self._high[0]
        if not np.isfinite(high):
            self.lengths = length * _OTHERS
        else:
            self.lengths = high * _SHORTER if low == 0 else np.linspace(low, high, len(_OTHERS) + 2)[1:-1]
        self.length, self.trial = length, self.point + length * self.direction


def factor(hessian: FloatArray) -> tuple[FloatArray, bool]:
    """A Cholesky factor of H with the least multiple of its diagonal added that rounding makes necessary."""
    diagonal = np.diagonal(hessian).copy()
    for shift in _SHIFTS:
        shifted = hessian.copy()
        shifted[np.diag_indices_from(shifted)] = diagonal * (1.0 + shift)
        try:
            found: tuple[FloatArray, bool] = cho_factor(shifted, lower=True, overwrite_a=True)
        except np.linalg.LinAlgError:
            continue
        return found
    return np.diag(np.sqrt(diagonal)), True  # of the diagonal alone, as a last resort
