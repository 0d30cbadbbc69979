import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import diags_array, eye_array, kron

from mercer.exceptions import NotPositiveDefiniteError
from mercer.solvers.lanczos import extreme_eigenvalues, stochastic_log_determinant
from tests.strategies import examples


def symmetric(eigenvalues, seed=0):
    n = len(eigenvalues)
    vectors, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))
    matrix = (vectors * eigenvalues) @ vectors.T
    return (matrix + matrix.T) / 2


def generator(seed=0):
    return np.random.default_rng(seed)


SPECTRA = {
    "spread": np.linspace(0.5, 10.0, 200),
    "indefinite": np.linspace(-3.0, 10.0, 200),
    "negative": -np.linspace(1.0, 5.0, 100),
    "clustered": np.r_[0.1, 0.1, 0.1, np.linspace(1.0, 2.0, 150)],
    "far above": np.r_[np.linspace(0.1, 1.0, 100), 1e4],
    "almost singular": np.r_[1e-9, np.linspace(1.0, 2.0, 80)],
}


@pytest.mark.parametrize("eigenvalues", SPECTRA.values(), ids=SPECTRA)
def test_the_smallest_eigenvalue_lies_between_bound_and_value(eigenvalues):
    matrix = symmetric(eigenvalues)
    truth = np.linalg.eigvalsh(matrix)[0]
    found = extreme_eigenvalues(lambda x: matrix @ x, len(matrix), tol=1e-4, max_iter=400, rng=generator(), scale=0.1)
    slack = 1e-13 * np.max(np.abs(eigenvalues))
    assert found.converged
    assert found.bound - slack <= truth <= found.smallest + slack
    assert found.smallest - found.bound <= 1.01e-4 * max(abs(found.smallest), 0.1) + 10 * slack
    assert found.iterations <= 400


@given(st.integers(1, 40), st.integers(0, 10**6))
@settings(max_examples=examples(50), deadline=None)
def test_any_symmetric_matrix(n, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n, n))
    matrix = matrix + matrix.T
    truth = np.linalg.eigvalsh(matrix)
    both = extreme_eigenvalues(lambda x: matrix @ x, n, tol=1e-6, max_iter=4 * n + 10, rng=rng, scale=truth[-1])
    assert both.smallest == pytest.approx(truth[0], abs=1e-5 * np.max(np.abs(truth)))
    assert both.bound <= truth[0] + 1e-12 * np.max(np.abs(truth))
    assert truth[-1] + 1e-12 * np.max(np.abs(truth)) >= both.largest


def test_both_ends():
    matrix = symmetric(np.geomspace(0.1, 100.0, 150))
    both = extreme_eigenvalues(lambda x: matrix @ x, 150, tol=1e-8, max_iter=1000, rng=generator())
    assert both.converged
    assert both.largest / both.smallest == pytest.approx(1e3, rel=1e-6)
    assert both.largest <= 100.0 * (1 + 1e-13)


def test_many_more_steps_than_orthogonality_lasts():
    """The largest eigenvalue converges at once and comes back as copies; the smallest is found all the same."""
    path = diags_array([-np.ones(15), np.full(16, 2.0), -np.ones(15)], offsets=[-1, 0, 1])
    matrix = (kron(path, eye_array(16)) + kron(eye_array(16), path)).tocsr()
    matrix[0, 0] += 1e3
    truth = np.linalg.eigvalsh(matrix.toarray())
    found = extreme_eigenvalues(lambda x: matrix @ x, 256, tol=1e-8, max_iter=1000, rng=generator())
    assert found.converged
    assert found.smallest == pytest.approx(truth[0], rel=1e-9)
    assert found.bound <= truth[0]


def test_too_few_steps_are_reported_with_what_is_known():
    matrix = symmetric(np.linspace(0.01, 10.0, 300))
    found = extreme_eigenvalues(lambda x: matrix @ x, 300, tol=1e-10, max_iter=13, rng=generator())
    assert not found.converged
    assert found.iterations == 13
    assert found.bound < 0.01 < found.smallest


def test_a_scale_allows_an_earlier_end():
    matrix = symmetric(np.linspace(1e-6, 10.0, 300))
    run = lambda scale: extreme_eigenvalues(  # noqa: E731
        lambda x: matrix @ x, 300, tol=0.01, max_iter=2000, rng=generator(), scale=scale
    )
    assert run(1.0).iterations < run(0.0).iterations
    assert run(1.0).converged


@pytest.mark.parametrize("number", [3.0, 0.0, -2.0])
@pytest.mark.parametrize("n", [1, 7])
def test_a_multiple_of_the_identity_is_exhausted_at_once(number, n):
    both = extreme_eigenvalues(lambda x: number * x, n, tol=1e-12, max_iter=30, rng=generator())
    assert both.converged
    assert both.iterations == 1
    assert both.smallest == pytest.approx(number, rel=1e-14)
    assert both.largest == pytest.approx(number, rel=1e-14)


def test_products_that_are_not_finite_are_reported():
    both = extreme_eigenvalues(lambda x: np.full_like(x, np.nan), 5, tol=1e-6, max_iter=30, rng=generator())
    assert not both.converged
    assert np.isnan(both.smallest)
    assert both.bound == -np.inf
    assert np.isnan(both.largest)


@pytest.mark.parametrize(("n", "max_iter"), [(0, 10), (5, 0)])
def test_nothing_to_do_is_refused(n, max_iter):
    with pytest.raises(ValueError, match="needs a row and a step"):
        extreme_eigenvalues(lambda x: x, n, tol=0.1, max_iter=max_iter, rng=generator())


def test_the_same_seed_gives_the_same_answer_with_either_kind_of_generator():
    matrix = symmetric(np.linspace(0.5, 3.0, 50))
    for make in (np.random.default_rng, np.random.RandomState):
        runs = [extreme_eigenvalues(lambda x: matrix @ x, 50, tol=1e-6, max_iter=99, rng=make(4)) for _ in range(2)]
        assert runs[0] == runs[1]


# --------------------------------------------------------------------------------------------------- log-determinant


@pytest.mark.parametrize("seed", range(4))
def test_the_log_determinant_lies_within_four_standard_errors(seed):
    matrix = symmetric(np.geomspace(0.1, 10.0, 300), seed)
    estimate, error = stochastic_log_determinant(
        lambda x: matrix @ x, 300, n_probes=20, n_steps=40, rng=generator(seed)
    )
    truth = np.linalg.slogdet(matrix)[1]
    assert 0 < error < 0.1 * 300
    assert abs(estimate - truth) < 4 * error


def test_the_standard_error_is_that_of_repeated_estimates():
    matrix, rng = symmetric(np.geomspace(0.1, 10.0, 100)), generator()
    runs = [stochastic_log_determinant(lambda x: matrix @ x, 100, n_probes=10, n_steps=30, rng=rng) for _ in range(60)]
    estimates, errors = np.transpose(runs)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(np.std(estimates), rel=0.35)


def test_all_probes_share_each_product():
    shapes = []

    def apply(x):
        shapes.append(x.shape)
        return np.linspace(1.0, 2.0, 50)[:, np.newaxis] * x

    stochastic_log_determinant(apply, 50, n_probes=7, n_steps=9, rng=generator())
    assert shapes == [(50, 7)] * 9


def test_a_diagonal_matrix_has_no_variance_and_few_eigenvalues_end_early():
    diagonal = np.repeat([1.0, 2.0, 5.0], 10)[:, np.newaxis]
    calls = []
    estimate, error = stochastic_log_determinant(
        lambda x: calls.append(1) or diagonal * x, 30, n_probes=5, n_steps=25, rng=generator()
    )
    assert len(calls) == 3
    assert estimate == pytest.approx(10 * np.log(10.0), rel=1e-12)
    assert error == pytest.approx(0.0, abs=1e-12)


def test_columns_may_end_at_different_steps():
    """For ±(1, 1) the space is exhausted after one step, for ±(1, -1) as well, with another eigenvalue."""
    matrix = np.array([[2.0, 1.0], [1.0, 2.0]])
    estimate, _ = stochastic_log_determinant(lambda x: matrix @ x, 2, n_probes=4000, n_steps=4, rng=generator())
    assert estimate == pytest.approx(np.log(3.0), abs=0.1)


def test_one_probe_tells_no_error():
    assert stochastic_log_determinant(lambda x: 2 * x, 5, n_probes=1, n_steps=3, rng=generator())[1] == np.inf


def test_an_indefinite_matrix_has_no_log_determinant():
    matrix = symmetric(np.linspace(-1.0, 3.0, 30))
    with pytest.raises(NotPositiveDefiniteError, match="-1 is a Ritz value"):
        stochastic_log_determinant(lambda x: matrix @ x, 30, n_probes=3, n_steps=30, rng=generator())
