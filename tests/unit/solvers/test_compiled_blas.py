"""BLAS for compiled code, in parts or not, against NumPy."""

import numpy as np
import pytest

from mercer.solvers.compiled_blas import PLAIN, TRANSPOSED, add_product, routines


@pytest.fixture(params=[False, True], ids=["whole", "in_parts"])
def blas(request):
    return routines()._replace(in_parts=request.param)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("keep", [0.0, 1.0])
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1),
        (16, 100, 100),
        (64, 300, 300),  # parts of rows and of the depth
        (64, 364, 56),  # parts of rows
        (48, 26, 364),  # parts of rows, if transposed
        (112, 34, 1256),
        (37, 64, 433),
        (33, 611, 419),  # parts would be too small: as one
        (5, 7, 0),  # nothing to add: nothing is done
        (0, 3, 2),
        (3, 0, 2),
    ],
)
def test_products(sizes, keep, transposed, blas):
    (T, q, j), rng = sizes, np.random.default_rng(0)
    left, out = rng.normal(size=(T, j + 5)), rng.normal(size=(T, q + 2))
    right = rng.normal(size=(q, j + 3) if transposed else (j, q + 3))
    before = out.copy()
    forms = (PLAIN, TRANSPOSED if transposed else PLAIN)
    add_product(blas, forms, left[:T, :j], right[:q, :j] if transposed else right[:j, :q], out[:T, :q], keep)
    expected = (keep if j else 1.0) * before[:, :q] + left[:, :j] @ (right[:, :j].T if transposed else right[:, :q])
    np.testing.assert_allclose(out[:, :q], expected, rtol=0, atol=1e-13 * max(j, 1))
    np.testing.assert_array_equal(out[:, q:], before[:, q:])


def test_what_is_not_kept_may_be_anything(blas):
    out = np.full((64, 300), np.nan)
    add_product(blas, (PLAIN, PLAIN), np.ones((64, 300)), np.ones((300, 300)), out, 0.0)
    np.testing.assert_array_equal(out, 300.0)


@pytest.mark.parametrize(("j", "m"), [(1, 1), (22, 100), (30, 300), (90, 160), (0, 4), (3, 0)])
def test_cross_products(j, m, blas):
    rng = np.random.default_rng(1)
    left, right, matrix = rng.normal(size=(j, m + 4)), rng.normal(size=(j, m + 4)), rng.normal(size=(m + 3, m + 5))
    before = matrix.copy()
    add_product(blas, (TRANSPOSED, PLAIN), left[:j, :m], right[:j, :m], matrix[:m, :m], 1.0)
    expected = before[:m, :m] + left[:, :m].T @ right[:, :m]
    np.testing.assert_allclose(matrix[:m, :m], expected, rtol=0, atol=1e-13 * max(j, 1))
    matrix[:m, :m] = before[:m, :m]
    np.testing.assert_array_equal(matrix, before)
