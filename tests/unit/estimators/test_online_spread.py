"""Learners of streams: spread in the units of the targets, residuals before learning, first rows, offsets."""

import numpy as np
import pytest

import mercer
from mercer import OnlineClassifier, OnlineRegressor
from mercer.engine.prequential import KEPT, discounted
from mercer.kernels import Gaussian
from tests.streams import close, make


def waves(n, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-2, 2, size=(n, 2))
    return rows, np.sin(2 * rows[:, 0]) * np.cos(rows[:, 1]) + 0.1 * rng.normal(size=n)


EVERYTHING = {"selection": "novelty", "novelty_tol": 0.0, "max_basis": 100}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_scale_is_that_of_the_exact_process_if_all_rows_are_functions(weighted, intercept):
    rows, targets = waves(40)
    weights = np.random.default_rng(1).uniform(0.3, 3.0, size=40) if weighted else np.ones(40)
    y = np.column_stack([targets, 5 * targets + 3 * rows[:, 1]])
    model = make(kernel=Gaussian(0.5), intercept=intercept, **EVERYTHING).fit(rows, y, weights)
    assert len(model.basis_) == 40 - intercept * (40 - len(model.basis_))
    H_inverse = np.linalg.inv(Gaussian(0.5)(rows) + np.diag(0.1 / weights))
    if intercept:
        eta = H_inverse @ np.ones(40)
        H_inverse = H_inverse - np.outer(eta, eta) / np.sum(eta)
    q = np.einsum("io,ij,jo->o", y, H_inverse, y)
    n = max(np.sum(weights), 40.0) - intercept
    close(model.scale_**2, q / n, 1e-6)


@pytest.mark.parametrize("forgetting", [1.0, 0.97])
def test_residuals_before_learning_are_those_of_a_model_that_has_not_seen_the_row(forgetting):
    rows, targets = waves(60)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, size=60)
    model = make(forgetting=forgetting, intercept=True).fit(rows, targets, weights)
    track = model._learner.track
    close(track.numbers, np.arange(1, 60))
    squares = weight = count = 0.0
    for t in range(1, 60):
        before = make(forgetting=forgetting, intercept=True).fit(rows[:t], targets[:t], weights[:t])
        mean = before.predict(rows[t : t + 1])[0]
        assert track.residuals[t - 1, 0] == pytest.approx(_forgotten(before, targets[t], mean), rel=1e-6)
        v = track.variances[t - 1] - 0.1  # of an observation of weight 1
        if forgetting == 1.0:
            assert v == pytest.approx(before.expansion_.variances(rows[t : t + 1])[0], rel=1e-6)
        squares = forgetting * squares + track.residuals[t - 1, 0] ** 2 / (v + 0.1 / weights[t])
        weight, count = forgetting * weight + weights[t], forgetting * count + 1.0
    start = forgetting**59 * max(weights[0] - 1.0, 0.0)
    assert model.scale_**2 == pytest.approx(squares / max(weight + start, count), rel=1e-7)


def _forgotten(before, target, mean):
    """The residual of a row, before which a model that forgets goes back towards its mean."""
    b = before.intercept_
    return target - b - np.sqrt(before.forgetting) * (mean - b)


@pytest.mark.parametrize("forgetting", [1.0, 0.99])
def test_batches_do_not_matter_for_the_sample(forgetting):
    rows, targets = waves(3 * KEPT)
    options = {"forgetting": forgetting, "max_basis": 8, "intercept": True}
    whole, parts = make(**options).fit(rows, targets), make(**options)
    for start, stop in ((0, 1), (1, 70), (70, 2100), (2100, 2101), (2101, 3 * KEPT)):
        parts.partial_fit(rows[start:stop], targets[start:stop])
    mine, theirs = whole._learner.track, parts._learner.track
    assert len(mine.numbers) == KEPT
    np.testing.assert_array_equal(mine.numbers, theirs.numbers)
    np.testing.assert_array_equal(mine.targets[:, 0], targets[mine.numbers])
    close(mine.residuals, theirs.residuals, 1e-6)
    assert parts.scale_ == pytest.approx(whole.scale_, rel=1e-7)
    later = np.mean(mine.numbers >= 1.5 * KEPT)
    assert later == 1.0 if forgetting < 1 else abs(later - 0.75) < 0.06


@pytest.mark.parametrize("forgetting", [1.0, 0.995])
@pytest.mark.parametrize(("factor", "offset"), [(1000.0, 0.0), (1e-3, 0.0), (1.0, 30.0), (50.0, -4000.0)])
def test_units_and_offset_of_the_targets_do_not_matter(forgetting, factor, offset):
    rows, targets = waves(500)
    model = OnlineRegressor(Gaussian(0.7), max_basis=40, forgetting=forgetting).fit(rows, targets)
    other = OnlineRegressor(Gaussian(0.7), max_basis=40, forgetting=forgetting).fit(rows, factor * targets + offset)
    np.testing.assert_array_equal(model.basis_index_, other.basis_index_)
    new = waves(50, seed=1)[0]
    (mean, std), (other_mean, other_std) = (each.predict(new, return_std=True) for each in (model, other))
    close((other_mean - offset) / factor, mean, 1e-6)
    close(other_std / factor, std, 1e-6)
    assert other.loo_error_ == pytest.approx(factor * model.loo_error_, rel=1e-6)


@pytest.mark.parametrize("forgetting", [1.0, 0.995])
def test_intervals_cover_and_the_spread_is_right(forgetting):
    rows, targets = waves(2500)
    targets = 40 * targets + 1000
    model = OnlineRegressor(max_basis=60, forgetting=forgetting).fit(rows[:2000], targets[:2000])
    lower, upper = model.predict_interval(rows[2000:], coverage=0.9)
    assert np.mean((targets[2000:] > lower) & (targets[2000:] < upper)) == pytest.approx(0.9, abs=0.05)
    assert 0.6 < model.calibration_ < 1.6
    error = np.sqrt(np.mean((model.predict(rows[2000:]) - targets[2000:]) ** 2))
    assert model.loo_error_ == pytest.approx(error, rel=0.25)


def test_samples_merge():
    rows, targets = waves(300)
    first, second = make().fit(rows[:200], targets[:200]), make().fit(rows[200:], targets[200:])
    tracks = [each._learner.track for each in (first, second)]
    first.merge(second)
    merged = first._learner.track
    assert len(merged.numbers) == 300
    close(merged.squares, tracks[0].squares + tracks[1].squares)
    assert first.scale_ > 0
    first.partial_fit(rows, targets)
    assert np.isfinite(first.calibration_)


def test_first_rows_decide_the_length_scale_however_they_come():
    rows, targets = waves(300)
    one, batch = OnlineRegressor(max_basis=20), OnlineRegressor(max_basis=20)
    for t in range(128):
        one.learn_one({"a": rows[t, 0], "b": rows[t, 1]}, targets[t])
        if t == 50:
            again = OnlineRegressor(max_basis=20).fit(rows[:51], targets[:51])
            assert one.kernel_.length_scale == pytest.approx(again.kernel_.length_scale)
            assert one.predict_one({"a": 0.1, "b": 0.2}) == pytest.approx(again.predict([[0.1, 0.2]])[0], rel=1e-6)
    batch.partial_fit(rows[:128], targets[:128])
    assert one.kernel_.equals(batch.kernel_)
    assert one._state.first is None
    for t in range(128, 300):
        one.learn_one({"a": rows[t, 0], "b": rows[t, 1]}, targets[t])
    batch.partial_fit(rows[128:], targets[128:])
    np.testing.assert_array_equal(one.basis_index_, batch.basis_index_)
    mean, std = one.predict_one({"a": 0.1, "b": 0.2}, return_std=True)
    expected = batch.predict([[0.1, 0.2]], return_std=True)
    assert (mean, std) == pytest.approx((expected[0][0], expected[1][0]), rel=1e-6)


def test_few_first_rows_are_saved(tmp_path):
    rows, targets = waves(200)
    model = OnlineRegressor().partial_fit(rows[:30], targets[:30])
    mercer.save(model, tmp_path / "model.mercer")
    again = mercer.load(tmp_path / "model.mercer")
    for each in (model, again):
        each.partial_fit(rows[30:], targets[30:])
    close(again.predict(rows), model.predict(rows))
    assert again.calibration_ == pytest.approx(model.calibration_)


def test_classes_that_appear_late_have_residuals():
    rows, _ = waves(300)
    labels = np.digitize(rows[:, 0], [-0.7, 0.7])
    labels[:100] = np.minimum(labels[:100], 1)
    named, late = (
        OnlineClassifier(max_basis=30, selection="novelty"),
        OnlineClassifier(max_basis=30, selection="novelty"),
    )
    for t in range(300):
        named.partial_fit(rows[t : t + 1], labels[t : t + 1], classes=[0, 1, 2])
        late.learn_one({"a": rows[t, 0], "b": rows[t, 1]}, int(labels[t]))
    left, right = named._calibration(), late._calibration()
    close(left.targets, right.targets)
    close(left.residuals, right.residuals, 1e-5)
    shares = late.predict_proba_one({"a": 1.5, "b": 0.0})
    assert sum(shares.values()) == pytest.approx(1.0)
    assert max(shares, key=shares.get) == late.predict_one({"a": 1.5, "b": 0.0}) == 2


def test_discounted_sums():
    terms = np.random.default_rng(0).normal(size=(50, 3))
    start = np.array([1.0, 2.0, 3.0])
    powers = 0.9 ** np.arange(50)[::-1]
    close(discounted(terms, 0.9, start)[-1], powers @ terms + 0.9**50 * start)
