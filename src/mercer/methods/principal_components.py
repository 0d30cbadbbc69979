r"""Kernel principal components on a basis, from sums over the rows.

==============  ==================  ==============  =======================================================
symbol          code                shape           meaning
==============  ==================  ==============  =======================================================
K_mm = LLᵀ      ``frame.lower``     (m, m)          kernel matrix of the basis
v(x)            whitened features   (m,)            L⁻¹k_m(x): the Nyström kernel matrix is VVᵀ
W, v̄            ``mean``            (m,)            Σω, and the mean of v over the rows
C               ``covariance``      (m, m)          VᵀΩV/W - v̄v̄ᵀ
s, U            ``variances``       (r,), (m, r)    leading eigenpairs of C
==============  ==================  ==============  =======================================================

W·s are the eigenvalues of the centred Nyström matrix, and :math:`U^\top(v(x) - \bar v)` are the components of a row: an
expansion with the coefficients :math:`L^{-\top}U` and the intercepts :math:`-U^\top\bar v`.

The variance in all directions, :math:`\sum\omega k(x,x)/W - |\bar v|^2`, is what the statistics give when k(x, x) takes
the place of the targets. Of the exact kernel matrix it would be :math:`\operatorname{tr}K/n - 1^\top K1/n^2`, whose
last term no single pass gives; it is at least :math:`|\bar v|^2`. So shares of variance are never too large, and right
if the basis represents the mean of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from mercer._stored import stored
from mercer._stored.checks import check_finite, check_shape, need
from mercer._typing import FloatArray
from mercer.engine import ArrayTable, Executor, NormalStatistics, Tile
from mercer.engine.statistics import NormalPass
from mercer.methods.frame import PLAIN_ERROR, Frame
from mercer.model import KernelExpansion
from mercer.model.calibration import sample_rows

# Variances below so many roundings of the mean of |v|² are rounding: with that many, three digits are left.
_ROUNDINGS = 1e3
# Rows for each basis point by which the least variance is guessed, and the factor that the guess may be off.
_GUESSING, _GUESSED = 4, 10.0
_WORTH_GUESSING = 4  # times as many rows
_TIE = 1e-6  # projections of basis points that differ by this share are equally far out


@dataclass(frozen=True)
class _DiagonalPass(NormalPass):
    """Sums of [φ, k(x, x), 1] [φ, k(x, x), 1]ᵀ: the statistics of a fit, with k(x, x)/unit in the place of targets."""

    n_outputs: int = 1
    unit: float = 1.0

    def values(self, tile: Tile) -> FloatArray:
        """[φ, k(x, x), 1, 0] of a tile."""
        diagonal = self.features.kernel.diagonal(tile.rows) / self.unit
        return super().values(replace(tile, targets=diagonal[:, np.newaxis]))


@stored
@dataclass(frozen=True)
class PrincipalComponents:
    """Leading eigenpairs of the centred Nyström matrix, as a function of a row."""

    expansion: KernelExpansion  # U ᵀ(v(x) - v̄), divided by √s if whitened
    variances: FloatArray  # s, (r,), descending
    total: float  # variance in all directions
    vectors: FloatArray  # U, (m, r)
    mean: FloatArray  # v̄, (m,)
    note: str  # why there are no more

    def check_stored(self) -> None:
        """Refuse parts of different sizes."""
        m, r = len(self.mean), len(self.variances)
        check_shape(self.variances, (r,), "variances")
        check_shape(self.vectors, (m, r), "directions")
        need(len(self.expansion.intercept) == r, "components are not those of their variances.")
        for name in ("variances", "vectors", "mean"):
            check_finite(getattr(self, name), name)

    @property
    def ratios(self) -> FloatArray:
        """Shares of the variance in all directions."""
        return self.variances / self.total if self.total > 0 else np.zeros_like(self.variances)


def solve(frame: Frame, statistics: NormalStatistics, *, n_components: int | None, whiten: bool) -> PrincipalComponents:
    """Find the leading components; all whose variance is above rounding, if their number is None."""
    sums = statistics.whitened(frame.lower)
    m, weight = len(frame.lower), sums.total_weight
    mean = sums.cross[:, -1] / weight
    # C = VᵀΩV/W - v̄v̄ᵀ
    covariance = sums.gram / weight - np.outer(mean, mean)
    first = 0 if n_components is None else max(m - n_components, 0)
    variances, vectors = eigh(covariance, subset_by_index=[first, m - 1], check_finite=False, overwrite_a=True)
    variances, vectors = variances[::-1], vectors[:, ::-1]
    above = variances > np.maximum(_least_variance(frame, statistics), _tile_rounding(frame, vectors))
    number = len(above) if np.all(above) else int(np.argmin(above))
    variances, vectors = variances[:number], vectors[:, :number]
    note = _note(number, n_components, frame)
    if number == 0:  # rows that do not differ: no direction is better than another
        variances, vectors = np.zeros(1), np.zeros((m, 1))
    # The basis points have the components (L - 1v̄ᵀ)U; of each, the one that is farthest out is positive.
    vectors = vectors * _signs(frame.lower @ vectors - mean @ vectors)
    scaled = vectors / np.sqrt(variances) if whiten and number else vectors
    expansion = KernelExpansion(frame.kernel, frame.basis.points, frame.unwhiten(scaled), -(mean @ scaled))
    total = frame.largest_kernel * float(sums.moments[0, -1]) / weight - float(mean @ mean)
    return PrincipalComponents(expansion, variances, max(total, float(np.sum(variances))), vectors, mean, note)


def kernel_statistics(table: ArrayTable, frame: Frame, *, whitened: bool, executor: Executor) -> NormalStatistics:
    """Sum the features of all rows, whitened or not, in one pass, with k(x, x) in the place of targets."""
    # float64 rows after float32 ones keep their digits.
    features = replace(frame, dtype=np.promote_types(frame.dtype, table.dtype)).features(whitened=whitened)
    return executor.reduce(_DiagonalPass(features, unit=frame.largest_kernel), table).weighed_as(table)


def plain_is_safe(frame: Frame, table: ArrayTable, n_components: int | None, executor: Executor) -> bool:
    """Whether sums of kernel values as they are, whitened afterwards, give these components, and save time."""
    n, m = table.n_rows, len(frame.lower)
    if n_components is None or not frame.may_sum_plain(n) or n < _WORTH_GUESSING * _GUESSING * m:
        return False
    some = table.subset(sample_rows(np.arange(n), _GUESSING * m))
    few = solve(
        frame, kernel_statistics(some, frame, whitened=True, executor=executor), n_components=n_components, whiten=False
    )
    total = n if table.weights is None else float(np.sum(table.weights))
    # Components then differ from those of whitened sums by a few times this share, if their variances differ as much.
    return frame.plain_rounding(total) <= PLAIN_ERROR * total * float(few.variances[-1]) / _GUESSED


def _least_variance(frame: Frame, statistics: NormalStatistics) -> float:
    """The smallest variance that is no rounding of the sums."""
    weight = statistics.total_weight
    rounding = float(np.finfo(np.float64).eps) * weight * frame.largest_kernel
    if not statistics.is_whitened:
        rounding = max(rounding, frame.plain_rounding(weight))
    return _ROUNDINGS * rounding / weight


def _tile_rounding(frame: Frame, vectors: FloatArray) -> FloatArray:
    """The smallest variance along each direction that is no rounding of kernel values: of float32 tiles, above all."""
    # uᵀv = aᵀk_m with a = L⁻ᵀu, and each of the m kernel values is known to eps.
    weights = np.linalg.norm(frame.unwhiten(vectors), axis=0)
    return np.asarray(_ROUNDINGS * (float(np.finfo(frame.dtype).eps) * frame.largest_kernel * weights) ** 2)


def _note(number: int, wanted: int | None, frame: Frame) -> str:
    rounding = "the rounding of float32, which float64 rows have not" if frame.dtype == np.float32 else "rounding"
    if number == 0:
        return f"the rows do not differ above {rounding}: the only component is zero."
    if wanted is None or number == wanted:
        return ""
    points = f"{len(frame.lower)} basis point{'s' * (len(frame.lower) > 1)}"
    note = f"the rows vary in no more than {number} direction{'s' * (number > 1)} above {rounding}, on {points}."
    return f"{note} {frame.basis.note}".strip()


def _signs(at_basis: FloatArray) -> FloatArray:
    """±1 for each column, by the first of the largest entries."""
    sizes = np.abs(at_basis)
    first = np.argmax(sizes >= (1 - _TIE) * np.max(sizes, axis=0), axis=0)
    return np.where(np.take_along_axis(at_basis, first[np.newaxis], axis=0)[0] < 0, -1.0, 1.0)
