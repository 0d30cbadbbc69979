"""Values of rows by a support vector machine that does not know them, in closed form.

While the same rows are free (see ``margins``), taking a row away moves its value to f - βg/(1 - σg), with
g = [v, 1]ᵀH⁻¹[v, 1]; the second term is for free rows only. For squared losses that is ridge regression's formula, for
the others the span of the support vectors (Chapelle and Vapnik 2000). Rows with β = 0 do not matter to the function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from mercer._typing import FloatArray, IntArray
from mercer.engine import ArrayTable, left_out_parts, relative_weights, unit_of
from mercer.methods.frame import Frame
from mercer.methods.margins import Loss, Responses, row_terms
from mercer.model import Calibration
from mercer.model.calibration import SAMPLE, sample_rows
from mercer.solvers.newton import factor

_ENOUGH = 200  # rows by which a model is judged


@dataclass(eq=False)
class Judges:
    """A sample of the rows, and their errors by functions that do not know them."""

    table: ArrayTable
    index: IntArray  # (k,)
    features: FloatArray  # [v, 1], (k, m + 1)
    residuals: FloatArray  # (k, p)

    @classmethod
    def of(cls, table: ArrayTable, frame: Frame) -> Judges:
        """Rows without those of the basis, which it represents better than new ones, if enough others are left."""
        used = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights > 0)
        others = used if frame.basis.index is None else np.setdiff1d(used, frame.basis.index)
        index = sample_rows(others if len(others) >= _ENOUGH else used, SAMPLE)
        rows = frame.features(whitened=True).tile(table.rows.take(index))
        features = np.column_stack([rows, np.ones(len(index))])
        return cls(table.subset(index), index, features, np.empty((len(index), table.n_outputs)))

    @property
    def weights(self) -> FloatArray:
        """ω of the rows, (k,)."""
        return np.ones(len(self.index)) if self.table.weights is None else self.table.weights

    def judge(
        self, column: int, point: FloatArray, hessian: FloatArray, loss: Loss, anchors: FloatArray | None,
        sharpness: float,
    ) -> None:  # fmt: skip
        """Find the residuals of one function, [u, b] with the Hessian there, and anchors (n,) of all rows."""
        targets, costs = self.table.targets[:, [column]], loss.cost * self.weights[:, np.newaxis]
        errors = targets - (self.features @ point)[:, np.newaxis]
        anchored = 0.0 if anchors is None else anchors[self.index, np.newaxis]
        terms = row_terms(errors, Responses.of(targets, costs, anchored, loss, np.array([sharpness])))
        g = np.einsum("ij,ji->i", self.features, cho_solve(factor(hessian), self.features.T))
        part = left_out_parts(self.weights, counted=self.table.counted) / self.weights
        left = 1.0 - part * (terms.free * terms.stiffness)[:, 0] * g
        moved = part * terms.pulls[:, 0] * g / np.where(left > 0, left, np.nan)
        self.residuals[:, column] = errors[:, 0] + moved

    def calibration(self, shift: FloatArray) -> Calibration:
        """What was found, for targets from which a shift was taken."""
        known, counted = np.all(np.isfinite(self.residuals), axis=1), self.table.counted
        return Calibration(
            (self.table.targets + shift)[known],
            self.residuals[known],
            np.ones(int(np.sum(known))),
            relative_weights(self.weights, counted=counted)[known],
            unit_of(self.weights, counted=counted),
        )
