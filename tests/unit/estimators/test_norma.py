"""What is special about the estimators by stochastic gradient descent."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_moons

from mercer import NormaClassifier, NormaNoveltyDetector, NormaRegressor, compress
from mercer.kernels import Gaussian, Linear

N = 400
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = 5.0 + 3.0 * np.sin(X[:, 0]) + 0.1 * RNG.normal(size=N)
NAMES = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]


def as_mapping(row):
    return dict(enumerate(row))


def close(actual, expected, tolerance=1e-9):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


@pytest.mark.parametrize("loss", ["squared_error", "huber", "epsilon_insensitive", "quantile"])
def test_units_of_the_targets_do_not_matter(loss):
    model, other = (NormaRegressor(Gaussian(1.0), loss=loss, shuffle=False).fit(X, y) for y in (Y, 1e6 * Y - 1e8))
    close(other.predict(X), 1e6 * model.predict(X) - 1e8, 1e-7)
    assert model.score(X, Y) > 0.7
    shift, unit = np.mean(Y), np.std(Y)
    if loss != "squared_error":  # of an even number of rows, the smaller of both in the middle
        shift = np.quantile(Y, 0.5, method="lower")
        unit = 1.4826 * np.quantile(np.abs(Y - shift), 0.5, method="lower")
    plain = NormaRegressor(Gaussian(1.0), loss=loss, scale_targets=False, shuffle=False).fit(X, (Y - shift) / unit)
    close(model.predict(X), shift + unit * plain.predict(X))


@pytest.mark.parametrize("kernel", ["gaussian", Gaussian(1.0)])
@pytest.mark.parametrize("make", [NormaRegressor, NormaClassifier, NormaNoveltyDetector])
def test_one_row_at_a_time_is_all_at_once(make, kernel):
    """The first 128 rows decide what the data decide; until then all is learned again."""
    y = {NormaRegressor: Y, NormaClassifier: NAMES, NormaNoveltyDetector: None}[make]

    def part(rows):
        return () if y is None else (y[rows],)

    whole, batches, single = make(kernel, max_basis=50), make(kernel, max_basis=50), make(kernel, max_basis=50)
    whole.partial_fit(X[:128], *part(slice(128))).partial_fit(X[128:], *part(slice(128, N)))
    first = part(slice(3)) if make is not NormaClassifier else (y[:3], ["a", "b", "c"])
    batches.partial_fit(X[:3], *first)
    for start, stop in ((3, 100), (100, 128), (128, 129), (129, N)):
        batches.partial_fit(X[start:stop], *part(slice(start, stop)))
    for t in range(N):
        single.learn_one(as_mapping(X[t]), *part(t))
    score = "predict" if make is NormaRegressor else "decision_function"
    expected = getattr(whole, score)(X)
    close(getattr(batches, score)(X), expected)
    one = getattr(single, score)(X)
    close(one, expected)
    if make is NormaNoveltyDetector:
        close([single.score_one(as_mapping(x)) for x in X[:5]], -expected[:5])
    else:
        said = [single.predict_one(as_mapping(x)) for x in X[:5]]
        np.testing.assert_array_equal(np.array(said) == whole.predict(X[:5]), True) if make is NormaClassifier else None


def test_a_model_of_all_defaults_learns():
    rows, labels = make_moons(4000, noise=0.2, random_state=0)
    assert NormaClassifier(random_state=0).fit(rows, labels).score(rows, labels) > 0.8
    digits, numbers = load_digits(return_X_y=True)
    assert NormaClassifier(random_state=0).fit(digits[:1000], numbers[:1000]).score(digits[1000:], numbers[1000:]) > 0.7
    assert NormaRegressor(random_state=0).fit(X, Y).score(X, Y) > 0.7


def test_quantiles_leave_their_share_above():
    rows = np.random.default_rng(1).uniform(-2, 2, size=(6000, 1))
    y = rows[:, 0] + np.random.default_rng(2).exponential(size=6000)
    for q in (0.2, 0.8):
        model = NormaRegressor(Gaussian(1.0), loss="quantile", quantile=q, random_state=0).fit(rows, y)
        assert np.mean(y <= model.predict(rows)) == pytest.approx(q, abs=0.12)


@pytest.mark.parametrize("loss", ["huber", "epsilon_insensitive", "quantile"])
@pytest.mark.parametrize("size", [1e2, 1e8])
def test_outliers_do_not_decide_the_units_of_losses_that_bear_them(loss, size):
    y = Y.copy()
    y[::20] += size
    assert NormaRegressor(Gaussian(1.0), loss=loss, random_state=0).fit(X, y).score(X, Y) > 0.5


@pytest.mark.parametrize("make", [NormaRegressor, NormaClassifier, NormaNoveltyDetector])
def test_fit_learns_sorted_rows_in_random_order(make):
    order = np.argsort(X[:, 0])
    rows, y = X[order], {NormaRegressor: Y, NormaClassifier: NAMES, NormaNoveltyDetector: Y}[make][order]
    model = make(Gaussian(1.0), random_state=0, max_basis=50, truncation=0.0).fit(rows, y)
    np.testing.assert_array_equal(model.basis_, rows[model.basis_index_])
    assert np.ptp(model.basis_[:, 0]) > 2.0
    if make is not NormaNoveltyDetector:
        assert model.score(rows, y) > 0.7
    in_order = make(Gaussian(1.0), random_state=0, max_basis=50, shuffle=False).fit(rows, y)
    np.testing.assert_array_equal(in_order.basis_index_, np.sort(in_order.basis_index_))


def test_the_mean_over_late_models_predicts():
    """Of a constant target with noise the last of the models is off by more."""
    rows, y = np.zeros((3000, 1)), 5.0 + np.random.default_rng(7).normal(size=3000)
    errors = [
        [abs(NormaRegressor(Gaussian(1.0), average=mean, random_state=seed).fit(rows, y).predict([[0.0]])[0] - 5.0)
         for seed in range(20)]
        for mean in (True, False)
    ]  # fmt: skip
    assert np.mean(errors[0]) < 0.5 * np.mean(errors[1])


def test_intervals_cover_what_they_promise():
    rows = np.random.default_rng(3).normal(size=(4000, 2))
    y = np.sin(rows[:, 0]) + 0.3 * np.random.default_rng(4).normal(size=4000)
    model = NormaRegressor(random_state=0).fit(rows[:3000], y[:3000])
    lower, upper = model.predict_interval(rows[3000:], 0.9)
    assert np.mean((lower <= y[3000:]) & (y[3000:] <= upper)) == pytest.approx(0.9, abs=0.06)
    assert model.scale_ > 0.3
    with pytest.raises(ValueError, match="no predictive variance"):
        model.sample_y(rows[:3])


def test_a_share_of_the_rows_is_novel():
    rows = np.random.default_rng(5).normal(size=(10_000, 2))
    model = NormaNoveltyDetector(nu=0.1, random_state=0).fit(rows)
    assert 0.01 < np.mean(model.predict(rows) < 0) < 0.3
    assert np.all(model.predict([[6.0, 6.0], [-5.0, 7.0]]) == -1)
    close(model.score_samples(rows[:9]) - model.offset_, model.decision_function(rows[:9]))
    assert model.predict([[0.0, 0.0]])[0] == 1


def test_a_class_may_come_late_and_is_as_if_it_had_been_known():
    order = np.argsort(NAMES != "b", kind="stable")  # b first, then a and c
    late = NormaClassifier(Gaussian(1.0), loss="log_loss", max_basis=60)
    for t in order:
        late.learn_one(as_mapping(X[t]), NAMES[t])
    known = NormaClassifier(Gaussian(1.0), loss="log_loss", max_basis=60)
    known.partial_fit(X[order[:1]], NAMES[order[:1]], classes=["a", "b", "c"])
    known.partial_fit(X[order[1:]], NAMES[order[1:]])
    close(late.decision_function(X), known.decision_function(X))
    close(late.predict_proba(X), known.predict_proba(X), 1e-6)
    with pytest.raises(ValueError, match=r"labels that are not among the classes \['a', 'b', 'c'\]: \['d'\]"):
        known.partial_fit(X[:2], ["a", "d"])


def test_a_late_class_turns_the_first_output():
    for first, second in (("a", "b"), ("b", "a")):
        model = NormaClassifier(Gaussian(1.0))
        model.learn_one({"x": 0.0}, first)
        assert model.predict_one({"x": 0.0}) == first
        for _ in range(5):
            model.learn_one({"x": 3.0}, second)
            model.learn_one({"x": 0.0}, first)
        assert [model.predict_one({"x": x}) for x in (0.0, 3.0)] == [first, second]


def test_steps_without_a_bound_are_said():
    few = slice(150)
    with pytest.warns(UserWarning, match=r"learning_rate=0\.9 .* is 1\.35: .*Let learning_rate be 0\.667 .* or 'auto'"):
        NormaRegressor(Gaussian(1.0), learning_rate=0.9, regularization=0.5, intercept=False).fit(X[few], Y[few])
    with pytest.raises(ValueError, match=r"learning_rate=2\.0 times regularization=0.5 is 1: .* below 2, or 'auto'"):
        NormaRegressor(learning_rate=2.0, regularization=0.5).fit(X, Y)
    with pytest.warns(UserWarning, match="max_basis=20 has dropped .* Use schedule='constant'"):
        NormaRegressor(Gaussian(1.0), schedule="inverse", max_basis=20).fit(X[few], Y[few])
    with pytest.raises(ValueError, match=r"nu=0\.1 is for loss='epsilon_insensitive'"):
        NormaRegressor(nu=0.1).fit(X, Y)
    with pytest.raises(ValueError, match=r"nu=0\.1 is for loss='hinge'"):
        NormaClassifier(nu=0.1, loss="log_loss").fit(X, NAMES)
    with pytest.raises(ValueError, match="Use nu=None"):
        NormaClassifier(nu=0.1, record=True).fit(X, NAMES)


def test_what_may_change_between_batches_and_what_may_not():
    model = NormaRegressor(Gaussian(1.0), max_basis=100).fit(X, Y)
    model.set_params(max_basis=10, learning_rate=0.1, truncation=0.0).partial_fit(X[:5], Y[:5])
    assert len(model.basis_) == 10
    before = model.predict(X)
    for change, named in (
        ({"kernel": Gaussian(2.0)}, "kernel"),
        ({"loss": "huber"}, "loss"),
        ({"intercept": False}, "intercept"),
    ):
        other = NormaRegressor(Gaussian(1.0)).fit(X, Y).set_params(**change)
        with pytest.raises(ValueError, match=f"{named} was another .* call fit"):
            other.partial_fit(X, Y)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full((1, 2), np.nan), [0.0])
    np.testing.assert_array_equal(model.predict(X), before)


def test_weights_of_zero_are_rows_that_are_not_there():
    weights = np.where(np.arange(N) % 3, 1.0, 0.0)
    used = weights > 0
    close(
        NormaRegressor(Gaussian(1.0), random_state=0).fit(X, Y, weights).predict(X),
        NormaRegressor(Gaussian(1.0), random_state=0).fit(X[used], Y[used]).predict(X),
    )
    model = NormaRegressor().fit(X, Y)
    before = model.predict(X)
    np.testing.assert_array_equal(model.partial_fit(X[:3], Y[:3], np.zeros(3)).predict(X), before)


@pytest.mark.parametrize("y", [np.full(N, 3.0), np.zeros(N), np.full(N, 1e-300), np.full(N, 1e200)])
def test_targets_that_are_constant(y):
    np.testing.assert_allclose(NormaRegressor().fit(X, y).predict(X[:3]), y[:3], rtol=1e-12)


def test_one_row_duplicates_and_kernels_of_any_kind():
    assert NormaRegressor(Gaussian(1.0)).fit(X[:1], Y[:1]).predict(X[:1])[0] == pytest.approx(Y[0])
    same = NormaRegressor(Gaussian(1.0)).fit(np.zeros((150, 2)), RNG.normal(size=150) + 9.0)
    assert same.predict([[0.0, 0.0]])[0] == pytest.approx(9.0, abs=4.0)
    assert NormaRegressor(Linear(), max_basis=200).fit(X, X[:, 0]).score(X, X[:, 0]) > 0.6
    both = NormaRegressor(Gaussian(1.0)).fit(X, np.column_stack([Y, -2 * Y]))
    close(both.predict(X)[:, 1], -2 * both.predict(X)[:, 0])
    single = NormaRegressor(Gaussian(1.0), random_state=0).fit(X.astype(np.float32), Y)
    assert single.predict(X.astype(np.float32)).dtype == np.float32
    close(single.predict(X), NormaRegressor(Gaussian(1.0), random_state=0).fit(X, Y).predict(X), 1e-4)


def test_history_is_kept_on_request():
    model = (
        NormaRegressor(Gaussian(1.0), record=True, max_basis=50, truncation=0.0)
        .fit(X[:300], Y[:300])
        .partial_fit(X[300:], Y[300:])
    )
    history = model.history_
    assert {values.shape for values in history.values()} == {(N, 1)}
    assert np.all(history["loss"] >= 0)
    assert np.count_nonzero(history["dropped"]) == N - 50
    assert NormaRegressor().fit(X, Y).history_["loss"].shape == (0, 1)


def test_they_are_compressed():
    model = NormaRegressor(Gaussian(1.0)).fit(X, Y)
    small = compress(model, n_vectors=20, random_state=0)
    close(small.predict(X), model.predict(X), 0.05)
