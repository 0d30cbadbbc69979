"""Results of the comparison of strategies, kept in a file as they come."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from papers.experiment import read_sized

__all__ = ["Curves", "Measured", "Results"]


@dataclass(frozen=True)
class Measured:
    """One strategy on one split: lists over the numbers of points, and CPU seconds to choose the most."""

    unexplained: list[float]
    errors: list[float]
    found: list[int]  # points chosen
    seconds: float


@dataclass(frozen=True)
class Curves:
    """Results of a data set, as arrays (seeds, numbers of points) by strategy; seconds are for the largest number."""

    name: str
    points: tuple[int, ...]
    noise: float
    unexplained: dict[str, FloatArray]
    errors: dict[str, FloatArray]
    found: dict[str, FloatArray]
    seconds: dict[str, FloatArray]  # (seeds,)

    def better_than_uniform(self, column: int) -> dict[str, float]:
        """Strategies that beat uniform draws, with the share of the test error that they save.

        They save at least 1 %, and three standard errors of the difference between draws with the same seed.
        """
        plain = self.errors["uniform"][:, column]
        savings = {name: plain - other[:, column] for name, other in self.errors.items()}
        return {
            name: float(np.mean(saving) / np.mean(plain))
            for name, saving in savings.items()
            if float(np.mean(saving)) > max(0.01 * float(np.mean(plain)), 3.0 * _standard_error(saving))
        }


def _standard_error(values: FloatArray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")


class Results:
    """What was measured so far, by data set, seed and strategy; written to a file (if one is given) at once.

    A file of an experiment of another size is refused.
    """

    def __init__(self, path: Path | None, sizes: Any = None) -> None:
        self._path = path
        size = json.loads(json.dumps(asdict(sizes))) if sizes is not None else None
        self._all = read_sized(path, "sizes", size) or {"sizes": size, "noise": {}, "measured": {}}

    def noise(self, name: str) -> float | None:
        """λ of a data set, if it was chosen."""
        noise = self._all["noise"].get(name)
        return None if noise is None else float(noise)

    def set_noise(self, name: str, noise: float) -> float:
        """Keep λ of a data set, and return it."""
        self._all["noise"][name] = noise
        return noise

    def has(self, name: str, strategy: str, seed: int) -> bool:
        """Whether this was measured."""
        return strategy in self._all["measured"].get(name, {}).get(str(seed), {})

    def is_complete(self, name: str, strategies: list[str], seeds: int) -> bool:
        """Whether all of a data set was measured."""
        return all(self.has(name, strategy, seed) for strategy in strategies for seed in range(seeds))

    def add(self, name: str, strategy: str, seed: int, measured: Measured) -> None:
        """Keep a measurement."""
        self._all["measured"].setdefault(name, {}).setdefault(str(seed), {})[strategy] = asdict(measured)
        if self._path is not None:
            self._path.write_text(json.dumps(self._all, indent=1) + "\n", encoding="utf-8")

    def curves(self, name: str, points: tuple[int, ...], strategies: list[str], seeds: int) -> Curves:
        """The results of a data set."""
        measured = self._all["measured"][name]

        def table(key: str) -> dict[str, FloatArray]:
            return {
                strategy: np.array([measured[str(seed)][strategy][key] for seed in range(seeds)])
                for strategy in strategies
            }

        return Curves(
            name, points, self.noise(name) or 0.0,
            table("unexplained"), table("errors"), table("found"), table("seconds"),
        )  # fmt: skip
