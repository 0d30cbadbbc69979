import numpy as np
import pytest
from scipy.linalg import cholesky
from sklearn import config_context

from mercer.engine import (
    ArrayRows,
    ArrayTable,
    Evaluation,
    Features,
    Threads,
    column_squares,
    extend_factor,
    features_times,
    kernel_diagonal,
    kernel_matrix,
    kernel_times,
    squared_projections,
    transposed_times,
)
from mercer.kernels import Gaussian, Linear, Matern, Polynomial
from tests.doubles import GuardedRows

KERNELS = [Gaussian(), Matern(nu=0.5), Polynomial(2), Gaussian() + Linear()]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: " ".join(repr(kernel).split()))
# Fewer points than a chunk, exactly one chunk, and a last chunk that is narrower than the others.
every_width = pytest.mark.parametrize("m", [1, 5, 1024, 1100])
every_executor = pytest.mark.parametrize("n_jobs", [1, 3])


def draw(n=150, m=5, p=2, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)).astype(dtype), rng.normal(size=(m, 3)), rng.normal(size=(m, p))


@every_kernel
@every_width
@every_executor
def test_kernel_times(kernel, m, n_jobs):
    table, points, vectors = draw(m=m)
    with config_context(working_memory=1):
        result = kernel_times(ArrayRows(table), kernel, points, vectors, executor=Threads(n_jobs))
    np.testing.assert_allclose(result, kernel(table, points) @ vectors, rtol=1e-10, atol=1e-10 * np.sqrt(m))


@every_width
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kernel_times_in_float32(m, dtype):
    table, points, vectors = draw(m=m, dtype=dtype)
    result = Threads(2).map(Evaluation(Gaussian(), points, vectors, np.float32), ArrayTable(ArrayRows(table)))
    assert result.dtype == np.float64
    expected = Gaussian()(table.astype(np.float64), points)
    bound = 1e-5 * (np.abs(expected) @ np.abs(vectors))  # a few eps of float32 of the sum of absolute values
    assert np.all(np.abs(result - expected @ vectors) <= bound)


@every_kernel
@every_width
@every_executor
def test_transposed_times(kernel, m, n_jobs):
    table, points, _ = draw(m=m)
    vectors = np.random.default_rng(1).normal(size=(150, 2))
    with config_context(working_memory=1):
        result = transposed_times(ArrayRows(table), kernel, points, vectors, executor=Threads(n_jobs))
    np.testing.assert_allclose(result, kernel(table, points).T @ vectors, rtol=1e-9, atol=1e-9)


@every_kernel
@every_executor
@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("p", [1, 2])
def test_features_times(kernel, n_jobs, whitened, p):
    table, points, vectors = draw(p=p)
    lower = np.asfortranarray(cholesky(kernel(points) + np.eye(5), lower=True)) if whitened else None
    phi = kernel(table, points)
    if lower is not None:
        phi = np.linalg.solve(lower, phi.T).T
    with config_context(working_memory=0.005):
        result = features_times(ArrayRows(table), Features(kernel, points, lower), vectors, executor=Threads(n_jobs))
    np.testing.assert_allclose(result, phi @ vectors, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_features_times_of_float32_rows_and_features(dtype):
    table, points, vectors = draw(dtype=np.float32)
    features = Features(Gaussian(), points, dtype=dtype)
    result = features_times(ArrayRows(table), features, vectors, executor=Threads(2))
    assert result.dtype == np.float64
    expected = Gaussian()(table.astype(np.float64), points)
    bound = (1e-5 if dtype == np.float32 else 1e-13) * (np.abs(expected) @ np.abs(vectors))
    assert np.all(np.abs(result - expected @ vectors) <= bound)


@every_kernel
@every_executor
def test_kernel_matrix(kernel, n_jobs):
    table, points, _ = draw(m=7)
    with config_context(working_memory=0.001):
        result = kernel_matrix(ArrayRows(table), kernel, points, executor=Threads(n_jobs))
    assert result.flags.c_contiguous
    np.testing.assert_allclose(result, kernel(table, points), rtol=1e-12, atol=1e-12)


def test_the_kernel_matrix_of_float32_rows_is_of_double_precision():
    table, points, _ = draw(dtype=np.float32)
    result = kernel_matrix(ArrayRows(table), Gaussian(), points, executor=Threads(1))
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, Gaussian()(table.astype(np.float64), points), rtol=1e-12)


@every_kernel
@every_executor
def test_kernel_diagonal(kernel, n_jobs):
    table, _, _ = draw()
    with config_context(working_memory=0.001):
        result = kernel_diagonal(ArrayRows(table), kernel, executor=Threads(n_jobs))
    np.testing.assert_allclose(result, np.diagonal(kernel(table)), rtol=1e-11)


def test_no_rows():
    table, points, vectors = draw(n=0)
    rows, executor = ArrayRows(table), Threads(2)
    assert kernel_times(rows, Gaussian(), points, vectors, executor=executor).shape == (0, 2)
    assert features_times(rows, Features(Gaussian(), points), vectors, executor=executor).shape == (0, 2)
    assert kernel_matrix(rows, Gaussian(), points, executor=executor).shape == (0, 5)
    assert kernel_diagonal(rows, Gaussian(), executor=executor).shape == (0,)
    nothing = transposed_times(rows, Gaussian(), points, np.empty((0, 2)), executor=executor)
    np.testing.assert_array_equal(nothing, np.zeros((5, 2)))
    nothing = column_squares(rows, Gaussian(), points, vectors, executor=executor)
    np.testing.assert_array_equal(nothing, np.zeros(2))


PASSES = {
    "kernel_times": lambda rows, kernel, points, vectors, executor: kernel_times(
        rows, kernel, points, vectors, executor=executor
    ),
    "transposed_times": lambda rows, kernel, points, _vectors, executor: transposed_times(
        rows, kernel, points, np.ones((rows.n_rows, 2)), executor=executor
    ),
    "features_times": lambda rows, kernel, points, vectors, executor: features_times(
        rows, Features(kernel, points), vectors, executor=executor
    ),
    "column_squares": lambda rows, kernel, points, vectors, executor: column_squares(
        rows, kernel, points, vectors, executor=executor
    ),
}


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_one_pass_reads_every_row_once_within_the_working_memory(name, n_jobs):
    table, points, vectors = draw(n=2000, m=60)
    rows, budget = GuardedRows(table), 1 << 17
    with config_context(working_memory=budget / (1 << 20)):
        PASSES[name](rows, Gaussian(), points, vectors, Threads(n_jobs))
    assert rows.rows_read == 2000
    assert rows.largest_read * 60 * 8 * n_jobs <= budget


@pytest.mark.parametrize("name", PASSES)
def test_many_points_do_not_shrink_tiles_to_nothing(name):
    table, points, vectors = draw(n=300, m=3000)
    rows = GuardedRows(table)
    PASSES[name](rows, Gaussian(), points, vectors, Threads(1))
    assert rows.largest_read >= 16


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_of_the_rows_surfaces(n_jobs):
    table, points, vectors = draw()
    table[77, 0] = np.inf
    with config_context(working_memory=0.001), pytest.raises(ValueError, match="NaN or infinity"):
        kernel_times(ArrayRows(table), Gaussian(), points, vectors, executor=Threads(n_jobs))


# ------------------------------------------------------------------------------------------ products with a matrix


@pytest.fixture
def projected():
    rng = np.random.default_rng(3)
    return rng.normal(size=(400, 3)), rng.normal(size=(9, 3)), rng.normal(size=(9, 5))


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_squares_of_projections_by_row_and_by_column(projected, n_jobs):
    table, points, matrix = projected
    kernel, weights = Gaussian(1.5), np.random.default_rng(0).uniform(size=400)
    squares = (kernel(table, points) @ matrix) ** 2
    rows, executor = GuardedRows(table), Threads(n_jobs)
    with config_context(working_memory=0.02):
        by_row = squared_projections(rows, kernel, points, matrix, executor=executor)
        plain = column_squares(rows, kernel, points, matrix, executor=executor)
        weighted = column_squares(rows, kernel, points, matrix, weights, executor=executor)
    assert rows.largest_read < 200
    np.testing.assert_allclose(by_row, np.sum(squares, axis=1), rtol=1e-12)
    np.testing.assert_allclose(plain, np.sum(squares, axis=0), rtol=1e-12)
    np.testing.assert_allclose(weighted, weights @ squares, rtol=1e-12)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_a_factor_grows_to_that_of_all_points(projected, n_jobs):
    table, points, _ = projected
    kernel, executor = Gaussian(1.5), Threads(n_jobs)
    lower = np.linalg.cholesky(kernel(points))
    factor = np.full((400, 9), np.nan)
    for start, stop in ((0, 4), (4, 9)):
        inverse = np.linalg.inv(lower[start:stop, start:stop])
        extend_factor(
            GuardedRows(table),
            kernel,
            points[start:stop],
            lower[start:stop, :start],
            inverse,
            factor,
            executor=executor,
        )
        expected = kernel(table, points) @ np.linalg.inv(lower).T
        np.testing.assert_allclose(factor[:, :stop], expected[:, :stop], rtol=0, atol=1e-10)
