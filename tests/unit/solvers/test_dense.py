import warnings

import numpy as np
import pytest

from mercer.exceptions import JitterWarning, NotPositiveDefiniteError
from mercer.solvers import dense
from mercer.solvers.dense import cholesky_in_place, least_jitter, pivoted_cholesky

EPS = np.finfo(np.float64).eps
SIZES = [1, 2, 30, 513]  # one more than the block in which matrices are walked


def positive_definite(size, seed=0, condition=1e4):
    rng = np.random.default_rng(seed)
    vectors, _ = np.linalg.qr(rng.normal(size=(size, size)))
    matrix = (vectors * np.geomspace(1.0, 1.0 / condition, size)) @ vectors.T
    return (matrix + matrix.T) / 2


def semi_definite(size, rank, seed=0):
    half = np.random.default_rng(seed).normal(size=(size, rank))
    return half @ half.T


# ------------------------------------------------------------------------------------------------- plain Cholesky


@pytest.mark.parametrize("size", SIZES)
def test_the_factor_is_that_of_the_matrix(size):
    matrix = positive_definite(size)
    factor = cholesky_in_place(matrix.copy())
    lower = np.tril(factor.lower)
    assert factor.jitter == 0.0
    np.testing.assert_allclose(lower @ lower.T, matrix, rtol=0, atol=size * EPS * np.max(matrix))


def test_the_factor_lives_in_the_memory_of_the_matrix():
    matrix = positive_definite(30)
    factor = cholesky_in_place(matrix)
    assert np.shares_memory(factor.lower, matrix)
    assert factor.lower.ctypes.data == matrix.ctypes.data
    assert factor.lower.flags.f_contiguous


def test_a_repaired_factor_lives_there_too():
    matrix = np.ones((30, 30))
    with pytest.warns(JitterWarning):
        factor = cholesky_in_place(matrix)
    assert factor.lower.ctypes.data == matrix.ctypes.data


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,)])
def test_solve(shape):
    matrix = positive_definite(30)
    right = np.random.default_rng(1).normal(size=(30, *shape))
    before = right.copy()
    solution = cholesky_in_place(matrix.copy()).solve(right)
    assert solution.shape == right.shape
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(right, before)


@pytest.mark.parametrize("size", [*SIZES, 512])
def test_inverse_diagonal(size):
    matrix = positive_definite(size)
    expected = np.diagonal(np.linalg.inv(matrix))
    np.testing.assert_allclose(cholesky_in_place(matrix).inverse_diagonal(), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "matrix",
    [np.ones((5, 5)), semi_definite(40, 3), semi_definite(600, 5), np.diag([1.0, 1.0, 0.0])],
    ids=["ones", "rank 3", "more than a block", "zero pivot"],
)
def test_a_singular_matrix_is_repaired_and_reported(matrix):
    original = matrix.copy()
    with pytest.warns(JitterWarning, match=r"singular to rounding.*larger noise") as record:
        factor = cholesky_in_place(matrix)
    assert len(record) == 1
    assert 0 < factor.jitter <= 1e-6 * np.max(np.diagonal(original))
    lower = np.tril(factor.lower)
    expected = original + factor.jitter * np.eye(len(original))
    np.testing.assert_allclose(lower @ lower.T, expected, rtol=0, atol=len(original) * EPS * np.max(original))


def test_the_jitter_is_near_rounding():
    with pytest.warns(JitterWarning):
        factor = cholesky_in_place(np.ones((5, 5)))
    assert factor.jitter <= 2 * np.sqrt(EPS)  # the root of eps balances the jitter's error and rounding


def test_the_warning_points_at_the_callers_caller():
    def caller():
        return cholesky_in_place(np.ones((5, 5)))

    with pytest.warns(JitterWarning) as record:
        caller()
    assert record[0].filename == __file__


def test_a_regular_matrix_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cholesky_in_place(positive_definite(50, condition=1e10)).jitter == 0.0


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        -np.eye(3),
        np.zeros((3, 3)),
        np.diag([1.0, -1e-3]),
        np.array([[1.0, 0.9, 0.9], [0.9, 1.0, -0.9], [0.9, -0.9, 1.0]]),
    ],
    ids=["entry", "negative", "zero", "slightly", "triangle"],
)
def test_an_indefinite_matrix_is_refused_with_the_remedy(matrix):
    with pytest.raises(NotPositiveDefiniteError, match=r"plus noise is not positive definite.*larger noise"):
        cholesky_in_place(matrix)


@pytest.fixture
def few_attempts(monkeypatch):
    """Fail instead of hanging where the search for a jitter does not end."""
    factorise, attempts = dense.lapack.dpotrf, []

    def counted(*arguments, **options):
        attempts.append(1)
        assert len(attempts) <= 20, "the search for a jitter does not end"
        return factorise(*arguments, **options)

    monkeypatch.setattr(dense.lapack, "dpotrf", counted)


@pytest.mark.usefixtures("few_attempts")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_overflown_matrix_is_refused_with_the_remedy(value):
    matrix = np.eye(3)
    matrix[1, 1] = value
    with pytest.raises(NotPositiveDefiniteError, match=r"NaN or infinity.*scale them"):
        cholesky_in_place(matrix)


@pytest.mark.usefixtures("few_attempts")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_matrix_with_an_overflown_entry_is_refused(value):
    matrix = np.eye(3)
    matrix[0, 1] = matrix[1, 0] = value
    with pytest.raises(NotPositiveDefiniteError):
        cholesky_in_place(matrix)


def test_the_error_is_numpys_kind_too():
    assert issubclass(NotPositiveDefiniteError, np.linalg.LinAlgError)


# ----------------------------------------------------------------------------------------------- pivoted Cholesky


@pytest.mark.parametrize("size", [1, 2, 30, 300])
def test_a_regular_matrix_keeps_all_rows(size):
    matrix = positive_definite(size)
    before = matrix.copy()
    factor = pivoted_cholesky(matrix, tolerance=1e-12)
    assert sorted(factor.order) == list(range(size))
    expected = matrix[np.ix_(factor.order, factor.order)]
    np.testing.assert_allclose(factor.lower @ factor.lower.T, expected, rtol=0, atol=size * EPS)
    np.testing.assert_array_equal(matrix, before)


def test_pivots_fall():
    factor = pivoted_cholesky(positive_definite(30), tolerance=1e-12)
    assert np.all(np.diff(np.diagonal(factor.lower)) <= 0)


def test_the_lower_factor_is_clean():
    lower = pivoted_cholesky(positive_definite(30), tolerance=1e-12).lower
    assert lower.flags.f_contiguous
    np.testing.assert_array_equal(np.triu(lower, 1), 0)


@pytest.mark.parametrize(("size", "rank"), [(5, 1), (40, 3), (300, 20)])
def test_rank_deficient_matrices_keep_as_many_rows_as_their_rank(size, rank):
    matrix = semi_definite(size, rank)
    factor = pivoted_cholesky(matrix, tolerance=1e-10)
    order, lower = factor.order, factor.lower
    assert len(order) == len(set(order)) == rank
    assert lower.shape == (rank, rank)
    np.testing.assert_allclose(lower @ lower.T, matrix[np.ix_(order, order)], rtol=0, atol=1e-12 * np.max(matrix))
    # K = K_:r K_rr⁻¹ K_r:, the rows left out are in the span of those kept
    half = np.linalg.solve(lower, matrix[order])
    np.testing.assert_allclose(half.T @ half, matrix, rtol=0, atol=1e-8 * np.max(matrix))


def test_duplicate_rows_are_left_out():
    matrix = np.kron(positive_definite(10), np.ones((3, 3)))
    factor = pivoted_cholesky(matrix, tolerance=1e-10)
    assert sorted(factor.order // 3) == list(range(10))


def test_the_tolerance_is_relative():
    matrix = np.diag([1.0, 1e-3, 1e-6])
    for scale in (1e-100, 1.0, 1e100):
        assert len(pivoted_cholesky(scale * matrix, tolerance=1e-4).order) == 2


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.diag([1.0, -1.0]),
        -np.eye(3),
        # The next one keeps to |k(x,z)|² ≤ k(x,x) k(z,z) in every pair, and has the eigenvalue -0.8.
        np.array([[1.0, 0.9, 0.9], [0.9, 1.0, -0.9], [0.9, -0.9, 1.0]]),
    ],
    ids=["entry", "diagonal", "negative", "triangle"],
)
def test_a_pivoted_factor_refuses_indefinite_matrices_with_the_remedy(matrix):
    with pytest.raises(NotPositiveDefiniteError, match=r"the basis is not positive definite.*positive definite kernel"):
        pivoted_cholesky(matrix, tolerance=1e-10)


def test_where_all_kernel_values_vanish_one_point_is_kept():
    factor = pivoted_cholesky(np.zeros((3, 3)), tolerance=1e-10)
    assert factor.order.tolist() == [0]
    assert factor.lower.tolist() == [[1.0]]


def test_rows_of_very_different_scale_do_not_disturb_each_other():
    matrix = positive_definite(20)
    scale = np.geomspace(1e-10, 1e10, 20)
    expected = np.linalg.cholesky(matrix) * scale[:, np.newaxis]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        factor = cholesky_in_place(matrix * np.outer(scale, scale))
    np.testing.assert_allclose(np.tril(factor.lower), expected, rtol=1e-9, atol=0)


def test_jitter_is_spread_as_asked():
    spread = np.array([1.0, 1e-3, 1.0])
    with pytest.warns(JitterWarning):
        lower = np.tril(cholesky_in_place(np.ones((3, 3)), spread=spread).lower)
    added = np.diagonal(lower @ lower.T) - 1.0
    np.testing.assert_allclose(added / added[0], spread, rtol=1e-4)


def test_a_pivoted_factor_refuses_an_overflown_matrix():
    with pytest.raises(NotPositiveDefiniteError, match="NaN or infinity"):
        pivoted_cholesky(np.diag([1.0, np.nan]), tolerance=1e-10)


def test_the_least_share_that_works_is_taken_and_no_other_is_tried():
    tried = []

    def factor(share):
        tried.append(share)
        return 0.0 if share >= 1e-8 else None  # a factor may be zero

    assert least_jitter((0.0, 1e-10, 1e-8, 1e-6), factor, "singular") == (0.0, 1e-8)
    assert tried == [0.0, 1e-10, 1e-8]
    with pytest.raises(NotPositiveDefiniteError, match="singular"):
        least_jitter((0.0, 1e-10), factor, "singular")
