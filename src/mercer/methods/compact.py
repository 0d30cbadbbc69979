"""The LS-SVM on a kernel of compact support: the exact system, on a sparse matrix (see ``lssvm`` for the symbols)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer.engine import ArrayTable, Executor, RowPass, Rows, Sequence, SparseKernel, Tile, neighbour_distance
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Compact, Kernel, Wendland
from mercer.methods.compact_noise import (
    Choice,
    Problem,
    calibration,
    is_refined,
    least_iterative_noise,
    log_likelihood,
    refined_noise,
    starting_noise,
)
from mercer.methods.compact_system import CompactSystem, LeastEigenvalue, Options, least_eigenvalue
from mercer.methods.exact import LssvmSolution, profiled_scale
from mercer.methods.frame import resolve_kernel, used_rows
from mercer.model import Calibration, KernelExpansion
from mercer.solvers.sparse_cholesky import SparseFactor

_SMALL = 1e-3  # noise relative to k(x, x), with which eigenvalues are compared before the noise is chosen
_SAMPLE = 256  # rows whose neighbours are counted for length_scale="auto"
_NEIGHBOURS = 50  # that a row is to have on average with length_scale="auto"
_HAMPEL = (2.5, 3.0)  # robust standard deviations: full weight up to the first, almost none from the second on
_OUTLIER = 1e-4  # weight of outliers
_NORMAL = 1.4826  # standard deviations of a normal law in a median absolute deviation
_ROUNDING = 1e-9  # of a share of all weights
_NEGATIVE = 1e-9  # of k(x, x): variances so far below zero are zero
_MOST_NEGATIVE = 1e-3  # of k(x, x): the same for conjugate gradients of a large tolerance
_TILE = 256  # rows whose variances a worker finds at a time
_COLUMNS = 32  # right-hand sides of conjugate gradients at a time


@dataclass(frozen=True)
class CompactFit:
    """The model, and what it was solved with."""

    expansion: KernelExpansion
    sparse_kernel: SparseKernel
    system: CompactSystem
    eta: FloatArray | None  # H⁻¹1, in places, with an intercept
    min_eigenvalue: float | None  # a bound, where the kernel does not guarantee definiteness
    condition: float
    robust_weights: FloatArray | None  # one for each row of the table
    noise: float
    log_likelihood: float | None  # needs the factor
    calibration: Calibration | None  # needs noise


class _Solved(NamedTuple):
    noise: float
    system: CompactSystem
    solution: LssvmSolution


def fit_compact(
    table: ArrayTable,
    kernel: Compact,
    *,
    noise: float | Choice,
    intercept: bool,
    options: Options,
    robust: bool,
    rng: np.random.Generator,
    executor: Executor,
) -> CompactFit:
    """Fit all rows of positive weight; ``robust`` fits a second time, with Hampel's weights."""
    index = used_rows(table, 1.0 if isinstance(noise, str) else noise)
    points = table.rows.take(index).astype(np.float64, copy=False)
    sparse_kernel = SparseKernel(kernel, points, table.dtype)
    sparse_kernel.check_memory(rng)
    gram, order = sparse_kernel.gram(executor=executor), sparse_kernel.order
    weights = (np.ones(len(index)) if table.weights is None else table.weights[index])[order]
    unit = _unit(table.targets[index])  # so that squares are numbers
    targets = table.targets[index][order] / unit
    problem = Problem(sparse_kernel, gram, targets, weights, table.counted, intercept, executor)
    # Before the matrix is factored: an indefinite one has pivots that tell nothing.
    least = None
    if not kernel.is_guaranteed(points.shape[1]):
        smallest = _SMALL * problem.amplitude if isinstance(noise, str) else float(np.min(noise / weights))
        least = least_eigenvalue(gram, smallest, rng, executor)
    solved, robust_weights = _solved(problem, noise, options, least), None
    if robust:
        # y - f(x) = λα/ω
        shares = hampel_weights(solved.solution.coefficients * solved.system.diagonal[:, np.newaxis], weights)
        problem = replace(problem, weights=weights * shares)
        solved = _solved(problem, noise, options, least, solved.system)
        robust_weights = np.zeros(table.n_rows)
        robust_weights[index[order]] = shares
    chosen, system, solution = solved
    coefficients = np.empty_like(solution.coefficients)
    coefficients[order] = solution.coefficients * unit
    told = problem.n_targets - problem.intercept >= 1  # whether targets tell of it
    scale = (unit if told else 1.0) * profiled_scale(problem.targets, solution, problem.n_targets)
    bound = None if least is None else least.bound
    return CompactFit(
        expansion=KernelExpansion(kernel, points, coefficients, solution.intercept * unit, None, scale),
        sparse_kernel=sparse_kernel,
        system=system,
        eta=solution.eta,
        min_eigenvalue=bound,
        condition=system.condition(bound or 0.0, rng, executor),
        robust_weights=robust_weights,
        noise=chosen,
        log_likelihood=None if system.factor is None else log_likelihood(problem, system, solution, chosen, unit),
        calibration=_in_units(calibration(problem, system, solution, chosen), unit) if chosen > 0 else None,
    )


def _unit(targets: FloatArray) -> FloatArray:
    """Powers of two by which the targets (n, p) have a size of about one: division by them does not round."""
    largest = np.max(np.abs(targets), axis=0)
    return np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0))))


def _in_units(of: Calibration, unit: FloatArray) -> Calibration:
    return replace(of, targets=of.targets * unit, residuals=of.residuals * unit)


def _solved(
    problem: Problem,
    noise: float | Choice,
    options: Options,
    least: LeastEigenvalue | None,
    before: CompactSystem | None = None,
) -> _Solved:
    """Choose the noise, if it is not given, and solve; a system of other weights saves the order of elimination."""

    def made(noise: float) -> CompactSystem:
        if least is not None:
            least.check(float(np.min(noise / problem.weights)))
        if before is not None:
            return before.with_diagonal(noise / problem.weights)
        return CompactSystem(problem.gram, noise / problem.weights, options)

    if not isinstance(noise, str):
        system = made(noise)
        return _Solved(noise, system, problem.solve(system))
    needed = 0.0 if least is None else least.needed_noise
    chosen, by_all = starting_noise(problem, noise, iterative=options.solver == "cg", needed=needed)
    system = made(chosen)
    if not by_all and is_refined(system):
        chosen = refined_noise(problem, noise, chosen, system, needed=needed)
        system = system.with_diagonal(chosen / problem.weights)
    elif system.factor is None:  # found out by now
        chosen = max(chosen, least_iterative_noise(problem))
        system = system.with_diagonal(chosen / problem.weights)
    return _Solved(chosen, system, problem.solve(system))


def resolve_compact(
    kernel: Any, table: ArrayTable, *, rng: np.random.Generator, random_state: Any, executor: Executor
) -> Compact:
    """The kernel with numbers for parameters; ``length_scale="auto"`` gives rows 50 neighbours on average."""
    given, kernel = kernel, kernel.without_noise() if isinstance(kernel, Kernel) else kernel
    if isinstance(kernel, str) and kernel == "wendland":
        kernel = Wendland(length_scale="auto")
    if not isinstance(kernel, Compact):
        raise ValueError(  # noqa: TRY004  as for other values of this parameter
            "kernel must be 'wendland' or a kernel of compact support (Wendland, CompactGaussian), whose matrix is "
            f"sparse; got {given!r}. For others there are ExactRegressor and NystromRegressor."
        )
    if kernel.is_automatic:
        kernel.check(table.n_features)
        index = np.arange(table.n_rows) if table.weights is None else np.flatnonzero(table.weights)
        kernel = with_neighbours(kernel, table.subset(index).rows, _NEIGHBOURS, rng=rng, executor=executor)
    resolved: Compact = resolve_kernel(kernel, table, random_state)
    return resolved


def with_neighbours(
    kernel: Compact, rows: Rows, number: int, *, rng: np.random.Generator, executor: Executor
) -> Compact:
    """A copy whose support, the same for all features, has so many other rows on average."""
    sample = rows.take(np.sort(rng.permutation(rows.n_rows)[:_SAMPLE]))
    return kernel.with_radius(neighbour_distance(rows, sample, number, executor=executor))


def hampel_weights(residuals: FloatArray, weights: FloatArray) -> FloatArray:
    """Weights of rows by their residuals (n, p): 1 up to 2.5 robust standard deviations, falling to 1e-4 at 3.

    Of several outputs the one that is farthest out decides.
    """
    middle = [_median(column, weights) for column in residuals.T]
    scale = [_NORMAL * _median(np.abs(column - m), weights) for column, m in zip(residuals.T, middle, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(np.array(scale) > 0, np.abs(residuals) / scale, 0.0)  # no spread: no outliers
    first, last = _HAMPEL
    worst = np.max(ratio, axis=1)
    return np.asarray(np.clip((last - worst) / (last - first), _OUTLIER, 1.0))


def _median(values: FloatArray, weights: FloatArray) -> float:
    """Median of rows that count by their weights: a row of weight 2 is the row twice."""
    order = np.argsort(values, kind="stable")
    values, shares = values[order], np.cumsum(weights[order]) / np.sum(weights)
    below, above = np.searchsorted(shares, [0.5 * (1.0 - _ROUNDING), 0.5 * (1.0 + _ROUNDING)])
    return float(values[below] + values[min(int(above), len(values) - 1)]) / 2


# --------------------------------------------------------------------------------------------------------- error bars


@dataclass(frozen=True)
class CompactVariance:
    r"""Error bars: :math:`k(x,x) - k^\top H^{-1}k + (1-\eta^\top k)^2/1^\top\eta`, the last term with an intercept."""

    kernel: Compact
    sparse_kernel: SparseKernel
    system: CompactSystem
    eta: FloatArray | None
    factor: SparseFactor | None  # which the system may be without

    def variances(self, rows: Rows, executor: Executor) -> FloatArray:
        """Variance of the function at the rows, shape (n,)."""
        quadratic: Callable[[Any], FloatArray]
        if self.factor is not None:
            quadratic, rows_at_once = self.factor.half_norms, _TILE
        else:  # one tile after the other: the products themselves use all workers
            quadratic, rows_at_once = partial(_by_gradients, self.system, executor), _COLUMNS
            executor = Sequence()
        work = _Reduction(self.sparse_kernel, self.eta, quadratic, rows_at_once)
        return self._not_negative(float(self.kernel.amplitude) + executor.map(work, ArrayTable(rows)))

    def covariance(self, rows: Rows, executor: Executor) -> FloatArray:
        """Covariance of the function between the rows, shape (n, n)."""
        block = rows.read(0, rows.n_rows).astype(np.float64)
        values = self.sparse_kernel.cross(block)
        right = values.T.toarray()
        solved = self.system.solve(right, executor) if self.factor is None else self.factor.solve(right)
        result = self.kernel(block) - values @ solved
        if self.eta is not None:
            residual = 1.0 - values @ self.eta
            result += np.outer(residual, residual) / np.sum(self.eta)
        result = (result + result.T) / 2
        if len(result):
            self._refuse_negative(float(np.linalg.eigvalsh(result)[0]) / len(result), "an eigenvalue of the covariance")
        np.fill_diagonal(result, self._not_negative(np.diagonal(result)))
        return np.asarray(result)

    def _not_negative(self, variances: FloatArray) -> FloatArray:
        """Refuse variances below zero by more than rounding, or what the tolerance of conjugate gradients allows."""
        self._refuse_negative(float(np.min(variances, initial=0.0)), "a predictive variance")
        return np.maximum(variances, 0.0)

    def _refuse_negative(self, least: float, what: str) -> None:
        tol = _NEGATIVE if self.factor is not None else 10.0 * self.system.options.tol
        if least < -min(max(_NEGATIVE, tol), _MOST_NEGATIVE) * float(self.kernel.amplitude):
            raise NotPositiveDefiniteError(
                f"{what} is {least:.3g}, below zero: the kernel is not positive definite on these rows and the "
                "training rows together. Use a larger exponent or dimension of the kernel (None guarantees "
                "definiteness), or predict without return_std and return_cov."
            )


@dataclass(frozen=True)
class _Reduction(RowPass):
    """What the data take from the prior variance, kᵀH⁻¹k of sparse rows k (q, n), and what an intercept adds to it."""

    kernel: SparseKernel
    eta: FloatArray | None
    quadratic: Callable[[Any], FloatArray]
    rows_at_once: int

    name, shape = "rows", ()
    width = 1024  # a solution for each row

    def apply(self, tile: Tile, out: AnyArray) -> None:
        values = self.kernel.cross(tile.rows)
        out[...] = -self.quadratic(values)
        if self.eta is not None:
            out += (1.0 - values @ self.eta) ** 2 / np.sum(self.eta)


def _by_gradients(system: CompactSystem, executor: Executor, values: Any) -> FloatArray:
    return np.asarray(values.multiply(system.solve(values.T.toarray(), executor).T).sum(axis=1))
