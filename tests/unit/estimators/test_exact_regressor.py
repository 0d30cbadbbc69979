"""The exact model against dense algebra from the definition and against scikit-learn, to 1e-8 relative."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.gaussian_process.kernels import Matern as SklearnMatern
from sklearn.kernel_ridge import KernelRidge

from mercer import ExactRegressor
from mercer.exceptions import JitterWarning
from mercer.kernels import Gaussian, Matern, Precomputed
from tests.oracles import assert_close_to_largest as assert_close
from tests.oracles import each_intercept, each_weighting, worth

SCALES = [0.7, np.array([0.5, 1.0, 2.0])]
AMPLITUDE = 2.5
NOISES = [1e-3, 0.1, 10.0]

each_scale = pytest.mark.parametrize("scale", SCALES, ids=["one scale", "per feature"])
each_noise = pytest.mark.parametrize("noise", NOISES)
each_smoothness = pytest.mark.parametrize("nu", [0.5, 1.5, 2.5, np.inf], ids=["1/2", "3/2", "5/2", "gaussian"])


def kernel_pair(nu, scale):
    """The same kernel of ours and of scikit-learn."""
    if np.isinf(nu):
        return Gaussian(scale, amplitude=AMPLITUDE), ConstantKernel(AMPLITUDE) * RBF(scale)
    return Matern(scale, nu=nu, amplitude=AMPLITUDE), ConstantKernel(AMPLITUDE) * SklearnMatern(scale, nu=nu)


def gaussian_matrix(a, b, scale=0.7):
    """exp(-|x - z|²/(2ℓ²)), pair by pair."""
    differences = (a[:, np.newaxis] - b[np.newaxis]) / scale
    return AMPLITUDE * np.exp(-np.sum(differences**2, axis=2) / 2)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(50, 3))
    targets = np.sin(rows @ [1.0, 2.0, -1.0]) + 0.1 * rng.normal(size=50) + 3.0
    return rows, targets, rng.uniform(-3, 3, size=(20, 3)), rng.uniform(0.1, 3.0, size=50)


def dense_system(rows, noise, weights=None):
    """H = K + λW⁻¹."""
    weights = np.ones(len(rows)) if weights is None else weights
    return gaussian_matrix(rows, rows) + noise * np.diag(1 / weights)


def dense_model(rows, targets, new, *, noise, weights=None, intercept=False):
    """Mean and covariance from the bordered system [[H, 1], [1ᵀ, 0]] (LS-SVM, universal kriging) or from H."""
    system, cross = dense_system(rows, noise, weights), gaussian_matrix(new, rows)
    right = targets
    if intercept:
        ones = np.ones((len(rows), 1))
        system = np.block([[system, ones], [ones.T, np.zeros((1, 1))]])
        cross = np.column_stack([cross, np.ones(len(new))])
        right = np.concatenate([targets, np.zeros((1, *targets.shape[1:]))])
    mean = cross @ np.linalg.solve(system, right)
    covariance = gaussian_matrix(new, new) - cross @ np.linalg.solve(system, cross.T)
    return mean, covariance


def dense_scale(rows, targets, *, noise, weights=None, intercept=False):
    """√(yᵀM⁻¹y/n): M is H, or what is left of it beside a constant; n counts a row as often as its weight."""
    weights = np.ones(len(rows)) if weights is None else weights
    inverse = np.linalg.inv(dense_system(rows, noise, weights))
    n = worth(weights)
    if intercept:
        eta = inverse @ np.ones(len(rows))
        inverse, n = inverse - np.outer(eta, eta) / np.sum(eta), n - 1
    return np.sqrt(targets @ inverse @ targets / n)


# ------------------------------------------------------------------------------------------- scikit-learn


@each_smoothness
@each_scale
@each_noise
def test_mean_std_and_covariance_equal_scikit_learns_gaussian_process(data, nu, scale, noise):
    rows, targets, new, _ = data
    ours, theirs = kernel_pair(nu, scale)
    model = ExactRegressor(ours, noise=noise, intercept=False).fit(rows, targets)
    reference = GaussianProcessRegressor(theirs, alpha=noise, optimizer=None).fit(rows, targets)
    mean, std = model.predict(new, return_std=True)
    _, covariance = model.predict(new, return_cov=True)
    expected_mean, expected_std = reference.predict(new, return_std=True)
    _, expected_covariance = reference.predict(new, return_cov=True)
    assert_close(mean, expected_mean)
    assert_close(std, model.scale_ * expected_std)
    assert_close(covariance, model.scale_**2 * expected_covariance)


@each_smoothness
@each_scale
@each_noise
@each_weighting
def test_mean_equals_scikit_learns_kernel_ridge(data, nu, scale, noise, weighted):
    rows, targets, new, weights = data
    ours, theirs = kernel_pair(nu, scale)
    weights = weights if weighted else None
    model = ExactRegressor(ours, noise=noise, intercept=False).fit(rows, targets, sample_weight=weights)
    reference = KernelRidge(alpha=noise, kernel="precomputed").fit(theirs(rows), targets, sample_weight=weights)
    assert_close(model.predict(new), reference.predict(theirs(new, rows)))


def test_weights_are_a_noise_per_row_of_scikit_learns_gaussian_process(data):
    rows, targets, new, weights = data
    ours, theirs = kernel_pair(np.inf, 0.7)
    model = ExactRegressor(ours, noise=0.1, intercept=False).fit(rows, targets, weights)
    mean, std = model.predict(new, return_std=True)
    reference = GaussianProcessRegressor(theirs, alpha=0.1 / weights, optimizer=None).fit(rows, targets)
    expected_mean, expected_std = reference.predict(new, return_std=True)
    assert_close(mean, expected_mean)
    assert_close(std, model.scale_ * expected_std)


# ------------------------------------------------------------------------------------------- definition


@each_intercept
@each_weighting
@each_noise
def test_model_equals_dense_algebra(data, intercept, weighted, noise):
    rows, targets, new, weights = data
    weights = weights if weighted else None
    model = ExactRegressor(Gaussian(0.7, AMPLITUDE), noise=noise, intercept=intercept).fit(rows, targets, weights)
    mean, covariance = dense_model(rows, targets, new, noise=noise, weights=weights, intercept=intercept)
    assert_close(model.predict(new), mean)
    scale = dense_scale(rows, targets, noise=noise, weights=weights, intercept=intercept)
    assert model.scale_ == pytest.approx(scale, rel=1e-8)
    assert_close(model.predict(new, return_std=True)[1], scale * np.sqrt(np.diag(covariance)))
    assert_close(model.predict(new, return_cov=True)[1], scale**2 * covariance)


@each_weighting
def test_intercept_and_coefficients_solve_the_bordered_system(data, weighted):
    rows, targets, _, weights = data
    weights = weights if weighted else None
    model = ExactRegressor(Gaussian(0.7, AMPLITUDE), noise=0.1, intercept=True).fit(rows, targets, weights)
    ones = np.ones((50, 1))
    bordered = np.block([[dense_system(rows, 0.1, weights), ones], [ones.T, np.zeros((1, 1))]])
    *alpha, b = np.linalg.solve(bordered, np.append(targets, 0.0))
    assert_close(model.coefficients_, np.array(alpha))
    assert model.intercept_ == pytest.approx(b, rel=1e-8)
    assert isinstance(model.intercept_, float)


def test_an_intercept_is_a_constant_with_a_flat_prior(data):
    rows, targets, new, _ = data
    model = ExactRegressor(Gaussian(0.7, AMPLITUDE), noise=0.1, intercept=True).fit(rows, targets)
    prior_variance = 1e6
    theirs = ConstantKernel(AMPLITUDE) * RBF(0.7) + ConstantKernel(prior_variance)
    limit = GaussianProcessRegressor(theirs, alpha=0.1, optimizer=None).fit(rows, targets)
    mean, std = model.predict(new, return_std=True)
    expected_mean, expected_std = limit.predict(new, return_std=True)
    # The limit is reached up to O(1/prior variance).
    assert_close(mean, expected_mean, 1e-5)
    assert_close(std, model.scale_ * expected_std, 1e-5)


@each_intercept
def test_several_outputs_are_columns(data, intercept):
    rows, targets, new, weights = data
    both = np.column_stack([targets, -2 * targets**2])
    model = ExactRegressor(Gaussian(0.7, AMPLITUDE), intercept=intercept, noise=0.1).fit(rows, both, weights)
    mean, covariance = dense_model(rows, both, new, noise=0.1, weights=weights, intercept=intercept)
    assert_close(model.predict(new), mean)
    std, covariances = (model.predict(new, **{what: True})[1] for what in ("return_std", "return_cov"))
    for column, scale in enumerate(model.scale_):
        single = ExactRegressor(Gaussian(0.7, AMPLITUDE), intercept=intercept, noise=0.1)
        assert scale == pytest.approx(single.fit(rows, both[:, column], weights).scale_, rel=1e-12)
        assert_close(std[:, column], scale * np.sqrt(np.diag(covariance)))
        assert_close(covariances[:, :, column], scale**2 * covariance)
    assert model.coefficients_.shape == (50, 2)
    assert model.intercept_.shape == (2,)


def test_one_column_stays_a_column(data):
    rows, targets, new, _ = data
    assert ExactRegressor(noise=0.1, intercept=False).fit(rows, targets[:, np.newaxis]).predict(new).shape == (20, 1)


# ----------------------------------------------------------------------------------------- leave-one-out


@each_intercept
@each_weighting
def test_leave_one_out_equals_explicit_refits(data, intercept, weighted):
    rows, targets, _, weights = data
    rows, both, weights = rows[:20], np.column_stack([targets, targets**2])[:20], weights[:20]
    kept_weights = weights if weighted else None
    model = ExactRegressor(Gaussian(0.7, AMPLITUDE), intercept=intercept, noise=0.1)
    residuals = model.fit(rows, both, kept_weights).loo_residuals()
    for i in range(20):
        kept = np.delete(np.arange(20), i)
        mean, _ = dense_model(
            rows[kept], both[kept], rows[i : i + 1], noise=0.1,
            weights=kept_weights[kept] if weighted else None, intercept=intercept,
        )  # fmt: skip
        assert_close(residuals[i], both[i] - mean[0])


def test_leave_one_out_of_rows_without_weight_is_unknown(data):
    rows, targets, _, weights = data
    weights = weights.copy()
    weights[3] = 0.0
    residuals = ExactRegressor(noise=0.1, intercept=False).fit(rows, targets, weights).loo_residuals()
    assert np.flatnonzero(np.isnan(residuals)).tolist() == [3]


# ------------------------------------------------------------------------------------------- precomputed


@each_intercept
@each_weighting
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_precomputed_matrix_equals_kernel(data, intercept, weighted, solver):
    rows, targets, new, weights = data
    weights = np.where(np.arange(50) % 7, weights, 0.0) if weighted else None  # rows without weight among them
    options = {"noise": 0.1, "intercept": intercept, "solver": solver, "tol": 1e-12}
    kernel = Gaussian(0.7, AMPLITUDE)
    expected = ExactRegressor(kernel, **options).fit(rows, targets, weights)
    actual = ExactRegressor("precomputed", **options).fit(kernel(rows), targets, weights)
    assert_close(actual.predict(kernel(new, rows)), expected.predict(new))
    if solver == "cholesky":
        np.testing.assert_allclose(actual.loo_residuals(), expected.loo_residuals(), rtol=1e-8)


def test_precomputed_object_means_the_same_as_the_name(data):
    rows, targets, new, _ = data
    kernel = Gaussian(0.7)
    by_name = (
        ExactRegressor("precomputed", noise=0.1, intercept=False).fit(kernel(rows), targets).predict(kernel(new, rows))
    )
    np.testing.assert_array_equal(
        ExactRegressor(Precomputed(), noise=0.1, intercept=False).fit(kernel(rows), targets).predict(kernel(new, rows)),
        by_name,
    )


def test_precomputed_needs_a_square_matrix(data):
    rows, targets, _, _ = data
    with pytest.raises(ValueError, match=r"precomputed.*square"):
        ExactRegressor("precomputed", noise=0.1, intercept=False).fit(rows, targets)


def test_precomputed_has_no_std_of_new_rows(data):
    rows, targets, _, _ = data
    matrix = Gaussian(0.7)(rows)
    with pytest.raises(ValueError, match="precomputed"):
        ExactRegressor("precomputed", noise=0.1, intercept=False).fit(matrix, targets).predict(matrix, return_std=True)


# ----------------------------------------------------------------------------------- conjugate gradients


@each_intercept
@each_weighting
def test_conjugate_gradients_equal_cholesky(data, intercept, weighted):
    rows, targets, new, weights = data
    both = np.column_stack([targets, targets**2])
    weights = weights if weighted else None
    kernel = Matern(0.7, nu=0.5)
    direct = ExactRegressor(kernel, intercept=intercept, noise=0.1).fit(rows, both, weights)
    iterative = ExactRegressor(kernel, intercept=intercept, solver="cg", tol=1e-12, noise=0.1).fit(rows, both, weights)
    assert_close(iterative.predict(new), direct.predict(new))
    assert_close(iterative.coefficients_, direct.coefficients_)


@pytest.fixture
def hard():
    """More rows than the preconditioner's rank, a rough kernel, little noise: it takes many iterations."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(size=(600, 2))
    return rows, rng.normal(size=600)


def test_conjugate_gradients_stop_by_the_relative_residual(hard):
    rows, targets = hard
    model = ExactRegressor(Matern(1.0, nu=0.5), noise=1e-3, solver="cg", tol=1e-4, random_state=0, intercept=False).fit(
        rows, targets
    )
    system = Matern(1.0, nu=0.5)(rows) + 1e-3 * np.eye(600)
    residual = np.linalg.norm(targets - system @ model.coefficients_) / np.linalg.norm(targets)
    assert residual <= 1e-4
    assert residual >= 1e-8, "it did not go on for nothing"
    assert 1 < model.n_iter_ < 600


def test_conjugate_gradients_warn_when_they_did_not_converge(hard):
    rows, targets = hard
    model = ExactRegressor(
        Matern(1.0, nu=0.5), noise=1e-6, solver="cg", tol=1e-10, max_iter=3, random_state=0, intercept=False
    )
    with pytest.warns(ConvergenceWarning, match="stopped after 3 iterations.*above tol=1.0e-10.*max_iter"):
        model.fit(rows, targets)
    assert model.n_iter_ == 3
    assert np.all(np.isfinite(model.predict(rows)))


@pytest.mark.parametrize("what", ["return_std", "return_cov"])
def test_conjugate_gradients_refuse_error_bars(data, what):
    rows, targets, new, _ = data
    model = ExactRegressor(solver="cg", noise=0.1, intercept=False).fit(rows, targets)
    with pytest.raises(ValueError, match=f"{what}.*solver='cholesky'"):
        model.predict(new, **{what: True})


def test_conjugate_gradients_refuse_leave_one_out(data):
    rows, targets, _, _ = data
    with pytest.raises(ValueError, match=r"loo_residuals.*solver='cholesky'"):
        ExactRegressor(solver="cg", noise=0.1, intercept=False).fit(rows, targets).loo_residuals()


def test_conjugate_gradients_need_noise(data):
    rows, targets, _, _ = data
    with pytest.raises(ValueError, match="noise must be above zero with solver='cg'"):
        ExactRegressor(solver="cg", noise=0.0, intercept=False).fit(rows, targets)


def test_verbose_conjugate_gradients_say_how_far_they_are(data, capsys):
    rows, targets, _, _ = data
    ExactRegressor(solver="cg", verbose=1, noise=0.1, intercept=False).fit(rows, targets)
    assert "conjugate gradients: iteration 0" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------ special cases


def test_without_noise_it_interpolates(data):
    rows, targets, _, _ = data
    model = ExactRegressor(Matern(0.7, nu=0.5), noise=0.0, intercept=False).fit(rows, targets)
    mean, std = model.predict(rows, return_std=True)
    assert_close(mean, targets)
    # A variance of zero is found up to eps times the condition number (1e3): its root up to 1e-6.
    assert np.max(std) < 1e-6
    assert model.jitter_ == 0.0


def test_duplicate_rows_without_noise_are_reported_and_averaged(data):
    rows, targets, _, _ = data
    rows, targets = np.vstack([rows, rows[:1]]), np.append(targets, targets[0] + 2.0)
    with pytest.warns(JitterWarning, match="larger noise"):
        model = ExactRegressor(Matern(0.7, nu=0.5), noise=0.0, intercept=False).fit(rows, targets)
    assert model.jitter_ > 0
    # The jitter treats both alike, and is at most 1e-6 of the diagonal.
    assert model.predict(rows[:1])[0] == pytest.approx(targets[0] + 1.0, rel=1e-4)


@each_intercept
@pytest.mark.parametrize("weight", [1e-8, 1e-16, 1e-100, 1e-300, 5e-324])
def test_a_row_of_vanishing_weight_has_no_say(data, intercept, weight):
    rows, targets, new, _ = data
    weights = np.ones(50)
    weights[0] = weight
    model = ExactRegressor(Gaussian(0.7), intercept=intercept, noise=0.1).fit(rows, targets, weights)
    without = ExactRegressor(Gaussian(0.7), intercept=intercept, noise=0.1).fit(rows[1:], targets[1:])
    mean, std = model.predict(new, return_std=True)
    expected_mean, expected_std = without.predict(new, return_std=True)
    # Its say is of the order weight/noise.
    assert_close(mean, expected_mean, max(1e-8, 100 * weight))
    assert_close(std, expected_std, max(1e-8, 100 * weight))
    assert model.jitter_ == 0.0


def test_float32_rows_give_float32_means_of_the_float64_model(data):
    rows, targets, new, _ = data
    single, new = rows.astype(np.float32), new.astype(np.float32)
    kernel = Gaussian(0.7)
    mean = ExactRegressor(kernel, noise=0.1, intercept=False).fit(single, targets).predict(new)
    expected = (
        ExactRegressor(kernel, noise=0.1, intercept=False)
        .fit(single.astype(np.float64), targets)
        .predict(new.astype(np.float64))
    )
    assert mean.dtype == np.float32
    # float32 is used only where its rounding stays below 1e-4 of the function's size.
    assert_close(mean, expected, 1e-4)


# ------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_an_offset_of_the_targets_goes_into_the_intercept(solver):
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(300, 2))
    targets = np.sin(2 * rows[:, 0]) + 0.1 * rng.normal(size=300)
    options = {"noise": 0.01, "intercept": True, "solver": solver, "tol": 1e-12, "random_state": 0}
    near = ExactRegressor(Gaussian(1.0), **options).fit(rows, targets)
    far = ExactRegressor(Gaussian(1.0), **options).fit(rows, targets + 1e6)
    # The targets themselves keep only 1e6·eps = 2e-10 of their digits, and small noise magnifies that.
    np.testing.assert_allclose(far.predict(rows) - 1e6, near.predict(rows), rtol=0, atol=1e-7)


def test_a_row_of_tiny_weight_has_no_say_and_causes_no_jitter():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(100, 2))
    targets, weights = np.sin(2 * rows[:, 0]), np.ones(100)
    weights[:3] = 1e-14
    model = ExactRegressor(Matern(1.0), noise=0.01, intercept=False).fit(rows, targets, weights)
    without = ExactRegressor(Matern(1.0), noise=0.01, intercept=False).fit(rows[3:], targets[3:])
    assert model.jitter_ == 0.0
    np.testing.assert_allclose(model.predict(rows), without.predict(rows), rtol=0, atol=1e-10)
