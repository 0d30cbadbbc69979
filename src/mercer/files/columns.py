"""Which columns of a table are features, targets and weights, and whether they can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer.files.arrow import CATEGORIES, FLOAT32, NUMBER, TEXT

_NUMBERS = (FLOAT32, NUMBER)
_LABELS = (TEXT, CATEGORIES)


@dataclass(frozen=True)
class Columns:
    """Names of columns, by their use."""

    kinds: dict[str, str]  # of all columns
    features: tuple[str, ...]
    targets: tuple[str, ...]
    weight: str | None
    flat: bool  # whether there is one target, (n,) and not (n, 1)

    @classmethod
    def chosen(cls, kinds: dict[str, str], target: Any, features: Any, weight: Any) -> Columns:
        """By the arguments of ``scan``; features are by default all columns that are nothing else."""
        flat = target is None or isinstance(target, str)
        targets = () if target is None else (target,) if flat else tuple(target)
        used = {*targets, weight}
        names = tuple(name for name in kinds if name not in used) if features is None else _names(features)
        columns = cls(kinds, names, targets, weight, flat)
        columns._check()
        return columns

    def with_features(self, names: Sequence[str]) -> Columns:
        """Other features of the same table."""
        columns = replace(self, features=tuple(names))
        columns._check()
        return columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 if all features are, else float64."""
        return np.dtype(np.float32 if all(self.kinds[name] == FLOAT32 for name in self.features) else np.float64)

    @property
    def label_shape(self) -> tuple[int, ...] | None:
        """As ``Source`` has it."""
        return None if not self.targets else () if self.flat else (len(self.targets),)

    def _check(self) -> None:
        for name in (*self.features, *self.targets, *((self.weight,) if self.weight else ())):
            if name not in self.kinds:
                raise ValueError(f"there is no column {name!r}: the columns are {', '.join(map(repr, self.kinds))}.")
        if not self.features:
            raise ValueError("there are no features: all columns are targets or weights.")
        twice = {name for name in self.features if self.features.count(name) > 1}
        if twice:
            raise ValueError(f"features names the column {min(twice)!r} more than once.")
        for name in self.features:
            if self.kinds[name] not in _NUMBERS:
                raise ValueError(
                    f"the column {name!r} holds {self.kinds[name]}, which is no feature: leave it out (features=), or "
                    "write it as numbers first: categories for example by scikit-learn's OneHotEncoder, dates as days "
                    "since one of them."
                )
        for name in (*self.targets, *((self.weight,) if self.weight else ())):
            is_label = self.flat and name in self.targets and self.kinds[name] in _LABELS
            if self.kinds[name] not in _NUMBERS and not is_label:
                use = "the weight" if name == self.weight else "a target"
                raise ValueError(f"the column {name!r} holds {self.kinds[name]}, which cannot be {use}.")


def _names(features: Any) -> tuple[str, ...]:
    return (features,) if isinstance(features, str) else tuple(map(str, features))
