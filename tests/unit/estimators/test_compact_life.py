"""Models on a sparse matrix: what they say of starved rows, outliers, unusual data, failures, and after pickling."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from mercer import CompactClassifier, CompactRegressor, ExactRegressor
from mercer.engine import SparseGram, sparse_kernel
from mercer.exceptions import NotPositiveDefiniteError, StarvedWarning
from mercer.kernels import CompactGaussian, Gaussian, Matern, Wendland
from mercer.methods.compact import hampel_weights
from tests.walks import assert_close, assert_refused

KERNEL = Wendland(0.4, amplitude=2.5)
SOLVERS = [{"solver": "cholesky"}, {"solver": "cg", "tol": 1e-12, "n_jobs": 1}]

each_solver = pytest.mark.parametrize("solver", SOLVERS, ids=["cholesky", "cg"])
ignoring_outliers = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")
each_estimator = pytest.mark.parametrize("estimator", [CompactRegressor, CompactClassifier])


def draw(n=120, d=2, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(size=(n, d))
    return rows, np.sin(6 * rows[:, 0]) + 0.1 * rng.normal(size=n) + 3.0


NEW = np.vstack([draw(20, seed=1)[0], [[50.0, 50.0]]])


# ------------------------------------------------------------------------------------------- few or no neighbours


@pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")  # the mean is not zero
@each_solver
def test_without_neighbours_a_plain_model_is_the_prior(solver):
    model = CompactRegressor(KERNEL, intercept=False, noise=0.1, **solver).fit(*draw())
    mean, std = model.predict([[50.0, 50.0], [1e300, -1e300]], return_std=True)
    np.testing.assert_array_equal(mean, [0.0, 0.0])
    np.testing.assert_allclose(std, model.scale_ * np.sqrt([2.5, 2.5]), rtol=1e-14)


@each_solver
def test_without_neighbours_the_mean_is_the_intercept_which_has_a_variance_of_its_own(solver):
    rows, targets = draw()
    model = CompactRegressor(KERNEL, noise=0.1, **solver).fit(rows, targets)
    mean, std = model.predict([[50.0, 50.0], [1.7e308, 0.0]], return_std=True)
    np.testing.assert_array_equal(mean, model.intercept_)
    own = 1 / np.sum(np.linalg.inv(KERNEL(rows) + 0.1 * np.eye(120)))
    np.testing.assert_allclose(std, model.scale_ * np.sqrt(2.5 + own), rtol=1e-9)


def test_coverage_is_the_share_of_rows_with_five_neighbours():
    rows = np.concatenate([np.zeros(6), [10.0] * 5, [20.0]])[:, np.newaxis]
    assert (
        CompactRegressor(Wendland(1.0), noise=0.1).fit(rows, rows[:, 0]).coverage_ == 0.5
    )  # others than the row itself
    assert CompactRegressor(Wendland(100.0), noise=0.1).fit(rows, rows[:, 0]).coverage_ == 1.0


@each_estimator
def test_a_starved_model_warns(estimator):
    rows, targets = draw()
    y = (targets > 3).astype(int)
    with pytest.warns(
        StarvedWarning, match="100 % of the rows have fewer than 5 neighbours that matter.*length_scale='auto'"
    ) as w:
        model = estimator(Wendland(1e-4)).fit(rows, y)
    assert w[0].filename == __file__
    assert model.coverage_ == 0.0
    assert model.nnz_ == 120


def test_what_is_zero_to_rounding_is_no_neighbour():
    """In 300 dimensions all rows are within the support, and the matrix is the identity."""
    rows = np.random.default_rng(0).normal(size=(40, 300))
    with pytest.warns(StarvedWarning, match="100 % of the rows have fewer than 5 neighbours that matter"):
        model = CompactRegressor(Wendland(26.0)).fit(rows, rows[:, 0])
    np.testing.assert_allclose(model.kernel_(rows), np.eye(40), atol=1e-15)
    assert model._system.gram.nnz > 500
    assert model.coverage_ == 0.0
    assert model.nnz_ == np.count_nonzero(model._system.gram.values)


def test_digits_are_too_far_from_each_other():
    X, y = load_digits(return_X_y=True)
    with pytest.warns(StarvedWarning, match="a lower dimension of Wendland.*another estimator"):
        CompactClassifier(random_state=0).fit(X[:800], y[:800])


@each_solver
def test_a_model_that_works_does_not_warn(solver):
    rows, targets = draw(1500)
    model = CompactRegressor(random_state=0, **solver).fit(rows, targets)
    new, truth = draw(1500, seed=5)
    assert model.loo_error_ == pytest.approx(np.sqrt(np.mean((model.predict(new) - truth) ** 2)), rel=0.1)
    lower, upper = model.predict_interval(new)
    assert 0.93 < np.mean((lower <= truth) & (truth <= upper)) < 0.97


@each_estimator
def test_auto_gives_fifty_neighbours(estimator):
    rows, targets = draw(1500, seed=3)
    for kernel in ("wendland", Wendland("auto", smoothness=0), CompactGaussian("auto")):
        model = estimator(kernel, random_state=0).fit(100 * rows, (targets > 3).astype(int))
        assert 40 < model.nnz_ / 1500 - 1 < 60
        assert model.coverage_ == 1.0
        assert isinstance(model.kernel_.length_scale, float)


@pytest.mark.parametrize("kernel", [Gaussian(), Matern(), "gaussian", "precomputed", None, Gaussian() * Wendland()])
@each_estimator
def test_kernels_that_are_not_compact_are_refused(estimator, kernel):
    rows, targets = draw()
    with pytest.raises(ValueError, match="kernel must be 'wendland' or a kernel of compact support"):
        estimator(kernel).fit(rows, (targets > 3).astype(int))


# ------------------------------------------------------------------------------------------------------- outliers


@ignoring_outliers
@each_solver
def test_a_robust_model_resists_outliers(solver):
    rows, targets = draw(200)
    wrong = np.zeros(200, dtype=bool)
    wrong[::20] = True
    spoilt = np.where(wrong, targets + 50.0, targets)
    clean = CompactRegressor(KERNEL, noise=0.1, **solver).fit(rows[~wrong], targets[~wrong]).predict(NEW)
    plain = CompactRegressor(KERNEL, noise=0.1, **solver).fit(rows, spoilt)
    robust = CompactRegressor(KERNEL, robust=True, noise=0.1, **solver).fit(rows, spoilt)
    assert np.max(np.abs(plain.predict(NEW) - clean)) > 1.0
    assert np.max(np.abs(robust.predict(NEW) - clean)) < 0.3
    np.testing.assert_array_equal(robust.robust_weights_[wrong], 1e-4)
    assert not hasattr(plain, "robust_weights_")


@ignoring_outliers
@each_solver
def test_the_second_fit_is_the_one_with_hampels_weights(solver):
    rows, targets = draw()
    targets[5] += 50.0
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=120)
    weights[11] = 0.0
    robust = CompactRegressor(KERNEL, robust=True, noise=0.1, **solver).fit(rows, targets, weights)
    shares = robust.robust_weights_
    assert shares.shape == (120,)
    assert shares[11] == 0.0
    first = CompactRegressor(KERNEL, noise=0.1, **solver).fit(rows, targets, weights)
    kept = weights > 0
    expected = hampel_weights((targets - first.predict(rows))[kept, np.newaxis], weights[kept])
    np.testing.assert_allclose(shares[kept], expected, rtol=0, atol=1e-8)
    second = ExactRegressor(KERNEL, intercept=True, noise=0.1).fit(rows, targets, weights * shares)
    assert_close(robust.predict(NEW), second.predict(NEW))
    assert_close(robust.predict(NEW, return_std=True)[1], second.predict(NEW, return_std=True)[1])
    assert not hasattr(robust.set_params(robust=False).fit(rows, targets), "robust_weights_")


def test_hampels_weights():
    residuals = np.concatenate([np.linspace(-1.0, 1.0, 101), [2.75 * 1.4826 * 0.5, -100.0]])[:, np.newaxis]
    # Two more rows move the median absolute deviation a little: find it from the definition.
    spread = 1.4826 * np.median(np.abs(residuals - np.median(residuals)))
    ratio = np.abs(residuals[:, 0]) / spread
    expected = np.where(ratio <= 2.5, 1.0, np.where(ratio < 3.0, (3.0 - ratio) / 0.5, 1e-4))
    assert 0.1 < expected[101] < 0.9
    np.testing.assert_allclose(hampel_weights(residuals, np.ones(103)), np.maximum(expected, 1e-4), rtol=1e-12)
    np.testing.assert_array_equal(hampel_weights(np.zeros((7, 2)), np.ones(7)), 1.0)
    both = np.column_stack([residuals, np.zeros(103)])
    np.testing.assert_array_equal(hampel_weights(both, np.ones(103)), hampel_weights(residuals, np.ones(103)))


@pytest.mark.parametrize("n", [2, 9, 10])
def test_a_row_of_weight_two_is_the_row_twice_for_hampel(n):
    rng = np.random.default_rng(n)
    residuals, weights = rng.standard_cauchy(size=(n, 1)), rng.integers(1, 4, size=n)
    twice = hampel_weights(np.repeat(residuals, weights, axis=0), np.ones(np.sum(weights)))
    np.testing.assert_allclose(np.repeat(hampel_weights(residuals, weights.astype(float)), weights), twice, rtol=1e-12)


# -------------------------------------------------------------------------------------------------- without noise


@pytest.mark.parametrize("solver", ["auto", "cholesky"])
@pytest.mark.parametrize("intercept", [False, True])
def test_without_noise_distinct_rows_are_interpolated(solver, intercept):
    rows, targets = draw()
    model = CompactRegressor(KERNEL, noise=0, solver=solver, intercept=intercept).fit(rows, targets)
    mean, std = model.predict(rows, return_std=True)
    assert_close(mean, targets)
    np.testing.assert_allclose(std, 0.0, atol=1e-5)
    assert np.min(model.predict(NEW, return_std=True)[1]) > 1e-3
    assert np.isfinite(model.condition_estimate_)


def test_without_noise_equal_rows_are_refused():
    rows, targets = draw()
    rows[3] = rows[70]
    with pytest.raises(NotPositiveDefiniteError, match=r"not positive definite.*larger noise"):
        CompactRegressor(KERNEL, noise=0, solver="cholesky").fit(rows, targets)


@each_estimator
def test_conjugate_gradients_need_noise(estimator):
    rows, targets = draw()
    with pytest.raises(ValueError, match="noise must be above zero with solver='cg'"):
        estimator(KERNEL, noise=0, solver="cg").fit(rows, (targets > 3).astype(int))


# --------------------------------------------------------------------------------------------------- unusual data


@each_solver
def test_equal_rows(solver):
    rows, targets = np.full((30, 2), 7.0), draw(30)[1]
    model = CompactRegressor("wendland", noise=0.1, **solver).fit(rows, targets)
    np.testing.assert_allclose(model.predict(rows[:1]), np.mean(targets), rtol=1e-8)
    reference = ExactRegressor(Wendland(), intercept=True, noise=0.1).fit(rows, targets)
    np.testing.assert_allclose(model.predict(rows, return_std=True)[1], reference.predict(rows, return_std=True)[1])


@each_solver
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kernel", ["wendland", KERNEL], ids=str)
def test_few_rows(n, solver, kernel):
    rows, targets = draw(n)
    model = CompactRegressor(kernel, noise=0.1, **solver).fit(rows, targets)
    reference = ExactRegressor(model.kernel_, intercept=True, noise=0.1).fit(rows, targets)
    for actual, expected in zip(
        model.predict(NEW, return_std=True), reference.predict(NEW, return_std=True), strict=True
    ):
        assert_close(actual, expected)
    assert model.log_determinant()[0] == pytest.approx(
        np.linalg.slogdet(model.kernel_(rows) + 0.1 * np.eye(n))[1], abs=5 * model.log_determinant()[1] + 1e-10
    )


@each_solver
def test_a_constant_column_does_not_matter(solver):
    rows, targets = draw()
    kernel = Wendland(0.4, dimension=3)
    expected = CompactRegressor(kernel, noise=0.1, **solver).fit(rows, targets).predict(NEW)
    for constant in (0.0, 1e6, -1e100):
        wide, new = (np.insert(x, 1, constant, axis=1) for x in (rows, NEW))
        assert_close(CompactRegressor(kernel, noise=0.1, **solver).fit(wide, targets).predict(new), expected)


@each_solver
@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e-20, 1e20, 1e170, 1e300])
@pytest.mark.parametrize("kernel", [Wendland(0.4), "wendland"], ids=["given", "auto"])
def test_units_of_the_inputs_do_not_matter(scale, solver, kernel):
    rows, targets = draw()
    expected = CompactRegressor(kernel, **solver, random_state=0, noise=0.1).fit(rows, targets).predict(NEW)
    if kernel != "wendland":
        kernel = Wendland(0.4 * scale)
    model = CompactRegressor(kernel, **solver, random_state=0, noise=0.1).fit(scale * rows, targets)
    assert_close(model.predict(scale * NEW), expected)


@each_solver
@pytest.mark.parametrize("scale", [1e-200, 1e-10, 1e10, 1e200])
def test_units_of_the_targets_do_not_matter(scale, solver):
    rows, targets = draw()
    expected = CompactRegressor(KERNEL, noise=0.1, **solver).fit(rows, targets).predict(NEW)
    assert_close(
        CompactRegressor(KERNEL, noise=0.1, **solver).fit(rows, scale * targets).predict(NEW) / scale, expected
    )


@each_solver
@pytest.mark.parametrize("scale", [1e-100, 1e-6, 1e6, 1e100])
def test_units_of_amplitude_and_noise_do_not_matter(scale, solver):
    rows, targets = draw()
    expected = CompactRegressor(Wendland(0.4), noise=0.1, **solver).fit(rows, targets).predict(NEW, return_std=True)
    model = CompactRegressor(Wendland(0.4, amplitude=scale), noise=0.1 * scale, **solver).fit(rows, targets)
    mean, std = model.predict(NEW, return_std=True)
    assert_close(mean, expected[0])
    assert_close(std, expected[1])  # the prior's σ makes up for it


@each_solver
def test_any_layout_of_rows_will_do_and_nothing_is_written(solver):
    rows, targets = draw()
    expected = CompactRegressor(KERNEL, noise=0.1, **solver).fit(rows, targets).predict(NEW, return_std=True)
    strided = np.repeat(rows, 2, axis=0)[::2]
    for other in (np.asfortranarray(rows), strided, rows.copy()):
        other.flags.writeable = False
        y = targets.copy()
        y.flags.writeable = False
        model = CompactRegressor(KERNEL, noise=0.1, **solver).fit(other, y)
        new = np.asfortranarray(NEW)
        new.flags.writeable = False
        np.testing.assert_array_equal(model.predict(new, return_std=True), expected)


# ----------------------------------------------------------------------------------- pickling, failures, threads


@pytest.mark.parametrize("preconditioner", [None, "jacobi", "incomplete", "two-level"])
@each_solver
def test_a_pickled_model_predicts_the_same(solver, preconditioner):
    rows, targets = draw()
    model = CompactRegressor(KERNEL, preconditioner=preconditioner, random_state=0, noise=0.1, **solver).fit(
        rows, targets
    )
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    assert_close(again.predict(NEW, return_std=True)[1], model.predict(NEW, return_std=True)[1])
    assert_close(again.predict(NEW, return_cov=True)[1], model.predict(NEW, return_cov=True)[1])
    assert again.log_determinant() == model.log_determinant()
    assert again._system.n_iter == model._system.n_iter


@each_solver
def test_a_pickled_classifier_predicts_the_same(solver):
    rows, targets = draw()
    model = CompactClassifier(KERNEL, noise=0.1, **solver).fit(rows, np.where(targets > 3, "high", "low"))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(NEW), model.decision_function(NEW))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))


@each_solver
def test_a_failed_fit_leaves_the_model_as_it_was(solver, monkeypatch):
    rows, targets = draw()
    model = CompactRegressor(KERNEL, robust=True, noise=0.1, **solver).fit(rows, targets)
    wide = np.hstack([rows, rows])
    wrong = np.where(np.arange(120) == 5, np.nan, targets)
    assert_refused(model, lambda: model.fit(wide, wrong), rows, ValueError, "NaN")
    assert_refused(model, lambda: model.fit(rows, targets[:5]), rows, ValueError, "inconsistent|rows")
    monkeypatch.setattr(sparse_kernel, "available_memory", lambda: 10)
    assert_refused(model, lambda: model.fit(wide, targets), rows, MemoryError, "would have")
    assert model.robust_weights_.shape == (120,)


def test_a_refused_kernel_leaves_the_model_as_it_was():
    lattice = np.stack(np.meshgrid(*[np.arange(3.0)] * 5), axis=-1).reshape(-1, 5)
    model = CompactRegressor(Wendland(3.0, 0, 1), noise=2.0).fit(lattice, lattice[:, 0])
    expected = model.predict(lattice)
    model.set_params(noise=0.1)
    assert_refused(model, lambda: model.fit(lattice, lattice[:, 1]), lattice, NotPositiveDefiniteError, "eigenvalue")
    np.testing.assert_array_equal(model.predict(lattice), expected)


@pytest.mark.parametrize("solver", [{"solver": "cholesky"}, {"solver": "cg", "tol": 1e-12}], ids=["cholesky", "cg"])
def test_the_number_of_threads_does_not_matter(solver, monkeypatch):
    monkeypatch.setattr(sparse_kernel, "_CHUNK", 16)
    rows, targets = draw()
    options = {"kernel": Wendland(0.4, 0, 1), "noise": 1.0, "random_state": 0, **solver}
    one, three = (CompactRegressor(**options, n_jobs=n_jobs).fit(rows, targets) for n_jobs in (1, 3))
    assert one.min_eigenvalue_ == three.min_eigenvalue_
    np.testing.assert_array_equal(one.coefficients_, three.coefficients_)
    np.testing.assert_array_equal(one.predict(NEW, return_std=True), three.predict(NEW, return_std=True))
    assert one.log_determinant() == three.log_determinant()


def test_before_fit_there_is_no_determinant():
    with pytest.raises(ValueError, match="not fitted"):
        CompactRegressor(noise=0.1).log_determinant()
    assert clone(CompactRegressor(KERNEL, robust=True, noise=0.1)).robust


def test_an_interrupted_fit_leaves_the_model_as_it_was(monkeypatch):
    rows, targets = draw()
    model = CompactRegressor(KERNEL, noise=0.1).fit(rows, targets)
    before = dict(vars(model))

    def interrupt(*_args, **_options):
        raise KeyboardInterrupt

    for name in ("times", "plus_diagonal"):
        with monkeypatch.context() as patched:
            patched.setattr(SparseGram, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                model.fit(rows[:50], targets[:50])
        assert vars(model) == before


def test_a_covariance_that_is_indefinite_is_refused():
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(400, 5)), rng.normal(size=(300, 5))
    model = CompactRegressor(Wendland(4.0, smoothness=0, dimension=1), noise=3.0, random_state=0).fit(rows, rows[:, 0])
    assert np.min(model.predict(new, return_std=True)[1]) > 0
    with pytest.raises(NotPositiveDefiniteError, match="an eigenvalue of the covariance is -"):
        model.predict(new, return_cov=True)
