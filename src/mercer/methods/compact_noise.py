r"""The noise of a model on a sparse kernel matrix, and how it does on rows that are left out (symbols: see ``exact``).

The targets have the covariance :math:`\sigma^2H`, :math:`H = K + \lambda W^{-1}`, with the likeliest σ. With N targets
of n rows (see ``engine.weights``), less one degree of freedom for an intercept,

.. math:: L(\lambda) = -\tfrac N2\log\frac{2\pi e\,q}{N} - \tfrac12\Bigl(\log|H| + \sum\log\omega + (N-n)\log\lambda
    + \log\frac{1^\top\eta}{\sum\omega}\Bigr), \qquad q = (y-b)^\top\alpha,

the last logarithm with an intercept only (restricted likelihood).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar

from mercer._typing import FloatArray, IntArray
from mercer.engine import Executor, SparseGram, SparseKernel, left_out_parts, number_of, unit_of
from mercer.exceptions import NotPositiveDefiniteError
from mercer.methods.compact_system import CompactSystem
from mercer.methods.exact import LssvmSolution, solve_lssvm
from mercer.model import Calibration
from mercer.model.calibration import sample_rows
from mercer.solvers.ridge import LeftOut, RidgeProblem

Choice = Literal["auto", "loo"]

_DECIDING_ROWS, _PATCHES = 1500, 8  # by which the noise is chosen, or where its search starts
_DECIDING_FILL = 2_000_000  # non-zeros of a factor that is made again for each noise that is tried: 0.2 s each
_CALIBRATING_ROWS = 1024  # that are left out
_JUDGING_ROWS = 256  # that are left out for each noise that is tried
_LEAST = {np.float64: 1e-8, np.float32: 1e-5}  # noise relative to k(x, x): with less, rounding decides
_LEAST_WEIGHTED = 1e-11  # the same for λ/ω of a single row
_LEAST_ITERATIVE = 1e-4  # with conjugate gradients, which would not converge
_MOST = 1e6  # noise relative to k(x, x): with more, the rows do not matter
_STEP, _PRECISION = np.log(2.0), 1e-3  # of the search over log λ
_NOMINAL = 1e-2  # noise relative to k(x, x) with which rows inform each other
_INFORMED_ROWS = 256  # of which that is found


@dataclass(frozen=True)
class Problem:
    """Everything that is given, in places."""

    kernel: SparseKernel
    gram: SparseGram
    targets: FloatArray  # (n, p)
    weights: FloatArray  # (n,)
    counted: bool  # whether weights are numbers of equal rows (and smaller, of outliers)
    intercept: bool
    executor: Executor

    @property
    def amplitude(self) -> float:
        """k(x, x)."""
        return float(np.max(self.gram.values))

    @property
    def ordinary(self) -> float:
        """A noise of k(x, x) for an ordinary row."""
        return self.amplitude * unit_of(self.weights, counted=self.counted)

    @property
    def n_targets(self) -> float:
        """N."""
        return number_of(self.weights, counted=self.counted)

    def solve(self, system: CompactSystem) -> LssvmSolution:
        """Coefficients and intercept."""
        return solve_lssvm(
            lambda right: system.solve(right, self.executor), self.targets, self.weights, intercept=self.intercept
        )


# ------------------------------------------------------------------------------------------------------- the noise


def starting_noise(problem: Problem, choice: Choice, *, iterative: bool, needed: float) -> tuple[float, bool]:
    """The noise that some rows choose, and whether that is all of them.

    At random they would have no neighbours: they are those nearest to some centres. ``needed`` is the least
    noise of a row with which the system is positive definite.
    """
    places = patches(problem.kernel, len(problem.targets))
    matrix = problem.gram.as_scipy()[places][:, places].toarray().astype(np.float64)
    low, high = _limits(problem, iterative=iterative, needed=needed)
    if np.count_nonzero(matrix) == len(matrix):
        return max(problem.ordinary, low), True  # K is a multiple of the identity: every noise gives the same model
    targets, weights = problem.targets[places], problem.weights[places]
    number = number_of(weights, counted=problem.counted)
    path = RidgeProblem.path_of_covariance(matrix, targets, weights, n_targets=number, intercept=problem.intercept)
    left_out = LeftOut.of_covariance(path, targets, weights, left_out_parts(weights, counted=problem.counted))
    noise = path.likeliest_noise(left_out) if choice == "auto" else left_out.best_noise()
    return float(np.clip(noise, low, high)), len(places) == len(problem.targets)


def patches(kernel: SparseKernel, n_points: int) -> IntArray:
    """Places of the points nearest to some centres, 1500 in all at the most; all places if there are no more."""
    if n_points <= _DECIDING_ROWS:
        return np.arange(n_points)
    centres = sample_rows(np.arange(n_points), _PATCHES)
    number = _DECIDING_ROWS // _PATCHES
    return np.unique(np.concatenate([kernel.nearest(int(centre), number) for centre in centres]))


def least_iterative_noise(problem: Problem) -> float:
    """The least noise with which conjugate gradients converge."""
    return _LEAST_ITERATIVE * problem.ordinary


def is_refined(system: CompactSystem) -> bool:
    """Whether the factor is small enough to be made for each noise that is tried."""
    return system.factor is not None and system.factor.lower.nnz <= _DECIDING_FILL


def refined_noise(problem: Problem, choice: Choice, start: float, system: CompactSystem, *, needed: float) -> float:
    """The noise of the largest likelihood, or of the least leave-one-out error, of all rows, near the given one.

    If the likeliest noise predicts rows that are left out worse than the mean does, it is the one that predicts best.
    """
    limits = _limits(problem, iterative=False, needed=needed)

    def judged(noise: float) -> tuple[CompactSystem, LssvmSolution] | None:
        try:
            tried = system.with_diagonal(noise / problem.weights)
        except NotPositiveDefiniteError:
            return None
        return tried, problem.solve(tried)

    def unlikelihood(noise: float) -> float:
        found = judged(noise)
        return np.inf if found is None else -log_likelihood(problem, *found, noise)

    def error(noise: float) -> float:
        found = judged(noise)
        return np.inf if found is None else error_left_out(calibration(problem, *found, noise, _JUDGING_ROWS))

    if choice == "auto":
        noise = _least_near(unlikelihood, start, limits)
        if error(noise) <= 1.0:
            return noise
    return _least_near(error, start, limits)


def _limits(problem: Problem, *, iterative: bool, needed: float) -> tuple[float, float]:
    """The least and the largest noise: rounding must not decide, and the system must be safely positive definite."""
    smallest = _LEAST_ITERATIVE if iterative else _LEAST[problem.gram.values.dtype.type]
    heaviest = float(np.max(problem.weights))
    low = max(problem.ordinary * smallest, problem.amplitude * _LEAST_WEIGHTED * heaviest)
    return max(low, needed * heaviest), problem.ordinary * _MOST


def _least_near(score: Callable[[float], float], start: float, limits: tuple[float, float]) -> float:
    """The noise of the least score that is reached downhill from a start, by steps that double, then by Brent."""
    low, high = np.log(limits)
    known: dict[float, float] = {}

    def of(point: float) -> float:
        if point not in known:
            known[point] = score(float(np.exp(point)))
        return known[point]

    middle = float(np.clip(np.log(start), low, high))
    ends = []
    for sign in (-1.0, 1.0):
        step, here = _STEP, middle
        while low < here < high or here == middle:
            there = float(np.clip(here + sign * step, low, high))
            if there == here or of(there) >= of(here):
                here = there
                break
            middle, here, step = there, there, 2 * step
        ends.append(here)
    if ends[0] < ends[1]:
        precision = {"xatol": _PRECISION}
        minimize_scalar(lambda x: of(float(x)), bounds=(ends[0], ends[1]), method="bounded", options=precision)
    return float(np.exp(min(known, key=lambda point: known[point])))


def log_likelihood(
    problem: Problem, system: CompactSystem, solution: LssvmSolution, noise: float, unit: FloatArray | float = 1.0
) -> float:
    """L(λ), summed over the outputs that are not constant; needs a factor. NaN where there is nothing to judge by.

    With an intercept, integrated over its flat prior. The targets are those of the problem, times a unit.
    """
    n, assumed = len(problem.weights), problem.n_targets
    freedom = assumed - problem.intercept
    spread = problem.targets - solution.intercept if problem.intercept else problem.targets
    q = np.sum(spread * solution.coefficients, axis=0)
    used = np.any(problem.targets != (problem.targets[0] if problem.intercept else 0.0), axis=0)
    q, unit = q[used], np.broadcast_to(unit, used.shape)[used]
    if system.factor is None or freedom <= 0 or np.any(q <= 0) or (noise <= 0 and assumed != n):
        return float("nan")
    determinant = system.factor.log_determinant + float(np.sum(np.log(problem.weights)))
    if assumed != n:
        determinant += (assumed - n) * np.log(noise)
    if solution.eta is not None:
        determinant += np.log(np.sum(solution.eta))
    each = np.log(2 * np.pi * np.e * q / freedom) + 2 * np.log(unit)
    return float(np.sum(-freedom / 2 * each - determinant / 2))


# ------------------------------------------------------------------------------------------------ rows left out


def calibration(
    problem: Problem, system: CompactSystem, solution: LssvmSolution, noise: float, most: int = _CALIBRATING_ROWS
) -> Calibration:
    """Leave-one-out residuals α_i/M⁻¹_ii of a sample of rows; M is H, bordered by ones if there is an intercept.

    With a factor M⁻¹_ii is exact; without, it comes from the nearest neighbours of the row (see ``inverse_entries``).
    """
    places = sample_rows(np.arange(len(problem.targets)), most)
    diagonal, weights = system.inverse_entries(places), problem.weights[places]
    if solution.eta is not None and np.sum(solution.eta) > 0:  # as it is, unless iterations were stopped too early
        diagonal = diagonal - solution.eta[places] ** 2 / np.sum(solution.eta)
    # r = αλ/ω, and 1 - h = M⁻¹_ii λ/ω
    fitted = solution.coefficients[places] * (noise / weights)[:, np.newaxis]
    leverages = (1.0 - diagonal * noise / weights) / weights
    targets = problem.targets[places]
    return Calibration.of_fit(targets, fitted, leverages, weights, noise=noise, counted=problem.counted)


def error_left_out(of: Calibration | None) -> float:
    """Squared error of rows that are left out, relative to that of the mean; infinite if there are none."""
    return np.inf if of is None or len(of.residuals) == 0 else of.relative_error()


def unexplained_share(gram: SparseGram) -> float:
    """The variance of the function at a row given all others with little noise, over k(x, x): an average of some rows.

    1 means that rows say nothing about each other, whatever the targets are.
    """
    amplitude = float(np.max(gram.values))
    noise = _NOMINAL * amplitude
    places = sample_rows(np.arange(gram.n_points), _INFORMED_ROWS)
    inverse = gram.local_inverse_entries(places, np.full(gram.n_points, noise))
    # 1/H⁻¹_ii = var f(x_i) + λ, given the others
    return float(np.mean(1.0 / inverse - noise) / amplitude)
