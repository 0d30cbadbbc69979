"""What is reported of a prediction, and ranks."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm, rankdata

from mercer._typing import FloatArray, IntArray

COVERAGE = 0.95


class Clock:
    """Time since it was made: the process's on its processors, which others hardly change, and real time."""

    def __init__(self) -> None:
        self._start = time.process_time(), time.perf_counter()

    def read(self) -> "Took":
        return Took(time.process_time() - self._start[0], time.perf_counter() - self._start[1])


class Took(NamedTuple):
    """Seconds of a fit and a prediction."""

    processor: float
    real: float


@dataclass(frozen=True)
class Predicted:
    """Of test rows: a mean, the standard deviation of an observation, the ends of intervals; and what it took."""

    mean: FloatArray
    std: FloatArray
    lower: FloatArray
    upper: FloatArray
    took: Took


@dataclass(frozen=True)
class Probabilities:
    """Of test rows, a column per class; and what it took."""

    table: FloatArray
    took: Took


def scores(predicted: Predicted, truth: FloatArray, *, unit: float) -> dict[str, float]:
    """Scores of a regression; lengths are in units of the training targets' standard deviation."""
    residuals = truth - predicted.mean
    inside = (predicted.lower <= truth) & (truth <= predicted.upper)
    return {
        "error": float(np.sqrt(np.mean(residuals**2))) / unit,
        "log_density": float(np.mean(norm.logpdf(residuals, scale=predicted.std))) + float(np.log(unit)),
        "z2": float(np.mean((residuals / predicted.std) ** 2)),
        "coverage": float(np.mean(inside)),
        "width": float(np.mean(predicted.upper - predicted.lower)) / unit,
        **predicted.took._asdict(),
    }


def class_scores(predicted: Probabilities, truth: IntArray) -> dict[str, float]:
    """Scores of a classification, whose classes are counted from 0."""
    table = predicted.table
    hit = np.arange(table.shape[1]) == truth[:, np.newaxis]
    return {
        "wrong": float(np.mean(np.argmax(table, axis=1) != truth)),
        "log_loss": float(-np.mean(np.log(np.maximum(table[hit], np.finfo(np.float64).tiny)))),
        "brier": float(np.mean(np.sum((table - hit) ** 2, axis=1))),
        **predicted.took._asdict(),
    }


def conformal_width(residuals: FloatArray, coverage: float = COVERAGE) -> float:
    """The ⌈(k + 1)·coverage⌉-th smallest of k absolute residuals of rows held out; the largest if that is too few."""
    k = len(residuals)
    place = min(int(np.ceil((k + 1) * coverage)), k)
    return float(np.sort(np.abs(residuals))[place - 1])


def mean_ranks(errors: Mapping[str, ArrayLike]) -> dict[str, float]:
    """Mean over the sets of the rank of each method's error, 1 for the least; equal errors share their ranks' mean."""
    ranks = rankdata(np.array(list(errors.values())), axis=0)
    return dict(zip(errors, np.mean(ranks, axis=1).tolist(), strict=True))
