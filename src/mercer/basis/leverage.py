r"""Rows drawn in proportion to approximate ridge leverage scores.

The score of a row, :math:`\ell_i(\lambda) = (K(K + \lambda I)^{-1})_{ii}`, measures how much of it the other rows leave
unexplained; the scores sum to the effective dimension. From a weighted sample S, with weights :math:`1/p_j` on the
diagonal of :math:`D^2`,

.. math:: \tilde\ell_i = \tfrac1\lambda\bigl(k(x_i, x_i) - k_S(x_i)^\top(K_{SS} + \lambda D^{-2})^{-1}k_S(x_i)\bigr).

A small uniform sample scores a set twice its size, from which the next sample is drawn, and so on up to all rows.
"""

from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from mercer._stored import stored
from mercer._typing import FloatArray, IntArray
from mercer._validation import Interval, Real, parameters
from mercer.basis.base import Basis, BasisStrategy, Task
from mercer.engine import Executor, Rows, SomeRows, kernel_diagonal, squared_projections
from mercer.kernels import Kernel

_SMALLEST_NOISE = 1e-10  # beside the mean of k(x, x): below it scores of a sample are rounding
_LARGEST_SAMPLE = 4  # times the number of points: samples on the way are not larger


@stored
@parameters
class Leverage(BasisStrategy):
    """Draw rows by their approximate ridge leverage scores (recursive sampling).

    Cost: about two passes over the data with up to 16 n·m² multiply-adds each (samples on the way have up to 4 m rows);
    memory O(n) and 16 m².

    Parameters
    ----------
    noise : float or None, default=None
        λ of the scores. None fits it to the number of points: λ is then the mean of what m/(4 log m) eigenvectors leave
        of the kernel matrix.

    Notes
    -----
    Row i is among the m points with the probability π_i = min(1, c·score_i), c such that they sum to m (systematic
    sampling in random order). ``scores`` of the basis are the π of the rows drawn, so that 1/π are the weights that
    make sums over the points unbiased for sums over all rows. Regression on the basis does not need them: it uses all
    rows. Rows of weight zero are excluded; other weights are ignored.

    References
    ----------
    C. Musco, C. Musco: Recursive sampling for the Nyström method, NIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.basis import Leverage
    >>> from mercer.kernels import Gaussian
    >>> X = np.append(np.zeros(990), np.arange(10.0, 110.0, 10.0))[:, np.newaxis]  # a heap, and ten rows far from it
    >>> basis = Leverage(noise=0.1).select(X, X, Gaussian(), 20, random_state=0)
    >>> int(np.sum(basis.points > 0))
    10
    """

    noise: float | None = field(default=None, kw_only=False)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "noise": [None, Interval(Real, 0, None, closed="neither")]
    }

    def choose(self, task: Task) -> Basis:
        """Choose ``n_basis`` rows, or fewer if fewer have a positive score."""
        rows, n_basis, weights = task.rows, task.n_basis, task.weights
        used = np.arange(rows.n_rows) if weights is None else np.flatnonzero(weights)
        if len(used) <= n_basis:
            return task.basis(used, "there are no more rows")
        some = rows if len(used) == rows.n_rows else SomeRows(rows, used)
        scores = ridge_leverage_scores(
            some, task.kernel, n_basis, noise=self.noise, random_state=task.random_state, executor=task.executor
        )
        number = min(n_basis, int(np.sum(scores > 0)))
        chances = inclusion_probabilities(scores, number)
        drawn = _systematic_sample(chances, number, task.random_state)
        return task.basis(used[drawn], "no more rows have a positive score", scores=chances[drawn])


def inclusion_probabilities(scores: FloatArray, number: int) -> FloatArray:
    """π_i = min(1, c·score_i) that sum to a number, which at least so many scores above zero allow."""
    chances, certain = np.zeros(len(scores)), np.zeros(len(scores), dtype=np.bool_)
    while number - np.sum(certain) > 0:  # each round makes more rows certain, or ends
        left = scores * ~certain
        chances = np.where(certain, 1.0, left * ((number - np.sum(certain)) / np.sum(left)))
        above = ~certain & (chances >= 1.0)
        if not np.any(above):
            return chances
        certain |= above
    return certain.astype(np.float64)


def _systematic_sample(chances: FloatArray, number: int, random_state: np.random.RandomState) -> IntArray:
    """Draw rows with these probabilities, which sum to the number: equal steps along the rows in random order."""
    order = random_state.permutation(len(chances))
    ends = np.cumsum(chances[order])
    steps = (np.arange(number) + random_state.uniform()) * (ends[-1] / max(number, 1))
    return np.sort(order[np.searchsorted(ends, steps, side="right")])


def ridge_leverage_scores(
    rows: Rows,
    kernel: Kernel,
    n_basis: int,
    *,
    noise: float | None,
    random_state: np.random.RandomState,
    executor: Executor,
) -> FloatArray:
    """Approximate scores of all rows, between 0 and 1, shape (n,).

    Samples as large as theory asks would bring them within a factor of two of the exact ones with high probability.
    Here samples have at most four times ``n_basis`` rows, and scores are mostly too large, up to twelve times.
    """

    def scored(some: Rows, sample: IntArray, chances: FloatArray) -> FloatArray:
        """Scores of some rows, from a sample and the chances with which it was drawn."""
        points = rows.take(sample).astype(np.float64)
        K = kernel(points)
        prior = kernel_diagonal(some, kernel, executor=executor)
        least = _SMALLEST_NOISE * max(float(np.mean(prior)), 1e-300)
        ridge = max(least, _fitted_noise(K, chances, n_basis) if noise is None else noise)
        # K_SS + λD⁻² = GGᵀ, and |G⁻¹k_S(x)|² by one product with G⁻ᵀ
        G = np.linalg.cholesky(K + ridge * np.diag(chances))
        T = solve_triangular(G, np.eye(len(G)), lower=True).T
        known = squared_projections(some, kernel, points, np.ascontiguousarray(T), executor=executor)
        return np.clip((prior - known) / ridge, 0.0, 1.0)

    order = random_state.permutation(rows.n_rows)
    sizes = [rows.n_rows]
    while sizes[-1] > n_basis:
        sizes.append(-(-sizes[-1] // 2))
    sample, chances = order[: sizes[-1]], np.ones(sizes[-1])
    oversampling = max(1.0, np.log(n_basis))
    for size in sizes[-2:0:-1]:
        index = np.sort(order[:size])  # in their order, in which rows of files are read once
        shares = np.minimum(1.0, oversampling * scored(SomeRows(rows, index), sample, chances))
        shares *= min(1.0, _LARGEST_SAMPLE * n_basis / max(np.sum(shares), 1e-300))
        drawn = random_state.uniform(size=size) < shares
        if not np.any(drawn):
            only = random_state.randint(size)
            drawn[only], shares[only] = True, max(shares[only], 1.0 / size)
        sample, chances = index[drawn], shares[drawn]
    return scored(rows, sample, chances)


def _fitted_noise(K: FloatArray, chances: FloatArray, n_basis: int) -> float:
    """λ for which about m/(4 log m) directions stand out: the mean of what they leave of the kernel matrix."""
    rank = max(1, int(np.ceil(n_basis / (4.0 * max(1.0, np.log(n_basis))))))
    scaled = K / np.sqrt(np.outer(chances, chances))
    if rank >= len(K):
        return 0.0
    return float(np.sum(np.linalg.eigvalsh(scaled)[:-rank]) / rank)
