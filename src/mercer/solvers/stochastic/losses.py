r"""Losses ℓ(f, y) and their derivatives with respect to f.

=======================  =======================================  ==============================  ======================
name                     loss                                     derivative                      shape
=======================  =======================================  ==============================  ======================
``squared_error``        (f - y)²/2                               f - y
``huber``                (f - y)²/2, linear beyond δ              f - y, clipped to ±δ            δ
``epsilon_insensitive``  max(abs(f - y) - ε, 0)                   sign(f - y) where it exceeds ε  ε
``quantile``             τ(y - f) or (1 - τ)(f - y)               -τ or 1 - τ                     τ
``hinge``                max(ρ - yf, 0)                           -y where yf < ρ                 ρ
``log_loss``             log(1 + exp(-yf))                        -y/(1 + exp(yf))
``novelty``              max(ρ - f, 0)                            -1 where f < ρ
=======================  =======================================  ==============================  ======================

With a share ν, the threshold (ε or ρ) is learned too: the risk has another term, +νε or -νρ, so that in the long run
about a share ν of the rows lies beyond the threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mercer._jit import inlined
from mercer._stored import stored
from mercer._stored.checks import need
from mercer._typing import FloatArray

SQUARED, HUBER, INSENSITIVE, QUANTILE, HINGE, LOGISTIC, NOVELTY = range(7)
LOSSES = {
    "squared_error": SQUARED,
    "huber": HUBER,
    "epsilon_insensitive": INSENSITIVE,
    "quantile": QUANTILE,
    "hinge": HINGE,
    "log_loss": LOGISTIC,
    "novelty": NOVELTY,
}
_LEARNED = (INSENSITIVE, HINGE, NOVELTY)  # losses whose threshold can be learned


@stored
class Loss(NamedTuple):
    """A loss with its numbers."""

    kind: int  # of LOSSES
    shape: float = 0.0  # δ, ε, τ or ρ: where a threshold is learned, what it is at the start
    nu: float = 0.0  # ν; zero for a threshold that stays

    @classmethod
    def named(cls, name: str, shape: float = 0.0, nu: float | None = None) -> Loss:
        """The loss of that name."""
        return cls(LOSSES[name], float(shape), 0.0 if nu is None else float(nu))

    def check_stored(self) -> None:
        """Refuse a loss that does not exist."""
        good = 0 <= self.kind < len(LOSSES) and np.isfinite(self.shape) and self.shape >= 0
        need(good and 0 <= self.nu <= 1, "a loss is out of range.")
        need(self.nu == 0 or self.kind in _LEARNED, "the threshold of a loss cannot be learned.")

    @property
    def steepest(self) -> float | None:
        """The largest derivative, in absolute value; None if there is none."""
        if self.kind == SQUARED:
            return None
        if self.kind == HUBER:
            return self.shape
        return max(self.shape, 1.0 - self.shape) if self.kind == QUANTILE else 1.0

    def values(self, predictions: FloatArray, targets: FloatArray) -> FloatArray:
        """Of predictions, by a threshold that stays."""
        f, y, shape = predictions, targets, self.shape
        far = np.abs(f - y)
        found: dict[int, Callable[[], Any]] = {
            SQUARED: lambda: far**2 / 2,
            HUBER: lambda: np.where(far <= shape, far**2 / 2, shape * (far - shape / 2)),
            INSENSITIVE: lambda: np.maximum(far - shape, 0.0),
            QUANTILE: lambda: np.maximum(shape * (y - f), (shape - 1.0) * (y - f)),
            HINGE: lambda: np.maximum(shape - y * f, 0.0),
            LOGISTIC: lambda: np.logaddexp(0.0, -y * f),
            NOVELTY: lambda: np.maximum(shape - f, 0.0),
        }
        return np.asarray(found[self.kind]())

    def slopes(self, predictions: FloatArray, targets: FloatArray) -> FloatArray:
        """Derivatives by the predictions, by a threshold that stays; see ``slope`` for compiled code."""
        f, y, shape = predictions, targets, self.shape
        found: dict[int, Callable[[], Any]] = {
            SQUARED: lambda: f - y,
            HUBER: lambda: np.clip(f - y, -shape, shape),
            INSENSITIVE: lambda: np.sign(f - y) * (np.abs(f - y) > shape),
            QUANTILE: lambda: np.where(f > y, 1.0 - shape, np.where(f < y, -shape, 0.0)),
            HINGE: lambda: np.where(y * f < shape, -y, 0.0),
            LOGISTIC: lambda: -y * np.exp(-np.logaddexp(0.0, y * f)),
            NOVELTY: lambda: np.where(f < shape, -1.0, 0.0),
        }
        return np.asarray(found[self.kind]())


@inlined
def slope(kind: Any, shape: Any, f: Any, y: Any) -> Any:
    """∂ℓ/∂f."""
    result = f - y
    if kind == HUBER:
        result = min(max(result, -shape), shape)
    elif kind == INSENSITIVE:
        result = 1.0 if result > shape else (-1.0 if result < -shape else 0.0)
    elif kind == QUANTILE:
        result = 1.0 - shape if result > 0.0 else (-shape if result < 0.0 else 0.0)
    elif kind == HINGE:
        result = -y if y * f < shape else 0.0
    elif kind == LOGISTIC:
        result = -y / (1.0 + np.exp(min(y * f, 700.0)))
    elif kind == NOVELTY:
        result = -1.0 if f < shape else 0.0
    return result


@inlined
def next_threshold(kind: Any, threshold: Any, nu: Any, step: Any, found: Any) -> Any:
    """The threshold after a row whose derivative was found: a gradient step on the risk with its term of ν."""
    beyond = found != 0.0
    if kind == INSENSITIVE:  # ε: the risk has +νε, less 1 beyond
        return max(threshold + step * ((1.0 - nu) if beyond else -nu), 0.0)
    moved = threshold + step * ((nu - 1.0) if beyond else nu)  # ρ: the risk has -νρ, plus 1 beyond
    return max(moved, 0.0) if kind == HINGE else moved
