r"""Rows for given components: what ``inverse_transform`` of kernel components is.

A point of the feature space need not be the image of any row. Two answers are

- **ridge** (Bakır et al.): a function from components to rows, fitted to rows that were seen, by kernel ridge
  regression on the components, for any kernel. It gives back what the components tell of a row, its noise included;
- **fixed point** (Mika et al.): the row z whose image is nearest, which leaves noise out. With
  :math:`P = \sum_j\gamma_j\varphi(z_j)` and a Gaussian kernel, :math:`|\varphi(z) - P|^2` is stationary where

.. math:: z = \frac{\sum_j\gamma_j k(z, z_j) z_j}{\sum_j\gamma_j k(z, z_j)},

  whatever the metric of the kernel. The iteration starts at the best basis point, and stops where it no longer comes
  nearer.

With components t, :math:`P = \bar v + Ut` in whitened coordinates, so that :math:`\gamma = L^{-\top}(\bar v + Ut)`, and
the basis points have the inner products :math:`K_{mm}\gamma = L(\bar v + Ut)` with it.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer.basis import Basis
from mercer.engine import ArrayRows, ArrayTable, Executor, RowPass, Rows, Tile
from mercer.kernels import Gaussian, Kernel, Matern, Section
from mercer.methods.frame import Frame
from mercer.methods.nystrom import Settings, Summary
from mercer.methods.principal_components import PrincipalComponents
from mercer.model import KernelExpansion, Sample
from mercer.model.calibration import sample_rows

_BASIS = 500  # of the function from components to rows
_MEDIAN = 1000  # rows by which its length scale is found
_STEPS = 200
_MOVED = 1e-10  # share of the spread of the basis points: a row that moves less has arrived


def fitted_inverse(components: PrincipalComponents, sample: Sample, *, executor: Executor) -> KernelExpansion:
    """Return a function from components to rows, by kernel ridge regression on a sample of the rows."""
    # Equal rows are one of their weight. As rows that agree by chance they would be evidence that there is no noise.
    rows, place = np.unique(np.asarray(sample.rows, dtype=np.float64), axis=0, return_inverse=True)
    weights: FloatArray = np.bincount(place.ravel(), sample.weights)  # type: ignore[assignment]  # of float weights
    values = components.expansion.evaluate(ArrayRows(rows, checked=True), executor=executor)
    table = ArrayTable(ArrayRows(values, checked=True), labels=rows, weights=weights, relative=True)
    index = sample_rows(np.arange(len(values)), _BASIS)
    kernel = Matern("median", nu=2.5).resolve(values[:_MEDIAN])
    frame = Frame.build(kernel, Basis(np.ascontiguousarray(values[index]), index), np.dtype(np.float64))
    summary = Summary.start(frame, table, Settings(noise="auto", intercept=True, prior=False)).plus(table, executor)
    return replace(summary.solved[0], variance=None, scale=None)


def check_fixed_point(kernel: Kernel) -> None:
    """Refuse a kernel for which there is no such iteration."""
    if type(kernel) is not Gaussian:
        raise ValueError(
            f"inverse='fixed_point' needs a Gaussian kernel, got {kernel}: use inverse='ridge', which takes any kernel."
        )


def fixed_points(
    values: Rows, components: PrincipalComponents, frame: Frame, *, whitened: bool, executor: Executor
) -> FloatArray:
    """Rows (n, d) whose images are nearest to the points of the feature space with these components (n, r)."""
    vectors = components.vectors * np.sqrt(components.variances) if whitened else components.vectors
    work = _FixedPoint(
        kernel=frame.kernel,
        points=frame.basis.points,
        at_basis=(frame.lower @ vectors, frame.lower @ components.mean),
        weights=(frame.unwhiten(vectors), frame.unwhiten(components.mean)),
    )
    return executor.map(work, ArrayTable(values))


@dataclass(frozen=True)
class _FixedPoint(RowPass):
    """The iteration for a tile of components, all rows together; those that have arrived rest."""

    kernel: Kernel
    points: FloatArray  # (m, d)
    at_basis: tuple[FloatArray, FloatArray]  # LU (m, r) and Lv̄ (m,)
    weights: tuple[FloatArray, FloatArray]  # L⁻ᵀU (m, r) and L⁻ᵀv̄ (m,)

    name, fewest = "pre-images", 64

    @property
    def width(self) -> int:
        return 4 * (len(self.points) + len(self.points.T))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.points.shape[1],)

    @cached_property
    def _section(self) -> Section:
        return self.kernel.bind(self.points)

    def prepare(self) -> None:
        _ = self._section

    def apply(self, tile: Tile, out: AnyArray) -> None:
        components = tile.rows.astype(np.float64, copy=False)
        start = components @ self.at_basis[0].T + self.at_basis[1]
        gamma = components @ self.weights[0].T + self.weights[1]
        out[...] = self.points[np.argmax(start, axis=1)]
        nearness = np.max(start, axis=1)
        # Steps are taken from the median, so that a large offset does not cost digits.
        centre = np.median(self.points, axis=0)
        arrived = _MOVED * np.max(np.ptp(self.points, axis=0))
        left = np.arange(tile.n_rows)
        for _ in range(_STEPS):
            terms = gamma[left] * self._section.tile(out[left])
            sums = np.sum(terms, axis=1)
            left, terms, sums = left[sums > 0], terms[sums > 0], sums[sums > 0]  # beyond, the image is farther than 0
            proposed = centre + (terms @ (self.points - centre)) / sums[:, np.newaxis]
            reached = np.einsum("ij,ij->i", gamma[left], self._section.tile(proposed))
            nearer = reached > nearness[left]
            moved = np.max(np.abs(proposed - out[left]), axis=1) > arrived
            left, proposed, reached, moved = left[nearer], proposed[nearer], reached[nearer], moved[nearer]
            out[left], nearness[left] = proposed, reached
            left = left[moved]
            if not len(left):
                break
