import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, csc_matrix, csr_array, diags_array, eye_array, kron, random_array
from scipy.sparse.linalg import splu

from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.sparse_cholesky import sparse_cholesky
from mercer.solvers.sparse_symbolic import count_fill, ordering_permutation
from tests.strategies import examples

NAMES = ["amd", "colamd", "rcm", "natural"]


@pytest.fixture(autouse=True)
def no_cholmod(monkeypatch):
    monkeypatch.setitem(sys.modules, "sksparse", None)  # importing it fails, wherever the tests run


def grid(side):
    """A path's Laplacian on each axis of a grid, plus a little."""
    path = diags_array([-np.ones(side - 1), np.full(side, 2.0), -np.ones(side - 1)], offsets=[-1, 0, 1])
    eye = eye_array(side)
    return csr_array(kron(path, eye) + kron(eye, path) + 0.1 * eye_array(side**2))


def random_spd(n, density, seed, smallest=0.1):
    """Random symmetric with eigenvalues from ``smallest`` on: pivots far from trivial, unlike a dominant diagonal's."""
    half = random_array((n, n), density=density, rng=np.random.default_rng(seed), data_sampler=sampler(seed))
    matrix = (half + half.T).toarray()
    matrix[np.diag_indices(n)] += smallest - np.min(np.linalg.eigvalsh(matrix), initial=0.0)
    return csr_array(matrix)


def sampler(seed):
    return lambda size: np.random.default_rng(seed + 1).normal(size=size)


def boolean_elimination(pattern):
    """Entries of L by eliminating a boolean matrix: the definition of fill."""
    pattern = pattern.copy()
    for k in range(len(pattern)):
        below = np.flatnonzero(pattern[k + 1 :, k]) + k + 1
        pattern[np.ix_(below, below)] = True
    return int(np.sum(np.tril(pattern)))


def orderings(n, seed=0):
    return [*NAMES, np.random.default_rng(seed).permutation(n)]


@pytest.mark.parametrize("ordering", [*NAMES, "permutation"])
@pytest.mark.parametrize("matrix", [grid(7), random_spd(40, 0.05, 0), random_spd(60, 0.3, 1)], ids=["grid", "s", "d"])
def test_it_agrees_with_dense_algebra(matrix, ordering):
    n, dense, rng = matrix.shape[0], matrix.toarray(), np.random.default_rng(3)
    factor = sparse_cholesky(matrix, ordering=rng.permutation(n) if ordering == "permutation" else ordering)
    lower = factor.lower.toarray()
    permuted = dense[np.ix_(factor.order, factor.order)]
    np.testing.assert_allclose(lower * factor.pivots @ lower.T, permuted, atol=1e-12)
    np.testing.assert_allclose(lower * np.sqrt(factor.pivots), np.linalg.cholesky(permuted), atol=1e-11)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(dense)[1], rel=1e-11)
    right = rng.normal(size=(n, 3))
    np.testing.assert_allclose(factor.solve(right), np.linalg.solve(dense, right), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(factor.solve(right[:, 0]), factor.solve(right)[:, 0], rtol=1e-12, atol=1e-12)
    assert factor.lower.nnz == np.count_nonzero(lower)
    assert factor.fill_in == factor.lower.nnz / np.count_nonzero(np.tril(dense))


@given(st.integers(1, 25), st.floats(0.0, 0.5), st.integers(0, 10**6), st.sampled_from([*NAMES, "permutation"]))
@settings(max_examples=examples(60), deadline=None)
def test_any_sparse_definite_matrix(n, density, seed, ordering):
    matrix, rng = random_spd(n, density, seed), np.random.default_rng(seed)
    factor = sparse_cholesky(matrix, ordering=rng.permutation(n) if ordering == "permutation" else ordering)
    dense = matrix.toarray()
    rows = random_array((6, n), density=0.2, rng=rng, format="csr")
    expected = np.einsum("ij,ji->i", rows.toarray(), np.linalg.solve(dense, rows.toarray().T))
    np.testing.assert_allclose(factor.half_norms(rows), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(dense @ factor.solve(np.ones(n)), 1.0, atol=1e-9)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(dense)[1], rel=1e-9, abs=1e-9)
    assert factor.lower.nnz <= count_fill(matrix, factor.order)


@given(st.integers(0, 30), st.floats(0.0, 0.4), st.integers(0, 10**6))
@settings(max_examples=examples(60), deadline=None)
def test_the_fill_is_that_of_boolean_elimination(n, density, seed):
    matrix = random_spd(n, density, seed) if n else csr_array((0, 0))
    for ordering in orderings(n, seed):
        order = ordering_permutation(matrix, ordering)
        np.testing.assert_array_equal(np.sort(order), np.arange(n))
        pattern = (matrix.toarray() != 0)[np.ix_(order, order)]
        assert count_fill(matrix, order) == boolean_elimination(pattern)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "matrix", [grid(30), random_spd(500, 0.004, 2), random_spd(80, 0.2, 3)], ids=["grid", "s", "d"]
)
def test_the_ordering_and_the_fill_are_known_before_the_factorisation(matrix, name):
    factor = sparse_cholesky(matrix, ordering=name)
    order = ordering_permutation(matrix, name)
    if name in ("amd", "colamd"):
        np.testing.assert_array_equal(order, factor.order)
    assert count_fill(matrix, order) == factor.lower.nnz


def test_counting_ends_soon_after_the_most_that_is_asked_for():
    matrix = grid(30)
    whole = count_fill(matrix, np.arange(900))
    assert 5000 < count_fill(matrix, np.arange(900), most=5000) < 5100 < whole
    assert count_fill(matrix, np.arange(900), most=whole) == whole


def test_the_ordering_is_superlus_own():
    matrix = grid(25)
    for name, own in [("amd", "MMD_AT_PLUS_A"), ("colamd", "COLAMD")]:
        factor = splu(csc_array(matrix), permc_spec=own, diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        np.testing.assert_array_equal(ordering_permutation(matrix, name), np.argsort(factor.perm_c))


def test_the_ordering_does_not_depend_on_the_values():
    matrix = grid(12)
    other = csr_array((np.full(matrix.nnz, -1.0), matrix.indices, matrix.indptr), shape=matrix.shape)
    for name in NAMES:
        np.testing.assert_array_equal(ordering_permutation(matrix, name), ordering_permutation(other, name))


def test_orderings_differ_in_fill_not_in_answers():
    matrix = grid(40)
    shuffled = np.random.default_rng(0).permutation(1600)
    factors = {name: sparse_cholesky(matrix, ordering=name) for name in NAMES}
    factors["shuffled"] = sparse_cholesky(matrix, ordering=shuffled)
    assert (
        factors["amd"].lower.nnz
        < factors["rcm"].lower.nnz
        < factors["natural"].lower.nnz
        < factors["shuffled"].lower.nnz
    )
    assert factors["amd"].lower.nnz != factors["colamd"].lower.nnz
    for factor in factors.values():
        assert factor.log_determinant == pytest.approx(factors["amd"].log_determinant, rel=1e-12)
        np.testing.assert_allclose(factor.solve(np.ones(1600)), factors["amd"].solve(np.ones(1600)), rtol=1e-10)


def test_counting_fill_needs_no_room_for_it():
    """An arrow that points the wrong way fills up: 4.5 million entries, counted without them."""
    n = 3000
    arrow = eye_array(n, format="lil") * 10.0 * n
    arrow[0, :], arrow[:, 0] = 1.0, np.ones((n, 1))
    arrow[0, 0] = 10.0 * n
    arrow = csr_array(arrow)
    assert count_fill(arrow, np.arange(n)) == n * (n + 1) // 2
    assert count_fill(arrow, np.arange(n)[::-1]) == 2 * n - 1


# -------------------------------------------------------------------------------------------------------- half norms


def test_half_norms_of_many_rows_in_any_form():
    matrix, rng = grid(20), np.random.default_rng(0)
    rows = random_array((33, 400), density=0.03, rng=rng, format="csr")
    rows = csr_array(np.vstack([rows.toarray(), np.zeros(400), np.ones(400), np.eye(400)[[399]], rows.toarray()[:2]]))
    factor = sparse_cholesky(matrix)
    expected = np.einsum("ij,ji->i", rows.toarray(), np.linalg.solve(matrix.toarray(), rows.toarray().T))
    norms = factor.half_norms(rows)
    np.testing.assert_allclose(norms, expected, rtol=1e-11)
    assert norms[33] == 0.0
    long = csr_array((rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64)), shape=rows.shape)
    np.testing.assert_array_equal(factor.half_norms(long), norms)
    backwards = csr_array((rows.data[::-1], rows.indices[::-1], np.r_[0, np.cumsum(np.diff(rows.indptr)[::-1])]))
    backwards = csr_array(backwards, shape=rows.shape)
    assert not backwards.has_sorted_indices
    np.testing.assert_allclose(factor.half_norms(backwards), norms[::-1], rtol=1e-12)


def test_a_row_does_not_depend_on_its_company():
    matrix, rng = grid(20), np.random.default_rng(0)
    rows = random_array((21, 400), density=0.03, rng=rng, format="csr")
    factor = sparse_cholesky(matrix)
    together = factor.half_norms(rows)
    alone = [factor.half_norms(rows[[i]])[0] for i in range(21)]
    np.testing.assert_array_equal(together, alone)
    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(factor.half_norms, [rows[:8], rows[8:9], rows[9:]]))
    np.testing.assert_array_equal(together, np.concatenate(parts))


def test_half_norms_of_repeated_entries_and_of_none():
    matrix = grid(3)
    factor = sparse_cholesky(matrix)
    twice = csr_array((np.ones(2), np.array([4, 4]), np.array([0, 2])), shape=(1, 9))
    assert factor.half_norms(twice)[0] == pytest.approx(4 * np.linalg.inv(matrix.toarray())[4, 4])
    assert factor.half_norms(csr_array((0, 9))).shape == (0,)
    np.testing.assert_array_equal(factor.half_norms(csr_array((2, 9))), 0.0)


def test_half_norms_where_an_entry_of_the_factor_cancels():
    """L[2, 1] is 0 by cancellation: a tree read from L would lead from 0 to 1 to 3, and never reach 2."""
    lower = np.array([[1.0, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 1]])
    dense = lower @ lower.T
    factor = sparse_cholesky(csr_array(dense), ordering="natural")
    np.testing.assert_array_equal(factor.order, np.arange(4))
    assert factor.lower.nnz == 8 < count_fill(csr_array(dense), np.arange(4))
    expected = np.diagonal(np.linalg.inv(dense))
    np.testing.assert_allclose(factor.half_norms(csr_array(np.eye(4))), expected, rtol=1e-12)


# ---------------------------------------------------------------------------------------------------- small and odd


@pytest.mark.parametrize("ordering", NAMES)
def test_no_rows_one_row_and_a_diagonal(ordering):
    nothing = sparse_cholesky(csr_array((0, 0)), ordering=ordering)
    assert (nothing.lower.nnz, nothing.log_determinant) == (0, 0.0)
    assert nothing.solve(np.empty((0, 2))).shape == (0, 2)
    assert nothing.solve(np.empty(0)).shape == (0,)
    np.testing.assert_array_equal(nothing.half_norms(csr_array((3, 0))), np.zeros(3))
    one = sparse_cholesky(csr_array(np.array([[4.0]])), ordering=ordering)
    assert (one.lower.nnz, one.fill_in, one.log_determinant) == (1, 1.0, np.log(4.0))
    np.testing.assert_array_equal(one.solve(np.array([2.0])), [0.5])
    np.testing.assert_array_equal(one.half_norms(csr_array(np.array([[2.0], [0.0]]))), [1.0, 0.0])
    several = sparse_cholesky(csr_array(np.diag([1.0, 2.0, 4.0])), ordering=ordering)
    assert (several.lower.nnz, several.fill_in) == (3, 1.0)
    np.testing.assert_array_equal(several.solve(np.ones(3)), [1.0, 0.5, 0.25])


def test_no_right_hand_sides():
    assert sparse_cholesky(grid(4)).solve(np.empty((16, 0))).shape == (16, 0)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_other_ways_to_store_the_same_matrix(index):
    matrix = grid(6)
    expected = sparse_cholesky(matrix)
    entries = matrix.tocoo()
    row, column, data = entries.row, entries.col, entries.data
    shuffle = np.random.default_rng(0).permutation(len(data))
    # Shuffled, every value in two halves, and explicit zeros in two corners.
    row = np.r_[row[shuffle], row, 0, 35].astype(index)
    column = np.r_[column[shuffle], column, 35, 0].astype(index)
    data = np.r_[data[shuffle], data, 0.0, 0.0] / 2
    sequence = np.argsort(row, kind="stable")
    pointers = np.searchsorted(row[sequence], np.arange(37)).astype(index)
    odd = csr_array((data[sequence], column[sequence], pointers), shape=(36, 36))
    assert not odd.has_sorted_indices
    before = odd.data.copy(), odd.indices.copy()
    for ordering in NAMES:
        factor = sparse_cholesky(odd, ordering=ordering)
        assert factor.log_determinant == pytest.approx(expected.log_determinant)
        assert count_fill(odd, factor.order) == factor.lower.nnz
    assert sparse_cholesky(odd).fill_in == expected.fill_in
    np.testing.assert_array_equal(odd.data, before[0])
    np.testing.assert_array_equal(odd.indices, before[1])


def test_it_can_be_pickled():
    factor = sparse_cholesky(grid(5))
    again = pickle.loads(pickle.dumps(factor))
    np.testing.assert_array_equal(again.solve(np.ones(25)), factor.solve(np.ones(25)))


def test_the_right_hand_side_is_not_changed():
    right = np.ones((25, 2))
    sparse_cholesky(grid(5), ordering="natural").solve(right)
    np.testing.assert_array_equal(right, 1.0)


# -------------------------------------------------------------------------------------------------------- refusals

INDEFINITE = {
    "negative": [[-1.0]],
    "zero": [[0.0]],
    "zero on the diagonal": [[0.0, 1.0], [1.0, 0.0]],
    "indefinite": [[1.0, 2.0], [2.0, 1.0]],
    "singular": [[1.0, 1.0], [1.0, 1.0]],
    "singular at a distance": [[2.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]],
    "indefinite, zero pivot": [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]],
    "singular to rounding": [[0.1 * 0.1, 0.03], [0.03, 0.09]],
    "last": np.diag([1.0] * 50 + [-1e-9]),
}


@pytest.mark.parametrize("ordering", NAMES)
@pytest.mark.parametrize("dense", INDEFINITE.values(), ids=INDEFINITE)
def test_what_is_not_positive_definite_is_refused(dense, ordering):
    with pytest.raises(NotPositiveDefiniteError, match=r"smallest is .*\. Use a larger noise, or a kernel"):
        sparse_cholesky(csr_array(np.array(dense)), ordering=ordering)


@pytest.mark.parametrize("ordering", NAMES)
def test_a_slightly_indefinite_matrix_is_refused_and_a_slightly_definite_one_is_not(ordering):
    matrix = random_spd(100, 0.03, 5, smallest=1e-6)
    assert sparse_cholesky(matrix, ordering=ordering).solve(np.ones(100)).shape == (100,)
    with pytest.raises(NotPositiveDefiniteError, match="the smallest is -"):
        sparse_cholesky(csr_array(matrix - 2e-6 * eye_array(100)), ordering=ordering)


def test_a_gram_matrix_with_a_duplicate_row_is_refused():
    points = np.random.default_rng(0).random((60, 1))
    points[7] = points[31]
    distance = np.abs(points - points.T)
    gram = csr_array(np.maximum(1 - 4 * distance, 0.0))
    with pytest.raises(NotPositiveDefiniteError):
        sparse_cholesky(gram)
    sparse_cholesky(csr_array(gram + 1e-6 * eye_array(60)))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(number):
    with pytest.raises(NotPositiveDefiniteError, match="NaN or infinity"):
        sparse_cholesky(csr_array(np.array([[1.0, number], [number, 1.0]])))


def test_other_arguments_are_refused():
    with pytest.raises(ValueError, match=r"ordering must be 'amd', .* got 'metis'"):
        sparse_cholesky(grid(3), ordering="metis")
    with pytest.raises(ValueError, match="got 'metis'"):
        ordering_permutation(grid(3), "metis")
    for wrong in (np.zeros(9, dtype=int), np.arange(8), np.arange(1, 10)):
        with pytest.raises(ValueError, match=r"permutation of 0, \.\.\., 8"):
            sparse_cholesky(grid(3), ordering=wrong)
        with pytest.raises(ValueError, match="permutation"):
            count_fill(grid(3), wrong)
    with pytest.raises(ValueError, match=r"square, got shape \(2, 3\)"):
        sparse_cholesky(csr_array((2, 3)))


# --------------------------------------------------------------------------------------------- a double of CHOLMOD


class CholmodNotPositiveDefiniteError(Exception):
    pass


def dense_factor(matrix, name):
    """What CHOLMOD would do, in an order of its own."""
    assert name == "natural"
    order = np.arange(matrix.shape[0])[::-1]
    try:
        return np.linalg.cholesky(matrix.toarray()[np.ix_(order, order)]), order
    except np.linalg.LinAlgError as error:
        raise CholmodNotPositiveDefiniteError from error


def cholesky_of_0_4(matrix, beta=0, mode="auto", ordering_method="default", use_long=None):
    assert type(matrix) is csc_matrix  # anything else makes it warn
    assert mode == "supernodal"  # else it is LDLᵀ, which need not be positive definite
    lower, order = dense_factor(matrix, ordering_method)
    return SimpleNamespace(P=lambda: order, L=lambda: csc_matrix(lower))


def cholesky_of_0_5(matrix, beta=0.0, *, lower=False, order="default", sym_kind=None, supernodal_mode=None):
    assert type(matrix) is csc_array
    assert lower
    factor, order = dense_factor(matrix, order)
    factor = csc_array(factor)
    factor.data.flags.writeable = False  # a view of CHOLMOD's memory
    return factor, order


@pytest.fixture(params=["0.4", "0.5"])
def cholmod(request, monkeypatch):
    double = ModuleType("sksparse.cholmod")
    double.CholmodNotPositiveDefiniteError = CholmodNotPositiveDefiniteError
    double.cholesky = cholesky_of_0_4 if request.param == "0.4" else cholesky_of_0_5
    if request.param == "0.5":
        double.cho_factor = None
    package = ModuleType("sksparse")
    package.cholmod = double
    monkeypatch.setitem(sys.modules, "sksparse", package)
    monkeypatch.setitem(sys.modules, "sksparse.cholmod", double)


@pytest.mark.usefixtures("cholmod")
@pytest.mark.parametrize("ordering", [*NAMES, "permutation"])
def test_cholmod_is_used_where_it_is_installed(ordering):
    matrix, rng = random_spd(40, 0.1, 0), np.random.default_rng(0)
    factor = sparse_cholesky(matrix, ordering=rng.permutation(40) if ordering == "permutation" else ordering)
    if ordering != "permutation":
        np.testing.assert_array_equal(factor.order, ordering_permutation(matrix, ordering)[::-1])
    dense, right = matrix.toarray(), rng.normal(size=(40, 2))
    np.testing.assert_allclose(factor.solve(right), np.linalg.solve(dense, right), rtol=1e-8, atol=1e-10)
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(dense)[1])
    np.testing.assert_allclose(factor.half_norms(csr_array(np.eye(40))), np.diagonal(np.linalg.inv(dense)), rtol=1e-9)
    np.testing.assert_array_equal(factor.lower.diagonal(), 1.0)


@pytest.mark.usefixtures("cholmod")
def test_cholmod_refuses_too():
    with pytest.raises(NotPositiveDefiniteError, match=r"CHOLMOD met one that is not positive.* Use a larger noise"):
        sparse_cholesky(csr_array(np.array([[1.0, 2.0], [2.0, 1.0]])))


@pytest.mark.usefixtures("cholmod")
def test_no_rows_do_not_reach_cholmod():
    assert sparse_cholesky(csr_array((0, 0))).lower.nnz == 0
