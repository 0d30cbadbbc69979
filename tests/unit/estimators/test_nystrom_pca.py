"""Kernel principal components on a basis, against dense algebra over all rows and scikit-learn's KernelPCA."""

import inspect
import io

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mercer
from mercer import NystromPCA
from mercer.basis import BasisStrategy, ForwardSelection, Sequential
from mercer.compression import as_expansion, compress
from mercer.kernels import Gaussian, Linear, Matern, Polynomial
from mercer.methods import frame
from tests.oracles import each_weighting

KERNELS = {
    "gaussian": (Gaussian(0.7), {"kernel": "rbf", "gamma": 0.5 / 0.7**2}),
    "wide gaussian": (Gaussian(30.0), {"kernel": "rbf", "gamma": 0.5 / 30.0**2}),
    "polynomial": (
        Polynomial(degree=3, scale=0.5, offset=1.0),
        {"kernel": "poly", "degree": 3, "gamma": 0.5, "coef0": 1.0},
    ),
    "linear": (Linear(), {"kernel": "linear"}),
}
each_kernel = pytest.mark.parametrize(("kernel", "options"), KERNELS.values(), ids=KERNELS)


def turned(actual, expected):
    """The actual components with the signs of the expected ones."""
    return actual * np.where(np.sum(actual * expected, axis=0) < 0, -1.0, 1.0)


def assert_same_components(actual, expected, tolerance=1e-8):
    assert actual.shape == expected.shape
    error = np.max(np.abs(turned(actual, expected) - expected))
    assert error <= tolerance * np.max(np.abs(expected))


def dense(kernel, basis, rows, new, weights=None):
    """Eigenvalues of the centred Nyström matrix over the weights' sum, and components of new rows, by definition."""
    w = np.ones(len(rows)) if weights is None else weights
    Q = kernel(rows, basis) @ np.linalg.solve(kernel(basis), kernel(basis, rows))
    cross = kernel(new, basis) @ np.linalg.solve(kernel(basis), kernel(basis, rows))
    w = w / np.sum(w)
    # The inner products of images less their weighted mean, times the roots of the weights on both sides.
    centred = Q - (w @ Q) - (Q @ w)[:, None] + w @ Q @ w
    new_centred = cross - (w @ Q) - (cross @ w)[:, None] + w @ Q @ w
    root = np.sqrt(w)
    values, vectors = np.linalg.eigh(root[:, None] * centred * root)
    values, vectors = values[::-1], vectors[:, ::-1]
    used = values > 1e-10 * values[0]
    return values[used], new_centred @ (root[:, None] * vectors[:, used]) / np.sqrt(values[used])


# ------------------------------------------------------------------------------------------------- what it computes


@each_weighting
@pytest.mark.parametrize(
    "kernel", [Gaussian(0.7), Matern(1.0, nu=1.5, amplitude=3.0), Gaussian() + Linear(0.2)], ids=str
)
def test_components_are_those_of_the_centred_nystrom_matrix(data, basis, kernel, weighted):
    rows, _, new, weights = data
    weights = weights if weighted else None
    model = NystromPCA(kernel, n_components=5, basis=basis).fit(rows, sample_weight=weights)
    variances, components = dense(kernel, basis, rows, new, weights)
    np.testing.assert_allclose(model.explained_variance_, variances[:5], rtol=1e-9)
    assert_same_components(model.transform(new), components[:, :5])
    total = 200 if weights is None else np.sum(weights)
    np.testing.assert_allclose(model.eigenvalues_, total * variances[:5], rtol=1e-9)


@each_kernel
@pytest.mark.parametrize("n_components", [1, 5])
def test_with_all_rows_as_basis_it_is_kernel_pca(data, kernel, options, n_components):
    rows, _, new, _ = data
    n_components = min(n_components, 2) if options["kernel"] == "linear" else n_components
    peer = KernelPCA(n_components, eigen_solver="dense", **options).fit(rows)
    model = NystromPCA(kernel, n_components=n_components, n_basis=1000, random_state=0).fit(rows)
    # Rounding of eigenvalues is relative to the mean of k(x, x), which a wide kernel's variance is a small part of.
    tolerance = 1e-8 * max(1.0, 1e-6 * np.mean(kernel.diagonal(rows)) / model.explained_variance_[-1])
    np.testing.assert_allclose(model.eigenvalues_, peer.eigenvalues_, rtol=tolerance)
    assert_same_components(model.transform(new), peer.transform(new), tolerance)
    assert_same_components(model.transform(rows), peer.fit_transform(rows), tolerance)


def test_all_components_that_are_no_rounding(data):
    rows = data[0]
    for each, rank in [(Polynomial(degree=2, scale=0.5, offset=1.0), 5), (Linear(), 2)]:
        model = NystromPCA(each, n_basis=1000, random_state=0).fit(rows)
        assert model.n_components_ == rank  # without the constant
        assert model.components_note_ == ""
        components = model.transform(rows)
        centred = each(rows) - np.mean(each(rows), axis=0)
        centred -= np.mean(centred, axis=1, keepdims=True)
        np.testing.assert_allclose(components @ components.T, centred, rtol=0, atol=1e-8 * np.max(centred))
        np.testing.assert_allclose(np.sum(model.explained_variance_ratio_), 1.0, rtol=1e-8)


@pytest.mark.parametrize("kernel", [Gaussian(0.7), Polynomial(degree=3, scale=0.5, offset=1.0)], ids=str)
def test_shares_of_variance_are_exact_with_all_rows_and_never_too_large(data, basis, kernel):
    rows = data[0]
    gram = kernel(rows)
    total = np.trace(gram) / len(rows) - np.mean(gram)
    exact = NystromPCA(kernel, n_components=4, n_basis=1000, random_state=0).fit(rows)
    np.testing.assert_allclose(exact.explained_variance_ratio_, exact.explained_variance_ / total, rtol=1e-8)
    few = NystromPCA(kernel, n_components=4, basis=basis[::2]).fit(rows)
    assert np.all(few.explained_variance_ratio_ <= few.explained_variance_ / total * (1 + 1e-8))
    assert np.all(few.explained_variance_ <= exact.explained_variance_ * (1 + 1e-8))


@each_weighting
def test_whitened_components_have_variance_one(data, weighted):
    rows, _, new, weights = data
    weights = weights if weighted else None
    options = {"n_components": 4, "n_basis": 50, "random_state": 0}
    plain = NystromPCA(Matern(1.0), **options).fit(rows, sample_weight=weights)
    white = NystromPCA(Matern(1.0), whiten=True, **options).fit(rows, sample_weight=weights)
    np.testing.assert_allclose(
        white.transform(new), plain.transform(new) / np.sqrt(plain.explained_variance_), rtol=0, atol=1e-10
    )
    np.testing.assert_allclose(np.cov(white.transform(rows).T, aweights=weights, ddof=0), np.eye(4), rtol=0, atol=1e-8)


def test_signs_do_not_depend_on_the_order_of_the_rows(data, basis):
    rows, _, new, _ = data
    model = NystromPCA(Matern(1.0), n_components=5, basis=basis).fit(rows)
    other = NystromPCA(Matern(1.0), n_components=5, basis=basis).fit(rows[::-1])
    np.testing.assert_allclose(other.transform(new), model.transform(new), rtol=0, atol=1e-9)
    at_basis = model.transform(model.basis_)
    largest = np.take_along_axis(at_basis, np.argmax(np.abs(at_basis), axis=0)[None], axis=0)
    assert np.all(largest > 0)


@each_weighting
def test_sums_that_are_whitened_afterwards(monkeypatch, weighted):
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(2000, 3)), rng.uniform(0.1, 3.0, 2000) if weighted else None
    options = {"n_components": 4, "basis": rows[:30], "inverse": None}
    whitened = NystromPCA(Gaussian(1.0), **options).fit(rows, sample_weight=weights)
    assert whitened.statistics_.is_whitened
    monkeypatch.setattr(frame, "_LONG_PASS", 0.0)
    plain = NystromPCA(Gaussian(1.0), **options).fit(rows, sample_weight=weights)
    assert not plain.statistics_.is_whitened
    assert_same_components(plain.transform(rows), whitened.transform(rows), 1e-9)
    # Without a number of components none can be lost; nor may they where rounding could be seen.
    assert NystromPCA(Gaussian(1.0), **(options | {"n_components": None})).fit(rows).statistics_.is_whitened
    assert NystromPCA(Gaussian(30.0), **options).fit(rows).statistics_.is_whitened
    # What comes later is summed alike, and both kinds of sums can be merged.
    merged = clone(whitened).fit(rows[:1000]).merge(clone(plain).set_params(kernel=plain.kernel_).fit(rows[1000:]))
    assert merged.n_seen_ == 2000
    halves = NystromPCA(Gaussian(1.0), **options).partial_fit(rows[:1000]).partial_fit(rows[1000:])
    assert halves.statistics_.is_whitened
    assert_same_components(halves.transform(rows), merged.transform(rows), 1e-9)
    before = plain.transform(rows)
    assert_same_components(plain.partial_fit(rows, sample_weight=weights).transform(rows), before, 1e-9)


# ------------------------------------------------------------------------------------------------- how many there are


def test_more_components_than_directions(data):
    rows = np.repeat(data[0][:5], 8, axis=0)
    with pytest.warns(UserWarning, match="n_components=9, but 4 components are used: the rows vary in no more than 4"):
        model = NystromPCA(Gaussian(1.0), n_components=9).fit(rows)
    assert model.n_components_ == model.transform(rows).shape[1] == len(model.explained_variance_) == 4
    assert (
        "4 directions above rounding, on 5 basis points. 40 of 500 points: there are no more rows."
        in model.components_note_
    )
    variances, components = dense(Gaussian(1.0), data[0][:5], rows, data[2])
    np.testing.assert_allclose(model.explained_variance_, variances[:4], rtol=1e-9)
    assert_same_components(model.transform(data[2]), components[:, :4])


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Gaussian(30.0), Matern(3.0)], ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_components_of_float32_rows_are_no_rounding(kernel, seed):
    rows = np.random.default_rng(seed).normal(size=(1000, 1)).astype(np.float32)
    model = NystromPCA(kernel, n_basis=100, random_state=0).fit(rows)
    double = NystromPCA(kernel, basis=model.basis_).fit(rows.astype(np.float64))
    assert 1 < model.n_components_ <= double.n_components_
    np.testing.assert_allclose(model.explained_variance_, double.explained_variance_[: model.n_components_], rtol=0.01)
    with pytest.warns(UserWarning, match="above the rounding of float32, which float64 rows have not"):
        model.set_params(n_components=100).fit(rows)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("n", [1, 10])
def test_rows_that_do_not_differ(data, n, whiten):
    model = NystromPCA(Gaussian(1.0), whiten=whiten).fit(np.repeat(data[0][:1], n, axis=0))
    assert "do not differ" in model.components_note_
    np.testing.assert_array_equal(model.transform(data[2]), np.zeros((30, 1)))
    np.testing.assert_array_equal(model.explained_variance_, [0.0])
    np.testing.assert_array_equal(model.explained_variance_ratio_, [0.0])
    np.testing.assert_allclose(model.inverse_transform(np.zeros((3, 1))), np.repeat(data[0][:1], 3, axis=0), rtol=1e-6)
    for asked, what in ((1, "n_components=1: "), (2, "n_components=2, but 1 component is used: ")):
        with pytest.warns(UserWarning, match=f"{what}the rows do not differ above rounding"):
            model.set_params(n_components=asked).fit(np.repeat(data[0][:1], n, axis=0))


def test_the_first_batch_may_be_one_row(data, basis):
    rows, _, new, _ = data
    model = NystromPCA(Gaussian(0.7), n_components=3, basis=basis)
    model.partial_fit(rows[:1])
    with pytest.warns(UserWarning, match="n_components=3, but 1 component is used"):
        assert model.transform(new).shape == (30, 1)
    model.partial_fit(rows[1:])
    expected = clone(model).fit(rows)
    assert_same_components(model.transform(new), expected.transform(new), 1e-9)


# ------------------------------------------------------------------------------------------------- pre-images


def test_rows_come_back_by_ridge_regression(data):
    rows, _, _, _ = data
    new = np.random.default_rng(5).uniform(-1.8, 1.8, size=(100, 2))
    for options in ({"kernel": Gaussian(1.0)}, {"kernel": "matern"}, {"kernel": Polynomial(degree=2), "whiten": True}):
        model = NystromPCA(n_basis=100, random_state=0, **options).set_params(n_components=5).fit(rows)
        back = model.inverse_transform(model.transform(new))
        assert back.shape == new.shape
        assert np.mean((back - new) ** 2) < 0.01 * np.var(new)


def test_the_function_to_rows_is_of_the_rows_seen(data):
    rows, _, new, _ = data
    options = {"kernel": Gaussian(1.0), "n_components": 5, "basis": rows[:60]}
    whole = NystromPCA(**options).fit(rows)
    parts = NystromPCA(**options).partial_fit(rows[:80]).merge(NystromPCA(**options).fit(rows[80:]))
    values = whole.transform(new)
    np.testing.assert_allclose(parts.inverse_transform(values), whole.inverse_transform(values), rtol=0, atol=1e-4)
    again = mercer.load(_saved(whole))
    np.testing.assert_allclose(again.inverse_transform(values), whole.inverse_transform(values), rtol=0, atol=1e-12)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize(
    "scale", [1.0, np.array([0.5, 2.0]), np.array([[1.0, 0.3], [0.3, 2.0]])], ids=["one", "two", "metric"]
)
def test_fixed_points_are_where_the_distance_to_the_image_is_stationary(data, basis, scale, whiten):
    rows, _, new, _ = data
    kernel = Gaussian(scale)
    model = NystromPCA(kernel, n_components=6, basis=basis, inverse="fixed_point", whiten=whiten).fit(rows)
    values = model.transform(new)
    found = model.inverse_transform(values)
    # |φ(z) - P|² = 1 - 2 Σ γ k(z, z_j) + const, where components of P are the values and P lies in their span
    directions = model.expansion_.coefficients * (model.explained_variance_ if whiten else 1.0)
    features = np.linalg.solve(kernel(model.basis_), kernel(model.basis_, rows))
    gamma = np.mean(features, axis=1) + values @ directions.T
    terms = gamma * kernel(found, model.basis_)
    inside = np.sum(terms, axis=1) > 1e-3
    assert np.sum(inside) > 10
    again = terms @ model.basis_ / np.sum(terms, axis=1)[:, None]
    np.testing.assert_allclose(again[inside], found[inside], rtol=0, atol=1e-4)
    best = np.max(gamma @ kernel(model.basis_), axis=1)
    assert np.all(np.sum(terms, axis=1) >= best - 1e-10)


def test_copies_of_rows_are_no_evidence_of_rows_without_noise():
    rows, new = np.split(np.random.default_rng(0).normal(size=(400, 4)), [300])
    options = {"kernel": Gaussian(2.0), "n_components": 3, "basis": rows[:40]}
    once = NystromPCA(**options).fit(rows)
    values, counts = once.transform(new), np.repeat([1, 3], 150)
    weighted = NystromPCA(**options).fit(rows, sample_weight=counts)
    repeated = NystromPCA(**options).fit(np.repeat(rows, counts, axis=0))
    scaled = NystromPCA(**options).fit(rows, sample_weight=1e-6 * counts)
    found = weighted.inverse_transform(values)
    for other in (repeated, scaled):
        np.testing.assert_allclose(other.inverse_transform(values), found, rtol=0, atol=1e-6)
    error = np.mean((once.inverse_transform(values) - new) ** 2)
    assert np.mean((weighted.inverse_transform(weighted.transform(new)) - new) ** 2) < 1.2 * error


def test_fixed_points_of_images_of_rows_are_the_rows(data):
    rows = data[0][:60]
    model = NystromPCA(Gaussian(0.5), n_basis=60, inverse="fixed_point").fit(rows)
    np.testing.assert_allclose(model.inverse_transform(model.transform(rows)), rows, rtol=0, atol=1e-5)


def test_fixed_points_remove_noise():
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, size=2000)
    rows = np.column_stack([np.cos(angles), np.sin(angles)]) + 0.1 * rng.normal(size=(2000, 2))
    model = NystromPCA(n_components=2, n_basis=100, inverse="fixed_point", random_state=0).fit(rows)
    radii = [np.linalg.norm(each, axis=1) for each in (rows, model.inverse_transform(model.transform(rows)))]
    assert np.std(radii[1]) < 0.5 * np.std(radii[0])


@pytest.mark.parametrize("kernel", [Matern(1.0), Polynomial(), Gaussian() + Linear(), lambda a, b: a @ b.T])
def test_a_kernel_without_fixed_points(data, kernel):
    model = NystromPCA(kernel, n_basis=20, inverse="fixed_point", random_state=0)
    for method in (model.fit, model.partial_fit):
        with pytest.raises(
            ValueError, match=r"inverse='fixed_point' needs a Gaussian kernel, got .*use inverse='ridge'"
        ):
            method(data[0])
    assert not hasattr(model, "expansion_")


def test_inverse_of_what_cannot_be_inverted(data):
    rows = data[0]
    model = NystromPCA(n_components=3, n_basis=20, inverse=None, random_state=0).fit(rows)
    with pytest.raises(ValueError, match="none were kept: fit with inverse='ridge'"):
        model.inverse_transform(model.transform(rows))
    model = NystromPCA(n_components=3, n_basis=20, random_state=0).fit(rows)
    with pytest.raises(ValueError, match="X has 2 columns, but there are 3 components"):
        model.inverse_transform(np.zeros((4, 2)))
    with pytest.raises(ValueError, match="X must form a two-dimensional array of finite numbers"):
        model.inverse_transform(np.full((4, 3), np.nan))
    # Rows that came while none were kept are not in the function; so there is none.
    mixed = NystromPCA(Gaussian(), basis=rows[:20], inverse=None).partial_fit(rows).set_params(inverse="ridge")
    with pytest.raises(ValueError, match="none were kept"):
        mixed.partial_fit(rows).inverse_transform(np.zeros((1, mixed.n_components_)))
    a, b = (NystromPCA(Gaussian(), basis=rows[:20], inverse=each).fit(rows) for each in ("ridge", None))
    with pytest.raises(ValueError, match="none were kept"):
        a.merge(b).inverse_transform(np.zeros((1, a.n_components_)))


# ------------------------------------------------------------------------------------------------- basis and kernel

STRATEGIES = [cls for cls in vars(mercer.basis).values() if inspect.isclass(cls) and issubclass(cls, BasisStrategy)]


@pytest.mark.parametrize("strategy", [cls for cls in STRATEGIES if cls is not BasisStrategy])
def test_any_strategy_that_needs_no_targets(data, strategy):
    rows = data[0]
    model = NystromPCA(Gaussian(0.7), n_components=2, n_basis=30, basis=strategy(), random_state=0)
    if strategy().needs_targets:
        with pytest.raises(ValueError, match=rf"basis={strategy.__name__}\(\) chooses points by targets.*'uniform'"):
            model.fit(rows)
        return
    exact = NystromPCA(Gaussian(0.7), n_components=2, n_basis=1000).fit(rows)
    shares = model.fit(rows).explained_variance_ / exact.explained_variance_
    assert np.all((shares > 0.5) & (shares < 1 + 1e-9))


def test_targets_are_ignored_by_the_basis_too(data):
    rows, targets, _, _ = data
    with pytest.raises(ValueError, match="chooses points by targets, of which there are none here"):
        NystromPCA(basis=ForwardSelection()).fit(rows, targets)
    model = NystromPCA(Gaussian(0.7), basis=Sequential(selection="novelty"), n_basis=10).fit(rows)
    assert model.rank_ == 10


def test_length_scales_that_are_fitted_to_targets(data):
    with pytest.raises(ValueError, match=r"length_scale='ard' is fitted to targets, of which there are none.*'median'"):
        NystromPCA(Gaussian("ard")).fit(data[0])


# ------------------------------------------------------------------------------------------------- merging


def test_models_of_parts_merge_to_the_model_of_all_rows(data, basis):
    rows, _, new, weights = data
    make = lambda: NystromPCA(Gaussian(0.7), n_components=4, basis=basis)  # noqa: E731
    whole = make().fit(rows, sample_weight=weights)
    first = make().partial_fit(rows[:70], sample_weight=weights[:70])
    merged = first.merge(make().fit(rows[70:], sample_weight=weights[70:]))
    assert merged.n_seen_ == 200
    np.testing.assert_allclose(merged.explained_variance_, whole.explained_variance_, rtol=1e-9)
    assert_same_components(merged.transform(new), whole.transform(new), 1e-9)
    with pytest.raises(ValueError, match=r"different bases.*basis=first.basis_"):
        merged.merge(NystromPCA(Gaussian(0.7), basis=basis[1:]).fit(rows))
    with pytest.raises(ValueError, match="different kernels"):
        merged.merge(NystromPCA(Gaussian(0.8), basis=basis).fit(rows))
    with pytest.raises(ValueError, match="cannot merge a Kernel"):
        merged.merge(KernelPCA().fit(rows))


def test_a_change_of_parameters_counts_from_the_next_rows_on(data, basis):
    rows, _, new, _ = data
    model = NystromPCA(Gaussian(0.7), n_components=4, basis=basis).partial_fit(rows[:100])
    model.set_params(n_components=2, whiten=True)
    assert model.transform(new).shape == (30, 4)
    model.partial_fit(rows[100:])
    expected = NystromPCA(Gaussian(0.7), n_components=2, whiten=True, basis=basis).fit(rows)
    assert_same_components(model.transform(new), expected.transform(new), 1e-9)


# ------------------------------------------------------------------------------------------------- what surrounds it


def test_names_and_frames(data, tmp_path):
    rows, _, new, _ = data
    model = NystromPCA(n_components=2, n_basis=20, random_state=0).fit(rows)
    expected = model.transform(new)
    model.set_output(transform="pandas")
    frame_ = model.transform(new)
    assert list(frame_.columns) == list(model.get_feature_names_out()) == ["nystrompca0", "nystrompca1"]
    np.testing.assert_array_equal(frame_.to_numpy(), expected)
    again = mercer.load(_saved(model))
    assert list(again.transform(new).columns) == ["nystrompca0", "nystrompca1"]


def test_float32_and_sparse_rows(data):
    rows, _, new, _ = data
    model = NystromPCA(Gaussian(0.7), n_components=3, n_basis=40, random_state=0)
    expected = model.fit(rows.astype(np.float32).astype(np.float64)).transform(new)
    assert model.fit(rows.astype(np.float32)).transform(new.astype(np.float32)).dtype == np.float32
    assert_same_components(model.transform(new), expected, 1e-4)
    np.testing.assert_allclose(
        clone(model).fit(sparse.csr_array(rows)).transform(sparse.csr_array(new)), clone(model).fit(rows).transform(new)
    )


def test_a_pipeline_of_components_and_a_linear_model_is_one_expansion(data):
    rows, targets, new, _ = data
    labels = np.digitize(targets, [0.5, 1.5])
    model = make_pipeline(
        StandardScaler(), NystromPCA(Gaussian(1.0), n_components=6, n_basis=50, whiten=True), StandardScaler(),
        LogisticRegression(),
    ).fit(rows, labels)  # fmt: skip
    np.testing.assert_allclose(as_expansion(model).evaluate(new), model.decision_function(new), rtol=0, atol=1e-8)


def test_few_vectors_do_for_the_leading_components(data):
    rows, _, new, _ = data
    model = NystromPCA(Gaussian(1.5), n_components=3, n_basis=150, random_state=0).fit(rows)
    small = compress(model, 15, random_state=0)
    assert np.max(np.abs(small.transform(new) - model.transform(new))) < 0.05
    assert not hasattr(small, "predict")
    fitted = clone(small).fit(rows)
    np.testing.assert_allclose(fitted.transform(new), small.transform(new), rtol=0, atol=1e-6)


def _saved(model):
    file = io.BytesIO()
    mercer.save(model, file)
    file.seek(0)
    return file
