"""Products of blocks with an inverse."""

import numpy as np
import pytest

from mercer.solvers.recursive import Rules
from mercer.solvers.recursive.block import FULL, Block, Limits
from mercer.solvers.recursive.inverses import multiply


@pytest.mark.parametrize("m", [1, 100, FULL, FULL + 1, 320, 333, 700])
@pytest.mark.parametrize("n_rows", [1, 64])
def test_products_of_a_block(m, n_rows):
    rng = np.random.default_rng(m)
    matrix = rng.normal(size=(m + 7, m + 8))
    matrix[:m, :m] += matrix[:m, :m].T
    block = Block.empty(n_rows, m + n_rows + 3, 1, Limits.of(Rules(1.0, 1, 0.0, None), m))
    block.table[:] = np.nan
    block.tally["n_before"], block.tally["n_rows"] = m, n_rows
    values = block.table[block.at.values : block.at.values + n_rows]
    values[:, : m + n_rows] = rng.normal(size=(n_rows, m + n_rows))
    expected = values[:, :m] @ matrix[:m, :m]
    if m > FULL:
        matrix[np.tril_indices(m, -1)] = np.nan  # which nobody may read
    before = block.table.copy()
    multiply(block, matrix, block.at.u)
    products = block.table[block.at.u : block.at.u + n_rows]
    np.testing.assert_allclose(products[:, :m], expected, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(products[:, m : m + n_rows], 0.0)
    products[:, : m + n_rows] = np.nan
    np.testing.assert_array_equal(block.table, before)
