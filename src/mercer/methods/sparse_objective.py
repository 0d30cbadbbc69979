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

Its gradients by a row, with p outputs, :math:`e_i = y_i - v_i^\top\mu` and :math:`h_i = \partial F/\partial r_i`, are

.. math:: \partial F/\partial v_i = (p\,B^{-1}v_i - \mu e_i)/\Lambda_{ii} - 2 h_i v_i,

and by :math:`K_{mm}`, through its factor,
:math:`-\tfrac12 L^{-\top}(p(I - B^{-1}) - \mu\mu^\top - 2\sum h_i v_iv_i^\top)L^{-1}`. For FITC
:math:`2h_i = p/\Lambda_{ii} - w_i` with :math:`w_i = (p\,v_i^\top B^{-1}v_i + |e_i|^2)/\Lambda_{ii}^2`, for the bound
:math:`2h_i = p/\Lambda_{ii}`: the last sum is :math:`p(B - I) - \sum w_i v_iv_i^\top`, and for the bound nothing is
left to sum. (In the formula for F above, p = 1.)

In the bound a row of weight ω counts as ω rows: :math:`\log|\Lambda| = \sum\omega_i\log\lambda` and
:math:`n = \sum\omega_i`, so that a weight of 2 is the row twice. In FITC a weight divides the noise of its row.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lapack, solve_triangular

from mercer._typing import FloatArray
from mercer.engine import (
    ArrayTable,
    Executor,
    Features,
    OnFeatures,
    Pass,
    Tile,
    conditional_statistics,
    kernel_diagonal,
    normal_statistics,
)
from mercer.kernels import Kernel
from mercer.methods.frame import projection_rounding
from mercer.solvers.dense import MOVING_JITTERS, add_gram, least_jitter, mirror

_ROUNDING = 1e-5  # largest error of |v|², as a share of k(x, x), that rounding of K_mm may cause


@dataclass
class Gradient:
    """Gradients of the negative objective, summed over rows."""

    points: FloatArray  # (m, d)
    parameters: dict[str, FloatArray]  # by log-parameters of the kernel
    gram: FloatArray  # Σ w v vᵀ, from which the gradient by K_mm follows
    log_noise: float = 0.0

    def merge_in_place(self, other: Gradient) -> None:
        """Add the other's sums to one's own."""
        self.points += other.points
        self.parameters = _added(self.parameters, other.parameters)
        self.gram += other.gram
        self.log_noise += other.log_noise


@dataclass(frozen=True)
class SparseObjective:
    """The objective for given rows."""

    table: ArrayTable  # weights are above zero
    kind: Literal["fitc", "vfe"]
    executor: Executor

    def value(self, kernel: Kernel, points: FloatArray, noise: float) -> float:
        """F, the negative of the log-likelihood or of its bound."""
        return self._evaluate(kernel, points, noise).value

    def best_factor(self, kernel: Kernel, points: FloatArray, noise: float) -> tuple[float, float]:
        """The c ≥ 0 for which F with c·kernel and c·noise is least, the mean of yᵀΣ⁻¹y per output; and that F."""
        state, n_values = self._evaluate(kernel, points, noise), self.n_rows * self.table.n_outputs
        factor = state.squares / n_values
        if not factor > 0:
            return 1.0, state.value
        return factor, state.value + 0.5 * (n_values * (1.0 + float(np.log(factor))) - state.squares)

    @property
    def n_rows(self) -> float:
        """n, as log 2π is counted."""
        if self.kind == "fitc" or self.table.weights is None:
            return float(self.table.n_rows)
        return float(np.sum(self.table.weights))

    def value_and_gradient(self, kernel: Kernel, points: FloatArray, noise: float) -> tuple[float, Gradient]:
        """F and its gradients; two passes over the rows."""
        state = self._evaluate(kernel, points, noise)
        features, mu, p, identity = state.features, state.mu, self.table.n_outputs, np.eye(len(points))
        inverse = np.ascontiguousarray(solve_triangular(features.lower, identity, lower=True))
        work: _GradientPass
        if self.kind == "fitc":
            work, freedom = _FitcGradient(features, noise, mu, mu.T @ inverse, state.B_inverse, inverse), 0.0
        else:
            work = _BoundGradient(features, noise, mu, mu.T @ inverse, p * (state.B_inverse - identity) @ inverse)
            # ∂F/∂log λ = (np - p tr(I - B⁻¹) - Σ|e|²ω/λ)/2 - pR: all but the sum
            freedom = self.n_rows - len(points) + float(np.trace(state.B_inverse)) - 2.0 * state.rest
        total = self.executor.reduce(work, self.table)
        M = p * (2.0 * identity - state.B - state.B_inverse) - mu @ mu.T + total.gram
        by_points, by_parameters = kernel.gradients(points, points, -0.5 * inverse.T @ M @ inverse)
        total.points += 2.0 * by_points
        total.parameters = _added(total.parameters, by_parameters)
        total.log_noise += 0.5 * p * freedom
        return state.value, total

    def _evaluate(self, kernel: Kernel, points: FloatArray, noise: float) -> _State:
        n_outputs, n = self.table.n_outputs, self.n_rows
        features = Features(kernel, points, lower=_factor(kernel(points)))
        if self.kind == "fitc":
            statistics = conditional_statistics(self.table, features, noise=noise, executor=self.executor)
            sums, log_determinant, rest = statistics.normal, statistics.log_determinant, 0.0
        else:
            sums = normal_statistics(self.table, features, executor=self.executor) * (1.0 / noise)
            log_determinant = n * float(np.log(noise))
            prior = kernel_diagonal(self.table.rows, kernel, executor=self.executor)
            total = float(np.sum(prior) if self.table.weights is None else self.table.weights @ prior)
            rest = 0.5 * max(total / noise - float(np.trace(sums.gram)), 0.0)
        B = np.eye(len(points)) + sums.gram
        factor = cho_factor(B, lower=True)
        mu = cho_solve(factor, sums.cross[:, :-1])
        log_B = 2.0 * float(np.sum(np.log(np.diagonal(factor[0]))))
        squares = float(np.trace(sums.moments[:-1, :-1]) - np.sum(sums.cross[:, :-1] * mu))
        value = 0.5 * (n_outputs * (log_B + log_determinant + n * np.log(2.0 * np.pi)) + squares) + n_outputs * rest
        return _State(value, rest, squares, features, mu, B, cho_solve(factor, np.eye(len(B))))


class _State(NamedTuple):
    value: float
    rest: float  # R for one output
    squares: float  # yᵀΣ⁻¹y, over all outputs
    features: Features
    mu: FloatArray
    B: FloatArray
    B_inverse: FloatArray


@dataclass(frozen=True)
class _GradientPass(OnFeatures, Pass[Gradient, Gradient]):
    """Turn a tile of whitened features into gradients by its kernel values, contracted with the kernel's own."""

    noise: float
    mu: FloatArray  # (m, p)
    mu_inverse: FloatArray  # μᵀL⁻¹

    name = "gradient"

    @property
    def width(self) -> int:
        return 4 * self.features.n_features  # a few arrays of a tile's size are alive at once

    @property
    def state_numbers(self) -> int:  # type: ignore[override]
        return self.features.n_features**2

    def start(self) -> Gradient:
        m = self.features.n_features
        return Gradient(np.zeros(self.features.points.shape), {}, np.zeros((m, m)))

    def add(self, state: Gradient, tile: Tile) -> None:
        kernel, rows = self.features.kernel, np.asarray(tile.rows, dtype=np.float64)
        by_kernel, by_prior = self.pull(state, self.features.tile(rows), kernel.diagonal(rows), tile)
        by_points, by_parameters = kernel.gradients(rows, self.features.points, by_kernel)
        state.points += by_points
        state.parameters = _added(state.parameters, by_parameters, kernel.diagonal_gradient(rows, by_prior))

    @abstractmethod
    def pull(self, state: Gradient, V: FloatArray, prior: FloatArray, tile: Tile) -> tuple[FloatArray, FloatArray]:
        """∂F/∂k(x_i, z_j) and ∂F/∂k(x_i, x_i), shapes (T, m) and (T,); adds to the other sums, and may spoil V."""

    def noises(self, tile: Tile) -> FloatArray:
        """λ/ω of the rows."""
        return np.full(tile.n_rows, self.noise) if tile.weights is None else self.noise / tile.weights

    def finish(self, state: Gradient) -> Gradient:
        mirror(state.gram)
        return state


@dataclass(frozen=True)
class _FitcGradient(_GradientPass):
    B_inverse: FloatArray  # (m, m)
    inverse: FloatArray  # L⁻¹

    def pull(self, state: Gradient, V: FloatArray, prior: FloatArray, tile: Tile) -> tuple[FloatArray, FloatArray]:
        p, noises = tile.targets.shape[1], self.noises(tile)
        variances = noises + np.maximum(prior - _squares(V), 0.0)
        solved = V @ self.B_inverse
        errors = tile.targets - V @ self.mu
        explained = (p * np.einsum("ij,ij->i", solved, V) + _squares(errors)) / variances**2  # w
        twice_h = p / variances - explained
        solved *= (p / variances)[:, np.newaxis]
        solved -= twice_h[:, np.newaxis] * V
        by_kernel = solved @ self.inverse
        by_kernel -= (errors / variances[:, np.newaxis]) @ self.mu_inverse
        # ∂F/∂log λ = Σ h λ/ω
        state.log_noise += 0.5 * float(twice_h @ noises)
        V *= np.sqrt(explained)[:, np.newaxis]
        add_gram(state.gram, V)
        return by_kernel, 0.5 * twice_h


@dataclass(frozen=True)
class _BoundGradient(_GradientPass):
    B_map: FloatArray  # p (B⁻¹ - I) L⁻¹

    def pull(self, state: Gradient, V: FloatArray, prior: FloatArray, tile: Tile) -> tuple[FloatArray, FloatArray]:
        precisions = 1.0 / self.noises(tile)
        errors = tile.targets - V @ self.mu
        by_kernel = V @ self.B_map
        by_kernel -= errors @ self.mu_inverse
        by_kernel *= precisions[:, np.newaxis]
        state.log_noise -= 0.5 * float(precisions @ _squares(errors))
        return by_kernel, 0.5 * tile.targets.shape[1] * precisions


def _added(*gradients: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Gradients summed name by name."""
    names = dict.fromkeys(name for gradient in gradients for name in gradient)
    return {name: np.sum([g[name] for g in gradients if name in g], axis=0) for name in names}


def _factor(square: FloatArray) -> FloatArray:
    """L of the points' kernel matrix, with jitter where they meet."""
    diagonal = np.diagonal(square).copy()
    if not np.any(diagonal >= np.finfo(np.float64).tiny):
        return np.asfortranarray(np.eye(len(square)))  # a function that is zero everywhere

    def factor(share: float) -> FloatArray | None:
        np.fill_diagonal(square, diagonal + share * np.mean(diagonal))
        lower, info = lapack.dpotrf(np.asfortranarray(square), lower=1, clean=1)
        return np.asfortranarray(lower) if info == 0 and projection_rounding(lower) <= _ROUNDING else None

    message = "the kernel matrix of the pseudo-inputs is not positive definite. Use a kernel that is."
    return least_jitter(MOVING_JITTERS, factor, message)[0]


def _squares(matrix: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", matrix, matrix))
