r"""Replace an expansion by a smaller one.

T. Suttorp, C. Igel: *Approximation of Gaussian process regression models after training* (ESANN 2008). Vectors are
constructed one after the other (``construct``), moved together (``refine``), and the mean of what is left is added as
an offset. Of the model only its expansion is needed.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from mercer._typing import FloatArray, RandomState
from mercer._validation import Integral, Real, check_random_state
from mercer.compression.refine import OPTIMISERS
from mercer.compression.shrink import Reduction, Settings, Shrinker
from mercer.engine import Threads, blas_threads
from mercer.kernels import Precomputed
from mercer.model import KernelExpansion

_LARGEST = 1e100  # of coefficients, whose products with kernel values are squared


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
    inputs : array (N, d) or None
        Where predictions matter: X of ``compress``. None for the points of the expansion.
    n_vectors, refine, offset, metric, random_state, n_jobs, verbose
        As for ``compress``.
    tol : float or None
        As for ``compress``; the worst output counts. Sizes are doubled until the tolerance holds, then bisected: one
        vector less was tried and did not suffice, though by another start it might. With ``metric="data"`` vectors are
        fitted to half of the inputs and judged by the others.
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
    """
    settings = Settings(inputs, refine, offset, metric, optimiser, n_starts, starts, search_iter, max_iter)
    _check_numbers(n_vectors, tol, settings)
    _check_expansion(expansion)
    settings = replace(settings, inputs=_check_inputs(inputs, expansion.points.shape[1]))
    executor, rng = Threads(n_jobs, verbose=verbose), check_random_state(random_state)
    given = _distinct_points(expansion)
    most = len(given.points) if n_vectors is None else n_vectors
    if tol is None and most >= len(given.points):
        return Reduction.to_itself(given)
    if not _has_gradient(given):
        if refine:
            raise ValueError(
                f"{type(given.kernel).__name__} has no gradient, so vectors cannot be moved: pass refine=False to "
                "choose them among the points of the expansion."
            )
        settings = replace(settings, search_iter=0)
    with blas_threads(1):  # tiles are small; threads of our own work on several of them
        judged = given.points if settings.inputs is None else settings.inputs
        if tol is not None and metric == "data" and len(judged) > 1:
            order, half = rng.permutation(len(judged)), len(judged) // 2
            settings, judged = replace(settings, inputs=judged[order[half:]]), judged[order[:half]]
        shrinker = Shrinker(given, settings, rng, executor)
        if shrinker.feature.start == 0:  # coefficients that cancel: the intercept is all there is
            coefficients = np.zeros((1, given.coefficients.shape[1]))
            return Reduction.to_itself(replace(given, points=given.points[:1], coefficients=coefficients))
        return shrinker.shrink(most) if tol is None else shrinker.shrink_within(tol, judged, most=most)


def _distinct_points(expansion: KernelExpansion) -> KernelExpansion:
    """The expansion in float64, each point once, none without a coefficient (but one at least), without variance."""
    points = np.ascontiguousarray(expansion.points, dtype=np.float64)
    coefficients = np.ascontiguousarray(expansion.coefficients, dtype=np.float64)
    distinct, first, place = np.unique(points, axis=0, return_index=True, return_inverse=True)
    if len(distinct) < len(points):
        sums = np.zeros((len(distinct), coefficients.shape[1]))
        np.add.at(sums, place.ravel(), coefficients)
        order = np.argsort(first)
        points, coefficients = distinct[order], sums[order]
    used = np.any(coefficients != 0, axis=1)
    used[0] |= not np.any(used)
    intercept = np.asarray(expansion.intercept, dtype=np.float64)
    return KernelExpansion(expansion.kernel, points[used], coefficients[used], intercept)


def _has_gradient(expansion: KernelExpansion) -> bool:
    """Whether the kernel can be differentiated by its points."""
    point = expansion.points[:1]
    try:
        expansion.kernel.points_gradient(point, point, np.ones((1, 1)))
    except NotImplementedError:
        return False
    return True


def _check_numbers(n_vectors: Any, tol: Any, settings: Settings) -> None:
    """Raise ``ValueError`` for what is out of range."""
    if n_vectors is None and tol is None:
        raise ValueError("n_vectors or tol must be given: how many vectors, or how close they must come.")
    if tol is not None and not (isinstance(tol, Real) and 0 < float(tol) < np.inf):
        raise ValueError(f"tol must be a finite number above zero, got {tol!r}.")
    choices = {"metric": ("feature", "data"), "optimiser": OPTIMISERS, "starts": ("best", "proportional")}
    for name, allowed in choices.items():
        value = getattr(settings, name)
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")
    numbers = {"n_vectors": 1 if n_vectors is None else n_vectors, **vars(settings)}
    for name, least in {"n_vectors": 1, "n_starts": 1, "search_iter": 0, "max_iter": 1}.items():
        value = numbers[name]
        if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def _check_expansion(expansion: KernelExpansion) -> None:
    if isinstance(expansion.kernel, Precomputed):
        msg = "a model on a precomputed kernel cannot be compressed: its points are not known. Use a kernel and rows."
        raise ValueError(msg)  # noqa: TRY004  the value of a parameter of the model
    if len(expansion.points) == 0:
        raise ValueError("the expansion has no points.")
    if not (np.all(np.isfinite(expansion.points)) and np.all(np.isfinite(expansion.coefficients))):
        raise ValueError("the points and coefficients of the expansion must be finite.")
    largest = np.max(np.abs(expansion.coefficients), axis=0)
    if np.any((largest > 0) & ~((largest > 1 / _LARGEST) & (largest < _LARGEST))):
        msg = f"coefficients of an output go up to {largest.tolist()}: their squares are no numbers. Scale the targets."
        raise ValueError(msg)


def _check_inputs(inputs: Any, n_features: int) -> FloatArray | None:
    if inputs is None:
        return None
    array = np.ascontiguousarray(inputs, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != n_features or len(array) == 0:
        msg = f"inputs must be an array of at least one row and {n_features} columns, got shape {array.shape}."
        raise ValueError(msg)
    if not np.all(np.isfinite(array)):
        raise ValueError("inputs contain NaN or infinity.")
    return array
