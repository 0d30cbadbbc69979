"""How many vectors a tolerance needs."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mercer._typing import FloatArray
from mercer.compression.data_distance import output_units
from mercer.compression.shrink import Reduction, Shrinker, Trial
from mercer.engine import Executor
from mercer.model import KernelExpansion

__all__ = ["find_size", "relative_difference"]

_FIRST = 4  # vectors


def find_size(
    shrinker: Shrinker,
    expansion: KernelExpansion,
    inputs: FloatArray,
    *,
    most: int,
    tol: float,
    executor: Executor,
) -> tuple[Reduction | None, tuple[Trial, ...]]:
    """The smallest expansion that is found to keep the tolerance; None for the expansion itself.

    Sizes are doubled until one suffices; then the interval between it and the last that did not is halved, down to
    one vector.
    """
    values, trials = expansion.evaluate(inputs, executor=executor), []
    known: dict[int, Reduction] = {}

    def suffices(n_vectors: int) -> bool:
        shrunk = known[n_vectors] = shrinker.shrink(n_vectors)
        difference = relative_difference(values, shrunk.expansion.evaluate(inputs, executor=executor))
        trials.append(Trial(len(shrunk.expansion.points), difference))
        return difference < tol

    few, enough, n_points = 0, min(_FIRST, most), len(expansion.points)
    while enough < n_points and not suffices(enough):
        if enough == most or trials[-1].n_vectors < enough:  # no more are allowed, or no more would help
            _warn(trials[-1], tol)
            return known[enough], tuple(trials)
        few, enough = enough, min(2 * enough, most)
    while min(enough, n_points) - few > 1:
        middle = (few + min(enough, n_points)) // 2
        few, enough = (few, middle) if suffices(middle) else (middle, enough)
    return known.get(enough), tuple(trials)


def relative_difference(values: FloatArray, others: FloatArray) -> float:
    """Root mean square difference by output, in standard deviations of the values; the largest."""
    units = output_units(np.std(values, axis=0), np.sqrt(np.mean(values**2, axis=0)))
    return float(np.max(np.sqrt(np.mean((values - others) ** 2, axis=0)) / units))


def _warn(trial: Trial, tol: float) -> None:
    warnings.warn(
        f"{trial.n_vectors} vectors differ by {trial.difference:.3g} standard deviations, tol is {tol:g}: allow more "
        "vectors, or a larger tol.",
        ConvergenceWarning,
        stacklevel=5,
    )
