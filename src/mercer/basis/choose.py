"""From an estimator's ``basis`` argument to points."""

from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer._validation import check_numbers
from mercer.basis.base import Basis, BasisStrategy
from mercer.basis.distribution import Distribution
from mercer.basis.forward_selection import ForwardSelection
from mercer.basis.kmeans import KMeans
from mercer.basis.leverage import Leverage
from mercer.basis.pivoted_cholesky import PivotedCholesky
from mercer.basis.sequential import Sequential
from mercer.basis.sparse_greedy import SparseGreedy
from mercer.basis.supervised_cholesky import SupervisedCholesky
from mercer.basis.uniform import Uniform
from mercer.engine import Executor, Rows
from mercer.kernels import Kernel

__all__ = ["BASIS_NAMES", "choose_basis"]

_NAMED: dict[str, type[BasisStrategy]] = {
    "uniform": Uniform,
    "kmeans": KMeans,
    "pivoted_cholesky": PivotedCholesky,
    "leverage": Leverage,
    "distribution": Distribution,
    "forward_selection": ForwardSelection,
    "sparse_greedy": SparseGreedy,
    "supervised_cholesky": SupervisedCholesky,
    "sequential": Sequential,
}
BASIS_NAMES = tuple(_NAMED)


def choose_basis(
    basis: Any,
    rows: Rows,
    targets: FloatArray,
    kernel: Kernel,
    n_basis: int,
    *,
    weights: FloatArray | None,
    random_state: np.random.RandomState,
    executor: Executor,
) -> Basis:
    """Return the points for a strategy's name, a strategy, or an array of points."""
    if isinstance(basis, str) and basis in _NAMED:
        basis = _NAMED[basis]()
    if isinstance(basis, BasisStrategy):
        return basis.select(
            rows, targets, kernel, n_basis, weights=weights, random_state=random_state, executor=executor
        )
    if isinstance(basis, str) or basis is None:
        names = ", ".join(repr(name) for name in BASIS_NAMES)
        msg = f"basis must be one of {names}, a strategy of mercer.basis, or an array of points; got {basis!r}."
        raise ValueError(msg)
    return Basis(points=_checked_points(basis, rows.n_features))


def _checked_points(basis: Any, n_features: int) -> FloatArray:
    try:
        points = np.array(check_numbers(basis, "basis"), dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        if str(error).startswith("basis"):
            raise
        msg = f"basis, given as an array, must hold numbers: {error}"
        raise ValueError(msg) from error
    if points.ndim != 2 or points.shape[0] == 0 or points.shape[1] != n_features:
        msg = f"basis, given as an array, must have shape (m, {n_features}) with m of at least 1; got {points.shape}."
        raise ValueError(msg)
    if not np.all(np.isfinite(points)):
        msg = "basis, given as an array, contains NaN or infinity."
        raise ValueError(msg)
    return points
