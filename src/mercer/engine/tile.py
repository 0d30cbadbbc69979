"""A tile: some rows of a table, with everything that belongs to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mercer._typing import AnyArray, FloatArray

__all__ = ["Scratch", "Tile"]


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


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows that are in memory together.

    Attributes
    ----------
    rows : array (T, d)
        C-contiguous, in the dtype of the table.
    targets : array (T, p), float64
        p is 0 for rows alone.
    weights : array (T,) or None
    first : int
        Number of the first row in its table, where rows are next to each other.
    scratch : Scratch
        The worker's memory for what it computes from a tile.
    """

    rows: FloatArray
    targets: FloatArray
    weights: FloatArray | None = None
    first: int = 0
    scratch: Scratch = field(default_factory=Scratch)

    @property
    def n_rows(self) -> int:
        """T."""
        return len(self.rows)
