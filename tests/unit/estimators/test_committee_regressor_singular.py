"""Committees without noise, or nearly: blocks that are singular given the basis, and what is said of them."""

import warnings

import numpy as np
import pytest

from mercer.exceptions import GeneralisationWarning, JitterWarning
from mercer.kernels import Gaussian, Matern
from tests import oracles
from tests.given_noise import CommitteeRegressor, ExactRegressor
from tests.oracles import EPS, Rounding, assert_same_moments, predict_in_units

# Models are poor on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")

N = 80
ROUGH = Matern(1.0, nu=0.5)  # K_nn is regular: its smallest eigenvalue is 0.02 here
NOTHING = Rounding(0.0, 0.0, 0.0, 0.0)

each_block_size = pytest.mark.parametrize("block_size", [1, 20, N], ids=["fitc", "blocks", "one"])
each_intercept = pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(N, 2))
    return rows, np.sin(2 * rows[:, 0]) * rows[:, 1] + 1.0, rng.uniform(-3, 3, size=(15, 2))


@pytest.fixture
def grid():
    ticks = np.linspace(-1.8, 1.8, 4)
    return np.array([[a, b] for a in ticks for b in ticks])


def fit_quietly(model, rows, targets):
    """Fit, and return the warnings of jitter."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", GeneralisationWarning)  # the bases are poor
        model.fit(rows, targets)
    assert all(issubclass(warning.category, JitterWarning) for warning in caught)
    return caught


def with_jitter(kernel, basis, rows, targets, new, *, labels, jitter, intercept=False):
    """The committee whose rows that are basis points have the jitter for noise, and the others none."""
    spanned = np.any(np.all(rows[:, np.newaxis] == basis, axis=2), axis=1)
    weights = np.where(spanned, 1.0, np.inf)
    return oracles.committee(
        kernel, basis, rows, targets, new, labels=labels, noise=jitter, weights=weights, intercept=intercept
    )


# ------------------------------------------------------------------------------------------ regular blocks


@each_block_size
@each_intercept
def test_no_noise_and_a_basis_apart_from_the_rows_needs_no_jitter(data, grid, block_size, intercept):
    rows, targets, new = data
    model = CommitteeRegressor(ROUGH, basis=grid, noise=0.0, block_size=block_size, intercept=intercept)
    model.fit(rows, targets)
    expected = oracles.committee(ROUGH, grid, rows, targets, new, labels=model.labels_, noise=0.0, intercept=intercept)
    assert model.jitter_ == 0.0
    assert_same_moments(model, expected, new, NOTHING)
    assert model.log_marginal_likelihood_ == pytest.approx(expected.profiled_log_likelihood, rel=1e-8)


def test_one_block_without_noise_is_the_exact_interpolation_at_the_basis_points(data, grid):
    rows, targets, _ = data
    model = CommitteeRegressor(ROUGH, basis=grid, noise=0.0).fit(rows, targets)
    expected = oracles.exact(ROUGH, rows, targets, grid, noise=0.0)
    assert_same_moments(model, expected, grid, NOTHING)


# ------------------------------------------------------------------------- basis points that are training rows


@each_block_size
@each_intercept
@pytest.mark.parametrize("kernel", [ROUGH, Gaussian(0.8), Matern(1.0, nu=2.5)], ids=["rough", "gaussian", "matern"])
@pytest.mark.parametrize("which", ["some", "all", "mixed"])
def test_base_points_that_are_rows_are_interpolated_and_the_jitter_is_reported(
    data, grid, block_size, intercept, kernel, which
):
    rows, targets, new = data
    basis = {"some": rows[::5], "all": rows, "mixed": np.vstack([grid, rows[:5]])}[which]
    model = CommitteeRegressor(kernel, basis=basis, noise=0.0, block_size=block_size, intercept=intercept)
    caught = fit_quietly(model, rows, targets)
    assert len(caught) == 1
    assert 0 < model.jitter_ <= 1e-6 * np.max(kernel.diagonal(rows))
    spanned = np.flatnonzero(np.any(np.all(rows[:, np.newaxis] == model.basis_, axis=2), axis=1))
    expected = with_jitter(
        kernel, model.basis_, rows, targets, new, labels=model.labels_, jitter=model.jitter_, intercept=intercept
    )
    # At such a row y - f = (Λα)_i, and Λ has nothing but the jitter there. The sums are of the size 1/jitter, so that
    # (with mixed rows) rounding in them is eps/jitter of what other rows say.
    bound = model.jitter_ * np.max(np.abs(expected.precision @ targets))
    bound += np.max(np.abs(targets)) * len(basis) * EPS / model.jitter_
    assert np.max(np.abs(model.predict(rows[spanned]) - targets[spanned])) <= 2 * bound
    assert bound < 1e-3
    mean, std = predict_in_units(model, new, return_std=True)
    assert np.all(np.isfinite([*mean, *std, model.log_marginal_likelihood_]))


@each_intercept
def test_elsewhere_the_model_is_that_of_the_jitter(data, intercept):
    rows, targets, new = data
    model = CommitteeRegressor(ROUGH, basis=rows, noise=0.0, block_size=20, intercept=intercept)
    fit_quietly(model, rows, targets)
    expected = with_jitter(
        ROUGH, rows, rows, targets, new, labels=model.labels_, jitter=model.jitter_, intercept=intercept
    )
    assert_same_moments(model, expected, new, NOTHING)


def test_the_warning_says_how_many_blocks_how_much_and_what_helps(data, grid):
    rows, targets, _ = data
    model = CommitteeRegressor(ROUGH, basis=np.vstack([grid, rows[:25]]), noise=0.0, block_size=20, partition="order")
    with pytest.warns(JitterWarning, match=r"^2 of 4 blocks are singular .* was added .* a larger noise avoids it\.$"):
        model.fit(rows, targets)
    assert f"{model.jitter_:.2g} was added" in str(fit_quietly(model, rows, targets)[0].message)


def test_only_new_singular_blocks_are_reported(data, grid):
    rows, targets, _ = data
    model = CommitteeRegressor(ROUGH, basis=np.vstack([grid, rows[:5]]), noise=0.0)
    with pytest.warns(JitterWarning, match="1 of 1 blocks"):
        model.partial_fit(rows[:40], targets[:40])
    model.partial_fit(rows[40:], targets[40:])  # a warning would be an error
    assert model.jitter_ > 0
    with pytest.warns(JitterWarning, match="of 3 blocks"):
        model.partial_fit(rows[:5], targets[:5])


def test_noise_keeps_basis_points_among_the_rows_regular(data):
    rows, targets, _ = data
    model = CommitteeRegressor(ROUGH, basis=rows[::5], noise=1e-6, block_size=20).fit(rows, targets)
    assert model.jitter_ == 0.0


# ---------------------------------------------------------------------------------------- duplicate rows


@each_block_size
def test_equal_rows_without_noise_are_averaged_where_they_share_a_block(data, grid, block_size):
    rows, targets, new = data
    twice, values = np.vstack([rows, rows[:3]]), np.concatenate([targets, targets[:3] + 1.0])
    labels = np.concatenate([np.arange(N) // block_size, np.arange(3) // block_size])
    model = CommitteeRegressor(ROUGH, basis=grid, noise=0.0, partition=labels)
    fit_quietly(model, twice, values)
    assert model.jitter_ > 0
    averaged = np.concatenate([targets[:3] + 0.5, targets[3:]])
    once = oracles.committee(ROUGH, grid, rows, averaged, new, labels=labels[:N], noise=0.0)
    # Half the jitter is the variance of their mean; and eps/jitter is the rounding of a factor with such a pivot.
    bound = 10 * (model.jitter_ + N * EPS / model.jitter_)
    np.testing.assert_allclose(model.predict(new), once.mean, rtol=0, atol=bound * np.max(np.abs(once.mean)))


def test_a_smooth_kernel_on_many_rows_without_noise_stays_finite():
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 1, size=(200, 1))
    targets = np.sin(6 * rows[:, 0])
    for blocks in ({"block_size": 1}, {"block_size": 50}, {"block_size": 200}):
        model = CommitteeRegressor(Gaussian(0.3), n_basis=50, noise=0.0, random_state=0, **blocks)
        fit_quietly(model, rows, targets)
        mean, std = predict_in_units(model, np.linspace(-0.2, 1.2, 50)[:, np.newaxis], return_std=True)
        assert np.all(np.isfinite([*mean, *std]))
        assert np.max(np.abs(model.predict(rows) - targets)) < 1e-3


# ------------------------------------------------------------------------------------ almost without noise


@each_intercept
@pytest.mark.parametrize("noise", [1e-8, 1e-10, 1e-12, 1e-14, 1e-16, 1e-20, 1e-100, 1e-300])
def test_a_tiny_noise_is_no_worse_than_none(data, grid, noise, intercept):
    # K + λ is as regular as K (its smallest eigenvalue is 0.02): the answer is known to 1e-12, and jitter of √eps with
    # rounding of eps/√eps would give it to m·√eps = 3e-7. Rows that are basis points, beside others that are not, make
    # sums of the size 1/λ in some directions and 1 in others; what is lost in them must not be lost silently.
    rows, targets, new = data
    model = CommitteeRegressor(
        ROUGH, basis=np.vstack([grid, rows[:5]]), noise=noise, block_size=20, partition="order", intercept=intercept
    )
    if fit_quietly(model, rows, targets) and model.jitter_ == 0:
        return  # it says that predictions are inaccurate
    expected = oracles.committee(
        ROUGH, model.basis_, rows, targets, new, labels=model.labels_, noise=noise, intercept=intercept
    )
    mean, std = predict_in_units(model, new, return_std=True)
    np.testing.assert_allclose(mean, expected.mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(std, expected.std, rtol=0, atol=1e-5)


def test_exact_and_committee_on_all_rows_agree_without_noise(data):
    rows, targets, new = data
    model = CommitteeRegressor(ROUGH, basis=rows, noise=0.0, block_size=20)
    fit_quietly(model, rows, targets)
    exact = ExactRegressor(ROUGH, noise=0.0).fit(rows, targets)
    # The jitter is a noise: it moves the mean by jitter·|K⁻¹y|·|K⁻¹k(x)|.
    weights, reach = np.linalg.solve(ROUGH(rows), targets), np.linalg.solve(ROUGH(rows), ROUGH(rows, new))
    bound = model.jitter_ * np.linalg.norm(weights) * np.max(np.linalg.norm(reach, axis=0))
    np.testing.assert_allclose(model.predict(new), exact.predict(new), rtol=0, atol=bound + 1e-10)
