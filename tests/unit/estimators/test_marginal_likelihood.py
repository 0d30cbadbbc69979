"""``log_marginal_likelihood_`` of all who have it is one density, checked against SciPy's and scikit-learn's."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from mercer import CommitteeRegressor, CompactRegressor, ExactRegressor, NystromRegressor
from mercer.kernels import Gaussian, Wendland
from tests.oracles import worth

SMOOTH = Gaussian(np.array([1.0, 2.0]))


def draw(n=40, p=2, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 2))
    return rows, np.sin(rows[:, :1]) + 0.3 * rng.normal(size=(n, p)) + [5.0, -1.0][:p]


def exact(rows):
    return SMOOTH(rows)


def low_rank(rows):
    cross = SMOOTH(rows, rows[:10])
    return cross @ np.linalg.solve(SMOOTH(rows[:10]), cross.T)


def fitc(rows):
    return low_rank(rows) + np.diag(np.diag(SMOOTH(rows) - low_rank(rows)))


MODELS = {
    "exact": (lambda rows, **options: ExactRegressor(SMOOTH, **options), exact),
    "nystrom": (lambda rows, **options: NystromRegressor(SMOOTH, basis=rows[:10], **options), low_rank),
    "committee": (lambda rows, **options: CommitteeRegressor(SMOOTH, basis=rows[:10], block_size=1, **options), fitc),
    "compact": (
        lambda rows, **options: CompactRegressor(Wendland(2.0), solver="cholesky", **options),
        Wendland(2.0),
    ),
}
each_model = pytest.mark.parametrize(("make", "covariance"), MODELS.values(), ids=MODELS)


def density(model, matrix, targets, *, intercept):
    """By the definition: N(y; 0, σ²M), with a flat prior of the constant that of contrasts."""
    n = len(matrix)
    # ∫ N(y; b1, M) db is the density of an orthonormal basis of contrasts, over the length √n of 1
    contrasts = np.linalg.svd(np.ones((1, n)))[2][1:] if intercept else np.eye(n)
    total = 0.0
    for column, scale in zip(targets.T, np.atleast_1d(model.scale_), strict=True):
        normal = multivariate_normal(np.zeros(len(contrasts)), scale**2 * contrasts @ matrix @ contrasts.T)
        total += normal.logpdf(contrasts @ column) - intercept * np.log(n) / 2
    return total


@each_model
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("noise", [0.05, 2.0, "auto"])
def test_it_is_the_density_of_the_targets(make, covariance, intercept, noise):
    rows, targets = draw()
    model = make(rows, noise=noise, intercept=intercept).fit(rows, targets)
    matrix = covariance(rows) + model.noise_ * np.eye(len(rows))
    expected = density(model, matrix, targets, intercept=intercept)
    assert model.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-8)


@each_model
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("choices", [[1.0, 2.0, 4.0], [1.0, 2.0, 3.5]], ids=["whole", "relative"])
def test_weights_divide_the_noise_and_count_rows(make, covariance, intercept, choices):
    rows, targets = draw(p=1)
    weights = np.random.default_rng(1).choice(choices, size=len(rows))
    model = make(rows, noise=0.3, intercept=intercept).fit(rows, targets[:, 0], weights)
    matrix = covariance(rows) + np.diag(0.3 / weights)
    # N rows that are n averages: each has the density of its average, and that of what lies within
    n, counted, variance = len(rows), worth(weights), 0.3 * model.scale_**2
    expected = density(model, matrix, targets, intercept=intercept)
    expected -= ((counted - n) * np.log(2 * np.pi * variance) + np.sum(np.log(weights))) / 2
    assert model.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("make", [MODELS[name][0] for name in ("exact", "nystrom", "compact")])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_row_of_weight_two_is_two_rows(make, intercept):
    rows, targets = draw(p=1)
    weights = np.random.default_rng(1).integers(1, 4, size=len(rows))
    options = {"noise": 0.3, "intercept": intercept}
    once = make(rows, **options).fit(rows, targets[:, 0], weights)
    each = make(rows, **options).fit(np.repeat(rows, weights, axis=0), np.repeat(targets[:, 0], weights))
    assert once.log_marginal_likelihood_ == pytest.approx(each.log_marginal_likelihood_, rel=1e-8)


def test_it_is_that_of_scikit_learn():
    rows, targets = draw(p=1)
    model = ExactRegressor(SMOOTH, noise=0.1, intercept=False).fit(rows, targets[:, 0])
    kernel = ConstantKernel(model.scale_**2) * RBF([1.0, 2.0])
    peer = GaussianProcessRegressor(kernel, alpha=0.1 * model.scale_**2, optimizer=None).fit(rows, targets[:, 0])
    assert model.log_marginal_likelihood_ == pytest.approx(peer.log_marginal_likelihood_value_, rel=1e-9)


def test_the_best_scale_is_in_it():
    rows, targets = draw(p=1)
    model = ExactRegressor(SMOOTH, noise=0.1, intercept=False).fit(rows, targets[:, 0])
    for factor in (0.9, 1.1):
        system = (factor * model.scale_) ** 2 * (exact(rows) + 0.1 * np.eye(40))
        assert model.log_marginal_likelihood_ > multivariate_normal(np.zeros(40), system).logpdf(targets[:, 0])


def test_rows_that_come_and_go_leave_that_of_the_rest():
    rows, targets = draw(60)
    make = MODELS["nystrom"][0]
    model = make(rows, noise=0.1).fit(rows[:50], targets[:50])
    model.partial_fit(rows[50:], targets[50:]).forget(rows[20:30], targets[20:30])
    kept = np.r_[0:20, 30:60]
    alone = make(rows, noise=0.1).fit(rows[kept], targets[kept])
    assert model.log_marginal_likelihood_ == pytest.approx(alone.log_marginal_likelihood_, rel=1e-8)


def test_without_noise_a_basis_has_no_density_and_without_a_factor_nothing_is_known():
    rows, targets = draw()
    with pytest.raises(ValueError, match="needs a noise above zero"):
        _ = MODELS["nystrom"][0](rows, noise=0.0).fit(rows, targets).log_marginal_likelihood_
    with pytest.raises(ValueError, match="solver='cholesky'"):
        _ = ExactRegressor(SMOOTH, noise=0.1, solver="cg").fit(rows, targets).log_marginal_likelihood_


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows_have_one(n):
    rows, targets = draw(n, p=1)
    model = ExactRegressor(SMOOTH, noise=0.1).fit(rows, targets[:, 0])
    assert np.isfinite(model.log_marginal_likelihood_)
    if n == 1:  # a flat prior takes one target whole
        assert model.log_marginal_likelihood_ == pytest.approx(0.0, abs=1e-12)
