"""Committees computed again at the queries, against dense algebra from the definition."""

import numpy as np
import pytest

from mercer.datasets import make_waves
from mercer.engine import ArrayRows
from mercer.exceptions import JitterWarning
from mercer.kernels import Gaussian, Matern
from tests import oracles
from tests.doubles import GuardedRows
from tests.given_noise import CommitteeRegressor, ExactRegressor
from tests.oracles import EPS, assert_close, predict_in_units, projection_rounding

# Models are poor on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")

N, Q = 120, 30
KERNEL = Matern(1.0, nu=1.5)
PARTITIONS = {
    "random": {"partition": "random", "block_size": 25},
    "order": {"partition": "order", "block_size": 25},
    "labels": {"partition": np.arange(N) % 7},
    "one": {"block_size": N},
    "fitc": {"block_size": 1},
}

each_partition = pytest.mark.parametrize("blocks", PARTITIONS.values(), ids=PARTITIONS)
each_intercept = pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
each_weighting = pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(N, 2))
    targets = np.sin(2 * rows[:, 0]) * rows[:, 1] + 0.1 * rng.normal(size=N) + 1.0
    return rows, targets, rng.uniform(-3, 3, size=(Q, 2)), rng.uniform(0.1, 3.0, size=N)


@pytest.fixture
def fitted(data):
    rows, targets, _, _ = data
    return CommitteeRegressor(KERNEL, n_basis=10, partition=np.arange(N) % 5, random_state=0).fit(rows, targets)


def dense(data, labels, queries=None, *, kernel=KERNEL, basis=None, targets=None, **options):
    """The committee with its queries as basis, and its rounding."""
    rows, default, new, _ = data
    queries = new if queries is None else queries
    basis = np.unique(queries, axis=0) if basis is None else basis
    targets = default if targets is None else targets
    expected = oracles.committee(kernel, basis, rows, targets, queries, labels=labels, **{"noise": 0.1, **options})
    points = np.vstack([rows, queries])
    error = projection_rounding(kernel, basis, points, points)
    return expected, expected.rounding(cross=error, system=error)


# ------------------------------------------------------------------------------------------- definition


@each_partition
@each_intercept
@each_weighting
def test_one_batch_equals_dense_algebra(data, blocks, intercept, weighted):
    rows, targets, new, weights = data
    weights = weights if weighted else None
    model = CommitteeRegressor(KERNEL, n_basis=10, noise=0.1, intercept=intercept, random_state=0, **blocks)
    model.fit(rows, targets, weights)
    expected, rounding = dense(data, model.labels_, weights=weights, intercept=intercept)
    mean, std = predict_in_units(model, new, return_std=True, transduce=True, batch_size=Q)
    _, covariance = predict_in_units(model, new, return_cov=True, transduce=True)
    assert_close(mean, expected.mean, rounding.mean)
    assert_close(std, expected.std, rounding.std)
    assert_close(covariance, expected.covariance, rounding.covariance)
    np.testing.assert_array_equal(covariance, covariance.T)
    assert_close(model.predict(new, transduce=True, batch_size=Q), expected.mean, rounding.mean)


def test_clusters_are_blocks(data):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, n_basis=10, partition="kmeans", block_size=60, random_state=0).fit(rows, targets)
    expected, rounding = dense(data, model.labels_)
    mean, std = predict_in_units(model, new, return_std=True, transduce=True)
    assert_close(mean, expected.mean, rounding.mean)
    assert_close(std, expected.std, rounding.std)


def test_one_by_one_equals_dense_algebra(data, fitted):
    new = data[2][:8]
    mean, std = predict_in_units(fitted, new, return_std=True, transduce=True, batch_size=1)
    for query, *actual in zip(new[:, np.newaxis], mean, std, strict=True):
        expected, _ = dense(data, fitted.labels_, query)
        assert_close(actual, [expected.mean[0], expected.std[0]])


@pytest.mark.parametrize("batch_size", [1, 4, 7, 29, 30, 1000, None])
def test_batches_do_not_matter_to_one_block(data, batch_size):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, n_basis=7).fit(rows, targets)
    exact = ExactRegressor(KERNEL).fit(rows, targets)
    mean, std = predict_in_units(model, new, return_std=True, transduce=True, batch_size=batch_size)
    expected_mean, expected_std = predict_in_units(exact, new, return_std=True)
    assert_close(mean, expected_mean)
    assert_close(std, expected_std)


class Recorded(ArrayRows):
    """Rows that remember which were taken together."""

    def __init__(self, array):
        super().__init__(array)
        self.taken = []

    def take(self, indices):
        self.taken.append(np.asarray(indices))
        return super().take(indices)


@pytest.mark.parametrize("batch_size", [4, 7, 29])
def test_each_batch_equals_dense_algebra_and_has_queries_from_all_over(data, fitted, batch_size):
    _, _, new, _ = data
    queries = Recorded(new)
    mean, std = predict_in_units(fitted, queries, return_std=True, transduce=True, batch_size=batch_size)
    np.testing.assert_array_equal(np.sort(np.concatenate(queries.taken)), np.arange(Q))
    for batch in queries.taken:
        expected, rounding = dense(data, fitted.labels_, new[batch])
        assert_close(mean[batch], expected.mean, rounding.mean)
        assert_close(std[batch], expected.std, rounding.std)
        assert len(batch) <= batch_size
        assert np.max(np.diff(batch, prepend=0)) <= -(-Q // batch_size)


@each_intercept
def test_several_outputs_are_columns(data, intercept):
    rows, targets, new, _ = data
    both = np.column_stack([targets, targets**2])
    model = CommitteeRegressor(KERNEL, n_basis=10, partition=np.arange(N) % 5, intercept=intercept).fit(rows, both)
    expected, rounding = dense(data, model.labels_, targets=both, intercept=intercept)
    mean, std = predict_in_units(model, new, return_std=True, transduce=True)
    assert (mean.shape, std.shape) == ((Q, 2), (Q,))
    assert_close(mean, expected.mean, rounding.mean)


def test_it_leaves_the_model_as_it_was(data, fitted):
    _, _, new, _ = data
    before, expected = dict(vars(fitted)), fitted.predict(new)
    predict_in_units(fitted, new, return_cov=True, transduce=True)
    assert vars(fitted) == before
    np.testing.assert_array_equal(fitted.predict(new), expected)


def test_it_is_more_accurate_than_a_small_basis():
    X, y = make_waves(1500, n_features=2, noise=0.0, random_state=0)
    model = CommitteeRegressor("matern", n_basis=40, block_size=100, noise=1e-4, random_state=0).fit(X[:1200], y[:1200])
    errors = [np.mean((model.predict(X[1200:], transduce=how) - y[1200:]) ** 2) for how in (False, True)]
    assert errors[1] < errors[0] / 2


# -------------------------------------------------------------------------------------- how blocks came


def test_after_partial_fit(data):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, n_basis=5, random_state=0).partial_fit(rows[:50], targets[:50])
    model.partial_fit(rows[50:], targets[50:])
    expected, rounding = dense(data, np.arange(N) >= 50)
    assert_close(model.predict(new, transduce=True), expected.mean, rounding.mean)


@each_intercept
def test_after_merge(data, intercept):
    rows, targets, new, _ = data
    first, second = (
        CommitteeRegressor(KERNEL, basis=new[:4], intercept=intercept).fit(rows[part], targets[part])
        for part in (slice(0, 50), slice(50, N))
    )
    expected, rounding = dense(data, np.arange(N) >= 50, intercept=intercept)
    mean, std = predict_in_units(first.merge(second), new, return_std=True, transduce=True)
    assert_close(mean, expected.mean, rounding.mean)
    assert_close(std, expected.std, rounding.std)


REMEDY = "transduce=True needs the training rows, which were not kept: fit with keep_rows=True"


def test_rows_that_were_not_kept_are_missed(data):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, n_basis=5, keep_rows=False).fit(rows, targets)
    with pytest.raises(ValueError, match=REMEDY):
        model.predict(new, transduce=True)
    assert np.all(np.isfinite(model.predict(new)))


@pytest.mark.parametrize("kept", [(True, False), (False, True)], ids=["second not", "first not"])
@pytest.mark.parametrize("how", ["partial_fit", "merge"])
def test_some_rows_that_were_not_kept_are_missed(data, kept, how):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, basis=new[:4], keep_rows=kept[0]).fit(rows[:50], targets[:50])
    if how == "merge":
        model.merge(CommitteeRegressor(KERNEL, basis=new[:4], keep_rows=kept[1]).fit(rows[50:], targets[50:]))
    else:
        model.set_params(keep_rows=kept[1]).partial_fit(rows[50:], targets[50:])
    with pytest.raises(ValueError, match=REMEDY):
        model.predict(new, transduce=True)


# ------------------------------------------------------------------------------------------------ queries


def test_a_single_query(data, fitted):
    _, _, new, _ = data
    expected, _ = dense(data, fitted.labels_, new[:1])
    mean, covariance = predict_in_units(fitted, new[:1], return_cov=True, transduce=True)
    assert covariance.shape == (1, 1)
    assert_close(mean, expected.mean)
    assert_close(covariance, expected.covariance)


@pytest.mark.parametrize("batch_size", [None, 4], ids=["one batch", "batches"])
def test_queries_that_are_equal_get_the_same_answer(data, fitted, batch_size):
    _, _, new, _ = data
    twice = np.repeat(new[:8], 4, axis=0)  # four batches of the same eight queries, or one batch of all
    mean, std = predict_in_units(fitted, twice, return_std=True, transduce=True, batch_size=batch_size and 8)
    expected, rounding = dense(data, fitted.labels_, new[:8])
    assert_close(mean, np.repeat(expected.mean, 4), rounding.mean)
    assert_close(std, np.repeat(expected.std, 4), rounding.std)


def test_equal_queries_have_the_covariance_of_one(data, fitted):
    _, _, new, _ = data
    _, covariance = predict_in_units(fitted, new[[0, 0, 1]], return_cov=True, transduce=True)
    assert_close(covariance[0], covariance[1])
    assert_close(covariance[0, 1], covariance[0, 0])


def test_all_queries_equal(data, fitted):
    _, _, new, _ = data
    expected, _ = dense(data, fitted.labels_, new[:1])
    assert_close(fitted.predict(np.repeat(new[:1], 9, axis=0), transduce=True), np.repeat(expected.mean, 9))


def test_queries_that_are_training_rows(data, fitted):
    rows, _, new, _ = data
    queries = np.vstack([new, rows[:10]])
    expected, rounding = dense(data, fitted.labels_, queries)
    mean, std = predict_in_units(fitted, queries, return_std=True, transduce=True)
    assert_close(mean, expected.mean, rounding.mean)
    assert_close(std, expected.std, rounding.std)


@pytest.mark.parametrize("block_size", [1, 20, N], ids=["fitc", "blocks", "one"])
def test_queries_that_are_training_rows_are_interpolated_without_noise(data, block_size):
    rows, targets, _, _ = data
    kernel = Matern(1.0, nu=0.5)
    apart = np.array([[10.0, 10.0]])  # so that the fit itself has nothing to report
    model = CommitteeRegressor(kernel, basis=apart, noise=0.0, block_size=block_size).fit(rows, targets)
    with pytest.warns(JitterWarning, match="singular to rounding given the basis") as caught:
        mean, std = predict_in_units(model, rows[:30], return_std=True, transduce=True)
    assert len(caught) == 1
    # y - f = (Λα)_i, with nothing in Λ but a jitter of 1e-6 of k(x, x) at the most; K has no eigenvalue below 0.01.
    bound = 1e-6 * np.linalg.norm(targets) / np.linalg.eigvalsh(kernel(rows))[0]
    np.testing.assert_allclose(mean, targets[:30], rtol=0, atol=bound)
    assert np.all((std >= 0) & (std <= 2e-3))  # the root of the jitter, and of as much rounding


def test_queries_apart_from_the_rows_need_no_jitter(data):
    rows, targets, new, _ = data
    kernel = Matern(1.0, nu=0.5)
    model = CommitteeRegressor(kernel, basis=new[:4], noise=0.0, partition=np.arange(N) % 5).fit(rows, targets)
    expected, rounding = dense(data, model.labels_, kernel=kernel, noise=0.0)
    assert_close(model.predict(new, transduce=True), expected.mean, rounding.mean)  # a warning would be an error


@pytest.mark.parametrize("width", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("n_queries", [8, 40])
def test_queries_that_are_close_to_each_other_and_far_from_most_rows(width, n_queries):
    # A smooth kernel makes such a basis singular to rounding. One block is the exact process at the queries, up to what
    # points that were left out lose, and to the rounding of Q between queries and rows.
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rows, queries = rng.uniform(-2, 2, size=(100, 1)), rng.uniform(0, width, size=(n_queries, 1))
        targets = np.sin(2 * rows[:, 0])
        expected = oracles.exact(Gaussian(), rows, targets, queries, noise=0.01)
        kept = CommitteeRegressor(Gaussian(), basis=queries, noise=0.01).fit(rows, targets).basis_
        left = np.max(1 - np.sum(oracles.projector(Gaussian(), kept)(queries) ** 2, axis=1))
        cross = np.sqrt(max(left, 0.0)) + projection_rounding(Gaussian(), kept, kept, rows)
        bound = expected.rounding(cross=cross, system=len(kept) * EPS).mean
        for blocks in ({"block_size": 1}, {"block_size": 100}):
            model = CommitteeRegressor(Gaussian(), n_basis=5, noise=0.01, random_state=0, **blocks).fit(rows, targets)
            mean = model.predict(queries, transduce=True)
            assert np.all(np.isfinite(mean))
        assert_close(mean, expected.mean, bound)


# ------------------------------------------------------------------------------------------ types and memory


def test_float32_queries_get_float32_answers_of_float64_accuracy_inside(data, fitted):
    _, _, new, _ = data
    single = new.astype(np.float32)
    mean, std = predict_in_units(fitted, single, return_std=True, transduce=True)
    expected_mean, expected_std = predict_in_units(fitted, single.astype(np.float64), return_std=True, transduce=True)
    assert mean.dtype == np.float32
    # The mean is a sum of m terms w·k in float32, or rounded to it; the error bars are float64 throughout.
    weights = CommitteeRegressor(KERNEL, basis=single, partition=fitted.labels_).fit(*data[:2]).coefficients_
    bound = 4 * np.finfo(np.float32).eps * (np.linalg.norm(weights) + np.max(np.abs(expected_mean)))
    np.testing.assert_allclose(mean, expected_mean, rtol=0, atol=bound)
    assert_close(std, expected_std)


def test_answers_that_float32_cannot_hold_are_float64(data):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, n_basis=10, random_state=0).fit(rows, 1e39 * targets)
    for flags in ({}, {"transduce": True}):
        mean = model.predict(new.astype(np.float32), **flags)
        assert np.all(np.isfinite(mean))
        assert np.max(np.abs(mean)) > 1e38


def test_queries_are_taken_a_batch_at_a_time_and_each_batch_is_one_pass_over_the_rows(data):
    rows, targets, new, _ = data
    training, queries = GuardedRows(rows), GuardedRows(new, longest_take=8)
    model = CommitteeRegressor(KERNEL, n_basis=5, block_size=1, random_state=0, n_jobs=1).fit(training, targets)
    expected = CommitteeRegressor(KERNEL, n_basis=5, block_size=1, random_state=0, n_jobs=1).fit(rows, targets)
    before = training.rows_read
    mean, std = predict_in_units(model, queries, return_std=True, transduce=True, batch_size=8)
    assert training.rows_read - before == 4 * N
    assert queries.rows_taken == Q
    expected_mean, expected_std = predict_in_units(expected, new, return_std=True, transduce=True, batch_size=8)
    np.testing.assert_array_equal(mean, expected_mean)
    np.testing.assert_array_equal(std, expected_std)


@pytest.mark.parametrize(("n_basis", "block_size"), [(7, 3), (3, 7)])
def test_a_batch_is_as_large_as_the_basis_or_a_block(data, n_basis, block_size):
    rows, targets, new, _ = data
    model = CommitteeRegressor(KERNEL, n_basis=n_basis, block_size=block_size, random_state=0).fit(rows, targets)
    queries = GuardedRows(new)
    model.predict(queries, transduce=True)
    assert queries.largest_take <= 7
    assert queries.rows_taken == Q


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, "many", np.nan])
def test_a_batch_size_that_is_none_is_refused_by_name(data, fitted, batch_size):
    with pytest.raises((TypeError, ValueError), match="batch_size must be"):
        fitted.predict(data[2], transduce=True, batch_size=batch_size)


def test_queries_of_another_width_are_refused(data, fitted):
    with pytest.raises(ValueError, match="features"):
        fitted.predict(data[2][:, :1], transduce=True)


def test_queries_with_nan_are_refused(data, fitted):
    with pytest.raises(ValueError, match="NaN"):
        fitted.predict([[0.0, np.nan]], transduce=True)
