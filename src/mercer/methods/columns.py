r"""Features as kernels like them: each column on a robust scale and, beside it, as normal scores of its ranks.

A length scale treats a step from 1 to 2 like one from 1001 to 1002. Ages, concentrations and frequencies are not like
that: what matters there is the rank. With both forms of a column a length scale per feature decides which one matters.

==================  ==================  ============================================================================
symbol              code                meaning
==================  ==================  ============================================================================
x                   column              a feature as it is given
(x - c)/s           ``standardised``    c the median, s the spread; linear up to 5, then logarithmic
Φ⁻¹(rank/n)         ``scores``          normal score, linear between the values seen, constant beyond them
==================  ==================  ============================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from mercer._stored import stored
from mercer._stored.checks import check_finite, check_shape, need
from mercer._typing import FloatArray, IntArray
from mercer.engine import Rows

_LINEAR = 5.0  # spreads from the median up to which a column is not compressed
_MOST_KNOTS = 257  # values at which ranks are known exactly
_FEWEST_VALUES = 3  # a column of two values has no ranks to speak of


@stored
@dataclass(frozen=True)
class Columns:
    """What is done to the columns of a table."""

    used: IntArray  # (c,): columns that are not constant
    centre: FloatArray  # (c,)
    spread: FloatArray  # (c,)
    ranked: IntArray  # (r,): places in ``used`` of the columns that have scores, too
    knots: list[FloatArray]  # of each of them, values in ascending order
    scores: list[FloatArray]  # of these values

    def check_stored(self) -> None:
        """Refuse parts that do not fit together."""
        c = len(self.used)
        for name in ("used", "centre", "spread"):
            check_shape(getattr(self, name), (c,), f"{name} of columns")
            check_finite(getattr(self, name), f"{name} of columns")
        need(np.all(self.spread > 0) and np.all(self.used >= 0), "columns have no spread.")
        need(self.ranked.ndim == 1 and np.all((self.ranked >= 0) & (self.ranked < c)), "ranked columns are missing.")
        need(len(self.knots) == len(self.scores) == len(self.ranked), "ranked columns have no scores.")
        for knots, scores in zip(self.knots, self.scores, strict=True):
            need(knots.ndim == 1 and knots.shape == scores.shape and len(knots) > 0, "a column has no knots.")
            need(np.all(np.diff(knots) > 0) and np.all(np.isfinite(scores)), "the knots of a column are not in order.")

    @classmethod
    def of(cls, sample: FloatArray, *, ranks: bool = True) -> Columns:
        """Columns by a sample of rows (n, d)."""
        sample = np.asarray(sample, dtype=np.float64)
        used = np.flatnonzero(np.max(sample, axis=0) > np.min(sample, axis=0))
        kept = sample[:, used]
        low, centre, high = np.quantile(kept, [0.1, 0.5, 0.9], axis=0) if len(used) else np.zeros((3, 0))
        spread = (high - low) / 2.563  # the standard deviation of a normal column
        rare = spread <= 0  # more than 80 % of the values are equal
        spread[rare] = np.std(kept[:, rare], axis=0)
        tables = [_normal_scores(column) for column in kept.T] if ranks else []
        ranked = [j for j, (knots, _) in enumerate(tables) if len(knots) >= _FEWEST_VALUES]
        return cls(
            used, centre, np.maximum(spread, np.finfo(np.float64).tiny), np.array(ranked, dtype=np.intp),
            [tables[j][0] for j in ranked], [tables[j][1] for j in ranked],
        )  # fmt: skip

    @property
    def n_features(self) -> int:
        """Columns of the result; at least one, of zeros if all columns are constant."""
        return max(1, len(self.used) + len(self.ranked))

    def transform(self, rows: FloatArray) -> FloatArray:
        """Standardised columns, then scores: shape (n, n_features), float64."""
        result = np.zeros((len(rows), self.n_features))
        kept = np.asarray(rows[:, self.used], dtype=np.float64)
        c = len(self.used)
        units = (kept - self.centre) / self.spread
        beyond = np.abs(units) > _LINEAR
        units[beyond] = np.sign(units[beyond]) * (_LINEAR + np.log1p(np.abs(units[beyond]) - _LINEAR))
        result[:, :c] = units
        for place, (j, knots, scores) in enumerate(zip(self.ranked, self.knots, self.scores, strict=True)):
            result[:, c + place] = np.interp(kept[:, j], knots, scores)
        return result


class ColumnsOf(Rows):
    """The rows of another source, with their columns transformed a tile at a time."""

    def __init__(self, rows: Rows, columns: Columns) -> None:
        self._rows, self._columns = rows, columns
        self.n_rows, self.n_features, self.dtype = rows.n_rows, columns.n_features, np.dtype(np.float64)

    def read(self, start: int, stop: int) -> FloatArray:
        """Rows start..stop."""
        return self._columns.transform(self._rows.read(start, stop))

    def take(self, indices: IntArray) -> FloatArray:
        """The given rows."""
        return self._columns.transform(self._rows.take(indices))

    def bounds(self) -> list[int]:
        """As the source is partitioned."""
        return self._rows.bounds()

    def shipped(self, where: slice | IntArray) -> Rows:
        """As the source ships them."""
        return ColumnsOf(self._rows.shipped(where), self._columns)

    def inputs(self, where: slice | IntArray, fields: tuple[str, ...]) -> tuple[Any, ...]:
        """Those of the source."""
        return self._rows.inputs(where, fields or ("rows",))

    def put(self, inputs: Sequence[Any]) -> None:
        """Hand them on."""
        self._rows.put(inputs)


def _normal_scores(column: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Values of a column, and the normal scores of their mean ranks; of many values, some."""
    values, counts = np.unique(column, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2) / len(column)
    if len(values) > _MOST_KNOTS:
        some = np.unique(np.searchsorted(ranks, np.linspace(ranks[0], ranks[-1], _MOST_KNOTS)))
        values, ranks = values[some], ranks[some]
    return values, ndtri(ranks)
