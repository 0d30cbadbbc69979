from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import cholesky, solve_triangular
from sklearn import config_context

from mercer.engine import ArrayRows, ArrayTable, Features, Threads
from mercer.kernels import Gaussian, Linear, Matern, Polynomial
from mercer.methods.reduced_rank import _ResidualPass
from tests.doubles import GuardedRows

M, D = 6, 2
KERNELS = [Gaussian(), Matern(nu=0.5), Gaussian() + Linear(), Polynomial(3)]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: " ".join(repr(kernel).split()))
every_shape = pytest.mark.parametrize("full", [False, True])


class Problem:
    def __init__(self, kernel=None, n=150, q=9, seed=0):
        rng = np.random.default_rng(seed)
        self.kernel = Gaussian() if kernel is None else kernel
        self.rows, self.queries = rng.normal(size=(n, D)), rng.normal(size=(q, D))
        self.points = 2.0 * rng.normal(size=(M, D))
        self.precisions = rng.uniform(0.0, 3.0, size=n)
        self.lower = np.asfortranarray(cholesky(self.kernel(self.points), lower=True))

    def products(self, rows=None, *, full, n_jobs=1):
        features = Features(self.kernel, self.points, self.lower)
        rows = ArrayRows(self.rows) if rows is None else rows
        table = ArrayTable(rows, weights=self.precisions)
        sums = Threads(n_jobs).reduce(_ResidualPass(features, self.queries, full), table)
        return SimpleNamespace(projections=sums[:M], sums=sums[M], squares=sums[M + 1 :] if full else sums[M + 1])

    def dense(self):
        """V (n, m) and E (n, q) from their definitions."""
        V = solve_triangular(self.lower, self.kernel(self.points, self.rows), lower=True).T
        v = solve_triangular(self.lower, self.kernel(self.points, self.queries), lower=True).T
        return V, self.kernel(self.rows, self.queries) - V @ v.T

    def tolerance(self):
        """Rounding of VᵀΛ⁻¹E: of the kernel values, magnified by L⁻¹ in V and v, and summed over the rows."""
        largest = np.max(np.abs(self.kernel(np.vstack([self.rows, self.queries, self.points]))))
        magnified = max(1.0, np.linalg.norm(np.linalg.inv(self.lower), 2)) ** 2
        return 64 * np.finfo(float).eps * len(self.rows) * magnified * max(1.0, largest) ** 2


@every_kernel
@every_shape
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_products_are_those_of_dense_matrices(kernel, full, n_jobs):
    problem = Problem(kernel)
    with config_context(working_memory=0.02):
        products = problem.products(full=full, n_jobs=n_jobs)
    V, E = problem.dense()
    scaled = problem.precisions[:, np.newaxis] * E
    squares = E.T @ scaled
    bound = {"rtol": 0, "atol": problem.tolerance()}
    np.testing.assert_allclose(products.projections, V.T @ scaled, **bound)
    np.testing.assert_allclose(products.sums, np.sum(scaled, axis=0), **bound)
    np.testing.assert_allclose(products.squares, squares if full else np.diagonal(squares), **bound)


def test_the_diagonal_is_that_of_the_full_matrix():
    problem = Problem()
    np.testing.assert_allclose(
        problem.products(full=False).squares, np.diagonal(problem.products(full=True).squares), rtol=1e-12
    )


@every_shape
def test_nothing_is_left_of_queries_that_the_basis_spans(full):
    problem = Problem()
    problem.queries = problem.points[[3, 0]]
    products = problem.products(full=full)
    for values in (products.projections, products.sums, products.squares):
        np.testing.assert_allclose(values, 0.0, atol=problem.tolerance())


@every_shape
def test_rows_of_precision_zero_do_not_count(full):
    problem, fewer = Problem(), Problem()
    problem.precisions[::2] = 0.0
    fewer.rows, fewer.precisions = fewer.rows[1::2], fewer.precisions[1::2]
    some, expected = problem.products(full=full), fewer.products(full=full)
    for name in ("projections", "sums", "squares"):
        np.testing.assert_allclose(getattr(some, name), getattr(expected, name), rtol=1e-11, atol=1e-12)


@every_shape
@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("q", [1, 3])
def test_shapes_of_few_rows_and_queries(full, n, q):
    products = Problem(n=n, q=q).products(full=full)
    assert products.projections.shape == (M, q)
    assert products.sums.shape == (q,)
    assert products.squares.shape == ((q, q) if full else (q,))
    if n == 0:
        assert not np.any(products.projections)
        assert not np.any(products.sums)
        assert not np.any(products.squares)


@every_shape
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_row_is_read_once_within_the_working_memory(full, n_jobs):
    problem, budget = Problem(n=3000), 1 << 17
    rows = GuardedRows(problem.rows)
    with config_context(working_memory=budget / (1 << 20)):
        problem.products(rows, full=full, n_jobs=n_jobs)
    assert rows.rows_read == 3000
    assert rows.largest_read * (M + 2 * 9) * 8 * n_jobs <= budget
