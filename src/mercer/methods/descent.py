"""L-BFGS over positions of points and other parameters, which goes on without the positions where these are stuck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from mercer._typing import FloatArray

__all__ = ["Descent"]


@dataclass(frozen=True)
class Descent:
    """A function to be minimised.

    Attributes
    ----------
    function : callable
        Value and gradient at x.
    bounds : list of pairs
        Least and largest value of each coordinate.
    tol : float
        Stop when a step gains less than this, or than this share of the value if it is above 1.
    verbose : int
        1 prints the value after each step.
    """

    function: Callable[[FloatArray], tuple[float, FloatArray]]
    bounds: list[tuple[float, float]]
    tol: float
    verbose: int

    def run(self, first: FloatArray, max_iter: int, *, n_positions: int) -> OptimizeResult:
        """Search over all coordinates and, if that is stuck, over those after the positions.

        Where a kernel has a cusp, points on rows cannot leave them, and no step of all coordinates together gains.
        """
        result = self._search(first, max_iter, n_held=0)
        if not result.success and result.nit < max_iter and 0 < n_positions < len(first):
            steps = result.nit
            result = self._search(result.x, max_iter - steps, n_held=n_positions)
            result.nit += steps
        return result

    def _search(self, first: FloatArray, max_iter: int, *, n_held: int) -> OptimizeResult:
        """L-BFGS over all coordinates but the first; if a line search fails, x is what it was before."""
        held, reached = first[:n_held], first[n_held:]

        def rest(x: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = self.function(np.concatenate([held, x]))
            return value, gradient[n_held:]

        def step(intermediate_result: OptimizeResult) -> None:
            nonlocal reached
            reached = intermediate_result.x.copy()
            if self.verbose:
                print(f"objective per row: {-intermediate_result.fun:.6g}", flush=True)

        options = {"maxiter": max_iter, "ftol": self.tol, "gtol": 1e-9, "maxcor": 20, "maxfun": 100 * (max_iter + 1)}
        result = minimize(
            rest, reached, jac=True, method="L-BFGS-B", bounds=self.bounds[n_held:], callback=step, options=options
        )
        if not result.success and result.nit < max_iter:
            result.x, result.fun = reached, rest(reached)[0]
        result.x = np.concatenate([held, result.x])
        return result
