import numpy as np
import pytest

from mercer.solvers.preconditioners import NystromPreconditioner


def build(n=30, r=5, noise=0.3, weighted=True, seed=0):
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(n, r))
    weights = rng.uniform(0.2, 3.0, size=n) if weighted else np.ones(n)
    preconditioner = NystromPreconditioner(
        lambda s: v @ s, lambda b: v.T @ b, v.T @ (weights[:, np.newaxis] * v), noise, weights
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


def test_it_is_symmetric_and_positive_definite():
    preconditioner, _ = build()
    inverse = preconditioner(np.eye(30))
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-12)
    assert np.linalg.eigvalsh((inverse + inverse.T) / 2)[0] > 0


def test_the_right_hand_side_is_not_changed():
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

    preconditioner = NystromPreconditioner(features, transposed, v.T @ v, 0.1, np.ones(30))
    assert counts == {"features": 0, "transposed": 0}
    preconditioner(np.ones((30, 4)))
    assert counts == {"features": 1, "transposed": 1}
