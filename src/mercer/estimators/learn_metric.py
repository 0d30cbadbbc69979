"""A kernel whose metric is learned from the gradients of fitted functions."""

import sys
import time
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from mercer._typing import RandomState
from mercer._validation import Integral, Real, check_random_state
from mercer.engine import ArrayTable
from mercer.engine.checkpoint import refuse_checkpoint
from mercer.estimators.nystrom import NystromClassifier, NystromRegressor
from mercer.estimators.shell import held_blas, make_executor
from mercer.exceptions import warn
from mercer.kernels import Gaussian, Kernel, Matern, Metric, Stationary, as_kernel
from mercer.kernels.compact import Compact
from mercer.kernels.median_distance import median_distance
from mercer.methods.exact import unit_targets
from mercer.methods.likelihood import DECIDING_ROWS, maximise_likelihood
from mercer.methods.metric_search import MetricTrial, refine_metric, rows_in_memory, spreads

_MOST_CLASSES = 20  # of integers that are taken for labels
_LIKELIHOOD_SHARE = 0.3  # of the time, for length scales by likelihood
_STEPS = (20, 60)  # of that search, with one length scale and with one for each input
_FEWEST = 10  # rows of which a likelihood can say something


def learn_metric(
    X: Any,
    y: Any,
    *,
    kernel: Any = "matern",
    n_basis: int = 1000,
    rounds: int = 8,
    diagonal: bool = False,
    classification: bool | None = None,
    sample_weight: Any = None,
    time_limit: float | None = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Kernel:
    r"""Learn a metric of the inputs, and return a kernel with it as ``length_scale``.

    A model on a basis is fitted, the mean :math:`G` of :math:`\nabla f\nabla f^\top` over the rows becomes the metric,
    :math:`k(|G^{1/2}(x-z)|)`, and so on for some rounds. Of each round, also shorter steps and other overall scales are
    tried, and the one with the least leave-one-out error is taken. The first round that does not make the squared error
    smaller by 2 % ends the search, so that data from which no metric can be learned keep the one they started with: one
    length scale for all inputs in units of their standard deviations, or one for each by marginal likelihood, whichever
    has the smaller leave-one-out error.

    Time: some ten fits of ``NystromRegressor`` for each round, on at most 20 000 rows, and some seconds for the start.

    Parameters
    ----------
    X : array or sparse matrix (n, d)
    y : array (n,) or (n, p)
        Targets or labels.
    kernel : str or stationary kernel, default="matern"
        "matern" chooses the smoothness 1/2, 3/2, 5/2 or its limit, the Gaussian kernel; any other kernel keeps its
        shape. A kernel with one length scale per input, a matrix or a metric is where the search starts; of any other
        the length scale is replaced.
    n_basis : int, default=1000
    rounds : int, default=8
        Most rounds.
    diagonal : bool, default=False
        Whether rounds change the length scales of inputs only, and do not turn axes.
    classification : bool, default=None
        Whether y are labels. None means: if they are text, Boolean, or integers of at most 20 values.
    sample_weight : array (n,), optional
    time_limit : float, optional
        Seconds after which no other fit is begun; the best so far is returned, with a warning.
    random_state : int, RandomState or None, default=None
    n_jobs : int or None, default=None
    verbose : int, default=0
        1 tells what is tried, on standard error.

    Returns
    -------
    Kernel
        With ``metric_importance_`` per input. It can be given to every estimator.

    References
    ----------
    A. Radhakrishnan, D. Beaglehole, P. Pandit, M. Belkin (2024). Mechanism for feature learning in neural networks and
    backpropagation-free machine learning models. Science 383, 1461-1467.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import learn_metric
    >>> X = np.random.default_rng(0).normal(size=(500, 5))
    >>> kernel = learn_metric(X, np.sin(X[:, 0] + X[:, 1]), n_basis=100, random_state=0)
    >>> bool(np.sum(kernel.metric_importance_[:2]) > 0.95)
    True
    """
    shape, is_start = _shape(kernel)
    limit = _check_limits(rounds, time_limit)
    if limit < np.inf:
        refuse_checkpoint("learn_metric with a time_limit")
    if classification not in (None, True, False):
        raise ValueError(f"classification must be True, False or None, got {classification!r}.")
    deadline, rng = time.monotonic() + limit, check_random_state(random_state)
    seed = int(rng.randint(2**31 - 1))
    labels = _are_labels(np.asarray(y)) if classification is None else bool(classification)
    reader = (NystromClassifier if labels else NystromRegressor)(n_basis=n_basis, n_jobs=n_jobs)
    reader._validate_params()
    table = reader._read(X, y, sample_weight, first=True)

    def best_of(starts: list[Stationary], rounds: int) -> MetricTrial:  # on the same rows and points every time
        return refine_metric(
            table, starts[0], others=starts[1:], n_basis=int(n_basis), rounds=rounds, diagonal=diagonal,
            deadline=deadline, rng=np.random.RandomState(seed), executor=make_executor(reader),
            say=partial(_say, verbose),
        )[0]  # fmt: skip

    with held_blas(reader):
        starts = [shape] if is_start else _starts(shape, rows_in_memory(table, DECIDING_ROWS, rng), limit)
        best = best_of(starts, int(rounds))
        for other in _other_shapes(kernel):
            if time.monotonic() < deadline:
                tried = best_of([other.set_params(length_scale=best.kernel.length_scale)], 0)
                best = tried if tried.error < best.error else best
    if time.monotonic() > deadline:
        warn(f"time_limit={time_limit} ended the search for a metric; the best so far is returned.", UserWarning)
    return best.kernel


def _shape(kernel: Any) -> tuple[Stationary, bool]:
    """The kernel, and whether its length scales are where the search starts."""
    shape = Matern(nu=1.5) if isinstance(kernel, str) and kernel == "matern" else as_kernel(kernel)
    if not isinstance(shape, Stationary) or isinstance(shape, Compact):
        msg = f"kernel must be 'matern', 'gaussian' or a stationary kernel, not compact; got {kernel!r}."
        raise ValueError(msg)  # noqa: TRY004  as for other values of this parameter
    return shape, shape.metric is not None or np.ndim(shape.length_scale) > 0


def _check_limits(rounds: Any, time_limit: Any) -> float:
    if not isinstance(rounds, Integral) or int(rounds) < 0:
        raise ValueError(f"rounds must be an integer of at least zero, got {rounds!r}.")
    if time_limit is None:
        return np.inf
    if not isinstance(time_limit, Real) or not float(time_limit) > 0:
        raise ValueError(f"time_limit must be a number of seconds above zero, or None; got {time_limit!r}.")
    return float(time_limit)


def _starts(shape: Stationary, some: ArrayTable, limit: float) -> list[Stationary]:
    """One length scale for all inputs in their units; and if there is time, one for each by likelihood."""
    rows, targets = some.rows.read(0, some.n_rows), some.targets
    unit = spreads(rows)
    middle = median_distance(rows / unit)
    equal = clone(shape).set_params(length_scale=Metric(np.eye(len(unit)) / middle, unit))
    varied = np.ptp(targets, axis=0) > 0
    if len(rows) < _FEWEST or not np.any(varied):
        return [equal]
    weights = np.ones(len(rows)) if some.weights is None else some.weights
    targets, _ = unit_targets(targets[:, varied])
    targets = targets / np.std(targets, axis=0)
    likeliest = partial(maximise_likelihood, targets=targets, weights=weights, counted=some.counted)
    until = time.monotonic() + _LIKELIHOOD_SHARE * limit
    one = likeliest(equal, rows, max_iter=_STEPS[0], deadline=until)
    each = one.kernel.metric.size * unit
    found = likeliest(
        clone(shape).set_params(length_scale=each), rows, noise=one.noise, max_iter=_STEPS[1], deadline=until
    )
    return [equal, found.kernel]


def _other_shapes(kernel: Any) -> list[Stationary]:
    free = isinstance(kernel, str) and kernel == "matern"
    return [Matern(nu=2.5), Matern(nu=0.5), Gaussian()] if free else []


def _are_labels(y: Any) -> bool:
    if y.ndim != 1 or y.dtype.kind == "f":
        return False
    return y.dtype.kind not in "iu" or len(np.unique(y)) <= _MOST_CLASSES


def _say(verbose: int, message: str) -> None:
    if verbose:
        print(message, file=sys.stderr, flush=True)
