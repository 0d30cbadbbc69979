"""Products of blocks with an inverse."""

import numpy as np
import pytest

from mercer.solvers.compiled_blas import routines
from mercer.solvers.recursive.state import FULL
from mercer.solvers.recursive.updates import multiply, multiply_panel, n_panels


def block(m, n_rows):
    """Rows, a symmetric matrix with room, and products with columns behind them."""
    rng = np.random.default_rng(m)
    matrix = rng.normal(size=(m + 7, m + 8))
    matrix[:m, :m] += matrix[:m, :m].T
    return rng.normal(size=(n_rows, m + n_rows + 3)), matrix, np.full((n_rows, m + n_rows + 3), np.nan)


@pytest.mark.parametrize("m", [1, 100, FULL, FULL + 1, 320, 333, 700])
@pytest.mark.parametrize("n_rows", [1, 64])
def test_products_of_a_block(m, n_rows):
    values, matrix, products = block(m, n_rows)
    expected = values[:, :m] @ matrix[:m, :m]
    if m > FULL:
        matrix[np.tril_indices(m, -1)] = np.nan  # which nobody may read
    multiply(routines(), matrix, values, products, (m, n_rows, n_rows))
    np.testing.assert_allclose(products[:, :m], expected, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(products[:, m : m + n_rows], 0.0)
    assert np.all(np.isnan(products[:, m + n_rows :]))


def test_panels_in_any_order_are_the_product():
    """Which thread has computed which panel cannot be seen, to the last bit."""
    values, matrix, products = block(333, 64)
    multiply(routines(), matrix, values, products, (333, 64, 64))
    shuffled = np.full_like(products, np.nan)
    for panel in np.random.default_rng(0).permutation(n_panels(333)):
        multiply_panel(routines(), matrix, values, shuffled, (333, 64, panel))
    np.testing.assert_array_equal(shuffled[:, :333], products[:, :333])
