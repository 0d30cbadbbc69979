"""The error of a linear regression at rows that are left out, against fits without them."""

import numpy as np
import pytest

from mercer.engine import ArrayTable, as_rows
from mercer.methods.linear_error import linear_error


def draw(n=40):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 3)) * [1.0, 1e6, 1e-6] + [0.0, 1e8, 0.0]
    return rows, rows @ [[1.0, 2.0], [1e-6, 0.0], [1e6, 3e6]] + rng.normal(size=(n, 2))


@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_that_of_fits_without_each_row(weighted):
    rows, targets = draw()
    weights = np.random.default_rng(1).uniform(0.1, 0.9, 40) if weighted else np.ones(40)
    design = np.column_stack([np.ones(40), (rows - np.mean(rows, axis=0)) / np.std(rows, axis=0)])
    squares = np.zeros((2, 2))
    for i in range(40):
        others = np.arange(40) != i
        roots = np.sqrt(weights[others, np.newaxis])
        for j, X in enumerate((design, design[:, :1])):
            fitted = np.linalg.lstsq(roots * X[others], roots * targets[others], rcond=None)[0]
            squares[j] += weights[i] * (targets[i] - X[i] @ fitted) ** 2
    found = linear_error(ArrayTable(as_rows(rows), targets, weights if weighted else None))
    assert found == pytest.approx(np.mean(squares[0] / squares[1]), rel=1e-2 if weighted else 1e-6)


def test_rows_too_few_or_all_alike():
    rows, targets = draw()
    assert linear_error(ArrayTable(as_rows(rows[:19]), targets[:19])) == np.inf
    assert linear_error(ArrayTable(as_rows(np.ones((40, 3))), targets)) == pytest.approx(1.0)
