"""Pseudo-inputs: what the model is at given parameters, what the search does, and what it must not depend on."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from mercer.engine import ArrayTable, Threads, as_rows
from mercer.kernels import Gaussian, Linear, Matern
from mercer.methods.sparse_objective import SparseObjective
from tests import oracles
from tests.doubles import GuardedRows
from tests.given_noise import CommitteeRegressor, NystromRegressor, PseudoInputRegressor

# Models are poor on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")

N = 150
STILL = {"fit_points": False, "fit_kernel": False, "fit_noise": False}
each_objective = pytest.mark.parametrize("objective", ["vfe", "fitc"])
each_intercept = pytest.mark.parametrize("intercept", [False, True])


@pytest.fixture
def rows():
    return np.random.default_rng(0).uniform(-2, 2, size=(N, 2))


@pytest.fixture
def targets(rows):
    return np.sin(2 * rows[:, 0]) + 0.5 * rows[:, 1] + 0.1 * np.random.default_rng(1).normal(size=N)


def fit(rows, targets, weights=None, **options):
    return PseudoInputRegressor(**({"n_basis": 12, "random_state": 0, "tol": 1e-6} | options)).fit(
        rows, targets, weights
    )


def fit_until(max_iter, rows, targets, **options):
    """Fit where the length of the search hangs on last digits: a warning is given if it was cut off, and only then.

    FITC gains by moving points onto rows, along ridges as narrow as the noise is small: equal problems that are rounded
    differently take 100 steps or 1000.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit(rows, targets, max_iter=max_iter, **options)
    assert [warning.category for warning in caught] == [ConvergenceWarning] * (model.n_iter_ >= max_iter)
    return model


def close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


# ---------------------------------------------------------------------------------- the model at given parameters


@each_intercept
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bound_with_nothing_to_search_for_is_the_subset_of_representers(rows, targets, intercept, weighted):
    weights = np.random.default_rng(2).uniform(0.2, 3.0, size=N) if weighted else None
    options = {"kernel": Gaussian(1.3, 2.0), "basis": rows[:20], "noise": 0.03, "intercept": intercept}
    ours, theirs = PseudoInputRegressor(**options, **STILL), NystromRegressor(**options)
    for model in (ours, theirs):
        model.fit(rows, targets, weights)
    for mine, other in zip(ours.predict(rows, return_std=True), theirs.predict(rows, return_std=True), strict=True):
        close(mine, other, 1e-9)
    assert ours.noise_ == 0.03
    assert ours.kernel_.equals(Gaussian(1.3, 2.0))


@each_intercept
@pytest.mark.parametrize("weighted", [False, True])
def test_fitc_with_nothing_to_search_for_is_a_committee_of_single_rows(rows, targets, intercept, weighted):
    weights = np.random.default_rng(2).uniform(0.2, 3.0, size=N) if weighted else None
    options = {"kernel": Gaussian(1.3, 2.0), "basis": rows[:20], "noise": 0.03, "intercept": intercept}
    ours = PseudoInputRegressor(objective="fitc", **options, **STILL).fit(rows, targets, weights)
    theirs = CommitteeRegressor(block_size=1, **options).fit(rows, targets, weights)
    for mine, other in zip(ours.predict(rows, return_std=True), theirs.predict(rows, return_std=True), strict=True):
        close(mine, other, 1e-8)
    if not intercept:
        expected = oracles.fitc(options["kernel"], rows[:20], rows, targets, rows, noise=0.03, weights=weights)
        assert ours.objective_value_ == pytest.approx(expected.log_likelihood, rel=1e-8)


@each_objective
def test_the_value_told_is_that_of_the_fitted_parameters(rows, targets, objective):
    model = fit_until(1000, rows, 50 * targets, objective=objective)
    data = SparseObjective(ArrayTable(as_rows(rows), 50 * targets[:, np.newaxis]), objective, Threads(1))
    assert model.objective_value_ == pytest.approx(-data.value(model.kernel_, model.basis_, model.noise_), rel=1e-6)


# ---------------------------------------------------------------------------------------------------- the search


def test_the_end_of_a_search_is_stationary(rows, targets):
    model = fit(rows, targets, tol=1e-12, max_iter=1000)
    data = SparseObjective(ArrayTable(as_rows(rows), targets[:, np.newaxis]), "vfe", Threads(1))
    _, gradient = data.value_and_gradient(model.kernel_, model.basis_, model.noise_)
    everything = [gradient.points.ravel(), [gradient.log_noise], *map(np.ravel, gradient.parameters.values())]
    _, before = data.value_and_gradient(Gaussian(1.0), rows[:12], 0.1)
    assert np.max(np.abs(np.concatenate(everything))) < 1e-3 * np.max(np.abs(before.points))


@each_objective
def test_each_freedom_of_the_search_helps(rows, targets, objective):
    options = {"kernel": Gaussian(0.4, 0.3), "noise": 0.5, "objective": objective}
    still = fit(rows, targets, **options, **STILL)
    values = []
    for freedom in STILL:
        model = fit_until(2000, rows, targets, **options, **(STILL | {freedom: True}))
        assert model.n_iter_ > 0
        assert (model.noise_ == 0.5) == (freedom != "fit_noise")
        assert model.kernel_.equals(Gaussian(0.4, 0.3)) == (freedom != "fit_kernel")
        assert np.array_equal(model.basis_, still.basis_) == (freedom != "fit_points")
        values.append(model.objective_value_)
    assert min(values) > still.objective_value_
    assert fit_until(2000, rows, targets, **options).objective_value_ > max(values)


def test_the_bound_stays_below_the_exact_likelihood(rows, targets):
    model = fit(rows, targets, n_basis=30)
    covariance = model.kernel_(rows) + model.noise_ * np.eye(N)
    squares = targets @ np.linalg.solve(covariance, targets)
    exact = -0.5 * (np.linalg.slogdet(covariance)[1] + squares + N * np.log(2 * np.pi))
    assert exact - 1.0 < model.objective_value_ <= exact + 1e-6


def test_noise_and_irrelevant_inputs_are_found():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-2, 2, size=(2000, 3))
    targets = np.sin(3 * rows[:, 0]) + 0.2 * rng.normal(size=2000)
    model = fit(rows, targets, kernel=Gaussian(np.ones(3)), n_basis=15)
    assert model.noise_ == pytest.approx(0.04, rel=0.1)
    assert model.kernel_.length_scale[0] < 2.0
    assert np.all(model.kernel_.length_scale[1:] > 10.0)
    new = rng.uniform(-2, 2, size=(500, 3))
    mean, std = model.predict(new, return_std=True)
    errors = np.sin(3 * new[:, 0]) - mean
    assert np.sqrt(np.mean(errors**2)) < 0.03
    assert 0.3 < np.mean((errors / std) ** 2) < 2.0


def test_few_points_that_move_beat_as_many_that_stay():
    rng = np.random.default_rng(3)
    rows = np.concatenate([rng.normal(size=(900, 1)) * 0.05, rng.uniform(0, 8, size=(100, 1))])
    targets = np.sin(2 * rows[:, 0]) + 0.05 * rng.normal(size=1000)
    moved = fit(rows, targets, n_basis=10, max_iter=1000)
    stayed = fit(rows, targets, n_basis=10, fit_points=False)
    new = np.linspace(0, 8, 200)[:, np.newaxis]
    errors = [np.sqrt(np.mean((model.predict(new) - np.sin(2 * new[:, 0])) ** 2)) for model in (moved, stayed)]
    assert errors[0] < 0.1 * errors[1]


def test_a_search_that_is_cut_off_says_so(rows, targets):
    with pytest.warns(ConvergenceWarning, match="the objective still grew after 2 steps: raise max_iter"):
        model = fit(rows, targets, max_iter=2)
    assert model.n_iter_ == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit(rows, targets, max_iter=500).n_iter_ < 500


def test_progress_is_shown_on_request(rows, targets, capsys):
    fit(rows, targets)
    assert not capsys.readouterr().out
    model = fit(rows, targets, verbose=1)
    assert capsys.readouterr().out.count("objective per row") == model.n_iter_


# ---------------------------------------------------------------------------------- what it must not depend on
# Equal problems that are rounded differently end within the tolerance of the search: 1e-6 per row of the objective,
# which is flat there, and about its root in the parameters.


@pytest.mark.parametrize("noise", [1e-12, 1e-3, 100.0])
def test_where_the_noise_starts_does_not_matter(rows, targets, noise):
    expected, model = fit(rows, targets), fit(rows, targets, noise=noise)
    assert model.objective_value_ == pytest.approx(expected.objective_value_, abs=1e-6)
    assert model.noise_ == pytest.approx(expected.noise_, rel=1e-6)


@each_objective
@pytest.mark.parametrize("kernel", [Gaussian(0.2), Gaussian(5.0, 100.0), Matern(1.0, nu=2.5)], ids=str)
def test_a_poor_start_does_not_end_in_a_flat_function(rows, targets, objective, kernel):
    model = fit_until(500, rows, targets, objective=objective, kernel=kernel)
    assert model.score(rows, targets) > 0.95


@pytest.mark.parametrize("unit", [1e-100, 1e-6, 1e6, 1e100])
def test_units_of_the_targets_do_not_matter(rows, targets, unit):
    expected, model = fit(rows, targets), fit(rows, unit * targets)
    close(model.predict(rows) / unit, expected.predict(rows), 1e-3)
    assert model.noise_ / unit**2 == pytest.approx(expected.noise_, rel=1e-3)
    assert model.objective_value_ + N * np.log(unit) == pytest.approx(expected.objective_value_, abs=1e-4)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_targets_whose_squares_are_no_numbers_are_refused(rows, targets, unit):
    with pytest.raises(ValueError, match=r"the targets are of size .* scale them"):
        fit(rows, unit * targets)


@pytest.mark.parametrize("unit", [1e-100, 1e-6, 1e6, 1e100])
def test_units_of_the_rows_do_not_matter_with_a_median_length_scale(rows, targets, unit):
    kernel = Gaussian("median")
    expected, model = fit(rows, targets, kernel=kernel), fit(unit * rows, targets, kernel=kernel)
    assert model.objective_value_ == pytest.approx(expected.objective_value_, abs=1e-4)
    close(model.predict(unit * rows), expected.predict(rows), 1e-4)


def test_an_intercept_takes_a_constant(rows, targets):
    expected = fit(rows, targets, intercept=True)
    model = fit(rows, targets + 1e6, intercept=True)
    close(model.predict(rows) - 1e6, expected.predict(rows), 1e-3)


@each_objective
def test_only_ratios_of_weights_that_are_no_counts_matter(rows, targets, objective):
    weights = np.random.default_rng(5).uniform(1.0, 10.0, size=N)
    options = {"kernel": Gaussian(1.0), "fit_points": False, "objective": objective}
    one, other = (fit(rows, targets, unit * weights, **options) for unit in (1.0, 1e-3))
    assert other.noise_ == pytest.approx(1e-3 * one.noise_, rel=1e-3)
    assert other.objective_value_ == pytest.approx(one.objective_value_, abs=1e-3)
    close(other.predict(rows), one.predict(rows), 1e-3)
    assert 0.5 < one.calibration_ < 2.0


def test_weights_count_as_rows(rows, targets):
    weights = np.random.default_rng(5).integers(0, 3, size=N)
    each = np.repeat(np.arange(N), weights)
    options = {"basis": rows[weights > 0][:12], "kernel": Gaussian(1.0)}
    weighted, repeated = fit(rows, targets, weights, **options), fit(rows[each], targets[each], **options)
    assert weighted.objective_value_ == pytest.approx(repeated.objective_value_, abs=1e-3)
    close(weighted.predict(rows), repeated.predict(rows), 1e-3)


def test_rows_may_be_read_a_tile_at_a_time_only(rows, targets):
    guarded = GuardedRows(rows)
    model = fit(guarded, targets)
    close(model.predict(guarded), fit(rows, targets).predict(rows), 1e-8)
    assert guarded.largest_take <= N


def test_threads_do_not_matter():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6000, 3))
    targets = np.sin(rows[:, 0]) + 0.1 * rng.normal(size=6000)
    one, two = (fit(rows, targets, n_basis=20, n_jobs=n_jobs) for n_jobs in (1, 2))
    # A whole search ends where its tolerance lets it: points may differ by more than rounding, the objective not.
    assert two.objective_value_ == pytest.approx(one.objective_value_, rel=1e-6)
    with pytest.warns(ConvergenceWarning):
        one, two = (fit(rows, targets, n_basis=20, n_jobs=n_jobs, max_iter=10) for n_jobs in (1, 2))
    close(two.predict(rows), one.predict(rows), 1e-8)


# ------------------------------------------------------------------------------------------------ unusual inputs


STRATEGIES = ["uniform", "kmeans", "pivoted_cholesky", "leverage", "distribution", "forward_selection"]


@pytest.mark.parametrize("basis", [*STRATEGIES, "sparse_greedy", "supervised_cholesky"])
def test_any_strategy_may_choose_where_points_start(rows, targets, basis):
    model = fit(rows, targets, basis=basis, max_iter=500)
    assert model.rank_ <= 12
    assert model.score(rows, targets) > 0.95


@each_objective
@pytest.mark.parametrize("outputs", [1, 3])
def test_several_outputs_share_the_kernel(rows, targets, objective, outputs):
    several = np.column_stack([(i + 1.0) * targets for i in range(outputs)])
    model = fit_until(500, rows, several, objective=objective)
    mean, std = model.predict(rows, return_std=True)
    assert mean.shape == std.shape == (N, outputs)
    close(mean[:, -1], outputs * mean[:, 0], 1e-6)


@each_objective
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_targets(rows, objective, value):
    model = fit_until(1000, rows, np.full(N, value), objective=objective, intercept=True)
    np.testing.assert_allclose(model.predict(rows), value, rtol=0, atol=1e-6)


@each_objective
def test_one_row_equal_rows_and_fewer_rows_than_points(rows, targets, objective):
    one = fit_until(1000, [[1.0, 2.0]], [3.0], objective=objective)
    assert one.predict([[1.0, 2.0]])[0] == pytest.approx(3.0, rel=1e-2)
    equal = fit_until(1000, np.ones((20, 2)), targets[:20], objective=objective)
    assert equal.rank_ == 1
    np.testing.assert_allclose(equal.predict(np.ones((1, 2))), np.mean(targets[:20]), rtol=0, atol=0.2)
    few = fit_until(1000, rows[:5], targets[:5], objective=objective)
    assert few.rank_ <= 5


def doubled(rows, targets):
    twice = np.column_stack([np.concatenate([rows, rows]), np.full(2 * N, 7.0)])
    return twice, np.concatenate([targets, targets])


@each_objective
def test_duplicate_rows_and_constant_columns(rows, targets, objective):
    X, y = doubled(rows, targets)
    start = fit_until(1, X, y, objective=objective, n_basis=40)
    model = fit_until(1000, X, y, objective=objective, n_basis=40)
    assert model.objective_value_ > start.objective_value_ + 0.1 * len(y)
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_a_search_that_goes_on_to_rounding_has_converged(rows, targets, seed):
    # Without a tolerance a line search fails in the end, or a step gains almost nothing: last digits decide.
    X, y = doubled(rows, targets * (1 + 1e-14 * np.random.default_rng(seed).normal(size=N)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fit(X, y, objective="fitc", tol=1e-15, max_iter=20_000)
    assert model.objective_value_ > fit_until(100, X, y, objective="fitc").objective_value_


def test_points_at_cusps_do_not_keep_kernel_and_noise_from_being_fitted(rows, targets):
    # As many points as rows, all on rows: there they are best, and a cusp of the kernel holds them.
    few = {"kernel": Matern(0.5, nu=0.5), "basis": rows[:60]}
    model = fit(rows[:60], targets[:60], **few)
    stayed = fit(rows[:60], targets[:60], fit_points=False, **few)
    assert model.n_iter_ > 1
    assert model.objective_value_ > stayed.objective_value_ - 1e-3


def test_float32_and_fortran_rows(rows, targets):
    expected = fit(rows.astype(np.float32).astype(np.float64), targets)
    close(fit(rows.astype(np.float32), targets).predict(rows.astype(np.float32)), expected.predict(rows), 1e-3)
    np.testing.assert_array_equal(fit(np.asfortranarray(rows), targets).predict(rows), fit(rows, targets).predict(rows))


def test_a_kernel_of_low_rank_and_one_that_is_zero(rows, targets):
    linear = fit(rows, rows @ [1.0, -2.0] + 0.01 * targets, kernel=Linear(), max_iter=500)
    assert linear.rank_ == 2
    assert linear.score(rows, rows @ [1.0, -2.0]) > 0.999
    np.testing.assert_array_equal(fit(np.zeros((N, 2)), targets, kernel=Linear()).predict(rows * 0.0), 0.0)


def test_a_kernel_without_a_gradient_is_refused_and_nothing_changes(rows, targets):
    model = fit(rows, targets)
    before = model.predict(rows)
    with pytest.raises(NotImplementedError, match="no known gradient"):
        model.set_params(kernel=rbf_kernel).fit(rows, targets)
    np.testing.assert_array_equal(model.predict(rows), before)
