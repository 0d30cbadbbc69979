"""The approximations from their definitions, in dense algebra over all n rows; only kernel values are mercer's.

Every method gives a joint Gaussian distribution to the targets and to the function at new inputs, and conditions on the
targets. They differ in the covariances: with Q(a, b) = K_am K_mm⁻¹ K_mb,

=========================  ================================  ==========  =======
method                     targets                           new, rows   new
=========================  ================================  ==========  =======
exact                      K + λW⁻¹                          K           K
subset of representers     Q + λW⁻¹                          Q           K
committee, FITC            Q + blocks of (K - Q) + λW⁻¹      Q           K
reduced rank               Q + λW⁻¹                          K           K
=========================  ================================  ==========  =======
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

TOLERANCE = 1e-8  # what the package promises, relative to the size of the values
EPS = float(np.finfo(np.float64).eps)

each_intercept = pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
each_weighting = pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])


def worth(weights):
    """How many targets rows of these weights are: Σω of whole numbers, else Kish's number."""
    total, counted = np.sum(weights), np.all(weights == np.round(weights))
    return total if counted else total**2 / np.sum(weights**2)


def ordinary(weights):
    """The weight of a new observation: 1 if weights are whole, else their mean."""
    return 1.0 if np.all(weights == np.round(weights)) else np.mean(weights)


def rest_without(weights, i):
    """The weights when an observation of row i is left out: one of several equal ones, or the row."""
    rest, counted = weights.copy(), np.all(weights == np.round(weights))
    rest[i] = rest[i] - 1.0 if counted else 0.0
    return rest


@dataclass(frozen=True)
class Conditioned:
    """A Gaussian process given targets, by its definition; with an intercept, a constant of infinite prior variance."""

    system: np.ndarray  # (n, n): covariance of the targets
    cross: np.ndarray  # (q, n): covariance of new values and targets
    prior: np.ndarray  # (q, q): covariance of new values
    targets: np.ndarray  # (n,) or (n, p)
    intercept: bool
    noise: float = 1.0  # λ
    weights: np.ndarray | None = None  # ω (n,)

    @property
    def n_targets(self):
        """What the rows are worth, less one for an intercept."""
        return worth(np.ones(len(self.system)) if self.weights is None else self.weights) - self.intercept

    @property
    def scale(self):
        """The likeliest σ of each output, (p,)."""
        targets = self.targets.reshape(len(self.system), -1)
        if self.n_targets < 1:
            return np.ones(targets.shape[1])
        squares = np.sum(targets * (self.precision @ targets), axis=0)  # of constant targets, zero to rounding
        return np.sqrt(np.maximum(squares, 0.0) / self.n_targets)

    @property
    def profiled_log_likelihood(self):
        """At the likeliest σ; a row of weight ω has the determinant of ω equal rows."""
        determinant = np.linalg.slogdet(self.system)[1]
        if self.intercept:
            determinant += np.log(np.sum(np.linalg.inv(self.system)))
        if self.weights is not None:
            more = worth(self.weights) - len(self.weights)
            determinant += np.sum(np.log(self.weights)) + more * np.log(self.noise)
        return -0.5 * np.sum(determinant + self.n_targets * np.log(2 * np.pi * np.e * self.scale**2))

    @cached_property
    def smoother(self):
        """The best unbiased weights H of the targets, (q, n): CM⁻¹, and rows that sum to one with an intercept."""
        inverse = np.linalg.solve(self.system, np.column_stack([self.cross.T, np.ones(len(self.system))])).T
        weights, ones = inverse[:-1], inverse[-1]
        if not self.intercept:
            return weights
        return weights + np.outer(1 - np.sum(weights, axis=1), ones / np.sum(ones))

    @property
    def mean(self):
        return self.smoother @ self.targets

    @cached_property
    def covariance(self):
        """Of the error of the mean: prior - HCᵀ - CHᵀ + HMHᵀ."""
        H, C = self.smoother, self.cross
        return self.prior - H @ C.T - C @ H.T + H @ self.system @ H.T

    @property
    def std(self):
        return np.sqrt(np.diag(self.covariance))

    @cached_property
    def precision(self):
        """M⁻¹; with an intercept without what belongs to constants, M⁻¹ - M⁻¹11ᵀM⁻¹/1ᵀM⁻¹1."""
        inverse = np.linalg.inv(self.system)
        ones = np.sum(inverse, axis=0)
        return inverse - np.outer(ones, ones) / np.sum(ones) if self.intercept else inverse

    @property
    def log_likelihood(self):
        """log N(y; 0, M), summed over outputs; with an intercept integrated over its flat prior."""
        targets = self.targets.reshape(len(self.system), -1)
        freedom, determinant = len(self.system), np.linalg.slogdet(self.system)[1]
        if self.intercept:
            freedom, determinant = freedom - 1, determinant + np.log(np.sum(np.linalg.inv(self.system)))
        squares = np.sum(targets * (self.precision @ targets))
        return -0.5 * (squares + targets.shape[1] * (determinant + freedom * np.log(2 * np.pi)))

    def rounding(self, *, cross, system):
        """What comes of errors of this size in the entries of C and M, to first order.

        With α = Py and H the smoother: of the mean δC α - H δM α; of the covariance -2HδCᵀ + HδMHᵀ (H minimises it, so
        that its own error does not count); of the log-likelihood ½(αᵀδM α - tr PδM).
        """
        alpha = np.sum(np.abs(self.precision @ self.targets.reshape(len(self.system), -1)), axis=0)
        reach = np.max(np.sum(np.abs(self.smoother), axis=1))
        covariance = 2 * cross * reach + system * reach**2
        return Rounding(
            mean=float(np.max(alpha)) * (cross + system * reach),
            covariance=covariance,
            # |√a - √b| ≤ |a - b|/√b, and ≤ √|a - b|
            std=float(min(np.sqrt(covariance), covariance / max(np.min(self.std), EPS))),
            log_likelihood=system * (np.sum(alpha**2) + len(alpha) * np.sum(np.abs(self.precision))) / 2,
        )


@dataclass(frozen=True)
class Rounding:
    """Bounds on errors of what a model says."""

    mean: float
    covariance: float
    std: float
    log_likelihood: float


def projection_rounding(kernel, basis, left, right):
    """Rounding of the entries of Q(left, right).

    With a(x) = K_mm⁻¹k_m(x), Q(x, x') = aᵀK_mm a', and errors of kernel values change it by aᵀδk' + δkᵀa' - aᵀδK a'.
    A backward stable factorisation of K_mm is exact for errors of m·eps·k.
    """
    values, vectors = np.linalg.eigh(kernel(basis))
    values = np.maximum(values, EPS * values[-1])
    largest = max(np.max(kernel.diagonal(points)) for points in (basis, left, right))
    reach = [np.max(np.sum(np.abs((kernel(x, basis) @ vectors / values) @ vectors.T), axis=1)) for x in (left, right)]
    return len(basis) * EPS * largest * (1 + reach[0]) * (1 + reach[1])


def projector(kernel, basis):
    """A function that gives V with VVᵀ = Q: eigenvectors of K_mm, without those that are rounding."""
    values, vectors = np.linalg.eigh(kernel(basis))
    kept = values > len(basis) * EPS * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    return lambda points: kernel(points, basis) @ root


def row_noises(rows, noise, weights):
    """λW⁻¹."""
    return noise * np.eye(len(rows)) if weights is None else np.diag(noise / weights)


def exact(kernel, rows, targets, new, *, noise, weights=None, intercept=False):
    system = kernel(rows) + row_noises(rows, noise, weights)
    return Conditioned(system, kernel(new, rows), kernel(new), targets, intercept, noise, weights)


def committee(kernel, basis, rows, targets, new, *, labels, noise, weights=None, intercept=False):
    """Blocks are rows of equal labels."""
    V, v = map(projector(kernel, basis), (rows, new))
    within = labels[:, np.newaxis] == labels
    residual = np.where(within, kernel(rows) - V @ V.T, 0.0)
    system = V @ V.T + residual + row_noises(rows, noise, weights)
    return Conditioned(system, v @ V.T, kernel(new), targets, intercept, noise, weights)


def fitc(kernel, basis, rows, targets, new, *, noise, weights=None, intercept=False):
    """Snelson and Ghahramani: the diagonal alone is exact."""
    V, v = map(projector(kernel, basis), (rows, new))
    diagonal = kernel.diagonal(rows) - np.sum(V**2, axis=1)
    system = V @ V.T + np.diag(diagonal) + row_noises(rows, noise, weights)
    return Conditioned(system, v @ V.T, kernel(new), targets, intercept, noise, weights)


def subset_of_representers(kernel, basis, rows, targets, new, *, noise, weights=None, intercept=False):
    V, v = map(projector(kernel, basis), (rows, new))
    return Conditioned(
        V @ V.T + row_noises(rows, noise, weights), v @ V.T, kernel(new), targets, intercept, noise, weights
    )


def reduced_rank(kernel, basis, rows, targets, new, *, noise, weights=None, intercept=False):
    V = projector(kernel, basis)(rows)
    return Conditioned(
        V @ V.T + row_noises(rows, noise, weights), kernel(new, rows), kernel(new), targets, intercept, noise, weights
    )


def assert_close(actual, expected, rounding=0.0):
    """Equal to the promised accuracy, or to the rounding that this problem cannot avoid if that is larger."""
    scale = max(1.0, np.max(np.abs(expected)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=max(TOLERANCE * scale, rounding))


def assert_close_to_largest(actual, expected, tolerance=TOLERANCE):
    """Equal within a tolerance relative to the largest entry."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


def assert_same_moments(model, expected, new, rounding):
    """Mean, standard deviation and covariance of an estimator at new inputs; spread in units of σ."""
    mean, std = predict_in_units(model, new, return_std=True)
    again, covariance = predict_in_units(model, new, return_cov=True)
    assert_close(mean, expected.mean, rounding.mean)
    assert_close(covariance, expected.covariance, rounding.covariance)
    assert_close(std, expected.std, rounding.std)
    np.testing.assert_array_equal(again, mean)


def assert_same_scale(model, expected, rounding):
    """σ of each output."""
    # The rounding of q = yᵀM⁻¹y is at most twice that of the likelihood.
    lost = 2 * rounding.log_likelihood / max(expected.n_targets, 1)
    assert_close(np.atleast_1d(model.scale_) ** 2, expected.scale**2, lost)


def predict_in_units(model, X, **flags):
    """The mean, and the standard deviation or covariance in units of σ or σ², the same for all outputs."""
    mean, spread = model.predict(X, **flags)
    power = 2 if flags.get("return_cov") else 1
    outputs = spread[..., np.newaxis] if mean.ndim == 1 else spread
    scales = np.atleast_1d(model.scale_)
    units = outputs[..., scales > 0] / scales[scales > 0] ** power  # of constant targets σ is zero
    np.testing.assert_allclose(units, np.broadcast_to(units[..., :1], units.shape), rtol=1e-12)
    return mean, units[..., 0]
