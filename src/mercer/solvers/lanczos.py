r"""Eigenvalues and log-determinants of symmetric matrices that are known by their products only.

After k steps of Lanczos from :math:`q_1`, :math:`HQ = QT + \beta_k q_{k+1}e_k^\top`, with T tridiagonal.

=========================  ==========  ===========================================================
symbol                     code        meaning
=========================  ==========  ===========================================================
:math:`\alpha`             diagonal    the diagonal of T
:math:`\beta`              beside      what stands beside it, :math:`\beta_k` included
:math:`\theta, s`          value       a Ritz value, an eigenvalue of T, and its vector
:math:`|\beta_k s_k|`      residual    :math:`|Hy - \theta y|` of the Ritz vector :math:`y = Qs`
=========================  ==========  ===========================================================

References
----------
C. C. Paige, Accuracy and effectiveness of the Lanczos algorithm for the symmetric eigenproblem, Linear Algebra Appl. 34
(1980). S. Ubaru, J. Chen, Y. Saad, Fast estimation of tr(f(A)) via stochastic Lanczos quadrature, SIAM J. Matrix Anal.
Appl. 38 (2017).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from scipy.linalg import eigh_tridiagonal

from mercer._typing import AnyArray, FloatArray
from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.conjugate_gradient import Operator

_CHECK_EVERY = 10  # steps, or a twentieth of those made: the tridiagonal problem costs k², a step 2·nnz
# Share of the largest Ritz value that the rounding of products and of T leaves undecided, whatever the recurrence says.
_ROUNDING = 8 * float(np.finfo(np.float64).eps)


class ExtremeEigenvalues(NamedTuple):
    """Both ends of a spectrum, from one run; the smallest decides when it stops."""

    smallest: float  # a Ritz value: the smallest eigenvalue is at most this
    # The same, less the residual norm of its Ritz vector. An eigenvalue lies between the two, and it is the smallest of
    # all unless the random start had (almost) no component along its eigenvector.
    bound: float
    largest: float  # a Ritz value: the largest eigenvalue is at least this
    iterations: int
    converged: bool  # the residual norm came below the tolerance, or nothing was left to look at


def extreme_eigenvalues(
    apply: Operator, n: int, *, tol: float, max_iter: int, rng: Generator, scale: float = 0.0, min_iter: int = 1
) -> ExtremeEigenvalues:
    """Bound the smallest and the largest eigenvalue of a symmetric matrix, given by its products.

    Stops when the residual norm of the smallest Ritz pair is at most ``tol · max(|value|, scale)``: ``scale`` is what
    the eigenvalue is to be compared with, for example the noise. But not before ``min_iter`` steps, because a residual
    can be small before an eigenvalue at the end of the spectrum has been seen. A step is one product x (n, 1) ↦ H x and
    5n operations; four vectors are in memory.
    """
    if n < 1 or max_iter < 1:
        raise ValueError(f"Lanczos needs a row and a step, got n={n} and max_iter={max_iter}.")
    start, check = rng.standard_normal((n, 1)), _CHECK_EVERY
    diagonal, beside = np.zeros(max_iter), np.zeros(max_iter)
    for k, (alpha, beta, invariant) in enumerate(_lanczos(apply, start / np.linalg.norm(start), max_iter)):
        diagonal[k], beside[k], exhausted = alpha[0], beta[0], bool(invariant[0])
        if not np.isfinite(beside[k]):
            return ExtremeEigenvalues(np.nan, -np.inf, np.nan, k + 1, converged=False)
        if exhausted or k + 1 >= check or k + 1 == max_iter:
            check = k + 1 + max(_CHECK_EVERY, (k + 1) // 20)
            found = _ritz(diagonal[: k + 1], beside[: k + 1], tol=tol, scale=scale, exhausted=exhausted)
            if exhausted or (found.converged and k + 1 >= min_iter):
                break
    return found


def stochastic_log_determinant(
    apply: Operator, n: int, *, n_probes: int, n_steps: int, rng: Generator
) -> tuple[float, float]:
    r"""Estimate log det H of a symmetric positive definite matrix, and the standard error of the estimate.

    .. math:: \log\det H = \mathrm{tr}\log H \approx \frac1m\sum_i z_i^\top(\log H)z_i
              \approx \frac{n}{m}\sum_i\sum_k s_{1k}^2\log\theta_k

    with Rademacher probes z and Gauss quadrature of ``n_steps`` nodes (stochastic Lanczos quadrature). The standard
    error is that of the probes; too few steps bias the estimate upwards, the less the better H is conditioned. Costs
    ``n_steps`` products with (n, n_probes) arrays, of which four are in memory. Raises ``NotPositiveDefiniteError``
    if a Ritz value is not positive.
    """
    probes = np.where(rng.standard_normal((n, n_probes)) < 0, -1.0, 1.0)
    diagonal, beside = np.zeros((n_steps, n_probes)), np.zeros((n_steps, n_probes))
    steps = np.full(n_probes, n_steps)
    for k, (alpha, beta, invariant) in enumerate(_lanczos(apply, probes / np.sqrt(n), n_steps)):
        diagonal[k], beside[k] = alpha, beta
        steps[invariant] = np.minimum(steps[invariant], k + 1)
        if np.all(invariant):
            break
    estimates = np.empty(n_probes)
    for i in range(n_probes):
        k = steps[i]
        values, vectors = eigh_tridiagonal(diagonal[:k, i], beside[: k - 1, i])
        if values[0] <= 0:
            raise NotPositiveDefiniteError(
                f"the matrix is not positive definite: {values[0]:.3g} is a Ritz value, and so its smallest eigenvalue "
                "is no larger. Use a larger noise, or a kernel that is guaranteed to be positive definite."
            )
        estimates[i] = n * np.sum(vectors[0] ** 2 * np.log(values))
    error = np.std(estimates, ddof=1) / np.sqrt(n_probes) if n_probes > 1 else np.inf
    return float(np.mean(estimates)), float(error)


def _lanczos(apply: Operator, q: FloatArray, n_steps: int) -> Iterator[tuple[FloatArray, FloatArray, AnyArray]]:
    """Lanczos from each unit column of q: for each step α and β of the columns, and whether their spaces are invariant.

    No reorthogonalisation, which would keep all vectors. Once a Ritz value has converged the vectors lose their
    orthogonality along its Ritz vector alone (Paige), and copies of it appear; nothing false does, least of all at the
    ends of the spectrum, and |β_k s_k| stays a residual norm up to rounding.
    """
    n, p = q.shape
    before, beta, largest = np.zeros_like(q), np.zeros(p), np.zeros(p)
    for _ in range(n_steps):
        product = apply(q) - beta * before
        alpha = np.einsum("ij,ij->j", q, product)
        product -= alpha * q
        beta = np.linalg.norm(product, axis=0)
        largest = np.maximum(largest, np.abs(alpha) + beta)
        # β ≈ 0: the space is invariant. One eigenvector for each eigenvalue is in it, by the random start.
        invariant = beta <= np.sqrt(n) * _ROUNDING * largest
        yield alpha, beta, invariant
        # A column that has ended is zero from here on, and ends again in every step.
        before, q = q, product / np.where(invariant, np.inf, beta)


def _ritz(diagonal: FloatArray, beside: FloatArray, *, tol: float, scale: float, exhausted: bool) -> ExtremeEigenvalues:
    """Both extreme Ritz values, and the residual norm of the smallest."""
    k = len(diagonal)
    values, vectors = eigh_tridiagonal(diagonal, beside[:-1], select="i", select_range=(0, 0))
    smallest, residual = float(values[0]), float(abs(beside[-1] * vectors[-1, 0]))
    largest = float(eigh_tridiagonal(diagonal, beside[:-1], select="i", select_range=(k - 1, k - 1))[0][0])
    bound = smallest - residual - _ROUNDING * max(abs(smallest), abs(largest))
    converged = exhausted or residual <= tol * max(abs(smallest), scale)
    return ExtremeEigenvalues(smallest, bound, largest, k, converged)
