"""The sparse kernel matrix and its products against the kernel's own dense matrix."""

import pickle

import numpy as np
import pytest
from sklearn import config_context

from mercer.engine import ArrayRows, SparseKernel, Threads, memory, neighbour_distance, sparse_kernel
from mercer.engine.memory import available_memory
from mercer.kernels import CompactGaussian, Wendland

KERNELS = [
    Wendland(0.3, amplitude=2.5),
    Wendland([0.2, 0.4, 0.8], smoothness=0),
    Wendland(0.4, smoothness=2, dimension=1),
    CompactGaussian(0.1),
    CompactGaussian([0.3, 0.5, 0.2], cutoff=0.4, exponent=2.5, amplitude=0.3),
]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=str)
each_n_jobs = pytest.mark.parametrize("n_jobs", [1, 3])


def draw(n=200, d=3, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, d))


def dense(gram):
    return gram.plus_diagonal(np.zeros(gram.n_points)).toarray()


def make(kernel, points, n_jobs=1, dtype=np.float64):
    """The sparse kernel, its matrix, and the points in their places."""
    sparse = SparseKernel(kernel, points, dtype)
    return sparse, sparse.gram(executor=Threads(n_jobs)), points[sparse.order]


# --------------------------------------------------------------------------------------------------- the matrix


@each_kernel
@each_n_jobs
def test_the_matrix_is_the_kernels(kernel, n_jobs, monkeypatch):
    monkeypatch.setattr(sparse_kernel, "_CHUNK", 16)  # several parts
    sparse, gram, placed = make(kernel, draw(), n_jobs)
    expected = kernel(placed)
    np.testing.assert_allclose(dense(gram), expected, rtol=0, atol=1e-12 * kernel.amplitude)
    np.testing.assert_array_equal(np.sort(sparse.order), np.arange(200))
    assert np.count_nonzero(expected) <= gram.nnz < 0.5 * 200**2
    assert gram.n_points == 200
    assert gram.values.dtype == np.float64


@each_kernel
def test_the_matrix_is_symmetric_to_the_bit_and_its_columns_ascend(kernel):
    _, gram, _ = make(kernel, draw())
    np.testing.assert_array_equal(dense(gram), dense(gram).T)
    np.testing.assert_array_equal(np.diag(dense(gram)), kernel.amplitude)
    for start, stop in zip(gram.starts[:-1], gram.starts[1:], strict=True):
        assert np.all(np.diff(gram.index[start:stop]) > 0)


@each_kernel
def test_values_may_be_float32(kernel):
    _, gram, placed = make(kernel, draw(), dtype=np.float32)
    assert gram.values.dtype == np.float32
    np.testing.assert_allclose(dense(gram), kernel(placed), rtol=0, atol=1e-5 * kernel.amplitude)
    assert gram.times(np.ones((200, 1)), executor=Threads(1)).dtype == np.float64


def test_a_diagonal_is_added():
    _, gram, placed = make(KERNELS[0], draw())
    diagonal = np.arange(1.0, 201.0)
    expected = KERNELS[0](placed) + np.diag(diagonal)
    np.testing.assert_allclose(gram.plus_diagonal(diagonal).toarray(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("offset", [1e5, -1e8])
def test_rows_far_from_zero_cost_no_precision(offset):
    points = draw(60) + offset
    sparse, gram, placed = make(Wendland(0.5), points)
    exact = Wendland(0.5)(placed - offset)  # differences of floats so close together have no rounding
    np.testing.assert_allclose(dense(gram), exact, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sparse.cross(placed).toarray(), exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e300])
def test_the_unit_of_rows_does_not_matter(scale):
    points = draw(60)
    _, gram, placed = make(Wendland(0.5 * scale), scale * points)
    np.testing.assert_allclose(dense(gram), Wendland(0.5)(placed / scale), rtol=0, atol=1e-12)


def test_one_row():
    sparse, gram, _ = make(Wendland(0.5, amplitude=3.0), np.array([[7.0, -1.0]]))
    np.testing.assert_array_equal(dense(gram), [[3.0]])
    np.testing.assert_array_equal(sparse.cross(np.array([[7.0, -1.0], [8.0, -1.0]])).toarray(), [[3.0], [0.0]])


@pytest.mark.parametrize("value", [0.0, -3.0, 1e200])
def test_equal_rows_are_all_neighbours(value):
    sparse, gram, _ = make(Wendland(0.5), np.full((30, 2), value))
    np.testing.assert_array_equal(dense(gram), np.ones((30, 30)))
    np.testing.assert_array_equal(sparse.cross(np.full((1, 2), value)).toarray(), np.ones((1, 30)))


@pytest.mark.parametrize("largest", [1e200, 1.7e308])
def test_rows_that_overflow_are_refused(largest):
    points = draw(20)
    points[3] = largest
    points[4] = -largest
    with pytest.raises(ValueError, match="too large for the kernel's length scale"):
        SparseKernel(Wendland(0.5), points)


# ------------------------------------------------------------------------------------------------------ products


@each_n_jobs
@pytest.mark.parametrize("n_vectors", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("piece", [1, sparse_kernel._PIECE])
def test_products_with_the_matrix(n_jobs, n_vectors, order, piece, monkeypatch):
    monkeypatch.setattr(sparse_kernel, "_PIECE", piece)  # threads, or none for so few numbers
    kernel = KERNELS[0]
    _, gram, placed = make(kernel, draw())
    vectors = np.asarray(np.random.default_rng(1).normal(size=(200, n_vectors)), order=order)
    found = gram.times(vectors, executor=Threads(n_jobs))
    np.testing.assert_allclose(found, kernel(placed) @ vectors, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(found, gram.times(vectors, executor=Threads(1)))


@each_n_jobs
@each_kernel
@pytest.mark.parametrize("n_vectors", [1, 2, 5])
def test_products_with_new_rows(kernel, n_jobs, n_vectors, monkeypatch):
    monkeypatch.setattr(sparse_kernel, "_CHUNK", 7)
    sparse, _, placed = make(kernel, draw())
    rows, vectors = draw(50, seed=2), np.random.default_rng(1).normal(size=(200, n_vectors))
    found = sparse.times(ArrayRows(rows), vectors, executor=Threads(n_jobs))
    np.testing.assert_allclose(found, kernel(rows, placed) @ vectors, rtol=0, atol=1e-11)


def test_products_of_more_threads_than_rows(monkeypatch):
    monkeypatch.setattr(sparse_kernel, "_PIECE", 1)
    _, gram, placed = make(Wendland(2.0), draw(2))
    np.testing.assert_allclose(gram.times(np.eye(2), executor=Threads(8)), Wendland(2.0)(placed), rtol=0, atol=1e-15)


@each_kernel
def test_cross(kernel):
    sparse, _, placed = make(kernel, draw())
    rows, atol = draw(40, seed=2), 1e-12 * kernel.amplitude
    np.testing.assert_allclose(sparse.cross(rows).toarray(), kernel(rows, placed), rtol=0, atol=atol)
    assert sparse.cross(rows[:0]).shape == (0, 200)


@pytest.mark.parametrize("far", [10.0, -1e10, 1e150, 1e200, 1.7e308, -1.7e308])
@pytest.mark.parametrize("column", [0, 1, [0, 1, 2]], ids=str)
def test_queries_far_away_have_no_neighbours(far, column):
    sparse, _, placed = make(Wendland(1e-3), draw())
    rows = placed[:3].copy()
    rows[1, column] = far
    found = sparse.cross(rows).toarray()
    assert np.all(np.any(found, axis=1) == [True, False, True])
    assert np.all(sparse.times(ArrayRows(rows), np.ones((200, 1)), executor=Threads(1))[1] == 0)


def test_a_sparse_kernel_can_be_pickled():
    sparse, _, _ = make(KERNELS[0], draw())
    again = pickle.loads(pickle.dumps(sparse))
    rows = draw(10, seed=2)
    np.testing.assert_array_equal(again.cross(rows).toarray(), sparse.cross(rows).toarray())


# -------------------------------------------------------------------------------------------------------- memory


def test_the_size_of_a_small_matrix_is_known():
    sparse, gram, _ = make(KERNELS[0], draw())
    assert sparse.nonzeros_per_row(np.random.default_rng(0)) == (pytest.approx(gram.nnz / 200), 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_size_of_a_large_matrix_is_estimated(seed, monkeypatch):
    monkeypatch.setattr(sparse_kernel, "_SAMPLE", 100)
    sparse, gram, _ = make(KERNELS[0], draw(2000))
    per_row, error = sparse.nonzeros_per_row(np.random.default_rng(seed))
    assert 0 < error < 0.1 * per_row
    assert abs(per_row - gram.nnz / 2000) < 5 * error


def test_what_does_not_fit_is_refused_with_numbers_and_remedies(monkeypatch):
    sparse, gram, _ = make(KERNELS[0], draw())
    monkeypatch.setattr(sparse_kernel, "available_memory", lambda: 12 * gram.nnz)
    with pytest.raises(MemoryError, match=r"smaller length scale.*rows in float32.*NystromRegressor") as e:
        sparse.check_memory(np.random.default_rng(0))
    assert f"{gram.nnz:.2g} non-zeros ({gram.nnz / 200:.0f} ± 0 in each row)" in str(e.value)
    assert "0.0 GB are available" in str(e.value)
    for enough in (16 * gram.nnz, None):  # None: the system does not tell
        monkeypatch.setattr(sparse_kernel, "available_memory", lambda enough=enough: enough)
        sparse.check_memory(np.random.default_rng(0))
    monkeypatch.setattr(sparse_kernel, "available_memory", lambda: 11 * gram.nnz)  # 8 bytes and a quarter to spare
    SparseKernel(KERNELS[0], draw(), np.float32).check_memory(np.random.default_rng(0))


def test_available_memory_is_a_number_of_bytes():
    assert 2**20 < available_memory() < 2**50


class _Meminfo:
    """A double of Path for a system that tells nothing, or something else."""

    def __init__(self, text):
        self._text = text

    def __call__(self, _path):
        return self

    def read_text(self, encoding):
        assert encoding == "ascii"
        if self._text is None:
            raise FileNotFoundError
        return self._text


def test_available_memory_of_meminfo(monkeypatch):
    monkeypatch.setattr(memory, "Path", _Meminfo("MemTotal:  900 kB\nMemAvailable:    77 kB\n"))
    assert available_memory() == 77 * 1024


@pytest.mark.parametrize("text", [None, "MemTotal:  900 kB\n", "MemAvailable: much kB\n"])
def test_without_meminfo_memory_is_what_is_installed_or_unknown(text, monkeypatch):
    monkeypatch.setattr(memory, "Path", _Meminfo(text))
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 10}
    monkeypatch.setattr(memory.os, "sysconf", sizes.__getitem__, raising=False)
    assert available_memory() == 40960
    monkeypatch.delattr(memory.os, "sysconf")
    assert available_memory() is None


# -------------------------------------------------------------------------------------------- neighbour_distance


def mean_neighbours(rows, sample, distance):
    """Rows within the distance of those of a sample, not counting those equal to them."""
    distances = np.sqrt(np.sum((sample[:, np.newaxis] - rows) ** 2, axis=2))
    return np.mean(np.sum((distances <= distance * (1 + 1e-12)) & (distances > 0), axis=1))


@each_n_jobs
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_neighbour_distance_gives_that_many_neighbours(n_jobs, offset):
    rows = np.round(draw(500), 6) + offset
    rows[::7] = rows[0]  # equal rows do not count
    sample = rows[::3]
    with config_context(working_memory=0.05):
        distance = neighbour_distance(ArrayRows(rows), sample, 20, executor=Threads(n_jobs))
    # Distances may be tied among equal rows.
    assert mean_neighbours(rows, sample, distance * (1 + 1e-9)) >= 20
    assert mean_neighbours(rows, sample, distance * (1 - 1e-9)) <= 20


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e170, 1e300])
def test_the_neighbour_distance_has_the_unit_of_rows(scale):
    rows, threads = draw(200), Threads(1)
    expected = neighbour_distance(ArrayRows(rows), rows[:50], 20, executor=threads)
    found = neighbour_distance(ArrayRows(scale * rows), scale * rows[:50], 20, executor=threads)
    assert found / scale == pytest.approx(expected, rel=1e-12)


def test_a_row_far_from_the_sample_does_not_matter():
    rows = draw(200)
    expected = neighbour_distance(ArrayRows(rows), rows[:50], 20, executor=Threads(1))
    rows = np.vstack([rows, np.full((1, 3), 1.7e308)])
    assert neighbour_distance(ArrayRows(rows), rows[:50], 20, executor=Threads(1)) == expected


def test_too_few_rows_have_all_others_for_neighbours():
    rows = draw(10)
    distance = neighbour_distance(ArrayRows(rows), rows, 50, executor=Threads(1))
    largest = np.max(np.linalg.norm(rows[:, np.newaxis] - rows, axis=2))
    assert distance == pytest.approx(2 * largest)


@pytest.mark.parametrize("n_rows", [1, 30])
def test_equal_rows_have_no_neighbour_distance(n_rows):
    rows = np.full((n_rows, 2), 7.0)
    assert neighbour_distance(ArrayRows(rows), rows, 5, executor=Threads(1)) == 1.0
