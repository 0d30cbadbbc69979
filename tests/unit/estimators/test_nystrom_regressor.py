"""The model on a basis against dense algebra from the definition."""

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from mercer import ExactRegressor, NystromRegressor
from mercer.kernels import Gaussian, Linear, Matern
from mercer.methods import frame
from tests.oracles import assert_close_to_largest as assert_close
from tests.oracles import each_intercept, each_weighting, worth

KERNELS = {
    "gaussian": Gaussian(0.8, amplitude=2.0),
    "matern 1/2": Matern(1.0, nu=0.5),
    "matern 3/2": Matern([0.7, 1.5], nu=1.5),
    "matern 5/2": Matern(1.0, nu=2.5, amplitude=0.5),
    "sum": Gaussian(0.5) + Linear(0.3),
}

each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def dense_model(kernel, basis, rows, targets, new, *, noise, weights=None, intercept=False, prior=True):
    """Mean and covariance of the Bayesian linear model on [k(x, z), 1], prior precision K_mm and 0."""
    weights = np.ones(len(rows)) if weights is None else weights
    features, new_features = kernel(rows, basis), kernel(new, basis)
    precision = kernel(basis)
    if intercept:
        features, new_features = (np.column_stack([phi, np.ones(len(phi))]) for phi in (features, new_features))
        precision = np.pad(precision, (0, 1))
    # (K_mn W K_nm + λ K_mm) w = K_mn W y
    system = features.T @ (weights[:, np.newaxis] * features) + noise * precision
    mean = new_features @ np.linalg.solve(system, features.T @ (weights * targets.T).T)
    # λ k (K_mn W K_nm + λ K_mm)⁻¹ k (SoR), and k(x,x) - k K_mm⁻¹ k on top of it (DTC)
    covariance = noise * new_features @ np.linalg.solve(system, new_features.T)
    if prior:
        cross = kernel(new, basis)
        covariance += kernel(new) - cross @ np.linalg.solve(kernel(basis), cross.T)
    return mean, covariance


def dense_scale(kernel, basis, rows, targets, *, noise, weights=None, intercept=False):
    """√(yᵀC⁻¹y/n), with C = Q + λW⁻¹, or what is left of its inverse beside a constant."""
    weights = np.ones(len(rows)) if weights is None else weights
    cross = kernel(rows, basis)
    inverse = np.linalg.inv(cross @ np.linalg.solve(kernel(basis), cross.T) + noise * np.diag(1 / weights))
    n = worth(weights)
    if intercept:
        eta = inverse @ np.ones(len(rows))
        inverse, n = inverse - np.outer(eta, eta) / np.sum(eta), n - 1
    return np.sqrt(targets @ inverse @ targets / n)


# ------------------------------------------------------------------------------------------- definition


@each_kernel
@each_intercept
@each_weighting
@pytest.mark.parametrize("noise", [1e-3, 0.1, 10.0])
def test_mean_and_dtc_variance_equal_dense_algebra(data, basis, kernel, intercept, weighted, noise):
    rows, targets, new, weights = data
    weights = weights if weighted else None
    model = NystromRegressor(kernel, basis=basis, noise=noise, intercept=intercept).fit(rows, targets, weights)
    mean, covariance = dense_model(kernel, basis, rows, targets, new, noise=noise, weights=weights, intercept=intercept)
    assert model.rank_ == len(basis)
    assert_close(model.predict(new), mean)
    scale = dense_scale(kernel, basis, rows, targets, noise=noise, weights=weights, intercept=intercept)
    assert model.scale_ == pytest.approx(scale, rel=1e-6)
    assert_close(model.predict(new, return_std=True)[1], model.scale_ * np.sqrt(np.diag(covariance)))
    assert_close(model.predict(new, return_cov=True)[1], model.scale_**2 * covariance)


@each_intercept
def test_sor_variance_equals_dense_algebra_and_vanishes_far_away(data, basis, intercept):
    rows, targets, new, _ = data
    kernel = Gaussian(0.8, amplitude=2.0)
    model = NystromRegressor(kernel, basis=basis, variance="sor", intercept=intercept, noise=0.1).fit(rows, targets)
    _, covariance = dense_model(kernel, basis, rows, targets, new, noise=0.1, intercept=intercept, prior=False)
    assert_close(model.predict(new, return_cov=True)[1], model.scale_**2 * covariance)
    assert_close(model.predict(new, return_std=True)[1], model.scale_ * np.sqrt(np.diag(covariance)))
    if not intercept:
        assert model.predict([[100.0, 100.0]], return_std=True)[1][0] == 0.0


def test_dtc_variance_grows_to_the_prior_far_away(data, basis):
    rows, targets, _, _ = data
    model = NystromRegressor(Gaussian(0.8, amplitude=2.0), basis=basis, noise=0.1, intercept=False).fit(rows, targets)
    far = model.predict([[100.0, 100.0]], return_std=True)[1][0]
    assert far == pytest.approx(model.scale_ * np.sqrt(2.0), rel=1e-12)


def test_all_rows_as_basis_equal_scikit_learns_kernel_ridge(data):
    rows, targets, new, weights = data
    kernel = Matern(1.0, nu=1.5)
    model = NystromRegressor(kernel, basis=rows, noise=0.1, intercept=False).fit(rows, targets, weights)
    reference = KernelRidge(alpha=0.1, kernel="precomputed").fit(kernel(rows), targets, sample_weight=weights)
    assert_close(model.predict(new), reference.predict(kernel(new, rows)))


@each_intercept
def test_several_outputs_are_columns(data, basis, intercept):
    rows, targets, new, weights = data
    both = np.column_stack([targets, targets**2])
    kernel = Gaussian(0.8)
    model = NystromRegressor(kernel, basis=basis, intercept=intercept, noise=0.1).fit(rows, both, weights)
    mean, _ = dense_model(kernel, basis, rows, both, new, noise=0.1, weights=weights, intercept=intercept)
    assert_close(model.predict(new), mean)
    assert model.coefficients_.shape == (16, 2)
    assert np.shape(model.intercept_) == (2,)


def test_fitted_attributes(data):
    rows, targets, _, _ = data
    model = NystromRegressor(Gaussian(0.5), n_basis=25, noise=0.3, random_state=0, intercept=False).fit(rows, targets)
    assert model.n_seen_ == 200
    assert model.noise_ == 0.3
    assert model.rank_ == len(model.basis_) == len(model.coefficients_) == 25
    np.testing.assert_array_equal(model.basis_, rows[model.basis_index_])
    assert model.intercept_ == 0.0


# -------------------------------------------------------------------------------------- statistics add up

BATCHES = {"two": [50, 150], "one first": [1, 199], "ten": [20] * 10, "uneven": [3, 77, 100, 20]}


@each_intercept
@each_weighting
@pytest.mark.parametrize("sizes", BATCHES.values(), ids=BATCHES)
def test_partial_fit_in_any_batches_equals_fit(data, basis, intercept, weighted, sizes):
    rows, targets, new, weights = data
    model, whole = (NystromRegressor(Gaussian(0.8), basis=basis, intercept=intercept, noise=0.1) for _ in range(2))
    for part in np.split(np.arange(200), np.cumsum(sizes)[:-1]):
        model.partial_fit(rows[part], targets[part], weights[part] if weighted else None)
    whole.fit(rows, targets, weights if weighted else None)
    assert model.n_seen_ == 200
    for actual, expected in zip(model.predict(new, return_std=True), whole.predict(new, return_std=True), strict=True):
        assert_close(actual, expected)


def test_partial_fit_goes_on_after_fit(data, basis):
    rows, targets, new, _ = data
    model = NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1, intercept=False).fit(rows[:120], targets[:120])
    model.partial_fit(rows[120:], targets[120:])
    assert_close(
        model.predict(new),
        NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1, intercept=False).fit(rows, targets).predict(new),
    )


def test_partial_fit_takes_basis_and_kernel_from_the_first_rows(data):
    rows, targets, _, _ = data
    model = NystromRegressor("gaussian", n_basis=20, random_state=0, noise=0.1, intercept=False).partial_fit(
        rows[:50], targets[:50]
    )
    basis, scale = model.basis_, model.kernel_.length_scale
    model.partial_fit(3 * rows[50:], targets[50:])
    np.testing.assert_array_equal(model.basis_, basis)
    assert model.kernel_.length_scale == scale


def test_fit_starts_afresh(data, basis):
    rows, targets, new, _ = data
    model = (
        NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1, intercept=False)
        .partial_fit(5 * rows, -targets)
        .fit(rows, targets)
    )
    fresh = NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1, intercept=False).fit(rows, targets)
    np.testing.assert_array_equal(model.predict(new), fresh.predict(new))
    assert model.n_seen_ == 200


@each_intercept
@each_weighting
@pytest.mark.parametrize("how", [("fit", "fit"), ("fit", "partial_fit"), ("partial_fit", "fit")])
def test_merge_equals_fit_of_both(data, basis, intercept, weighted, how):
    rows, targets, new, weights = data
    parts = [slice(0, 70), slice(70, 200)]
    options = {"kernel": Gaussian(0.8), "basis": basis, "intercept": intercept}
    a, b = (
        getattr(NystromRegressor(**options), method)(rows[p], targets[p], weights[p] if weighted else None)
        for p, method in zip(parts, how, strict=True)
    )
    before = b.predict(new)
    merged = a.merge(b)
    whole = NystromRegressor(**options).fit(rows, targets, weights if weighted else None)
    assert merged is a
    assert merged.n_seen_ == 200
    assert_close(merged.predict(new), whole.predict(new))
    assert_close(merged.predict(new, return_std=True)[1], whole.predict(new, return_std=True)[1])
    np.testing.assert_array_equal(b.predict(new), before)


def test_merge_as_the_documentation_says(data):
    rows, targets, new, _ = data
    first = NystromRegressor(n_basis=30, random_state=0, noise=0.1, intercept=False).fit(rows[:100], targets[:100])
    second = NystromRegressor(first.kernel_, basis=first.basis_, noise=0.1, intercept=False).fit(
        rows[100:], targets[100:]
    )
    whole = NystromRegressor(first.kernel_, basis=first.basis_, noise=0.1, intercept=False).fit(rows, targets)
    assert_close(first.merge(second).predict(new), whole.predict(new))


@each_intercept
@each_weighting
def test_forget_undoes(data, basis, intercept, weighted):
    rows, targets, new, weights = data
    weights = weights if weighted else np.ones(200)
    options = {"kernel": Gaussian(0.8), "basis": basis, "intercept": intercept}
    model = NystromRegressor(**options).fit(rows, targets, weights)
    model.forget(rows[60:], targets[60:], weights[60:])
    kept = NystromRegressor(**options).fit(rows[:60], targets[:60], weights[:60])
    assert model.n_seen_ == 60
    assert_close(model.predict(new), kept.predict(new))
    assert_close(model.predict(new, return_std=True)[1], kept.predict(new, return_std=True)[1])


@each_intercept
@pytest.mark.parametrize("noise", [0.1, 0.0, "gcv"])
def test_forgetting_everything_leaves_the_prior(data, basis, intercept, noise):
    rows, targets, new, _ = data
    model = NystromRegressor(Gaussian(0.8, amplitude=2.0), basis=basis, noise=noise, intercept=intercept)
    model.fit(rows, targets).forget(rows, targets)
    mean, std = model.predict(new, return_std=True)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(std, np.sqrt(2.0), rtol=1e-12)
    assert model.n_seen_ == 0
    model.partial_fit(rows, targets)
    fresh = NystromRegressor(Gaussian(0.8, amplitude=2.0), basis=basis, noise=noise, intercept=intercept)
    assert_close(model.predict(new), fresh.partial_fit(rows, targets).predict(new), 1e-6)


# ------------------------------------------------------------------------------------------------- rank


@each_intercept
@pytest.mark.parametrize("noise", [0.1, "gcv"])
def test_duplicate_basis_points_are_left_out(data, basis, intercept, noise):
    rows, targets, new, _ = data
    options = {"kernel": Gaussian(0.8), "noise": noise, "intercept": intercept}
    twice = NystromRegressor(basis=np.vstack([basis, basis[::-1]]), **options).fit(rows, targets)
    once = NystromRegressor(basis=basis, **options).fit(rows, targets)
    assert twice.rank_ == len(basis)
    for actual, expected in zip(twice.predict(new, return_std=True), once.predict(new, return_std=True), strict=True):
        assert_close(actual, expected, 1e-6 if noise == "gcv" else 1e-8)


@each_intercept
@pytest.mark.parametrize("noise", [1e-2, 1.0])
def test_smooth_kernel_on_a_line_has_a_small_rank_and_is_right(intercept, noise):
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 1, size=(500, 1))
    targets = np.sin(6 * rows[:, 0]) + 0.1 * rng.normal(size=500)
    model = NystromRegressor(Gaussian(0.5), basis=rows, noise=noise, intercept=intercept).fit(rows, targets)
    exact = ExactRegressor(Gaussian(0.5), noise=noise, intercept=intercept).fit(rows, targets)
    spectrum = np.linalg.eigvalsh(Gaussian(0.5)(rows))
    assert model.rank_ <= np.sum(spectrum > 1e-16 * spectrum[-1]) < 50
    new = np.linspace(-0.1, 1.1, 50)[:, np.newaxis]
    assert_close(model.predict(new), exact.predict(new))
    assert_close(model.predict(new, return_std=True)[1], exact.predict(new, return_std=True)[1])


def test_linear_kernel_has_the_rank_of_the_features():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100, 3)) @ np.diag([1.0, 2.0, 3.0])
    targets = rows @ [1.0, -1.0, 0.5] + 2.0
    model = NystromRegressor(Linear(), n_basis=50, noise=1e-8, intercept=True, random_state=0).fit(rows, targets)
    assert model.rank_ == 3
    assert_close(model.predict(rows), targets, 1e-8)
    assert model.intercept_ == pytest.approx(2.0, rel=1e-8)


# --------------------------------------------------------------------------------------- plain or whitened


def test_plain_sums_are_used_where_noise_drowns_their_rounding_and_agree_with_whitened_ones(data, basis, monkeypatch):
    monkeypatch.setattr(frame, "_LONG_PASS", 0.0)
    rows, targets, new, _ = data
    plain = NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1, intercept=False).fit(rows, targets)
    whitened = NystromRegressor(Gaussian(0.8), basis=basis, noise=0.1, intercept=False).partial_fit(rows, targets)
    assert not plain._whitened
    assert whitened._whitened
    for actual, expected in zip(
        plain.predict(new, return_std=True), whitened.predict(new, return_std=True), strict=True
    ):
        assert_close(actual, expected)


@pytest.mark.parametrize("noise", [1e-2, 1e-1, 1.0, 10.0, 1e2, 1e3, 1e4])
@pytest.mark.parametrize("scale", [0.5, 1.0, 1.5, 2.0])
def test_whichever_sums_fit_chooses_equal_the_whitened_ones(noise, scale):
    rng = np.random.default_rng(0)
    basis, rows = rng.uniform(-2, 2, size=(60, 2)), rng.uniform(-2, 2, size=(3000, 2))
    targets = np.sin(2 * rows[:, 0]) + 0.1 * rng.normal(size=3000)
    chosen = NystromRegressor(Gaussian(scale), basis=basis, noise=noise, intercept=False).fit(rows, targets)
    whitened = NystromRegressor(Gaussian(scale), basis=basis, noise=noise, intercept=False).partial_fit(rows, targets)
    actual, expected = (model.predict(rows[:300], return_std=True) for model in (chosen, whitened))
    assert_close(actual[0], expected[0])
    assert_close(actual[1], expected[1])


@pytest.mark.parametrize("noise", [1e-9, 0.0, "gcv"])
def test_whitened_sums_are_used_where_noise_does_not_protect(data, noise):
    rows, targets, _, _ = data
    model = NystromRegressor(Gaussian(2.0), n_basis=50, noise=noise, random_state=0, intercept=False).fit(rows, targets)
    assert model._whitened


def test_small_noise_on_an_ill_conditioned_basis_keeps_its_digits():
    # 30 points on a line, K_mm of condition 1e16: the normal equations in plain form have no correct digit.
    rng = np.random.default_rng(0)
    rows = np.sort(rng.uniform(0, 3, size=(300, 1)), axis=0)
    targets = np.sin(3 * rows[:, 0])
    model = NystromRegressor(Gaussian(1.0), basis=rows[::10], noise=1e-8, intercept=False).fit(rows, targets)
    # The function is in the span to 1e-5 or better, and the noise lets it be found.
    assert np.max(np.abs(model.predict(rows) - targets)) < 1e-4


# ------------------------------------------------------------------------------------------------- dtypes


def test_float32_rows_keep_float64_sums(data):
    rows, targets, new, _ = data
    single = rows.astype(np.float32)
    model = NystromRegressor(Gaussian(0.8), basis=rows[:20], noise=0.1, intercept=False).fit(single, targets)
    double = NystromRegressor(Gaussian(0.8), basis=rows[:20], noise=0.1, intercept=False).fit(
        single.astype(np.float64), targets
    )
    assert model.statistics_.sums.dtype == np.float64
    assert model.predict(new.astype(np.float32)).dtype == np.float32
    # Kernel values are rounded to 1e-7; an ill-conditioned basis magnifies it, noise 0.1 holds it.
    assert_close(model.predict(new), double.predict(new), 1e-4)


# ------------------------------------------------------------------------------------- one basis, two models


@pytest.mark.parametrize("seed", range(20))
def test_a_basis_given_to_another_model_makes_the_same_frame(seed):
    # Smooth kernel, near-singular basis, and on every other seed a grid, whose pivots tie.
    rng = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0)), axis=-1).reshape(-1, 2)
    rows = np.repeat(grid, 6, axis=0) if seed % 2 else rng.normal(size=(384, 2))
    targets = rng.normal(size=384)
    first = NystromRegressor(Gaussian(2.0), n_basis=100, random_state=seed, noise=0.1, intercept=False).fit(
        rows[:200], targets[:200]
    )
    second = NystromRegressor(first.kernel_, basis=first.basis_, noise=0.1, intercept=False).fit(
        rows[200:], targets[200:]
    )
    np.testing.assert_array_equal(first._summary.frame.lower, second._summary.frame.lower)
    joint = NystromRegressor(first.kernel_, basis=first.basis_, noise=0.1, intercept=False).fit(rows, targets)
    assert_close(first.merge(second).predict(rows), joint.predict(rows))


@pytest.mark.parametrize("offset", [1e6, 1e10])
@pytest.mark.parametrize("noise", [0.1, "gcv"])
def test_an_offset_of_the_targets_goes_into_the_intercept(offset, noise):
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(500, 2))
    targets = np.sin(2 * rows[:, 0]) + 0.1 * rng.normal(size=500)
    options = {"noise": noise, "intercept": True, "n_basis": 100, "random_state": 0}
    near = NystromRegressor(Gaussian(1.0), **options).fit(rows, targets)
    far = NystromRegressor(Gaussian(1.0), **options).fit(rows, targets + offset)
    # The targets themselves keep eps·offset of their digits; the choice of noise magnifies that a little.
    np.testing.assert_allclose(far.predict(rows) - offset, near.predict(rows), rtol=0, atol=100 * offset * 2.2e-16)


def test_a_noise_too_small_for_plain_sums_is_refused(monkeypatch):
    monkeypatch.setattr(frame, "_LONG_PASS", 0.0)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(2000, 2))
    targets = np.sin(2 * rows[:, 0])
    model = NystromRegressor(Gaussian(1.5), n_basis=60, noise=1e6, random_state=0, intercept=False).fit(rows, targets)
    assert not model._whitened
    with pytest.raises(ValueError, match=r"noise=1e-08 is too small.*noise='gcv'"):
        model.noise_path([1.0e6, 1e-8])
