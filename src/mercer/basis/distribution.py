"""Points drawn from a law, which need not be rows."""

from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from mercer._stored import stored
from mercer._typing import FloatArray
from mercer._validation import HasMethods, StrOptions, parameters
from mercer.basis.base import Basis, BasisStrategy, Task
from mercer.engine import row_moments


@stored
@parameters
class Distribution(BasisStrategy):
    """Points drawn independently from a distribution: a given one, or one fitted to the rows.

    The kernel matrix of such a basis is regular if the distribution has a density, even for degenerate data.

    Parameters
    ----------
    law : {"gaussian", "kde"}, distribution or callable, default="gaussian"
        "gaussian" has the mean and covariance of the rows. "kde" is a kernel density estimate: a row at random plus
        Gaussian noise with the rows' covariance times Scott's factor. A distribution has ``rvs(size=, random_state=)``,
        as those of ``scipy.stats`` (a univariate one gives all features alike); a callable is called with the number of
        points and a ``RandomState``.

    References
    ----------
    F. J. Király: Kernel methods for big data (lecture), 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import uniform
    >>> from mercer import NystromRegressor
    >>> from mercer.basis import Distribution
    >>> X = np.linspace(0, 6, 1000)[:, np.newaxis]
    >>> basis = Distribution(uniform(0, 6))
    >>> model = NystromRegressor("matern", basis=basis, n_basis=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.basis_.shape
    (20, 1)
    """

    law: Any = field(default="gaussian", kw_only=False)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "law": [StrOptions({"gaussian", "kde"}), HasMethods("rvs"), callable]
    }

    def choose(self, task: Task) -> Basis:
        """Draw ``n_basis`` points."""
        n_basis, n_features = task.n_basis, task.rows.n_features
        if isinstance(self.law, str):
            points = _fitted(self.law, task)
        elif hasattr(self.law, "rvs"):
            points = np.asarray(self.law.rvs(size=n_basis, random_state=task.random_state))
            if points.ndim == 1 and n_features > 1 and hasattr(self.law, "ppf"):  # one law for all features
                points = np.asarray(self.law.rvs(size=(n_basis, n_features), random_state=task.random_state))
            points = points.reshape(n_basis, -1) if points.size == n_basis * n_features else points
        else:
            points = np.asarray(self.law(n_basis, task.random_state))
        points = points.astype(np.float64)
        if points.shape != (n_basis, n_features) or not np.all(np.isfinite(points)):
            raise ValueError(f"law must draw finite points of shape ({n_basis}, {n_features}); it drew {points.shape}.")
        return Basis(points=np.ascontiguousarray(points))


def _fitted(law: str, task: Task) -> FloatArray:
    rows, n_basis, weights, random_state = task.rows, task.n_basis, task.weights, task.random_state
    mean, covariance = row_moments(rows, weights, executor=task.executor)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    deviations = random_state.normal(size=(n_basis, rows.n_features)) @ root.T
    if law == "gaussian":
        return np.asarray(mean + deviations)
    shares = None if weights is None else weights / np.sum(weights)
    index = random_state.choice(rows.n_rows, size=n_basis, p=shares)
    number = rows.n_rows if weights is None else np.sum(weights) ** 2 / np.sum(weights**2)
    scott = number ** (-1.0 / (rows.n_features + 4))
    return np.asarray(rows.take(index) + scott * deviations)
