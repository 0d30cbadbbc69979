"""``length_scale="ard"``: the objective that is reached, units, weights, odd rows, and who refuses it."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from mercer import (
    CommitteeRegressor,
    CompactRegressor,
    ExactClassifier,
    ExactRegressor,
    NystromClassifier,
    NystromRegressor,
    OnlineRegressor,
    PseudoInputRegressor,
    ReducedRankRegressor,
    load,
    save,
)
from mercer.engine import ArrayTable, Threads, as_rows
from mercer.kernels import Gaussian, Linear, Matern, Wendland
from mercer.methods import length_scales

UNITS = np.array([1.0, 8.0, 1024.0, 1.0, 0.25, 2.0**-10])


def draw(n=80, noise=0.5, seed=0):
    return make_friedman1(n, n_features=6, noise=noise, random_state=seed)  # the last feature does not matter


@pytest.mark.parametrize("units", [np.ones(6), UNITS], ids=["plain", "units"])
def test_the_likelihood_is_that_which_scikit_learn_finds(units):
    X, y = draw(120)
    y = y - np.mean(y)
    model = ExactRegressor(Gaussian("ard"), intercept=False).fit(X * units, y)
    start = ConstantKernel(10.0, (1e-5, 1e8)) * RBF(np.ones(6), (1e-3, 1e6)) + WhiteKernel(0.1, (1e-8, 10))
    peer = GaussianProcessRegressor(start, n_restarts_optimizer=2, random_state=0).fit(X, y)
    assert model.log_marginal_likelihood_ >= peer.log_marginal_likelihood_value_ - 0.01


@pytest.mark.parametrize("noise", ["auto", 0.05])
@pytest.mark.parametrize("intercept", [False, True])
def test_no_small_change_is_more_likely(noise, intercept):
    X, y = draw()
    options = {"noise": noise, "intercept": intercept}
    model = ExactRegressor(Matern("ard", nu=2.5), **options).fit(X, y)
    scales = model.kernel_.length_scale
    assert scales.shape == (6,)
    for j in range(6):
        for factor in (0.9, 1.1):
            kernel = Matern(scales * np.where(np.arange(6) == j, factor, 1.0), nu=2.5)
            other = ExactRegressor(kernel, **options).fit(X, y)
            assert other.log_marginal_likelihood_ < model.log_marginal_likelihood_ + 0.01
    assert noise in ("auto", model.noise_)


def test_units_of_features_and_targets_do_not_matter():
    X, y = draw()
    one = ExactRegressor(Matern("ard")).fit(X, y)
    other = ExactRegressor(Matern("ard")).fit(X * UNITS, 4.0 * y)
    np.testing.assert_allclose(other.kernel_.length_scale, one.kernel_.length_scale * UNITS, rtol=1e-3)
    np.testing.assert_allclose(other.predict(X * UNITS), 4.0 * one.predict(X), rtol=1e-4)


ESTIMATORS = [
    ExactRegressor,
    NystromRegressor,
    CommitteeRegressor,
    ReducedRankRegressor,
    lambda kernel, **options: PseudoInputRegressor(kernel, max_iter=5, tol=1e-2, **options),
]


@pytest.mark.parametrize("make", ESTIMATORS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_everyone_finds_them_and_features_that_matter(make):
    X, y = draw(150)
    options = {} if make is ExactRegressor else {"n_basis": 40}
    model = make(Matern("ard"), random_state=0, **options).fit(X, y)
    scales = model.kernel_.length_scale
    assert scales.shape == (6,)
    assert np.all(np.isfinite(scales))
    assert scales[5] > 2 * np.max(scales[[0, 1]])


def test_a_search_over_points_starts_there():
    X, y = draw(150)
    options = {"n_basis": 30, "random_state": 0, "fit_points": False, "fit_kernel": False, "fit_noise": False}
    start = PseudoInputRegressor(Matern("ard"), **options).fit(X, y).kernel_
    expected = NystromRegressor(Matern("ard"), n_basis=30, random_state=0).fit(X, y).kernel_
    np.testing.assert_allclose(start.length_scale, expected.length_scale)


@pytest.mark.parametrize("make", [ExactClassifier, lambda kernel: NystromClassifier(kernel, n_basis=60)])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(make, n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.digitize(X[:, 1] + 0.1 * rng.normal(size=200), [0.0, 0.8][: n_classes - 1])
    model = make(Gaussian("ard")).fit(X, y)
    scales = model.kernel_.length_scale
    assert 3 * scales[1] < min(scales[0], scales[2])
    assert model.score(X, y) > 0.9


def test_parts_of_sums_and_products_that_are_given_stay():
    X, y = draw()
    model = ExactRegressor(Gaussian("ard") * Matern(3.0) + 0.5 * Matern("ard") + Linear()).fit(X, y)
    parameters = model.kernel_.get_params()
    assert parameters["left__left__left__length_scale"].shape == (6,)
    assert parameters["left__right__length_scale"].shape == (6,)
    assert parameters["left__left__right__length_scale"] == 3.0
    amplitudes = [value for name, value in parameters.items() if name.endswith("amplitude")]
    assert sorted(amplitudes) == [0.5, 1.0, 1.0, 1.0]


def test_a_median_beside_it_is_the_median():
    X, y = draw()
    model = ExactRegressor(Gaussian("ard") + Matern("median")).fit(X, y)
    expected = ExactRegressor("matern").fit(X, y).kernel_.length_scale
    assert model.kernel_.right.length_scale == expected


def test_sparse_rows_and_several_outputs():
    X, y = draw()
    X[X < 0.3] = 0.0
    targets = np.column_stack([y, 1e3 * X[:, 0], np.full(len(y), 7.0)])
    dense = ExactRegressor(Gaussian("ard")).fit(X, targets)
    thin = ExactRegressor(Gaussian("ard")).fit(sparse.csr_array(X), targets)
    np.testing.assert_allclose(thin.kernel_.length_scale, dense.kernel_.length_scale, rtol=1e-6)
    assert dense.kernel_.length_scale.shape == (6,)


def test_a_weight_of_two_is_the_row_twice():
    X, y = draw(60)
    weights = np.random.default_rng(1).integers(0, 3, size=60)
    once = ExactRegressor(Matern("ard"), noise=0.05).fit(X, y, weights)
    each = ExactRegressor(Matern("ard"), noise=0.05).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert once.log_marginal_likelihood_ == pytest.approx(each.log_marginal_likelihood_, abs=0.01)
    np.testing.assert_allclose(once.predict(X), each.predict(X), atol=0.01 * np.std(y))
    for factor in (1e-6, 1e6):
        scaled = ExactRegressor(Matern("ard")).fit(X, y, factor * (1.0 + weights))
        assert np.all(np.isfinite(scaled.kernel_.length_scale))


def test_constant_columns_change_nothing_and_stay_finite():
    X, y = draw()
    wide = np.column_stack([X, np.full(len(X), 7.0), np.zeros(len(X)), 1e9 * (1 + 1e-16 * np.arange(len(X)))])
    one, other = ExactRegressor(Matern("ard")).fit(X, y), ExactRegressor(Matern("ard")).fit(wide, y)
    assert np.all(np.isfinite(other.kernel_.length_scale))
    assert other.log_marginal_likelihood_ == pytest.approx(one.log_marginal_likelihood_, abs=0.01)
    np.testing.assert_allclose(other.kernel_.length_scale[:3], one.kernel_.length_scale[:3], rtol=1e-3)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows(n):
    X, y = draw(3)
    model = ExactRegressor(Gaussian("ard")).fit(X[:n], y[:n])
    assert np.all(np.isfinite(model.kernel_.length_scale))
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize("noise", ["auto", 0.0, 1e-3])
def test_duplicates_constant_targets_and_huge_numbers(noise):
    X, y = draw(40)
    for rows, targets in [
        (np.repeat(X, 2, axis=0), np.repeat(y, 2)),
        (X, np.full(40, 3.0)),
        (1e160 * X, 1e-100 * y),
        (np.zeros((40, 2)), y),
    ]:
        table = ArrayTable(as_rows(rows), targets[:, np.newaxis])
        kernel = length_scales.fitted_kernel(
            Matern("ard"), table, None, noise=noise, intercept=True, executor=Threads(1)
        )
        assert np.all(np.isfinite(kernel.length_scale) & (kernel.length_scale > 0))


def test_one_feature_and_two_hundred():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, size=(60, 1))
    model = ExactRegressor(Gaussian("ard")).fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=60))
    assert model.kernel_.length_scale.shape == (1,)
    assert 0.5 < model.kernel_.length_scale[0] < 5.0
    wide = rng.normal(size=(150, 200))
    model = ExactRegressor(Gaussian("ard")).fit(wide, wide[:, 3] + 0.1 * rng.normal(size=150))
    scales = model.kernel_.length_scale
    assert np.argmin(scales) == 3
    assert np.all(np.isfinite(scales))


def test_of_many_rows_some_decide_by_the_seed(monkeypatch, capsys):
    monkeypatch.setattr(length_scales, "DECIDING_ROWS", 60)
    X, y = draw(200)
    first, again = (NystromRegressor(Matern("ard"), n_basis=20, random_state=0).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.kernel_.length_scale, again.kernel_.length_scale)
    other = NystromRegressor(Matern("ard"), n_basis=20, random_state=1, verbose=1).fit(X, y)
    assert not np.array_equal(first.kernel_.length_scale, other.kernel_.length_scale)
    assert "length scales: log likelihood" in capsys.readouterr().err


def test_who_has_no_targets_refuses_by_name(tmp_path):
    X, y = draw(30)
    for refuse in (
        lambda: OnlineRegressor(Gaussian("ard")).fit(X, y),
        lambda: OnlineRegressor(Gaussian("ard")).partial_fit(X, y),
        lambda: OnlineRegressor(Gaussian("ard")).learn_one({"a": 1.0}, 2.0),
        lambda: CompactRegressor(Wendland("ard")).fit(X, y),
        lambda: Gaussian("ard").resolve(X),
    ):
        with pytest.raises(ValueError, match="length_scale='ard' is fitted to targets"):
            refuse()
    with pytest.raises(ValueError, match="'ard' is a number only for given rows"):
        Gaussian("ard")(X)
    save(Gaussian("ard"), tmp_path / "kernel.mercer")
    assert load(tmp_path / "kernel.mercer").length_scale == "ard"
