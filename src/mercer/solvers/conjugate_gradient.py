"""Conjugate gradients for several right-hand sides at once."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mercer._typing import FloatArray

__all__ = ["IterativeSolution", "conjugate_gradient"]

Operator = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class IterativeSolution:
    """What an iterative solver found, and whether to believe it.

    Attributes
    ----------
    value : array (n, p)
    converged : bool
        Whether every relative residual is at most the tolerance.
    iterations : int
    residual : float
        The largest relative residual |b - Hx|/|b|, computed from the solution itself at the end, not by the recurrence.
    """

    value: FloatArray
    converged: bool
    iterations: int
    residual: float


def conjugate_gradient(
    apply: Operator,
    right: FloatArray,
    *,
    precondition: Operator,
    tol: float,
    max_iter: int,
    callback: Callable[[int, float], None] | None = None,
) -> IterativeSolution:
    """Solve H x = right for symmetric positive definite H, given by its products.

    Columns are independent systems that share the products; one that is done no longer moves.
    """
    x = np.zeros_like(right)
    scale = np.linalg.norm(right, axis=0)
    scale[scale == 0] = 1.0
    residual = right.copy()
    iterations = 0
    # The recurrence for the residual drifts; start again from the true one when it says that all is done.
    while True:
        step = _descend(
            apply, x, residual, precondition=precondition, scale=scale, tol=tol, max_iter=max_iter - iterations,
            callback=callback, done=iterations,
        )  # fmt: skip
        iterations += step
        residual = right - apply(x)
        worst = float(np.max(np.linalg.norm(residual, axis=0) / scale, initial=0.0))
        if worst <= tol or iterations >= max_iter or step == 0:
            return IterativeSolution(x, bool(worst <= tol), iterations, worst)


def _descend(
    apply: Operator,
    x: FloatArray,
    residual: FloatArray,
    *,
    precondition: Operator,
    scale: FloatArray,
    tol: float,
    max_iter: int,
    callback: Callable[[int, float], None] | None,
    done: int,
) -> int:
    """Run the recurrence on x and residual in place until it says that all systems are done; count its steps."""
    direction = np.zeros_like(x)
    rho_before = np.ones(x.shape[1])
    for iteration in range(max_iter):
        relative = np.linalg.norm(residual, axis=0) / scale
        if callback is not None:
            callback(done + iteration, float(np.max(relative, initial=0.0)))
        active = relative > tol
        if not np.any(active):
            return iteration
        z = precondition(residual)
        rho = np.einsum("ij,ij->j", residual, z)
        # β = ρ/ρ_before; the first step, and a system that is done, take the residual's own direction
        beta = np.where(active & (iteration > 0), rho / rho_before, 0.0)
        direction *= beta
        direction += z
        product = apply(direction)
        curvature = np.einsum("ij,ij->j", direction, product)
        if np.any(active & (curvature <= 0)):
            return iteration  # not positive definite to rounding: what was reached is reported as not converged
        step = np.where(active, rho / np.where(active, curvature, 1.0), 0.0)
        x += step * direction
        residual -= step * product
        rho_before = np.where(rho > 0, rho, 1.0)
    return max_iter
