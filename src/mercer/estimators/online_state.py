"""What a learner of a stream has learned, and the model that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_columns, check_finite, check_shape, need
from mercer._typing import FloatArray
from mercer.engine import ArrayRows, ArrayTable, SequentialLearner
from mercer.model import Calibration, KernelExpansion, Variance

FIRST = 128  # rows by which a median length scale is decided


@stored
@dataclass(frozen=True)
class FirstRows:
    """The rows so far, kept as long as they are too few to decide a length scale."""

    rows: FloatArray  # (k, d)
    targets: FloatArray  # (k, p)
    weights: FloatArray  # (k,)

    def check_stored(self) -> None:
        """Refuse parts of different lengths."""
        need(self.rows.ndim == 2, "the first rows are no table.")
        check_columns(self.targets, len(self.rows), "targets of the first rows")
        check_shape(self.weights, (len(self.rows),), "weights of the first rows")
        for name in ("rows", "targets", "weights"):
            check_finite(getattr(self, name), f"{name} of the first rows")
        need(np.all(self.weights > 0), "weights of the first rows are not positive.")

    @classmethod
    def nothing(cls, n_features: int, n_outputs: int) -> FirstRows:
        """No rows."""
        return cls(np.empty((0, n_features)), np.empty((0, n_outputs)), np.empty(0))

    def plus(self, table: ArrayTable) -> FirstRows:
        """With those rows of a table that have positive weight."""
        weights = np.ones(table.n_rows) if table.weights is None else table.weights
        used = np.flatnonzero(weights > 0)
        pairs = ((self.rows, table.rows.take(used)), (self.targets, table.targets[used]), (self.weights, weights[used]))
        return FirstRows(*(np.concatenate(pair).astype(np.float64, copy=False) for pair in pairs))

    def table(self) -> ArrayTable:
        """The rows as a table."""
        return ArrayTable(ArrayRows(self.rows, checked=True), self.targets, self.weights)


@stored(name="OnlineState", also=("expansion",))
@dataclass(frozen=True)
class State:
    """What was learned; replaced as a whole."""

    learner: SequentialLearner
    history: list[tuple[int, int, float]] = field(default_factory=list)  # grows, while what is learned is replaced
    first: Sometimes[FirstRows | None] = None  # while the length scale is not decided
    left_out: Sometimes[Calibration | None] = None  # of a second pass, until more rows are learned

    def check_stored(self) -> None:
        """Refuse a model of another dictionary."""
        expansion = vars(self).get("expansion")
        if expansion is not None:
            check_shape(expansion.points, self.learner.points.shape, "points of a model")
            check_shape(expansion.intercept, (self.learner.n_scored,), "the intercept of a model")
            same = expansion.kernel.equals(self.learner.kernel)
            need(same and np.array_equal(expansion.points, self.learner.points), "a model is not of its dictionary.")

    @cached_property
    def mean(self) -> KernelExpansion:
        """The model without error bars, which take a decomposition."""
        learner, recursion = self.learner, self.learner.recursion
        scored = recursion.rules.scored
        return KernelExpansion(
            kernel=learner.kernel,
            points=learner.points,
            coefficients=np.ascontiguousarray(scored(recursion.coefficients)[recursion.n_fixed :]),
            intercept=scored(learner.intercept),
            scale=None if learner.track is None else scored(learner.track.scale),
        )

    @cached_property
    def expansion(self) -> KernelExpansion:
        """The model, made when it is first asked for."""
        return replace(self.mean, variance=_variance(self.learner))

    def calibration(self, *, by_class: bool, before: int | None = None) -> Calibration | None:
        """Residuals before learning of late rows, or those of a second pass; models of earlier versions have none.

        Only rows of numbers below ``before`` count.
        """
        track, scored = self.learner.track, self.learner.recursion.rules.scored
        if self.left_out is not None or track is None:
            return self.left_out
        late = track.late(by_target=by_class, before=before)
        targets, residuals = scored(track.targets[late]), scored(track.residuals[late])
        return Calibration(targets, residuals, track.variances[late], track.weights[late])

    def variance_one(self, row: FloatArray) -> float:
        """Variance of the function at one row (1, d), in units of σ², without a decomposition."""
        learner, recursion = self.learner, self.learner.recursion
        fixed = recursion.n_fixed
        k = learner.kernel(row, learner.points)[0]
        features = np.append(np.ones(fixed), k)
        # k(x, x) - kᵀK⁻¹k + λ[1, k]P⁻¹[1, k]ᵀ
        unknown = float(learner.kernel.diagonal(row)[0] - k @ recursion.K_inverse[fixed:, fixed:] @ k)
        known = recursion.rules.noise * float(features @ recursion.P_inverse @ features)
        return max(unknown, 0.0) + max(known, 0.0)


def _variance(learner: SequentialLearner) -> Variance:
    """k(x, x) - |v|² + λ [1, k]P⁻¹[1, k]ᵀ, with k = Lv, as |Rv - c|² and a constant."""
    fixed, noise, P_inverse = learner.recursion.n_fixed, learner.recursion.rules.noise, learner.recursion.P_inverse
    m, lower = len(learner.points), np.linalg.cholesky(learner.kernel(learner.points))
    square = noise * lower.T @ P_inverse[fixed:, fixed:] @ lower
    values, vectors = np.linalg.eigh((square + square.T) / 2)
    scale = np.sqrt(np.maximum(values, 0.0))
    root = scale[:, np.newaxis] * vectors.T  # RᵀR = square
    offset, constant = np.zeros(m), 0.0
    if fixed:
        cross = vectors.T @ (noise * lower.T @ P_inverse[1:, 0])
        offset = -np.divide(cross, scale, out=np.zeros(m), where=scale > 0)
        constant = noise * float(P_inverse[0, 0]) - float(offset @ offset)
    return Variance(lower=np.asfortranarray(lower), root=root, offset=offset, constant=constant)
