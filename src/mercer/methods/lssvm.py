r"""The LS-SVM: a linear system with an intercept, by two solves with the same matrix.

======  ==================  ============  ==========================================
symbol  code                shape         meaning
======  ==================  ============  ==========================================
H                           (n, n)        K + λW⁻¹, known by its solutions only
η, ν    ``eta``, ``nu``     (n,), (n, p)  H⁻¹1 and H⁻¹y
b       ``intercept``       (p,)          ηᵀy/1ᵀη
α       ``coefficients``    (n, p)        ν - ηb
======  ==================  ============  ==========================================
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mercer._typing import FloatArray


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
