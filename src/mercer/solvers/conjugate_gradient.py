"""Conjugate gradients for several right-hand sides at once."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer._typing import FloatArray

Operator = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class IterativeSolution:
    """What an iterative solver found, and whether to believe it."""

    value: FloatArray  # (n, p)
    converged: bool  # every relative residual is at most the tolerance
    iterations: int
    residual: float  # the largest |b - Hx|/|b|, computed from the solution at the end, not by the recurrence


def conjugate_gradient(
    apply: Operator,
    right: FloatArray,
    *,
    precondition: Operator,
    tol: float,
    max_iter: int,
    verbose: int = 0,
) -> IterativeSolution:
    """Solve H x = right for symmetric positive definite H, given by its products.

    Columns are independent systems that share the products; one that is done no longer moves. What is returned is the
    iterate of least true residual, at worst zero. ``verbose`` prints the residual of each iteration.
    """
    # Squares of tiny and of huge numbers are none: the columns are solved for at a size of 1.
    size = np.max(np.abs(right), axis=0, initial=0.0)
    size[(size == 0) | ~np.isfinite(size)] = 1.0
    right = right / size
    best = np.zeros_like(right)
    scale = np.linalg.norm(right, axis=0)
    scale[scale == 0] = 1.0
    residual, worst, iterations = right.copy(), 1.0 if np.any(right) else 0.0, 0

    def report(step: int, norms: FloatArray) -> None:
        if verbose:
            iteration, largest = iterations + step, np.max(norms / scale)
            print(f"mercer: conjugate gradients: iteration {iteration}, residual {largest:.1e}", file=sys.stderr)

    # The recurrence for the residual drifts: when it says that all is done, start again from the true residual, for as
    # long as that helps.
    while worst > tol and iterations < max_iter:
        x, steps = _descend(apply, residual, precondition, tol * scale, max_iter - iterations, report)
        iterations += steps
        candidate = best + x
        new_residual = right - apply(candidate)
        before, new_worst = worst, float(np.max(np.linalg.norm(new_residual, axis=0) / scale))
        if new_worst < worst:
            best, residual, worst = candidate, new_residual, new_worst
        if not worst <= before / 2:
            break
    return IterativeSolution(best * size, bool(worst <= tol), iterations, worst)


def _descend(
    apply: Operator, residual: FloatArray, precondition: Operator, target: FloatArray, max_iter: int, report: Any
) -> tuple[FloatArray, int]:
    """Run the recurrence from zero until it says that all systems are done, or breaks down; count its steps."""
    x, residual = np.zeros_like(residual), residual.copy()
    direction = np.zeros_like(x)
    rho_before = np.full(x.shape[1], np.inf)
    for iteration in range(max_iter):
        norms = np.linalg.norm(residual, axis=0)
        report(iteration, norms)
        active = norms > target
        if not np.any(active):
            return x, iteration
        z = precondition(residual)
        rho = np.einsum("ij,ij->j", residual, z)
        direction *= np.where(active, rho / rho_before, 0.0)  # β, zero in the first step
        direction += z
        product = apply(direction)
        curvature = np.einsum("ij,ij->j", direction, product)
        sound = np.isfinite(curvature) & (curvature > 0) & np.isfinite(rho) & (rho > 0)
        if not np.all(sound[active]):
            return x, iteration + 1  # not positive definite to rounding: what was reached is judged by its residual
        step = np.where(active, rho / np.where(active, curvature, 1.0), 0.0)
        x += step * direction
        residual -= step * product
        rho_before = np.where(rho > 0, rho, np.inf)
    return x, max_iter
