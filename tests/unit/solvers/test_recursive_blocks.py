"""Products of blocks with an inverse."""

import numpy as np
import pytest

from mercer.solvers.recursive import Rules
from mercer.solvers.recursive.block import PANEL, Block
from mercer.solvers.recursive.blocks import multiply


@pytest.mark.parametrize("m", [1, 100, PANEL, PANEL + 1, 2 * PANEL, 320, 333, 700])
@pytest.mark.parametrize("n_rows", [1, 64])
def test_products_of_a_block(m, n_rows):
    rng = np.random.default_rng(m)
    matrix = rng.normal(size=(m + 7, m + 8))
    matrix[:m, :m] += matrix[:m, :m].T
    block = Block.empty(n_rows, 1, m + n_rows + 3, Rules(1.0, 1, 0.0, -1.0))
    for array in (block.values, block.u, block.a):
        array[:] = np.nan
    block.tally["n_before"], block.tally["n_rows"] = m, n_rows
    values = block.values
    values[:, : m + n_rows] = rng.normal(size=(n_rows, m + n_rows))
    expected = values[:, :m] @ matrix[:m, :m]
    column = np.arange(m)
    matrix[:m, :m][column[:, np.newaxis] // PANEL > column // PANEL] = np.nan  # below the panels, which nobody may read
    before = values.copy()
    multiply(block.blas, values[:n_rows, :m], matrix, block.u)
    products = block.u
    np.testing.assert_allclose(products[:, :m], expected, rtol=0, atol=1e-11)
    assert np.all(np.isnan(products[:, m:]))
    np.testing.assert_array_equal(values, before)
