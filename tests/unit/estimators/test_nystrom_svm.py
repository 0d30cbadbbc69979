"""Support vector machines on a basis: against scikit-learn's, ridge regression, and the definition of the minimum."""

import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

from mercer import ExactRegressor, NystromRegressor, NystromSVC, NystromSVR
from mercer.kernels import Gaussian, White
from mercer.methods import support_vectors

KERNEL = Gaussian(1.0)  # gamma=0.5
LOSSES = [
    (NystromSVC, "hinge"),
    (NystromSVC, "squared_hinge"),
    (NystromSVR, "epsilon_insensitive"),
    (NystromSVR, "squared_epsilon_insensitive"),
]
every_loss = pytest.mark.parametrize(("estimator", "loss"), LOSSES)


def draw(seed=0, n=120):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 2))
    values = np.sin(2 * rows[:, 0]) + rows[:, 1] + 0.3 * rng.normal(size=n)
    return rows, values


def targets_of(estimator, values):
    return np.where(values > 0, 1.0, -1.0) if estimator is NystromSVC else values


def values_of(model, rows):
    return model.decision_function(rows) if isinstance(model, NystromSVC) else model.predict(rows)


def objective(model, rows, targets, weights=1.0):
    """½|f|² + C Σ ω ℓ, by the formula."""
    coefficients, points = np.ravel(model.coefficients_), model.basis_
    values = values_of(model, rows)
    if isinstance(model, NystromSVC):
        sizes = np.maximum(1 - targets * values, 0)
    else:
        sizes = np.maximum(np.abs(targets - values) - model.epsilon, 0)
    losses = sizes**2 if model.loss.startswith("squared") else sizes
    return 0.5 * coefficients @ model.kernel_(points) @ coefficients + model.C * np.sum(weights * losses)


# ------------------------------------------------------------------------------------------------ scikit-learn's


@pytest.mark.parametrize("cost", [0.1, 1.0, 30.0])
def test_all_rows_as_basis_and_the_hinge_are_the_support_vector_machine(cost):
    rows, values = draw()
    labels = targets_of(NystromSVC, values)
    model = NystromSVC(KERNEL, basis=rows, C=cost, loss="hinge", tol=1e-9).fit(rows, labels)
    reference = SVC(C=cost, gamma=0.5, tol=1e-9).fit(rows, labels)
    new = draw(1)[0]
    # Both end within 1e-9 of the objective; its root is what is left of values.
    expected = reference.decision_function(new)
    np.testing.assert_allclose(model.decision_function(new), expected, rtol=0, atol=1e-4 * np.max(np.abs(expected)))
    np.testing.assert_array_equal(model.n_support_, reference.n_support_)


@pytest.mark.parametrize("cost", [0.1, 1.0, 30.0])
def test_all_rows_as_basis_are_support_vector_regression(cost):
    rows, values = draw()
    values = values + 100.0
    model = NystromSVR(KERNEL, basis=rows, C=cost, loss="epsilon_insensitive", tol=1e-9).fit(rows, values)
    reference = SVR(C=cost, gamma=0.5, epsilon=0.1, tol=1e-9).fit(rows, values)
    new = draw(1)[0]
    np.testing.assert_allclose(model.predict(new), reference.predict(new), rtol=0, atol=1e-3)
    assert abs(model.n_support_ - len(reference.support_)) <= 1


def whitened(model, rows):
    """v(x) = L⁻¹k(x)."""
    lower = np.linalg.cholesky(model.kernel_(model.basis_))
    return np.linalg.solve(lower, model.kernel_(model.basis_, rows)).T


@pytest.mark.parametrize("cost", [0.1, 10.0])
def test_linear_machines_on_the_features_agree(cost):
    rows, values = draw()
    labels, points = targets_of(NystromSVC, values), draw(2, 15)[0]
    options = {"basis": points, "C": cost, "intercept": False, "tol": 1e-10}
    theirs = {"C": cost, "fit_intercept": False, "dual": False, "tol": 1e-10, "max_iter": 10_000}
    model = NystromSVC(KERNEL, **options).fit(rows, labels)
    features = whitened(model, rows)
    reference = LinearSVC(**theirs).fit(features, labels)
    expected = reference.decision_function(features)
    np.testing.assert_allclose(model.decision_function(rows), expected, rtol=0, atol=1e-4)
    machine = NystromSVR(KERNEL, epsilon=0.2, **options).fit(rows, values)
    theirs |= {"loss": "squared_epsilon_insensitive", "epsilon": 0.2}
    expected = LinearSVR(**theirs).fit(features, values).predict(features)
    np.testing.assert_allclose(machine.predict(rows), expected, rtol=0, atol=1e-4)


def test_without_a_tube_squared_losses_are_ridge_regression():
    rows, values = draw()
    points = draw(2, 15)[0]
    model = NystromSVR(KERNEL, basis=points, C=5.0, epsilon=0.0).fit(rows, values)
    ridge = NystromRegressor(KERNEL, basis=points, noise=0.1).fit(rows, values)
    np.testing.assert_allclose(model.predict(rows), ridge.predict(rows), rtol=0, atol=1e-9)
    np.testing.assert_allclose(model.intercept_, ridge.intercept_, rtol=1e-9)
    np.testing.assert_allclose(model.loo_error_, ridge.loo_error_, rtol=1e-8)


# ---------------------------------------------------------------------------------------------------- the minimum


@every_loss
@pytest.mark.parametrize("intercept", [True, False])
def test_the_gap_bounds_how_far_the_objective_is_from_its_minimum(estimator, loss, intercept):
    rows, values = draw()
    targets, weights = targets_of(estimator, values), np.random.default_rng(3).uniform(0, 2, len(rows))
    options = {"basis": draw(2, 15)[0], "C": 3.0, "loss": loss, "intercept": intercept}
    best = estimator(KERNEL, tol=1e-10, **options).fit(rows, targets, weights)
    least = objective(best, rows, targets, weights)
    with pytest.warns(ConvergenceWarning, match="objective may be"):
        rough = estimator(KERNEL, max_iter=2, tol=1e-10, **options).fit(rows, targets, weights)
    reached = objective(rough, rows, targets, weights)
    assert least < reached
    assert reached * (1 - rough.duality_gap_[0]) <= least * (1 + 1e-9)
    assert best.duality_gap_[0] <= 1e-10


@every_loss
def test_the_objective_rises_in_every_direction(estimator, loss):
    rows, values = draw()
    targets = targets_of(estimator, values)
    model = estimator(KERNEL, basis=draw(2, 15)[0], loss=loss, tol=1e-11).fit(rows, targets)
    least, rng = objective(model, rows, targets), np.random.default_rng(4)
    for _ in range(20):
        moved = estimator(KERNEL, basis=model.basis_, loss=loss).fit(rows, targets)
        expansion = model.expansion_
        w = expansion.coefficients + 1e-3 * rng.normal(size=expansion.coefficients.shape)
        b = expansion.intercept + 1e-3 * rng.normal(size=1)
        moved.expansion_ = type(expansion)(expansion.kernel, expansion.points, w, b)
        assert objective(moved, rows, targets) >= least * (1 - 1e-11)


@every_loss
def test_features_that_are_computed_in_each_pass_give_what_stored_ones_give(estimator, loss):
    rows, values = draw(n=3000)
    targets, weights = targets_of(estimator, values), np.random.default_rng(3).uniform(0, 2, len(rows))
    model = estimator(KERNEL, n_basis=20, loss=loss, tol=1e-9, random_state=0)
    stored = values_of(model.fit(rows, targets, weights), rows)
    with config_context(working_memory=1):  # 3000 rows of 24 numbers are half of it
        streamed = values_of(model.fit(rows, targets, weights), rows)
    np.testing.assert_allclose(streamed, stored, rtol=0, atol=1e-4 * np.max(np.abs(stored)))


@every_loss
def test_a_search_that_begins_with_some_rows_ends_at_the_same_function(estimator, loss, monkeypatch):
    rows, values = draw(n=1500)
    targets, weights = targets_of(estimator, values), np.random.default_rng(3).uniform(0, 2, len(rows))
    model = estimator(KERNEL, n_basis=15, loss=loss, tol=1e-9, random_state=0)
    expected = values_of(model.fit(rows, targets, weights), rows)
    monkeypatch.setattr(support_vectors, "_FEWEST", 100)
    found = values_of(model.fit(rows, targets, weights), rows)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.max(np.abs(expected)))


@every_loss
def test_a_path_gives_what_fits_give(estimator, loss):
    rows, values = draw()
    targets = targets_of(estimator, values)
    model = estimator(KERNEL, basis=draw(2, 15)[0], loss=loss, tol=1e-9).fit(rows, targets)
    before = values_of(model, rows)
    path = model.path(rows, targets, [0.1, 1.0, 10.0])
    np.testing.assert_array_equal(values_of(model, rows), before)
    for i, cost in enumerate(path.C):
        alone = estimator(KERNEL, basis=model.basis_, C=cost, loss=loss, tol=1e-9).fit(rows, targets)
        found = model.kernel_(rows, model.basis_) @ path.coefficients[i, :, 0] + path.intercepts[i, 0]
        np.testing.assert_allclose(found, values_of(alone, rows), rtol=0, atol=1e-3)
        np.testing.assert_allclose(path.n_support[i], alone.n_support_, atol=1)


def test_a_path_is_given_all_rows_which_may_be_balanced():
    rows, values = draw()
    labels, weights = np.where(values > 1, "many", "few"), np.random.default_rng(3).uniform(0, 2, len(rows))
    model = NystromSVC(KERNEL, n_basis=15, class_weight="balanced", tol=1e-10, random_state=0)
    model.fit(rows, labels, weights)
    path = model.path(rows, labels, [model.C], weights)
    np.testing.assert_allclose(path.coefficients[0], model.coefficients_, rtol=0, atol=1e-6)


# ------------------------------------------------------------------------------------------------------- classes


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_three_classes_are_three_machines(loss, monkeypatch):
    rows, labels = load_iris(return_X_y=True)
    options = {"kernel": KERNEL, "basis": rows[::8], "loss": loss, "tol": 1e-9}
    model = NystromSVC(**options).fit(rows, labels)
    for column, label in enumerate(model.classes_):
        alone = NystromSVC(**options).fit(rows, labels == label)
        decisions = alone.decision_function(rows)
        np.testing.assert_allclose(model.decision_function(rows)[:, column], decisions, rtol=0, atol=1e-4)
        assert abs(model.n_support_[column] - np.sum(alone.n_support_)) <= 1
    together = model.decision_function(rows)
    monkeypatch.setattr(support_vectors, "working_memory_bytes", lambda: 4 * 8 * 24**2)  # one Hessian after the other
    np.testing.assert_allclose(model.fit(rows, labels).decision_function(rows), together, rtol=0, atol=1e-4)


@every_loss
def test_a_row_of_weight_two_is_the_row_twice(estimator, loss):
    rows, values = draw()
    targets, twice = targets_of(estimator, values), np.arange(len(rows)) % 3 == 0
    options = {"basis": draw(2, 15)[0], "loss": loss, "tol": 1e-10}
    weighted = estimator(KERNEL, **options).fit(rows, targets, 1.0 + twice)
    repeated = estimator(KERNEL, **options)
    repeated.fit(np.concatenate([rows, rows[twice]]), np.concatenate([targets, targets[twice]]))
    np.testing.assert_allclose(values_of(weighted, rows), values_of(repeated, rows), rtol=0, atol=1e-4)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_class_weights_are_weights_of_rows(loss):
    rows, values = draw()
    labels = np.where(values > 0, "up", "down")
    options = {"basis": draw(2, 15)[0], "loss": loss, "tol": 1e-10}
    by_class = NystromSVC(KERNEL, class_weight={"up": 5.0}, **options).fit(rows, labels)
    by_row = NystromSVC(KERNEL, **options).fit(rows, labels, np.where(values > 0, 5.0, 1.0))
    np.testing.assert_allclose(by_class.decision_function(rows), by_row.decision_function(rows), rtol=0, atol=1e-4)


# ------------------------------------------------------------------------------------------------- rows left out


def test_while_all_rows_are_inside_the_margin_those_left_out_are_exact():
    rows, values = draw(n=40)
    labels = targets_of(NystromSVC, values)
    options = {"basis": draw(2, 15)[0], "C": 1e-3}
    model = NystromSVC(KERNEL, **options).fit(rows, labels)
    assert np.sum(model.n_support_) == len(rows)
    left_out = model._calibration().values[:, 0]
    for i in range(len(rows)):
        others = np.arange(len(rows)) != i
        value = NystromSVC(KERNEL, **options).fit(rows[others], labels[others]).decision_function(rows[i : i + 1])
        np.testing.assert_allclose(left_out[i], value[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize(("estimator", "loss"), LOSSES[:2] + LOSSES[3:])
def test_rows_left_out_are_closer_than_fitted_ones_to_what_fits_without_them_give(estimator, loss):
    rows, values = draw(n=60)
    targets, some = targets_of(estimator, values), np.arange(20)
    options = {"basis": draw(2, 10)[0], "loss": loss, "tol": 1e-6}
    model = estimator(KERNEL, **options).fit(rows, targets)
    exact = np.empty(len(some))
    for i in some:
        others = np.arange(len(rows)) != i
        exact[i] = values_of(estimator(KERNEL, **options).fit(rows[others], targets[others]), rows[i : i + 1])[0]
    fitted, left_out = values_of(model, rows)[some], model._calibration().values[some, 0]
    # An approximation: for the hinge, less than half of the optimism of fitted values remains.
    assert np.mean(np.abs(left_out - exact)) < 0.6 * np.mean(np.abs(fitted - exact))


def test_regression_without_squares_has_no_error_of_rows_left_out():
    rows, values = draw()
    model = NystromSVR(KERNEL, n_basis=5, loss="epsilon_insensitive", random_state=0).fit(rows, values)
    assert not hasattr(model, "loo_error_")


# ----------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("estimator", [NystromSVC, NystromSVR])
@pytest.mark.parametrize(("name", "value"), [("C", 0.0), ("C", -1.0), ("tol", 0.0), ("max_iter", 0), ("loss", "huber")])
def test_parameters_out_of_range_are_refused(estimator, name, value):
    rows, values = draw()
    with pytest.raises(ValueError, match=f"The '{name}' parameter"):
        estimator(**{name: value}).fit(rows, targets_of(estimator, values))


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="only one class"):
        NystromSVC().fit(draw()[0], np.ones(120))


@pytest.mark.parametrize("C", [[], [0.0], [-1.0, 1.0], ["a"], [np.nan]])
def test_a_path_over_what_are_no_costs_is_refused(C):
    rows, values = draw()
    model = NystromSVR(n_basis=5, random_state=0).fit(rows, values)
    with pytest.raises(ValueError, match="C must"):
        model.path(rows, values, C)


def test_noise_in_the_kernel_is_refused():
    rows, values = draw()
    with pytest.raises(ValueError, match="take White out of the kernel"):
        NystromSVR(KERNEL + White(0.1)).fit(rows, values)


@every_loss
def test_rows_that_are_all_equal_leave_a_constant(estimator, loss):
    rows, values = np.ones((30, 2)), draw(n=30)[1]
    targets = targets_of(estimator, values)
    model = estimator(KERNEL, loss=loss).fit(rows, targets)
    assert model.rank_ == 1
    assert np.ptp(values_of(model, rows)) == 0


@every_loss
def test_tiny_costs(estimator, loss):
    rows, values = draw(n=60)
    tiny = estimator(KERNEL, C=1e-10, loss=loss).fit(rows, targets_of(estimator, values))
    assert np.max(np.abs(tiny.coefficients_)) < 1e-8


@every_loss
@pytest.mark.parametrize("cost", [1e3, 1e6])
@pytest.mark.parametrize("is_noisy", [True, False])
def test_enormous_costs(estimator, loss, cost, is_noisy):
    # without noise and on all rows no error need be left
    rows, values = draw(n=60)
    values = values if is_noisy else np.sin(rows[:, 0])
    targets = targets_of(estimator, values)
    basis = draw(2, 10)[0] if is_noisy else rows
    large = estimator(KERNEL, basis=basis, C=cost, loss=loss, max_iter=1000).fit(rows, targets)
    assert large.duality_gap_[0] <= 1e-5
    if estimator is NystromSVC and not is_noisy:
        assert large.score(rows, targets) == 1


@every_loss
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_weights_and_costs_multiply(estimator, loss, scale):
    rows, values = draw(n=60)
    targets, options = targets_of(estimator, values), {"basis": draw(2, 10)[0], "loss": loss, "tol": 1e-9}
    plain = estimator(KERNEL, C=2.0, **options).fit(rows, targets)
    scaled = estimator(KERNEL, C=2.0 * scale, **options).fit(rows, targets, np.full(60, 1 / scale))
    np.testing.assert_allclose(values_of(scaled, rows), values_of(plain, rows), rtol=0, atol=1e-4)


@every_loss
def test_a_tolerance_that_rounding_does_not_allow_ends_near_the_minimum(estimator, loss):
    rows, values = draw(n=60)
    options = {"basis": draw(2, 10)[0], "loss": loss}
    model = estimator(KERNEL, tol=1e-15, **options).fit(rows, targets_of(estimator, values))
    assert model.duality_gap_[0] <= 1e-8


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_memory_does_not_grow_with_the_number_of_classes(loss):
    rows, peaks = draw(n=300)[0], []
    model = NystromSVC(KERNEL, n_basis=100, loss=loss, random_state=0, n_jobs=1, max_iter=3)
    for n_classes in (3, 3, 23):  # the first one pays for what happens once
        with config_context(working_memory=0.5), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            tracemalloc.start()
            model.fit(rows, np.arange(300) % n_classes)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[2] - peaks[1] < 0.5 * 20 * 8 * model.rank_**2  # Hessians are let go


def test_float32_rows_are_fitted():
    rows, values = draw()
    wide = NystromSVR(KERNEL, basis=rows[:10]).fit(rows.astype(np.float32).astype(np.float64), values)
    narrow = NystromSVR(KERNEL, basis=rows[:10].astype(np.float32)).fit(rows.astype(np.float32), values)
    assert narrow.predict(rows.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(narrow.predict(rows.astype(np.float32)), wide.predict(rows), rtol=0, atol=1e-2)


def test_exact_and_reduced_machines_agree_with_least_squares_where_all_rows_matter():
    rows, values = draw(n=50)
    model = NystromSVR(KERNEL, basis=rows, C=5.0, epsilon=0.0).fit(rows, values)
    exact = ExactRegressor(KERNEL, noise=0.1).fit(rows, values)
    np.testing.assert_allclose(model.predict(rows), exact.predict(rows), rtol=0, atol=1e-6)
