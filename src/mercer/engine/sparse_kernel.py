"""A kernel of compact support on all pairs of rows: a sparse matrix, which is stored.

Rows are kept in the order of their cells (see ``neighbours``), in which neighbours are close in memory, too: what is
computed with the matrix is in that order of *places*, and ``order`` has the row in each.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from mercer._stored import stored
from mercer._stored.checks import check_compressed, check_finite, check_kernel, check_shape, need
from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.engine.blocks import Spans
from mercer.engine.memory import available_memory
from mercer.engine.neighbours import Grid, Neighbours
from mercer.engine.passes import Executor, Pass, RowPass, Tile
from mercer.engine.rows import Rows
from mercer.engine.sparse_loops import count, mirror, multiply
from mercer.engine.table import ArrayTable
from mercer.kernels import Compact

_CHUNK = 1024  # rows whose neighbours are found at a time
_SAMPLE, _ENOUGH = 1024, 4_000_000  # rows, and neighbours, from which the size of the matrix is estimated
_PIECES = 32  # of a product with the matrix, for many workers
_PIECE = 100_000  # multiplications that are worth a thread: a fifth of a millisecond
_SPARE = 1.25  # memory for the pieces from which the matrix is put together
_FAR = 1e150  # squares of it are numbers
_NEAREST = 150  # neighbours that determine an entry of the inverse: with 300, it changed in the fourth digit

_Piece: TypeAlias = tuple[IntArray, IntArray, FloatArray]  # neighbours of some rows: counts, places, kernel values


@stored
@dataclass(frozen=True)
class SparseGram:
    """Kernel values between all points, in places, by rows (CSR): symmetric, both triangles stored."""

    starts: IntArray  # (n + 1,), int64
    index: IntArray  # (nnz,), int32
    values: FloatArray  # (nnz,)

    def check_stored(self) -> None:
        """Refuse indices that compiled loops cannot follow."""
        need(len(self.starts) >= 1, "a sparse matrix has no rows.")
        check_compressed((self.n_points, self.n_points), self.values, self.index, self.starts)
        check_finite(self.values, "a sparse matrix")

    @property
    def nnz(self) -> int:
        """Number of stored values."""
        return len(self.index)

    @property
    def n_nonzeros(self) -> int:
        """Number of values that are not zero: far out, a steep kernel is zero to rounding."""
        return int(np.count_nonzero(self.values))

    def counts_above(self, least: float) -> IntArray:
        """Number of values above a limit in each row, (n,)."""
        sums = np.concatenate([[0], np.cumsum(self.values > least)])
        return np.asarray(np.diff(sums[self.starts]))

    @property
    def n_points(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    def times(self, vectors: FloatArray, *, executor: Executor) -> FloatArray:
        """K v for vectors (n, p), summed in float64."""
        # Spans of about equal numbers of values, not of rows; and no threads for less work than it is to start them.
        pieces = max(1, min(_PIECES, self.n_points, self.nnz * vectors.shape[1] // _PIECE))
        bounds = np.searchsorted(self.starts, np.linspace(0, self.nnz, pieces + 1))
        bounds[0], bounds[-1] = 0, self.n_points
        return executor.map(_Times(self, np.ascontiguousarray(vectors)), Spans(bounds.tolist()))

    def local_inverse_entries(self, places: IntArray, diagonal: FloatArray) -> FloatArray:
        """Entries H⁻¹_ii of H = K + diag, from the row and its 150 nearest neighbours alone: from below, and fast.

        What is farther away hardly matters given these: H⁻¹_ii was 0.1 to 0.5 % larger on rows in two and three
        dimensions.
        """
        matrix, entries = self.as_scipy(), np.empty(len(places))
        for number, place in enumerate(places):
            span = slice(self.starts[place], self.starts[place + 1])
            near, values = self.index[span], np.abs(self.values[span])
            if len(near) > _NEAREST:
                near = near[np.argpartition(-values, _NEAREST)[:_NEAREST]]
            near = np.concatenate([[place], near[near != place]])
            block = matrix[near][:, near].toarray().astype(np.float64)
            block[np.diag_indices(len(near))] += diagonal[near]
            # H⁻¹_ii = 1/(H_ii - kᵀH⁻¹k), without the row itself
            rest = np.linalg.solve(block[1:, 1:], block[1:, 0])
            entries[number] = 1.0 / (block[0, 0] - block[0, 1:] @ rest)
        return entries

    def as_scipy(self) -> Any:
        """K, as SciPy has it, without a copy of its values."""
        return sparse.csr_array((self.values, self.index, self.starts), shape=(self.n_points, self.n_points))

    def plus_diagonal(self, diagonal: FloatArray) -> Any:
        """K + diag, as SciPy has it, in float64."""
        return sparse.csr_array(self.as_scipy() + sparse.diags_array(diagonal))


@stored
class SparseKernel:
    """A kernel of compact support between rows and points (n, d); its values are float64 or float32."""

    _kernel: Compact
    _dtype: np.dtype[Any]
    _centre: FloatArray
    _grid: Grid

    def __init__(self, kernel: Compact, points: FloatArray, dtype: Any = np.float64) -> None:
        self._kernel, self._dtype = kernel.for_dimension(points.shape[1]), np.dtype(dtype)
        # Differences of rows that are close together, but far from zero, are known better than their quotients.
        sample = points[:: max(1, len(points) // _SAMPLE)]
        self._centre = np.asarray(np.sort(sample, axis=0)[len(sample) // 2], dtype=np.float64)
        self.rebuild_stored()
        scaled = self._scaled(points)
        if not np.all(np.abs(scaled) <= _FAR):
            raise ValueError("rows are too large for the kernel's length scale: X / length_scale overflows. Scale X.")
        self._grid = Grid(scaled)

    def check_stored(self) -> None:
        """Refuse a kernel or a grid of other features."""
        check_shape(self._centre, (len(self._centre),), "the centre of a sparse kernel")
        check_finite(self._centre, "the centre of a sparse kernel")
        check_kernel(self._kernel, len(self._centre))
        metric = self._kernel.metric
        width = len(self._centre) if metric is None else metric.rank
        need(self._grid.n_features == width, "the grid of a sparse kernel has other features.")
        need(self._dtype in (np.float32, np.float64), "a sparse kernel is neither float32 nor float64.")

    def rebuild_stored(self) -> None:
        """Set what follows from the kernel."""
        self._n_features = len(self._centre)
        self._support = self._kernel.support(self._n_features)
        scale = 1.0 if self._kernel.metric is not None else np.asarray(self._kernel.length_scale, dtype=np.float64)
        self._unit = np.asarray(scale * self._support)  # one, or one per feature

    def is_of(self, kernel: Compact, points: FloatArray) -> bool:
        """Whether it was made of this kernel and these points."""
        return (
            points.shape == self._grid.cells.points.shape
            and self._kernel.equals(kernel.for_dimension(self._n_features))
            and np.array_equal(self._grid.prepare(self._scaled(points[self.order]))[0], self._grid.cells.points)
        )

    @property
    def order(self) -> IntArray:
        """Number of the point in each place."""
        return self._grid.order

    def nearest(self, place: int, number: int) -> IntArray:
        """Places of the points that are nearest to the one in a place, itself among them."""
        points = self._grid.cells.points
        squares = np.einsum("ij,ij->i", points - points[place], points - points[place])
        return np.asarray(np.argpartition(squares, min(number, len(points)) - 1)[:number])

    def nonzeros_per_row(self, rng: np.random.Generator) -> tuple[float, float]:
        """Average number of non-zeros in a row of ``gram``, from some rows, and its standard error."""
        n_points = len(self.order)
        places = rng.permutation(n_points)[:_SAMPLE]
        counts: list[int] = []
        while len(counts) < len(places) and sum(counts) < _ENOUGH:
            counts += self._grid.at(places[len(counts) : len(counts) + 16]).counts.tolist()
        is_exact = len(counts) == n_points or len(counts) < 2
        error = 0.0 if is_exact else float(np.std(counts, ddof=1) / np.sqrt(len(counts)))
        return float(np.mean(counts)), error

    def check_memory(self, rng: np.random.Generator) -> None:
        """Raise ``MemoryError`` if the matrix would not fit."""
        (per_row, error), available = self.nonzeros_per_row(rng), available_memory()
        nnz = per_row * len(self.order)
        needed = _SPARE * nnz * (4 + self._dtype.itemsize)
        if available is not None and needed > available:
            raise MemoryError(
                f"the sparse kernel matrix would have {nnz:.2g} non-zeros ({per_row:.0f} ± {error:.0f} in each row) "
                f"and need {needed / 1e9:.1f} GB, where {available / 1e9:.1f} GB are available. Use a smaller length "
                "scale or cut-off, rows in float32, or NystromRegressor."
            )

    def gram(self, *, executor: Executor) -> SparseGram:
        """All kernel values between the points that are not zero."""
        n_points = len(self.order)
        bounds = [*range(0, n_points, _CHUNK), n_points]
        return _assembled(executor.reduce(_UpperTriangle(self), Spans(bounds)), n_points, self._dtype)

    def cross(self, rows: FloatArray) -> Any:
        """Kernel values between rows (q, d) and the points in their places, a SciPy array (q, n)."""
        starts, index, values = self.entries(rows)
        return sparse.csr_array((values, index, starts), shape=(len(rows), len(self.order)))

    def times(self, rows: Rows, vectors: FloatArray, *, executor: Executor) -> FloatArray:
        """k(rows, points) v for vectors (n, p) in places, shape (q, p)."""
        width = 512  # neighbours, and what is looked at to find them
        return executor.map(_Times(self, np.ascontiguousarray(vectors), width, _CHUNK), ArrayTable(rows))

    def entries(self, rows: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Kernel values between rows and all points, by rows: where they start, places and values."""
        # Rows that overflow are far from all points.
        scaled = np.clip(np.nan_to_num(self._scaled(rows), nan=np.inf), -2.0 * _FAR, 2.0 * _FAR)
        found = self._grid.find(scaled)
        return np.concatenate([[0], np.cumsum(found.counts)]), found.index, self._values(found)

    def _scaled(self, rows: FloatArray) -> FloatArray:
        """Rows in units of the support."""
        with np.errstate(over="ignore", invalid="ignore"):
            metric, rows = self._kernel.metric, np.asarray(rows, dtype=np.float64)
            mapped = rows - self._centre if metric is None else metric.apply(rows, self._centre)
            return np.asarray(mapped / self._unit)

    def _values(self, found: Neighbours) -> FloatArray:
        squares = (found.squares * self._support**2).astype(self._dtype, copy=False)
        self._kernel.of_squares(squares, self._n_features)
        return squares


@dataclass(frozen=True)
class _UpperTriangle(Pass[list[_Piece], list[_Piece]]):
    """Neighbours of all points among those that follow, chunk by chunk."""

    kernel: SparseKernel

    name, width = "neighbours", 1

    def start(self) -> list[_Piece]:
        return []

    def add(self, state: list[_Piece], tile: Tile) -> None:
        found = self.kernel._grid.among(tile.first, tile.first + tile.n_rows)
        state.append((found.counts, found.index, self.kernel._values(found)))


@dataclass(frozen=True)
class _Times(RowPass):
    """The product of a sparse matrix with vectors (n, p)."""

    matrix: SparseGram | SparseKernel
    vectors: FloatArray
    width: int = 1
    rows_at_once: int | None = None

    name = "sparse product"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.vectors.shape[1:]

    def apply(self, tile: Tile, out: AnyArray) -> None:
        if isinstance(self.matrix, SparseKernel):
            starts, index, values = self.matrix.entries(tile.rows)
        else:
            starts = self.matrix.starts[tile.first : tile.first + tile.n_rows + 1]
            index, values = self.matrix.index, self.matrix.values
        multiply(starts, index, values, self.vectors, out)


def _assembled(parts: list[_Piece], n_points: int, dtype: np.dtype[Any]) -> SparseGram:
    """The symmetric matrix of which the parts are the upper triangle; each is freed when it has been copied."""
    before = np.full(n_points, -1, dtype=np.int64)  # a row is its own neighbour
    for _, places, _ in parts:
        count(places, before)
    starts = np.zeros(n_points + 1, dtype=np.int64)
    np.cumsum(np.concatenate([counts for counts, _, _ in parts]) + before, out=starts[1:])
    index, values = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1], dtype=dtype)
    filled, start = starts[:-1].copy(), 0
    while parts:
        part = parts.pop(0)
        mirror(part, start, filled, index, values)
        start += len(part[0])
    return SparseGram(starts, index, values)
