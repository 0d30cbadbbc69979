"""Kernel values of the rows of a stream: to a dictionary that changes, and among each other."""

import numpy as np

from mercer._typing import FloatArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel, Section
from mercer.solvers.recursive import MOST_ROWS, Source, aligned, good_length

_SAMPLE = 64  # rows whose median, with that of the dictionary, is the centre of factors


class StreamValues:
    """Kernel values that compiled code computes, of kernels that have factors, or tables of them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._source: Source | None = None  # the last one with factors
        self._table: Section | None = None  # of the last table
        self._is_fresh = self._is_too_far = False
        self.has_factors = True  # whether the kernel has, as far as is known

    def factored(self, points: FloatArray, rows: FloatArray, fixed: int, most: int) -> Source | None:
        """What the values of rows follow from, for up to ``most`` functions; None if not all of them have factors.

        The dictionary must be the one that the last source has led to; the first ``fixed`` functions are constant.
        """
        if self._is_too_far or not self.has_factors:
            self._is_too_far = False
            return None
        room = fixed + most + MOST_ROWS
        self._is_fresh = self._source is None or self._source.functions.shape[1] < room
        if self._is_fresh:
            self._source = self._bind(points, rows[:_SAMPLE], fixed, room)
        return None if self._source is None else self._source._replace(rows=rows)

    def unbind(self, n_learned: int) -> None:
        """Have the next source take its centre from its own rows: of the last one, not all rows were learned.

        If none were, and the centre was their own, one is too far wherever the centre is: the next rows have no source.
        """
        self._source = self._table = None
        self._is_too_far = self._is_fresh and not n_learned

    def _bind(self, points: FloatArray, rows: FloatArray, fixed: int, room: int) -> Source | None:
        section = self._kernel.bind(np.concatenate([points, rows]))  # with their centre
        factors, m = section.factors(), len(points)
        self.has_factors = factors is not None
        if factors is None or not np.all(-section.right_factors[-1, :m] <= factors.farthest):
            return None
        functions = aligned(factors.width, good_length(room))
        functions[:] = 0.0
        functions[:, fixed : fixed + m] = section.right_factors[:, :m]
        left, far = np.empty((MOST_ROWS, factors.width)), np.empty(1)
        return Source(rows=rows, left=left, functions=functions, far=far, fixed=fixed, **factors._asdict())

    def tabulated(self, points: FloatArray, rows: FloatArray, fixed: int) -> Source:
        """Values between rows and a dictionary, and among the rows; first come ``fixed`` constants."""
        slots = np.concatenate([points, rows])
        bound, self._table = self._table, None
        with np.errstate(over="ignore"):
            section = bound if bound is not None and bound.replace(slots) else self._kernel.bind(slots)
            values = section.tile(rows)
        if not np.isfinite(np.sum(values)):
            msg = "kernel values contain NaN or infinity: the kernel overflows on these rows; scale them."
            raise NotPositiveDefiniteError(msg)
        self._table = section
        return Source(np.column_stack([np.ones((len(rows), fixed)), values]) if fixed else values)
