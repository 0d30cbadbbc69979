"""Blocks add up: ``partial_fit``, ``merge``, and parameters that change between them."""

from dataclasses import replace

import numpy as np
import pytest

from mercer.kernels import Gaussian, Matern
from tests import oracles
from tests.given_noise import CommitteeRegressor
from tests.oracles import Rounding, assert_close, assert_same_moments, predict_in_units

# Models are poor on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")

N = 120
NOTHING = Rounding(0.0, 0.0, 0.0, 0.0)  # the basis is a grid, far apart: all is known to 1e-8
KERNEL = Gaussian(0.8)

each_intercept = pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
each_weighting = pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(N, 2))
    targets = np.sin(2 * rows[:, 0]) * rows[:, 1] + 0.1 * rng.normal(size=N) + 1.0
    return rows, targets, rng.uniform(-3, 3, size=(30, 2)), rng.uniform(0.1, 3.0, size=N)


@pytest.fixture
def basis():
    ticks = np.linspace(-1.8, 1.8, 4)
    return np.array([[a, b] for a in ticks for b in ticks])


# ------------------------------------------------------------------------------------------ partial_fit


@each_intercept
@each_weighting
@pytest.mark.parametrize("sizes", [[40, 80], [1, 119], [30, 1, 89]], ids=str)
def test_each_partial_fit_is_a_block(data, basis, intercept, weighted, sizes):
    rows, targets, new, weights = data
    weights = weights if weighted else None
    model = CommitteeRegressor(KERNEL, basis=basis, intercept=intercept)
    parts = np.split(np.arange(N), np.cumsum(sizes)[:-1])
    for part in parts:
        model.partial_fit(rows[part], targets[part], None if weights is None else weights[part])
    labels = np.repeat(np.arange(len(sizes)), sizes)
    np.testing.assert_array_equal(model.labels_, labels)
    assert (model.n_blocks_, model.n_seen_) == (len(sizes), N)
    options = {"noise": 0.1, "weights": weights, "intercept": intercept}
    expected = oracles.committee(KERNEL, basis, rows, targets, new, labels=labels, **options)
    assert_same_moments(model, expected, new, NOTHING)
    assert model.log_marginal_likelihood_ == pytest.approx(expected.profiled_log_likelihood, rel=1e-8)


def test_a_large_partial_fit_is_several_blocks(data, basis):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, basis=basis, block_size=25, partition="order")
    model.partial_fit(rows[:60], targets[:60]).partial_fit(rows[60:], targets[60:])
    np.testing.assert_array_equal(np.bincount(model.labels_), [25, 25, 10, 25, 25, 10])
    expected = oracles.committee(KERNEL, basis, rows, targets, new, labels=model.labels_, noise=0.1)
    assert_same_moments(model, expected, new, NOTHING)


def test_partial_fit_row_by_row_is_fitc(data, basis):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, basis=basis)
    for i in range(N):
        model.partial_fit(rows[i : i + 1], targets[i : i + 1])
    assert_same_moments(model, oracles.fitc(KERNEL, basis, rows, targets, new, noise=0.1), new, NOTHING)


def test_partial_fit_goes_on_after_fit_and_fit_begins_again(data, basis):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, basis=basis).fit(rows[:70], targets[:70]).partial_fit(rows[70:], targets[70:])
    expected = oracles.committee(KERNEL, basis, rows, targets, new, labels=np.arange(N) >= 70, noise=0.1)
    assert_same_moments(model, expected, new, NOTHING)
    fresh = CommitteeRegressor(KERNEL, basis=basis).fit(rows, targets)
    np.testing.assert_array_equal(model.fit(rows, targets).predict(new), fresh.predict(new))
    assert (model.n_seen_, model.n_blocks_) == (N, 1)


def test_the_basis_is_that_of_the_first_rows(data):
    rows, targets, _, _ = data
    model = CommitteeRegressor(KERNEL, n_basis=10, random_state=0).partial_fit(rows[:50], targets[:50])
    before = model.basis_.copy()
    model.partial_fit(rows[50:], targets[50:])
    np.testing.assert_array_equal(model.basis_, before)
    np.testing.assert_array_equal(model.basis_, rows[model.basis_index_])


# ------------------------------------------------------------------------------- parameters that change


@pytest.mark.parametrize("first", ["fit", "partial_fit"])
@pytest.mark.parametrize("transduce", [False, True], ids=["basis", "transduced"])
def test_each_block_keeps_the_noise_it_came_with(data, basis, first, transduce):
    rows, targets, new, _ = data
    model = getattr(CommitteeRegressor(KERNEL, basis=basis, noise=0.1), first)(rows[:50], targets[:50])
    model.set_params(noise=2.0).partial_fit(rows[50:], targets[50:])
    labels, weights = np.arange(N) >= 50, np.where(np.arange(N) < 50, 1.0, 0.1 / 2.0)  # λ/ω is 0.1, then 2
    points = new if transduce else basis
    expected = oracles.committee(KERNEL, points, rows, targets, new, labels=labels, noise=0.1, weights=weights)
    # Queries at random are closer than a grid: what roundings of kernel values make of it.
    error = oracles.projection_rounding(KERNEL, points, np.vstack([rows, new]), np.vstack([rows, new]))
    rounding = expected.rounding(cross=error, system=error)
    mean, std = predict_in_units(model, new, return_std=True, transduce=transduce)
    assert_close(mean, expected.mean, rounding.mean)
    assert_close(std, expected.std, rounding.std)
    assert max(rounding.mean, rounding.std) < 1e-5
    if not transduce:
        likelihood = replace(expected, weights=None).profiled_log_likelihood  # as many targets as rows
        assert model.log_marginal_likelihood_ == pytest.approx(likelihood, rel=1e-8)


def test_a_new_noise_alone_changes_nothing(data, basis):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, basis=basis, noise=0.1).fit(rows, targets)
    before = model.predict(new, return_std=True)
    after = model.set_params(noise=5.0).predict(new, return_std=True)
    np.testing.assert_array_equal(after, before)


@each_intercept
def test_the_intercept_is_what_it_was_when_the_last_rows_came(data, basis, intercept):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, basis=basis, intercept=not intercept).fit(rows[:50], targets[:50])
    model.set_params(intercept=intercept).partial_fit(rows[50:], targets[50:])
    labels = np.arange(N) >= 50
    expected = oracles.committee(KERNEL, basis, rows, targets, new, labels=labels, noise=0.1, intercept=intercept)
    assert_same_moments(model, expected, new, NOTHING)
    assert model.log_marginal_likelihood_ == pytest.approx(expected.profiled_log_likelihood, rel=1e-8)


def test_the_partition_may_change_between_batches(data, basis):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, basis=basis, block_size=1).partial_fit(rows[:20], targets[:20])
    model.set_params(partition=np.arange(100) % 3).partial_fit(rows[20:], targets[20:])
    labels = np.concatenate([np.arange(20), 20 + np.arange(100) % 3])
    np.testing.assert_array_equal(model.labels_, labels)
    expected = oracles.committee(KERNEL, basis, rows, targets, new, labels=labels, noise=0.1)
    assert_same_moments(model, expected, new, NOTHING)


# ------------------------------------------------------------------------------------------------ merge


@each_intercept
@each_weighting
@pytest.mark.parametrize("how", [("fit", "fit"), ("fit", "partial_fit"), ("partial_fit", "fit")])
def test_merge_equals_the_committee_of_all_blocks(data, basis, intercept, weighted, how):
    rows, targets, new, weights = data
    weights = weights if weighted else None
    first, second = (
        getattr(CommitteeRegressor(KERNEL, basis=basis, intercept=intercept, block_size=30, random_state=0), method)(
            rows[part], targets[part], None if weights is None else weights[part]
        )
        for part, method in zip([slice(0, 50), slice(50, N)], how, strict=True)
    )
    theirs, labels = second.predict(new), np.concatenate([first.labels_, 2 + second.labels_])
    assert first.merge(second) is first
    np.testing.assert_array_equal(first.labels_, labels)
    assert (first.n_blocks_, first.n_seen_) == (5, N)
    options = {"noise": 0.1, "weights": weights, "intercept": intercept}
    expected = oracles.committee(KERNEL, basis, rows, targets, new, labels=labels, **options)
    assert_same_moments(first, expected, new, NOTHING)
    assert first.log_marginal_likelihood_ == pytest.approx(expected.profiled_log_likelihood, rel=1e-8)
    np.testing.assert_array_equal(second.predict(new), theirs)


def test_merge_as_the_documentation_says(data):
    rows, targets, new, _ = data
    first = CommitteeRegressor(n_basis=15, random_state=0).fit(rows[:60], targets[:60])
    second = CommitteeRegressor(first.kernel_, basis=first.basis_).fit(rows[60:], targets[60:])
    whole = CommitteeRegressor(first.kernel_, basis=first.basis_, partition=np.arange(N) >= 60).fit(rows, targets)
    expected = whole.predict(new, return_std=True)
    for actual, value in zip(first.merge(second).predict(new, return_std=True), expected, strict=True):
        assert_close(actual, value)


@pytest.mark.parametrize("seed", range(5))
def test_merge_as_the_documentation_says_where_the_second_rows_lie_further_out(seed):
    # Which points of a basis are in use must not depend on the rows: the second model has the first one's basis.
    rng = np.random.default_rng(seed)
    near, far = rng.uniform(0, 1, size=(60, 1)), rng.uniform(-3, 3, size=(60, 1))
    first = CommitteeRegressor(Gaussian(), n_basis=10, noise=0.01, random_state=seed).fit(near, np.sin(near[:, 0]))
    second = CommitteeRegressor(first.kernel_, basis=first.basis_, noise=0.01).fit(far, np.sin(far[:, 0]))
    np.testing.assert_array_equal(second.basis_, first.basis_)
    assert first.merge(second).n_seen_ == 120


def test_merge_joins_targets_that_were_summed_about_other_means(data, basis):
    rows, targets, new, _ = data
    options = {"basis": basis, "intercept": True}
    shifted = np.where(np.arange(N) < 60, targets, targets + 100.0)
    parts = [
        CommitteeRegressor(KERNEL, **options).fit(rows[part], shifted[part]) for part in (slice(0, 60), slice(60, N))
    ]
    merged = parts[0].merge(parts[1])
    labels = np.arange(N) >= 60
    expected = oracles.committee(KERNEL, basis, rows, shifted, new, labels=labels, noise=0.1, intercept=True)
    assert_same_moments(merged, expected, new, NOTHING)


def test_merging_a_model_with_itself_counts_its_rows_twice_in_other_blocks(data, basis):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, basis=basis).fit(rows, targets)
    model.merge(model)
    twice = np.tile(np.arange(N), 2)
    expected = oracles.committee(
        KERNEL, basis, rows[twice], targets[twice], new, labels=np.repeat([0, 1], N), noise=0.1
    )
    assert (model.n_seen_, model.n_blocks_) == (2 * N, 2)
    assert_same_moments(model, expected, new, NOTHING)


# --------------------------------------------------------------------------------------------- likelihood


def test_the_likelihood_prefers_the_kernel_and_the_noise_that_made_the_data():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-3, 3, size=(300, 1))
    kernel = Matern(0.8, nu=1.5)
    drawn = np.linalg.cholesky(kernel(rows) + 0.05 * np.eye(300)) @ rng.normal(size=(300, 20))
    basis = np.linspace(-3, 3, 25)[:, np.newaxis]

    def likelihood(scale, noise):
        model = CommitteeRegressor(Matern(scale, nu=1.5), basis=basis, noise=noise, partition=np.floor(rows[:, 0]))
        return model.fit(rows, drawn).log_marginal_likelihood_

    # Twenty draws of 300 rows: half or twice of the length scale costs hundreds of nats, and of the noise, whose ratio
    # to the prior variance is all that counts, forty; far more than what chance makes of it.
    best = likelihood(0.8, 0.05)
    for scale, noise, cost in ((0.4, 0.05, 100), (1.6, 0.05, 100), (0.8, 0.025, 40), (0.8, 0.1, 40)):
        assert best > likelihood(scale, noise) + cost
