"""Smola and Bartlett's greedy choice for Gaussian processes."""

from dataclasses import field
from typing import Any, ClassVar

from mercer._stored import stored
from mercer._validation import Interval, Real, parameters
from mercer.basis.base import Basis, BasisStrategy, Task
from mercer.basis.forward_selection import GREEDY_CONSTRAINTS, grow


@stored
@parameters
class SparseGreedy(BasisStrategy):
    r"""Greedy choice by the posterior of a Gaussian process, supervised.

    Each step adds the candidate that lowers :math:`\sum_i\omega_i(y_i - f(x_i))^2 + \lambda|f|^2` most, the negative
    log posterior up to constants: forward selection with a penalty, so that functions which fit the noise with
    large coefficients gain little.

    Parameters
    ----------
    noise : float, default=0.1
        λ; that of the estimator is the natural choice.
    candidates, tol
        As in ``ForwardSelection``, and so is the cost.

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

    noise: float = field(default=0.1, kw_only=False)
    candidates: int | None = 59
    tol: float = 0.0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GREEDY_CONSTRAINTS,
        "noise": [Interval(Real, 0, None, closed="left")],
    }

    @property
    def needs_targets(self) -> bool:
        """Whether there is no choice without targets."""
        return True

    def choose(self, task: Task) -> Basis:
        """Choose at most ``n_basis`` rows."""
        return grow(task, float(self.noise), self.candidates, self.tol)
