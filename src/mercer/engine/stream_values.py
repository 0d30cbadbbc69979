"""Kernel values of the rows of a stream: to a dictionary that changes, and among each other."""

from __future__ import annotations

import numpy as np

from mercer._typing import FloatArray, IntArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Kernel, Section
from mercer.solvers.recursive import MOST_ROWS, Source

__all__ = ["FactoredRows", "TabulatedRows"]


class FactoredRows:
    """Rows as factors, from which compiled code computes kernel values; of kernels that have such."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._section: Section | None = None
        self._functions: FloatArray = np.empty((0, 0))  # right factors of the dictionary, with room
        self._room: FloatArray = np.empty(0)  # for left factors: new memory takes longer than they do

    def source(self, points: FloatArray, rows: FloatArray, fixed: int, most: int) -> Source | None:
        """What the values of rows follow from, for up to ``most`` functions; None if not all of them have factors.

        The dictionary must be the one that the last source has led to; the first ``fixed`` functions are constant.
        """
        room = fixed + most + 2 * MOST_ROWS
        factors = None if self._section is None else self._section.factors(rows, self._room)
        if factors is None or self._functions.shape[1] < room:
            self._section = self._kernel.bind(np.concatenate([points, rows]))  # with their centre
            factors, of_points = self._section.factors(rows, self._room), self._section.factors(points)
            if factors is None or of_points is None:
                return None
            width = factors.left.shape[1]
            self._functions = np.zeros((width, room))
            order = [*range(width - 2), width - 1, width - 2]
            self._functions[:, fixed : fixed + len(points)] = of_points.left[:, order].T
        self._room = factors.left.reshape(-1) if factors.left.size > self._room.size else self._room
        return Source(np.empty((0, 0)), factors.left, self._functions, *factors[1:], fixed)


class TabulatedRows:
    """Tables of kernel values, of any kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._section: Section | None = None
        self._slots: FloatArray = np.empty((0, 0))  # points of the section: the dictionary, then rows
        self._replaced: IntArray = np.empty(0, dtype=np.intp)  # places of the dictionary that are not in it yet

    def table(self, points: FloatArray, rows: FloatArray) -> FloatArray:
        """Values (n, m + n) between rows and a dictionary, and among the rows."""
        with np.errstate(over="ignore"):
            values = self._bound(points, rows).tile(rows)
        if not np.isfinite(np.sum(values)):
            self._section = None
            msg = "kernel values contain NaN or infinity: the kernel overflows on these rows; scale them."
            raise NotPositiveDefiniteError(msg)
        return values

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
