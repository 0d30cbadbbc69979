"""Timing: contestants take turns, so that a noisy moment of the machine hits both."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Times:
    """Seconds of each contestant in each round."""

    seconds: dict[str, list[float]]

    def best(self, name: str) -> float:
        """Least time of a contestant."""
        return min(self.seconds[name])

    def ratio(self, slow: str, fast: str) -> float:
        """Median over the rounds of how many times longer the first takes."""
        pairs = zip(self.seconds[slow], self.seconds[fast], strict=True)
        return float(np.median([a / b for a, b in pairs]))


def race(contestants: Mapping[str, Callable[[], object]], rounds: int) -> Times:
    """Run all contestants in turn, several rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return Times(seconds)


def best_of(run: Callable[[], object], rounds: int = 5) -> float:
    """Least time of several runs, after one that does not count."""
    run()
    return race({"run": run}, rounds).best("run")
