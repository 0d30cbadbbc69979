"""Centres of clusters of the rows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from threadpoolctl import threadpool_limits

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer.basis.base import Basis, BasisStrategy, Task
from mercer.basis.uniform import draw_rows
from mercer.engine import nearest_rows
from mercer.kernels import Kernel

__all__ = ["KMeans", "cluster_centres", "metric_of"]

_SAMPLE_PER_CLUSTER = 50
_FEWEST = 10_000


@stored
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
    >>> from mercer import NystromRegressor
    >>> from mercer.basis import KMeans
    >>> X = np.linspace(0, 6, 1000)[:, np.newaxis]
    >>> model = NystromRegressor("matern", basis=KMeans(), n_basis=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.basis_.shape, model.basis_index_ is None
    ((20, 1), True)
    """

    def __init__(self, points: Literal["centres", "rows"] = "centres") -> None:
        self.points = points

    def choose(self, task: Task) -> Basis:
        """Find ``n_basis`` centres, or fewer if there are fewer distinct rows."""
        if self.points not in {"centres", "rows"}:
            msg = f"points must be 'centres' or 'rows', got {self.points!r}."
            raise ValueError(msg)
        rows, n_basis, weights, metric = task.rows, task.n_basis, task.weights, metric_of(task.kernel)
        index = draw_rows(rows.n_rows, max(_FEWEST, _SAMPLE_PER_CLUSTER * n_basis), weights, task.random_state)
        sample = rows.take(index).astype(np.float64)
        centres: FloatArray = np.unique(sample, axis=0)
        note = ""
        if len(centres) < n_basis:
            note = f"{len(centres)} of {n_basis} points: {len(index)} rows sampled are no more than these."
        elif len(centres) > n_basis:
            used = None if weights is None else weights[index]
            centres = cluster_centres(sample, n_basis, metric, task.random_state, used)
        if self.points == "centres":
            return Basis(points=centres, note=note)
        nearest = np.unique(nearest_rows(rows, centres, metric, weights=weights, executor=task.executor))
        if len(nearest) < len(centres):
            note = f"{len(nearest)} of {n_basis} points: several centres have the same nearest row."
        return Basis(points=rows.take(nearest).astype(np.float64), index=nearest, note=note)


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
    scale = np.asarray(getattr(kernel, "length_scale", 1.0), dtype=np.float64)
    return scale if scale.ndim == 1 else 1.0
