r"""How long the steps are, how fast the model shrinks, and what is dropped."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mercer._jit import inlined
from mercer._stored import stored
from mercer._stored.checks import need
from mercer._typing import FloatArray

CONSTANT, INVERSE_SQRT, INVERSE = range(3)
_WINDOW = 0.1  # of the rows so far, and of the terms: over so many models the mean is taken
SCHEDULES = {"constant": CONSTANT, "inverse_sqrt": INVERSE_SQRT, "inverse": INVERSE}


@stored
class Steps(NamedTuple):
    """Rates and budget; zero stands for a rate or a regularisation that is found from k(x, x) and the budget."""

    schedule: int  # of SCHEDULES
    rate: float  # η₀
    regularization: float  # λ
    intercept: bool
    max_basis: int  # most terms
    truncation: float  # the oldest terms are dropped while their share of all norms is below it
    average: bool = True  # whether the mean over late models is wanted, and not the last one

    def check_stored(self) -> None:
        """Refuse numbers that are out of range."""
        good = 0 <= self.schedule < len(SCHEDULES) and self.max_basis >= 1 and 0 <= self.truncation < 1
        good = good and 0 <= self.rate < np.inf and 0 <= self.regularization < np.inf
        need(good and self.rate * self.regularization < 1, "steps are out of range.")

    def first_rate(self, largest: float) -> float:
        """η₀, where k(x, x) goes up to that."""
        return float(first_rate(self, largest))

    def decay(self, largest: float) -> float:
        """λ, where k(x, x) goes up to that."""
        return float(regularization(self, first_rate(self, largest)))


def rates(steps: Steps, largest: float, n_rows: int) -> FloatArray:
    """η_t of rows 1 to n, where k(x, x) is always the largest."""
    start, decay, t = steps.first_rate(largest), steps.decay(largest), np.arange(1.0, n_rows + 1.0)
    by_schedule = {CONSTANT: np.ones(n_rows), INVERSE_SQRT: 1.0 / np.sqrt(t)}
    return np.asarray(start * by_schedule.get(steps.schedule, 1.0 / (1.0 + decay * start * (t - 1.0))))


@inlined
def first_rate(steps: Any, largest: Any) -> Any:
    """η₀ = 1/(2(k(x, x) + 1 + λ)), the 1 for an intercept, unless it is given: half of what the squared loss bears."""
    constant = 1.0 if steps.intercept else 0.0
    total = largest + constant + steps.regularization
    return steps.rate if steps.rate > 0.0 else 0.5 / (total if total > 0.0 else 1.0)


@inlined
def regularization(steps: Any, rate: Any) -> Any:
    """λ = 1/(η₀(m + 1)), unless it is given: after m rows of a constant rate a coefficient has shrunk to about 1/e."""
    return steps.regularization if steps.regularization > 0.0 else 1.0 / (rate * (steps.max_basis + 1.0))


@inlined
def rate_at(steps: Any, rate: Any, decay: Any, t: Any) -> Any:
    """η_t of row t = 1, 2, …: η₀, η₀/√t or η₀/(1 + λη₀(t - 1))."""
    if steps.schedule == INVERSE_SQRT:
        return rate / np.sqrt(t)
    return rate / (1.0 + decay * rate * (t - 1.0)) if steps.schedule == INVERSE else rate


@inlined
def mean_share(steps: Any, n_before: Any) -> Any:
    """Share of the newest model in the mean; 1 if there is no mean, or nothing to take it of."""
    return 1.0 / (1.0 + _WINDOW * min(n_before, steps.max_basis)) if steps.average else 1.0
