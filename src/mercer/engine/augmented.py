"""Tiles [φ, y, 1]: one symmetric product over them sums features, targets and the constant alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from mercer._typing import FloatArray
from mercer.engine.features import Features
from mercer.engine.passes import Pass
from mercer.engine.tile import Tile
from mercer.solvers.blas import mirror

__all__ = ["Augmented", "AugmentedPass"]

State = TypeVar("State")

_ALIGNMENT = 8  # numbers: rows of a tile start at multiples of a cache line, which saves BLAS some percent


@dataclass(frozen=True)
class Augmented:
    """Features with room for targets, a constant, and zeros up to the width.

    Attributes
    ----------
    features : Features
        With the spare columns.
    used : int
        m + p + 1.
    """

    features: Features
    used: int

    @classmethod
    def of(cls, features: Features, n_outputs: int) -> Augmented:
        """Make room behind the features, and do once what does not depend on the rows."""
        used = features.n_features + n_outputs + 1
        width = -(-used // _ALIGNMENT) * _ALIGNMENT
        features = replace(features, spare=width - features.n_features)
        features.prepare()
        return cls(features, used)

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.features.width

    def values(self, tile: Tile) -> FloatArray:
        """[φ, y, 1, 0] of a tile, shape (T, width), in its worker's memory."""
        values = self.features.tile(tile.rows, tile.scratch.array("augmented", (tile.n_rows, self.width)))
        values[:, self.features.n_features : self.used - 1] = tile.targets
        values[:, self.used - 1] = 1.0
        values[:, self.used :] = 0.0
        return values

    def sums(self, total: FloatArray) -> FloatArray:
        """Sums over all tiles without the padding, both triangles; refused if they overflow."""
        sums = np.ascontiguousarray(total[: self.used, : self.used])
        mirror(sums)
        if not np.all(np.isfinite(sums)):
            msg = "the sums over the rows overflow: kernel values, y or sample_weight are too large. Scale X or y."
            raise ValueError(msg)
        return sums


@dataclass(frozen=True)
class AugmentedPass(Pass[State, State]):
    """A pass that sums products of augmented tiles."""

    features: Features
    n_outputs: int

    @cached_property
    def augmented(self) -> Augmented:
        """Tiles with room for the targets."""
        return Augmented.of(self.features, self.n_outputs)

    @property
    def width(self) -> int:
        """Of an augmented tile."""
        return self.augmented.width

    @property
    def state_numbers(self) -> int:  # type: ignore[override]
        """Of the accumulator."""
        return self.width**2
