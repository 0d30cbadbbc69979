import threading

import numpy as np
import pytest
from scipy.linalg import solve_triangular

from mercer.solvers.dense import (
    add_gram,
    factor_upper,
    mirror,
    solve_upper,
    subtract_products,
    whiten,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def lower_factor(rng, size):
    """A well-conditioned triangle, with noise above the diagonal that nobody may read."""
    lower = np.asfortranarray(rng.normal(size=(size, size)))
    np.fill_diagonal(lower, 3.0 + np.arange(size) / size)
    return lower


def unwhitened(tile, lower):
    """K L⁻ᵀ by SciPy."""
    return solve_triangular(lower, tile.T, lower=True).T


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (7, 1), (20, 5), (3, 40)])
def test_add_gram_adds_to_the_upper_triangle(rng, n, m):
    tile, accumulator = rng.normal(size=(n, m)), rng.normal(size=(m, m))
    before = accumulator.copy()
    add_gram(accumulator, tile)
    np.testing.assert_allclose(np.triu(accumulator), np.triu(before + tile.T @ tile), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(np.tril(accumulator, -1), np.tril(before, -1))


@pytest.mark.parametrize(
    "arrange",
    [np.asfortranarray, lambda tile: np.repeat(tile, 2, axis=0)[::2], lambda tile: np.repeat(tile, 2, axis=1)[:, ::2]],
    ids=["fortran", "every second row", "every second column"],
)
def test_add_gram_takes_any_layout(rng, arrange):
    tile, accumulator = rng.normal(size=(9, 4)), np.zeros((4, 4))
    add_gram(accumulator, arrange(tile))
    np.testing.assert_allclose(np.triu(accumulator), np.triu(tile.T @ tile), rtol=1e-13)


def test_add_gram_sums_float32_tiles_in_double_precision():
    # In float32, 1 + 1e-8 is 1: the sum of squares of the second tile would be lost.
    accumulator = np.zeros((1, 1))
    add_gram(accumulator, np.ones((1, 1), dtype=np.float32))
    add_gram(accumulator, np.full((1, 1), 1e-4, dtype=np.float32))
    assert accumulator[0, 0] == pytest.approx(1 + 1e-8, rel=1e-15)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_add_gram_of_nothing_adds_nothing(shape):
    accumulator = np.ones((shape[1], shape[1]))
    add_gram(accumulator, np.empty(shape))
    np.testing.assert_array_equal(accumulator, 1.0)


@pytest.mark.parametrize("size", [0, 1, 5, 255, 256, 257, 600])
def test_mirror(rng, size):
    matrix = rng.normal(size=(size, size))
    expected = np.triu(matrix) + np.triu(matrix, 1).T
    mirror(matrix)
    np.testing.assert_array_equal(matrix, expected)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (7, 1), (20, 5), (3, 40)])
def test_whiten_solves_in_place(rng, n, m):
    tile, lower = rng.normal(size=(n, m)), lower_factor(rng, m)
    expected = unwhitened(tile, lower)
    whiten(tile, lower)
    np.testing.assert_allclose(tile, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_whiten_leaves_the_columns_behind_the_features_alone(rng, n):
    wide, lower = rng.normal(size=(n, 7)), lower_factor(rng, 4)
    before = wide.copy()
    whiten(wide[:, :4], lower)
    np.testing.assert_allclose(wide[:, :4], unwhitened(before[:, :4], lower), rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(wide[:, 4:], before[:, 4:])


def test_whiten_reads_the_lower_triangle_only(rng):
    tile, lower = rng.normal(size=(5, 4)), lower_factor(rng, 4)
    other = tile.copy()
    whiten(tile, lower)
    whiten(other, np.asfortranarray(np.tril(lower)))
    np.testing.assert_array_equal(tile, other)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_whiten_nothing(shape):
    whiten(np.empty(shape), np.asfortranarray(np.eye(shape[1])))


@pytest.mark.parametrize(
    ("tile", "lower"),
    [
        (np.ones((5, 4), dtype=np.float32), np.asfortranarray(np.eye(4))),
        (np.ones((5, 4), dtype=np.float32), np.asfortranarray(np.eye(4, dtype=np.float32))),
        (np.ones((5, 4), order="F"), np.asfortranarray(np.eye(4))),
        (np.ones((5, 4)), np.tri(4)),
        (np.ones((5, 8))[:, ::2], np.asfortranarray(np.eye(4))),
        (np.ones((5, 4)), np.ones(25)[:9].reshape(3, 3, order="F")),  # memory behind it, should BLAS read on
        (np.ones((5, 4)), np.asfortranarray(np.eye(5))),
    ],
    ids=["float32 tile", "float32", "fortran tile", "c factor", "strided tile", "small factor", "large factor"],
)
def test_whiten_refuses_what_blas_would_misread(tile, lower):
    with pytest.raises(ValueError, match=r"contiguous|of that size"):
        whiten(tile, lower)


# ------------------------------------------------------------------------------------------- matrices of a block

SHAPES = pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (7, 1), (20, 5), (3, 40)])
# Only the first columns of a wide array are the tile; those behind it must be neither read nor written.
WIDTHS = pytest.mark.parametrize("padding", [0, 1, 6])


def padded(rng, n, m, padding):
    """A tile (n, m) in front of columns of NaN, and a copy of the whole."""
    wide = np.full((n, m + padding), np.nan)
    wide[:, :m] = rng.normal(size=(n, m))
    return wide[:, :m], wide, wide.copy()


def definite(rng, size):
    """Eigenvalues of 1 and more, and a lower triangle of NaN that nobody may read."""
    root = rng.normal(size=(size, size))
    matrix = root @ root.T + np.eye(size)
    spoilt = matrix.copy()
    spoilt[np.tril_indices(size, -1)] = np.nan
    return matrix, spoilt


@SHAPES
@WIDTHS
def test_subtract_products_changes_the_upper_triangle_alone(rng, n, m, padding):
    tile, wide, before = padded(rng, n, m, padding)
    original = rng.normal(size=(n, n))
    matrix = original.copy()
    subtract_products(matrix, tile)
    np.testing.assert_allclose(np.triu(matrix), np.triu(original - tile @ tile.T), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(np.tril(matrix, -1), np.tril(original, -1))
    np.testing.assert_array_equal(wide, before)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_subtract_products_of_nothing(shape):
    matrix = np.ones((shape[0], shape[0]))
    subtract_products(matrix, np.empty(shape))
    np.testing.assert_array_equal(matrix, 1.0)


@pytest.mark.parametrize("size", [1, 2, 7, 64, 200])
def test_factor_upper(rng, size):
    matrix, factor = definite(rng, size)
    assert factor_upper(factor) is True
    upper = np.triu(factor)
    # Backward stable: RᵀR differs from the matrix by size·eps of its norm.
    bound = size * np.finfo(float).eps * np.linalg.norm(matrix, 2)
    np.testing.assert_allclose(upper.T @ upper, matrix, rtol=0, atol=bound)
    assert np.all(np.diagonal(upper) > 0)
    assert np.all(np.isnan(factor[np.tril_indices(size, -1)]))


def test_factor_upper_of_nothing():
    assert factor_upper(np.empty((0, 0))) is True


@pytest.mark.parametrize(
    "matrix",
    [
        [[-1.0]],
        [[0.0]],
        [[1.0, 2.0], [2.0, 1.0]],
        [[1.0, 1.0], [1.0, 1.0]],
        np.diag([1.0] * 100 + [-1e-3]),
    ],
    ids=["negative", "zero", "indefinite", "singular", "last pivot"],
)
def test_factor_upper_tells_what_is_not_positive_definite(matrix):
    assert factor_upper(np.array(matrix)) is False


@SHAPES
@WIDTHS
def test_solve_upper(rng, n, m, padding):
    tile, wide, before = padded(rng, n, m, padding)
    matrix, upper = definite(rng, n)
    factor_upper(upper)
    expected = solve_triangular(np.triu(upper), tile, trans="T")
    solve_upper(upper, tile)
    np.testing.assert_allclose(tile, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(wide[:, m:], before[:, m:])
    # The point of it: products of what comes out are products with the inverse.
    target = before[:, :m].T @ np.linalg.solve(matrix, before[:, :m])
    np.testing.assert_allclose(tile.T @ tile, target, rtol=0, atol=1e-12 * max(1.0, np.max(np.abs(target))))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_solve_upper_nothing(shape):
    solve_upper(np.eye(shape[0]), np.empty(shape))


BAD_TILES = {
    "float32": np.ones((5, 4), dtype=np.float32),
    "fortran": np.ones((5, 4), order="F"),
    "every second column": np.ones((5, 8))[:, ::2],
    "backwards": np.ones((5, 4))[::-1],
    "columns backwards": np.ones((5, 4))[:, ::-1],
    "one row for all": np.broadcast_to(np.ones(4), (5, 4)),
}
BAD_MATRICES = {
    "float32": np.eye(5, dtype=np.float32),
    "fortran": np.asfortranarray(np.tri(5)),
    "part of a larger one": np.ones((5, 6))[:, :5],
    "small": np.ones(25)[:16].reshape(4, 4),  # memory behind it, should BLAS read on
    "large": np.eye(6),
    "oblong": np.ones((5, 6)),
    "one dimension": np.ones(25),
}


@pytest.mark.parametrize("routine", [subtract_products, solve_upper])
@pytest.mark.parametrize("tile", BAD_TILES.values(), ids=BAD_TILES)
def test_tiles_that_blas_would_misread_are_refused(routine, tile):
    with pytest.raises(ValueError, match="a tile must be float64 with contiguous rows"):
        routine(np.eye(5), tile)


@pytest.mark.parametrize("routine", [subtract_products, solve_upper])
@pytest.mark.parametrize("matrix", BAD_MATRICES.values(), ids=BAD_MATRICES)
def test_matrices_that_blas_would_misread_are_refused(routine, matrix):
    tile = np.ones((5, 4))
    with pytest.raises(ValueError, match=r"must be C-contiguous float64 of shape \(5, 5\)"):
        routine(matrix, tile)
    np.testing.assert_array_equal(tile, 1.0)


@pytest.mark.parametrize("name", ["float32", "fortran", "part of a larger one", "oblong", "one dimension"])
def test_factor_upper_refuses_what_lapack_would_misread(name):
    matrix = BAD_MATRICES[name]
    before = matrix.copy()
    with pytest.raises(ValueError, match="must be C-contiguous float64"):
        factor_upper(matrix)
    np.testing.assert_array_equal(matrix, before)


def test_routines_may_run_in_several_threads_at_once(rng):
    lower = lower_factor(rng, 30)
    blocks = [rng.normal(size=(200, 30)) for _ in range(8)]
    results = [np.zeros((30, 30)) for _ in blocks]

    def work(block, result):
        tile = block.copy()
        whiten(tile, lower)
        add_gram(result, tile)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(blocks, results, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for block, result in zip(blocks, results, strict=True):
        white = unwhitened(block, lower)
        np.testing.assert_allclose(np.triu(result), np.triu(white.T @ white), rtol=1e-10, atol=1e-10)
