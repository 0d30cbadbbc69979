"""What is computed over all rows: a pass is a value.

A pass sees one tile at a time. The executor decides who reads the tiles, how large they are, and in which order sums
are merged. Passes are frozen dataclasses of arrays and kernels, so that they pickle; what they derive from
their fields is a ``cached_property``, which is not pickled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from mercer._typing import AnyArray
from mercer.engine.tile import Tile

__all__ = ["Pass", "RowPass", "Shippable"]

State = TypeVar("State")
Result = TypeVar("Result")


class Shippable:
    """A frozen dataclass that pickles its fields, and nothing that was derived from them."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class _Work(Shippable, ABC):
    """What executors ask of every pass.

    Attributes
    ----------
    name : str
        For progress.
    fewest : int
        Least rows of a tile, where each tile pays a fixed price.
    rows_at_once : int or None
        Rows of a tile, if it is not the cache that decides.
    rows_together : int
        Rows that a sequence gathers from its tiles before it hands them on.
    """

    name: ClassVar[str]
    fewest: ClassVar[int] = 16
    rows_at_once: int | None = None
    rows_together: int = 1

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers (of 8 bytes) that a row of a tile takes while it is worked on."""

    def tile_numbers(self, n_rows: int) -> int:
        """Numbers that a tile of so many rows takes."""
        return n_rows * self.width

    def prepare(self) -> None:
        """Do once what does not depend on the rows, before workers share it."""


class Pass(_Work, Generic[State, Result]):
    """A sum over all rows: ``finish(merge(add(add(start, tile), tile), …))``."""

    state_numbers: int = 0  # that a state takes, where it matters

    @abstractmethod
    def start(self) -> State:
        """The sum over no rows."""

    @abstractmethod
    def add(self, state: State, tile: Tile) -> None:
        """Add a tile, in place."""

    def merge(self, state: State, other: State) -> State:
        """Add a sum over later rows, in place."""
        if hasattr(state, "merge_in_place"):
            state.merge_in_place(other)
        else:
            state += other  # type: ignore[operator]
        return state

    def finish(self, state: State) -> Result:
        """What is wanted of the sum over all rows: by default the sum itself."""
        return state  # type: ignore[return-value]


class RowPass(_Work):
    """Something of every row: an array whose first axis runs over the rows.

    Attributes
    ----------
    shape : tuple of int
        Of what belongs to one row.
    dtype : dtype
    """

    dtype: Any = np.float64

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of what belongs to one row."""

    @abstractmethod
    def apply(self, tile: Tile, out: AnyArray) -> None:
        """Fill ``out``, whose first axis runs over the rows of the tile; it may hold anything before."""
