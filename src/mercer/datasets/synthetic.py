"""Generated data."""

import numpy as np

from mercer._typing import FloatArray, RandomState
from mercer._validation import check_random_state

_N_WAVES = 32
_N_CLUSTERS = 20


def make_waves(
    n_rows: int = 1000, *, n_features: int = 4, noise: float = 0.1, random_state: RandomState = None
) -> tuple[FloatArray, FloatArray]:
    """Rows uniform in a cube of side 4, targets a smooth random function of unit variance plus Gaussian noise.

    The function is a sum of 32 plane waves of random direction and phase, with wavelengths around the side of the cube.

    Parameters
    ----------
    n_rows : int, default=1000
    n_features : int, default=4
    noise : float, default=0.1
        Standard deviation of the noise.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    X : array (n_rows, n_features)
    y : array (n_rows,)

    Examples
    --------
    >>> from mercer.datasets import make_waves
    >>> X, y = make_waves(500, noise=0.0, random_state=0)
    >>> X.shape, y.shape
    ((500, 4), (500,))
    """
    random = check_random_state(random_state)
    directions = random.normal(size=(n_features, _N_WAVES)) / np.sqrt(n_features) * 1.5
    phases = random.uniform(0, 2 * np.pi, size=_N_WAVES)
    X = random.uniform(-2, 2, size=(n_rows, n_features))
    values = np.zeros(n_rows)
    for direction, phase in zip(directions.T, phases, strict=True):  # wave by wave: nothing of size n × waves
        values += np.cos(X @ direction + phase)
    targets = values * np.sqrt(2.0 / _N_WAVES) + noise * random.normal(size=n_rows)
    return X, np.asarray(targets)


def make_bumps(
    n_rows: int = 200, *, noise: float = 0.1, random_state: RandomState = None
) -> tuple[FloatArray, FloatArray]:
    """One input with a gap: a wave on [-6, 6], not observed on [-1, 2.5], so that error bars have something to show.

    Parameters
    ----------
    n_rows, noise, random_state
        As in ``make_waves``; one feature.

    Examples
    --------
    >>> from mercer.datasets import make_bumps
    >>> X, y = make_bumps(50, random_state=0)
    >>> bool(((X > -1) & (X < 2.5)).any())
    False
    """
    random = check_random_state(random_state)
    x = random.uniform(-6, 2.5, size=n_rows)
    x = np.where(x < -1, x, x + 3.5)  # the part of [-1, 2.5] moves to [2.5, 6]
    targets = np.sin(1.4 * x) * np.exp(-0.02 * x**2) + 0.15 * x + noise * random.normal(size=n_rows)
    return x[:, np.newaxis], np.asarray(targets)


def make_clusters(
    n_rows: int = 1000, *, n_features: int = 4, noise: float = 0.1, random_state: RandomState = None
) -> tuple[FloatArray, FloatArray]:
    """Rows in 20 tight clusters of very different size, many of them equal; targets vary within each cluster.

    Cluster j holds a share of the rows in proportion to 1/j²; three quarters of the rows are rounded to few distinct
    values. A draw of rows at random misses the small clusters and repeats itself in the large ones.

    Parameters
    ----------
    n_rows, n_features, noise, random_state
        As in ``make_waves``.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.datasets import make_clusters
    >>> X, y = make_clusters(1000, random_state=0)
    >>> len(np.unique(X, axis=0)) < 900
    True
    """
    random = check_random_state(random_state)
    shares = 1.0 / np.arange(1, _N_CLUSTERS + 1) ** 2
    cluster = random.choice(_N_CLUSTERS, size=n_rows, p=shares / np.sum(shares))
    centres = random.uniform(-4, 4, size=(_N_CLUSTERS, n_features))
    offsets = 0.3 * random.normal(size=(n_rows, n_features))
    rounded = random.uniform(size=n_rows) < 0.75
    offsets[rounded] = np.round(4 * offsets[rounded]) / 4
    slopes = random.normal(size=(_N_CLUSTERS, n_features))
    values = np.sin(1.5 * np.einsum("ij,ij->i", offsets, slopes[cluster])) + random.normal(size=_N_CLUSTERS)[cluster]
    return centres[cluster] + offsets, np.asarray(values + noise * random.normal(size=n_rows))
