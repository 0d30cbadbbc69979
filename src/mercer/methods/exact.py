r"""The full kernel system: Gaussian process, kernel ridge and LS-SVM.

===========  ==================  ==========  =============================
symbol       code                shape       meaning
===========  ==================  ==========  =============================
H            ``matrix``          (n, n)      K + λW⁻¹
α            ``coefficients``    (n, p)      weights of the rows
b            ``intercept``       (p,)        intercept of the LS-SVM
===========  ==================  ==========  =============================

Without an intercept :math:`\alpha = H^{-1}y`. With one, :math:`\nu = H^{-1}y`, :math:`\eta = H^{-1}1`,
:math:`b = \eta^\top y/1^\top\eta` and :math:`\alpha = \nu - \eta b`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from mercer._typing import FloatArray, IntArray
from mercer.engine import (
    ArrayRows,
    ArrayTable,
    Executor,
    Rows,
    SomeRows,
    kernel_matrix,
    left_out_parts,
    number_of,
    unit_of,
)
from mercer.kernels import Kernel, Precomputed
from mercer.methods.frame import used_rows
from mercer.methods.matrix_free import solve_matrix_free
from mercer.model import Calibration, KernelExpansion, Variance
from mercer.model.calibration import sample_rows
from mercer.solvers.conjugate_gradient import IterativeSolution
from mercer.solvers.dense import CholeskyFactor, cholesky_in_place
from mercer.solvers.ridge import Choice, LeftOut, RidgeProblem, profiled_log_likelihood

DECIDING_ROWS = 1500  # by which the noise is chosen: their eigenvalues take about a second
_LEAST_NOISE = 1e-7  # of k(x, x), that is chosen: with less, a smooth kernel's matrix is singular to rounding
_CALIBRATING_ROWS = 1024  # that are left out: with more, that would take as long as the fit


@dataclass(frozen=True)
class ExactFit:
    """The model of all rows, and what it was solved with."""

    # Its points are the rows of positive weight, or their numbers if the kernel is precomputed.
    expansion: KernelExpansion
    index: IntArray  # (m,): numbers of these rows
    factor: CholeskyFactor | None  # of H
    eta: FloatArray | None  # (m,)
    iterative: IterativeSolution | None  # of conjugate gradients
    noise: float
    calibration: Calibration | None  # needs the factor
    log_likelihood: float | None  # needs the factor, too


def fit_exact(
    table: ArrayTable,
    kernel: Kernel,
    *,
    noise: float | Choice,
    intercept: bool,
    solver: Literal["cholesky", "cg"],
    tol: float,
    max_iter: int,
    random_state: Any,
    executor: Executor,
) -> ExactFit:
    """Solve the system of all rows of positive weight, by Cholesky in one n × n matrix or without it.

    Time n³/3 and memory n², or n² kernel values for each step of conjugate gradients (whose parameters come last).
    """
    index = used_rows(table, 1.0 if isinstance(noise, str) else noise)
    weights = np.ones(len(index)) if table.weights is None else table.weights[index]
    rows, points = _points(table.rows, index, kernel)
    targets = table.targets[index]
    if isinstance(noise, str):
        noise = choose_noise(
            noise, rows, kernel, points, targets, weights, counted=table.counted, intercept=intercept, executor=executor
        )
    matrix = kernel_matrix(rows, kernel, points, executor=executor) if solver == "cholesky" else None
    factor = None if matrix is None else _factor(matrix, noise, weights)
    found: list[IterativeSolution] = []

    def solve(right: FloatArray) -> FloatArray:
        if factor is not None:
            return factor.solve(right)
        found.append(
            solve_matrix_free(
                rows, kernel, points, right,
                noise=noise, weights=weights, tol=tol, max_iter=max_iter, random_state=random_state, executor=executor,
            )
        )  # fmt: skip
        return found[0].value

    solution = solve_lssvm(solve, targets, weights, intercept=intercept)
    variance = None if factor is None else _variance(factor, solution.eta)
    counted = table.counted
    scale = profiled_scale(targets, solution, number_of(weights, counted=counted))
    expansion = KernelExpansion(kernel, points, solution.coefficients, solution.intercept, variance, scale)
    calibration, likelihood = None, None
    if factor is not None:
        likelihood = _log_likelihood(factor, solution.eta, scale, weights, number_of(weights, counted=counted), noise)
        if noise > 0:
            calibration = _calibration(factor, solution, targets, weights, counted=counted, noise=noise)
    return ExactFit(expansion, index, factor, solution.eta, found[0] if found else None, noise, calibration, likelihood)


def choose_noise(
    choice: Choice,
    rows: Rows,
    kernel: Kernel,
    points: FloatArray,
    targets: FloatArray,
    weights: FloatArray,
    *,
    counted: bool,
    intercept: bool,
    executor: Executor,
) -> float:
    """The noise of the largest marginal likelihood, of the least GCV or of the least leave-one-out error.

    Of more than 1500 rows, 1500 decide: what they say of the noise is what all say of it, if not as precisely.
    """
    index = sample_rows(np.arange(len(targets)), DECIDING_ROWS)
    matrix = kernel_matrix(SomeRows(rows, index), kernel, points[index], executor=executor)
    targets, weights = unit_targets(targets[index])[0], weights[index]
    if not (np.all(np.isfinite(matrix)) and np.all(np.diagonal(matrix) >= 0)):
        return float(np.finfo(np.float64).tiny)  # no kernel: refused where the matrix is factored
    number = number_of(weights, counted=counted)
    path = RidgeProblem.path_of_covariance(matrix, targets, weights, n_targets=number, intercept=intercept)
    left_out = LeftOut.of_covariance(path, targets, weights, left_out_parts(weights, counted=counted))
    if choice == "gcv":
        noise = path.best_noise()
    else:
        noise = path.likeliest_noise(left_out) if choice == "auto" else left_out.best_noise()
    least = _LEAST_NOISE * unit_of(weights, counted=counted)
    return max(noise, least * float(np.mean(np.diagonal(matrix))))


class LssvmSolution(NamedTuple):
    """What was solved for; ``eta`` is None without an intercept."""

    coefficients: FloatArray
    intercept: FloatArray
    eta: FloatArray | None


def solve_lssvm(
    solve: Callable[[FloatArray], FloatArray], targets: FloatArray, weights: FloatArray, *, intercept: bool
) -> LssvmSolution:
    """Solve Hα + b1 = y with 1ᵀα = 0, or without an intercept Hα = y; ``solve`` is from (n, q) to H⁻¹ times it."""
    if not intercept:
        return LssvmSolution(solve(targets), np.zeros(targets.shape[1]), None)
    # The model moves with a constant added to y: without y's offset nothing is lost to it.
    shift = np.average(targets, axis=0, weights=weights)
    right = np.column_stack([targets - shift, np.ones(len(targets))])
    # Hν = y, Hη = 1
    solution = solve(right)
    nu, eta = solution[:, :-1], solution[:, -1]
    total = np.sum(eta)  # zero if an iteration was stopped at once: then the mean of y is all that is known
    b = eta @ right[:, :-1] / total if total != 0 else np.zeros(targets.shape[1])
    return LssvmSolution(nu - np.outer(eta, b), b + shift, eta)


def profiled_scale(targets: FloatArray, solution: LssvmSolution, n_targets: float) -> FloatArray:
    """σ (p,), where σ² = yᵀM⁻¹y/n, with M⁻¹y the coefficients."""
    freedom = n_targets - (solution.eta is not None)
    if freedom < 1:
        return np.ones(targets.shape[1])  # no targets to tell
    scaled, unit = unit_targets(targets - solution.intercept)
    squares = np.sum(scaled * (solution.coefficients / unit), axis=0)
    return np.asarray(unit * np.sqrt(np.maximum(squares, 0.0) / freedom))


def unit_targets(targets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Targets in units of the largest of each output, and these units (p,): squares of tiny and huge ones are none."""
    unit = np.max(np.abs(targets), axis=0, initial=0.0)
    unit[unit == 0] = 1.0
    return targets / unit, unit


def _log_likelihood(
    factor: CholeskyFactor,
    eta: FloatArray | None,
    scale: FloatArray,
    weights: FloatArray,
    n_targets: float,
    noise: float,
) -> float:
    """Of the targets at the best σ; a row of weight ω has the determinant of ω equal rows."""
    n = len(weights)
    # log |H| + Σ log ω + (N - n) log λ + log 1ᵀH⁻¹1
    determinant = 2.0 * float(np.sum(np.log(np.diagonal(factor.lower)))) + float(np.sum(np.log(weights)))
    if n_targets != n:
        determinant += (n_targets - n) * np.log(noise) if noise > 0 else np.nan
    if eta is not None:
        determinant += float(np.log(np.sum(eta)))
    return profiled_log_likelihood(scale, determinant, n_targets - (eta is not None))


def leave_one_out(
    factor: CholeskyFactor, coefficients: FloatArray, eta: FloatArray | None, index: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Residuals of (some) rows predicted without themselves, shape (k, p): α_i / M⁻¹_ii; and M⁻¹_ii, shape (k,).

    M is the system that was solved: H, bordered by ones if there is an intercept. 1/M⁻¹_ii is the variance of such a
    residual, in units of σ². Cost: n³/3 for all rows, n² for each of some.
    """
    some = index is not None and len(index) < len(coefficients)
    diagonal = factor.inverse_entries(index) if some else factor.inverse_diagonal()  # type: ignore[arg-type]
    chosen = slice(None) if index is None else index
    if eta is not None:
        # (M⁻¹)_ii = (H⁻¹)_ii - η_i²/s, which vanishes for a single row: nothing is left to predict it from
        diagonal = diagonal - eta[chosen] ** 2 / np.sum(eta)
        diagonal[diagonal <= 0] = np.nan
    return coefficients[chosen] / diagonal[:, np.newaxis], diagonal


def _calibration(
    factor: CholeskyFactor,
    solution: LssvmSolution,
    targets: FloatArray,
    weights: FloatArray,
    *,
    counted: bool,
    noise: float,
) -> Calibration:
    index = sample_rows(np.arange(len(targets)), _CALIBRATING_ROWS)
    residuals, diagonal = leave_one_out(factor, solution.coefficients, solution.eta, index)
    weights = weights[index]
    # r = αλ/ω, and 1 - h = M⁻¹_ii λ/ω
    leverages = (1.0 - diagonal * noise / weights) / weights
    fitted = residuals * (diagonal * noise / weights)[:, np.newaxis]
    return Calibration.of_fit(targets[index], fitted, leverages, weights, noise=noise, counted=counted)


def _points(rows: Rows, index: IntArray, kernel: Kernel) -> tuple[Rows, FloatArray]:
    """The rows that count, and the points of the expansion: the same, or their numbers if precomputed."""
    if isinstance(kernel, Precomputed):
        kept = rows if len(index) == rows.n_rows else ArrayRows(rows.take(index), checked=True)
        return kept, index[:, np.newaxis].astype(np.float64)
    points = rows.take(index).astype(np.float64, copy=False)
    return ArrayRows(points, checked=True), points


def _factor(matrix: FloatArray, noise: float, weights: FloatArray) -> CholeskyFactor:
    """H = K + λW⁻¹ = LLᵀ, in the memory of K.

    Jitter is in proportion to the noise, so that it does not change the rows' relative weights.
    """
    largest = np.max(np.diagonal(matrix) * weights)
    matrix[np.diag_indices_from(matrix)] += noise / weights
    spread = largest / weights / np.max(np.diagonal(matrix)) if np.isfinite(largest) else None  # refused below
    return cholesky_in_place(matrix, spread=spread)


def _variance(factor: CholeskyFactor, eta: FloatArray | None) -> Variance:
    if eta is None:
        return Variance(lower=factor.lower)
    # var f(x) = k(x,x) - kᵀH⁻¹k + (1 - ηᵀk)²/s, and ηᵀk = (L⁻¹1)ᵀ(L⁻¹k)
    root_s = np.sqrt(np.sum(eta))
    ones = solve_triangular(factor.lower, np.ones(len(eta)), lower=True, check_finite=False)
    return Variance(lower=factor.lower, root=ones[np.newaxis] / root_s, offset=np.array([1.0 / root_s]))
