"""Errors of held-out rows from sums, against refitting split by split."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)

from mercer import ExactRegressor, NystromClassifier, NystromRegressor, cross_validate_path
from mercer.engine import ArrayRows, Sequence, using
from mercer.kernels import Gaussian, Matern
from mercer.methods import cross_validation
from tests.oracles import each_intercept, each_weighting
from tests.processes import Processes

NOISES = [1e-3, 0.1, 10.0]
KERNEL = Gaussian(0.8)
GROUPS = np.arange(200) // 3 % 11

SPLITTERS = {
    "5": 5,
    "folds": KFold(7, shuffle=True, random_state=0),
    "groups": GroupKFold(4),
    "overlapping": ShuffleSplit(3, test_size=0.3, random_state=0),
    "some rows unused": ShuffleSplit(3, test_size=0.3, train_size=0.4, random_state=0),
    "repeated": RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
    "time": TimeSeriesSplit(3),
    "pairs": [(np.arange(100), np.arange(100, 200)), (np.arange(200) >= 50, np.arange(200) < 20)],
}


def refitted(model, rows, targets, weights, pairs, noises=NOISES):
    """Weighted mean squared error of each split, noise and output, (k, g, p)."""
    errors = []
    for train, test in pairs:
        w = np.ones(len(rows)) if weights is None else weights
        for noise in noises:
            fitted = model.set_params(noise=noise).fit(rows[train], targets[train], w[train])
            squares = (targets[test] - fitted.predict(rows[test])).reshape(len(w[test]), -1) ** 2
            errors.append(np.average(squares, axis=0, weights=w[test]))
    return np.array(errors).reshape(len(pairs), len(noises), -1)


@pytest.mark.parametrize("name", SPLITTERS)
@each_weighting
def test_errors_are_those_of_refitting(data, basis, name, weighted):
    rows, targets, _, weights = data
    weights = weights if weighted else None
    cv, model = SPLITTERS[name], NystromRegressor(KERNEL, basis=basis)
    groups = GROUPS if name == "groups" else None
    found = cross_validate_path(model, rows, targets, noises=NOISES, cv=cv, sample_weight=weights, groups=groups)
    splitter = KFold(5) if name == "5" else cv
    pairs = cv if name == "pairs" else list(splitter.split(rows, targets, groups))
    np.testing.assert_allclose(found.errors, refitted(model, rows, targets, weights, pairs), rtol=1e-8)


@each_intercept
def test_several_outputs_of_different_units(data, basis, intercept):
    rows, targets, _, weights = data
    both = np.column_stack([1e3 * targets + 5e4, rows[:, 1] ** 2])
    model = NystromRegressor(KERNEL, basis=basis, intercept=intercept)
    found = cross_validate_path(model, rows, both, noises=NOISES, sample_weight=weights)
    expected = refitted(model, rows, both, weights, list(KFold(5).split(rows)))
    np.testing.assert_allclose(found.errors, expected, rtol=1e-8)
    mean, error = expected.mean(axis=0), expected.std(axis=0, ddof=1) / np.sqrt(5)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(found.standard_error, error, rtol=1e-6)
    if intercept:
        # Each output counts in units of its variance.
        joint = np.mean(expected / np.cov(both.T, aweights=weights, ddof=0).diagonal(), axis=2)
        least = np.argmin(joint.mean(axis=0))
        assert found.best_noise == NOISES[least]
        limit = joint.mean(axis=0)[least] + joint.std(axis=0, ddof=1)[least] / np.sqrt(5)
        assert found.one_standard_error_noise == max(np.array(NOISES)[joint.mean(axis=0) <= limit])


def test_the_kernel_and_the_basis_are_those_of_a_fit_to_all_rows(data):
    rows, targets, _, _ = data
    model = NystromRegressor(n_basis=20, random_state=0)
    found = cross_validate_path(model, rows, targets, noises=NOISES)
    fitted = NystromRegressor(n_basis=20, random_state=0).fit(rows, targets)
    same = NystromRegressor(fitted.kernel_, basis=fitted.basis_)
    expected = refitted(same, rows, targets, None, list(KFold(5).split(rows)))
    np.testing.assert_allclose(found.errors, expected, rtol=1e-8)
    assert not hasattr(model, "_summary")
    assert model.noise == "auto"


@each_intercept
def test_one_row_per_fold_is_leave_one_out(data, basis, intercept):
    rows, targets, _, _ = data
    model = NystromRegressor(KERNEL, basis=basis, noise=0.1, intercept=intercept)
    found = cross_validate_path(model, rows, targets, noises=[0.1], cv=LeaveOneOut())
    residuals = model.fit(rows, targets)._calibration().residuals
    np.testing.assert_allclose(found.errors[:, 0], residuals**2, rtol=1e-8)
    assert found.mean[0, 0] == pytest.approx(model.loo_error_**2, rel=1e-8)


def test_errors_that_the_sums_cannot_resolve_are_those_of_the_rows(monkeypatch):
    # The error is 1e-9 of the targets: its square would be lost in sums that are known to 1e-16.
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, size=(300, 1))
    kernel, basis = Matern(1.0, nu=0.5), np.linspace(-1, 1, 7)[:, np.newaxis]
    targets = kernel(rows, basis) @ rng.normal(size=7) + 1e-9 * rng.normal(size=300)
    model = NystromRegressor(kernel, basis=basis)
    found = cross_validate_path(model, rows, targets, noises=[1e-12, 1.0])
    expected = refitted(model, rows, targets, None, list(KFold(5).split(rows)), [1e-12, 1.0])
    np.testing.assert_allclose(found.errors, expected, rtol=1e-3)  # refitting has its own rounding
    monkeypatch.setattr(cross_validation, "_EPS", 0.0)  # no rounding is seen
    by_sums = cross_validate_path(model, rows, targets, noises=[1e-12, 1.0])
    assert np.max(np.abs(by_sums.errors[:, 0] / expected[:, 0] - 1)) > 0.01


def test_sums_and_rows_agree(data, basis, monkeypatch):
    rows, targets, _, weights = data
    both = np.column_stack([targets, rows[:, 1] ** 2])
    model = NystromRegressor(KERNEL, basis=basis)
    by_sums = cross_validate_path(model, rows, both, noises=NOISES, sample_weight=weights)
    monkeypatch.setattr(cross_validation, "_VISIBLE", 0.0)
    by_rows = cross_validate_path(model, rows, both, noises=NOISES, sample_weight=weights)
    np.testing.assert_allclose(by_sums.errors, by_rows.errors, rtol=1e-9)


# ------------------------------------------------------------------------------------------------ classes


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_classes(data, basis, n_classes, class_weight):
    rows, targets, _, weights = data
    labels = np.array(["a", "b", "c"])[np.digitize(targets, [1.0, 1.6][: n_classes - 1])]
    model = NystromClassifier(KERNEL, basis=basis, class_weight=class_weight)
    options = {"noises": NOISES, "sample_weight": weights}
    wrong = cross_validate_path(model, rows, labels, loss="zero_one", **options)
    squares = cross_validate_path(model, rows, labels, **options)
    if class_weight == "balanced":  # of all rows
        totals = {label: np.sum(weights[labels == label]) for label in np.unique(labels)}
        weights = weights * np.array([np.sum(weights) / (n_classes * totals[label]) for label in labels])
    for k, (train, test) in enumerate(StratifiedKFold(5).split(rows, labels)):
        for g, noise in enumerate(NOISES):
            fitted = NystromClassifier(KERNEL, basis=basis, noise=noise)
            fitted.fit(rows[train], labels[train], weights[train])
            rate = 1 - fitted.score(rows[test], labels[test], weights[test])
            assert wrong.errors[k, g, 0] == pytest.approx(rate, abs=1e-12)
            signs = fitted.outputs_.columns(fitted.outputs_.codes(labels[test]))
            values = fitted.decision_function(rows[test]).reshape(signs.shape)
            expected = np.average((signs - values) ** 2, axis=0, weights=weights[test])
            np.testing.assert_allclose(squares.errors[k, g], expected, rtol=1e-8)
    assert wrong.best_noise == max(np.array(NOISES)[wrong.mean[:, 0] == wrong.mean.min()])


# ------------------------------------------------------------------------------------ where the rows are


def test_memory_maps_sparse_matrices_and_sources_of_rows(data, basis, tmp_path):
    rows, targets, _, _ = data
    np.save(tmp_path / "rows.npy", rows)
    cv, model = KFold(5, shuffle=True, random_state=0), NystromRegressor(KERNEL, basis=basis)
    expected = cross_validate_path(model, rows, targets, noises=NOISES, cv=cv).errors
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for other in (mapped, csr_array(rows), ArrayRows(rows), np.asfortranarray(rows)):
        np.testing.assert_allclose(cross_validate_path(model, other, targets, noises=NOISES, cv=cv).errors, expected)
    with using(Sequence()):
        found = cross_validate_path(model, rows, targets, noises=NOISES, cv=cv).errors
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_number_of_threads_does_not_matter():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, 2))
    targets = np.sin(rows[:, 0])
    options = {"kernel": KERNEL, "basis": rows[:20]}
    one, three = (
        cross_validate_path(NystromRegressor(**options, n_jobs=n), rows, targets, noises=NOISES) for n in (1, 3)
    )
    np.testing.assert_array_equal(one.errors, three.errors)


@pytest.mark.parametrize("loss", ["squared_error", "zero_one"])
def test_passes_travel_to_other_processes(loss):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 2))
    model, labels = NystromClassifier(KERNEL, basis=rows[:20]), np.digitize(rows[:, 0], [-1.0, 0.5])
    expected = cross_validate_path(model, rows, labels, noises=NOISES, loss=loss)
    with using(Processes()):
        found = cross_validate_path(model, rows, labels, noises=NOISES, loss=loss)
    np.testing.assert_array_equal(found.errors, expected.errors)


def test_the_default_noises_surround_the_best(data):
    rows, targets, _, _ = data
    found = cross_validate_path(NystromRegressor("matern", n_basis=100, random_state=0), rows, targets)
    assert found.errors.shape == (5, 57, 1)
    assert found.noises[0] < found.best_noise <= found.one_standard_error_noise < found.noises[-1]
    assert found.mean[-1, 0] == pytest.approx(np.var(targets), rel=0.1)  # so much noise leaves the mean
    assert found.mean.min() < 0.05 * np.var(targets)


def test_constant_targets_have_no_error(data):
    rows, _, _, _ = data
    found = cross_validate_path(NystromRegressor(n_basis=10, random_state=0), rows, np.full(200, 7.0))
    np.testing.assert_allclose(found.errors, 0.0, atol=1e-25)
    assert np.isfinite(found.best_noise)


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("noises", [[-1.0], [np.nan], [np.inf], [[1.0, 2.0]], [], "auto"])
def test_what_is_no_noise_is_refused(data, noises):
    with pytest.raises(ValueError, match="noises must"):
        cross_validate_path(NystromRegressor(n_basis=10), data[0], data[1], noises=noises)


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (1, "cv must be at least 2 folds"),
        (ShuffleSplit(1, random_state=0), "cv must make at least 2 splits, got 1"),
        ([(np.arange(100), np.arange(0)), (np.arange(9), np.arange(9))], "test set 0 of cv must be different"),
        ([(np.arange(9), np.arange(9)), ([], np.arange(9))], "training set 1 of cv must be different"),
        ([(np.arange(9), [200]), (np.arange(9), [1])], "row numbers from 0 to 199"),
        ([(np.arange(9), [-1]), (np.arange(9), [1])], "row numbers from 0 to 199"),
        ([(np.arange(9), [3, 3]), (np.arange(9), [1])], "different row numbers"),
        ([(np.arange(9), [0.5]), (np.arange(9), [1])], "different row numbers"),
        ("five", "cv"),
    ],
)
def test_folds_that_are_none_are_refused(data, cv, message):
    with pytest.raises(ValueError, match=message):
        cross_validate_path(NystromRegressor(n_basis=10), data[0], data[1], cv=cv)


def test_folds_without_weight_are_refused(data):
    rows, targets, _, weights = data
    for kept, name in (((slice(0, 40)), "training"), (slice(40, 200), "test")):
        some = np.zeros(200)
        some[kept] = weights[kept]
        with pytest.raises(ValueError, match=f"sample_weight is zero for all rows of a {name} set"):
            cross_validate_path(NystromRegressor(n_basis=10), rows, targets, sample_weight=some)


def test_other_estimators_and_losses_are_refused(data):
    rows, targets, _, _ = data
    for other in (ExactRegressor(), NystromRegressor):
        with pytest.raises(TypeError, match="must be a NystromRegressor or a NystromClassifier"):
            cross_validate_path(other, rows, targets)
    with pytest.raises(ValueError, match="loss must be one of"):
        cross_validate_path(NystromRegressor(), rows, targets, loss="zero_one")
    with pytest.raises(ValueError, match="loss must be one of"):
        cross_validate_path(NystromClassifier(), rows, targets > 0, loss="log_loss")


def test_groups_whose_sums_do_not_fit_are_refused(data, monkeypatch):
    rows, targets, _, _ = data
    monkeypatch.setattr(cross_validation, "available_memory", lambda: 10_000)
    with pytest.raises(ValueError, match=r"cv makes 5 groups of rows .* noise='loo'"):
        cross_validate_path(NystromRegressor(Matern(1.0, nu=0.5), n_basis=50), rows, targets)


def test_nan_and_too_few_rows_are_refused(data):
    rows, targets, _, _ = data
    with pytest.raises(ValueError, match="NaN"):
        cross_validate_path(NystromRegressor(), np.where(rows > 1, np.nan, rows), targets)
    with pytest.raises(ValueError, match="n_splits=5"):
        cross_validate_path(NystromRegressor(n_basis=2), rows[:3], targets[:3])
