"""One size: construct, refine, offset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer.compression.construct import Construction, construct
from mercer.compression.data_distance import DataDistance
from mercer.compression.distance import FeatureDistance
from mercer.compression.refine import refine
from mercer.engine import ArrayRows, Executor, kernel_times
from mercer.kernels import Kernel
from mercer.model import KernelExpansion

__all__ = ["Reduction", "Settings", "Shrinker", "Trial"]

_TOLERANCE = 1e-3  # share of the distance that 20 steps of a refinement must gain for it to go on


@dataclass(frozen=True)
class Settings:
    """What ``reduce_expansion`` was asked to do."""

    inputs: Any
    refine: bool
    offset: bool
    metric: str
    optimiser: str
    n_starts: int
    starts: str
    search_iter: int
    max_iter: int

    def without_moves(self, kernel: Kernel) -> Settings:
        """For a kernel that has no gradient: vectors are taken from the expansion's points."""
        if self.refine:
            msg = (
                f"{type(kernel).__name__} has no gradient, so vectors cannot be moved: pass refine=False to choose "
                "them among the points of the expansion."
            )
            raise ValueError(msg)
        return replace(self, search_iter=0)

    def halves(self, expansion: KernelExpansion, rng: np.random.RandomState) -> tuple[Settings, FloatArray]:
        """Settings to fit with, and the inputs that judge: others, if vectors are fitted to inputs."""
        inputs = expansion.points if self.inputs is None else self.inputs
        if self.metric == "feature" or len(inputs) < 2:
            return self, inputs
        order = rng.permutation(len(inputs))
        half = len(inputs) // 2
        return replace(self, inputs=np.ascontiguousarray(inputs[order[half:]])), inputs[order[:half]]


@dataclass(frozen=True)
class Trial:
    """A size that was tried.

    Attributes
    ----------
    n_vectors : int
    difference : float
        Root mean square difference of the predictions, in standard deviations of the output; of the worst output.
    """

    n_vectors: int
    difference: float


@dataclass(frozen=True)
class Reduction:
    """A smaller expansion, and how far it is from the one it replaces.

    Attributes
    ----------
    expansion : KernelExpansion
        Without variance. It has fewer vectors than asked for where fewer span all that matters.
    distances : array
        ρ² = |f - f'|² in feature space after each vector and, with ``metric="feature"``, after each accepted step of
        the refinement; it never grows. With several outputs, a sum in which each counts in units of its norm.
    differences : array
        With ``metric="data"``, the mean squared difference on the inputs after each accepted step; else empty.
    relative_distance : float
        ρ²/|f|² of the expansion, averaged over the outputs. With ``metric="data"`` it is not what is minimised, and may
        be large: functions that agree on the inputs may differ elsewhere.
    n_iter : int
        Steps of the refinement.
    trials : tuple of Trial
        With ``tol``, the sizes that were tried, in their order, and how far each was from the original.
    """

    expansion: KernelExpansion
    distances: FloatArray
    differences: FloatArray
    relative_distance: float
    n_iter: int
    trials: tuple[Trial, ...] = ()


class Shrinker:
    """Makes expansions of several sizes out of one.

    Parameters
    ----------
    expansion : KernelExpansion
        Distinct points, float64.
    settings : Settings
    rng : RandomState
    executor : Executor
    """

    def __init__(
        self, expansion: KernelExpansion, settings: Settings, rng: np.random.RandomState, executor: Executor
    ) -> None:
        self.expansion, self._settings, self._rng, self._executor = expansion, settings, rng, executor
        self.feature = FeatureDistance(expansion, executor=executor)
        self._unit = step_unit(expansion)
        self._built: Construction | None = None
        self._values = self.feature.values  # f where offset and data metric look, without its intercept
        self._inputs = expansion.points
        if settings.inputs is not None:
            self._inputs = settings.inputs
            if settings.offset or settings.metric == "data":
                self._values = self._evaluate(expansion)
        self._distance: FeatureDistance | DataDistance = self.feature
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
        built = self._construct(n_vectors)
        moved = refine(
            distance, built.vectors, unit=self._unit, optimiser=settings.optimiser,
            max_iter=settings.max_iter if settings.refine else 0, tol=_TOLERANCE,
        )  # fmt: skip
        coefficients = moved.evaluation.coefficients * distance.units
        reduced = replace(self.expansion, points=moved.vectors, coefficients=coefficients)
        offset = moved.evaluation.offset * distance.units if by_data else self._mean_difference(reduced)
        reduced = replace(reduced, intercept=reduced.intercept + offset)
        relative = self.feature.between(reduced.points, reduced.coefficients) / self.feature.start
        if by_data:
            return Reduction(reduced, built.distances, moved.distances, relative, moved.n_iter)
        # Rounding of two ways to compute the same distance must not look like a step back.
        curve = np.minimum.accumulate(np.concatenate([built.distances, moved.distances]))
        return Reduction(reduced, curve, np.empty(0), relative, moved.n_iter)

    def _construct(self, n_vectors: int) -> Construction:
        """The first vectors of the construction, which is continued if it is not yet so long."""
        if self._built is None or len(self._built.vectors) < n_vectors:
            settings, given = self._settings, None if self._built is None else self._built.vectors
            self._built = construct(
                self.feature, n_vectors, unit=self._unit, rng=self._rng, n_starts=settings.n_starts,
                max_iter=settings.search_iter, given=given, best_starts=settings.starts == "best",
            )  # fmt: skip
        return self._built.first(n_vectors)

    def _mean_difference(self, reduced: KernelExpansion) -> FloatArray:
        if not self._settings.offset:
            return np.zeros(len(reduced.intercept))
        return np.asarray(np.mean(self._values - self._evaluate(reduced), axis=0))

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
