"""Kernel values of the rows of a stream: to a dictionary that changes, and among each other."""

import numpy as np

from mercer._typing import FloatArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel, Section
from mercer.kernels.base import Factors
from mercer.solvers.recursive import MOST_ROWS, Source, aligned, good_length, look_up

_SAMPLE = 64  # rows whose median, with that of the dictionary, is the centre of factors
_NOTHING: FloatArray = np.empty((0, 0))


class StreamValues:
    """Kernel values that compiled code computes, of kernels that have factors, or tables of them.

    Attributes
    ----------
    has_factors : bool
        Whether the kernel has.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._section: Section | None = None
        self._factors: Factors | None = None
        self._table: Section | None = None
        self._left: FloatArray = _NOTHING  # room for left factors
        self._functions: FloatArray = _NOTHING  # right factors of the dictionary, with room
        self._is_fresh = self._is_too_far = False
        self.has_factors = True

    def factored(self, points: FloatArray, rows: FloatArray, fixed: int, most: int) -> Source | None:
        """What the values of rows follow from, for up to ``most`` functions; None if not all of them have factors.

        The dictionary must be the one that the last source has led to; the first ``fixed`` functions are constant.
        """
        if self._is_too_far or not self.has_factors:
            self._is_too_far = False
            return None
        room = fixed + most + MOST_ROWS
        self._is_fresh = self._section is None or self._functions.shape[1] < room
        if self._is_fresh:
            self._bind(points, rows[:_SAMPLE], fixed, room)
        if self._factors is None:
            return None
        return Source(
            given=_NOTHING,
            rows=rows,
            left=self._left,
            functions=self._functions,
            far=np.empty(1),
            fixed=fixed,
            **self._factors._asdict(),
        )

    def unbind(self, n_learned: int) -> None:
        """Have the next source take its centre from its own rows: of the last one, not all rows were learned.

        If none were, and the centre was their own, one is too far wherever the centre is: the next rows have no source.
        """
        self._section = self._table = None
        self._is_too_far = self._is_fresh and not n_learned

    def _bind(self, points: FloatArray, rows: FloatArray, fixed: int, room: int) -> None:
        section = self._kernel.bind(np.concatenate([points, rows]))  # with their centre
        self._section, self._factors = section, section.factors()
        self.has_factors = self._factors is not None
        if self._factors is None or not np.all(-section.right_factors[-1, : len(points)] <= self._factors.farthest):
            self._section = self._factors = None
            return
        width = self._factors.width
        self._left = np.empty((MOST_ROWS, width))
        self._functions = aligned(width, good_length(room))
        self._functions[:] = 0.0
        self._functions[:, fixed : fixed + len(points)] = section.right_factors[:, : len(points)]

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
        return look_up(np.column_stack([np.ones((len(rows), fixed)), values]) if fixed else values)
