"""A basis and the factor of its kernel matrix: what statistics of different rows must share to be added."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import lapack, solve_triangular
from sklearn.utils.random import sample_without_replacement

from mercer._stored import stored
from mercer._stored.checks import check_finite, check_kernel, check_lower, check_shape, need
from mercer._typing import FloatArray, IntArray
from mercer._validation import check_random_state
from mercer.basis import Basis
from mercer.engine import ArrayTable, Features, NormalStatistics, mean_targets
from mercer.exceptions import warn
from mercer.kernels import Kernel, Linear, Polynomial, Precomputed, as_kernel
from mercer.model import KernelExpansion, Variance
from mercer.model.calibration import sample_rows
from mercer.solvers.dense import pivoted_cholesky
from mercer.solvers.ridge import RidgeProblem, RidgeSolution

_MEDIAN_SAMPLE = 1000  # rows from which data-dependent kernel parameters are found
_OFFSET_SAMPLE = 200  # rows on which the rank of a polynomial is looked at
_FAR = 10.0  # spreads from zero: an offset that can cost a polynomial its digits


def used_rows(table: ArrayTable, noise: float) -> IntArray:
    """Numbers of the rows whose noise λ/ω is finite: rows of weight zero are left out."""
    if table.weights is None:
        return np.arange(table.n_rows)
    with np.errstate(over="ignore", divide="ignore"):
        index = np.flatnonzero(np.isfinite(max(noise, 1.0) / np.asarray(table.weights)))
    if not len(index):
        raise ValueError("sample_weight is so small that no row counts: scale it.")
    return index


def target_shift(table: ArrayTable, *, intercept: bool) -> FloatArray:
    """What to subtract from the targets, shape (p,): their mean where an intercept takes it up again.

    A large offset would otherwise cost the sums their digits. Without an intercept it is zero.
    """
    if not intercept:
        return np.zeros(table.n_outputs)
    return mean_targets(table)


def given_kernel(kernel: Any, n_features: int) -> Kernel:
    """The kernel object for what an estimator is given, without what is noise in it (see ``total_noise``)."""
    if isinstance(kernel, str) and kernel == "precomputed":
        kernel = Precomputed()
    function: Kernel | None = as_kernel(kernel, n_features).without_noise()
    if function is None:
        raise ValueError(f"kernel={kernel!r} is noise alone: add another kernel to White, such as Gaussian().")
    if isinstance(function, Precomputed):
        msg = "kernel='precomputed' is for ExactRegressor and ExactClassifier: a basis needs the rows themselves."
        raise ValueError(msg)  # noqa: TRY004  as for other values of this parameter
    return function


def total_noise(kernel: Any, noise: Any) -> Any:
    """The given noise and that in the kernel (``White``), as a number; one that is to be chosen stays as it is.

    With a level in the kernel nothing is chosen: the level is the noise.
    """
    level = 0.0 if isinstance(kernel, str) else as_kernel(kernel).noise_level
    if isinstance(noise, str):
        return level if level > 0 else noise
    return float(noise) + level


def resolve_kernel(kernel: Any, table: ArrayTable, random_state: Any) -> Kernel:
    """Return the kernel with all parameters as numbers, found on a sample of the rows where they depend on data.

    What is noise in it (``White``) is left out.
    """
    unresolved = given_kernel(kernel, table.n_features)
    if not unresolved.needs_data:
        given: Kernel = unresolved.resolve(np.empty((0, table.n_features)))
        if isinstance(given, Linear | Polynomial):
            _warn_of_offset(given, table.rows.take(sample_rows(np.arange(table.n_rows), _OFFSET_SAMPLE)))
        return given
    positive = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights)
    if len(positive) > _MEDIAN_SAMPLE:
        rng = check_random_state(random_state)
        positive = positive[np.sort(sample_without_replacement(len(positive), _MEDIAN_SAMPLE, random_state=rng))]
    weights = None if table.weights is None else table.weights[positive]
    return unresolved.resolve(table.rows.take(positive), weights)


def _warn_of_offset(kernel: Kernel, rows: FloatArray) -> None:
    """Warn if rows would span more were they centred: powers of a large offset leave no digits to their differences."""
    rows = rows.astype(np.float64)
    middle = np.median(rows, axis=0)
    if not np.any(np.abs(middle) > _FAR * np.std(rows, axis=0)):
        return
    tolerance = _PIVOT_ROUNDINGS * float(np.finfo(np.float64).eps)
    rank, centred = (len(pivoted_cholesky(kernel(each), tolerance=tolerance).order) for each in (rows, rows - middle))
    if centred > rank:
        warn(
            f"the features of X lie up to {np.max(np.abs(middle)):.3g} from zero, which leaves a "
            f"{type(kernel).__name__} kernel {rank} independent functions of at least {centred}: "
            "subtract their means, for example by sklearn.preprocessing.StandardScaler.",
            UserWarning,
        )


# Pivots below this many roundings, relative to the first, mean that the others span the point: roundings of the kernel
# matrix in float64, of the tiles in float32.
_PIVOT_ROUNDINGS = 8.0
# Points are dropped at a tolerance this much stricter than the one they are kept at, until what is left passes.
_STRICTER = 2.0
# Products k_m(x)k_m(x)ᵀ may be summed as they are, and whitened afterwards, where the pass over the rows is so long (in
# multiply-adds: a good part of a second) and the rounding that whitening magnifies stays below this share of what the
# solution resolves: a noise, or the variance of a component.
_LONG_PASS = 1e10
PLAIN_ERROR = 1e-5
# Largest error of |v|², as a share of k(x, x), that rounding of K_mm may cause at any row, by a bound that is high: on
# bunched points a smaller one costs more of them, and what is dropped is known to the root of its pivot only.
_STEADY = 1e-2


@stored
@dataclass(frozen=True)
class Frame:
    """Basis points z and K_mm = LLᵀ."""

    kernel: Kernel
    basis: Basis
    lower: FloatArray  # (m, m)
    dtype: np.dtype[Any]

    def check_stored(self) -> None:
        """Refuse a factor or a kernel of other points."""
        check_lower(self.lower, len(self.basis.points), "the factor of a basis")
        check_kernel(self.kernel, self.basis.points.shape[1])
        need(not isinstance(self.kernel, Precomputed), "the kernel of a basis needs rows.")
        need(self.dtype in (np.float32, np.float64), "a basis is neither float32 nor float64.")

    @classmethod
    def build(cls, kernel: Kernel, basis: Basis, dtype: np.dtype[Any], *, steady: bool = False) -> Frame:
        """Factor K_mm = LLᵀ, and drop the points that the others span to rounding.

        ``steady`` if differences k(x, x) - |v|² will be taken: from points close together, rows far away are
        extrapolated with weights that magnify rounding, so more of such points are dropped.

        Points that are given keep their order if all can be kept, so that the basis of one model, given to another,
        makes the same frame to the last bit. Otherwise they are sorted, the most informative first.
        """
        tolerance = _PIVOT_ROUNDINGS * float(np.finfo(dtype).eps)
        given, note = len(basis.points), basis.note
        lower = None if basis.index is not None else _factor(kernel, basis.points, tolerance)
        stricter = tolerance
        while lower is None or (steady and len(lower) > 1 and not projection_rounding(lower) <= _STEADY):
            stricter *= _STRICTER
            factor = pivoted_cholesky(kernel(basis.points), tolerance=stricter)
            basis = basis.taken(factor.order)
            # A single point is kept whatever its kernel value, which may be zero.
            lower = _factor(kernel, basis.points, tolerance) if len(factor.order) > 1 else factor.lower
        if len(basis.points) < given:
            note = f"{note} {len(basis.points)} of {given} points are used: they span the others to rounding.".strip()
        return cls(kernel, replace(basis, note=note), lower, dtype)

    @property
    def smallest_pivot(self) -> float:
        """The smallest pivot: how far a point is from the span of those before it."""
        return float(np.min(np.diagonal(self.lower)) ** 2)

    @property
    def largest_kernel(self) -> float:
        """The largest k(z, z) of the basis."""
        return float(np.max(np.einsum("ij,ij->i", self.lower, self.lower)))

    def may_sum_plain(self, n_rows: int) -> bool:
        """Whether whitening after a pass over so many rows saves time, and its rounding has a bound.

        The kernel must be bounded on rows that were not seen yet, as one is whose diagonal is the same everywhere.
        """
        return n_rows * len(self.lower) ** 2 >= _LONG_PASS and self.kernel.same_diagonal

    def plain_rounding(self, total_weight: float) -> float:
        """Rounding of sums of k_m(x)k_m(x)ᵀ over rows of that weight, magnified by whitening."""
        # Entries of K_mnK_nm are sums of n products k·k, known to eps; whitening divides them by the pivots.
        return float(np.finfo(np.float64).eps * total_weight * self.largest_kernel**2 / self.smallest_pivot)

    def features(self, *, whitened: bool) -> Features:
        """k_m(x), or L⁻¹k_m(x)."""
        return Features(self.kernel, self.basis.points, lower=self.lower if whitened else None, dtype=self.dtype)

    def unwhiten(self, weights: FloatArray) -> FloatArray:
        """w = L⁻ᵀu."""
        return np.asarray(solve_triangular(self.lower, weights, lower=True, trans="T", check_finite=False))

    def problem(
        self, sums: NormalStatistics, target_shift: FloatArray, *, intercept: bool, n_targets: float | None = None
    ) -> RidgeProblem:
        """Ridge regression on the whitened features, from sums of targets less the shift."""
        counted = sums.n_targets if n_targets is None else n_targets
        sums = sums.whitened(self.lower)
        if not intercept:
            sums = sums.with_targets_shifted(target_shift)
        return RidgeProblem.from_sums(
            gram=sums.gram, cross=sums.cross, moments=sums.moments, n_targets=counted, intercept=intercept
        )

    def expansion(self, solution: RidgeSolution, target_shift: FloatArray, *, prior: bool) -> KernelExpansion:
        """Return the model of a solution; ``prior`` is whether its variance counts what the basis cannot represent."""
        # k(x,x) - |v|² + λ (v - v̄)ᵀ(A + λI)⁻¹(v - v̄) + λ/n
        variance = Variance(
            lower=self.lower,
            root=solution.root,
            offset=solution.root @ solution.mean,
            constant=solution.constant,
            prior=prior,
        )
        return KernelExpansion(
            kernel=self.kernel,
            points=self.basis.points,
            coefficients=self.unwhiten(solution.weights),
            intercept=solution.shifted_intercept(target_shift),
            variance=variance,
            scale=solution.scale,
        )

    def check_sums(self, statistics: NormalStatistics, target_shift: FloatArray) -> None:
        """Refuse stored sums that are not those of this basis and of these targets."""
        p, m, found = len(target_shift), len(self.lower), statistics.n_features
        check_shape(target_shift, (p,), "the shift of targets")
        check_finite(target_shift, "the shift of targets")
        need(found == m, f"sums have {found} features, the basis has {m} points.")
        need(len(statistics.sums) == m + p + 1, f"sums are not those of {p} outputs.")

    def check_expansion(self, expansion: KernelExpansion | None, n_outputs: int) -> None:
        """Refuse a stored model that is not one on this basis."""
        if expansion is not None:
            check_shape(expansion.points, self.basis.points.shape, "points of a model")
            check_shape(expansion.coefficients, (len(self.lower), n_outputs), "coefficients of a model")
            same = expansion.kernel.equals(self.kernel) and np.array_equal(expansion.points, self.basis.points)
            need(same, "a model has another kernel or other points than its basis.")

    def same_as(self, other: Frame) -> bool:
        """Whether statistics on both can be added."""
        return (
            self.kernel.equals(other.kernel)
            and self.dtype == other.dtype
            and np.array_equal(self.basis.points, other.basis.points)
        )


def projection_rounding(lower: FloatArray) -> float:
    """Error of |v|² = aᵀK_mm a, a = K_mm⁻¹k_m(x), by rounding of K_mm, about eps·|a|²; as a share of k(x, x)."""
    inverse, _ = lapack.dtrtri(lower, lower=1)  # |a|² ≤ k(x, x) tr K_mm⁻¹, the squared norm of L⁻¹
    largest = float(np.max(np.einsum("ij,ij->i", lower, lower)))
    return float(np.finfo(np.float64).eps * largest * np.sum(inverse**2))


def _factor(kernel: Kernel, points: FloatArray, tolerance: float) -> FloatArray | None:
    """L of the points in their order, or None if a pivot is below the tolerance."""
    lower, info = lapack.dpotrf(np.asfortranarray(kernel(points)), lower=1, clean=1, overwrite_a=1)
    if info or not np.min(np.diagonal(lower) ** 2) > tolerance * np.max(np.einsum("ij,ij->i", lower, lower)):
        return None
    return np.asfortranarray(lower)
