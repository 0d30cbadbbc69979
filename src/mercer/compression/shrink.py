"""Expansions of several sizes out of one: construct, refine, offset; and the smallest that keeps a tolerance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mercer._typing import FloatArray
from mercer.compression.construct import Construction, construct
from mercer.compression.distance import DataDistance, Distance, FeatureDistance, output_units
from mercer.compression.refine import refine
from mercer.engine import ArrayRows, Executor, kernel_times
from mercer.exceptions import warn
from mercer.model import KernelExpansion

_TOLERANCE = 1e-3  # share of the distance that 20 steps of a refinement must gain for it to go on
_FIRST = 4  # vectors of the first size that is tried for a tolerance


@dataclass(frozen=True)
class Settings:
    """What ``reduce_expansion`` was asked to do."""

    inputs: FloatArray | None
    refine: bool
    offset: bool
    metric: str
    optimiser: str
    n_starts: int
    starts: str
    search_iter: int
    max_iter: int


class Trial(NamedTuple):
    """A size that was tried for a tolerance."""

    n_vectors: int
    difference: float  # root mean square of the predictions', in standard deviations of the output; the worst output


@dataclass(frozen=True)
class Reduction:
    """A smaller expansion, and how far it is from the one it replaces.

    With several outputs, distances are sums in which each output counts in units of its norm.
    """

    expansion: KernelExpansion  # without variance; with fewer vectors than asked for where these span all that matters
    # ρ² = |f - f'|² after each vector and, with metric="feature", each accepted step of the refinement; it never grows
    distances: FloatArray
    differences: FloatArray  # with metric="data", mean squared ones on the inputs after each accepted step; else empty
    # ρ²/|f|², averaged over the outputs; large where functions agree on the inputs (metric="data") and not elsewhere
    relative_distance: float
    n_iter: int  # steps of the refinement
    trials: tuple[Trial, ...] = ()  # with tol, the sizes in the order in which they were tried

    @classmethod
    def to_itself(cls, expansion: KernelExpansion) -> Reduction:
        """An expansion that is kept as it is."""
        return cls(expansion, np.zeros(1), np.empty(0), 0.0, 0)


class Shrinker:
    """Makes expansions of several sizes out of one, whose points are distinct and float64."""

    def __init__(
        self, expansion: KernelExpansion, settings: Settings, rng: np.random.RandomState, executor: Executor
    ) -> None:
        self.expansion, self._settings, self._rng, self._executor = expansion, settings, rng, executor
        self.feature = FeatureDistance(expansion, executor=executor)
        self._unit = step_unit(expansion)
        self._built = Construction(np.empty((0, expansion.points.shape[1])), np.empty(0))
        self._values = self.feature.values  # f where offset and data metric look, without its intercept
        self._inputs = expansion.points
        if settings.inputs is not None:
            self._inputs = settings.inputs
            if settings.offset or settings.metric == "data":
                self._values = self._evaluate(expansion)
        self._distance: Distance = self.feature
        if settings.metric == "data":
            self._distance = DataDistance(
                expansion, self._inputs, self._values, offset=settings.offset, executor=executor
            )

    def shrink(self, n_vectors: int) -> Reduction:
        """An expansion of that many vectors, or fewer.

        All sizes begin with the first vectors of one construction, not with the refined ones of a smaller size: from
        those, descents ended at distances up to three times as large.
        """
        settings, distance, by_data = self._settings, self._distance, self._distance is not self.feature
        if len(self._built.vectors) < n_vectors:
            self._built = construct(
                self.feature,
                n_vectors,
                unit=self._unit,
                rng=self._rng,
                n_starts=settings.n_starts,
                max_iter=settings.search_iter,
                given=self._built.vectors,
                best_starts=settings.starts == "best",
            )
        built, distances = self._built.vectors[:n_vectors], self._built.distances[:n_vectors]
        steps = settings.max_iter if settings.refine else 0
        moved = refine(distance, built, unit=self._unit, optimiser=settings.optimiser, max_iter=steps, tol=_TOLERANCE)
        coefficients = moved.evaluation.coefficients * distance.units
        reduced = replace(self.expansion, points=moved.vectors, coefficients=coefficients)
        if by_data:
            reduced = replace(reduced, intercept=reduced.intercept + moved.evaluation.offset * distance.units)
        elif settings.offset:
            difference = np.mean(self._values - self._evaluate(reduced), axis=0)
            reduced = replace(reduced, intercept=reduced.intercept + difference)
        relative = self.feature.between(reduced.points, reduced.coefficients) / self.feature.start
        if by_data:
            return Reduction(reduced, distances, moved.distances, relative, moved.n_iter)
        # Rounding of two ways to compute the same distance must not look like a step back.
        curve = np.minimum.accumulate(np.concatenate([distances, moved.distances]))
        return Reduction(reduced, curve, np.empty(0), relative, moved.n_iter)

    def shrink_within(self, tol: float, inputs: FloatArray, *, most: int) -> Reduction:
        """The smallest expansion that is found to keep the tolerance on the inputs; the given one if no other does.

        Sizes are doubled until one suffices; then the interval between it and the last that did not is halved, down to
        one vector.
        """
        values, n_points = self.expansion.evaluate(inputs, executor=self._executor), len(self.expansion.points)
        trials: list[Trial] = []
        known: dict[int, Reduction] = {}

        def suffices(n_vectors: int) -> bool:
            shrunk = known[n_vectors] = self.shrink(n_vectors)
            difference = relative_difference(values, shrunk.expansion.evaluate(inputs, executor=self._executor))
            trials.append(Trial(len(shrunk.expansion.points), difference))
            return difference < tol

        few, enough = 0, min(_FIRST, most)
        while enough < n_points and not suffices(enough):
            if enough == most or trials[-1].n_vectors < enough:  # no more are allowed, or no more would help
                warn(
                    f"{trials[-1].n_vectors} vectors differ by {trials[-1].difference:.3g} standard deviations, tol is "
                    f"{tol:g}: allow more vectors, or a larger tol.",
                    ConvergenceWarning,
                )
                return replace(known[enough], trials=tuple(trials))
            few, enough = enough, min(2 * enough, most)
        while min(enough, n_points) - few > 1:
            middle = (few + min(enough, n_points)) // 2
            few, enough = (few, middle) if suffices(middle) else (middle, enough)
        return replace(known.get(enough) or Reduction.to_itself(self.expansion), trials=tuple(trials))

    def _evaluate(self, expansion: KernelExpansion) -> FloatArray:
        """On the inputs, without the intercept."""
        rows = ArrayRows(self._inputs, checked=True)
        return kernel_times(rows, expansion.kernel, expansion.points, expansion.coefficients, executor=self._executor)


def step_unit(expansion: KernelExpansion) -> FloatArray:
    """A large step of a vector, by feature: the spread of the points, or the kernel's length scale if that is smaller.

    A feature that is constant has no spread; one hundredth of the largest stands in for it.
    """
    spread = np.std(expansion.points, axis=0)
    largest = float(np.max(spread, initial=0.0))
    unit = np.where(spread > 0, spread, 0.01 * largest if largest > 0 else 1.0)
    for name, value in expansion.kernel.get_params().items():
        if name.split("__")[-1] == "length_scale":
            unit = np.minimum(unit, value)
    return np.asarray(unit, dtype=np.float64)


def relative_difference(values: FloatArray, others: FloatArray) -> float:
    """Root mean square difference by output, in standard deviations of the values; the largest."""
    units = output_units(np.std(values, axis=0), np.sqrt(np.mean(values**2, axis=0)))
    return float(np.max(np.sqrt(np.mean((values - others) ** 2, axis=0)) / units))
