r"""Replace an expansion by a smaller one.

T. Suttorp, C. Igel: *Approximation of Gaussian process regression models after training* (ESANN 2008). Vectors are
constructed one after the other (``construct``), moved together (``refine``), and the mean of what is left is added as
an offset. Of the model only its expansion is needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mercer._typing import RandomState
from mercer._validation import check_random_state
from mercer.compression.arguments import check_arguments, distinct_points, has_gradient
from mercer.compression.shrink import Reduction, Settings, Shrinker
from mercer.compression.size import find_size
from mercer.engine import Threads, blas_threads
from mercer.model import KernelExpansion

__all__ = ["reduce_expansion"]


def reduce_expansion(
    expansion: KernelExpansion,
    n_vectors: int | None = None,
    *,
    inputs: Any = None,
    refine: bool = True,
    offset: bool = True,
    tol: float | None = None,
    metric: str = "feature",
    optimiser: str = "lbfgs",
    n_starts: int = 4,
    starts: str = "best",
    search_iter: int = 15,
    max_iter: int = 1000,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Reduction:
    r"""Replace :math:`f = \sum_i \alpha_i k(x_i, \cdot) + b` by few vectors that need not be among the x.

    .. math:: \min_{z, \beta}\ \Bigl|\sum_{i=1}^n \alpha_i\phi(x_i) - \sum_{j=1}^m \beta_j\phi(z_j)\Bigr|^2,

    or, with ``metric="data"``, the mean squared difference of the two on given inputs. All outputs share the vectors.

    Cost: n² kernel values once, for the norm of f; then n·m per step (with ``metric="data"`` three times as many, of
    the inputs in place of n). Memory: the points, n·p·(d+1), m², and tiles.

    Parameters
    ----------
    expansion : KernelExpansion
    n_vectors : int or None
        m. If there are no more points, they are kept as they are. With ``tol``, the most that are tried.
    inputs : array (N, d) or None
        Where predictions matter: the offset is the mean difference on them, ``metric="data"`` and ``tol`` compare
        predictions there. None for the points of the expansion.
    refine : bool, default=True
        Whether to move all vectors together after they have been constructed one by one.
    offset : bool, default=True
        Whether to add the mean difference to the intercept.
    tol : float or None
        Take as few vectors as make predictions on the inputs differ by less than ``tol`` standard deviations of the
        output (root mean square, the worst output). Sizes are doubled until that holds, then bisected: one vector less
        was tried and did not suffice, though by another start it might. With ``metric="data"`` vectors are fitted to
        half of the inputs and judged by the others.
    metric : {"feature", "data"}, default="feature"
    optimiser : {"lbfgs", "irprop", "joint"}, default="lbfgs"
        Of the refinement: with the coefficients eliminated by L-BFGS or iRprop⁺, or iRprop⁺ on vectors and coefficients
        as in the document. L-BFGS came closest in as many steps (``papers.approximation_after_training``).
    n_starts : int, default=4
        From how many points the search for each vector starts.
    starts : {"best", "proportional"}, default="best"
        Points are drawn in proportion to their coefficients, as in the document. The search starts from those of a
        large draw where what is left of f is greatest, or from the points as they are drawn.
    search_iter : int, default=15
        Most steps of iRprop⁺ in the search for each vector; 0 takes the best of the expansion's own points. More make
        the construction closer but, after the refinement, the result no better.
    max_iter : int, default=1000
        Most steps of the refinement.
    random_state : int, RandomState or None
    n_jobs : int or None
        Threads; None for as many as BLAS may use.
    verbose : int
        1 shows progress.

    Returns
    -------
    Reduction

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import ExactRegressor
    >>> from mercer.compression.reduced_set import reduce_expansion
    >>> X = np.linspace(-3, 3, 200)[:, np.newaxis]
    >>> model = ExactRegressor(noise=0.1).fit(X, np.sin(2 * X[:, 0]))
    >>> small = reduce_expansion(model.expansion_, 8, random_state=0)
    >>> len(small.expansion.points), bool(small.relative_distance < 1e-3)
    (8, True)
    >>> float(np.max(np.abs(small.expansion.evaluate(X)[:, 0] - model.predict(X)))) < 0.01
    True
    """
    settings = Settings(
        inputs=inputs, refine=refine, offset=offset, metric=metric, optimiser=optimiser, n_starts=n_starts,
        starts=starts, search_iter=search_iter, max_iter=max_iter,
    )  # fmt: skip
    settings = check_arguments(expansion, n_vectors, tol, settings)
    executor, rng = Threads(n_jobs, verbose=verbose), check_random_state(random_state)
    given = distinct_points(expansion)
    most = len(given.points) if n_vectors is None else n_vectors
    if tol is None and most >= len(given.points):
        return _as_it_is(given)
    if not has_gradient(given):
        settings = settings.without_moves(given.kernel)
    with blas_threads(1):  # tiles are small; threads of our own work on several of them
        fitted, judged = (settings, None) if tol is None else settings.halves(given, rng)
        shrinker = Shrinker(given, fitted, rng, executor)
        if shrinker.feature.start == 0:  # coefficients that cancel
            return _as_it_is(_zero(given))
        if tol is None or judged is None:
            return shrinker.shrink(most)
        found, trials = find_size(shrinker, given, judged, most=most, tol=tol, executor=executor)
        return replace(found or _as_it_is(given), trials=trials)


def _zero(expansion: KernelExpansion) -> KernelExpansion:
    """One point without coefficient: the intercept is all there is."""
    coefficients = np.zeros((1, expansion.coefficients.shape[1]))
    return KernelExpansion(expansion.kernel, expansion.points[:1], coefficients, expansion.intercept)


def _as_it_is(expansion: KernelExpansion) -> Reduction:
    return Reduction(expansion, np.zeros(1), np.empty(0), 0.0, 0)
