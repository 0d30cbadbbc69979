"""A dictionary of rows that grows and prunes itself while rows stream by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.engine.executors.threads import blas_threads
from mercer.engine.rows import Rows
from mercer.engine.tiles import tile_rows
from mercer.kernels import Kernel, Section
from mercer.solvers.recursive import BlockRecursion, Rules, block_rows

__all__ = ["SequentialLearner"]


class SequentialLearner:
    """Learn rows in their order; memory m² and m·d for m functions, whatever the number of rows.

    Parameters
    ----------
    kernel : Kernel
        With numbers for parameters.
    rules : Rules
    n_features, n_outputs : int

    Attributes
    ----------
    points : array (m, d)
        The dictionary.
    recursion : BlockRecursion
        Coefficients, cost, counts.
    """

    def __init__(self, kernel: Kernel, rules: Rules, n_features: int, n_outputs: int) -> None:
        self.kernel = kernel
        self.recursion = BlockRecursion(rules, n_outputs)
        self.points: FloatArray = np.empty((0, n_features))
        self._section: Section | None = None
        self._slots: FloatArray = np.empty((0, n_features))  # points of the section: the dictionary, then a block

    def learn(self, rows: FloatArray, targets: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        """Learn rows (n, d) with targets (n, p), one after the other; weights are above zero.

        Returns
        -------
        array (n,)
            Squared error of each row before it was learned, summed over outputs.
        """
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        weights = np.ones(len(rows)) if weights is None else weights
        start, residuals = 0, np.empty(len(rows))
        if self.recursion.rules.intercept and self.recursion.n_seen == 0 and len(rows):
            if self.recursion.begin(float(self.kernel.diagonal(rows[:1])[0]), targets[0], float(weights[0])):
                self.points = rows[:1].copy()
            start, residuals[0] = 1, float(np.sum(targets[0] ** 2))
        with blas_threads(1):  # the products of a block are too small for more
            while start < len(rows):
                stop = min(start + block_rows(len(self.points)), len(rows))
                span = slice(start, stop)
                residuals[span] = self._learn_block(rows[span], targets[span], weights[span])
                start = stop
        return residuals

    def stream(
        self, rows: Rows, targets: FloatArray, weights: FloatArray | None = None
    ) -> Iterator[tuple[int, FloatArray]]:
        """Learn a source of rows in its order; rows of weight zero are left out.

        Yields
        ------
        stop : int
            Rows read so far.
        squares : array
            As of ``learn``, for the rows that were learned since.
        """
        for start, stop, block in rows.tiles(0, rows.n_rows, tile_rows(rows.n_features)):
            span = slice(start, stop)
            if weights is None:
                yield stop, self.learn(block, targets[span])
            else:
                used = weights[span] > 0
                yield stop, self.learn(block[used], targets[span][used], weights[span][used])

    def copy(self) -> SequentialLearner:
        """A learner with the same future that shares nothing."""
        other = SequentialLearner(self.kernel, self.recursion.rules, self.points.shape[1], self.n_outputs)
        other.recursion, other.points = self.recursion.copy(), self.points.copy()
        return other

    @property
    def n_outputs(self) -> int:
        """P."""
        return int(self.recursion.coefficients.shape[1])

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_section": None}

    def _learn_block(self, rows: FloatArray, targets: FloatArray, weights: FloatArray) -> FloatArray:
        values = self._bound(rows).tile(rows)
        if self.recursion.rules.intercept:
            values = np.column_stack([np.ones(len(rows)), values])
        origin, residuals = self.recursion.learn(values, self.kernel.diagonal(rows), targets, weights)
        origin = origin[self.recursion.rules.intercept :]  # without the constant
        places = np.flatnonzero(origin >= 0)
        if len(origin) > len(self.points):
            self.points = np.concatenate([self.points, np.empty((len(origin) - len(self.points), rows.shape[1]))])
        elif len(places):
            self.points = self.points.copy()  # who has taken the old ones keeps them
        self.points[places] = rows[origin[places]]
        self._remember(places)
        return residuals

    def _bound(self, rows: FloatArray) -> Section:
        """The kernel bound to the dictionary and a block."""
        m, slots = len(self.points), len(self.points) + len(rows)
        if self._section is None or len(self._slots) != slots:
            self._slots = np.concatenate([self.points, rows])
            self._section = self.kernel.bind(self._slots)
        else:
            self._slots[m:] = rows
            self._section = self.kernel.rebind(self._section, self._slots, slice(m, None))
        return self._section

    def _remember(self, places: IntArray) -> None:
        """Have the newcomers in the places of those that they have replaced."""
        if self._section is not None and len(places):
            self._slots[places] = self.points[places]
            self._section = self.kernel.rebind(self._section, self._slots, places)
