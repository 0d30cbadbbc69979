"""Tiles, passes over them, and what an executor does with a pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from mercer._typing import AnyArray, FloatArray

if TYPE_CHECKING:
    from mercer.engine.table import Table


class Scratch:
    """Memory that one worker uses again from tile to tile; it is empty in a copy or a pickle."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, np.dtype[Any]], AnyArray] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any = np.float64) -> AnyArray:
        """Return an array of any content; the next call with this name returns the same memory."""
        key, size = (name, np.dtype(dtype)), int(np.prod(shape))
        buffer = self._buffers.get(key)
        if buffer is None or len(buffer) < size:
            buffer = self._buffers[key] = np.empty(size, dtype=dtype)
        return buffer[:size].reshape(shape)

    def __reduce__(self) -> tuple[type[Scratch], tuple[()]]:
        return Scratch, ()


@dataclass(slots=True)
class Tile:
    """Rows that are in memory together."""

    rows: FloatArray  # (T, d), C-contiguous, in the dtype of the table
    targets: FloatArray  # (T, p), float64; p is 0 for rows alone
    weights: FloatArray | None = None  # (T,)
    first: int = 0  # number of the first row in its table, where rows are next to each other
    scratch: Scratch = field(default_factory=Scratch)  # the worker's memory for what it computes from a tile

    @property
    def n_rows(self) -> int:
        """T."""
        return len(self.rows)


State = TypeVar("State")
Result = TypeVar("Result")


class Shippable:
    """A frozen dataclass that pickles its fields, and nothing that was derived from them."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


class _Work(Shippable, ABC):
    """What executors ask of every pass."""

    name: ClassVar[str]  # for progress
    fewest: ClassVar[int] = 16  # least rows of a tile, where each tile pays a fixed price
    rows_at_once: int | None = None  # rows of a tile, if it is not the cache that decides
    rows_together: int = 1  # rows that a sequence gathers from its tiles before it hands them on

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
    """Something of every row: an array whose first axis runs over the rows."""

    dtype: Any = np.float64

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of what belongs to one row."""

    @abstractmethod
    def apply(self, tile: Tile, out: AnyArray) -> None:
        """Fill ``out``, whose first axis runs over the rows of the tile; it may hold anything before."""


class Executor(Protocol):
    """Runs passes over tables: on threads of this process, or elsewhere.

    Results depend on the pass and the table only, not on timing or the number of workers: each partition is summed on
    its own, and the sums are merged in their order.
    """

    verbose: int

    def reduce(self, work: Pass[State, Result], table: Table) -> Result:
        """Sum over all rows."""

    def map(self, work: RowPass, table: Table) -> AnyArray:
        """Compute something of every row; the first axis of the result runs over the rows."""


_given: ContextVar[Executor | None] = ContextVar("mercer_executor", default=None)


@contextmanager
def using(executor: Executor) -> Iterator[None]:
    """Run estimators on this executor inside the ``with`` block, whatever their ``n_jobs``."""
    token = _given.set(executor)
    try:
        yield
    finally:
        _given.reset(token)


def given_executor() -> Any:
    """The executor of the innermost ``using``, or None."""
    return _given.get()
