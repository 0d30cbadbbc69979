"""Kernel values that the caller has computed."""

from typing import Any, NoReturn

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.kernels.base import Kernel, Section, tile_buffer


@stored
class Precomputed(Kernel):
    """A kernel whose rows are kernel values already; its points are column numbers, shape (m, 1).

    With it, a model on a given kernel matrix is an ordinary expansion.

    Examples
    --------
    >>> from mercer.kernels import Precomputed
    >>> Precomputed()([[1.0, 0.5, 0.1]], [[2], [0]])
    array([[0.1, 1. ]])
    """

    def bind(self, points: FloatArray, dtype: Any = np.float64) -> Section:
        """Prepare the choice of columns."""
        return _PrecomputedSection(points, np.dtype(dtype))

    def diagonal(self, rows: FloatArray) -> NoReturn:
        """Refused: k(x, x) of new rows is not among the values given."""
        raise ValueError(
            "the variance needs k(x, x) of the new rows, which kernel='precomputed' does not give; "
            "pass a kernel and the rows themselves."
        )

    def gradients(
        self, rows: FloatArray, points: FloatArray, weights: FloatArray, *, parameters: bool = True
    ) -> NoReturn:
        """Refused: the kernel is not known as a function."""
        raise NotImplementedError("a precomputed kernel matrix has no gradient: pass a kernel and the rows themselves.")

    def _scaled(self, factor: float) -> NoReturn:
        raise TypeError(f"{factor} times a precomputed kernel: multiply the kernel matrix itself.")


class _PrecomputedSection(Section):
    def __init__(self, points: FloatArray, dtype: np.dtype[Any]) -> None:
        self._columns = np.asarray(points)[:, 0].astype(np.intp)
        self.n_points, self.dtype = len(points), dtype

    def tile(self, rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
        out = tile_buffer(self, len(rows), out)
        out[...] = np.asarray(rows)[:, self._columns]
        return out
