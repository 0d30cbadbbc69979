r"""Probabilities of classes from the values of an expansion, fitted to values of rows that were left out.

A sigmoid with two parameters, the same for all classes, is applied to the value of each class, and the results are made
to sum to one (Platt 1999, for one class against the rest):

.. math:: P(c | f) = \frac{\sigma(af_c + b)}{\sum_j\sigma(af_j + b)}, \qquad \sigma(u) = \frac{1}{1 + e^{-u}}.

Two classes share one value f: theirs are -f and f. The sigmoid rises, so the most probable class is the one that
``predict`` decides for.

==========  ==================  ========  ============================================================
symbol      code                shape     meaning
==========  ==================  ========  ============================================================
f           ``values``          (n, p)    one column for two classes, else one per class
a, b        slope, offset                 a > 0
t           ``targets``         (n, k)    Platt's targets: nearly 1 for the class of the row
ω           ``weights``         (n,)      a row of weight 2 is the row twice
==========  ==================  ========  ============================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp

from mercer._stored import stored
from mercer._stored.checks import need
from mercer._typing import FloatArray, IntArray

_STEEPEST = 8.0  # logarithm of the largest slope: values of ±1 that are never wrong would have none
_PRECISE = 1e-9  # of the gradient, in units of the total weight


@stored
@dataclass(frozen=True)
class Probabilities:
    """How values of an expansion become probabilities of classes.

    Attributes
    ----------
    slope : float
        a.
    offset : float
        b.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.model import Probabilities
    >>> Probabilities(2.0, 0.0).of(np.array([[0.0], [1.0]])).round(2)
    array([[0.5 , 0.5 ],
           [0.12, 0.88]])
    """

    slope: float
    offset: float

    def check_stored(self) -> None:
        """Refuse what gives no probabilities."""
        need(np.isfinite(self.slope) and self.slope > 0 and np.isfinite(self.offset), "probabilities have no sigmoid.")

    @classmethod
    def fit(cls, values: FloatArray, codes: IntArray, weights: FloatArray, *, n_classes: int) -> Probabilities:
        """The most likely ones, given values (n, p) that do not know their own row's class."""
        targets, by_class = smoothed_targets(codes, weights, n_classes), _by_class(values)
        total = float(np.sum(weights))

        def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
            slope = np.exp(parameters[0])
            logits = slope * by_class + parameters[1]
            logarithms = log_expit(logits)
            logarithms -= logsumexp(logarithms, axis=1, keepdims=True)
            # d log σ(u)/du = σ(-u)
            pull = weights[:, np.newaxis] * (np.exp(logarithms) - targets) * expit(-logits)
            value = -float(np.sum(weights[:, np.newaxis] * targets * logarithms))
            return value / total, np.array([slope * np.sum(pull * by_class), np.sum(pull)]) / total

        bounds = [(-_STEEPEST, _STEEPEST), (-_STEEPEST, _STEEPEST)]
        found = minimize(
            objective, np.array([np.log(2.0), 0.0]), jac=True, bounds=bounds, method="L-BFGS-B",
            options={"gtol": _PRECISE, "ftol": 0.0},
        )  # fmt: skip
        return cls(float(np.exp(found.x[0])), float(found.x[1]))

    def of(self, values: FloatArray) -> FloatArray:
        """Of each class, (n, k), from values (n, p)."""
        return np.asarray(np.exp(self.logarithms(values)))

    def logarithms(self, values: FloatArray) -> FloatArray:
        """Logarithms of the probabilities, which are finite where these are too small for a number."""
        logarithms = log_expit(self.slope * _by_class(values) + self.offset)
        return np.asarray(logarithms - logsumexp(logarithms, axis=1, keepdims=True))


def smoothed_targets(codes: IntArray, weights: FloatArray, n_classes: int) -> FloatArray:
    """Platt's targets (n, k): (N + 1)/(N + 2) for the class of the row, which has N rows.

    The others share the rest in proportion to N + 1. So no class is impossible, not even one without rows.
    """
    counts = np.bincount(codes, weights, minlength=n_classes)
    table = np.tile(counts + 1.0, (n_classes, 1))
    np.fill_diagonal(table, 0.0)
    table /= np.sum(table, axis=1, keepdims=True) * (counts[:, np.newaxis] + 2.0)
    np.fill_diagonal(table, (counts + 1.0) / (counts + 2.0))
    return np.asarray(table[codes])


def _by_class(values: FloatArray) -> FloatArray:
    """A value for each class (n, k)."""
    values = np.asarray(values, dtype=np.float64)
    return np.column_stack([-values, values]) if values.shape[1] == 1 else values
