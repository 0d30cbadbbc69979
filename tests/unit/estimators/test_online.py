"""Learners of streams: batches do not matter, error bars and second pass are what they are called, nothing is lost."""

import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import mercer
from mercer import NystromRegressor, OnlineClassifier
from mercer.kernels import Gaussian
from tests.doubles import GuardedRows
from tests.streams import N, close, make

each_intercept = pytest.mark.parametrize("intercept", [False, True])


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(N, 2))


@pytest.fixture
def targets(rows):
    return np.sin(2 * rows[:, 0]) + 0.5 * rows[:, 1] + 0.1 * np.random.default_rng(1).normal(size=N)


# Not both: an intercept has no prior that forgetting could go back to.
CHOICES = [{}, {"selection": "novelty"}, {"max_basis": 3}]
CHOICES += [{"intercept": True} | options for options in CHOICES] + [{"forgetting": 0.98}]


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_batches_do_not_matter(rows, targets, options):
    whole, single, mixed = make(**options).fit(rows, targets), make(**options), make(**options)
    for t in range(N):
        single.partial_fit(rows[t : t + 1], targets[t : t + 1])
    for start, stop in ((0, 7), (7, 150), (150, 151), (151, N)):
        mixed.partial_fit(rows[start:stop], targets[start:stop])
    for model in (single, mixed):
        np.testing.assert_array_equal(model.basis_index_, whole.basis_index_)
        np.testing.assert_array_equal(model.basis_, rows[whole.basis_index_])
        close(model.coefficients_, whole.coefficients_, 1e-7)
        assert model.n_seen_ == N
        assert model.cost_ == pytest.approx(whole.cost_, rel=1e-7)


@each_intercept
def test_error_bars_are_those_of_the_definition(rows, targets, intercept):
    model = make(intercept=intercept).fit(rows, targets)
    new = np.random.default_rng(2).normal(size=(30, 2))
    mean, std = model.predict(new, return_std=True)
    k, recursion = Gaussian(1.0)(new, model.basis_), model._learner.recursion
    features = np.column_stack([np.ones(30), k]) if intercept else k
    close(mean, features @ recursion.coefficients[:, 0])
    K_inverse = np.linalg.inv(Gaussian(1.0)(model.basis_))
    variance = 1.0 - np.einsum("ij,jk,ik->i", k, K_inverse, k)
    variance += 0.1 * np.einsum("ij,jk,ik->i", features, recursion.P_inverse, features)
    close(std**2, model.scale_**2 * variance, 1e-7)


@each_intercept
@pytest.mark.parametrize("weighted", [False, True])
def test_a_second_pass_is_the_subset_of_representers(rows, targets, intercept, weighted):
    weights = np.random.default_rng(3).uniform(0.2, 2.0, size=N) if weighted else None
    model = make(intercept=intercept, second_pass=True).fit(rows, targets, weights)
    batch = NystromRegressor(Gaussian(1.0), basis=model.basis_, noise=0.1, intercept=intercept)
    batch.fit(rows, targets, weights)
    for mine, other in zip(model.predict(rows, return_std=True), batch.predict(rows, return_std=True), strict=True):
        close(mine, other, 1e-6)
    once = make(intercept=intercept).fit(rows, targets, weights)
    np.testing.assert_array_equal(once.basis_index_, model.basis_index_)
    close(once.refit(rows, targets, weights).predict(rows), model.predict(rows))


@each_intercept
@pytest.mark.parametrize("second_pass", [False, True])
def test_an_empty_dictionary_predicts_the_prior(rows, intercept, second_pass):
    options = {"intercept": intercept, "second_pass": second_pass}
    model = make(gain_tol=1e9, **options).fit(rows, np.full(N, 3.0))
    assert len(model.basis_) == 0
    mean, std = model.predict(rows[:5], return_std=True)
    close(mean + 1.0, np.full(5, 4.0 if intercept else 1.0))
    close(1.0 + std**2 / 9.0, np.full(5, 1.0 if intercept else 1.0 + 1.0 / 1.1), 1e-2)  # σ² = 9/(1 + λ), or nothing
    unit = model.expansion_.variances(rows[:5])
    close(unit, np.full(5, 1.0 + (0.1 / N if intercept else 0.0)))
    assert model.predict(rows[:5], return_cov=True)[1].shape == (5, 5)
    model.refit(rows, np.full(N, 3.0)).merge(make(gain_tol=1e9, **options).fit(rows, np.full(N, 3.0)))
    assert model.n_seen_ == 2 * N
    model.merge(make(**options).fit(rows, rows[:, 0]))
    assert len(model.basis_) == 25


@pytest.mark.parametrize("forgetting", [1e-6, 1e-3, 0.1])
def test_strong_forgetting_is_finite_and_does_not_mind_batches(rows, targets, forgetting):
    whole, single = make(forgetting=forgetting).fit(rows, targets), make(forgetting=forgetting)
    for t in range(N):
        single.partial_fit(rows[t : t + 1], targets[t : t + 1])
    np.testing.assert_array_equal(single.basis_index_, whole.basis_index_)
    close(single.predict(rows), whole.predict(rows))
    with pytest.raises(ValueError, match="weighs all rows alike"):
        make(forgetting=forgetting, second_pass=True).fit(rows, targets)


def test_learners_with_nearly_dependent_functions_merge(rows, targets):
    options = {"kernel": Gaussian(2.0), "novelty_tol": 1e-4, "max_basis": 40, "gain_tol": 0.0}
    first, second = make(**options).fit(rows[:200], targets[:200]), make(**options).fit(rows[200:], targets[200:])
    whole = make(**options).fit(rows, targets).score(rows, targets)
    assert first.merge(second).score(rows, targets) == pytest.approx(whole, abs=0.01)


def test_weights_zero_rows_are_not_learned(rows, targets):
    weights = np.where(np.arange(N) % 3, 1.0, 0.0)
    used = np.flatnonzero(weights)
    model, expected = make().fit(rows, targets, weights), make().fit(rows[used], targets[used])
    np.testing.assert_array_equal(model.basis_, expected.basis_)
    close(model.predict(rows), expected.predict(rows))


def test_forgetting_follows_a_function_that_changes():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(3000, 1))
    phases = np.linspace(0, 6, 3000)
    targets = np.sin(2 * rows[:, 0] + phases) + 0.05 * rng.normal(size=3000)
    errors = []
    for forgetting in (1.0, 0.99):
        model = make(forgetting=forgetting, noise=0.01, max_basis=40, record=True)
        for start in range(0, 3000, 50):
            model.partial_fit(rows[start : start + 50], targets[start : start + 50])
        errors.append(np.mean(model.history_["squared_error"][10:]))
    assert errors[1] < 0.1 * errors[0]


def test_a_learner_that_was_stored_has_the_same_future(rows, targets):
    model = make().fit(rows[:200], targets[:200])
    again = pickle.loads(pickle.dumps(model))
    for learner in (model, again):
        learner.partial_fit(rows[200:], targets[200:])
    np.testing.assert_array_equal(model.basis_index_, again.basis_index_)
    close(again.coefficients_, model.coefficients_, 1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_row_changes_nothing(rows, targets, bad, tmp_path):
    model = make().fit(rows[:200], targets[:200])
    before, seen = model.predict(rows), model.n_seen_
    spoilt = rows[200:].copy()
    spoilt[150, 1] = bad
    np.save(tmp_path / "rows.npy", spoilt)
    for table in (spoilt, np.load(tmp_path / "rows.npy", mmap_mode="r")):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model.partial_fit(table, targets[200:])
        np.testing.assert_array_equal(model.predict(rows), before)
        assert model.n_seen_ == seen
    with pytest.raises(ValueError, match="3 features"):
        model.partial_fit(np.zeros((2, 3)), [0.0, 1.0])


def test_rows_are_read_through_the_engine(rows, targets):
    close(make().fit(GuardedRows(rows), targets).predict(rows), make().fit(rows, targets).predict(rows))


def test_several_outputs_share_the_dictionary(rows, targets):
    both = np.column_stack([targets, -2 * targets])
    model = make().fit(rows, both)
    close(model.predict(rows)[:, 1], -2 * model.predict(rows)[:, 0])


def test_the_dictionary_stays_within_its_budget_and_says_how(rows, targets):
    model = make(max_basis=10, record=True).fit(rows, targets)
    assert len(model.basis_) == 10 == model.n_grown_ - model.n_pruned_
    assert model.n_pruned_ > 0
    assert model.history_["n_seen"][-1] == N


def test_classes_of_a_stream_are_named_first(rows):
    labels = np.array(["a", "b", "c"])[np.digitize(rows[:, 0], [-0.5, 0.5])]
    whole = OnlineClassifier(Gaussian(1.0), max_basis=30).fit(rows, labels)
    model = OnlineClassifier(Gaussian(1.0), max_basis=30)
    model.partial_fit(rows[:2], labels[:2], classes=["a", "b", "c"]).partial_fit(rows[2:], labels[2:])
    np.testing.assert_array_equal(model.basis_index_, whole.basis_index_)
    assert whole.score(rows, labels) > 0.9
    with pytest.raises(ValueError, match="differ from those of the first call"):
        model.partial_fit(rows, labels, classes=["a", "b"])


@each_intercept
def test_models_with_one_dictionary_merge_exactly(rows, targets, intercept):
    """Both see the dictionary first, and nothing that is new after it: their sums add up."""
    grid = np.stack(np.meshgrid(*[np.linspace(-2, 2, 5)] * 2), axis=-1).reshape(-1, 2)
    options = {"intercept": intercept, "selection": "novelty", "novelty_tol": 0.05, "max_basis": 100}
    near = rows[np.max(np.abs(rows), axis=1) < 2]
    y, start = np.sin(near[:, 0]), np.cos(grid[:, 0])
    first = make(**options).fit(np.concatenate([grid, near[:100]]), np.concatenate([start, y[:100]]))
    second = make(**options).fit(np.concatenate([grid, near[100:]]), np.concatenate([start, y[100:]]))
    both = make(**options).fit(
        np.concatenate([grid, near[:100], grid, near[100:]]), np.concatenate([start, y[:100], start, y[100:]])
    )
    np.testing.assert_array_equal(first.basis_, both.basis_)
    first.merge(second)
    np.testing.assert_array_equal(first.basis_, both.basis_)
    close(first.coefficients_, both.coefficients_, 1e-6)
    close(first.expansion_.variances(rows), both.expansion_.variances(rows), 1e-6)
    assert first.cost_ == pytest.approx(both.cost_, rel=1e-6)
    assert first.n_seen_ == both.n_seen_


@each_intercept
def test_models_of_different_rows_merge_within_their_budget(rows, targets, intercept):
    left, right = rows[:, 0] < 0, rows[:, 0] >= 0
    options = {"intercept": intercept, "max_basis": 25}
    first, second = make(**options).fit(rows[left], targets[left]), make(**options).fit(rows[right], targets[right])
    alone = first.score(rows, targets)
    first.merge(second)
    assert len(first.basis_) == 25 == first.n_grown_ - first.n_pruned_
    assert first.score(rows, targets) > max(0.9, alone)
    first.partial_fit(rows[:50], targets[:50])  # and goes on
    assert first.n_seen_ == N + 50


def test_what_cannot_be_merged_is_refused(rows, targets):
    model = make().fit(rows, targets)
    for other, message in (
        (make(kernel=Gaussian(2.0)), "different kernels"),
        (make(noise=0.2), "different noise"),
        (make(intercept=True), "different noise, or with and without an intercept"),
        (make(forgetting=0.9), "models that forget"),
    ):
        with pytest.raises(ValueError, match=message):
            model.merge(other.fit(rows, targets))
    with pytest.raises(ValueError, match="different numbers of outputs"):
        model.merge(make().fit(rows, np.column_stack([targets, targets])))
    for other in (NystromRegressor(noise=0.1, intercept=False).fit(rows, targets), None):
        with pytest.raises(ValueError, match="cannot merge a"):
            model.merge(other)
    with pytest.raises(NotFittedError):
        model.merge(make())


@each_intercept
def test_an_inverse_that_rounding_has_spoilt_is_computed_anew(rows, targets, intercept):
    model = make(intercept=intercept).fit(rows[:200], targets[:200])
    assert model._learner.recursion.n_refreshed == 0
    noise = 1e-6 * np.random.default_rng(0).normal(size=(25, 25))
    model._learner.recursion.K_inverse[-25:, -25:] += noise + noise.T
    model.partial_fit(rows[200:] + 3.0, targets[200:])  # new enough to join
    learner = model._learner
    assert learner.recursion.n_refreshed > 0
    K = learner.kernel(learner.points)
    assert np.max(np.abs(learner.recursion.K_inverse[-25:, -25:] @ K - np.eye(25))) < 1e-8


def test_a_smooth_kernel_without_a_tolerance():
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 1, size=(3000, 1))
    targets = np.sin(8 * rows[:, 0]) + 0.1 * rng.normal(size=3000)
    model = make(kernel=Gaussian(0.5), novelty_tol=0.0, gain_tol=0.0, max_basis=12, noise=1e-3).fit(rows, targets)
    K = model.kernel_(model.basis_)
    assert np.max(np.abs(model._learner.recursion.K_inverse @ K - np.eye(len(K)))) < 1e-6
    assert model.score(rows, targets) > 0.97


@pytest.mark.parametrize("weight", [1.0, 1e9, 1e12])
def test_the_cost_is_not_lost_to_rounding_where_weights_are_large(weight):
    """With noise 1e-10 rows of weight ω cost what rows of weight 1 cost with noise 1e-10/ω, times ω."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)
    options = {"max_basis": 15, "selection": "novelty", "forgetting": 0.99}
    heavy = mercer.OnlineRegressor(Gaussian(1.0), noise=1e-10, **options).fit(X, y, np.full(60, weight))
    light = mercer.OnlineRegressor(Gaussian(1.0), noise=1e-10 / weight, **options).fit(X, y)
    assert heavy.cost_ == pytest.approx(weight * light.cost_, rel=0.05)
