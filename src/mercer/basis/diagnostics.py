r"""How well a basis represents the kernel on the data, before anything is fitted.

The Nyström approximation of the kernel matrix is :math:`Q = K_{nm}K_{mm}^{-1}K_{mn}`; :math:`K - Q` is positive
semi-definite, so that :math:`\|K - Q\|_F \le \operatorname{tr}(K - Q)`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer._typing import FloatArray, RandomState
from mercer._validation import check_random_state
from mercer.basis.base import check_points
from mercer.basis.uniform import draw_rows
from mercer.engine import Executor, Threads, as_rows, kernel_diagonal, squared_projections
from mercer.kernels import Kernel
from mercer.solvers.dense import pivoted_cholesky

_TOLERANCE = 8.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class NystromError:
    """Errors of the approximated kernel matrix.

    Attributes
    ----------
    n_rows, n_basis, rank : int
        Rows, basis points, and how many of them are independent to rounding.
    trace : float
        tr K.
    trace_error : float
        tr(K - Q), exact: the sum over the rows of the variance that the basis cannot represent. It bounds the Frobenius
        error and the largest eigenvalue of K - Q.
    frobenius : float
        ‖K‖_F, estimated from a sample of pairs of rows.
    frobenius_error : float
        ‖K - Q‖_F, estimated from the same pairs.
    frobenius_deviation : float
        Standard error of that estimate.
    uniform_bound : float
        What theory guarantees, on average, for a basis of this size drawn uniformly: the least over r of
        ‖K - K_r‖_F + (64 r/m)^(1/4) n max k(x, x) (Kumar et al.), with K_r of rank r from Q. It exceeds ‖K‖_F unless
        the basis is very large.
    """

    n_rows: int
    n_basis: int
    rank: int
    trace: float
    trace_error: float
    frobenius: float
    frobenius_error: float
    frobenius_deviation: float
    uniform_bound: float

    @property
    def unexplained(self) -> float:
        """Share of the trace that the basis leaves: the mean variance it cannot represent, where k(x, x) = 1."""
        return self.trace_error / self.trace if self.trace > 0 else 0.0

    def __str__(self) -> str:
        norm = max(self.frobenius, 1e-300)
        return (
            f"{self.n_basis} basis points (rank {self.rank}) for {self.n_rows} rows: they leave {self.unexplained:.2%} "
            f"of the trace, {self.frobenius_error / norm:.2%} of the Frobenius norm "
            f"(± {self.frobenius_deviation / norm:.2%}); theory promises {self.uniform_bound / norm:.0%} of it to a "
            "uniform draw."
        )


def nystrom_error(
    rows: Any,
    basis: Any,
    kernel: Kernel,
    *,
    n_pairs_rows: int = 1000,
    random_state: RandomState = None,
    executor: Executor | None = None,
) -> NystromError:
    """Measure how well basis points represent the kernel on rows; two passes over the data, n·m² operations.

    Parameters
    ----------
    rows : array (n, d) or Rows
    basis : array (m, d) or Basis
    kernel : Kernel
        With numbers for parameters.
    n_pairs_rows : int, default=1000
        Rows whose pairs serve to estimate Frobenius norms.
    random_state : int, RandomState or None, default=None
    executor : Executor or None, default=None

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.basis import nystrom_error
    >>> from mercer.kernels import Gaussian
    >>> X = np.linspace(0, 6, 2000)[:, np.newaxis]
    >>> error = nystrom_error(X, X[100::200], Gaussian(1.0), random_state=0)
    >>> error.rank, bool(error.unexplained < 1e-3)
    (10, True)
    """
    rows, executor = as_rows(rows), executor or Threads()
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a kernel of mercer.kernels, with numbers for parameters; got {kernel!r}.")
    points = check_points(getattr(basis, "points", basis), rows.n_features)
    factor = pivoted_cholesky(kernel(points), tolerance=_TOLERANCE)
    kept = points[factor.order]
    T = np.ascontiguousarray(np.linalg.inv(factor.lower).T)
    prior = kernel_diagonal(rows, kernel, executor=executor)
    residual = np.maximum(prior - squared_projections(rows, kernel, kept, T, executor=executor), 0.0)
    index = draw_rows(rows.n_rows, max(2, n_pairs_rows), None, check_random_state(random_state))
    sample = rows.take(index).astype(np.float64)
    whitened = kernel(sample, kept) @ T
    K = kernel(sample)
    norm, _ = _frobenius(K, prior, rows.n_rows)
    error, deviation = _frobenius(K - whitened @ whitened.T, residual, rows.n_rows)
    eigenvalues = np.linalg.eigvalsh(whitened.T @ whitened)[::-1] * (rows.n_rows / len(sample))
    return NystromError(
        n_rows=rows.n_rows,
        n_basis=len(points),
        rank=len(kept),
        trace=float(np.sum(prior)),
        trace_error=float(np.sum(residual)),
        frobenius=norm,
        frobenius_error=error,
        frobenius_deviation=deviation,
        uniform_bound=_uniform_bound(norm, eigenvalues, len(points), rows.n_rows * float(np.max(prior))),
    )


def _frobenius(sample: FloatArray, diagonal: FloatArray, n_rows: int) -> tuple[float, float]:
    """Norm from the exact diagonal and a sample's other entries, and its standard error."""
    size = len(sample)
    squares = sample**2
    np.fill_diagonal(squares, 0.0)
    by_row = np.sum(squares, axis=1) / max(size - 1, 1)
    pairs = float(n_rows) * (n_rows - 1)
    total = float(np.sum(diagonal**2)) + pairs * float(np.mean(by_row))
    norm = float(np.sqrt(total))
    if size >= n_rows or norm == 0:
        return norm, 0.0
    # Rows share their pairs: the mean over pairs varies as twice the mean over rows.
    deviation = pairs * 2.0 * float(np.std(by_row)) / np.sqrt(size)
    return norm, float(deviation / (2.0 * norm))


def _uniform_bound(norm: float, eigenvalues: FloatArray, n_basis: int, scale: float) -> float:
    ranks = np.arange(1, len(eigenvalues) + 1)
    tails = np.sqrt(np.maximum(norm**2 - np.cumsum(eigenvalues**2), 0.0))
    return float(np.min(tails + (64.0 * ranks / n_basis) ** 0.25 * scale))
