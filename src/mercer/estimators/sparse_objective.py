r"""Marginal likelihood of FITC, and the variational bound, with gradients by everything they depend on.

With whitened features V of the rows, :math:`r_i = k(x_i, x_i) - |v_i|^2`, :math:`B = I + V^\top\Lambda^{-1}V`,
:math:`c = V^\top\Lambda^{-1}y` and :math:`\mu = B^{-1}c`, the negative objective is

.. math:: F = \tfrac12\bigl(\log|B| + \log|\Lambda| + y^\top\Lambda^{-1}y - c^\top\mu + n\log 2\pi\bigr) + R,

====================  =================================  =====================================
objective             Λ_ii                               R
====================  =================================  =====================================
FITC                  λ/ω_i + r_i                        0
variational (VFE)     λ/ω_i                              Σ ω_i r_i/2λ
====================  =================================  =====================================

Its gradients by a row, with :math:`e_i = y_i - v_i^\top\mu`, are

.. math:: \partial F/\partial v_i = (B^{-1}v_i - e_i\mu)/\Lambda_{ii} - 2 h_i v_i, \qquad
          h_i = \partial F/\partial r_i,

and by :math:`K_{mm}`, through its factor, :math:`-\tfrac12 L^{-\top}(I - B^{-1} - \mu\mu^\top - 2\sum h_i v_iv_i^\top)
L^{-1}`. All outputs share the kernel: sums over outputs are understood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lapack, solve_triangular

from mercer._typing import FloatArray
from mercer.engine import (
    Executor,
    Features,
    Rows,
    add_parameters,
    conditional_statistics,
    feature_gradient,
    kernel_diagonal,
    normal_statistics,
)
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel

__all__ = ["Gradient", "SparseObjective"]

# Shares of the mean of k(z, z) that are added in turn to a singular matrix: points may meet while they are moved.
_JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6)
_SMALLEST_PIVOT = 1e-13  # of a regular matrix, beside the largest k(z, z)


@dataclass(frozen=True)
class Gradient:
    """Gradients of the negative objective."""

    points: FloatArray  # (m, d)
    parameters: dict[str, FloatArray]  # by log-parameters of the kernel
    log_noise: float


@dataclass(frozen=True)
class SparseObjective:
    """The objective for given rows.

    Attributes
    ----------
    rows : Rows (n, d)
    targets : array (n, p)
    weights : array (n,) or None
        Above zero.
    kind : {"fitc", "vfe"}
    executor : Threads
    """

    rows: Rows
    targets: FloatArray
    weights: FloatArray | None
    kind: Literal["fitc", "vfe"]
    executor: Executor

    def value(self, kernel: Kernel, points: FloatArray, noise: float) -> float:
        """F, the negative of the log-likelihood or of its bound."""
        return self._evaluate(kernel, points, noise).value

    def value_and_gradient(self, kernel: Kernel, points: FloatArray, noise: float) -> tuple[float, Gradient]:
        """F and its gradients; two passes over the rows."""
        state = self._evaluate(kernel, points, noise)
        n_outputs = self.targets.shape[1]
        lower, mu, B_inverse = state.lower, state.mu, state.B_inverse

        def pullback(V: FloatArray, prior: FloatArray, span: slice) -> tuple[FloatArray, FloatArray, float]:
            noises = self._noises(noise, span, len(V))
            residual = np.maximum(prior - _squares(V), 0.0)
            variances = noises + residual if self.kind == "fitc" else noises
            solved = V @ B_inverse
            errors = self.targets[span] - V @ mu
            leverage = n_outputs * np.einsum("ij,ij->i", solved, V)
            # ∂F/∂Λ_ii = (p/Λ - (p vᵀB⁻¹v + |e|²)/Λ²)/2
            by_variance = 0.5 * (n_outputs - (leverage + _squares(errors)) / variances) / variances
            by_residual = by_variance if self.kind == "fitc" else n_outputs / (2.0 * noises)
            by_features = (n_outputs * solved - errors @ mu.T) / variances[:, np.newaxis]
            by_features -= 2.0 * by_residual[:, np.newaxis] * V
            # ∂F/∂log λ = Σ (∂F/∂Λ_ii) λ/ω, and for the bound - Σ ω r/2λ
            by_noise = by_variance * noises
            if self.kind == "vfe":
                by_noise = by_noise - by_residual * residual
            return by_features, by_residual, float(np.sum(by_noise))

        inverse = solve_triangular(lower, np.eye(len(lower)), lower=True)
        sums = feature_gradient(
            self.rows, state.features, np.ascontiguousarray(inverse), pullback, executor=self.executor
        )
        M = n_outputs * (np.eye(len(lower)) - B_inverse) - mu @ mu.T - 2.0 * sums.weighted_gram
        by_square = -0.5 * inverse.T @ M @ inverse
        gradient = Gradient(
            points=sums.points + 2.0 * kernel.points_gradient(points, points, by_square),
            parameters=add_parameters(sums.parameters, kernel.parameter_gradient(points, points, by_square)),
            log_noise=sums.extra,
        )
        return state.value, gradient

    def _evaluate(self, kernel: Kernel, points: FloatArray, noise: float) -> _State:
        n_outputs, n = self.targets.shape[1], self.rows.n_rows
        lower = _factor(kernel(points))
        features = Features(kernel, points, lower=lower)
        if self.kind == "fitc":
            statistics = conditional_statistics(
                self.rows, self.targets, features, noise=noise, weights=self.weights, executor=self.executor
            )
            sums, log_determinant, rest = statistics.normal, statistics.log_determinant, 0.0
        else:
            sums = normal_statistics(
                self.rows, self.targets, features, weights=self.weights, executor=self.executor
            ) * (1.0 / noise)
            weights = np.ones(n) if self.weights is None else self.weights
            log_determinant = float(n * np.log(noise) - np.sum(np.log(weights)))
            prior = kernel_diagonal(self.rows, kernel, executor=self.executor)
            rest = 0.5 * max(float(weights @ prior) / noise - float(np.trace(sums.gram)), 0.0)
        B = np.eye(len(lower)) + sums.gram
        factor = cho_factor(B, lower=True)
        mu = cho_solve(factor, sums.cross[:, :-1])
        log_B = 2.0 * float(np.sum(np.log(np.diagonal(factor[0]))))
        squares = float(np.trace(sums.moments[:-1, :-1]) - np.sum(sums.cross[:, :-1] * mu))
        value = 0.5 * (n_outputs * (log_B + log_determinant + n * np.log(2.0 * np.pi)) + squares) + n_outputs * rest
        return _State(value, features, lower, mu, cho_solve(factor, np.eye(len(B))))

    def _noises(self, noise: float, span: slice, size: int) -> FloatArray:
        return np.full(size, noise) if self.weights is None else noise / self.weights[span]


@dataclass(frozen=True)
class _State:
    value: float
    features: Features
    lower: FloatArray
    mu: FloatArray
    B_inverse: FloatArray


def _factor(square: FloatArray) -> FloatArray:
    diagonal = np.diagonal(square).copy()
    for jitter in _JITTERS:
        np.fill_diagonal(square, diagonal + jitter * np.mean(diagonal))
        lower, info = lapack.dpotrf(np.asfortranarray(square), lower=1, clean=1)
        if info == 0 and np.min(np.diagonal(lower)) ** 2 > _SMALLEST_PIVOT * np.max(diagonal):
            return np.asfortranarray(lower)
    msg = "the kernel matrix of the pseudo-inputs is not positive definite. Use a kernel that is."
    raise NotPositiveDefiniteError(msg)


def _squares(matrix: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", matrix, matrix))
