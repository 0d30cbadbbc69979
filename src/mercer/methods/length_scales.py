"""``length_scale="ard"``: one length scale per feature, by the marginal likelihood of the targets.

The search starts at length scales in proportion to the spread of each feature, so that units of features do not matter.
It changes the length scales, and the noise unless that is given; the amplitude of the targets has its best value at
each step (``likelihood``). Up to ``DECIDING_ROWS`` rows decide, drawn at random if there are more.
"""

import sys
from contextlib import nullcontext
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.random import sample_without_replacement

from mercer._typing import FloatArray
from mercer._validation import check_random_state
from mercer.engine import ArrayTable, Executor, blas_threads
from mercer.kernels import Kernel
from mercer.kernels.median_distance import median_distance
from mercer.methods.exact import unit_targets
from mercer.methods.frame import given_kernel, resolve_kernel
from mercer.methods.likelihood import maximise_likelihood
from mercer.solvers.ridge import Choice

DECIDING_ROWS = 1000
_MEDIAN_ROWS = 1000
_FEWEST_ROWS = 3  # two rows are one difference, which the best amplitude explains
_STEPS = 60
_CONSTANT = 1e-12  # spread of a feature relative to its size, below which it is rounding
_NOISE = 0.1  # λ/ω where the search starts, relative to k(x, x)
_LEAST_NOISE = 1e-6  # of the search, relative to k(x, x): with less, a smooth kernel's matrix is singular


def fitted_kernel(
    kernel: Any, table: ArrayTable, random_state: Any, *, noise: float | Choice, intercept: bool, executor: Executor
) -> Kernel:
    """The kernel with numbers for parameters, those that are "ard" fitted to the targets at the noise, if it is one."""
    function = given_kernel(kernel, table.n_features)
    names = _unknown(function)
    if not names:
        return resolve_kernel(kernel, table, random_state)
    if not table.n_outputs:
        raise ValueError(
            f"kernel={kernel!r}: length_scale='ard' is fitted to targets, of which there are none here: give "
            "'median', a number, or one number per feature."
        )
    function.check(table.n_features)
    rng = check_random_state(random_state)
    rows, targets, weights = _deciding(table, rng)
    scales = typical_scales(rows, weights)
    start = resolve_kernel(clone(function).set_params(**dict.fromkeys(names, scales)), table, rng)
    # Outputs of one size decide alike; constant ones say nothing.
    targets, _ = unit_targets(targets)
    sizes = np.std(targets, axis=0)
    varied = sizes > _CONSTANT
    if len(rows) < _FEWEST_ROWS or not np.any(varied):
        return start
    unit, level = float(np.mean(weights)), float(np.mean(start.diagonal(rows)))
    given = None if isinstance(noise, str) else max(float(noise) / level, _LEAST_NOISE * unit)

    def say(message: str) -> None:
        if executor.verbose:
            print(f"length scales: {message}", file=sys.stderr, flush=True)

    threads = getattr(executor, "n_jobs", None)
    with nullcontext() if threads is None else blas_threads(threads):
        found = maximise_likelihood(
            start, rows, targets[:, varied] / sizes[varied], weights, counted=table.counted,
            names=names, noise=_NOISE * unit if given is None else given, fit_noise=given is None,
            intercept=intercept, max_iter=_STEPS, say=say,
        )  # fmt: skip
    return found.kernel


def _unknown(kernel: Kernel) -> list[str]:
    """Names of the length scales that are to be fitted, in the kernel and the parts of it."""
    return [name for name, value in kernel.get_params().items() if isinstance(value, str) and value == "ard"]


def _deciding(table: ArrayTable, rng: np.random.RandomState) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows of positive weight, their targets and weights: all of them, or some."""
    index = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights)
    if len(index) > DECIDING_ROWS:
        index = index[np.sort(sample_without_replacement(len(index), DECIDING_ROWS, random_state=rng))]
    rows = np.asarray(table.rows.take(index), dtype=np.float64)
    weights = np.ones(len(index)) if table.weights is None else table.weights[index]
    return rows, table.targets[index], weights


def typical_scales(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Length scales (d,): the spread of each feature, 1 if it is constant, times the median distance in such units."""
    largest = np.max(np.abs(rows), axis=0)
    scaled = rows / np.where(largest > 0, largest, 1.0)  # squares of huge values would overflow
    spread = np.sqrt(np.average((scaled - np.average(scaled, axis=0, weights=weights)) ** 2, axis=0, weights=weights))
    unit = np.where(spread > _CONSTANT, spread * largest, 1.0)
    some = slice(None, _MEDIAN_ROWS)
    return np.asarray(unit * median_distance((rows / unit)[some], weights[some]))
