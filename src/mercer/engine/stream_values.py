"""Kernel values of the rows of a stream: to a dictionary that changes, and among each other."""

from __future__ import annotations

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel, Section
from mercer.kernels.base import Factors
from mercer.solvers.recursive import MOST_ROWS, Source, aligned, good_length

__all__ = ["FactoredRows", "TabulatedRows"]

_SAMPLE = 64  # rows whose median, with that of the dictionary, is the centre of factors
_NOTHING: FloatArray = np.empty((0, 0))


class FactoredRows:
    """Rows whose kernel values compiled code computes, of kernels that have factors.

    Attributes
    ----------
    is_fresh : bool
        Whether the last source has its centre from its own rows: if a row is too far, it has no factors at all.
    has_factors : bool
        Whether the kernel has.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._section: Section | None = None
        self._factors: Factors | None = None
        self._left: FloatArray = np.empty((0, 0))  # room for left factors
        self._functions: FloatArray = np.empty((0, 0))  # right factors of the dictionary, with room
        self.is_fresh, self.has_factors = False, True

    def source(self, points: FloatArray, rows: FloatArray, fixed: int, most: int) -> Source | None:
        """What the values of rows follow from, for up to ``most`` functions; None if not all of them have factors.

        The dictionary must be the one that the last source has led to; the first ``fixed`` functions are constant.
        """
        room = fixed + most + MOST_ROWS
        self.is_fresh = self._section is None or self._functions.shape[1] < room
        if self.is_fresh:
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

    def unbind(self) -> None:
        """Have the next source take its centre from its own rows."""
        self._section = None

    def _bind(self, points: FloatArray, rows: FloatArray, fixed: int, room: int) -> None:
        self._section = self._kernel.bind(np.concatenate([points, rows]))  # with their centre
        self._factors, of_points = self._section.factors(), self._section.left_factors(points)
        self.has_factors = self._factors is not None
        if self._factors is None or of_points is None:
            self._factors = None
            return
        width = self._factors.width
        self._left = np.empty((MOST_ROWS, width))
        self._functions = aligned(width, good_length(room))
        self._functions[:] = 0.0
        order = [*range(width - 2), width - 1, width - 2]
        self._functions[:, fixed : fixed + len(points)] = of_points[:, order].T


class TabulatedRows:
    """Tables of kernel values, of any kernel; ``is_over`` after so many of them, if a number is given."""

    def __init__(self, kernel: Kernel, number: int | None = None) -> None:
        self._kernel, self._number = kernel, number
        self._section: Section | None = None
        self._slots: FloatArray = np.empty((0, 0))  # points of the section: the dictionary, then rows
        self._replaced: IntArray = np.empty(0, dtype=np.intp)  # places of the dictionary that are not in it yet

    def table(self, points: FloatArray, rows: FloatArray) -> FloatArray:
        """Values (n, m + n) between rows and a dictionary, and among the rows."""
        if self._number is not None:
            self._number -= 1
        with np.errstate(over="ignore"):
            values = self._bound(points, rows).tile(rows)
        if not np.isfinite(np.sum(values)):
            self._section = None
            msg = "kernel values contain NaN or infinity: the kernel overflows on these rows; scale them."
            raise NotPositiveDefiniteError(msg)
        return values

    @property
    def is_over(self) -> bool:
        """Whether all tables were made that were to be."""
        return self._number is not None and self._number <= 0

    def replace(self, places: IntArray) -> None:
        """Note that the dictionary has changed in some places, or grown by them."""
        self._replaced = np.union1d(self._replaced, places)

    def _bound(self, points: FloatArray, rows: FloatArray) -> Section:
        m, slots = len(points), len(points) + len(rows)
        if self._section is None or len(self._slots) != slots:
            self._slots = np.concatenate([points, rows])
            self._section = self._kernel.bind(self._slots)
        else:
            self._slots[m:] = rows
            self._section = self._kernel.rebind(self._section, self._slots, slice(m, slots))
            if len(self._replaced):
                self._slots[self._replaced] = points[self._replaced]
                self._section = self._kernel.rebind(self._section, self._slots, self._replaced)
        self._replaced = np.empty(0, dtype=np.intp)
        return self._section
