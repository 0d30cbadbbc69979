"""Nyström features are scikit-learn's on the same landmarks, whose inner products approximate the kernel."""

import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from mercer import NystromFeatures, NystromRegressor
from mercer.compression import as_expansion, compress
from mercer.kernels import Gaussian, Linear, Matern, Polynomial, Sum

KERNELS = [
    (Gaussian(0.7), {"kernel": "rbf", "gamma": 0.5 / 0.7**2}),
    (Polynomial(degree=2, scale=0.5, offset=1.0), {"kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 1.0}),
]
both = pytest.mark.parametrize("root", ["symmetric", "cholesky"])


@pytest.mark.parametrize(("kernel", "options"), KERNELS, ids=["gaussian", "polynomial"])
def test_on_the_same_landmarks_it_is_nystroem(data, basis, kernel, options):
    rows, _, new, _ = data
    landmarks = rows[:6] if isinstance(kernel, Polynomial) else basis  # a quadratic in two variables has rank 6
    peer = Nystroem(n_components=len(landmarks), **options).fit(landmarks)
    model = NystromFeatures(kernel, basis=peer.components_).fit(rows)
    np.testing.assert_allclose(model.transform(new), peer.transform(new), rtol=0, atol=1e-8)


@both
def test_inner_products_are_the_kernels_approximation(data, basis, root):
    rows, _, new, _ = data
    kernel = Sum(Gaussian(0.7), Linear(0.1))
    features = NystromFeatures(kernel, basis=basis, root=root).fit(rows).transform(new)
    # VVᵀ = K_nm K_mm⁻¹ K_mn
    expected = kernel(new, basis) @ np.linalg.solve(kernel(basis), kernel(basis, new))
    np.testing.assert_allclose(features @ features.T, expected, rtol=0, atol=1e-8)
    left = np.linalg.eigvalsh(kernel(new) - features @ features.T)
    assert left[0] > -1e-10


def test_the_first_features_of_the_cholesky_root_are_those_of_the_first_points(data, basis):
    rows, _, new, _ = data
    whole, part = (NystromFeatures(Matern(1.0), basis=b, root="cholesky").fit(rows) for b in (basis, basis[:5]))
    np.testing.assert_allclose(whole.transform(new)[:, :5], part.transform(new), rtol=0, atol=1e-12)


@both
def test_points_that_repeat_add_no_feature(data, basis, root):
    rows, _, new, _ = data
    once, twice = (
        NystromFeatures(Gaussian(), basis=each, root=root).fit(rows) for each in (basis, np.vstack([basis, basis]))
    )
    assert twice.rank_ == once.rank_ == len(basis)
    assert "span the others" in twice.basis_note_
    a, b = once.transform(new), twice.transform(new)
    np.testing.assert_allclose(b @ b.T, a @ a.T, rtol=0, atol=1e-10)


@both
def test_a_linear_model_of_the_features_is_nystrom_regression(data, root):
    rows, targets, new, _ = data
    options = {"n_basis": 40, "random_state": 0}
    pipeline = make_pipeline(NystromFeatures("matern", root=root, **options), Ridge(alpha=0.1, fit_intercept=False))
    model = NystromRegressor("matern", noise=0.1, intercept=False, **options).fit(rows, targets)
    np.testing.assert_allclose(pipeline.fit(rows, targets).predict(new), model.predict(new), rtol=0, atol=1e-8)
    np.testing.assert_allclose(as_expansion(pipeline).evaluate(new)[:, 0], model.predict(new), rtol=0, atol=1e-8)
    small = compress(pipeline, 40, random_state=0)
    np.testing.assert_allclose(small.predict(new), pipeline.predict(new), rtol=0, atol=1e-6)


def test_names_and_frames(data):
    rows, _, new, _ = data
    model = NystromFeatures(n_basis=3, random_state=0).set_output(transform="polars").fit(rows)
    frame = model.transform(new)
    assert frame.columns == ["nystromfeatures0", "nystromfeatures1", "nystromfeatures2"]
    model.set_output(transform="default")
    np.testing.assert_array_equal(frame.to_numpy(), model.transform(new))


def test_a_root_that_there_is_not(data):
    with pytest.raises(ValueError, match=r"root.*'(cholesky|symmetric)'"):
        NystromFeatures(root="lu").fit(data[0])
