"""The committee against dense algebra from the definition; what it tells of itself; how blocks add up."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from mercer.engine import progress
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Function, Gaussian, Linear, Matern
from tests import oracles
from tests.doubles import GuardedRows
from tests.given_noise import CommitteeRegressor, ExactRegressor, NystromRegressor
from tests.oracles import Rounding, assert_close, assert_same_moments, predict_in_units

# Models are poor on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")

N = 120
KERNELS = {
    "gaussian": Gaussian(0.8, amplitude=2.0),
    "matern 1/2": Matern(1.0, nu=0.5),
    "matern 3/2": Matern([0.7, 1.5], nu=1.5),
    "sum": Gaussian(0.5) + Linear(0.3),
}
PARTITIONS = {
    "random": {"partition": "random", "block_size": 25},
    "order": {"partition": "order", "block_size": 25},
    "labels": {"partition": np.arange(N) % 7},
    "one": {"block_size": N},
    "fitc": {"block_size": 1},
}
NOTHING = Rounding(0.0, 0.0, 0.0, 0.0)  # the basis is a grid, far apart: all is known to 1e-8

each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
each_partition = pytest.mark.parametrize("blocks", PARTITIONS.values(), ids=PARTITIONS)
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


# ------------------------------------------------------------------------------------------- definition


@each_kernel
@each_partition
@each_intercept
@each_weighting
def test_mean_std_covariance_and_likelihood_equal_dense_algebra(data, basis, kernel, blocks, intercept, weighted):
    rows, targets, new, weights = data
    weights = weights if weighted else None
    model = CommitteeRegressor(kernel, basis=basis, noise=0.1, intercept=intercept, random_state=0, **blocks)
    model.fit(rows, targets, weights)
    options = {"noise": 0.1, "weights": weights, "intercept": intercept}
    expected = oracles.committee(kernel, basis, rows, targets, new, labels=model.labels_, **options)
    assert_same_moments(model, expected, new, NOTHING)
    assert model.log_marginal_likelihood_ == pytest.approx(expected.profiled_log_likelihood, rel=1e-8)


def test_clusters_are_blocks(data, basis):
    rows, targets, new, _ = data
    options = {"basis": basis, "partition": "kmeans", "block_size": 40, "random_state": 0}
    model = CommitteeRegressor(Gaussian(0.8), **options).fit(rows, targets)
    assert np.max(np.bincount(model.labels_)) <= 40
    expected = oracles.committee(Gaussian(0.8), basis, rows, targets, new, labels=model.labels_, noise=0.1)
    assert_same_moments(model, expected, new, NOTHING)
    means = np.array([np.mean(rows[model.labels_ == label], axis=0) for label in range(model.n_blocks_)])
    within = np.mean(np.sum((rows - means[model.labels_]) ** 2, axis=1))
    assert within < 0.5 * np.mean(np.sum((rows - np.mean(rows, axis=0)) ** 2, axis=1))


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 10.0])
@pytest.mark.parametrize("blocks", [{"block_size": 1}, {"block_size": 30}], ids=["fitc", "blocks"])
def test_any_noise(data, basis, noise, blocks):
    rows, targets, new, _ = data
    kernel = Matern(1.0, nu=1.5)
    model = CommitteeRegressor(kernel, basis=basis, noise=noise, random_state=0, **blocks).fit(rows, targets)
    expected = oracles.committee(kernel, basis, rows, targets, new, labels=model.labels_, noise=noise)
    assert_same_moments(model, expected, new, NOTHING)


def test_blocks_of_one_row_equal_fitc_from_its_definition(data, basis):
    rows, targets, new, weights = data
    kernel = Gaussian(0.8)
    model = CommitteeRegressor(kernel, basis=basis, block_size=1, noise=0.05).fit(rows, targets, weights)
    expected = oracles.fitc(kernel, basis, rows, targets, new, noise=0.05, weights=weights)
    assert_same_moments(model, expected, new, NOTHING)
    assert model.log_marginal_likelihood_ == pytest.approx(expected.profiled_log_likelihood, rel=1e-8)


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 3e-7, 1e-7, 5e-8, 1e-8, 1e-10, 0.0])
@pytest.mark.parametrize("noise", [1e-3, 0.1])
def test_rows_next_to_basis_points_keep_their_correlation_with_others(distance, noise):
    # One block is the exact process at the basis points. K_mm is regular (pivots above 0.5), so that nothing is lost
    # but roundings of K + λ, n·eps/λ = 2e-11, although k(x, x) - |v|² of these rows is as small as distance².
    rng = np.random.default_rng(0)
    basis = np.linspace(-10, 10, 21)[:, np.newaxis]
    rows = np.vstack([basis + distance, rng.uniform(-10, 10, size=(80, 1))])
    targets = rng.normal(size=len(rows))
    model = CommitteeRegressor(Gaussian(), basis=basis, noise=noise).fit(rows, targets)
    exact = ExactRegressor(Gaussian(), noise=noise, intercept=False).fit(rows, targets)
    assert_close(model.predict(basis), exact.predict(basis))
    assert_close(predict_in_units(model, basis, return_cov=True)[1], predict_in_units(exact, basis, return_cov=True)[1])


def test_a_positive_definite_kernel_is_not_refused_on_an_ill_conditioned_basis():
    # Five points within 0.2 span derivatives of high order; k(x, x) - |v|² of rows outside is rounding times 1e12.
    basis = [
        0.92354150,
        3.60875069,
        0.99509136,
        3.22486880,
        0.98469344,
        1.03169033,
        -0.01088300,
        0.87056371,
        0.53989809,
    ]
    basis, rows = np.array(basis)[:, np.newaxis], np.linspace(-2.4, 2.4, 49)[:, np.newaxis]
    kernel, targets = Gaussian() + Linear(0.5), np.sin(2 * rows[:, 0])
    exact = ExactRegressor(kernel, noise=0.01, intercept=False).fit(rows, targets)
    for moved in np.linspace(0.0, 1e-8, 20):  # which way it rounds is chance
        for blocks in ({"block_size": 1}, {"block_size": 49}):
            model = CommitteeRegressor(kernel, basis=basis + moved, noise=0.01, **blocks).fit(rows, targets)
            # The basis has a function to 0.01 within its points; its rounding there is far smaller.
            inside = rows[(rows[:, 0] > 0.5) & (rows[:, 0] < 1.1)]
            np.testing.assert_allclose(model.predict(inside), exact.predict(inside), rtol=0, atol=0.02)


@each_intercept
def test_several_outputs_are_columns(data, basis, intercept):
    rows, targets, new, weights = data
    both = np.column_stack([targets, targets**2])
    options = {"noise": 0.1, "intercept": intercept}
    model = CommitteeRegressor(Gaussian(0.8), basis=basis, partition=np.arange(N) % 5, **options)
    model.fit(rows, both, weights)
    expected = oracles.committee(
        Gaussian(0.8), basis, rows, both, new, labels=np.arange(N) % 5, weights=weights, **options
    )
    assert_same_moments(model, expected, new, NOTHING)
    assert model.log_marginal_likelihood_ == pytest.approx(expected.profiled_log_likelihood, rel=1e-8)
    assert model.coefficients_.shape == (16, 2)
    assert np.shape(model.intercept_) == (2,)
    assert CommitteeRegressor(n_basis=5).fit(rows, both[:, :1]).predict(new).shape == (30, 1)


@pytest.mark.parametrize("offset", [1e6, 1e10])
def test_an_offset_of_the_targets_goes_into_the_intercept(data, basis, offset):
    rows, targets, new, _ = data
    options = {"basis": basis, "block_size": 30, "intercept": True, "random_state": 0}
    near = CommitteeRegressor(Gaussian(0.8), **options).fit(rows, targets)
    far = CommitteeRegressor(Gaussian(0.8), **options).fit(rows, targets + offset)
    # The targets themselves keep eps·offset of their digits.
    np.testing.assert_allclose(far.predict(new) - offset, near.predict(new), rtol=0, atol=100 * offset * 2.2e-16)
    assert far.log_marginal_likelihood_ == pytest.approx(near.log_marginal_likelihood_, abs=1e3 * offset * 2.2e-16)


# -------------------------------------------------------------------------------------------- attributes


def test_fitted_attributes(data):
    rows, targets, _, _ = data
    model = CommitteeRegressor(Gaussian(0.5), n_basis=25, block_size=50, random_state=0).fit(rows, targets)
    assert (model.n_seen_, model.n_blocks_, model.jitter_, model.intercept_) == (N, 3, 0.0, 0.0)
    assert model.rank_ == len(model.basis_) == len(model.coefficients_) == 25
    np.testing.assert_array_equal(model.basis_, rows[model.basis_index_])
    np.testing.assert_array_equal(np.sort(np.bincount(model.labels_)), [40, 40, 40])
    assert model.n_features_in_ == 2
    assert model.kernel_.equals(Gaussian(0.5))
    assert isinstance(model.log_marginal_likelihood_, float)


def test_given_basis_points_have_no_row_numbers_and_duplicates_are_left_out(data, basis):
    rows, targets, new, _ = data
    once, twice = (
        CommitteeRegressor(Gaussian(0.8), basis=points, partition=np.arange(N) % 5).fit(rows, targets)
        for points in (basis, np.vstack([basis, basis[::-1]]))
    )
    assert once.basis_index_ is None
    assert (once.rank_, twice.rank_) == (16, 16)
    assert_close(twice.predict(new), once.predict(new))


def test_labels_are_numbered_in_the_order_of_the_labels_given(data):
    rows, targets, _, _ = data
    names = np.array(["b", "a", "c"])[np.arange(N) % 3]
    model = CommitteeRegressor(n_basis=5, partition=names).fit(rows, targets)
    np.testing.assert_array_equal(model.labels_, np.array([1, 0, 2])[np.arange(N) % 3])


@pytest.mark.parametrize("blocks", [{"block_size": 1}, {"block_size": 4, "partition": "order"}], ids=["fitc", "blocks"])
def test_rows_of_weight_zero_have_no_block(data, basis, blocks):
    rows, targets, _, weights = data
    weights[[3, 50]] = 0.0
    model = CommitteeRegressor(Gaussian(0.8), basis=basis, **blocks).fit(rows, targets, weights)
    assert (model.labels_[3], model.labels_[50]) == (-1, -1)
    assert model.n_seen_ == N
    assert model.n_blocks_ == len(np.unique(model.labels_[weights > 0])) == -(-(N - 2) // blocks["block_size"])


def test_not_fitted_is_said():
    model = CommitteeRegressor()
    for name in (
        "coefficients_",
        "basis_",
        "expansion_",
        "log_marginal_likelihood_",
        "jitter_",
        "n_blocks_",
        "n_seen_",
    ):
        with pytest.raises(NotFittedError):
            getattr(model, name)
    for call in (lambda: model.predict([[0.0]]), lambda: model.merge(CommitteeRegressor())):
        with pytest.raises(NotFittedError):
            call()


@pytest.mark.parametrize("flags", [{}, {"transduce": True}], ids=["basis", "transduced"])
def test_std_and_covariance_exclude_each_other(data, flags):
    rows, targets, new, _ = data
    model = CommitteeRegressor(n_basis=5).fit(rows, targets)
    with pytest.raises(ValueError, match="return_std and return_cov exclude each other"):
        model.predict(new, return_std=True, return_cov=True, **flags)


def test_a_pickled_model_predicts_transduces_and_goes_on_learning(data, basis):
    rows, targets, new, _ = data
    model = CommitteeRegressor(Gaussian(0.8), basis=basis, block_size=30, random_state=0).fit(rows[:90], targets[:90])
    copy = pickle.loads(pickle.dumps(model))
    for flags in ({}, {"transduce": True}):
        np.testing.assert_array_equal(copy.predict(new, **flags), model.predict(new, **flags))
    copy.partial_fit(rows[90:], targets[90:])
    assert (model.n_seen_, copy.n_seen_) == (90, N)


def test_rows_without_keep_rows_are_not_in_the_pickle(data):
    rows, targets, new, _ = data
    source = GuardedRows(rows)  # refuses to be pickled
    model = CommitteeRegressor(n_basis=10, keep_rows=False, random_state=0).fit(source, targets)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(new), model.predict(new))


@pytest.mark.parametrize("blocks", [{"block_size": 30}, {"block_size": 1}])
def test_verbose_shows_progress(data, monkeypatch, capsys, blocks):
    class Clock:
        now = 0.0

        def monotonic(self):
            self.now += 2.0
            return self.now

    monkeypatch.setattr(progress, "time", Clock())
    rows, targets, new, _ = data
    CommitteeRegressor(n_basis=5, n_jobs=1, verbose=1, **blocks).fit(rows, targets)
    assert capsys.readouterr() == ("", "")  # this is no terminal
    model = CommitteeRegressor(n_basis=5, n_jobs=1, verbose=2, **blocks).fit(rows, targets)
    assert "120 of 120 rows" in capsys.readouterr().err
    model.set_params(verbose=0).predict(new, transduce=True)
    assert capsys.readouterr() == ("", "")


# ---------------------------------------------------------------------------------------------- dtypes


@pytest.mark.parametrize("blocks", [{"block_size": 1}, {"block_size": 30}], ids=["fitc", "blocks"])
def test_float32_rows_are_taken_for_what_they_are(data, basis, blocks):
    rows, targets, new, _ = data
    single = rows.astype(np.float32)
    options = {"basis": basis, "random_state": 0, **blocks}
    model = CommitteeRegressor(Gaussian(0.8), **options).fit(single, targets)
    double = CommitteeRegressor(Gaussian(0.8), **options).fit(single.astype(np.float64), targets)
    assert_close(model.predict(new), double.predict(new))
    assert model.predict(new.astype(np.float32)).dtype == np.float32


@each_partition
def test_guarded_rows_give_the_model_of_the_array(data, basis, blocks):
    rows, targets, new, _ = data
    options = {"basis": basis, "random_state": 0, "n_jobs": 1, **blocks}
    model = CommitteeRegressor(Gaussian(0.8), **options).fit(GuardedRows(rows), targets)
    expected = CommitteeRegressor(Gaussian(0.8), **options).fit(rows, targets)
    np.testing.assert_array_equal(model.predict(GuardedRows(new)), expected.predict(new))


# --------------------------------------------------------------------------------- failures leave no trace


def negative(a, b):
    return -np.ones((len(a), len(b)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"partition": "spectral"}, "partition must be one of"),
        ({"partition": [0, 1]}, "must have one for each of the 120 rows"),
        ({"kernel": Function(negative)}, "not positive definite"),
        ({"basis": np.ones((2, 3))}, r"must have shape \(m, 2\)"),
    ],
    ids=["name", "labels", "kernel", "basis"],
)
def test_a_failed_fit_leaves_the_model_as_it_was(data, parameters, message):
    rows, targets, new, _ = data
    model = CommitteeRegressor(n_basis=10, random_state=0).fit(rows, targets)
    expected = model.predict(new)
    before = dict(vars(model.set_params(**parameters)))
    with pytest.raises((ValueError, NotPositiveDefiniteError), match=message):
        model.fit(rows, targets)
    assert vars(model) == before
    np.testing.assert_array_equal(model.predict(new), expected)


def test_a_failed_partial_fit_leaves_the_model_as_it_was(data, basis):
    rows, targets, new, _ = data
    model = CommitteeRegressor(Gaussian(0.8), basis=basis, block_size=30, random_state=0).fit(rows, targets)
    before, expected = dict(vars(model)), model.predict(new, transduce=True)
    wide = np.full((3, 2), 1e200)
    for X, y, message in (
        (rows[:, :1], targets, "features"),
        (rows, np.column_stack([targets, targets]), r"y must have the shape \(n,\)"),
        (rows, targets[:, np.newaxis], r"y must have the shape \(n,\)"),
        (np.full((3, 2), np.nan), targets[:3], "NaN"),
        (wide[:0], targets[:0], "minimum of 1 is required"),
        (rows[:3], [1e200, 1e200, -1e200], "overflow"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(X, y)
        assert vars(model) == before
    np.testing.assert_array_equal(model.predict(new, transduce=True), expected)


def test_a_first_partial_fit_that_fails_leaves_nothing(data):
    rows, targets, _, _ = data
    model = CommitteeRegressor(partition=[0, 1])
    before = dict(vars(model))
    with pytest.raises(ValueError, match="partition"):
        model.partial_fit(rows, targets)
    assert vars(model) == before


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            NystromRegressor(Gaussian(0.8), n_basis=5, noise=0.1, intercept=False),
            "cannot merge a NystromRegressor into a CommitteeRegressor",
        ),
        (CommitteeRegressor(Gaussian(0.8), n_basis=5), "different bases: fit the second with basis=first.basis_"),
        (CommitteeRegressor(Gaussian(0.9), basis=np.eye(2)), "different kernels, .*kernel=first.kernel_"),
        (CommitteeRegressor(Gaussian(0.8), basis=np.eye(2)), "different numbers of outputs, 1 and 2"),
    ],
    ids=["class", "basis", "kernel", "outputs"],
)
def test_merge_refuses_what_does_not_add_up_and_leaves_both_as_they_were(data, other, message):
    rows, targets, new, _ = data
    y = np.column_stack([targets, targets]) if "outputs" in message else targets
    model, other = CommitteeRegressor(Gaussian(0.8), basis=np.eye(2)).fit(rows, targets), clone(other).fit(rows, y)
    before, theirs, expected = dict(vars(model)), dict(vars(other)), other.predict(new)
    with pytest.raises(ValueError, match=message):
        model.merge(other)
    assert (vars(model), vars(other)) == (before, theirs)
    np.testing.assert_array_equal(other.predict(new), expected)
