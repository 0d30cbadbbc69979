"""Training and test sets as groups of rows that all splits treat alike: sums over groups are sums over every set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer._typing import IntArray


@dataclass(frozen=True)
class Splits:
    """Training and test sets, as groups of rows that all splits treat alike."""

    groups: IntArray  # (n,)
    train: Any  # (groups, k) of bool: whether the rows of a group train in a split
    test: Any  # (groups, k) of bool

    @classmethod
    def of(cls, pairs: Iterable[tuple[Any, Any]], n_rows: int) -> Splits:
        """Take (train, test) pairs of row numbers or masks, which are not kept."""
        groups = np.zeros(n_rows, dtype=np.intp)
        train = test = np.zeros((1, 0), dtype=bool)
        for number, (first, second) in enumerate(pairs):
            where = 4 * groups + 2 * _mask(first, n_rows, f"training set {number}")
            where += _mask(second, n_rows, f"test set {number}")
            present = np.flatnonzero(np.bincount(where, minlength=1))
            train = np.column_stack([train[present // 4], present // 2 % 2 == 1])
            test = np.column_stack([test[present // 4], present % 2 == 1])
            groups = np.searchsorted(present, where)
        return cls(groups, train, test)


def _mask(rows: Any, n_rows: int, name: str) -> Any:
    rows = np.asarray(rows)
    if rows.dtype == bool and rows.shape == (n_rows,):
        rows = np.flatnonzero(rows)
    whole = rows.ndim == 1 and (rows.dtype.kind in "iu" or len(rows) == 0)
    mask = np.zeros(n_rows, dtype=bool)
    if whole and np.all((rows >= 0) & (rows < n_rows)):
        mask[rows.astype(np.intp)] = True
    if not len(rows) or np.count_nonzero(mask) != len(rows):
        raise ValueError(
            f"{name} of cv must be different row numbers from 0 to {n_rows - 1}, at least one; got {rows!r}."
        )
    return mask
