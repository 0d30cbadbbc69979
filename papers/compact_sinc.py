"""Compact kernels on the sinc function: bias and variance (Fig. 1), times, condition numbers (Fig. 2)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from mercer._typing import FloatArray
from mercer.engine import SparseGram, Threads
from mercer.estimators.compact import CompactRegressor
from mercer.estimators.exact import ExactRegressor
from mercer.kernels import CompactGaussian, Gaussian
from mercer.reports.table import format_table
from mercer.solvers.conjugate_gradient import conjugate_gradient
from mercer.solvers.dense import cholesky_in_place
from mercer.solvers.sparse_cholesky import sparse_cholesky
from papers.experiment import Claim

__all__ = [
    "COMPARABLE",
    "Conditions",
    "Sinc",
    "SincSizes",
    "Timing",
    "claims",
    "conditions",
    "sinc",
    "summary",
    "timings",
]

GAMMA, SIGMA, NOISE = 1.5, 3.7, 0.1  # section 4.1
READINGS = ("targets", "inputs")  # where the noise is added
COMPARABLE = 2.0  # errors, iterations and condition numbers within this factor count as comparable

PRINTED_NONZEROS = 850_160  # section 4.1, of 1334² = 1 779 556
PRINTED_SECONDS = {  # section 4.1: CPU time to solve Hη = 1 and Hν = y
    ("Cholesky", "RBF, dense"): 9.745,
    ("Cholesky", "CS-RBF, sparse"): 4.327,
    ("CG", "RBF, dense"): 4.147,
    ("CG", "CS-RBF, sparse"): 2.654,
}
TOLERANCE = 1e-6  # of CG; the document does not print its own


@dataclass(frozen=True)
class SincSizes:
    """How large the experiment is."""

    step: float = 0.03
    repetitions: int = 100
    timings: int = 5
    grid: int = 13


def gaussian(sigma: float) -> Gaussian:
    """exp(-r²/σ²): the document's σ is √2 length scales."""
    return Gaussian(length_scale=sigma / math.sqrt(2.0))


def compact(sigma: float, **options: Any) -> CompactGaussian:
    """Equation (1): cut-off 3σ, exponent d or the next odd number, unless told otherwise."""
    return CompactGaussian(length_scale=sigma / math.sqrt(2.0), **options)


def inputs(step: float) -> FloatArray:
    """-20, ..., 20, a column."""
    return np.asarray(-20.0 + step * np.arange(math.floor(40.0 / step) + 1))[:, np.newaxis]


def _sinc(x: FloatArray) -> FloatArray:
    return np.asarray(np.sinc(x / np.pi))


# ------------------------------------------------------------------------------------------------ bias and variance


@dataclass(frozen=True)
class Spread:
    """Of the estimates at all inputs, over the repetitions."""

    one: FloatArray  # the first estimate
    bias: FloatArray
    variance: FloatArray
    roughness: float  # root mean square of second differences

    @property
    def error(self) -> float:
        """Mean squared error to the clean function."""
        return float(np.mean(self.bias**2 + self.variance))


@dataclass(frozen=True)
class Sinc:
    """What Fig. 1 shows, by kernel and by where the noise was added."""

    x: FloatArray
    spreads: dict[tuple[str, str], Spread]
    nonzeros: int
    bounds: tuple[int, int]  # of the non-zeros: without and with pairs whose distance is the cut-off itself


def sinc(sizes: SincSizes) -> Sinc:
    """Fit both kernels to all repetitions at once: H does not depend on the targets."""
    X = inputs(sizes.step)
    x, shape, rng = X[:, 0], (len(X), sizes.repetitions), np.random.default_rng(0)
    drawn = {
        "targets": _sinc(X) + NOISE * rng.normal(size=shape),
        "inputs": _sinc(X + NOISE * rng.normal(size=shape)),
    }
    sparse_model = CompactRegressor(compact(SIGMA), noise=1 / GAMMA, random_state=0)
    models: dict[str, Any] = {
        "RBF": ExactRegressor(gaussian(SIGMA), noise=1 / GAMMA, intercept=True),
        "CS-RBF": sparse_model,
    }
    spreads = {}
    for name, model in models.items():
        estimates = np.asarray(model.fit(X, np.column_stack([drawn[reading] for reading in READINGS])).predict(X))
        for reading, part in zip(READINGS, np.split(estimates, len(READINGS), axis=1), strict=True):
            spreads[name, reading] = _spread(part, _sinc(x))
    return Sinc(x, spreads, int(sparse_model.nnz_), _nonzero_bounds(sizes.step))


def _spread(estimates: FloatArray, clean: FloatArray) -> Spread:
    roughness = float(np.sqrt(np.mean(np.diff(estimates, 2, axis=0) ** 2)))
    return Spread(estimates[:, 0], estimates.mean(axis=1) - clean, estimates.var(axis=1, ddof=1), roughness)


def _nonzero_bounds(step: float) -> tuple[int, int]:
    """The cut-off is 370 steps: rounding decides about the pairs at that distance."""
    n, steps, rounding = len(inputs(step)), 3.0 * SIGMA / step, 1e-9

    def pairs(last: int) -> int:
        return n + 2 * sum(n - k for k in range(1, min(last, n - 1) + 1))

    return pairs(math.ceil(steps - rounding) - 1), pairs(math.floor(steps + rounding))


# ------------------------------------------------------------------------------------------------------------ times


@dataclass(frozen=True)
class Timing:
    """What it takes to solve the two systems, the best of some runs; H is given."""

    method: str
    matrix: str
    cpu: float
    clock: float
    iterations: int
    size: int  # numbers stored of H, or of its factor


def timings(sizes: SincSizes) -> list[Timing]:
    """Cholesky factors and conjugate gradients, on dense and on sparse matrices."""
    X = inputs(sizes.step)
    right = np.column_stack([_sinc(X[:, 0]) + NOISE * np.random.default_rng(0).normal(size=len(X)), np.ones(len(X))])
    dense = {"RBF": gaussian(SIGMA)(X), "CS-RBF": compact(SIGMA)(X)}
    for matrix in dense.values():
        matrix[np.diag_indices_from(matrix)] += 1 / GAMMA
    rows = sparse.csr_array(dense["CS-RBF"])
    measured = []
    for name, matrix in dense.items():
        measured.append(_measured("Cholesky", f"{name}, dense", lambda m=matrix: _dense(m, right), sizes))  # type: ignore[misc]
    for ordering in ("natural", "rcm", "amd"):
        label = "CS-RBF, sparse" if ordering == "natural" else f"CS-RBF, sparse, {ordering}"
        measured.append(_measured("Cholesky", label, lambda o=ordering: _factored(rows, right, o), sizes))  # type: ignore[misc]
    for name, matrix in [*((f"{name}, dense", matrix) for name, matrix in dense.items()), ("CS-RBF, sparse", rows)]:
        measured.append(_measured("CG", name, lambda m=matrix: _by_gradients(m, right), sizes))  # type: ignore[misc]
    return measured


def _measured(method: str, matrix: str, solve: Callable[[], tuple[int, int]], sizes: SincSizes) -> Timing:
    best = (math.inf, math.inf)
    # One thread for all: sparse factors have no more, and BLAS with more waits for cores that others use.
    with threadpool_limits(1):
        solve()  # compiles, and warms up
        for _ in range(sizes.timings):
            clock, cpu = time.perf_counter(), time.process_time()
            iterations, size = solve()
            best = min(best, (time.perf_counter() - clock, time.process_time() - cpu))
    return Timing(method, matrix, best[1], best[0], iterations, size)


def _dense(matrix: FloatArray, right: FloatArray) -> tuple[int, int]:
    cholesky_in_place(matrix.copy()).solve(right)
    return 1, matrix.size // 2


def _factored(matrix: sparse.csr_array, right: FloatArray, ordering: Any) -> tuple[int, int]:
    factor = sparse_cholesky(matrix, ordering=ordering)
    factor.solve(right)
    return 1, int(factor.lower.nnz)


def _by_gradients(matrix: Any, right: FloatArray) -> tuple[int, int]:
    apply: Callable[[FloatArray], FloatArray] = lambda vectors: matrix @ vectors  # noqa: E731
    if sparse.issparse(matrix):  # as the estimators multiply
        gram = SparseGram(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data)
        apply = lambda vectors: gram.times(vectors, executor=Threads(1))  # noqa: E731
    found = conjugate_gradient(apply, right, precondition=lambda vectors: vectors, tol=TOLERANCE, max_iter=10_000)
    if not found.converged:
        raise RuntimeError(f"conjugate gradients stopped at a residual of {found.residual:.1e}")
    return found.iterations, int(matrix.nnz if sparse.issparse(matrix) else matrix.size)


def times_table(measured: list[Timing]) -> str:
    """Times, printed ones beside ours."""
    lines = [
        [t.method, t.matrix, str(PRINTED_SECONDS.get((t.method, t.matrix), "-")), t.cpu, t.clock, t.iterations, t.size]
        for t in measured
    ]
    header = ["method", "matrix", "printed, CPU s", "ours, CPU s", "ours, clock s", "iterations", "numbers stored"]
    return format_table(header, lines)


# ------------------------------------------------------------------------------------------------ condition numbers


@dataclass(frozen=True)
class Conditions:
    """Decimal logarithms of the condition numbers of H, arrays (γ, σ), by kernel."""

    gammas: FloatArray
    sigmas: FloatArray
    logarithms: dict[str, FloatArray]
    at_sinc: dict[str, float]  # condition numbers at the (γ, σ) of section 4.1


def conditions(sizes: SincSizes) -> Conditions:
    """One eigenvalue problem for each σ: γ only shifts the spectrum. The ranges of Fig. 2 are not in its text."""
    X, gammas, sigmas = inputs(sizes.step), np.logspace(-1, 3, sizes.grid), np.logspace(-1, 1.5, sizes.grid)
    makers: dict[str, Callable[[float], Any]] = {"RBF": gaussian, "CS-RBF": compact}
    grids, single = {}, {}
    for name, make in makers.items():
        columns = [_condition(make(float(sigma))(X), gammas) for sigma in sigmas]
        grids[name] = np.log10(np.column_stack(columns))
        single[name] = float(_condition(make(SIGMA)(X), np.array([GAMMA]))[0])
    return Conditions(gammas, sigmas, grids, single)


def _condition(gram: FloatArray, gammas: FloatArray) -> FloatArray:
    """κ = (λ_max + 1/γ)/(λ_min + 1/γ); what is below zero is rounding."""
    eigenvalues = np.linalg.eigvalsh(gram)
    return np.asarray((eigenvalues[-1] + 1 / gammas) / (max(eigenvalues[0], 0.0) + 1 / gammas))


# ----------------------------------------------------------------------------------------------------------- report


def summary(found: Sinc) -> str:
    """Bias, variance and smoothness, averaged over the inputs."""
    header = ["noise added to", "kernel", "RMS bias", "mean variance", "RMS error", "RMS second difference"]
    lines = [
        [reading, name, _rms(s.bias), float(np.mean(s.variance)), math.sqrt(s.error), s.roughness]
        for (name, reading), s in sorted(found.spreads.items(), key=lambda item: (item[0][1] != "targets", item[0][0]))
    ]
    return format_table(header, lines)


def _rms(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def claims(found: Sinc, measured: list[Timing], condition: Conditions) -> list[Claim]:
    """What section 4.1 says, against what was found."""
    return [*_performance(found), *_costs(found, measured), *_conditioning(measured, condition)]


def _performance(found: Sinc) -> list[Claim]:
    rbf, cs = found.spreads["RBF", "targets"], found.spreads["CS-RBF", "targets"]
    ratio, larger = cs.error / rbf.error, float(np.mean(cs.variance > rbf.variance))
    times = float(np.mean(cs.variance) / np.mean(rbf.variance))
    return [
        Claim(
            "sinc: RBF and CS-RBF perform almost the same",
            f"mean squared error of CS-RBF {ratio:.2f} times that of RBF (within a factor of {COMPARABLE:g})",
            1 / COMPARABLE < ratio < COMPARABLE,
        ),
        Claim(
            "sinc: CS-RBF has a slightly larger bias",
            f"RMS bias {_rms(cs.bias):.4f} against {_rms(rbf.bias):.4f}",
            _rms(cs.bias) > _rms(rbf.bias),
        ),
        Claim(
            "sinc: CS-RBF gives less smooth results",
            f"RMS second difference {cs.roughness / rbf.roughness:.1f} times that of RBF",
            cs.roughness > rbf.roughness,
        ),
        Claim(
            "sinc: the pointwise variance is larger for CS-RBF",
            f"at {100 * larger:.0f} % of the inputs; {times:.1f} times on average",
            larger > 0.5 and times > 1,
        ),
    ]


def _costs(found: Sinc, measured: list[Timing]) -> list[Claim]:
    low, high = found.bounds
    share = found.nonzeros / len(found.x) ** 2
    clocks = {(t.method, t.matrix): t.clock for t in measured}
    result = [
        Claim(
            f"sinc: the Gram matrix has {PRINTED_NONZEROS} non-zeros",
            f"{found.nonzeros}; {low} to {high}, as rounding decides about pairs at the cut-off",
            low <= PRINTED_NONZEROS <= high,
        ),
        Claim(
            "sinc: the sparse matrix needs about 50 % less memory",
            f"{100 * share:.0f} % of the numbers; with an index to each, {150 * share:.0f} % of the bytes (below 75 %)",
            1.5 * share < 0.75,
        ),
    ]
    for method in ("Cholesky", "CG"):
        ratio = clocks[method, "CS-RBF, sparse"] / clocks[method, "RBF, dense"]
        printed = PRINTED_SECONDS[method, "CS-RBF, sparse"] / PRINTED_SECONDS[method, "RBF, dense"]
        text = f"takes {ratio:.2f} times as long as dense (printed: {printed:.2f}; below 0.75)"
        result.append(Claim(f"sinc: sparse {method} is about 50 % faster", text, ratio < 0.75))
    return result


def _conditioning(measured: list[Timing], condition: Conditions) -> list[Claim]:
    difference = condition.logarithms["CS-RBF"] - condition.logarithms["RBF"]
    steps = {t.matrix: t.iterations for t in measured if t.method == "CG"}
    ratio = steps["CS-RBF, sparse"] / steps["RBF, dense"]
    single, far = condition.at_sinc, float(np.mean(np.abs(difference) > math.log10(COMPARABLE)))
    beside = f"at γ = {GAMMA:g}, σ = {SIGMA:g}: {single['CS-RBF']:.0f} against {single['RBF']:.0f}"
    return [
        Claim(
            "Fig. 2: the condition number is not significantly larger for CS-RBF",
            f"{10 ** np.min(difference):.2f} to {10 ** np.max(difference):.2f} times that of RBF "
            f"(at most {COMPARABLE:g})",
            bool(10 ** np.max(difference) < COMPARABLE),
        ),
        Claim(
            "Fig. 2: there is only a small difference (over our ranges of γ and σ)",
            f"a factor of {10 ** np.max(np.abs(difference)):.0f} at most, above {COMPARABLE:g} in {100 * far:.0f} % of "
            f"the grid; {beside}",
            far == 0.0,
        ),
        Claim(
            "the speed of convergence of CG is comparable",
            f"{steps['CS-RBF, sparse']} iterations against {steps['RBF, dense']}",
            1 / COMPARABLE < ratio < COMPARABLE,
        ),
    ]
