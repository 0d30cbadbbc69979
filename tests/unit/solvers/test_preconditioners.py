from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, diags_array, eye_array, kron, random_array

from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.conjugate_gradient import conjugate_gradient
from mercer.solvers.preconditioners import Incomplete, Jacobi, NystromPreconditioner
from tests.strategies import examples


def grid(side, scales=None):
    """A Laplacian on a grid, plus a little, its rows and columns scaled."""
    path = diags_array([-np.ones(side - 1), np.full(side, 2.0), -np.ones(side - 1)], offsets=[-1, 0, 1])
    eye = eye_array(side)
    scale = diags_array(np.ones(side**2) if scales is None else scales)
    return csr_array(scale @ (kron(path, eye) + kron(eye, path) + 0.01 * eye_array(side**2)) @ scale)


def random_spd(n, density, seed, smallest=1e-3):
    rng = np.random.default_rng(seed)
    half = random_array((n, n), density=density, rng=rng, data_sampler=lambda size: rng.normal(size=size))
    matrix = (half + half.T).toarray()
    matrix[np.diag_indices(n)] += smallest - np.min(np.linalg.eigvalsh(matrix), initial=0.0)
    return csr_array(matrix)


def dense_incomplete(matrix):
    """IC(0) as textbooks have it: Cholesky that skips what is zero in the matrix."""
    lower, kept = np.tril(matrix), np.tril(matrix) != 0
    n = len(matrix)
    for k in range(n):
        lower[k, k] = np.sqrt(lower[k, k])
        lower[k + 1 :, k] /= lower[k, k]
        for j in range(k + 1, n):
            lower[j:, j] -= np.where(kept[j:, j], lower[j:, k] * lower[j, k], 0.0)
    return lower


def operator(precondition, n):
    return precondition(np.eye(n))


def iterations(matrix, precondition, right):
    solution = conjugate_gradient(lambda v: matrix @ v, right, precondition=precondition, tol=1e-10, max_iter=3000)
    assert solution.converged
    np.testing.assert_allclose(solution.value, np.linalg.solve(matrix.toarray(), right), rtol=1e-5, atol=1e-6)
    return solution.iterations


def test_jacobi_divides_by_the_diagonal():
    right = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(Jacobi(np.array([1.0, 2.0, 4.0]))(right), right / [[1.0], [2.0], [4.0]])


@pytest.mark.parametrize("entry", [0.0, -1.0, np.nan, np.inf])
def test_a_diagonal_that_is_not_positive_is_refused(entry):
    with pytest.raises(NotPositiveDefiniteError, match=r"stands on its diagonal\. Use a larger noise"):
        Jacobi(np.array([1.0, entry]))
    with pytest.raises(NotPositiveDefiniteError, match="stands on its diagonal"):
        Incomplete(csr_array(np.diag([1.0, entry])))


def test_what_is_not_finite_is_refused():
    with pytest.raises(NotPositiveDefiniteError, match="NaN or infinity"):
        Incomplete(csr_array(np.array([[1.0, np.nan], [np.nan, 1.0]])))


def test_it_is_the_textbooks_incomplete_factor():
    matrix = grid(6)
    incomplete = Incomplete(matrix, drop_tol=0.0)
    assert incomplete.shift == 0.0
    expected = dense_incomplete(matrix.toarray())
    np.testing.assert_allclose(incomplete.lower.toarray() * np.sqrt(incomplete.pivots), expected, atol=1e-13)
    assert incomplete.lower.nnz == (matrix.nnz + 36) // 2


def test_without_fill_it_is_the_inverse():
    path = csr_array(diags_array([-np.ones(9), np.full(10, 2.0), -np.ones(9)], offsets=[-1, 0, 1]))
    np.testing.assert_allclose(operator(Incomplete(path), 10), np.linalg.inv(path.toarray()), rtol=1e-12)


@given(st.integers(1, 30), st.floats(0.0, 0.6), st.integers(0, 10**6), st.sampled_from([0.0, 1e-3, 0.3]))
@settings(max_examples=examples(60), deadline=None)
def test_the_operator_is_symmetric_positive_definite(n, density, seed, drop_tol):
    incomplete = Incomplete(random_spd(n, density, seed), drop_tol=drop_tol)
    inverse = operator(incomplete, n)
    np.testing.assert_allclose(inverse, inverse.T, rtol=1e-7, atol=1e-9 * np.max(np.abs(inverse)))
    assert np.all(incomplete.pivots > 0)
    # P⁻¹ is the inverse of LDLᵀ, itself positive definite by its pivots
    lower = incomplete.lower.toarray()
    product = (lower * incomplete.pivots) @ lower.T @ inverse
    np.testing.assert_allclose(product, np.eye(n), atol=1e-6)


def kershaw():
    """Positive definite, and yet its incomplete factorisation meets a negative pivot."""
    return csr_array(np.array([[3.0, -2.0, 0, 2.0], [-2.0, 3.0, -2.0, 0], [0, -2.0, 3.0, -2.0], [2.0, 0, -2.0, 3.0]]))


def test_a_breakdown_is_met_by_a_shift():
    matrix = kershaw()
    assert np.linalg.eigvalsh(matrix.toarray())[0] > 0
    incomplete = Incomplete(matrix)
    assert incomplete.shift >= 1e-3
    assert np.log2(incomplete.shift / 1e-3) % 1 == pytest.approx(0.0, abs=1e-9)
    expected = dense_incomplete(matrix.toarray() + incomplete.shift * 3.0 * np.eye(4))
    np.testing.assert_allclose(incomplete.lower.toarray() * np.sqrt(incomplete.pivots), expected, rtol=1e-12)
    iterations(matrix, incomplete, np.arange(4.0)[:, np.newaxis])


def test_small_entries_are_left_out_relative_to_the_diagonal():
    dense = np.array([[100.0, 0.5, 2.0], [0.5, 1.0, 0.3], [2.0, 0.3, 1.0]])
    # Sizes relative to the diagonal: 0.05, 0.2, 0.3
    assert [Incomplete(csr_array(dense), drop_tol=tol).lower.nnz for tol in (0.0, 0.1, 0.25, 0.5)] == [6, 5, 4, 3]


def test_conjugate_gradients_reach_the_dense_solution_in_fewer_steps():
    rng = np.random.default_rng(0)
    matrix = grid(20, scales=np.exp(rng.normal(size=400)))
    right = rng.normal(size=(400, 3))
    plain = iterations(matrix, lambda v: v.copy(), right)
    jacobi = iterations(matrix, Jacobi(matrix.diagonal()), right)
    incomplete = iterations(matrix, Incomplete(matrix), right)
    assert incomplete < 0.6 * jacobi < jacobi < 0.6 * plain


@pytest.mark.parametrize("drop_tol", [0.0, 0.05])
def test_it_helps_with_a_compact_kernel(drop_tol):
    rng = np.random.default_rng(0)
    points = rng.random((500, 2))
    distance = np.linalg.norm(points[:, np.newaxis] - points, axis=2) / 0.15
    gram = np.maximum(1 - distance, 0.0) ** 4 * (4 * distance + 1) + 1e-3 * np.eye(500)
    matrix, right = csr_array(gram), rng.normal(size=(500, 2))
    jacobi = iterations(matrix, Jacobi(matrix.diagonal()), right)
    assert iterations(matrix, Incomplete(matrix, drop_tol=drop_tol), right) < jacobi


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_storage_does_not_matter(index):
    matrix = grid(5)
    expected = operator(Incomplete(matrix), 25)
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)])
    odd = csr_array((matrix.data[order], matrix.indices[order].astype(index), matrix.indptr.astype(index)))
    assert not odd.has_sorted_indices
    np.testing.assert_array_equal(operator(Incomplete(odd), 25), expected)


def test_the_right_hand_side_is_not_changed_and_may_lie_in_any_way():
    incomplete, right = Incomplete(grid(5)), np.random.default_rng(0).normal(size=(25, 4))
    before = right.copy()
    expected = incomplete(right)
    np.testing.assert_array_equal(right, before)
    np.testing.assert_array_equal(incomplete(np.asfortranarray(right)), expected)
    np.testing.assert_array_equal(incomplete(right[:, ::2]), expected[:, ::2])


def test_no_rows_and_one():
    assert Incomplete(csr_array((0, 0)))(np.empty((0, 2))).shape == (0, 2)
    np.testing.assert_array_equal(Incomplete(csr_array(np.array([[4.0]])))(np.array([[2.0]])), [[0.5]])


def test_entries_take_twelve_bytes_whatever_the_matrix_has():
    matrix = grid(5)
    wide = csr_array((matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)), shape=matrix.shape)
    lower = Incomplete(wide).lower
    assert (lower.indices.dtype, lower.indptr.dtype) == (np.int32, np.int32)


# ------------------------------------------------------------------------------------------- low rank plus noise


def build(n=30, r=5, noise=0.3, weighted=True, seed=0):
    rng = np.random.default_rng(seed)
    v, lower = rng.normal(size=(n, r)), np.tril(rng.uniform(0.5, 1.0, size=(r, r))) + np.eye(r)
    k = v @ lower.T
    weights = rng.uniform(0.2, 3.0, size=n) if weighted else np.ones(n)
    gram = v.T @ (weights[:, np.newaxis] * v)
    preconditioner = NystromPreconditioner(
        times=lambda s: k @ s,
        transposed_times=lambda b: k.T @ b,
        lower=lower,
        gram=gram,
        noise=noise,
        weights=weights,
    )
    return preconditioner, v @ v.T + np.diag(noise / weights)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("noise", [1e-4, 0.3, 1e3])
@pytest.mark.parametrize("r", [1, 5, 30])
def test_it_is_the_inverse_of_low_rank_plus_noise(weighted, noise, r):
    preconditioner, matrix = build(noise=noise, weighted=weighted, r=r)
    right = np.random.default_rng(1).normal(size=(30, 3))
    expected = np.linalg.solve(matrix, right)
    # Woodbury subtracts two terms of size 1/noise.
    np.testing.assert_allclose(preconditioner(right), expected, rtol=1e-8, atol=1e-10 / noise)


def test_the_low_rank_inverse_is_symmetric_and_positive_definite():
    preconditioner, _ = build()
    inverse = preconditioner(np.eye(30))
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-12)
    assert np.linalg.eigvalsh((inverse + inverse.T) / 2)[0] > 0


def test_the_low_rank_inverse_does_not_change_the_right_hand_side():
    preconditioner, _ = build()
    right = np.ones((30, 2))
    preconditioner(right)
    np.testing.assert_array_equal(right, 1.0)


def test_the_low_rank_factor_is_applied_once_each_way():
    counts = {"features": 0, "transposed": 0}
    v = np.random.default_rng(0).normal(size=(30, 5))

    def features(vectors):
        counts["features"] += 1
        return v @ vectors

    def transposed(vectors):
        counts["transposed"] += 1
        return v.T @ vectors

    preconditioner = NystromPreconditioner(
        times=features,
        transposed_times=transposed,
        lower=np.eye(5),
        gram=v.T @ v,
        noise=0.1,
        weights=np.ones(30),
    )
    assert counts == {"features": 0, "transposed": 0}
    preconditioner(np.ones((30, 4)))
    assert counts == {"features": 1, "transposed": 1}


def test_noise_below_the_rounding_of_the_coarse_matrix_is_no_error():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(50, 3))
    gram = 1e8 * half @ half.T  # of rank 3: its other eigenvalues are rounding, of either sign
    preconditioner = NystromPreconditioner(
        times=lambda s: s, transposed_times=lambda b: b, lower=np.eye(50), gram=gram, noise=1e-20, weights=np.ones(50)
    )
    assert np.all(np.isfinite(preconditioner(np.ones((50, 1)))))
    broken = replace(preconditioner, gram=np.full((50, 50), np.nan))
    with pytest.raises(NotPositiveDefiniteError, match="coarse matrix"):
        broken(np.ones((50, 1)))
