"""Centres of clusters of the rows."""

from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer._validation import StrOptions, parameters
from mercer.basis.base import Basis, BasisStrategy, Task
from mercer.basis.uniform import draw_rows
from mercer.engine import nearest_rows
from mercer.kernels import Kernel, Stationary

_SAMPLE_PER_CLUSTER = 50
_FEWEST = 10_000


@stored
@parameters
class KMeans(BasisStrategy):
    """Centres of clusters (mini-batch k-means), or the rows nearest to them.

    Clusters are found on a sample of the rows, 50 for each centre and 10 000 at least, in the kernel's metric where it
    has a length scale for each feature.

    Parameters
    ----------
    points : {"centres", "rows"}, default="centres"
        Whether basis points are the centres themselves or, with one more pass over the data, the nearest rows.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.basis import KMeans
    >>> from mercer.kernels import Gaussian
    >>> X = np.repeat([[0.0], [10.0]], 50, axis=0) + np.linspace(-1, 1, 100)[:, np.newaxis]
    >>> np.sort(KMeans().select(X, X, Gaussian(), 2, random_state=0).points, axis=0)
    array([[-0.5], [10.5]])
    """

    points: Literal["centres", "rows"] = field(default="centres", kw_only=False)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"points": [StrOptions({"centres", "rows"})]}

    def choose(self, task: Task) -> Basis:
        """Find ``n_basis`` centres, or fewer if there are fewer distinct rows."""
        rows, n_basis, weights, metric = task.rows, task.n_basis, task.weights, metric_of(task.kernel)
        index = draw_rows(rows.n_rows, max(_FEWEST, _SAMPLE_PER_CLUSTER * n_basis), weights, task.random_state)
        sample = task.points(index)
        centres: FloatArray = np.unique(sample, axis=0)
        if len(centres) > n_basis:
            used = None if weights is None else weights[index]
            centres = cluster_centres(sample, n_basis, metric, task.random_state, used)
        why = f"{len(index)} rows sampled are no more than these"
        if self.points == "centres":
            return Basis(points=centres, note=task.note(len(centres), why))
        nearest = np.unique(nearest_rows(rows, centres, metric, weights=weights, executor=task.executor))
        return task.basis(nearest, why if len(nearest) == len(centres) else "several centres have the same nearest row")


def cluster_centres(
    sample: FloatArray,
    n_clusters: int,
    metric: Any,
    random_state: np.random.RandomState,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Centres of mini-batch k-means on x/metric, shape (n_clusters, d)."""
    origin = np.median(sample, axis=0)
    means = MiniBatchKMeans(n_clusters, n_init=1, random_state=random_state)
    with threadpool_limits(1, user_api="openmp"):  # threads that wait for each other on busy machines
        means.fit((sample - origin) / metric, sample_weight=weights)
    return np.asarray(origin + means.cluster_centers_ * metric, dtype=np.float64)


def metric_of(kernel: Kernel) -> Any:
    """Length scales of the kernel, one per feature, or 1.0 where it has none or a common one."""
    if isinstance(kernel, Stationary) and kernel.metric is not None:
        # The length scales that come nearest: 1/√M_ff of the metric M = AAᵀ; inputs without any have the longest.
        steps = kernel.metric.steps
        return np.minimum(steps, 1e6 * np.min(steps))
    scale = np.asarray(getattr(kernel, "length_scale", 1.0), dtype=np.float64)
    return scale if scale.ndim == 1 else 1.0
