"""The reduced rank approximation against dense algebra from the definition."""

import pickle
import re
import warnings

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from mercer.engine import progress
from mercer.exceptions import NegativeVarianceWarning
from mercer.kernels import Gaussian, Linear, Matern
from tests import oracles
from tests.doubles import GuardedRows
from tests.given_noise import ExactRegressor, NystromRegressor, ReducedRankRegressor
from tests.oracles import assert_close, predict_in_units

# Models are poor on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")

N = 120
KERNELS = {
    "gaussian": Gaussian(0.8, amplitude=2.0),
    "matern 1/2": Matern(1.0, nu=0.5),
    "matern 3/2": Matern([0.7, 1.5], nu=1.5),
    "sum": Gaussian(0.5) + Linear(0.3),
}

each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
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
    """A grid: far apart, so that dense algebra is a reference to 1e-8."""
    ticks = np.linspace(-1.8, 1.8, 4)
    return np.array([[a, b] for a in ticks for b in ticks])


# ------------------------------------------------------------------------------------------- definition


@each_kernel
@each_intercept
@each_weighting
@pytest.mark.parametrize("noise", [1e-3, 0.1, 10.0])
def test_mean_and_covariance_equal_dense_algebra(data, basis, kernel, intercept, weighted, noise):
    rows, targets, new, weights = data
    options = {"noise": noise, "intercept": intercept}
    weights = weights if weighted else None
    model = ReducedRankRegressor(kernel, basis=basis, **options).fit(rows, targets, weights)
    expected = oracles.reduced_rank(kernel, basis, rows, targets, new, weights=weights, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NegativeVarianceWarning)
        mean, covariance = predict_in_units(model, new, return_cov=True)
    assert_close(mean, expected.mean)
    assert_close(covariance, expected.covariance)
    np.testing.assert_array_equal(covariance, covariance.T)
    np.testing.assert_array_equal(model.predict(new), mean)


@each_kernel
@each_intercept
def test_the_standard_deviation_is_the_root_of_the_variance_or_nan_where_it_is_negative(data, basis, kernel, intercept):
    rows, targets, new, weights = data
    options = {"noise": 0.5, "intercept": intercept}
    model = ReducedRankRegressor(kernel, basis=basis, **options).fit(rows, targets, weights)
    queries = np.vstack([new, basis])
    expected = oracles.reduced_rank(kernel, basis, rows, targets, queries, weights=weights, **options)
    variances = np.diag(expected.covariance)
    negative = variances < 0
    assert 0 < np.sum(negative) < len(queries)
    assert np.min(np.abs(variances)) > 1e-6  # no doubtful case
    with pytest.warns(
        NegativeVarianceWarning, match=f"negative variance for {np.sum(negative)} of {len(queries)} rows"
    ):
        _, std = predict_in_units(model, queries, return_std=True)
    np.testing.assert_array_equal(np.isnan(std), negative)
    assert_close(std[~negative], np.sqrt(variances[~negative]))


def test_the_covariance_is_given_as_it_is_with_the_warning(data, basis):
    rows, targets, new, _ = data
    model = ReducedRankRegressor(Gaussian(0.8), basis=basis, noise=1e-3).fit(rows, targets)
    with pytest.warns(NegativeVarianceWarning, match="NystromRegressor and CommitteeRegressor have proper error bars"):
        _, covariance = predict_in_units(model, new, return_cov=True)
    assert np.min(np.diag(covariance)) < 0


@each_intercept
@each_weighting
def test_at_the_basis_points_it_is_the_subset_of_representers_and_has_no_negative_variance(
    data, basis, intercept, weighted
):
    rows, targets, _, weights = data
    options = {"kernel": Gaussian(0.8), "basis": basis, "noise": 1e-3, "intercept": intercept}
    weights = weights if weighted else None
    reduced, nystrom = (cls(**options).fit(rows, targets, weights) for cls in (ReducedRankRegressor, NystromRegressor))
    for flag in ("return_std", "return_cov"):  # a warning would be an error
        for actual, expected in zip(
            reduced.predict(basis, **{flag: True}), nystrom.predict(basis, **{flag: True}), strict=True
        ):
            assert_close(actual, expected)


def test_elsewhere_it_is_not(data, basis):
    rows, targets, new, _ = data
    options = {"kernel": Gaussian(0.8), "basis": basis, "noise": 0.1}
    reduced, nystrom = (cls(**options).fit(rows, targets) for cls in (ReducedRankRegressor, NystromRegressor))
    assert np.max(np.abs(reduced.predict(new) - nystrom.predict(new))) > 1.0


def test_all_rows_as_basis_are_the_exact_model(data):
    rows, targets, new, weights = data
    kernel = Matern(1.0, nu=1.5)
    model = ReducedRankRegressor(kernel, basis=rows, noise=0.1, intercept=True).fit(rows, targets, weights)
    exact = ExactRegressor(kernel, noise=0.1, intercept=True).fit(rows, targets, weights)
    for actual, expected in zip(
        predict_in_units(model, new, return_std=True), predict_in_units(exact, new, return_std=True), strict=True
    ):
        assert_close(actual, expected)


@each_intercept
@each_weighting
def test_coefficients_solve_the_system_of_low_rank(data, basis, intercept, weighted):
    rows, targets, _, weights = data
    weights = weights if weighted else np.ones(N)
    kernel = Matern(1.0, nu=1.5)
    model = ReducedRankRegressor(kernel, basis=basis, noise=0.1, intercept=intercept).fit(rows, targets, weights)
    cross = kernel(rows, basis)
    # (K_nm K_mm⁻¹ K_mn + λW⁻¹) α = y - b
    system = cross @ np.linalg.solve(kernel(basis), cross.T) + 0.1 * np.diag(1 / weights)
    assert_close(system @ model.coefficients_, targets - model.intercept_)
    if intercept:
        assert np.sum(model.coefficients_) == pytest.approx(0.0, abs=1e-8)


@each_intercept
def test_several_outputs_are_columns(data, basis, intercept):
    rows, targets, new, weights = data
    both = np.column_stack([targets, targets**2])
    options = {"noise": 0.1, "intercept": intercept}
    model = ReducedRankRegressor(Gaussian(0.8), basis=basis, **options).fit(rows, both, weights)
    expected = oracles.reduced_rank(Gaussian(0.8), basis, rows, both, new, weights=weights, **options)
    assert_close(model.predict(new), expected.mean)
    assert model.coefficients_.shape == (N, 2)
    assert np.shape(model.intercept_) == (2,)
    assert ReducedRankRegressor(n_basis=5).fit(rows, both[:, :1]).predict(new).shape == (30, 1)


# ------------------------------------------------------------------------------------------------- noise


def test_no_noise_is_refused_with_the_reason(data):
    rows, targets, _, _ = data
    message = "noise=0 is not possible here: the weights are residuals divided by the noise. Use a small noise, or "
    with pytest.raises(ValueError, match=message + "NystromRegressor or CommitteeRegressor"):
        ReducedRankRegressor(noise=0).fit(rows, targets)


@each_weighting
def test_a_noise_that_rounding_drowns_is_refused_and_the_one_proposed_is_not(data, basis, weighted):
    rows, targets, new, weights = data
    weights = weights if weighted else None
    model = ReducedRankRegressor(Gaussian(0.8), basis=basis, noise=1e-13)
    with pytest.raises(ValueError, match=r"noise=1e-13 is too small for 120 rows.*NystromRegressor") as caught:
        model.fit(rows, targets, weights)
    proposed = 1.1 * float(re.search(r"Use ([0-9.e+-]+) or more", str(caught.value)).group(1))
    model.set_params(noise=proposed).fit(rows, targets, weights)
    expected = oracles.reduced_rank(Gaussian(0.8), basis, rows, targets, new, noise=proposed, weights=weights)
    # Residuals are known to eps|y|; what n of them, divided by λ, come to may be 1e-3 of the targets; this is larger.
    np.testing.assert_allclose(model.predict(new), expected.mean, rtol=0, atol=1e-3 * np.max(np.abs(expected.mean)))


def test_the_smallest_noise_depends_on_rows_kernel_and_weights(data, basis):
    rows, targets, _, _ = data
    noise = 2e-10  # 120·eps·k/λ = 1.3e-4 for k = 1
    ReducedRankRegressor(Gaussian(0.8), basis=basis, noise=noise).fit(rows, targets)
    for kernel, weights in ((Gaussian(0.8, amplitude=100.0), None), (Gaussian(0.8), np.full(N, 100.0))):
        with pytest.raises(ValueError, match="is too small"):
            ReducedRankRegressor(kernel, basis=basis, noise=noise).fit(rows, targets, weights)


# -------------------------------------------------------------------------------------------- attributes


def test_fitted_attributes(data):
    rows, targets, _, _ = data
    model = ReducedRankRegressor(Gaussian(0.5), n_basis=25, random_state=0).fit(rows, targets)
    assert model.rank_ == len(model.basis_) == 25
    np.testing.assert_array_equal(model.basis_, rows[model.basis_index_])
    assert model.coefficients_.shape == (N,)
    assert (model.intercept_, model.n_features_in_) == (0.0, 2)
    assert model.kernel_.equals(Gaussian(0.5))
    np.testing.assert_array_equal(model.expansion_.points, rows)


def test_given_basis_points_have_no_row_numbers_and_duplicates_are_left_out(data, basis):
    rows, targets, new, _ = data
    once, twice = (
        ReducedRankRegressor(Gaussian(0.8), basis=points).fit(rows, targets)
        for points in (basis, np.vstack([basis, basis[::-1]]))
    )
    assert once.basis_index_ is None
    assert (once.rank_, twice.rank_) == (16, 16)
    assert_close(twice.predict(new), once.predict(new))


@each_intercept
def test_rows_of_weight_zero_are_absent(data, basis, intercept):
    rows, targets, new, weights = data
    weights[[3, 50]] = 0.0
    kept = weights > 0
    wild = np.where(kept, targets, 1e6)
    options = {"kernel": Gaussian(0.8), "basis": basis, "intercept": intercept}
    model = ReducedRankRegressor(**options).fit(rows, wild, weights)
    expected = ReducedRankRegressor(**options).fit(rows[kept], targets[kept], weights[kept])
    assert model.coefficients_.shape == (N - 2,)
    assert_close(model.predict(new), expected.predict(new))


def test_weight_two_is_the_row_twice(data, basis):
    rows, targets, new, _ = data
    counts = np.random.default_rng(1).integers(1, 4, size=N)
    repeated = np.repeat(np.arange(N), counts)
    model, many = (ReducedRankRegressor(Gaussian(0.8), basis=basis, noise=5.0) for _ in range(2))
    model.fit(rows, targets, counts)
    many.fit(rows[repeated], targets[repeated])
    for actual, expected in zip(
        predict_in_units(model, basis, return_std=True), predict_in_units(many, basis, return_std=True), strict=True
    ):
        assert_close(actual, expected)
    assert_close(model.predict(new), many.predict(new))


def test_not_fitted_is_said():
    model = ReducedRankRegressor()
    for call in (
        lambda: model.predict([[0.0]]),
        lambda: model.basis_,
        lambda: model.rank_,
        lambda: model.coefficients_,
    ):
        with pytest.raises(NotFittedError):
            call()


def test_std_and_covariance_exclude_each_other(data):
    rows, targets, new, _ = data
    with pytest.raises(ValueError, match="return_std and return_cov exclude each other"):
        ReducedRankRegressor(n_basis=5).fit(rows, targets).predict(new, return_std=True, return_cov=True)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"noise": 0}, "noise=0"), ({"noise": 1e-20}, "too small"), ({"basis": np.ones((2, 3))}, "basis")],
    ids=["no noise", "tiny noise", "basis"],
)
def test_a_failed_fit_leaves_the_model_as_it_was(data, parameters, message):
    rows, targets, new, _ = data
    model = ReducedRankRegressor(n_basis=10, random_state=0).fit(rows, targets)
    expected = model.predict(new)
    before = dict(vars(model.set_params(**parameters)))
    with pytest.raises(ValueError, match=message):
        model.fit(rows[:50], targets[:50])
    assert vars(model) == before
    np.testing.assert_array_equal(model.predict(new), expected)


def test_a_pickled_model_predicts_the_same(data):
    rows, targets, new, _ = data
    model = ReducedRankRegressor(n_basis=10, noise=5.0, random_state=0).fit(rows, targets)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        predict_in_units(copy, new, return_cov=True)[1], predict_in_units(model, new, return_cov=True)[1]
    )


def test_verbose_shows_progress(data, monkeypatch, capsys):
    class Clock:
        now = 0.0

        def monotonic(self):
            self.now += 2.0
            return self.now

    monkeypatch.setattr(progress, "time", Clock())
    rows, targets, _, _ = data
    ReducedRankRegressor(n_basis=5, n_jobs=1, verbose=2).fit(rows, targets)
    assert "120 of 120 rows" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------- dtypes and tiles


def test_float32_rows_are_taken_for_what_they_are(data, basis):
    rows, targets, new, _ = data
    single = rows.astype(np.float32)
    model = ReducedRankRegressor(Gaussian(0.8), basis=basis, noise=5.0).fit(single, targets)
    double = ReducedRankRegressor(Gaussian(0.8), basis=basis, noise=5.0).fit(single.astype(np.float64), targets)
    assert_close(model.predict(new), double.predict(new))
    assert_close(
        predict_in_units(model, basis, return_std=True)[1], predict_in_units(double, basis, return_std=True)[1]
    )
    assert model.predict(new.astype(np.float32)).dtype == np.float32


def test_guarded_rows_give_the_model_of_the_array(data, basis):
    rows, targets, new, _ = data
    options = {"basis": basis, "noise": 5.0, "n_jobs": 1}
    model = ReducedRankRegressor(Gaussian(0.8), **options).fit(GuardedRows(rows), targets)
    expected = ReducedRankRegressor(Gaussian(0.8), **options).fit(rows, targets)
    for flag in ("return_std", "return_cov"):
        for one, other in zip(
            model.predict(GuardedRows(new), **{flag: True}), expected.predict(new, **{flag: True}), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_many_queries_get_the_error_bars_of_a_few(data):
    rows, targets, _, _ = data
    model = ReducedRankRegressor(Gaussian(0.8), n_basis=10, noise=20.0, random_state=0).fit(rows, targets)
    many = np.random.default_rng(1).uniform(-3, 3, size=(1000, 2))  # more than a tile of queries
    std = predict_in_units(model, many, return_std=True)[1]
    few = np.concatenate([predict_in_units(model, part, return_std=True)[1] for part in np.split(many, 20)])
    assert_close(std, few)
