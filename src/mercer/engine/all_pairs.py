r"""Points within a distance of 1 of each row, by all distances: a tile of them at a time, by one matrix product.

For points that fill so many dimensions that no grid tells them apart. The product
:math:`[x,1]\cdot[z,-|z|^2/2]`, in float32, is above :math:`(|x|^2-1)/2` for neighbours, up to rounding, which is
allowed for; the few pairs that are left are judged by their difference in float64. So what is found is exact.
"""

from typing import Any

import numpy as np

from mercer._jit import jit, jit_inner
from mercer._typing import FloatArray, IntArray

_ROWS, _POINTS = 128, 1024  # of a tile: half a megabyte of products, which stays in the cache
_LARGEST_ERROR = 0.05  # of a product: with more, too many pairs are judged twice


class AllPairs:
    """All distances between rows and points (n, d), which are in units of the radius.

    Time n·d for each row, at the speed of matrix products; memory 4·n·d bytes besides the points.
    """

    def __init__(self, points: FloatArray) -> None:
        n_points, n_features = points.shape
        self._points = points
        self._centre = np.mean(points, axis=0)
        centred = points - self._centre
        squares = np.einsum("ij,ij->i", centred, centred)
        self._folded = np.empty((n_points, n_features + 1), dtype=np.float32)
        self._folded[:, :-1], self._folded[:, -1] = centred, -0.5 * squares
        # Rows farther from the centre than the farthest point by more than 1 have no neighbours.
        self._far = float(np.sqrt(np.max(squares))) + 1.5
        # Entries are rounded, and d + 1 sums, of numbers that are together at most |x||z| + |z|²/2.
        self._error = (n_features + 4) * float(np.finfo(np.float32).eps) * 1.5 * self._far**2
        # Whether rounding leaves few pairs undecided, as it does unless points are many radii from each other.
        self.is_sharp = self._error < _LARGEST_ERROR

    def find(self, rows: FloatArray, counts: IntArray, own: int = -1) -> tuple[IntArray, FloatArray]:
        """Fill in the counts; return numbers of the points within 1 of each row, and their squared distances."""
        counts[...] = 0
        indices: list[IntArray] = [np.empty(0, dtype=np.int32)]
        squares: list[FloatArray] = [np.empty(0)]
        for start in range(0, len(rows), _ROWS):
            block, first = rows[start : start + _ROWS], own + start if own >= 0 else -1
            row, index = self._candidates(block, max(first, 0))
            found = np.empty(len(index))
            n_found = _judge(self._points, block, (row, index, found), counts[start : start + _ROWS], first)
            indices.append(index[:n_found])
            squares.append(found[:n_found])
        return np.concatenate(indices), np.concatenate(squares)

    def _candidates(self, rows: FloatArray, first: int) -> tuple[IntArray, IntArray]:
        """Pairs that may be near, by rows: numbers of the row, and of the point, from the first on."""
        with np.errstate(over="ignore"):
            centred = rows - self._centre
            squares = np.einsum("ij,ij->i", centred, centred)
        lost = ~(squares < self._far**2)
        centred[lost], squares[lost] = 0.0, np.inf  # which no product reaches
        extended = np.ones((len(rows), rows.shape[1] + 1), dtype=np.float32)
        extended[:, :-1] = centred
        least = (0.5 * (squares - 1.0) - self._error).astype(np.float32)[:, np.newaxis]
        pairs = []
        for at in range(first, len(self._points), _POINTS):
            products = extended @ self._folded[at : at + _POINTS].T
            row, column = np.divmod(np.flatnonzero(products >= least), products.shape[1])
            pairs.append((row.astype(np.int32), (column + at).astype(np.int32)))
        row, index = (np.concatenate([*part, np.empty(0, dtype=np.int32)]) for part in zip(*pairs, strict=True))
        order = np.argsort(row, kind="stable")
        return row[order], index[order]


@jit
def _judge(points: FloatArray, rows: FloatArray, pairs: Any, counts: IntArray, own: Any) -> Any:
    """Move the pairs that are near to the front, and count them by rows; row i is the point own + i, unless own < 0."""
    row, index, squares = pairs
    found = 0
    for e in range(len(row)):
        i, j = np.int64(row[e]), np.int64(index[e])
        square = square_below_one(points, j, rows, i)
        if square < 1.0 and (own < 0 or j >= own + i):
            index[found], squares[found] = j, square
            counts[i] += 1
            found += 1
    return found


@jit_inner
def square_below_one(points: FloatArray, j: Any, rows: FloatArray, i: Any) -> Any:
    """Squared distance of point j and row i, or what is known of it when it has reached 1."""
    total, n_features = 0.0, points.shape[1]
    for f in range(n_features):
        difference = points[j, f] - rows[i, f]
        total += difference * difference
        if total >= 1.0:
            return total
    return total
