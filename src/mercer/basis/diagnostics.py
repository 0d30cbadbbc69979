r"""How well a basis represents the kernel on the data, before anything is fitted.

The Nyström approximation of the kernel matrix is :math:`Q = K_{nm}K_{mm}^{-1}K_{mn}`; :math:`K - Q` is positive
semi-definite, so that :math:`\|K - Q\|_F \le \operatorname{tr}(K - Q)`.

The diagonal r of a positive semi-definite matrix E, which is known of all rows, says where its norm can be:
:math:`e_{ij}^2 \le r_ir_j`. With rows drawn in proportion to r,

.. math:: \|E\|_F^2 = \sum_ir_i^2 + \Bigl(\sum_ir_i\Bigr)^2\,\mathbb E\Bigl[\frac{e_{ij}^2}{r_ir_j}\,1_{i\ne j}\Bigr],

the mean of numbers between 0 and 1: the few rows that a basis does not represent are the ones that are drawn.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import check_random_state
from mercer.basis.base import check_points
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
        ‖K‖_F, estimated from pairs of rows that are drawn in proportion to k(x, x).
    frobenius_error : float
        ‖K - Q‖_F, estimated from pairs of rows that are drawn in proportion to what the basis leaves of them; at most
        ``trace_error``.
    frobenius_deviation : float
        Standard error of that estimate, 0 if all rows were taken. It counts what may not have been met by any pair.
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
        Draws of rows whose pairs serve to estimate Frobenius norms.
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
    random = check_random_state(random_state)

    def sampled(diagonal: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Numbers of the drawn rows, the rows, and their whitened features."""
        index = _draw(diagonal, max(2, n_pairs_rows), random)
        sample = rows.take(index).astype(np.float64)
        return index, sample, kernel(sample, kept) @ T

    index, sample, whitened = sampled(prior)
    norm, _ = _frobenius(kernel(sample), prior, index)
    # Q of all rows has the eigenvalues of VᵀV, here a sum over rows by the inverse of their chances.
    chances = np.ones(len(index)) if len(index) == rows.n_rows else len(index) * prior[index] / np.sum(prior)
    eigenvalues = np.linalg.eigvalsh((whitened / chances[:, np.newaxis]).T @ whitened)[::-1]
    index, sample, whitened = sampled(residual)
    error, deviation = _frobenius(kernel(sample) - whitened @ whitened.T, residual, index)
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


def _draw(diagonal: FloatArray, size: int, random_state: np.random.RandomState) -> IntArray:
    """Rows in proportion to the diagonal, with replacement; all of them if they are not more than the draws."""
    total = float(np.sum(diagonal))
    if size >= len(diagonal) or total <= 0:
        return np.arange(min(size, len(diagonal)))
    return np.sort(random_state.choice(len(diagonal), size, p=diagonal / total))


def _frobenius(sample: FloatArray, diagonal: FloatArray, index: IntArray) -> tuple[float, float]:
    """Norm from the exact diagonal and the entries between rows that were drawn, and its standard error."""
    size, trace = len(index), float(np.sum(diagonal))
    if trace == 0:
        return 0.0, 0.0
    drawn = diagonal[index]
    bounds = np.outer(drawn, drawn)
    known = (bounds > 0) & (index[:, np.newaxis] != index)
    # e²/(r r), at most 1 but for rounding
    shares = np.minimum(np.divide(sample**2, bounds, where=known, out=np.zeros_like(bounds)), 1.0)
    squares = float(np.sum((diagonal / trace) ** 2))
    if size >= len(diagonal):
        share = squares + float(np.sum(shares * (bounds / trace**2)))
        return trace * min(np.sqrt(share), 1.0), 0.0
    by_row = np.sum(shares, axis=1) / (size - 1)
    mean = float(np.mean(by_row))
    share = min(squares + mean, 1.0)
    # Rows share their pairs: the jackknife of a mean over pairs. It sees nothing of correlations that no pair has met:
    # of N pairs with numbers up to 1 the mean varies by (mean + 1/N)/N.
    jackknife = 2.0 * np.sqrt(np.sum((by_row - mean) ** 2) * (size - 1) / size) / max(size - 2, 1)
    n_pairs = size * (size - 1) / 2
    deviation = max(float(jackknife), np.sqrt((mean + 1.0 / n_pairs) / n_pairs))
    return trace * float(np.sqrt(share)), trace * float(min(deviation / (2.0 * np.sqrt(share)), np.sqrt(deviation)))


def _uniform_bound(norm: float, eigenvalues: FloatArray, n_basis: int, scale: float) -> float:
    ranks = np.arange(1, len(eigenvalues) + 1)
    tails = np.sqrt(np.maximum(norm**2 - np.cumsum(eigenvalues**2), 0.0))
    return float(np.min(tails + (64.0 * ranks / n_basis) ** 0.25 * scale))
