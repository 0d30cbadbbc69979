r"""All points within a distance of each row: exact, by a grid of cells, or by all distances.

Points are sorted into cells of a grid over their first principal axes, and within a cell by the next axis. Projections
on axes never lengthen a distance, so the neighbours of a row are in the cells around its own, in a window of that axis;
what is found there is judged by the distance itself, coordinates of large spread first, until it is too far.

Where points fill more dimensions than the grid has, or all lie within some radii, a row looks at most of them. A few
rows are tried beforehand, and if they look at more than 8 % of the points, all distances are computed instead
(``all_pairs``), of which each costs a tenth of a look. The benchmark has both, and SciPy's KD-tree, which is not
clearly faster than the one that is chosen on any of its sets of rows, and works in one thread.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mercer._jit import jit, jit_inner
from mercer._stored import stored
from mercer._stored.checks import check_permutation, check_shape, need
from mercer._typing import FloatArray, IntArray
from mercer.engine.all_pairs import AllPairs, square_below_one

_MOST_AXES = 3  # of the grid; one more sorts the points within a cell
_CELLS_PER_RADIUS = (1, 3, 2, 1)  # by the number of axes: finer cells hold fewer strangers, but there are more of them
_SAMPLE = 4096  # rows from which the principal axes are found
_FLAT = 2.0  # axes along which the points spread less than so many radii tell nothing apart
_ROUNDINGS = 16.0
_TRIED, _MANY = 64, 2000  # rows that try the cells out, where there are so many points
_FARTHEST = 1e160  # beyond any coordinate, which are below 2e150; squares and sums of it with them are numbers
_LONGEST = 1.0 + 1e-6  # entries of an orthonormal axis, with rounding
_CROWDED = 0.08  # share of all points that rows look at, beyond which all distances by matrix products are faster


@stored
class Cells(NamedTuple):
    """Points in the order of their cells, and where each cell begins."""

    points: FloatArray  # (n, d), in units of the radius; coordinates of large spread first
    along: FloatArray  # (n, g + 1), projections on the axes of the grid, and on the one that sorts a cell
    starts: IntArray  # (cells + 1,)
    shape: IntArray  # (3,), number of cells along each axis; 1 for axes that are not used
    low: FloatArray  # (3,), where the grid begins
    side: FloatArray  # (3,), how long its cells are
    reach: float  # 1, and a little more for rounding of projections

    def check_stored(self) -> None:
        """Refuse cells that compiled loops cannot walk along."""
        n = len(self.points)
        need(self.points.ndim == self.along.ndim == 2, "cells have no points.")
        need(len(self.along) == n and 1 <= self.along.shape[1] <= _MOST_AXES + 1, "points lack their projections.")
        for name in ("shape", "low", "side"):
            check_shape(getattr(self, name), (3,), f"{name} of cells")
        need(np.all(self.shape >= 1), "cells are fewer than one.")
        check_shape(self.starts, (math.prod(int(each) for each in self.shape) + 1,), "starts of cells")
        rising = int(self.starts[0]) == 0 and np.all(np.diff(self.starts) >= 0) and int(self.starts[-1]) == n
        need(rising, "cells overlap.")
        need(np.all(self.side > 0) and np.all(np.abs(self.low) <= _FARTHEST), "the geometry of cells is none.")
        need(1.0 <= self.reach <= _FARTHEST, "the reach of cells is out of range.")
        for each in (self.points, self.along):
            near = np.all(np.abs(each) <= _FARTHEST)
            need(each.dtype == np.float64 and near, "points of cells are too far away.")


@dataclass(frozen=True)
class Neighbours:
    """Neighbours of q rows, one row after the other."""

    counts: IntArray  # (q,), how many each row has
    index: IntArray  # places of the neighbours, ascending in each row
    squares: FloatArray  # squared distances, in units of the radius
    n_looked_at: int  # how many points were looked at


@stored
class Grid:
    """Points (n, d), in units of the radius, in the order of their cells; time to build n log n + n·d, memory n·d."""

    order: IntArray  # (n,), row number of the point in each place
    cells: Cells
    share_looked_at: float  # of all points, by a row in the cells around it: an average of some rows; 0 for few points
    _centre: FloatArray
    _axes: FloatArray
    _columns: IntArray

    def __init__(self, points: FloatArray) -> None:
        points = np.asarray(points, dtype=np.float64)
        n_points, self.n_features = points.shape
        sample = points[:: max(1, n_points // _SAMPLE)]
        self._centre = np.median(sample, axis=0)
        self._axes, self._columns = _principal_axes(sample - self._centre)
        along = self._project(points)
        # A projection is known to d roundings of the largest coordinate.
        largest = max(1.0, float(np.max(points)), -float(np.min(points)))
        reach = 1.0 + _ROUNDINGS * self.n_features * float(np.finfo(np.float64).eps) * largest
        shape, low, side = _geometry(along[:, :-1], reach)
        cell = _cell_numbers(along, shape, low, side)
        self.order = np.lexsort((along[:, -1], cell))
        starts = np.searchsorted(cell[self.order], np.arange(np.prod(shape) + 1)).astype(np.intp)
        placed = points.take(self.order, axis=0).take(self._columns, axis=1)
        self.cells = Cells(placed, np.ascontiguousarray(along[self.order]), starts, shape, low, side, reach)
        self.all_pairs: AllPairs | None = None
        self.share_looked_at = 0.0
        if n_points >= _MANY:
            places = np.unique(np.linspace(0, n_points - 1, _TRIED).astype(np.intp))
            self.share_looked_at = self.at(places).n_looked_at / (len(places) * n_points)
        self.rebuild_stored()

    def check_stored(self) -> None:
        """Refuse axes and an order that do not fit the points."""
        n, d = self.cells.points.shape
        need(n >= 1, "a grid has no points.")
        check_permutation(self.order, n, "the order of a grid")
        check_permutation(self._columns, d, "columns of a grid")
        check_shape(self._axes, (d, self.cells.along.shape[1]), "axes of a grid")
        check_shape(self._centre, (d,), "the centre of a grid")
        need(np.all(np.abs(self._axes) <= _LONGEST), "axes of a grid are too long.")
        need(np.all(np.abs(self._centre) <= _FARTHEST), "the centre of a grid is too far away.")

    def rebuild_stored(self) -> None:
        """Set what follows from the points: all distances are taken where the cells tell too few points apart."""
        self.n_features = len(self._columns)
        all_pairs = AllPairs(self.cells.points) if self.share_looked_at > _CROWDED else None
        self.all_pairs = all_pairs if all_pairs is not None and all_pairs.is_sharp else None

    def prepare(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rows as ``find`` takes them, and their projections."""
        rows = np.asarray(rows, dtype=np.float64)
        return np.ascontiguousarray(rows[:, self._columns]), self._project(rows)

    def _project(self, rows: FloatArray) -> FloatArray:
        return np.asarray(rows @ self._axes - self._centre @ self._axes)

    def find(self, rows: FloatArray) -> Neighbours:
        """Points at a distance below 1 of rows (q, d)."""
        return self._find(*self.prepare(rows))

    def at(self, places: IntArray) -> Neighbours:
        """Points at a distance below 1 of those in some places."""
        return self._find(self.cells.points[places], self.cells.along[places])

    def among(self, start: int, stop: int) -> Neighbours:
        """The same for places start to stop, each with itself and those that follow: so all pairs are found once."""
        return self._find(self.cells.points[start:stop], self.cells.along[start:stop], start)

    def _find(self, rows: FloatArray, along: FloatArray, own: int = -1) -> Neighbours:
        """If own is not negative, row i is the point in place own + i, and those before it are left out."""
        counts = np.empty(len(rows), dtype=np.intp)
        if self.all_pairs is not None:
            index, squares = self.all_pairs.find(rows, counts, own)
            return Neighbours(counts, index, squares, len(rows) * len(self.order))
        index, squares = np.empty(16 * len(rows) + 16, dtype=np.int32), np.empty(16 * len(rows) + 16)
        progress, window = np.zeros(4, dtype=np.int64), np.zeros((2, 3), dtype=np.int64)
        # Compiled code makes no arrays, which takes long to compile: it comes back when these are full.
        while _search_rows(self.cells, rows, along, (counts, index, squares), (progress, *window), own):
            index.resize(2 * progress[3], refcheck=False)
            squares.resize(2 * progress[3], refcheck=False)
        found = progress[1]
        return Neighbours(counts, index[:found].copy(), squares[:found].copy(), int(progress[2]))


def _principal_axes(sample: FloatArray) -> tuple[FloatArray, IntArray]:
    """Axes of largest spread with room for cells (d, g + 1), of which the last sorts a cell; and columns likewise."""
    scaled = sample / np.max(np.abs(sample), initial=1e-300)
    second_moments = scaled.T @ scaled
    axes = np.linalg.eigh(second_moments)[1][:, ::-1][:, : _MOST_AXES + 1]
    wide = np.ptp(sample @ axes, axis=0) > _FLAT
    wide[0] = True  # some axis has to sort
    return np.ascontiguousarray(axes[:, wide]), np.argsort(-np.diagonal(second_moments), kind="stable")


def _geometry(along: FloatArray, reach: float) -> tuple[IntArray, FloatArray, FloatArray]:
    """Cells along each of three axes, where they begin, and how long they are; no more cells than points."""
    n_points, n_axes = along.shape
    shape, low, side = np.ones(3, dtype=np.intp), np.zeros(3), np.full(3, np.inf)
    low[:n_axes] = np.min(along, axis=0)
    extent = np.max(along, axis=0) - low[:n_axes]
    wanted = np.maximum(np.floor(extent * _CELLS_PER_RADIUS[n_axes] / reach), 1.0)
    while np.prod(wanted) > n_points:
        wanted[np.argmax(wanted)] /= 2.0
        wanted = np.maximum(np.floor(wanted), 1.0)
    shape[:n_axes] = wanted.astype(np.intp)
    side[:n_axes] = np.where(extent > 0, extent / wanted, np.inf)
    return shape, low, side


def _cell_numbers(along: FloatArray, shape: IntArray, low: FloatArray, side: FloatArray) -> IntArray:
    used = slice(along.shape[1] - 1)
    place = np.clip(np.floor((along[:, used] - low[used]) / side[used]), 0, shape[used] - 1).astype(np.intp)
    return np.asarray(place @ np.array([shape[1] * shape[2], shape[2], 1])[used])


@jit
def _search_rows(cells: Cells, rows: FloatArray, along: FloatArray, out: Any, state: Any, own: Any) -> bool:
    """Search from a row on until all are done, or the arrays are full: then True.

    ``state`` has the progress (the row, the neighbours found before it, the points looked at for them and, when the
    arrays are full, the room that is needed) and, three zeros each, the first and last cells that a row looks at.
    """
    (counts, index, squares), (progress, first, last) = out, state
    sort_axis = along.shape[1] - 1
    for i in range(progress[0], len(rows)):
        found, looked_at, least = progress[1], progress[2], own + i if own >= 0 else 0
        _window(cells, along, i, first, last)
        for p in range(first[0], last[0] + 1):
            for q in range(first[1], last[1] + 1):
                for r in range(first[2], last[2] + 1):
                    cell = (p * cells.shape[1] + q) * cells.shape[2] + r
                    start, stop = max(cells.starts[cell], least), cells.starts[cell + 1]
                    if start >= stop:
                        continue
                    left = cells.reach**2 - _gap(cells, along, i, (p, q, r))
                    if left < 0.0:
                        continue
                    width = np.sqrt(left)
                    at = _first_not_below(cells.along, sort_axis, start, stop, along[i, sort_axis] - width)
                    if found + stop - at > len(index):
                        progress[0], progress[3] = i, found + stop - at
                        return True
                    while at < stop and cells.along[at, sort_axis] <= along[i, sort_axis] + width:
                        square = square_below_one(cells.points, at, rows, i)
                        if square < 1.0:
                            index[found], squares[found] = at, square
                            found += 1
                        looked_at += 1
                        at += 1
        counts[i] = found - progress[1]
        progress[1], progress[2] = found, looked_at
    return False


@jit_inner
def _window(cells: Cells, along: FloatArray, i: Any, first: IntArray, last: IntArray) -> None:
    """Cells that may hold neighbours of a row, along each axis of the grid."""
    for axis in range(along.shape[1] - 1):
        here, side, number = along[i, axis] - cells.low[axis], cells.side[axis], float(cells.shape[axis])
        # Compared as floats: a row far away has no cell number that an integer could hold.
        first[axis] = np.int64(min(max(np.floor((here - cells.reach) / side), 0.0), number))
        last[axis] = np.int64(min(max(np.floor((here + cells.reach) / side), -1.0), number - 1.0))


@jit_inner
def _gap(cells: Cells, along: FloatArray, i: Any, cell: Any) -> Any:
    """Squared distance from a row to a cell, along the axes of the grid."""
    total = 0.0
    for axis in range(along.shape[1] - 1):
        here = along[i, axis] - cells.low[axis]
        # Points at the ends may lie a rounding outside their cells.
        below = cell[axis] * cells.side[axis] - here
        above = here - (cell[axis] + 1) * cells.side[axis]
        outside = max(max(below, above) - (cells.reach - 1.0), 0.0)
        total += outside * outside
    return total


@jit_inner
def _first_not_below(along: FloatArray, axis: Any, start: Any, stop: Any, value: Any) -> Any:
    while start < stop:
        middle = (start + stop) // 2
        if along[middle, axis] < value:
            start = middle + 1
        else:
            stop = middle
    return start
