"""Laws that hold for all data: hypothesis draws sizes, kernels, noises and seeds."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone

from mercer import ExactClassifier, ExactRegressor, NystromClassifier, NystromRegressor
from mercer.exceptions import JitterWarning
from mercer.kernels import Gaussian, Linear, Matern
from tests.strategies import booleans, draw_regression, noises, seeds

KERNELS = [
    "gaussian",
    "matern",
    Gaussian(0.7, amplitude=2.0),
    Matern(1.0, nu=0.5),
    Matern(2.0, nu=2.5),
    Gaussian() + Linear(0.5),
]

ROUGH = Matern("median", nu=0.5)  # its basis is regular but for equal rows

kernels = st.sampled_from(KERNELS)

# Rounding grows by the condition number of the system, at most n·k/λ = 1e4 here, to 1e-12; laws are checked to the
# accuracy that the package promises, but for bases that are singular to rounding (see ``tolerance_of``).
TOLERANCE = 1e-8
EPS = np.finfo(np.float64).eps


@st.composite
def problems(draw, *, smallest=2, largest=40):
    """Rows (some of them equal), targets, weights and new rows."""
    rng, rows, targets = draw_regression(draw, smallest, largest)
    n, d = rows.shape
    return rows, targets, rng.uniform(0.1, 3.0, size=n), 2 * rng.normal(size=(10, d))


def assert_close(actual, expected, tolerance=TOLERANCE):
    scale = max(1.0, np.max(np.abs(expected)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def tolerance_of(model, rows, targets, weights, new):
    """What a model on a basis can keep of the promised accuracy.

    The factor of K_mm knows each kernel section k(·, z) up to an error in the kernel's space: eps over the root of the
    last pivot, or, where points that the others span were left out, the root of the pivots that count as zero. The mean
    is a sum of sections with weights α = H⁻¹y, the variance one with weights H⁻¹k(x).
    """
    if not isinstance(model, NystromRegressor):
        return TOLERANCE
    weights = np.ones(len(rows)) if weights is None else weights
    kept = weights > 0
    basis = rows[kept] if isinstance(model.basis, str) else model.basis
    complete = model.rank_ == len(np.unique(basis, axis=0))
    error = EPS / np.sqrt(model._summary.frame.smallest_pivot) if complete else np.sqrt(max(4, len(rows)) * EPS)
    system = model.kernel_(rows[kept]) + model.noise_ * np.diag(1 / weights[kept])
    of_mean = np.sum(np.abs(np.linalg.solve(system, targets[kept])))
    of_variance = np.max(np.sum(np.abs(np.linalg.solve(system, model.kernel_(rows[kept], new))), axis=0))
    smallest_std = np.min(model.predict(new, return_std=True)[1])
    of_std = of_variance / smallest_std if smallest_std > 0 else 0.0  # of targets that are all alike it is zero
    return max(TOLERANCE, error * of_mean, error * of_std)


def assert_same_model(actual, expected, new, tolerance=TOLERANCE):
    for one, other in zip(actual.predict(new, return_std=True), expected.predict(new, return_std=True), strict=True):
        assert_close(one, other, tolerance)


def resolved(kernel, rows):
    """The kernel with numbers for parameters, so that several fits share it."""
    return ExactRegressor(kernel, noise=0.1, intercept=False).fit(rows, np.zeros(len(rows))).kernel_


regressors = pytest.mark.parametrize("estimator", [ExactRegressor, NystromRegressor], ids=lambda cls: cls.__name__)
classifiers = pytest.mark.parametrize("estimator", [ExactClassifier, NystromClassifier], ids=lambda cls: cls.__name__)


# ----------------------------------------------------------------------------------------------- the basis


@given(problems(), kernels, noises, booleans, booleans)
def test_all_rows_as_basis_give_the_exact_model(problem, kernel, noise, intercept, weighted):
    rows, targets, weights, new = problem
    options = {"kernel": kernel, "noise": noise, "intercept": intercept}
    weights = weights if weighted else None
    nystrom = NystromRegressor(**options).fit(rows, targets, weights)
    tolerance = tolerance_of(nystrom, rows, targets, weights, new)
    assert_same_model(nystrom, ExactRegressor(**options).fit(rows, targets, weights), new, tolerance)


@given(problems(), kernels, noises)
def test_more_basis_points_never_raise_the_objective(problem, kernel, noise):
    rows, targets, _, _ = problem
    kernel, half = resolved(kernel, rows), max(1, len(rows) // 2)

    def objective(basis):
        model = NystromRegressor(kernel, basis=basis, noise=noise, intercept=False).fit(rows, targets)
        w, gram = model.coefficients_, model.kernel_(model.basis_)
        # Weights of points that are close together are large and alternate: wᵀKw is known to eps|w|ᵀ|K||w|.
        rounding = len(w) * np.finfo(float).eps * noise * (np.abs(w) @ np.abs(gram) @ np.abs(w))
        return np.sum((targets - model.predict(rows)) ** 2) + noise * w @ gram @ w, rounding

    (more, lost), (fewer, lost_too) = objective(rows), objective(rows[:half])
    assert more <= fewer * (1 + 1e-8) + 1e-12 + lost + lost_too


# ------------------------------------------------------------------------------------------------- weights


@regressors
@given(problems(), kernels, noises, booleans, seeds)
def test_whole_weights_are_repetitions_and_weight_zero_is_absence(estimator, problem, kernel, noise, intercept, seed):
    rows, targets, _, new = problem
    counts = np.random.default_rng(seed).integers(0, 4, size=len(rows))
    counts[0] = 2
    options = {"kernel": kernel, "noise": noise, "intercept": intercept}
    repeated = np.repeat(np.arange(len(rows)), counts)
    weighted = estimator(**options).fit(rows, targets, sample_weight=counts)
    tolerance = tolerance_of(weighted, rows, targets, counts, new)
    assert_same_model(weighted, estimator(**options).fit(rows[repeated], targets[repeated]), new, tolerance)


@regressors
@given(problems(smallest=3), kernels, noises, booleans)
def test_weight_zero_is_the_row_removed(estimator, problem, kernel, noise, intercept):
    rows, targets, weights, new = problem
    weights[1] = 0.0
    kept = weights > 0
    options = {"kernel": kernel, "noise": noise, "intercept": intercept}
    model = estimator(**options).fit(rows, np.where(kept, targets, 1e6), weights)
    tolerance = tolerance_of(model, rows, targets, weights, new)
    assert_same_model(model, estimator(**options).fit(rows[kept], targets[kept], weights[kept]), new, tolerance)


@regressors
@given(problems(), kernels, noises, st.sampled_from([1e-3, 7.0, 1e3]))
def test_weights_and_noise_scale_together(estimator, problem, kernel, noise, factor):
    rows, targets, weights, new = problem
    model = estimator(kernel, noise=noise).fit(rows, targets, weights)
    scaled = estimator(kernel, noise=factor * noise).fit(rows, targets, factor * weights)
    tolerance = tolerance_of(model, rows, targets, weights, new)
    assert_close(scaled.predict(new), model.predict(new), tolerance)
    # In units of σ, for which a weight is a number of rows.
    mine, theirs = (each.predict(new, return_std=True)[1] / each.scale_ for each in (scaled, model))
    assert_close(mine, theirs, tolerance)


@classifiers
@given(problems(smallest=6), noises, booleans, seeds)
def test_whole_weights_are_repetitions_for_classifiers(estimator, problem, noise, intercept, seed):
    rows, _, _, new = problem
    labels = np.arange(len(rows)) % 3
    counts = np.random.default_rng(seed).integers(1, 4, size=len(rows))
    repeated = np.repeat(np.arange(len(rows)), counts)
    options = {"kernel": ROUGH, "noise": noise, "intercept": intercept}
    weighted = estimator(**options).fit(rows, labels, sample_weight=counts)
    expected = estimator(**options).fit(rows[repeated], labels[repeated])
    assert_close(weighted.decision_function(new), expected.decision_function(new))


# ---------------------------------------------------------------------------------------- merge and forget


@given(problems(), kernels, noises, booleans, st.floats(0, 1))
def test_merge_is_the_fit_of_both(problem, kernel, noise, intercept, share):
    rows, targets, weights, new = problem
    cut = 1 + int(share * (len(rows) - 2))
    options = {"kernel": resolved(kernel, rows), "basis": rows[::2], "noise": noise, "intercept": intercept}
    whole = NystromRegressor(**options).fit(rows, targets, weights)
    parts = [
        NystromRegressor(**options).fit(rows[part], targets[part], weights[part])
        for part in (slice(0, cut), slice(cut, None))
    ]
    a, b = clone_fitted(parts), clone_fitted(parts[::-1])
    tolerance = tolerance_of(whole, rows, targets, weights, new)
    assert_same_model(a[0].merge(a[1]), whole, new, tolerance)
    assert_same_model(b[0].merge(b[1]), whole, new, tolerance)


def clone_fitted(models):
    """Copies that share nothing that merge may change."""
    copies = [clone(model) for model in models]
    for copy, model in zip(copies, models, strict=True):
        vars(copy).update(vars(model))
    return copies


@given(problems(smallest=4), kernels, noises, booleans, booleans)
def test_forget_undoes_partial_fit(problem, kernel, noise, intercept, weighted):
    rows, targets, weights, new = problem
    weights = weights if weighted else np.ones(len(rows))
    half = len(rows) // 2
    options = {"kernel": resolved(kernel, rows), "basis": rows[::2], "noise": noise, "intercept": intercept}
    kept = (rows[:half], targets[:half], weights[:half])
    gone = (rows[half:], targets[half:], weights[half:])
    model = NystromRegressor(**options).partial_fit(*kept).partial_fit(*gone).forget(*gone)
    assert model.n_seen_ == half
    assert_same_model(model, NystromRegressor(**options).partial_fit(*kept), new, tolerance_of(model, *kept, new))


@given(problems(smallest=6), kernels, booleans, st.floats(-20, 20), st.sampled_from([0.1, "auto"]))
def test_forget_undoes_weights_of_any_magnitude_or_is_refused(problem, kernel, intercept, magnitude, noise):
    rows, targets, weights, new = problem
    half = len(rows) // 2
    options = {"kernel": resolved(kernel, rows), "basis": rows[::2], "noise": noise, "intercept": intercept}
    kept = (rows[:half], targets[:half], weights[:half])
    gone = (rows[half:], targets[half:], 10.0**magnitude * weights[half:])
    model = NystromRegressor(**options).partial_fit(*kept).partial_fit(*gone)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", JitterWarning)
            mean, std = model.forget(*gone).predict(new, return_std=True)
    except (ValueError, JitterWarning) as refusal:
        assert "anew" in str(refusal)  # noqa: PT017
        assert magnitude > 3
        return
    # What is not refused is right, up to a rounding that is a thousandth of the noise.
    options["noise"] = model.noise_
    expected = NystromRegressor(**options).partial_fit(*kept)
    size = np.max(np.abs(targets)) + 1e-12
    np.testing.assert_allclose(mean, expected.predict(new), rtol=0, atol=1e-2 * size)
    np.testing.assert_allclose(std, expected.predict(new, return_std=True)[1], rtol=0, atol=5e-2 * size)


@given(problems(), kernels, noises, booleans, seeds)
def test_batches_and_their_order_do_not_matter(problem, kernel, noise, intercept, seed):
    rows, targets, weights, new = problem
    options = {"kernel": resolved(kernel, rows), "basis": rows[::2], "noise": noise, "intercept": intercept}
    rng = np.random.default_rng(seed)
    model = NystromRegressor(**options)
    cuts = np.sort(rng.integers(1, len(rows), size=3))
    for part in np.split(rng.permutation(len(rows)), cuts):
        if len(part):
            model.partial_fit(rows[part], targets[part], weights[part])
    tolerance = tolerance_of(model, rows, targets, weights, new)
    assert_same_model(model, NystromRegressor(**options).fit(rows, targets, weights), new, tolerance)


# ----------------------------------------------------------------------------- how it is computed, not what


@regressors
@given(problems(smallest=20, largest=300), kernels, st.sampled_from([1, 2, 3]), st.sampled_from([1e-3, 1e-2, 1024]))
def test_threads_and_working_memory_do_not_matter(estimator, problem, kernel, n_jobs, working_memory):
    rows, targets, weights, new = problem
    expected = estimator(kernel, noise=0.1, n_jobs=1).fit(rows, targets, weights)
    with config_context(working_memory=working_memory):
        model = estimator(kernel, noise=0.1, n_jobs=n_jobs).fit(rows, targets, weights)
        assert_same_model(model, expected, new, tolerance_of(expected, rows, targets, weights, new))


@given(problems(smallest=20, largest=200), st.sampled_from([1, 2, 3]), st.sampled_from([1e-3, 1024]))
def test_threads_and_working_memory_do_not_matter_to_conjugate_gradients(problem, n_jobs, working_memory):
    rows, targets, _, new = problem
    expected = ExactRegressor(noise=0.1, intercept=False).fit(rows, targets)
    with config_context(working_memory=working_memory):
        model = ExactRegressor(solver="cg", tol=1e-12, n_jobs=n_jobs, random_state=0, noise=0.1, intercept=False).fit(
            rows, targets
        )
    assert_close(model.predict(new), expected.predict(new))


@regressors
@given(problems(), kernels, noises, booleans, seeds)
def test_the_order_of_rows_does_not_matter(estimator, problem, kernel, noise, intercept, seed):
    rows, targets, weights, new = problem
    order = np.random.default_rng(seed).permutation(len(rows))
    options = {"kernel": kernel, "noise": noise, "intercept": intercept}
    model = estimator(**options).fit(rows[order], targets[order], weights[order])
    tolerance = tolerance_of(model, rows, targets, weights, new)
    assert_same_model(model, estimator(**options).fit(rows, targets, weights), new, tolerance)


@regressors
@given(problems(), kernels, noises, seeds)
def test_the_order_of_features_does_not_matter(estimator, problem, kernel, noise, seed):
    rows, targets, _, new = problem
    order = np.random.default_rng(seed).permutation(rows.shape[1])
    model = estimator(kernel, noise=noise).fit(rows, targets)
    moved = estimator(kernel, noise=noise).fit(rows[:, order], targets)
    assert_close(moved.predict(new[:, order]), model.predict(new), tolerance_of(model, rows, targets, None, new))


# ------------------------------------------------------------------------------------------------- outputs


@regressors
@given(problems(), kernels, noises, booleans)
def test_several_outputs_are_the_outputs_one_by_one(estimator, problem, kernel, noise, intercept):
    rows, targets, weights, new = problem
    several = np.column_stack([targets, targets**2, -targets])
    options = {"kernel": kernel, "noise": noise, "intercept": intercept}
    together = estimator(**options).fit(rows, several, weights)
    for column, values in enumerate(several.T):
        alone = estimator(**options).fit(rows, values, weights)
        tolerance = tolerance_of(alone, rows, values, weights, new)
        assert_close(together.predict(new)[:, column], alone.predict(new), tolerance)
        std = together.predict(new, return_std=True)[1][:, column]
        assert_close(std, alone.predict(new, return_std=True)[1], tolerance)


@regressors
@given(problems(), kernels, noises, booleans, st.tuples(st.floats(-100, 100), st.floats(-100, 100)))
def test_the_mean_is_linear_in_the_targets(estimator, problem, kernel, noise, intercept, line):
    rows, targets, _, new = problem
    factor, shift = (number if abs(number) > 1e-100 else 0.0 for number in line)  # squares that vanish are refused
    model = estimator(kernel, noise=noise, intercept=intercept)
    shift = shift if intercept else 0.0  # only a constant without penalty follows a shift
    before = model.fit(rows, targets).predict(new)
    after = model.fit(rows, factor * targets + shift).predict(new)
    scale = max(1.0, abs(factor), abs(shift))
    assert_close(after / scale, (factor * before + shift) / scale)


@classifiers
@given(problems(smallest=6), noises, booleans, st.permutations([0, 1, 2]))
def test_relabelling_permutes_decisions(estimator, problem, noise, intercept, names):
    rows, _, _, new = problem
    labels = np.arange(len(rows)) % 3
    options = {"kernel": ROUGH, "noise": noise, "intercept": intercept}
    model = estimator(**options).fit(rows, labels)
    renamed = estimator(**options).fit(rows, np.asarray(names)[labels])
    assert_close(renamed.decision_function(new)[:, names], model.decision_function(new))


@classifiers
@given(problems(smallest=4), noises, booleans)
def test_swapping_two_labels_changes_the_sign(estimator, problem, noise, intercept):
    rows, _, _, new = problem
    labels = np.arange(len(rows)) % 2
    options = {"kernel": ROUGH, "noise": noise, "intercept": intercept}
    model, swapped = estimator(**options).fit(rows, labels), estimator(**options).fit(rows, 1 - labels)
    assert_close(swapped.decision_function(new), -model.decision_function(new))


# --------------------------------------------------------------------------------------------- error bars


@regressors
@given(problems(), kernels, noises, booleans)
def test_error_bars_in_units_of_the_prior_shrink_with_data(estimator, problem, kernel, noise, intercept):
    rows, targets, _, new = problem
    kernel, half = resolved(kernel, rows), len(rows) // 2
    extra = {"basis": rows} if estimator is NystromRegressor else {}
    model = estimator(kernel, noise=noise, intercept=intercept, **extra)
    few = model.fit(rows[:half], targets[:half]).expansion_.variances(new) ** 0.5
    many = model.fit(rows, targets).expansion_.variances(new) ** 0.5
    assert np.all(many <= few + TOLERANCE)
    if not intercept:
        assert np.all(many <= np.sqrt(kernel.diagonal(new)) + TOLERANCE)


@regressors
@given(problems(), kernels, noises, booleans)
def test_the_covariance_has_the_variances_on_its_diagonal_and_is_semi_definite(
    estimator, problem, kernel, noise, intercept
):
    rows, targets, _, new = problem
    model = estimator(kernel, noise=noise, intercept=intercept).fit(rows, targets)
    _, std = model.predict(new, return_std=True)
    _, covariance = model.predict(new, return_cov=True)
    assert_close(np.diag(covariance), std**2)
    np.testing.assert_array_equal(covariance, covariance.T)
    assert np.min(np.linalg.eigvalsh(covariance)) >= -1e-10 * max(1.0, np.max(covariance))
