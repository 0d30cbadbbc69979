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

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, lapack
from scipy.optimize import brentq, minimize_scalar

from mercer._stored import stored
from mercer._stored.checks import check_columns, check_shape, need
from mercer._typing import FloatArray

_GRID = np.logspace(-14, 3, 69)  # candidate noises relative to the largest eigenvalue of A
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
    intercept: bool
    rounding: float  # of the eigenvalues of the Gram matrix, which centring does not make smaller

    @classmethod
    def from_sums(cls, *, gram: FloatArray, cross: FloatArray, moments: FloatArray, intercept: bool) -> RidgeProblem:
        """Take [y, 1]-augmented sums apart, and centre them for an intercept."""
        total = float(moments[-1, -1])
        rounding = len(gram) * np.finfo(np.float64).eps * float(np.trace(gram))
        squares = np.diagonal(moments)[:-1]
        if not intercept or total <= 0:
            zeros = np.zeros(len(gram)), np.zeros(len(squares))
            return cls(gram, cross[:, :-1], squares, *zeros, total, intercept, rounding)
        mean, target_mean = cross[:, -1] / total, moments[:-1, -1] / total
        gram, cross = gram - total * np.outer(mean, mean), cross[:, :-1] - total * np.outer(mean, target_mean)
        squares = np.maximum(squares - total * target_mean**2, 0.0)
        return cls(gram, cross, squares, mean, target_mean, total, intercept, rounding)

    def solve(self, noise: float) -> RidgeSolution:
        """Solve for one noise by Cholesky; by eigenvalues where A + λI is near singular."""
        if noise <= _SMALL_NOISE * self.rounding:
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
        return self._solution(weights, root, noise)

    def path(self) -> RidgePath:
        """Factor once, for solutions at any noise."""
        eigenvalues, eigenvectors = eigh(self.gram, check_finite=False, driver="evd")
        projections = eigenvectors.T @ self.cross
        # q² ≤ θ|y|²: where θ is rounding, so is q, and dividing it by a small noise would magnify it
        lost = eigenvalues <= self.rounding
        eigenvalues[lost], projections[lost] = 0.0, 0.0
        return RidgePath(self, eigenvalues, eigenvectors, projections)

    def _solution(self, weights: FloatArray, root: FloatArray, noise: float) -> RidgeSolution:
        intercept = self.target_mean - self.mean @ weights
        has_intercept = self.intercept and self.total_weight > 0  # and something to find it from
        constant = noise / self.total_weight if has_intercept else 0.0
        return RidgeSolution(weights, intercept, root, self.mean, constant, noise, has_intercept)


@dataclass(frozen=True)
class RidgePath:
    """One eigendecomposition A = QΘQᵀ, which serves every noise."""

    problem: RidgeProblem
    eigenvalues: FloatArray  # (r,)
    eigenvectors: FloatArray  # (r, r)
    projections: FloatArray  # (r, p): Qᵀc

    def solve(self, noise: float) -> RidgeSolution:
        """u = Q (Θ + λ)⁻¹ Qᵀc; directions without data, where Θ + λ vanishes, keep their prior."""
        shifted = self.eigenvalues + noise
        known = shifted > self.problem.rounding
        inverse = np.where(known, 1.0 / np.where(known, shifted, 1.0), 0.0)
        weights = self.eigenvectors @ (inverse[:, np.newaxis] * self.projections)
        share = np.where(known, noise * inverse, 1.0)
        return self.problem._solution(weights, np.sqrt(share)[:, np.newaxis] * self.eigenvectors.T, noise)

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

    def _score(self, noise: float) -> float:
        """GCV with each output relative to its variance, and with the rounding of the residuals added.

        Near interpolation that rounding is all that is left, and must not choose.
        """
        inflation = min(self._inflation(noise), _WORST)
        return float(np.sum(self.residual_share(noise) + _RESIDUAL_ROUNDING) * inflation)

    def _inflation(self, noise: float) -> float:
        n, freedom = self.problem.total_weight, self.degrees_of_freedom(noise)
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
