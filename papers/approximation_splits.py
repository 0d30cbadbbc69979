"""The runs of the experiment with approximation after training: one split of one set, all methods, all sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer.compression.reduced_set import reduce_expansion
from mercer.datasets import load_abalone, load_boston
from mercer.estimators.exact import ExactRegressor
from mercer.estimators.nystrom import NystromRegressor
from mercer.kernels import Gaussian
from mercer.model import KernelExpansion
from papers.experiment import Kept, scaled, shuffled_split

__all__ = [
    "DESCENTS",
    "DOCUMENT",
    "METHODS",
    "OURS",
    "SETS",
    "Set",
    "distances",
    "errors",
    "measure",
    "measure_descents",
    "standardised",
]

# The document's: one start per vector, drawn in proportion to |α|, and iRprop⁺ throughout. It tells no numbers of
# steps; iRprop⁺ ends by itself, after these at the latest.
DOCUMENT: dict[str, Any] = {
    "n_starts": 1, "starts": "proportional", "search_iter": 100, "optimiser": "joint", "max_iter": 300,
}  # fmt: skip
OURS: dict[str, Any] = {"max_iter": 300}

# Each is run once; errors are kept with the mean offset and without.
METHODS: dict[str, dict[str, Any]] = {
    "document, no descent": {**DOCUMENT, "refine": False},
    "document": DOCUMENT,
    "variable projection": OURS,
    "on data": {**OURS, "metric": "data"},
}
# Which optimiser comes closest; the first splits of abalone, from the vectors of our construction.
DESCENTS = {
    "joint": "iRprop⁺, vectors and coefficients",
    "irprop": "iRprop⁺, coefficients eliminated",
    "lbfgs": "L-BFGS, coefficients eliminated",
}
STEPS, DESCENT_SPLITS, DESCENT_VECTORS = (50, 200, 800), 5, 25

RANDOM = "random rows, refitted"
FULL_MODEL = "full model"


@dataclass(frozen=True)
class Set:
    """A data set as section 4 has it.

    Attributes
    ----------
    load : callable
    gamma, noise : float
        Of exp(-γ r²), and λ.
    n_train, splits : int
    sizes : tuple of int
        Numbers of vectors; ours.
    centred : bool
        Whether targets have zero mean; they have unit variance anyway.
    methods : tuple of str
    """

    load: Callable[[], tuple[FloatArray, FloatArray]]
    gamma: float
    noise: float
    n_train: int
    splits: int
    sizes: tuple[int, ...]
    centred: bool = True
    methods: tuple[str, ...] = (*METHODS, RANDOM)

    @property
    def kernel(self) -> Gaussian:
        """γ = 1/(2ℓ²)."""
        return Gaussian(float(np.sqrt(0.5 / self.gamma)))


_ABALONE = Set(load_abalone, 10**-1.5, 10**-1.5, 3000, 10, (5, 10, 15, 25, 50))
SETS = {
    "abalone": _ABALONE,
    "boston": Set(load_boston, 10**-1.2, 10**-2.0, 481, 100, (5, 10, 20, 40, 80)),
    "abalone, targets not centred": replace(
        _ABALONE, sizes=(10, 25), centred=False, methods=("document, no descent", "document")
    ),
}


def standardised(data: Set) -> tuple[FloatArray, FloatArray]:
    """Inputs that are not indicators have zero mean and unit variance over the whole set, as in the document."""
    X, y = data.load()
    return scaled(X, binary=False), (y - y.mean() * data.centred) / y.std()


def measure(name: str, data: Set, split: int, kept: Kept, *, verbose: bool = False) -> None:
    """Mean squared test errors of one split, as far as they are not known."""
    if all(kept.has(_key(name, split, method)) for method in (FULL_MODEL, *data.methods)):
        return
    rows, targets = standardised(data)
    train, test = shuffled_split(len(rows), data.n_train, split)
    model = ExactRegressor(data.kernel, noise=data.noise, intercept=False).fit(rows[train], targets[train])
    expansion: KernelExpansion = model.expansion_

    def error(of: KernelExpansion) -> float:
        return float(np.mean((of.evaluate(rows[test])[:, 0] - targets[test]) ** 2))

    def reduced(method: str, size: int) -> dict[str, float]:
        if method == RANDOM:
            refitted = NystromRegressor(
                data.kernel, n_basis=size, noise=data.noise, random_state=split, intercept=False
            )
            return {f"{size} offset": error(refitted.fit(rows[train], targets[train]).expansion_)}
        small = reduce_expansion(expansion, size, random_state=split, **METHODS[method]).expansion
        without = replace(small, intercept=expansion.intercept)
        return {f"{size} offset": error(small), f"{size} plain": error(without)}

    kept.get(_key(name, split, FULL_MODEL), lambda: {"0 offset": error(expansion)})
    for method in data.methods:

        def run(method: str = method) -> dict[str, float]:
            return {key: value for size in data.sizes for key, value in reduced(method, size).items()}

        kept.get(_key(name, split, method), run, verbose=verbose)


def measure_descents(data: Set, split: int, kept: Kept, *, verbose: bool = False) -> None:
    """Relative distances ρ²/|f|² that the optimisers reach in some numbers of steps, from the same vectors."""

    def run() -> dict[str, float]:
        rows, targets = standardised(data)
        train, _ = shuffled_split(len(rows), data.n_train, split)
        expansion = (
            ExactRegressor(data.kernel, noise=data.noise, intercept=False).fit(rows[train], targets[train]).expansion_
        )
        return {
            f"{steps} {optimiser}": reduce_expansion(
                expansion, DESCENT_VECTORS, optimiser=optimiser, max_iter=steps, random_state=split
            ).relative_distance
            for optimiser in DESCENTS
            for steps in STEPS
        }

    kept.get(_key("abalone", split, "descents"), run, verbose=verbose)


def distances(split: int, optimiser: str, steps: int, kept: Kept) -> float:
    """What ``measure_descents`` has found."""
    return kept.get(_key("abalone", split, "descents"), _missing)[f"{steps} {optimiser}"]


def errors(name: str, data: Set, method: str, size: int, kept: Kept, reading: str = "offset") -> FloatArray:
    """Errors of all splits; the full model has size 0."""
    found = [kept.get(_key(name, split, method), _missing) for split in range(data.splits)]
    return np.array([numbers[f"{size} {reading}"] for numbers in found])


def _key(name: str, split: int, method: str) -> str:
    return f"{name}, split {split}, {method}"


def _missing() -> dict[str, float]:
    raise KeyError("this split has not been measured.")
