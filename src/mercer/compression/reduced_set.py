r"""Replace an expansion by a smaller one.

T. Suttorp, C. Igel: *Approximation of Gaussian process regression models after training* (ESANN 2008). Vectors are
constructed one after the other (``construct``), moved together (``refine``), and the mean of what is left is added as an
offset. Of the model only its expansion is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer._typing import FloatArray, RandomState
from mercer._validation import check_random_state
from mercer.compression.construct import construct
from mercer.compression.distance import FeatureDistance
from mercer.compression.refine import refine
from mercer.engine import Threads, as_rows, blas_threads
from mercer.expansion import KernelExpansion

__all__ = ["Reduction", "reduce_expansion"]


@dataclass(frozen=True)
class Reduction:
    """A smaller expansion, and how far it is from the one it replaces.

    Attributes
    ----------
    expansion : KernelExpansion
    distances : array
        ρ² after each vector and after each accepted step of the refinement; it never grows.
    relative_distance : float
        ρ²/|f|² at the end.
    n_iter : int
        Steps of the refinement.
    """

    expansion: KernelExpansion
    distances: FloatArray
    relative_distance: float
    n_iter: int


def reduce_expansion(
    expansion: KernelExpansion,
    n_vectors: int | None = None,
    *,
    inputs: Any = None,
    refine: bool = True,
    offset: bool = True,
    tol: float | None = None,
    metric: str = "feature",
    optimiser: str = "irprop",
    n_starts: int = 4,
    max_iter: int = 1000,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Reduction:
    """Replace an expansion by one of few vectors that need not be among its points."""
    executor = Threads(n_jobs, verbose=verbose)
    with blas_threads(1):  # tiles are small; threads of our own work on several of them
        given = _plain(expansion)
        if n_vectors is None:
            msg = "n_vectors must be given."
            raise ValueError(msg)
        if n_vectors >= len(given.points):
            return Reduction(given, np.zeros(1), 0.0, 0)
        distance = FeatureDistance(given, executor=executor)
        unit, rng = step_unit(given), check_random_state(random_state)
        built = construct(distance, n_vectors, unit=unit, rng=rng, n_starts=n_starts, max_iter=100)
        vectors, coefficients, curve, n_iter = built.vectors, built.coefficients, built.distances, 0
        if refine:
            refined = _refine(distance, vectors, unit=unit, optimiser=optimiser, max_iter=max_iter, tol=1e-2)
            vectors, coefficients = refined.vectors, refined.evaluation.coefficients
            curve, n_iter = np.concatenate([curve, refined.distances]), refined.n_iter
        reduced = replace(given, points=vectors, coefficients=coefficients * distance.units)
        if offset:
            rows = as_rows(given.points if inputs is None else inputs)
            left = given.evaluate(rows, executor=executor) - reduced.evaluate(rows, executor=executor)
            reduced = replace(reduced, intercept=reduced.intercept + np.mean(left, axis=0))
        return Reduction(reduced, curve, float(curve[-1]) / distance.start, n_iter)


_refine = refine


def _plain(expansion: KernelExpansion) -> KernelExpansion:
    """In float64, without points that have no coefficient, without variance."""
    coefficients = np.asarray(expansion.coefficients, dtype=np.float64)
    used = np.any(coefficients != 0, axis=1)
    used[0] |= not np.any(used)
    points = np.ascontiguousarray(np.asarray(expansion.points, dtype=np.float64)[used])
    intercept = np.asarray(expansion.intercept, dtype=np.float64)
    return KernelExpansion(expansion.kernel, points, np.ascontiguousarray(coefficients[used]), intercept)


def step_unit(expansion: KernelExpansion) -> FloatArray:
    """How far a vector may move in one step, by feature: the spread of the points, or the length scale if smaller."""
    spread = np.std(expansion.points, axis=0)
    unit = np.where(spread > 0, spread, 1.0)
    for name, value in expansion.kernel.get_params().items():
        if name.split("__")[-1] == "length_scale":
            unit = np.minimum(unit, value)
    return np.asarray(unit, dtype=np.float64)
