r"""How good a model is on rows that it has not seen: leave-one-out residuals of rows that it has seen, in closed form.

For a model that is linear in the targets, the residual of a row that is left out follows from its fitted residual r and
its leverage h, the derivative of the fitted value with respect to the target:

.. math:: y_i - f_{-i}(x_i) = \frac{r_i}{1 - h_i}, \qquad \operatorname{var}_{-i}f(x_i) = k(x,x) - |v|^2 +
    \frac{\lambda h_i}{1 - h_i}.

==================  ==================  ========  ====================================================
symbol              code                shape     meaning
==================  ==================  ========  ====================================================
y                   ``targets``         (k, p)    targets of a sample of the rows
y_i - f_{-i}(x_i)   ``residuals``       (k, p)    leave-one-out residuals
var_{-i} + λ        ``variances``       (k,)      of a new observation, in units of σ²
σ                   ``scale``           (p,)      standard deviation of the prior, in the targets' units
==================  ==================  ========  ====================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import t as student

from mercer._stored import Sometimes, stored
from mercer._stored.checks import check_columns, check_finite, check_shape, need
from mercer._typing import FloatArray, IntArray
from mercer.engine import ArrayRows, ArrayTable, Executor, left_out_parts, number_of, relative_weights, unit_of
from mercer.model.expansion import KernelExpansion

SAMPLE = 2048  # rows: the coverage of an interval is then known to half a percent
_PIECE = 8192  # rows that are looked at together
_ROUNDING = 8 * np.finfo(np.float64).eps  # of a target that is predicted
_SEED = 0  # a sample is the same for the same rows, whatever the estimator's random_state


@stored
@dataclass(frozen=True)
class Sample:
    """A uniform sample of the rows that a model has seen, which follows when rows are added or merged."""

    rows: FloatArray  # (k, d)
    targets: FloatArray  # (k, p)
    weights: FloatArray  # (k,)
    n_rows: int  # from which it was drawn: those of positive weight

    def check_stored(self) -> None:
        """Refuse parts of different lengths."""
        need(self.rows.ndim == 2, "the rows of a sample are no table.")
        k = len(self.rows)
        check_columns(self.targets, k, "targets of a sample")
        check_shape(self.weights, (k,), "weights of a sample")
        for name in ("rows", "targets", "weights"):
            check_finite(getattr(self, name), f"{name} of a sample")
        need(np.all(self.weights > 0) and self.n_rows >= k, "a sample is larger than what it was drawn from.")

    @classmethod
    def draw(cls, table: ArrayTable, size: int = SAMPLE) -> Sample:
        """Rows of positive weight, as many as there are, or ``size``."""
        used = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights > 0)
        index = sample_rows(used, size)
        some = table.subset(index)
        weights = np.ones(len(index)) if some.weights is None else some.weights
        return cls(some.rows.take(np.arange(some.n_rows)), some.targets, weights, len(used))

    def merged(self, other: Sample, size: int = SAMPLE) -> Sample:
        """A uniform sample of both sets of rows."""
        total = self.n_rows + other.n_rows
        kept = min(size, total)
        if len(self.rows) + len(other.rows) <= kept:
            mine, theirs = len(self.rows), len(other.rows)
        else:
            drawn = np.random.default_rng([_SEED, self.n_rows, other.n_rows])
            mine = int(drawn.hypergeometric(self.n_rows, other.n_rows, kept))
            mine = min(max(mine, kept - len(other.rows)), len(self.rows))
            theirs = min(kept - mine, len(other.rows))
        first, second = sample_rows(np.arange(len(self.rows)), mine), sample_rows(np.arange(len(other.rows)), theirs)
        return Sample(
            np.concatenate([self.rows[first], other.rows[second]]),
            np.concatenate([self.targets[first], other.targets[second]]),
            np.concatenate([self.weights[first], other.weights[second]]),
            total,
        )

    def without(self, table: ArrayTable) -> Sample:
        """The sample without rows that equal one of the table."""
        gone: set[int] = set()
        for tile in table.tiles(_PIECE):
            gone.update(_fingerprints(tile.rows.astype(self.rows.dtype), tile.targets).tolist())
        stay = np.array([each not in gone for each in _fingerprints(self.rows, self.targets).tolist()], dtype=bool)
        gone_rows = table.n_rows if table.weights is None else int(np.count_nonzero(table.weights > 0))
        left = max(self.n_rows - gone_rows, int(np.count_nonzero(stay)))
        return Sample(self.rows[stay], self.targets[stay], self.weights[stay], left)

    def table(self, *, counted: bool) -> ArrayTable:
        """The sample as a table, of weights that are numbers of equal rows or not."""
        rows = ArrayRows(np.asarray(self.rows, dtype=np.float64), checked=True)
        return ArrayTable(rows, self.targets, self.weights, relative=not counted)


def sample_rows(index: IntArray, size: int) -> IntArray:
    """Some of the given row numbers, in their order; all of them if there are no more than ``size``."""
    if len(index) <= size:
        return index
    return np.sort(np.random.default_rng(_SEED).choice(index, size, replace=False))


def _fingerprints(rows: FloatArray, targets: FloatArray) -> IntArray:
    """A number for each row and its targets, equal for equal ones."""
    values = np.column_stack([np.asarray(rows, dtype=np.float64), targets]) + 0.0  # -0 is 0
    factors = np.random.default_rng(_SEED).integers(1, 2**63, values.shape[1], dtype=np.uint64) | np.uint64(1)
    return np.asarray(np.ascontiguousarray(values).view(np.uint64) @ factors)


@stored
@dataclass(frozen=True)
class Calibration:
    """Leave-one-out residuals of a sample of rows, and what the model without each row expected of them."""

    targets: FloatArray  # (k, p)
    residuals: FloatArray  # (k, p)
    variances: FloatArray  # (k,), of a new observation, in units of σ²; infinite where it is not known
    weights: FloatArray  # (k,)
    ordinary: Sometimes[float] = 1.0  # weight of a new observation: the mean, or 1 of counts
    copied: Sometimes[float] = 1.0  # mean square of residuals of rows left out with all their copies, relative to these

    def check_stored(self) -> None:
        """Refuse parts of different lengths."""
        need(self.ordinary > 0, "a calibration has no weight of a new observation.")
        k = len(self.variances)
        check_columns(self.targets, k, "targets of a calibration")
        check_shape(self.residuals, self.targets.shape, "residuals")
        for name in ("variances", "weights"):
            check_shape(getattr(self, name), (k,), f"{name} of a calibration")
            need(np.all(getattr(self, name) > 0), f"{name} of a calibration are not positive.")

    @classmethod
    def of_fit(
        cls,
        targets: FloatArray,
        fitted_residuals: FloatArray,
        leverages: FloatArray,
        weights: FloatArray,
        *,
        noise: float,
        counted: bool,
        beyond: Any = 0.0,
    ) -> Calibration:
        """A calibration by fitted residuals (k, p) and the leverages (k,) of a row of weight 1.

        Of weights that are ``counted`` 2 is two rows, of which one is left out; rows of other weights are left out
        whole. ``beyond`` is the variance, in units of σ², that does not depend on the targets' noise. What is expected
        is the variance of a new observation, whatever the row's weight: so these are compared with rows by the same
        measure.
        """
        ordinary = unit_of(weights, counted=counted)
        left = 1.0 - left_out_parts(weights, counted=counted) * leverages
        left[left <= 0] = np.nan
        residuals = fitted_residuals / left[:, np.newaxis]
        whole = 1.0 - weights * leverages
        whole[whole <= 0] = np.nan
        copied = share_of_copies(residuals, fitted_residuals / whole[:, np.newaxis])
        variances = beyond + noise * leverages / left + noise / ordinary
        known = np.all(np.isfinite(residuals), axis=1) & np.isfinite(variances) & (variances > 0) & (weights > 0)
        weights = relative_weights(weights, counted=counted)
        return cls(targets[known], residuals[known], variances[known], weights[known], ordinary, copied)

    @classmethod
    def joined(cls, parts: Sequence[Calibration]) -> Calibration:
        """Calibration by the rows of all parts."""
        names = ("targets", "residuals", "variances", "weights")
        rows = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        sizes = [len(part.weights) for part in parts]
        ordinary = float(np.average([part.ordinary for part in parts], weights=sizes)) if any(sizes) else 1.0
        return cls(**rows, ordinary=ordinary, copied=max((part.copied for part in parts), default=1.0))

    @property
    def values(self) -> FloatArray:
        """Predictions of the rows without themselves, (k, p)."""
        return self.targets - self.residuals

    @property
    def error(self) -> FloatArray:
        """Root of the mean squared residual of each output, (p,)."""
        unit = _positive(np.max(np.abs(self.residuals), axis=0, initial=0.0))  # so that squares are numbers
        return np.asarray(unit * np.sqrt(_mean((self.residuals / unit) ** 2, self.weights)))

    def standardised(self, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Residuals in units of their standard deviation, (j, p), and weights, of the j rows where that is known.

        Those that are rounding of their targets are zero: of constant targets the scale is zero, too.
        """
        known = np.isfinite(self.variances)
        residuals = np.where(np.abs(self.residuals) > _ROUNDING * np.abs(self.targets), self.residuals, 0.0)
        deviations = np.sqrt(self.variances[known])[:, np.newaxis] * _positive(scale)
        return np.asarray(residuals[known] / deviations), self.weights[known]

    def mean_square(self, scale: FloatArray) -> FloatArray:
        """Mean squared standardised residual of each output, (p,): 1 if the spread is right."""
        scores, weights = self.standardised(scale)
        return _mean(scores**2, weights) if len(weights) else np.full(len(scale), np.inf)

    def quantile(self, scale: FloatArray, coverage: float) -> tuple[FloatArray, bool]:
        """Half the width of an interval in standard deviations, (p,), and whether it is conformal.

        It is the ⌈(k+1)·coverage⌉-th smallest standardised residual, of k rows that count as often as their weight: of
        relative weights as many as (Σω)²/Σω² says. Of too few rows there is no such one; then Student's distribution
        stands in.
        """
        scores, weights = self.standardised(scale)
        scores = np.abs(scores)
        total = number_of(weights, counted=True)  # relative weights are at most 1: the same
        needed = coverage * (total + 1)
        if needed > total:
            widest = student.ppf(0.5 + coverage / 2, max(total - 1, 1.0))
            return np.full(scores.shape[1], widest), False
        order = np.argsort(scores, axis=0, kind="stable")
        counted = np.cumsum(weights[order], axis=0) * (total / float(np.sum(weights)))
        place = np.argmax(counted >= needed * (1 - 1e-12), axis=0)
        return np.take_along_axis(scores, np.take_along_axis(order, place[np.newaxis], axis=0), axis=0)[0], True

    def relative_error(self) -> float:
        """Mean squared residual in units of that of the mean without the row, averaged over the outputs."""
        if len(self.targets) == 0:
            return 0.0
        total = np.sum(self.weights)
        unit = _positive(np.max(np.abs(self.targets), axis=0, initial=0.0))  # so that squares are numbers
        alone = self.targets / unit - _mean(self.targets / unit, self.weights)
        alone *= (total / np.maximum(total - np.minimum(self.weights, 1.0), 1e-12 * total))[:, np.newaxis]
        squares = _mean(alone**2, self.weights)
        used = squares > 0
        found = _mean((self.residuals / unit) ** 2, self.weights)
        return float(np.mean(found[used] / squares[used])) if np.any(used) else 0.0


def leave_one_out(
    expansion: KernelExpansion, sample: ArrayTable, *, noise: float, executor: Executor
) -> Calibration | None:
    """Calibration of a model on a basis, by a sample of the rows that it was fitted to; None without noise.

    Cost: that of the model's variance at the rows of the sample, twice.
    """
    if expansion.variance is None or noise <= 0:
        return None
    targets = sample.targets
    weights = np.ones(len(targets)) if sample.weights is None else sample.weights
    on_basis = replace(expansion, variance=replace(expansion.variance, prior=False))
    # λ vᵀ(A + λI)⁻¹v, which is λh/ω
    posterior = on_basis.variances(sample.rows, executor=executor)
    beyond = expansion.variances(sample.rows, executor=executor) - posterior
    fitted = targets - expansion.evaluate(sample.rows, executor=executor)
    return Calibration.of_fit(
        targets, fitted, posterior / noise, weights,
        noise=noise, counted=sample.counted, beyond=np.maximum(beyond, 0.0),
    )  # fmt: skip


def share_of_copies(residuals: FloatArray, alone: FloatArray) -> float:
    """Mean square of residuals (k, p) of rows left out with all their copies, relative to those of a single one."""
    known = np.all(np.isfinite(residuals) & np.isfinite(alone), axis=1)
    unit = _positive(np.max(np.abs(alone[known]), axis=0, initial=0.0))  # so that squares are numbers
    one, all_of_them = (np.sum((each[known] / unit) ** 2) for each in (residuals, alone))
    return float(all_of_them / one) if one > 0 else 1.0


def _mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    return np.asarray(weights @ values / np.sum(weights))


def _positive(scale: FloatArray) -> FloatArray:
    """The scale, with a number above zero in place of zeros: constant targets have no spread."""
    return np.where(scale > 0, scale, np.finfo(np.float64).tiny)
