"""The kernel Hebbian algorithm, against kernel PCA by eigenvalues and against itself, one row at a time."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA, KernelPCA

from mercer import HebbianPCA
from mercer.engine import Sequence, Threads, as_rows, using
from mercer.kernels import Gaussian, Linear, Polynomial
from mercer.model import Components
from tests.archives import assert_alike, loaded, saved, taken_apart, with_array
from tests.doubles import GuardedRows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)) * [1.0, 0.7]
NEW = RNG.normal(size=(25, 2))
KERNEL = Gaussian(1.0)
# Gains under which 300 passes over 60 rows, 18 000 steps, come close.
GAINS = {
    "eigenvalue": {},
    "annealed": {"gain": "annealed", "learning_rate": 0.3, "decay": 500.0},
    "constant": {"gain": "constant", "learning_rate": 0.01},
}


def exact(n_components):
    """Kernel PCA by eigenvalues; exp(-r²/2) is their exp(-gamma r²)."""
    return KernelPCA(n_components, kernel="rbf", gamma=0.5).fit(X)


def angles(model, reference):
    """Between the directions of both in feature space, Σ a_i φ(z_i) and Σ α_i φ(x_i)/√λ."""
    mine, theirs = model.expansion_.coefficients, reference.eigenvectors_ / np.sqrt(reference.eigenvalues_)
    products = np.sum(mine * (KERNEL(model.basis_, X) @ theirs), axis=0)
    lengths = np.sqrt(np.sum(mine * (KERNEL(model.basis_) @ mine), axis=0))
    return np.arccos(np.minimum(np.abs(products) / lengths, 1))


def closest(model, other):
    """Values of one model at new rows with the signs of the other's."""
    mine, theirs = model.transform(NEW), other.transform(NEW)
    return mine * np.sign(np.sum(mine * theirs, axis=0)), theirs


# ------------------------------------------------------------------------------------------------- what it converges to


@pytest.mark.parametrize("gains", GAINS.values(), ids=GAINS.keys())
def test_components_converge_to_those_of_kernel_pca(gains):
    model = HebbianPCA(KERNEL, n_components=3, novelty_tol=0.0, n_epochs=300, **gains).fit(X)
    reference = exact(3)
    assert np.all(angles(model, reference) < 0.01)
    mine, theirs = closest(model, reference)
    np.testing.assert_allclose(mine, theirs, atol=0.01)
    np.testing.assert_allclose(model.explained_variance_, reference.eigenvalues_ / len(X), rtol=0.02)


def test_a_stream_that_comes_again_and_again_converges_to_kernel_pca():
    model = HebbianPCA(KERNEL, n_components=3, novelty_tol=0.0)
    for _ in range(300):
        model.partial_fit(X)
    assert np.all(angles(model, exact(3)) < 0.01)
    assert (model.n_seen_, model.n_steps_) == (300 * 60, 300 * 60 - 1)


def test_with_a_linear_kernel_it_is_principal_components():
    rows = RNG.normal(size=(200, 3)) @ np.diag([3.0, 2.0, 1.0]) + 5.0
    model = HebbianPCA(Linear(), n_components=3, n_epochs=200).fit(rows)
    pca = PCA(3).fit(rows)
    mine, theirs = model.transform(rows), pca.transform(rows)
    np.testing.assert_allclose(mine * np.sign(np.sum(mine * theirs, axis=0)), theirs, atol=0.05)
    np.testing.assert_allclose(model.explained_variance_ratio_, pca.explained_variance_ratio_, rtol=0.01)
    assert model.basis_.shape == (3, 3)


def test_on_a_small_dictionary_it_is_principal_components_of_the_projected_rows():
    rows = RNG.normal(size=(300, 2))
    model = HebbianPCA(KERNEL, n_components=2, max_basis=8, n_epochs=200).fit(rows)
    assert len(model.basis_) == 8
    lower = np.linalg.cholesky(KERNEL(model.basis_))
    features = np.linalg.solve(lower, KERNEL(model.basis_, rows)).T
    pca = PCA(2).fit(features)
    expected = pca.transform(features)
    mine = model.transform(rows)
    np.testing.assert_allclose(mine * np.sign(np.sum(mine * expected, axis=0)), expected, atol=0.02)
    total = np.mean(np.sum((features - features.mean(axis=0)) ** 2, axis=1))
    np.testing.assert_allclose(model.explained_variance_ratio_ * total, model.explained_variance_, rtol=1e-9)


# ---------------------------------------------------------------------------------------- rows one after the other


def plain(rows, n_components, *, max_basis, novelty_tol, rate=0.1, decay=100.0):
    """The algorithm as published, with coefficients A on the dictionary, one row at a time; returns values at NEW.

    Rows are centred by the mean of the rows so far, each as the dictionary of its time represented it.
    """
    points, A, means = rows[:0], np.zeros((n_components, 0)), []
    variances, ages, t = np.zeros(n_components), np.zeros(n_components), 0
    for x in rows:
        k = KERNEL(points, x[np.newaxis])[:, 0]
        K = KERNEL(points)
        e = np.linalg.solve(K, k) if len(k) else k
        if len(points) < max_basis and KERNEL(x[np.newaxis])[0, 0] - k @ e > novelty_tol:
            points, m = np.vstack([points, x]), len(points)
            A = np.pad(A, ((0, 0), (0, 1)))
            if m < n_components:  # the part of the row that the others do not span
                part = np.append(-e, 1.0)
                A[m] = part / np.sqrt(part @ KERNEL(points) @ part)
            means = [np.append(each, 0.0) for each in means]
            e, K = np.eye(m + 1)[m], KERNEL(points)
        means.append(e)
        e = e - np.mean(means, axis=0)
        square = e @ K @ e
        if not square > 0:
            continue
        q = min(n_components, len(points))
        y = A[:q] @ K @ e
        ages[:q] += 1
        variances[:q] += 2 / (ages[:q] + 1) * (y**2 - variances[:q])
        eta = np.minimum(rate * decay / (decay + t) / variances[:q], 1 / square)
        t += 1
        A[:q] += eta[:, np.newaxis] * (np.outer(y, e) - np.tril(np.outer(y, y)) @ A[:q])
    k = KERNEL(NEW, points)
    return k @ A.T - np.mean(means, axis=0) @ KERNEL(points) @ A.T


@pytest.mark.parametrize("options", [{"max_basis": 100, "novelty_tol": 0.01}, {"max_basis": 10, "novelty_tol": 0.05}])
@pytest.mark.parametrize("batch", [1, 7, 60])
def test_a_stream_is_the_published_algorithm_row_by_row(options, batch):
    model = HebbianPCA(KERNEL, n_components=3, **options)
    for start in range(0, len(X), batch):
        model.partial_fit(X[start : start + batch])
    np.testing.assert_allclose(model.transform(NEW), plain(X, 3, **options), rtol=1e-7, atol=1e-9)


def test_the_mean_of_a_stream_is_exact_where_the_dictionary_spans_all_rows():
    model = HebbianPCA(KERNEL, n_components=2, novelty_tol=0.0)
    for start in range(0, len(X), 9):
        model.partial_fit(X[start : start + 9])
    assert len(model.basis_) > 50
    np.testing.assert_allclose(model.transform(X).mean(axis=0), 0.0, atol=1e-7)


def test_a_fit_goes_on_as_a_stream():
    model = HebbianPCA(KERNEL, n_epochs=3).fit(X[:40])
    first = model.transform(NEW)
    model.partial_fit(X[40:])
    assert model.n_seen_ == 60
    assert model.n_steps_ == 3 * 40 + 20
    assert not np.array_equal(model.transform(NEW), first)


def test_features_that_do_not_fit_in_memory_are_computed_again(monkeypatch):
    model = HebbianPCA(KERNEL, n_epochs=4).fit(X)
    monkeypatch.setattr("mercer.methods.hebbian.working_memory_bytes", lambda: 0)
    again = HebbianPCA(KERNEL, n_epochs=4).fit(X)
    np.testing.assert_allclose(again.transform(NEW), model.transform(NEW), rtol=1e-9, atol=1e-12)


def test_an_executor_and_a_source_of_rows_are_used():
    model = HebbianPCA(KERNEL, n_epochs=4).fit(X)
    for executor in (Sequence(), Threads(2)):
        with using(executor):
            again = HebbianPCA(KERNEL, n_epochs=4).fit(as_rows(X))
            np.testing.assert_allclose(again.transform(as_rows(NEW)), model.transform(NEW), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(model.transform(GuardedRows(NEW)), model.transform(NEW))
    again = HebbianPCA(KERNEL, n_epochs=4).fit(sparse.csr_array(X))
    np.testing.assert_allclose(again.transform(sparse.csr_array(NEW)), model.transform(NEW), rtol=1e-9, atol=1e-12)


def test_a_median_length_scale_is_decided_by_the_first_rows():
    rows = RNG.normal(size=(300, 2))
    whole = HebbianPCA().partial_fit(rows[:130]).partial_fit(rows[130:])
    parts = HebbianPCA()
    for start, stop in ((0, 1), (1, 50), (50, 130), (130, 300)):
        parts.partial_fit(rows[start:stop])
    assert parts.kernel_.length_scale == pytest.approx(HebbianPCA().partial_fit(rows[:130]).kernel_.length_scale)
    np.testing.assert_allclose(parts.transform(NEW), whole.transform(NEW), rtol=1e-9, atol=1e-12)


# ----------------------------------------------------------------------------------------------------- fewer components


def test_more_components_than_the_dictionary_has_dimensions_are_fewer_and_that_is_said():
    rows = RNG.normal(size=(50, 3))
    with pytest.warns(UserWarning, match="n_components=5, but the rows span only 3 dimensions .* there are 3 "):
        model = HebbianPCA(Linear(), n_components=5).fit(rows)
    assert model.transform(rows).shape == (50, 3)
    assert model.explained_variance_.shape == (3,)
    assert model.get_feature_names_out().tolist() == ["hebbianpca0", "hebbianpca1", "hebbianpca2"]


def test_rows_of_an_affine_hull_have_one_dimension_less():
    rows = np.repeat(X[:4], 5, axis=0)
    with pytest.warns(UserWarning, match="the rows span only 3 dimensions on a dictionary of 4 rows"):
        model = HebbianPCA(KERNEL, n_components=6, n_epochs=200).fit(rows)
    assert model.n_components_ == 3
    assert np.all(model.explained_variance_ > 1e-3)
    streamed = HebbianPCA(KERNEL, n_components=6).partial_fit(rows)
    assert streamed.n_components_ == 3
    assert streamed.partial_fit(X).n_components_ == 6  # in a stream more may come


def test_a_single_row_again_and_again_has_no_component():
    with pytest.raises(ValueError, match="n_samples=7: there is no component"):
        HebbianPCA(KERNEL).fit(np.ones((7, 2)))
    model = HebbianPCA(KERNEL).partial_fit(np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"no component yet: .* the 1 row\(s\) so far"):
        model.transform(NEW)
    assert model.partial_fit(X).transform(NEW).shape == (25, 2)


def test_rows_without_a_kernel_value_join_nothing():
    zeros = np.zeros((5, 2))
    with pytest.raises(ValueError, match="n_samples=5: there is no component"):
        HebbianPCA(Linear()).fit(zeros)
    model = HebbianPCA(Linear()).partial_fit(zeros)
    assert (model.n_components_, model.n_seen_, len(model.basis_)) == (0, 5, 0)
    together = HebbianPCA(Linear()).partial_fit(np.vstack([zeros, X]))
    np.testing.assert_allclose(model.partial_fit(X).transform(NEW), together.transform(NEW), rtol=1e-9)


def test_a_mean_that_hides_how_rows_differ_is_said():
    with pytest.raises(ValueError, match=r"novelty_tol=0\.001\. Subtract large means of the features"):
        HebbianPCA(Linear()).fit(X + 1e6)
    with pytest.warns(UserWarning, match="there are 1 components.* subtract large means of the features"):
        HebbianPCA(Linear()).fit(X + 1e3)
    apart = HebbianPCA(Linear(), novelty_tol=0.0, n_epochs=200).fit(X + 1e3)
    np.testing.assert_allclose(apart.explained_variance_, PCA(2).fit(X).explained_variance_ * 59 / 60, rtol=0.01)


# --------------------------------------------------------------------------------------------------------------- steps


@pytest.mark.parametrize("options", [{"gain": "constant"}, {"gain": "annealed", "decay": 1e6}], ids=str)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_steps_that_diverge_are_an_error_with_a_remedy(options, method):
    model = HebbianPCA(KERNEL, n_epochs=20, learning_rate=20.0, **options)
    with pytest.raises(ValueError, match=r"learning_rate=20 is too large: .* below \S+; or choose gain='eig"):
        getattr(model, method)(np.tile(X, (20, 1)))
    assert not hasattr(model, "n_features_in_")


def test_a_stream_that_diverges_leaves_the_model_of_before():
    model = HebbianPCA(KERNEL, gain="constant", learning_rate=0.05).partial_fit(X)
    before = model.transform(NEW)
    model.set_params(learning_rate=50.0)
    with pytest.raises(ValueError, match="diverge"):
        model.partial_fit(np.tile(X, (20, 1)))
    np.testing.assert_array_equal(model.transform(NEW), before)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_units_of_the_kernel_do_not_matter(scale):
    model = HebbianPCA(Gaussian(1.0, amplitude=scale), n_epochs=3).fit(X)
    expected = HebbianPCA(KERNEL, n_epochs=3).fit(X)
    np.testing.assert_allclose(model.transform(NEW) / np.sqrt(scale), expected.transform(NEW), rtol=1e-6, atol=1e-9)


def test_large_rows_of_a_polynomial_kernel_stay_numbers():
    rows = 1e3 * RNG.normal(size=(100, 2))
    model = HebbianPCA(Polynomial(degree=2)).fit(rows)
    assert np.all(np.isfinite(model.transform(rows)))


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("change", [{"kernel": Gaussian(2.0)}, {"kernel": Linear()}, {"n_components": 3}], ids=str)
def test_what_a_stream_cannot_change_is_refused(change):
    model = HebbianPCA(KERNEL).partial_fit(X)
    name = next(iter(change))
    with pytest.raises(ValueError, match=f"{name} was .* call fit"):
        model.set_params(**change).partial_fit(X)
    model.fit(X)


@pytest.mark.parametrize(
    "option",
    [{"n_components": 0}, {"max_basis": 0}, {"novelty_tol": 1.0}, {"gain": "fast"}, {"learning_rate": 0.0},
     {"decay": -1.0}, {"n_epochs": 0}],
    ids=str,
)  # fmt: skip
def test_parameters_out_of_range_are_refused_by_name(option):
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=f"'{next(iter(option))}' parameter of HebbianPCA"):
            getattr(HebbianPCA(**option), method)(X)


def test_precomputed_kernels_and_overflow_are_refused():
    with pytest.raises(ValueError, match="precomputed"):
        HebbianPCA("precomputed").fit(np.eye(3))
    with pytest.raises(ValueError, match="Scale X"):
        HebbianPCA(Linear()).fit(1e100 * X)


# ------------------------------------------------------------------------------------------------------ life of a model


def test_it_is_saved_and_loaded_and_goes_on():
    for model in (HebbianPCA(KERNEL).fit(X), HebbianPCA().partial_fit(X), HebbianPCA(KERNEL).partial_fit(X[:1])):
        again, copied = loaded(saved(model)), pickle.loads(pickle.dumps(model))
        assert_alike(vars(again), vars(model))
        model.partial_fit(NEW)
        for other in (again, copied):
            np.testing.assert_array_equal(other.partial_fit(NEW).transform(X), model.transform(X))


def test_an_archive_whose_parts_do_not_fit_is_refused():
    header, members = taken_apart(saved(HebbianPCA(KERNEL, novelty_tol=0.05).fit(X)))
    for number, entry in enumerate(header["arrays"]):
        smaller = np.ones([max(size - 1, 0) for size in entry["shape"]])
        with pytest.raises(ValueError, match=r"shape|has|fit|float64|wide|outputs"):
            loaded(with_array(header, members, number, smaller))


def test_components_are_named_and_put_into_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b"])
    values = HebbianPCA(KERNEL).set_output(transform="pandas").fit_transform(frame)
    assert list(values.columns) == ["hebbianpca0", "hebbianpca1"]


def test_rows_of_float32_give_float32():
    model = HebbianPCA(KERNEL).fit(X.astype(np.float32))
    assert model.transform(NEW.astype(np.float32)).dtype == np.float32
    assert model.transform(NEW).dtype == np.float64
    np.testing.assert_allclose(model.transform(NEW), HebbianPCA(KERNEL).fit(X).transform(NEW), atol=1e-4)


def test_the_model_is_an_expansion_of_components():
    model = HebbianPCA(KERNEL, max_basis=20).fit(X)
    assert model.outputs_ == Components()
    np.testing.assert_array_equal(model.expansion_.evaluate(NEW), model.transform(NEW))
    with pytest.raises(ValueError, match="read-only"):
        model.basis_[0] = 0.0


def test_no_warning_where_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HebbianPCA(KERNEL, n_components=4).fit(X)
