"""A kernel whose metric is learned from the gradients of fitted functions."""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone

from mercer._typing import FloatArray, IntArray, RandomState
from mercer._validation import check_random_state
from mercer.estimators.nystrom import NystromClassifier, NystromRegressor
from mercer.exceptions import warn
from mercer.kernels import Gaussian, Kernel, Matern, Metric, Stationary, as_kernel
from mercer.kernels.compact import Compact
from mercer.kernels.stationary import median_distance
from mercer.methods.metric import metric_of_gradients

_MOST_ROWS = 20_000  # by which metrics are learned and compared
_MEDIAN_ROWS = 1000
_SCALES = (0.5, 1.0, 2.0)  # times the median distance
_BETTER = 0.98  # of the squared error: what a later round must reach to be taken, for its metric has seen the rows


@dataclass(frozen=True)
class MetricTrial:
    """A kernel that was tried, and its leave-one-out error: mean squared, in units of that of the mean."""

    round: int
    kernel: Kernel
    noise: float
    error: float


class _Search:
    def __init__(self, X: FloatArray, y: Any, model: Any, deadline: float, verbose: int) -> None:
        self.X, self.y, self.model, self.deadline, self.verbose = X, y, model, deadline, verbose
        self.trials: list[MetricTrial] = []

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.deadline

    def fit(self, kernel: Kernel, number: int) -> tuple[MetricTrial, Any]:
        """Fit a kernel, and leave rows out one by one."""
        fitted = clone(self.model).set_params(kernel=kernel)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a bad candidate is one that is not taken
            fitted.fit(self.X, self.y)
            calibration = fitted._calibration()
        error = np.inf if calibration is None else calibration.relative_error()
        trial = MetricTrial(number, kernel, fitted.noise_, error if np.isfinite(error) else np.inf)
        self.trials.append(trial)
        if self.verbose:
            print(f"round {number}: {kernel}, noise {trial.noise:.2g}, leave-one-out error {np.sqrt(error):.4g}")
        return trial, fitted

    def best_scale(self, shape: Stationary, metric: Metric, number: int) -> tuple[MetricTrial, Any]:
        """The best of some overall scales, in units of the median distance."""
        sample = self.X[:: max(1, len(self.X) // _MEDIAN_ROWS)][:_MEDIAN_ROWS]
        middle = median_distance(metric.apply(sample, np.median(sample, axis=0)))
        found = None
        for scale in (1.0, *(s for s in _SCALES if s != 1.0)):
            if found is None or not self.is_late:
                tried = self.fit(clone(shape).set_params(length_scale=metric.scaled(scale * middle)), number)
                found = tried if found is None or tried[0].error < found[0].error else found
        assert found is not None
        return found


def learn_metric(
    X: Any,
    y: Any,
    *,
    kernel: Any = "matern",
    n_basis: int = 1000,
    rounds: int = 4,
    diagonal: bool = False,
    time_limit: float | None = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Kernel:
    r"""Learn a metric of the inputs, and return a kernel with it as ``length_scale``.

    A model on a basis is fitted, the mean :math:`G` of :math:`\nabla f\nabla f^\top` over the rows becomes the metric,
    :math:`k(|G^{1/2}(x-z)|)`, and so on for some rounds. Round 0 has no metric but the standard deviations of the
    inputs. The round, the overall scale and the shape are those with the least leave-one-out error; a later round is
    taken only if it is better by 2 %.

    Time: some fits of ``NystromRegressor`` for each round, on at most 20 000 rows.

    Parameters
    ----------
    X : array (n, d)
    y : array (n,) or (n, p)
        Targets; or labels, where they are text, Boolean or integers of at most 20 values.
    kernel : str or stationary kernel, default="matern"
        "matern" chooses the smoothness 1/2, 3/2, 5/2 or its limit, the Gaussian kernel; any other kernel keeps its
        shape. Its length scale is replaced.
    n_basis : int, default=1000
    rounds : int, default=4
        Most rounds after round 0.
    diagonal : bool, default=False
        Whether the metric is to have one length scale per input and no more.
    time_limit : float, optional
        Seconds after which no other fit is begun; the best so far is returned, with a warning.
    random_state : int, RandomState or None, default=None
    n_jobs : int or None, default=None
    verbose : int, default=0
        1 prints each trial.

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
    shape = _shape(kernel)
    X, y = _some_rows(X, y, check_random_state(random_state))
    kind = NystromClassifier if _are_labels(y) else NystromRegressor
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    model = kind(n_basis=int(n_basis), random_state=seed, n_jobs=n_jobs)
    deadline = np.inf if time_limit is None else time.monotonic() + float(time_limit)
    search = _Search(X, y, model, deadline, verbose)
    unit = _units(X)
    metric = Metric(np.eye(len(unit)), unit)
    best, fitted = search.best_scale(shape, metric, 0)
    for number in range(1, int(rounds) + 1):
        if search.is_late:
            break
        found = metric_of_gradients(fitted.expansion_.gradient_product(X), unit, diagonal=diagonal)
        if found is None:
            break
        trial, fitted = search.best_scale(shape, found, number)
        if trial.error < _BETTER * best.error:
            best = trial
    for other in _other_shapes(kernel):
        if not search.is_late:
            trial, _ = search.fit(other.set_params(length_scale=best.kernel.length_scale), best.round)
            best = trial if trial.error < best.error else best
    if search.is_late:
        warn(f"time_limit={time_limit} ended the search for a metric; the best so far is returned.", UserWarning)
    return best.kernel


def _shape(kernel: Any) -> Stationary:
    shape = Matern(nu=1.5) if isinstance(kernel, str) and kernel == "matern" else as_kernel(kernel)
    if not isinstance(shape, Stationary) or isinstance(shape, Compact):
        msg = f"kernel must be 'matern', 'gaussian' or a stationary kernel, not compact; got {kernel!r}."
        raise ValueError(msg)  # noqa: TRY004  as for other values of this parameter
    return shape


def _other_shapes(kernel: Any) -> list[Stationary]:
    free = isinstance(kernel, str) and kernel == "matern"
    return [Matern(nu=2.5), Matern(nu=0.5), Gaussian()] if free else []


def _are_labels(y: Any) -> bool:
    if y.ndim != 1 or y.dtype.kind == "f":
        return False
    return y.dtype.kind not in "iu" or len(np.unique(y)) <= 20


def _units(X: FloatArray) -> FloatArray:
    """Standard deviations of the inputs; 1 for constant ones."""
    spread = np.std(X, axis=0)
    constant = spread <= 1e-12 * np.maximum(np.max(np.abs(X), axis=0), 1e-300)
    return np.where(constant, 1.0, spread)


def _some_rows(X: Any, y: Any, rng: np.random.RandomState) -> tuple[FloatArray, Any]:
    X = X.toarray() if issparse(X) else np.asarray(X, dtype=np.float64)
    y = np.asarray(y)
    if X.ndim != 2 or len(X) != len(y) or len(X) < 2 or not np.all(np.isfinite(X)):
        raise ValueError("X must be a table of finite numbers, at least two rows, and y as long.")
    if len(X) > _MOST_ROWS:
        chosen: IntArray = np.sort(rng.permutation(len(X))[:_MOST_ROWS])
        X, y = X[chosen], y[chosen]
    return X, y
