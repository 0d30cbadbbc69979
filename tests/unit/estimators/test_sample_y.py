"""Draws of functions: their moments are those of ``predict``, jointly; what cannot be drawn is refused."""

import warnings

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from mercer import (
    AutoRegressor,
    CommitteeRegressor,
    CompactRegressor,
    ExactRegressor,
    NystromRegressor,
    OnlineRegressor,
    PseudoInputRegressor,
    ReducedRankRegressor,
)
from mercer.exceptions import NegativeVarianceWarning, NotPositiveDefiniteError
from mercer.kernels import Gaussian, Matern, Wendland
from mercer.model.sampling import MOST_ROWS, draw_jointly

MANY = 4000


def draw(n=60, p=1, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-2, 2, size=(n, 2))
    targets = 30.0 * np.sin(2 * rows[:, :1]) * np.arange(1, p + 1) + rng.normal(size=(n, p))
    return rows, targets if p > 1 else targets[:, 0]


ROWS, _ = draw()
MODELS = {
    "exact": ExactRegressor("matern"),
    "exact, no intercept": ExactRegressor("matern", intercept=False, noise=0.1),
    "nystrom": NystromRegressor("matern", n_basis=20, random_state=0),
    "nystrom, sor": NystromRegressor("matern", n_basis=20, random_state=0, variance="sor"),
    "committee": CommitteeRegressor("matern", n_basis=20, random_state=0),
    "reduced rank": ReducedRankRegressor("matern", basis=ROWS, n_basis=60),
    "pseudo": PseudoInputRegressor("matern", n_basis=10, random_state=0, max_iter=3, tol=1.0),
    "compact": CompactRegressor(Wendland(1.0)),
    "compact, cg": CompactRegressor(Wendland(1.0), solver="cg", noise=0.1),
    "online": OnlineRegressor("matern", max_basis=30),
    "auto": AutoRegressor(random_state=0, time_limit=600),
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@each_model
@pytest.mark.parametrize("noise", [False, True])
def test_draws_have_the_moments_of_predict(model, noise):
    rows, y = draw()
    model.fit(rows, y)
    new = draw(5, seed=1)[0]
    mean, covariance = model.predict(new, return_cov=True)
    if noise:
        covariance = covariance + model.noise_ * model.scale_**2 * np.eye(5)
    drawn = model.sample_y(new, MANY, random_state=0, noise=noise)
    assert drawn.shape == (5, MANY)
    residuals, variances = drawn - mean[:, np.newaxis], np.diag(covariance)
    # Six standard deviations of a mean, and of a mean of products of normal numbers, which is √((C_ii C_jj + C_ij²)/k)
    assert np.all(np.abs(np.mean(residuals, axis=1)) <= 6 * np.sqrt(variances / MANY))
    bound = 6 * np.sqrt((np.outer(variances, variances) + covariance**2) / MANY)
    assert np.all(np.abs(residuals @ residuals.T / MANY - covariance) <= bound)


def test_of_several_outputs_each_has_its_scale_and_its_own_draws():
    rows, y = draw(p=2)
    model = ExactRegressor("matern", noise=0.1).fit(rows, y)
    new = draw(4, seed=1)[0]
    mean, covariance = model.predict(new, return_cov=True)
    drawn = model.sample_y(new, MANY, random_state=0)
    assert drawn.shape == (4, 2, MANY)
    residuals = (drawn - mean[:, :, np.newaxis]).reshape(8, -1)
    expected = np.zeros((4, 2, 4, 2))
    for output in range(2):
        expected[:, output, :, output] = covariance[:, :, output]
    expected = expected.reshape(8, 8)
    variances = np.diag(expected)
    bound = 6 * np.sqrt((np.outer(variances, variances) + expected**2) / MANY)
    assert np.all(np.abs(residuals @ residuals.T / MANY - expected) <= bound)


def test_the_law_is_that_of_scikit_learn():
    rows, y = draw()
    model = ExactRegressor(Gaussian(1.0), noise=0.01, intercept=False).fit(rows, y)
    peer = GaussianProcessRegressor(model.scale_**2 * RBF(1.0), alpha=0.01 * model.scale_**2, optimizer=None)
    new = draw(5, seed=1)[0]
    ours, theirs = model.sample_y(new, MANY, random_state=0), peer.fit(rows, y).sample_y(new, MANY, random_state=0)
    assert ours.shape == theirs.shape
    covariance = peer.predict(new, return_cov=True)[1]
    assert np.all(np.abs(np.mean(ours - theirs, axis=1)) <= 6 * np.sqrt(2 * np.diag(covariance) / MANY))
    np.testing.assert_allclose(np.std(ours, axis=1), np.std(theirs, axis=1), rtol=6 / np.sqrt(MANY))


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_singular_covariances_lose_nothing(noise):
    """Rows that are the same are drawn the same; a row that is known is drawn as it is."""
    rows, y = draw(20)
    model = ExactRegressor(Matern(1.0), noise=noise).fit(rows, y)
    new = np.vstack([rows[:3], [[5.0, 5.0]], [[5.0, 5.0]]])
    drawn = model.sample_y(new, 100, random_state=0)
    np.testing.assert_allclose(drawn[3], drawn[4], atol=1e-5 * model.scale_)
    assert np.std(drawn[3]) > 0.5 * model.scale_
    if noise == 0:
        np.testing.assert_allclose(drawn[:3], np.tile(y[:3, np.newaxis], 100), atol=1e-5 * model.scale_)


def test_the_root_is_that_of_the_covariance():
    factor = np.random.default_rng(0).normal(size=(6, 3))
    root = draw_jointly(factor @ factor.T, np.eye(6), prior=1.0)
    np.testing.assert_allclose(root @ root.T, factor @ factor.T, atol=1e-12)


def test_a_seed_decides():
    rows, y = draw()
    model = ExactRegressor("gaussian").fit(rows, y)
    first, again, other = (model.sample_y(rows, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    assert model.sample_y(rows).shape == (60, 1)


@pytest.mark.parametrize("model", [NystromRegressor(n_basis=4, noise=0.1, random_state=0), OnlineRegressor()])
def test_a_constant_is_drawn_as_it_is(model):
    rows, _ = draw()
    drawn = model.fit(rows, np.full(60, 7.0)).sample_y(rows[:5], 3, random_state=0, noise=True)
    np.testing.assert_allclose(drawn, 7.0)


def test_what_cannot_be_drawn_is_refused():
    rows, y = draw()
    model = ExactRegressor("gaussian").fit(rows, y)
    with pytest.raises(ValueError, match="n_samples must be a whole number of at least 1, got 0"):
        model.sample_y(rows, 0)
    with pytest.raises(ValueError, match=f"X has {MOST_ROWS + 1} rows"):
        model.sample_y(np.zeros((MOST_ROWS + 1, 2)))
    with pytest.raises(ValueError, match="features"):
        model.sample_y(rows[:, :1])
    with pytest.raises(ValueError, match="solver='cholesky'"):
        ExactRegressor("gaussian", solver="cg", noise=0.1).fit(rows, y).sample_y(rows)
    indefinite = ReducedRankRegressor(Gaussian(0.3), n_basis=3, noise=1e-3, random_state=0).fit(rows, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NegativeVarianceWarning)
        with pytest.raises(NotPositiveDefiniteError, match="there is no such distribution"):
            indefinite.sample_y(rows)
