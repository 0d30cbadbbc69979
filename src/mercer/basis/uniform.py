"""Rows drawn at random, all alike."""

import numpy as np
from sklearn.utils.random import sample_without_replacement

from mercer._stored import stored
from mercer._typing import FloatArray, IntArray
from mercer.basis.base import Basis, BasisStrategy, Task

__all__ = ["Uniform", "draw_rows"]

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
    >>> from mercer import NystromRegressor
    >>> from mercer.basis import Uniform
    >>> X = np.linspace(0, 6, 1000)[:, np.newaxis]
    >>> model = NystromRegressor("matern", basis=Uniform(), n_basis=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.basis_.shape
    (20, 1)
    """

    def choose(self, task: Task) -> Basis:
        """Choose ``n_basis`` rows at random, or all."""
        number = task.n_basis
        index = draw_rows(task.rows.n_rows, number, task.weights, task.random_state)
        note = "" if len(index) == number else f"{len(index)} of {number} points: there are no more rows."
        return Basis(points=task.rows.take(index).astype(np.float64), index=index, note=note)


def draw_rows(n_rows: int, number: int, weights: FloatArray | None, random_state: np.random.RandomState) -> IntArray:
    """Numbers of rows of positive weight, drawn without replacement and sorted; all if there are no more."""
    candidates = None if weights is None or np.all(weights > 0) else np.flatnonzero(weights)
    population = n_rows if candidates is None else len(candidates)
    index = np.arange(population) if population <= number else _draw(population, number, random_state)
    return index if candidates is None else candidates[index]


def _draw(population: int, number: int, random_state: np.random.RandomState) -> IntArray:
    if population <= _SHUFFLED:
        return np.sort(random_state.permutation(population)[:number])
    return np.sort(sample_without_replacement(population, number, random_state=random_state))
