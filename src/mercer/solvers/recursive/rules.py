"""When a function is added to the dictionary, and which one is removed."""

from typing import NamedTuple

import numpy as np

from mercer._stored import stored
from mercer._stored.checks import need
from mercer._typing import FloatArray, IntArray

# Scores within this share of the lowest are equal: rounding must not decide. Of equals the newest goes.
TIE = 1e-9
# A novelty below this share of k(x, x) may be rounding: it is known to about eps times the condition number of K_mm,
# which is the inverse of the novelties.
LEAST_NOVELTY = 1e-5


@stored
class Rules(NamedTuple):
    """Parameters of the recursion."""

    noise: float  # λ > 0
    max_basis: int  # most functions
    # A row becomes a function only if the squared distance of its function from the span of the others is above (and
    # above 1e-5 of k(x, x): less may be rounding).
    novelty_tol: float
    # ... and if that distance times the cost that it saves is above; None asks for novelty alone.
    gain_tol: float | None
    # φ, in (0, 1]: before each row the model goes back to its prior by the share 1 - φ; 1 never forgets.
    forgetting: float = 1.0
    # Whether the first function is the constant 1, which is not penalised and never removed. It has no prior to go back
    # to, so there is no forgetting then.
    intercept: bool = False
    # So many of the last outputs are learned but not asked: they count neither in gains nor in the cost.
    hidden: int = 0

    def check_stored(self) -> None:
        """Refuse numbers that are out of range."""
        good = self.noise > 0 and self.max_basis >= 1 and 0 < self.forgetting <= 1 and self.hidden >= 0
        good = good and self.novelty_tol >= 0 and (self.gain_tol is None or self.gain_tol >= 0)
        good = good and not (self.intercept and self.forgetting < 1)
        need(good and np.isfinite(self.noise), "the rules of a recursion are out of range.")

    def scored(self, values: FloatArray) -> FloatArray:
        """Those of the outputs, along the last axis, that count."""
        return values[..., : values.shape[-1] - self.hidden]

    def is_new(self, novelty: float, prior: float) -> bool:
        """Whether a novelty δ is enough; prior is k(x, x)."""
        return novelty > max(self.novelty_tol, LEAST_NOVELTY * prior)

    def wants(self, novelty: float, gain: float, prior: float) -> bool:
        """Whether a row of that novelty δ, which would save that cost, becomes a function; prior is k(x, x)."""
        if not self.is_new(novelty, prior):
            return False
        return self.gain_tol is None or novelty * gain > self.gain_tol


def weakest(scores: FloatArray, births: IntArray) -> int:
    """The function whose removal costs least: among equals the newest."""
    tied = np.flatnonzero(scores <= np.min(scores) * (1.0 + TIE))
    return int(tied[np.argmax(births[tied])])
