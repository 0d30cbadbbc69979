r"""Probabilities of classes from the values of an expansion, fitted to values of rows that were left out.

Two classes share one value f, and a sigmoid rises with it; theirs are -f and f (Platt 1999, but for the symmetry):

.. math:: P(c | f) = \frac{\sigma(af_c + b)}{\sum_j\sigma(af_j + b)}, \qquad \sigma(u) = \frac{1}{1 + e^{-u}}.

Of more classes each has a slope and an offset of its own, and sees the values of the others, too:

.. math:: P(c | f) \propto \exp(af_c + \sum_jf_jM_{jc} + b_c),

at the largest of the likelihood times a normal prior on M and b, so that with few rows what is shared decides; a is
that of the sigmoid. The most probable class is the one that ``predict`` decides for, that of the largest value. Of more
than two classes another one may be likelier where the values of the others, or how often classes occur, say so; it
then shares with the one of the largest value what both have: of all probabilities for which that one is the largest,
these lose the least likelihood.

==========  ==================  ========  ============================================================
symbol      code                shape     meaning
==========  ==================  ========  ============================================================
f           ``values``          (n, p)    one column for two classes, else one per class
a           slope                         a > 0
b           offset, offsets     (k,)      one of two classes, else one per class
aI + M      mixing              (k, k)    from values of classes to logarithms of their probabilities
t           ``targets``         (n, k)    Platt's targets: nearly 1 for the class of the row
ω           ``weights``         (n,)      a row of weight 2 is the row twice
==========  ==================  ========  ============================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_finite, check_shape, need
from mercer._typing import FloatArray, IntArray
from mercer.engine import number_of

_STEEPEST = 8.0  # logarithm of the largest slope: values of ±1 that are never wrong would have none
_PRECISE = 1e-9  # of the gradient, in units of the total weight
_SPREAD = 1.0  # standard deviation of the prior of slopes and offsets, as values are about ±1
_AHEAD = 1e-9  # by which the class of the largest value is likelier than one that it shares with
_MANY = 20  # classes, from which second derivatives of all slopes, k⁴ numbers, take longer than steps without them
_MOST = 50  # classes that see each other's values: of more there would be more slopes than rows


@stored
@dataclass(frozen=True)
class Probabilities:
    """How values of an expansion become probabilities of classes.

    Attributes
    ----------
    slope : float
        a.
    offset : float
        b of two classes; 0 if each has its own.
    mixing : array (k, k) or None
        aI + M of three classes and more: what the value of each (row) adds to the logarithm of each (column).
    offsets : array (k,) or None
        b of each of three classes and more.

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
    mixing: Sometimes[FloatArray | None] = None
    offsets: Sometimes[FloatArray | None] = None

    def check_stored(self) -> None:
        """Refuse what gives no probabilities."""
        need(np.isfinite(self.slope) and self.slope > 0 and np.isfinite(self.offset), "probabilities have no sigmoid.")
        need((self.mixing is None) == (self.offsets is None), "probabilities have slopes or offsets, but not both.")
        if self.mixing is not None and self.offsets is not None:
            check_shape(self.offsets, (len(self.offsets),), "offsets of probabilities")
            check_shape(self.mixing, (len(self.offsets),) * 2, "slopes of probabilities")
            check_finite(self.mixing, "slopes of probabilities")
            check_finite(self.offsets, "offsets of probabilities")

    @classmethod
    def fit(cls, values: FloatArray, codes: IntArray, weights: FloatArray, *, n_classes: int) -> Probabilities:
        """The most likely ones, given values (n, p) that do not know their own row's class."""
        # Weights that are small all over count relative to each other: a prior of one row is not to outweigh them.
        total = float(np.sum(weights))
        weights = weights * (number_of(weights, counted=True) / total)
        targets, by_class = smoothed_targets(codes, weights, n_classes), _by_class(values)
        shared = cls(*_shared(by_class, targets, weights))
        if not 2 < n_classes <= _MOST:
            return shared
        return cls(shared.slope, 0.0, *_own(shared.slope, by_class, targets, weights))

    def of(self, values: FloatArray) -> FloatArray:
        """Of each class, (n, k), from values (n, p)."""
        return np.asarray(np.exp(self.logarithms(values)))

    def logarithms(self, values: FloatArray) -> FloatArray:
        """Logarithms of the probabilities, which are finite where these are too small for a number."""
        by_class = _by_class(values)
        if self.mixing is None or self.offsets is None:
            return _normalised(log_expit(self.slope * by_class + self.offset))
        return _led(_normalised(by_class @ self.mixing + self.offsets), np.argmax(by_class, axis=1))


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


def _shared(by_class: FloatArray, targets: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """a and b of the sigmoid that all classes share."""
    total = float(np.sum(weights))

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        slope = np.exp(parameters[0])
        logits = slope * by_class + parameters[1]
        logarithms = _normalised(log_expit(logits))
        # d log σ(u)/du = σ(-u)
        pull = weights[:, np.newaxis] * (np.exp(logarithms) - targets) * expit(-logits)
        value = -float(np.sum(weights[:, np.newaxis] * targets * logarithms))
        return value / total, np.array([slope * np.sum(pull * by_class), np.sum(pull)]) / total

    bounds = [(-_STEEPEST, _STEEPEST), (-_STEEPEST, _STEEPEST)]
    found = minimize(
        objective, np.array([np.log(2.0), 0.0]), jac=True, bounds=bounds, method="L-BFGS-B",
        options={"gtol": _PRECISE, "ftol": 0.0},
    )  # fmt: skip
    return float(np.exp(found.x[0])), float(found.x[1])


def _own(slope: float, by_class: FloatArray, targets: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """aI + M and the offsets of all classes, given a: the largest of a concave function."""
    n, k = by_class.shape
    given, inputs = slope * by_class, np.column_stack([by_class, np.ones(n)])  # (n, k), (n, k + 1)
    total, prior = float(np.sum(weights)), 1.0 / _SPREAD**2

    def logarithms(own: FloatArray) -> FloatArray:
        return _normalised(given + inputs @ own.reshape(k + 1, k))

    def objective(own: FloatArray) -> tuple[float, FloatArray]:
        found = logarithms(own)
        value = -float(np.sum(weights[:, np.newaxis] * targets * found)) + prior * float(own @ own) / 2
        pull = inputs.T @ (weights[:, np.newaxis] * (np.exp(found) - targets))
        return value / total, (pull.ravel() + prior * own) / total

    def curvature(own: FloatArray) -> FloatArray:
        # Σ ω [f, 1][f, 1]ᵀ ⊗ (diag P - PPᵀ)
        shares = np.exp(logarithms(own))
        result = np.zeros((k + 1, k, k + 1, k))
        for c in range(k):
            for d in range(c + 1):
                spread = weights * shares[:, c] * ((c == d) - shares[:, d])
                result[:, c, :, d] = result[:, d, :, c] = inputs.T @ (spread[:, np.newaxis] * inputs)
        return (result.reshape(own.size, own.size) + prior * np.eye(own.size)) / total

    start, few = np.zeros((k + 1) * k), k <= _MANY
    found = (
        minimize(objective, start, jac=True, hess=curvature, method="trust-exact", options={"gtol": _PRECISE})
        if few
        else minimize(objective, start, jac=True, method="L-BFGS-B", options={"gtol": _PRECISE, "ftol": 0.0})
    )
    own = found.x.reshape(k + 1, k)
    return own[:k] + slope * np.eye(k), own[k]


def _led(logarithms: FloatArray, leaders: IntArray) -> FloatArray:
    """Logarithms of the probabilities Q of least -Σ P log Q in each row of which a given class has the largest.

    That class has the mean of its own and of those that exceed it, as these have then.
    """
    behind = np.flatnonzero(np.argmax(logarithms, axis=1) != leaders)
    shares, own = np.exp(logarithms[behind]), leaders[behind, np.newaxis]
    leading = np.take_along_axis(shares, own, axis=1)
    np.put_along_axis(shares, own, -1.0, axis=1)
    others = -np.sort(-shares, axis=1)[:, :-1]  # falling
    means = (leading + np.cumsum(others, axis=1)) / np.arange(2, others.shape[1] + 2)
    # A class joins if it exceeds the mean of those before it: after the first that does not, none does.
    joining = np.count_nonzero(others > np.column_stack([leading, means[:, :-1]]), axis=1)
    joining = np.maximum(joining, 1)  # the first exceeds it, or is equal
    mean = np.take_along_axis(means, joining[:, np.newaxis] - 1, axis=1)
    result = logarithms.copy()
    result[behind] = np.where(shares > mean, np.log(mean), logarithms[behind])
    result[behind, leaders[behind]] = np.log(mean[:, 0]) + _AHEAD
    return _normalised(result)


def _normalised(logarithms: FloatArray) -> FloatArray:
    """Logarithms of shares that sum to one in each row."""
    return np.asarray(logarithms - logsumexp(logarithms, axis=1, keepdims=True))


def _by_class(values: FloatArray) -> FloatArray:
    """A value for each class (n, k)."""
    values = np.asarray(values, dtype=np.float64)
    return np.column_stack([-values, values]) if values.shape[1] == 1 else values
