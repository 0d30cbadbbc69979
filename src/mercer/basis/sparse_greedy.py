"""Smola and Bartlett's greedy choice for Gaussian processes."""

from __future__ import annotations

from mercer._stored import stored
from mercer.basis.base import Basis, BasisStrategy, Task
from mercer.basis.forward_selection import check_greedy_parameters, grow
from mercer.basis.least_squares import GrowingFit

__all__ = ["SparseGreedy"]


@stored
class SparseGreedy(BasisStrategy):
    r"""Greedy choice by the posterior of a Gaussian process, supervised.

    Each step adds the candidate that lowers :math:`\sum_i\omega_i(y_i - f(x_i))^2 + \lambda|f|^2` most, the negative
    log posterior up to constants: forward selection with a penalty, so that functions which fit the noise with
    large coefficients gain little.

    Cost: as ``ForwardSelection``.

    Parameters
    ----------
    noise : float, default=0.1
        λ; that of the estimator is the natural choice.
    candidates : int or None, default=59
        Rows tried per step; None for all.
    tol : float, default=0.0
        Stop when the best gain falls below this share of the targets' sum of squares.

    References
    ----------
    A. J. Smola, P. L. Bartlett: Sparse greedy Gaussian process regression, NIPS 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromRegressor
    >>> from mercer.basis import SparseGreedy
    >>> X = np.linspace(0, 6, 1000)[:, np.newaxis]
    >>> basis = SparseGreedy(noise=0.01, tol=1e-5)
    >>> model = NystromRegressor("gaussian", basis=basis, noise=0.01, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.rank_ < 10
    True
    """

    def __init__(self, noise: float = 0.1, *, candidates: int | None = 59, tol: float = 0.0) -> None:
        self.noise = noise
        self.candidates = candidates
        self.tol = tol

    def choose(self, task: Task) -> Basis:
        """Choose at most ``n_basis`` rows."""
        check_greedy_parameters(self.candidates, self.tol)
        if not self.noise >= 0:
            msg = f"noise must be at least zero, got {self.noise!r}."
            raise ValueError(msg)
        return grow(GrowingFit(task, noise=float(self.noise)), task, self.candidates, self.tol)
