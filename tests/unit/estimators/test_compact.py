"""Models on a sparse matrix against the same ones on a dense matrix, to 1e-8."""

import itertools

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from mercer import CompactClassifier, CompactRegressor, ExactClassifier, ExactRegressor
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import CompactGaussian, Wendland
from mercer.methods import compact_system
from mercer.solvers.preconditioners import Incomplete, Jacobi

KERNELS = [
    Wendland(0.4, amplitude=2.5),
    Wendland([0.3, 0.6], smoothness=0),
    Wendland(0.5, smoothness=2),
    CompactGaussian(0.1),
    CompactGaussian([0.2, 0.5], cutoff=0.5, exponent=1.5, amplitude=0.3),
]
CG = {"solver": "cg", "tol": 1e-12, "n_jobs": 1}
PRECONDITIONERS = [None, "jacobi", "incomplete", "two-level"]
ORDERINGS = ["amd", "colamd", "rcm", "natural"]

# Of models without an intercept, whose targets are far from zero, or of targets that cannot be learned.
ungeneral = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")
starved = pytest.mark.filterwarnings("ignore::mercer.exceptions.StarvedWarning")
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=str)
each_solver = pytest.mark.parametrize("solver", [{"solver": "cholesky"}, CG], ids=["cholesky", "cg"])
each_intercept = pytest.mark.parametrize("intercept", [False, True], ids=["plain", "intercept"])
each_weighting = pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])


def assert_close(actual, expected, tolerance=1e-8):
    """Equal within a tolerance relative to the largest entry."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.max(np.abs(expected)))


@pytest.fixture(autouse=True)
def _few_coarse_points(monkeypatch):
    """With as many as there are rows, the two-level preconditioner would be the inverse."""
    monkeypatch.setattr(compact_system, "_COARSE", 40)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(150, 2))
    targets = np.sin(6 * rows[:, 0]) * np.cos(6 * rows[:, 1]) + 0.1 * rng.normal(size=150) + 3.0
    new = np.vstack([rng.uniform(-0.1, 1.1, size=(12, 2)), rows[:3], [[9.0, 9.0]]])
    return rows, targets, new, rng.uniform(0.1, 3.0, size=150)


def assert_same_moments(model, reference, new, tolerance=1e-8):
    mean, std = model.predict(new, return_std=True)
    again, covariance = model.predict(new, return_cov=True)
    expected_mean, expected_std = reference.predict(new, return_std=True)
    assert_close(mean, expected_mean, tolerance)
    assert_close(std, expected_std, tolerance)
    assert_close(covariance, reference.predict(new, return_cov=True)[1], tolerance)
    np.testing.assert_array_equal(mean, again)
    np.testing.assert_array_equal(mean, model.predict(new))


# --------------------------------------------------------------------------------------------- the dense model


@ungeneral
@each_kernel
@each_solver
@each_intercept
def test_model_equals_the_dense_one(data, kernel, solver, intercept):
    rows, targets, new, _ = data
    model = CompactRegressor(kernel, noise=0.05, intercept=intercept, **solver).fit(rows, targets)
    reference = ExactRegressor(kernel, noise=0.05, intercept=intercept).fit(rows, targets)
    assert_same_moments(model, reference, new)
    assert_close(model.coefficients_, reference.coefficients_)
    assert model.intercept_ == pytest.approx(reference.intercept_, rel=1e-8, abs=1e-10)
    assert model.nnz_ == np.count_nonzero(model.kernel_(rows))
    assert model.solver_ == solver["solver"]
    assert (model.n_iter_ == 1) == (model.fill_in_ is not None) == (solver["solver"] == "cholesky")


@ungeneral
@each_solver
@each_intercept
@pytest.mark.parametrize("noise", [1e-2, 10.0])
def test_weights_and_several_outputs(data, solver, intercept, noise):
    rows, targets, new, weights = data
    weights[[3, 70]] = 0.0
    both = np.column_stack([targets, -2 * targets**2])
    options = {"noise": noise, "intercept": intercept}
    model = CompactRegressor(KERNELS[0], **options, **solver).fit(rows, both, weights)
    reference = ExactRegressor(KERNELS[0], **options).fit(rows, both, weights)
    assert_same_moments(model, reference, new)
    assert_close(model.coefficients_, reference.coefficients_)
    assert model.coefficients_.shape == (148, 2)
    assert model.intercept_.shape == (2,)


@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_preconditioners_do_not_change_the_model(data, preconditioner):
    rows, targets, new, weights = data
    reference = ExactRegressor(KERNELS[0], intercept=True, noise=0.1).fit(rows, targets, weights)
    model = CompactRegressor(KERNELS[0], **CG, preconditioner=preconditioner, noise=0.1).fit(rows, targets, weights)
    assert_same_moments(model, reference, new)


@pytest.mark.parametrize("preconditioner", ["incomplete", "two-level"])
def test_preconditioners_save_iterations(data, preconditioner):
    rows, targets, _, _ = data
    plain, better = (
        CompactRegressor(Wendland(1.0), noise=1e-3, **CG, preconditioner=name).fit(rows, targets).n_iter_
        for name in (None, preconditioner)
    )
    assert better < 0.5 * plain


def test_an_incomplete_factor_that_would_not_fit_is_not_made(data, monkeypatch):
    rows, targets, _, _ = data
    model = CompactRegressor(Wendland(1.0), noise=1e-3, solver="cg", max_iter=5000)
    assert isinstance(model.fit(rows, targets)._system._precondition, Incomplete)
    monkeypatch.setattr(compact_system, "available_memory", lambda: 10 * model.nnz_)
    assert isinstance(model.fit(rows, targets)._system._precondition, Jacobi)


@each_solver
def test_rows_in_float32(data, solver):
    rows, targets, new, _ = data
    rows, new = rows.astype(np.float32), new.astype(np.float32)
    model = CompactRegressor(KERNELS[0], noise=0.1, **solver).fit(rows, targets)
    reference = ExactRegressor(KERNELS[0], intercept=True, noise=0.1).fit(rows.astype(float), targets)
    mean, std = model.predict(new, return_std=True)
    expected_mean, expected_std = reference.predict(new.astype(float), return_std=True)
    assert mean.dtype == np.float32
    assert_close(mean, expected_mean, 1e-5)
    assert_close(std, expected_std, 1e-5)
    assert_close(model.predict(new, return_cov=True)[1], reference.predict(new.astype(float), return_cov=True)[1], 1e-5)


@pytest.mark.parametrize("noise", [1e-6, 1e-3])
def test_standard_deviations_of_rows_in_float32_with_little_noise(data, noise):
    rows, targets = data[0][:60], data[1][:60]
    rows = rows.astype(np.float32)
    expected = ExactRegressor(Wendland(0.8), noise=noise, intercept=True).fit(rows.astype(float), targets)
    expected = expected.predict(rows.astype(float), return_std=True)[1]
    for solver in ({"solver": "cholesky"}, {**CG, "tol": 1e-9, "max_iter": 5000}):
        std = (
            CompactRegressor(Wendland(0.8), noise=noise, **solver).fit(rows, targets).predict(rows, return_std=True)[1]
        )
        np.testing.assert_allclose(std**2, expected**2, rtol=0, atol=1e-6)


# ------------------------------------------------------------------------------- determinant, condition, orderings


@each_weighting
def test_log_determinant(data, weighted):
    rows, targets, _, weights = data
    weights = weights if weighted else np.ones(150)
    for kernel, noise in itertools.product(KERNELS[::2], (1e-3, 0.5)):
        _, expected = np.linalg.slogdet(kernel(rows) + noise * np.diag(1 / weights))
        model = CompactRegressor(kernel, noise=noise, solver="cholesky").fit(rows, targets, weights)
        found, error = model.log_determinant()
        assert found == pytest.approx(expected, rel=1e-8)
        assert error == 0.0
        for seed in range(2):
            model = CompactRegressor(kernel, noise=noise, **CG, random_state=seed).fit(rows, targets, weights)
            found, error = model.log_determinant()
            assert 0 < error < 0.2 * max(abs(expected), len(rows))  # a sum of 150 logarithms
            assert abs(found - expected) < 5 * error
            assert model.log_determinant() == (found, error)


@pytest.mark.slow
def test_the_error_of_an_estimated_log_determinant_minds_its_bias():
    """A wide smooth kernel and little noise: sixty steps of Lanczos are a hundred standard errors off."""
    rows = np.random.default_rng(0).uniform(size=(800, 2))
    kernel, targets = Wendland(0.5, smoothness=2), np.sin(9 * rows[:, 0])
    _, expected = np.linalg.slogdet(kernel(rows) + 1e-5 * np.eye(800))
    model = CompactRegressor(kernel, noise=1e-5, solver="cg", random_state=0).fit(rows, targets)
    found, error = model.log_determinant()
    assert abs(found - expected) < 5 * error
    assert error < 0.05 * abs(expected)


@each_solver
@pytest.mark.parametrize("noise", [0.05, 1e-4])
def test_condition_estimate_is_from_above(data, solver, noise):
    rows, targets, _, weights = data
    model = CompactRegressor(KERNELS[0], noise=noise, **solver).fit(rows, targets, weights)
    condition = np.linalg.cond(KERNELS[0](rows) + noise * np.diag(1 / weights))
    assert 0.99 * condition < model.condition_estimate_ < 30 * condition


def test_orderings_give_one_answer_and_different_fill_in():
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(600, 2))
    targets, new = np.sin(6 * rows[:, 0]), rng.uniform(size=(50, 2))
    models = [
        CompactRegressor(Wendland(0.15), noise=0.01, solver="cholesky", ordering=o).fit(rows, targets)
        for o in ORDERINGS
    ]

    def moments(model):
        return model.predict(new, return_std=True)

    for model in models[1:]:
        for actual, expected in zip(moments(model), moments(models[0]), strict=True):
            assert_close(actual, expected, 1e-10)
        assert model.log_determinant()[0] == pytest.approx(models[0].log_determinant()[0], rel=1e-10)
    fill_in = [model.fill_in_ for model in models]
    assert len(set(fill_in)) == 4
    assert min(fill_in) >= 1.0
    assert fill_in[0] == min(fill_in)


def test_fill_in_is_that_of_the_dense_factor(data):
    rows, targets, _, _ = data
    model = CompactRegressor(KERNELS[0], solver="cholesky", ordering="natural", noise=0.1).fit(rows, targets)
    placed = rows[model._sparse_kernel.order]
    entries = np.count_nonzero(np.tril(KERNELS[0](placed)))
    factor = np.linalg.cholesky(KERNELS[0](placed) + 0.1 * np.eye(150))
    assert model.fill_in_ == pytest.approx(np.count_nonzero(np.abs(factor) > 1e-15) / entries, rel=0.01)


def test_auto_factors_what_is_small(data, monkeypatch):
    rows, targets, new, _ = data
    small = CompactRegressor(KERNELS[0], tol=1e-12, noise=0.1).fit(rows, targets)
    assert small.solver_ == "cholesky"
    assert small.fill_in_ >= 1
    monkeypatch.setattr(compact_system, "_FACTORED", 100)
    large = CompactRegressor(KERNELS[0], tol=1e-12, noise=0.1).fit(rows, targets)
    assert large.solver_ == "cg"
    assert large.fill_in_ is None
    assert_close(large.predict(new), small.predict(new))
    interpolating = CompactRegressor(KERNELS[0], noise=0).fit(rows, targets)
    assert interpolating.solver_ == "cholesky"


def test_auto_judges_many_rows_by_parts(monkeypatch):
    rows = np.random.default_rng(0).uniform(size=(600, 2))
    monkeypatch.setattr(compact_system, "_PART", 128)
    assert CompactRegressor(Wendland(0.15), noise=0.1).fit(rows, rows[:, 0]).solver_ == "cholesky"
    monkeypatch.setattr(compact_system, "_FACTORED", 1000)
    assert CompactRegressor(Wendland(0.15), noise=0.1).fit(rows, rows[:, 0]).solver_ == "cg"


def test_non_convergence_is_warned_of(data):
    rows, targets, new, _ = data
    model = CompactRegressor(Wendland(1.0), noise=1e-6, solver="cg", max_iter=3)
    with pytest.warns(ConvergenceWarning, match="stopped after 3 iterations.*another preconditioner"):
        model.fit(rows, targets)
    with pytest.warns(ConvergenceWarning, match="stopped after 3 iterations"):
        model.predict(new, return_std=True)


# ------------------------------------------------------------------------------------------------- definiteness

BELOW = Wendland(3.0, smoothness=0, dimension=1)
LATTICE = np.array(list(itertools.product(np.arange(3.0), repeat=5)))
CROSS = np.vstack([np.eye(20), -np.eye(20)])  # its matrix is positive definite, until the origin joins it
STEEP_BELOW = Wendland(1.5, smoothness=0, dimension=1)


def least(kernel, rows):
    return np.linalg.eigvalsh(kernel(rows))[0]


@each_kernel
def test_a_guaranteed_kernel_is_not_checked(data, kernel):
    rows, targets, _, _ = data
    assert CompactRegressor(kernel, noise=0.1).fit(rows, targets).min_eigenvalue_ is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [1e-3, 0.1])
def test_below_the_rule_the_least_eigenvalue_is_bounded(seed, noise):
    rows = np.random.default_rng(seed).uniform(size=(150, 4))
    for kernel in (Wendland(0.8, 0, 2), Wendland(0.4, 1, 2), CompactGaussian(0.2, exponent=1)):
        model = CompactRegressor(kernel, noise=noise, random_state=seed).fit(rows, rows[:, 0])
        expected = least(kernel, rows)
        assert expected > 0
        assert expected - 0.1 * max(expected, noise) < model.min_eigenvalue_ <= expected


def test_a_small_matrix_gets_the_steps_that_little_noise_needs(monkeypatch):
    """Eigenvalues down to a fifth of the noise, a ten-millionth of the largest: four hundred steps do not tell."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(700, 2)) @ rng.normal(size=(2, 7)) + 0.01 * rng.normal(size=(700, 7))
    model = CompactRegressor(Wendland(3.0, dimension=3), noise=3e-4, solver="cholesky", random_state=0)
    least = np.linalg.eigvalsh(model.fit(rows, rows[:, 0]).kernel_(rows))[0]
    assert 0 < model.min_eigenvalue_ <= least
    monkeypatch.setattr(compact_system, "_DEFINITE_WORK", 0.0)
    with pytest.raises(NotPositiveDefiniteError, match="could only be bounded by -"):
        model.fit(rows, rows[:, 0])


@pytest.mark.parametrize("solver", ["auto", "cholesky", "cg"])
@pytest.mark.parametrize("estimator", [CompactRegressor, CompactClassifier])
def test_an_indefinite_matrix_is_refused_with_the_number_and_the_remedy(solver, estimator):
    expected, labels = least(BELOW, LATTICE), (LATTICE[:, 0] > 0).astype(int)
    assert expected < -0.4
    model = estimator(BELOW, noise=0.1, solver=solver, random_state=0)
    with pytest.raises(NotPositiveDefiniteError, match=r"least eigenvalue .* is -0\.\d+.* larger noise") as error:
        model.fit(LATTICE, labels)
    number = float(str(error.value).split(" is ")[1].split(",")[0])
    assert expected - 0.03 <= number <= expected + 1e-3  # three digits
    assert not hasattr(model, "min_eigenvalue_")
    model.set_params(noise=-2.3 * expected).fit(LATTICE, labels)
    assert model.solver_ == ("cg" if solver == "cg" else "cholesky")
    assert -0.5 * model.noise < model.min_eigenvalue_ <= expected


@ungeneral
@each_solver
def test_enough_noise_makes_up_for_it(solver):
    targets = np.sin(LATTICE @ np.arange(5.0))
    model = CompactRegressor(BELOW, noise=2.0, **solver).fit(LATTICE, targets)
    reference = ExactRegressor(BELOW, noise=2.0, intercept=True).fit(LATTICE, targets)
    assert_close(model.predict(LATTICE + 0.3), reference.predict(LATTICE + 0.3))


def test_what_counts_is_the_least_noise_of_a_row():
    model, weights = CompactRegressor(BELOW, noise=2.0), np.ones(243)
    model.fit(LATTICE, LATTICE[:, 0], weights)
    weights[7] = 100.0
    with pytest.raises(NotPositiveDefiniteError, match=r"noise 0\.02"):
        model.fit(LATTICE, LATTICE[:, 0], weights)


@starved
@each_solver
def test_negative_variances_are_refused(solver):
    model = CompactRegressor(STEEP_BELOW, noise=1e-3, intercept=False, **solver).fit(CROSS, CROSS[:, 0])
    assert model.min_eigenvalue_ > 0.5
    together = np.vstack([CROSS, np.zeros((1, 20))])
    assert least(STEEP_BELOW, together) < -0.1
    for options in ({"return_std": True}, {"return_cov": True}):
        with pytest.raises(NotPositiveDefiniteError, match=r"variance is -0\.\d+, below zero.*larger expo"):
            model.predict(np.zeros((1, 20)), **options)
        model.predict(CROSS, **options)
    model.predict(np.zeros((1, 20)))


# ------------------------------------------------------------------------------------------------- classification


@each_solver
@each_weighting
@pytest.mark.parametrize("labels", [[0, 1], [-3, 7, 8], ["no", "yes"], ["a", "b", "c"]], ids=str)
def test_classifier_equals_the_dense_one(data, solver, weighted, labels):
    rows, targets, new, weights = data
    weights = weights if weighted else None
    place = np.digitize(targets, np.quantile(targets, np.arange(1, len(labels)) / len(labels)))
    y = np.array(labels)[place]
    model = CompactClassifier(KERNELS[0], noise=0.05, **solver).fit(rows, y, weights)
    reference = ExactClassifier(KERNELS[0], noise=0.05, intercept=True).fit(rows, y, weights)
    assert_close(model.decision_function(new), reference.decision_function(new))
    np.testing.assert_array_equal(model.predict(new), reference.predict(new))
    np.testing.assert_array_equal(model.classes_, labels)
    outputs = 1 if len(labels) == 2 else len(labels)
    assert model.coefficients_.shape == (150, outputs)
    assert model.intercept_.shape == (outputs,)
    assert_close(model.coefficients_, reference.coefficients_)
    assert model.score(rows, y) > 0.9


def test_an_iteration_that_is_stopped_at_once_gives_numbers():
    X = np.random.default_rng(0).normal(size=(80, 2))
    model = CompactRegressor(Wendland(3.0), solver="cg", preconditioner=None, max_iter=1, noise=1e-6)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, np.sin(3 * X[:, 0]))
    assert np.all(np.isfinite(model.predict(X)))
