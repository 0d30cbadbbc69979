r"""Ridge regression on whitened features, from its statistics alone.

With features :math:`v(x) \in R^r` of unit prior covariance, and sums over the rows (weighted by :math:`\omega_i`)
:math:`A = \sum\omega vv^\top`, :math:`c = \sum\omega vy`, the weights are :math:`u = (A + \lambda I)^{-1}c`, and
:math:`\lambda\,v^\top(A+\lambda I)^{-1}v` is their share of the predictive variance. An intercept without penalty is
the same after centring features and targets.

==============  ==================================================  ==============
symbol          code                                                shape
==============  ==================================================  ==============
A               ``gram``                                            (r, r)
[c, Σωv]        ``cross``: the last column belongs to the constant  (r, p+1)
[y, 1]ᵀω[y, 1]  ``moments``                                         (p+1, p+1)
λ               ``noise``                                           scalar
==============  ==================================================  ==============
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.linalg import eigh, lapack
from scipy.optimize import brentq, minimize_scalar

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_columns, check_shape, need
from mercer._typing import FloatArray

Choice = Literal["auto", "gcv", "loo"]  # of the noise

_GRID = np.logspace(-14, 3, 69)  # candidate noises relative to the largest eigenvalue of A
# Candidate noises relative to the mean of |v|²: with less, rounding decides; with more, features do not matter.
_LIKELY_GRID = np.logspace(-8, 6, 57)
_RESIDUAL_ROUNDING = 64 * np.finfo(np.float64).eps  # of a sum of squared residuals, relative to that of the targets
_SMALL_NOISE = 1e4  # times the rounding of the eigenvalues: below, that rounding is a visible share of the noise
_TIE = 1 + 1e-6  # scores within this factor are equal
_WORST = 1e150  # stands for infinity, with which minimisers do not work


@stored
@dataclass(frozen=True)
class RidgeSolution:
    """Weights on the features, and what the variance needs.

    The share of the variance is ``sum((root @ (v - mean))**2) + constant``.
    """

    weights: FloatArray  # (r, p)
    intercept: FloatArray  # (p,)
    root: FloatArray  # (r, r)
    mean: FloatArray  # (r,)
    constant: float
    noise: float
    has_intercept: bool
    scale: Sometimes[FloatArray | None] = None  # (p,): σ, the likeliest standard deviation of the prior

    def check_stored(self) -> None:
        """Refuse parts of different sizes."""
        r = len(self.mean)
        check_columns(self.weights, r, "weights")
        check_shape(self.mean, (r,), "means of features")
        check_shape(self.intercept, (self.weights.shape[1],), "the intercept")
        need(self.root.ndim == 2 and self.root.shape[1] == r, "the root of a solution does not fit its weights.")

    def shifted_intercept(self, target_shift: FloatArray) -> FloatArray:
        """Intercept for targets from which a shift was taken before they were summed."""
        return self.intercept + target_shift if self.has_intercept else self.intercept


@dataclass(frozen=True)
class RidgeProblem:
    """The statistics, centred if there is an intercept."""

    gram: FloatArray  # (r, r)
    cross: FloatArray  # (r, p)
    squares: FloatArray  # (p,): yᵀωy
    mean: FloatArray  # (r,)
    target_mean: FloatArray  # (p,)
    total_weight: float
    n_targets: float  # how many targets there are, for the likelihood: a row that counts twice has two
    intercept: bool
    rounding: float  # of the eigenvalues of the Gram matrix, which centring does not make smaller

    @classmethod
    def from_sums(
        cls, *, gram: FloatArray, cross: FloatArray, moments: FloatArray, n_targets: float, intercept: bool
    ) -> RidgeProblem:
        """Take [y, 1]-augmented sums apart, and centre them for an intercept."""
        total = float(moments[-1, -1])
        rounding = len(gram) * np.finfo(np.float64).eps * float(np.trace(gram))
        squares = np.diagonal(moments)[:-1]
        if not intercept or total <= 0:
            zeros = np.zeros(len(gram)), np.zeros(len(squares))
            return cls(gram, cross[:, :-1], squares, *zeros, total, n_targets, intercept, rounding)
        mean, target_mean = cross[:, -1] / total, moments[:-1, -1] / total
        gram, cross = gram - total * np.outer(mean, mean), cross[:, :-1] - total * np.outer(mean, target_mean)
        squares = np.maximum(squares - total * target_mean**2, 0.0)
        return cls(gram, cross, squares, mean, target_mean, total, n_targets, intercept, rounding)

    def solve(self, noise: float) -> RidgeSolution:
        """Solve for one noise by Cholesky; by eigenvalues where A + λI is near singular."""
        if self.is_nearly_singular(noise):
            return self.path().solve(noise)
        size = len(self.gram)
        shifted = np.array(self.gram, order="F")  # factored and inverted in its own memory
        shifted[np.diag_indices(size)] += noise
        lost = size * np.finfo(np.float64).eps * np.diagonal(shifted)  # each pivot beside its own diagonal entry
        lower, info = lapack.dpotrf(shifted, lower=1, clean=1, overwrite_a=1)
        if info or np.any(np.diagonal(lower) ** 2 <= lost):
            return self.path().solve(noise)
        weights, _ = lapack.dpotrs(lower, self.cross, lower=1)
        root, _ = lapack.dtrtri(lower, lower=1, overwrite_c=1)
        root *= np.sqrt(noise)
        return self.solution(weights, root, noise)

    def is_nearly_singular(self, noise: float) -> bool:
        """Whether rounding of the eigenvalues of A is a visible share of the noise."""
        return bool(noise <= _SMALL_NOISE * self.rounding)

    def path(self) -> RidgePath:
        """Factor once, for solutions at any noise."""
        eigenvalues, eigenvectors = eigh(self.gram, check_finite=False, driver="evd")
        projections = eigenvectors.T @ self.cross
        # q² ≤ θ|y|²: where θ is rounding, so is q, and dividing it by a small noise would magnify it
        lost = eigenvalues <= self.rounding
        eigenvalues[lost], projections[lost] = 0.0, 0.0
        return RidgePath(self, eigenvalues, eigenvectors, projections)

    @classmethod
    def path_of_covariance(
        cls, matrix: FloatArray, targets: FloatArray, weights: FloatArray, *, n_targets: float, intercept: bool
    ) -> RidgePath:
        """The path of a model whose prior covariance K (n, n) is given: features V with VVᵀ = K, of any kind.

        Cost: the eigenvalues and eigenvectors of an n × n matrix.
        """
        root = np.sqrt(weights)
        scaled, right = root[:, np.newaxis] * matrix * root, root[:, np.newaxis] * targets
        total = float(np.sum(weights))
        if intercept:  # what is left of K and y beside the constant, whose direction is √ω
            unit = root / np.sqrt(total)
            right = right - np.outer(unit, unit @ right)
            product = scaled @ unit
            cross = np.outer(unit, product)
            scaled = scaled - cross - cross.T + np.outer(unit, unit) * (unit @ product)
        size, p = right.shape
        problem = cls(
            gram=scaled, cross=right, squares=np.sum(right**2, axis=0), mean=np.zeros(size), target_mean=np.zeros(p),
            total_weight=total, n_targets=n_targets, intercept=intercept,
            rounding=size * np.finfo(np.float64).eps * float(np.sum(np.abs(np.diagonal(scaled)))),
        )  # fmt: skip
        path = problem.path()
        # √K in place of V: its products with y are those of the eigenvectors, times √θ
        return replace(path, projections=np.sqrt(path.eigenvalues)[:, np.newaxis] * path.projections)

    @property
    def has_intercept(self) -> bool:
        """Whether there is an intercept, and something to find it from."""
        return self.intercept and self.total_weight > 0

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the targets: one less for an intercept."""
        return self.n_targets - self.has_intercept

    def solution(self, weights: FloatArray, root: FloatArray, noise: float) -> RidgeSolution:
        """The solution of these weights and this root."""
        intercept = self.target_mean - self.mean @ weights
        constant = noise / self.total_weight if self.has_intercept else 0.0
        scale = self._scale(weights, noise)
        return RidgeSolution(weights, intercept, root, self.mean, constant, noise, self.has_intercept, scale)

    def _scale(self, weights: FloatArray, noise: float) -> FloatArray:
        """σ (p,), where σ² = yᵀ(VVᵀ + λW⁻¹)⁻¹y/n."""
        # yᵀ(VVᵀ + λW⁻¹)⁻¹y = (yᵀWy - cᵀu)/λ, and at least |u|²
        if self.freedom < 1:
            return np.ones(weights.shape[1])  # no targets to tell
        squares = np.sum(weights**2, axis=0)
        if noise > 0:
            squares = np.maximum(squares, (self.squares - np.sum(self.cross * weights, axis=0)) / noise)
        return np.asarray(np.sqrt(squares / self.freedom))


def profiled_log_likelihood(scale: FloatArray, log_determinant: float, freedom: float) -> float:
    r"""Log density of targets under :math:`N(0, \sigma^2 M)`, each output at its best σ, summed over the outputs.

    :math:`-\tfrac12(\log|M| + n\log 2\pi e\sigma^2)`, as :math:`y^\top M^{-1}y = n\sigma^2` at the best σ. With an
    intercept, integrated over its flat prior: n is one less, and :math:`\log 1^\top M^{-1}1` is in the determinant.
    Constant outputs, whose σ is 0, are left out.
    """
    used = scale[scale > 0]
    return float(-0.5 * np.sum(log_determinant + freedom * (np.log(2.0 * np.pi * np.e) + 2.0 * np.log(used))))


@dataclass(frozen=True)
class RidgePath:
    """One eigendecomposition A = QΘQᵀ, which serves every noise."""

    problem: RidgeProblem
    eigenvalues: FloatArray  # (r,)
    eigenvectors: FloatArray  # (r, r)
    projections: FloatArray  # (r, p): Qᵀc

    def solve(self, noise: float) -> RidgeSolution:
        """u = Q (Θ + λ)⁻¹ Qᵀc; directions without data, where Θ + λ vanishes, keep their prior."""
        inverse = self.inverse(noise)
        weights = self.eigenvectors @ (inverse[:, np.newaxis] * self.projections)
        share = np.where(inverse > 0, noise * inverse, 1.0)
        return self.problem.solution(weights, np.sqrt(share)[:, np.newaxis] * self.eigenvectors.T, noise)

    def inverse(self, noise: float) -> FloatArray:
        """(Θ + λ)⁻¹, zero where it vanishes to rounding."""
        shifted = self.eigenvalues + noise
        known = shifted > self.problem.rounding
        return np.asarray(np.where(known, 1.0 / np.where(known, shifted, 1.0), 0.0))

    def degrees_of_freedom(self, noise: float) -> float:
        """Trace of the smoother: Σ θ/(θ + λ), and one for an intercept."""
        theta = self.eigenvalues[self.eigenvalues > 0]
        return float(np.sum(theta / (theta + noise)) + self.problem.intercept)

    def residual_share(self, noise: float) -> FloatArray:
        """Share of each output's sum of squares that the model leaves, from the statistics alone."""
        scale = np.sqrt(self.problem.squares)
        used, known = scale > 0, self.eigenvalues > 0
        theta = self.eigenvalues[known, np.newaxis]
        # |y|² - Σ q²/θ is left whatever the noise; each direction adds its q²/θ, shrunk by (λ/(θ + λ))²
        explained = (self.projections[np.ix_(known, used)] / scale[used]) ** 2 / theta
        never = 1.0 - np.sum(explained, axis=0)
        never[never < _RESIDUAL_ROUNDING] = 0.0
        return np.asarray(never + np.sum(explained * (noise / (theta + noise)) ** 2, axis=0))

    def gcv(self, noise: float) -> float:
        """Generalised cross-validation: mean squared residual over (1 - dof/n)², summed over the outputs."""
        inflation, used = self._inflation(noise), self.problem.squares > 0
        if not np.isfinite(inflation):
            return float("inf")
        left = np.sum(self.residual_share(noise) * self.problem.squares[used])
        return float(left / self.problem.total_weight * inflation)

    def log_likelihood(self, noise: float) -> float:
        r"""Log marginal likelihood of the targets under σ²(VVᵀ + λW⁻¹), at the best σ of each output.

        :math:`-\tfrac n2\log\frac{2\pi e\,q}{n} - \tfrac12\bigl(\sum_i\log(1 + \theta_i/\lambda) + n\log\lambda\bigr)`,
        with :math:`q = y^\top(VV^\top + \lambda W^{-1})^{-1}y`, summed over the outputs; an intercept takes one
        degree of freedom from n. Outputs that are constant are left out.
        """
        return float(self._log_likelihoods(np.array([noise]))[0])

    def _log_likelihoods(self, noises: FloatArray) -> FloatArray:
        n, (theta, never, explained) = self.problem.freedom, self._explained
        shifted = theta + noises[:, np.newaxis]
        determinants = np.sum(np.log1p(theta / noises[:, np.newaxis]), axis=1) + n * np.log(noises)
        # q = ρ/λ + Σ b²/(θ(θ + λ))
        q = never / noises[:, np.newaxis] + (1.0 / shifted) @ explained
        return np.asarray(np.sum(-n / 2 * np.log(2 * np.pi * np.e * q / n) - determinants[:, np.newaxis] / 2, axis=1))

    def _slope(self, log_noise: float) -> float:
        """Derivative of the log-likelihood by log λ."""
        n, noise = self.problem.freedom, float(np.exp(log_noise))
        theta, never, explained = self._explained
        share = 1.0 / (theta + noise)
        # q, and -λ dq/dλ
        q = never / noise + share @ explained
        falls = never / noise + noise * (share**2 @ explained)
        return float(np.sum(n / 2 * falls / q - (n - theta @ share) / 2))

    @cached_property
    def _explained(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """θ > 0; and of the outputs that are not constant: ρ, what no weights explain, and b²/θ."""
        used, known = self.problem.squares > 0, self.eigenvalues > 0
        theta, squares = self.eigenvalues[known], self.problem.squares[used]
        explained = self.projections[np.ix_(known, used)] ** 2 / theta[:, np.newaxis]
        return theta, np.maximum(squares - np.sum(explained, axis=0), _RESIDUAL_ROUNDING * squares), explained

    def likeliest_noise(self, left_out: LeftOut | None) -> float:
        """The noise of the largest marginal likelihood; 1 where it does not depend on it.

        A few outlying rows can make a noise likely with which rows that are left out are predicted worse than by the
        mean. Then it is the noise of the least leave-one-out error.
        """
        grid = self._grid()
        if grid is None:
            return 1.0
        best = int(np.argmax(self._log_likelihoods(grid)))
        noise, ends = float(grid[best]), np.log(grid[[max(best - 1, 0), min(best + 1, len(grid) - 1)]])
        if self._slope(ends[0]) > 0 > self._slope(ends[1]):  # not at an end of the grid, nor without any influence
            noise = float(np.exp(brentq(self._slope, *ends, xtol=1e-14)))
        return noise if left_out is None or left_out.error(noise) <= 1.0 else left_out.best_noise()

    def _grid(self) -> FloatArray | None:
        """Noises to begin with; None if nothing depends on them."""
        problem = self.problem
        unit = float(np.sum(self.eigenvalues)) / problem.n_targets if problem.n_targets > 0 else 0.0
        known = unit > 0 and problem.freedom > 0 and np.any(problem.squares > 0)
        return likely_noises(unit) if known else None

    def least(self, score: Callable[[float], float]) -> float:
        """The noise of the least score: the best of a grid, refined."""
        noises = self._grid()
        if noises is None:
            return 1.0
        grid, scores = np.log(noises), [score(float(noise)) for noise in noises]
        best = int(np.argmin(scores))
        around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        refined = minimize_scalar(
            lambda point: score(float(np.exp(point))), bounds=around, method="bounded", options={"xatol": 1e-9}
        )
        return float(np.exp(refined.x if refined.fun <= scores[best] else grid[best]))

    def _score(self, noise: float) -> float:
        """GCV with each output relative to its variance, and with the rounding of the residuals added.

        Near interpolation that rounding is all that is left, and must not choose.
        """
        inflation = min(self._inflation(noise), _WORST)
        return float(np.sum(self.residual_share(noise) + _RESIDUAL_ROUNDING) * inflation)

    def _inflation(self, noise: float) -> float:
        n, freedom = self.problem.n_targets, self.degrees_of_freedom(noise)
        return float("inf") if freedom >= n * (1 - 1e-12) else 1 / (1 - freedom / n) ** 2

    def best_noise(self) -> float:
        """The largest noise whose GCV is the least, to one part in a million: flat minima have one answer."""
        scale = float(np.max(self.eigenvalues, initial=0.0))
        if scale == 0.0:
            return 1.0  # the features are constant: every noise gives the same model
        grid = np.log(_GRID * scale)
        scores = np.array([self._score(np.exp(point)) for point in grid])
        best = int(np.argmin(scores))
        if self._inflation(np.exp(grid[best])) >= _WORST:
            return float(np.exp(grid[-1]))  # as many degrees of freedom as rows, whatever the noise
        around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        refined = minimize_scalar(lambda point: self._score(np.exp(point)), bounds=around, method="bounded")
        lowest = min(float(refined.fun), float(scores[best]))
        within = np.flatnonzero(scores <= lowest * _TIE)
        left = max(float(refined.x) if refined.fun <= lowest * _TIE else -np.inf, *grid[within], -np.inf)
        right = grid[grid > left]
        if len(right) == 0:
            return float(np.exp(left))
        return float(
            np.exp(brentq(lambda point: self._score(np.exp(point)) - lowest * _TIE, left, right[0], xtol=1e-12))
        )


def likely_noises(unit: float) -> FloatArray:
    """Noises among which the best may be, for features whose mean square is ``unit``."""
    return np.asarray(_LIKELY_GRID * (unit if unit > 0 else 1.0))


class LeftOut:
    """Leave-one-out errors of rows that were summed, at any noise: features (k, r), targets (k, p), weights (k,).

    ``parts`` (k,) are what is left out of the weights.
    """

    def __init__(
        self, path: RidgePath, features: FloatArray, targets: FloatArray, weights: FloatArray, parts: FloatArray
    ) -> None:
        self._set(path, (features - path.problem.mean) @ path.eigenvectors, targets, weights, parts)

    @classmethod
    def of_covariance(cls, path: RidgePath, targets: FloatArray, weights: FloatArray, parts: FloatArray) -> LeftOut:
        """Of all rows of a path that was made of a covariance."""
        made: LeftOut = object.__new__(cls)
        # rows of √ω⁻¹ Q√θ are features: their inner products are those of K
        rotated = path.eigenvectors * np.sqrt(path.eigenvalues) / np.sqrt(weights)[:, np.newaxis]
        mean = np.average(targets, axis=0, weights=weights) if path.problem.intercept else 0.0
        made._set(path, rotated, targets - mean, weights, parts)
        return made

    def _set(
        self, path: RidgePath, rotated: FloatArray, targets: FloatArray, weights: FloatArray, parts: FloatArray
    ) -> None:
        problem = path.problem
        self._path, self._weights, self._parts, self._rotated = path, weights, parts, rotated
        self._squares = self._rotated**2
        self._constant = 1.0 / problem.total_weight if problem.has_intercept else 0.0
        centred = targets - problem.target_mean
        spread = np.sqrt(
            np.average((targets - np.average(targets, axis=0, weights=weights)) ** 2, axis=0, weights=weights)
        )
        self._used = spread > 0
        self._targets = centred[:, self._used] / spread[self._used]
        self._projections = path.projections[:, self._used] / spread[self._used]

    def error(self, noise: float) -> float:
        """Mean squared error, in units of that of the mean, averaged over the outputs that are not constant."""
        inverse = self._path.inverse(noise)
        leverage = self._parts * (self._squares @ inverse + self._constant)
        residuals = self._targets - self._rotated @ (inverse[:, np.newaxis] * self._projections)
        residuals /= np.maximum(1.0 - leverage, np.finfo(np.float64).eps)[:, np.newaxis]
        return float(np.mean(self._weights @ residuals**2) / np.sum(self._weights)) if np.any(self._used) else 0.0

    def best_noise(self) -> float:
        """The noise of the least error."""
        return self._path.least(self.error)
