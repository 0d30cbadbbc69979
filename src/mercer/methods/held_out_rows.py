"""Errors of held-out rows by the models of all splits, in one pass over the rows themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer.engine import OnFeatures, Pass, Tile, by_group
from mercer.model import OneVsRest


@dataclass(frozen=True)
class HeldOutRows(OnFeatures, Pass[FloatArray, FloatArray]):
    """Sums (k, g, p) of weighted errors, of a grouped table, by k models at g noises.

    Squared errors; with a ``coding``, whether the class is wrong (p is 1).
    """

    weights: tuple[FloatArray, ...]  # k of (m, g, p)
    constants: FloatArray  # (k, g, p)
    test: Any  # (groups, k): whether the rows of a group are held out of a training set
    shift: FloatArray  # (p,), which the targets lack
    coding: OneVsRest | None

    name = "held-out rows"

    @property
    def width(self) -> int:
        """Of the features, and of predictions and errors."""
        return self.features.n_features + 3 * int(self.constants[0].size)

    def start(self) -> FloatArray:
        """Zeros."""
        k, g, p = self.constants.shape
        return np.zeros((k, g, p if self.coding is None else 1))

    def add(self, state: FloatArray, tile: Tile) -> None:
        """One product for each group and each split that holds it out."""
        for group, part in by_group(tile):
            values = self.phi(part)
            weights = np.ones(part.n_rows) if part.weights is None else part.weights
            for k in np.flatnonzero(self.test[group]):
                predicted = np.tensordot(values, self.weights[k], axes=1) + self.constants[k]
                state[k] += np.tensordot(weights, self._errors(predicted, part.targets), axes=1)

    def _errors(self, predicted: FloatArray, targets: FloatArray) -> FloatArray:
        """Of each row, noise and output, (T, g, p)."""
        if self.coding is None:
            return np.asarray((targets[:, np.newaxis] - predicted) ** 2)
        rows, noises, p = predicted.shape
        found = self.coding.codes_of((predicted + self.shift).reshape(-1, p)).reshape(rows, noises, 1)
        true = self.coding.codes_of(targets + self.shift)
        return np.where(found != true[:, np.newaxis, np.newaxis], 1.0, 0.0)
