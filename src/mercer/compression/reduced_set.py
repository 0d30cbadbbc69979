r"""Replace an expansion by a smaller one.

T. Suttorp, C. Igel: *Approximation of Gaussian process regression models after training* (ESANN 2008). Vectors are
constructed one after the other (``construct``), moved together (``refine``), and the mean of what is left is added as
an offset. Of the model only its expansion is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mercer._typing import FloatArray, RandomState
from mercer._validation import check_random_state
from mercer.compression.construct import construct
from mercer.compression.distance import DataDistance, Distance, FeatureDistance, output_units
from mercer.compression.refine import Refinement
from mercer.compression.refine import refine as refine_vectors
from mercer.engine import ArrayRows, Executor, Threads, blas_threads, kernel_times
from mercer.exceptions import warn
from mercer.kernels import Precomputed
from mercer.kernels.metric import as_metric
from mercer.model import KernelExpansion

_LARGEST = 1e100  # of coefficients, whose products with kernel values are squared
_TOLERANCE = 1e-3  # share of the distance that 20 steps of a refinement must gain for it to go on
_FIRST = 4  # vectors of the first size that is tried for a tolerance


@dataclass(frozen=True)
class Reduction:
    """A smaller expansion, and how far it is from the one it replaces.

    With several outputs, distances are sums in which each output counts in units of its norm.
    """

    expansion: KernelExpansion  # without variance; with fewer vectors than asked for where these span all that matters
    # ρ² = |f - f'|² after each vector and, with metric="feature", each accepted step of the refinement; it never grows
    distances: FloatArray
    differences: FloatArray  # with metric="data", mean squared ones on the inputs after each accepted step; else empty
    # ρ²/|f|², averaged over the outputs that are not zero;
    # large where functions agree on the inputs (metric="data") and not elsewhere
    relative_distance: float
    n_iter: int  # steps of the refinement

    @classmethod
    def to_itself(cls, expansion: KernelExpansion) -> Reduction:
        """An expansion that is kept as it is."""
        return cls(expansion, np.zeros(1), np.empty(0), 0.0, 0)


def reduce_expansion(
    expansion: KernelExpansion,
    n_vectors: int | None = None,
    *,
    inputs: Any = None,
    refine: bool = True,
    offset: bool = True,
    tol: float | None = None,
    metric: str = "feature",
    optimiser: str = "lbfgs",
    n_starts: int = 4,
    starts: str = "best",
    search_iter: int = 15,
    max_iter: int = 1000,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Reduction:
    r"""Replace :math:`f = \sum_i \alpha_i k(x_i, \cdot) + b` by few vectors that need not be among the x.

    .. math:: \min_{z, \beta}\ \Bigl|\sum_{i=1}^n \alpha_i\phi(x_i) - \sum_{j=1}^m \beta_j\phi(z_j)\Bigr|^2,

    or, with ``metric="data"``, the mean squared difference of the two on given inputs. All outputs share the vectors.

    Cost: n² kernel values once, for the norm of f; then n·m per step (with ``metric="data"`` three times as many, of
    the inputs in place of n). Memory: the points, n·p·(d+1), m², and tiles.

    Parameters are those of ``compress``, which checks them; ``inputs`` (N, d) are its X. Besides:

    Parameters
    ----------
    optimiser : {"lbfgs", "irprop", "joint"}, default="lbfgs"
        Of the refinement: with the coefficients eliminated by L-BFGS or iRprop⁺, or iRprop⁺ on vectors and coefficients
        as in the document. L-BFGS came closest in as many steps (``papers.approximation_after_training``).
    n_starts : int, default=4
        From how many points the search for each vector starts.
    starts : {"best", "proportional"}, default="best"
        Points are drawn in proportion to their coefficients, as in the document. The search starts from those of a
        large draw where what is left of f is greatest, or from the points as they are drawn.
    search_iter : int, default=15
        Most steps of iRprop⁺ in the search for each vector; 0 takes the best of the expansion's own points. More make
        the construction closer but, after the refinement, the result no better.
    max_iter : int, default=1000
        Most steps of the refinement.
    """
    _check_expansion(expansion)
    given = _distinct_points(expansion)
    inputs = given.points if inputs is None else np.ascontiguousarray(inputs, dtype=np.float64)
    if not np.all(np.isfinite(inputs)):
        raise ValueError("inputs contain NaN or infinity.")
    rng, executor = check_random_state(random_state), Threads(n_jobs, verbose=verbose)
    most = len(given.points) if n_vectors is None else min(n_vectors, len(given.points))
    if tol is None and most == len(given.points):
        return Reduction.to_itself(given)
    if not _has_gradient(given):
        if refine:
            raise ValueError(
                f"{type(given.kernel).__name__} has no gradient, so vectors cannot be moved: pass refine=False to "
                "choose them among the points of the expansion."
            )
        search_iter = 0
    judged = inputs
    if tol is not None and metric == "data" and len(judged) > 1:  # fitted to half of the inputs, judged by the others
        order, half = rng.permutation(len(judged)), len(judged) // 2
        inputs, judged = judged[order[half:]], judged[order[:half]]
    with blas_threads(1):  # tiles are small; threads of our own work on several of them
        unit, best = step_unit(given), starts == "best"
        search = partial(construct, unit=unit, rng=rng, n_starts=n_starts, max_iter=search_iter, best_starts=best)
        steps = max_iter if refine else 0
        descend = partial(refine_vectors, unit=unit, optimiser=optimiser, max_iter=steps, tol=_TOLERANCE)
        shrinker = _Shrinker(given, inputs, metric, offset, search, descend, executor)
        if shrinker.feature.start == 0:  # coefficients that cancel: the intercept is all there is
            coefficients = np.zeros((1, given.coefficients.shape[1]))
            return Reduction.to_itself(replace(given, points=given.points[:1], coefficients=coefficients))
        return shrinker.shrink(most) if tol is None else shrinker.shrink_within(tol, judged, most=most)


@dataclass
class _Shrinker:
    """Makes expansions of several sizes out of one, whose points are distinct and float64."""

    expansion: KernelExpansion
    inputs: FloatArray
    metric: str
    offset: bool
    construct: Callable[..., tuple[FloatArray, FloatArray]]  # ``construct`` and ``refine`` with their options
    refine: Callable[[Distance, FloatArray], Refinement]
    executor: Executor

    def __post_init__(self) -> None:
        expansion, executor = self.expansion, self.executor
        self.feature = FeatureDistance(expansion, executor=executor)
        self._built: FloatArray = np.empty((0, expansion.points.shape[1]))
        self._distances: FloatArray = np.empty(0)  # ρ² after each of these vectors
        is_own = self.inputs is expansion.points
        self._values = self.feature.values if is_own else self._evaluate(expansion)  # on the inputs, without intercept
        self._distance: Distance = self.feature
        if self.metric == "data":
            self._distance = DataDistance(expansion, self.inputs, self._values, offset=self.offset, executor=executor)

    def shrink(self, n_vectors: int) -> Reduction:
        """An expansion of that many vectors, or fewer.

        All sizes begin with the first vectors of one construction, not with the refined ones of a smaller size: from
        those, descents ended at distances up to three times as large.
        """
        if len(self._built) < n_vectors:
            self._built, self._distances = self.construct(self.feature, n_vectors, given=self._built)
        moved, units = self.refine(self._distance, self._built[:n_vectors]), self._distance.units
        coefficients = moved.evaluation.coefficients * units
        reduced = replace(self.expansion, points=moved.vectors, coefficients=coefficients)
        distances, differences, offset = self._distances[:n_vectors], np.empty(0), np.zeros(len(units))
        if self.metric == "data":
            differences, offset = np.array(moved.distances), moved.evaluation.offset * units
        else:  # rounding of two ways to compute the same distance must not look like a step back
            distances = np.minimum.accumulate(np.concatenate([distances, moved.distances]))
            if self.offset:
                offset = np.mean(self._values - self._evaluate(reduced), axis=0)
        relative = self.feature.between(reduced.points, coefficients) / self.feature.start
        reduced = replace(reduced, intercept=reduced.intercept + offset)
        return Reduction(reduced, distances, differences, relative, moved.n_iter)

    def shrink_within(self, tol: float, inputs: FloatArray, *, most: int) -> Reduction:
        """The smallest expansion that is found to keep the tolerance on the inputs; the given one if no other does.

        Sizes are doubled until one suffices; then the interval between it and the last that did not is halved, down to
        one vector: one less was tried and did not suffice, though by another start it might.
        """
        values, n_points = self.expansion.evaluate(inputs, executor=self.executor), len(self.expansion.points)
        known: dict[int, Reduction] = {}

        def difference(n_vectors: int) -> float:
            shrunk = known[n_vectors] = self.shrink(n_vectors)
            return relative_difference(values, shrunk.expansion.evaluate(inputs, executor=self.executor))

        few, enough = 0, min(_FIRST, most)
        while enough < n_points and not (found := difference(enough)) < tol:
            size = len(known[enough].expansion.points)
            if enough == most or size < enough:  # no more are allowed, or no more would help
                warn(
                    f"{size} vectors differ by {found:.3g} standard deviations, tol is {tol:g}: allow more vectors, or "
                    "a larger tol.",
                    ConvergenceWarning,
                )
                return known[enough]
            few, enough = enough, min(2 * enough, most)
        while enough - few > 1:
            middle = (few + enough) // 2
            few, enough = (few, middle) if difference(middle) < tol else (middle, enough)
        return known.get(enough) or Reduction.to_itself(self.expansion)

    def _evaluate(self, expansion: KernelExpansion) -> FloatArray:
        """On the inputs, without the intercept."""
        rows = ArrayRows(self.inputs, checked=True)
        return kernel_times(rows, expansion.kernel, expansion.points, expansion.coefficients, executor=self.executor)


def step_unit(expansion: KernelExpansion) -> FloatArray:
    """A large step of a vector, by feature: the spread of the points, or the kernel's length scale if that is smaller.

    A feature that is constant has no spread; one hundredth of the largest stands in for it.
    """
    spread = np.std(expansion.points, axis=0)
    largest = float(np.max(spread, initial=0.0))
    unit = np.where(spread > 0, spread, 0.01 * largest if largest > 0 else 1.0)
    for name, value in expansion.kernel.get_params().items():
        if name.split("__")[-1] == "length_scale":
            metric = as_metric(value)
            unit = np.minimum(unit, value if metric is None else metric.steps)
    return np.asarray(unit, dtype=np.float64)


def relative_difference(values: FloatArray, others: FloatArray) -> float:
    """Root mean square difference by output, in standard deviations of the values; the largest."""
    units = output_units(np.std(values, axis=0), np.sqrt(np.mean(values**2, axis=0)))
    return float(np.max(np.sqrt(np.mean((values - others) ** 2, axis=0)) / units))


def _distinct_points(expansion: KernelExpansion) -> KernelExpansion:
    """The expansion in float64, each point once, none without a coefficient (but one at least), without variance."""
    given = np.asarray(expansion.points, dtype=np.float64)
    distinct, first, place = np.unique(given, axis=0, return_index=True, return_inverse=True)
    sums = np.zeros((len(distinct), expansion.coefficients.shape[1]))
    np.add.at(sums, place.ravel(), expansion.coefficients)
    order = np.argsort(first)
    points, coefficients = distinct[order], sums[order]
    used = np.any(coefficients != 0, axis=1)
    used[0] |= not np.any(used)
    intercept = np.asarray(expansion.intercept, dtype=np.float64)
    return KernelExpansion(expansion.kernel, points[used], coefficients[used], intercept)


def _has_gradient(expansion: KernelExpansion) -> bool:
    """Whether the kernel can be differentiated by its points."""
    point = expansion.points[:1]
    try:
        expansion.kernel.points_gradient(point, point, np.ones((1, 1)))
    except NotImplementedError:
        return False
    return True


def _check_expansion(expansion: KernelExpansion) -> None:
    if isinstance(expansion.kernel, Precomputed):
        msg = "a model on a precomputed kernel cannot be compressed: its points are not known. Use a kernel and rows."
        raise ValueError(msg)  # noqa: TRY004  the value of a parameter of the model
    if len(expansion.points) == 0:
        raise ValueError("the expansion has no points.")
    if not (np.all(np.isfinite(expansion.points)) and np.all(np.isfinite(expansion.coefficients))):
        raise ValueError("the points and coefficients of the expansion must be finite.")
    largest = np.max(np.abs(expansion.coefficients), axis=0)
    if np.any((largest > 0) & ~((largest > 1 / _LARGEST) & (largest < _LARGEST))):
        msg = f"coefficients of an output go up to {largest.tolist()}: their squares are no numbers. Scale the targets."
        raise ValueError(msg)
