"""Rows drawn at random, all alike."""

import numpy as np
from sklearn.utils.random import sample_without_replacement

from mercer._stored import stored
from mercer._typing import FloatArray, IntArray
from mercer.basis.base import Basis, BasisStrategy, Task

_SHUFFLED = 10_000_000  # a shuffle of all rows takes 8 bytes each; beyond this many, numbers are drawn one by one


@stored
class Uniform(BasisStrategy):
    """Draw rows without replacement, each as likely as any other.

    Reads only the rows it draws; all rows, in their order, if there are no more than ``n_basis``. Up to ten million
    rows the same ``random_state`` draws the same rows as scikit-learn's ``Nystroem``. Rows of weight zero are
    excluded; other weights are ignored.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer.basis import Uniform
    >>> from mercer.kernels import Gaussian
    >>> X = np.linspace(0, 6, 1000)[:, np.newaxis]
    >>> Uniform().select(X, X, Gaussian(), 5, random_state=0).index
    array([298, 553, 672, 859, 993])
    """

    def choose(self, task: Task) -> Basis:
        """Choose ``n_basis`` rows at random, or all."""
        index = draw_rows(task.rows.n_rows, task.n_basis, task.weights, task.random_state)
        return task.basis(index, "there are no more rows")


def draw_rows(n_rows: int, number: int, weights: FloatArray | None, random_state: np.random.RandomState) -> IntArray:
    """Numbers of rows of positive weight, drawn without replacement and sorted; all if there are no more."""
    used = None if weights is None or np.all(weights > 0) else np.flatnonzero(weights)
    population = n_rows if used is None else len(used)
    if population <= number:
        index = np.arange(population)
    elif population <= _SHUFFLED:
        index = np.sort(random_state.permutation(population)[:number])
    else:
        index = np.sort(sample_without_replacement(population, number, random_state=random_state))
    return index if used is None else used[index]
