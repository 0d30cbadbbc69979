"""Laws of the frame: what the committee, FITC, the subset of representers and the reduced rank approximation share.

All hold to 1e-8 relative to the size of the values. Where the basis is singular to rounding, the bound is what errors
in the last digits of the kernel values make of it (``tests.oracles``); it is the larger one in about one of six
problems, those of a smooth kernel on points that are close.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.gaussian_process.kernels import Matern as SklearnMatern

from mercer.basis import Basis
from mercer.engine import ArrayRows, ArrayTable, Threads, conditional_statistics
from mercer.kernels import Gaussian, Linear, Matern, Polynomial
from mercer.methods.frame import Frame
from tests import oracles
from tests.given_noise import CommitteeRegressor, ExactRegressor, NystromRegressor, ReducedRankRegressor
from tests.oracles import (
    EPS,
    assert_close,
    assert_same_moments,
    assert_same_scale,
    predict_in_units,
    projection_rounding,
)
from tests.strategies import booleans, noises, problems, seeds

# Models are poor on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")

ROUGH = st.just(Matern(1.0, nu=0.5))  # its kernel matrix is regular but for equal points


def profiled(rounding, expected):
    """Rounding of the likelihood at the best σ: N/2 log q in place of q/2."""
    return rounding.log_likelihood * max(1.0, 1.0 / np.min(expected.scale**2))


# ------------------------------------------------------------------------------------ one block: exact


def rounding_at(problem, expected, kept, given):
    """Rounding at basis points, where the targets' own covariance is known to the last digit.

    A point that was left out keeps its covariance with a row up to √(r k), r being what the others leave of k(z, z).
    """
    cross = projection_rounding(problem.kernel, kept, kept, problem.rows)
    cross += np.sqrt(problem.largest_kernel * problem.left_out(kept, given))
    return expected.rounding(cross=cross, system=len(kept) * EPS * problem.largest_kernel)


@given(problems(), st.sampled_from(["random", "order", "kmeans", "labels"]))
def test_one_block_is_the_exact_process_at_the_basis_points(problem, partition):
    labels = {"partition": np.zeros(len(problem.rows)), "block_size": 2}  # labels make blocks of any size
    blocks = labels if partition == "labels" else {"partition": partition}
    model = CommitteeRegressor(**problem.options, basis=problem.basis, **blocks).fit(*problem.data)
    expected = problem.dense(oracles.exact, problem.basis)
    assert model.n_blocks_ == 1
    assert_same_moments(model, expected, problem.basis, rounding_at(problem, expected, model.basis_, problem.basis))


@given(problems(), st.integers(1, 12))
def test_one_block_is_the_exact_process_wherever_it_transduces(problem, batch_size):
    model = CommitteeRegressor(**problem.options, n_basis=3, random_state=0).fit(*problem.data)
    expected, exact = problem.dense(oracles.exact), ExactRegressor(**problem.options).fit(*problem.data)
    kept = CommitteeRegressor(**problem.options, basis=problem.new).fit(*problem.data).basis_  # of all queries at once
    rounding = rounding_at(problem, expected, kept, problem.new)
    mean, std = predict_in_units(model, problem.new, return_std=True, transduce=True, batch_size=batch_size)
    _, covariance = predict_in_units(model, problem.new, return_cov=True, transduce=True, batch_size=batch_size)
    assert_close(mean, exact.predict(problem.new), rounding.mean)
    assert_close(std, expected.std, rounding.std)
    assert_close(covariance, expected.covariance, rounding.covariance)


# -------------------------------------------------------------------------------- blocks of one row: FITC


@given(problems(), booleans)
def test_blocks_of_one_row_are_fitc(problem, by_labels):
    labels = np.random.default_rng(0).permutation(len(problem.rows))
    blocks = {"partition": labels} if by_labels else {"block_size": 1}
    model = CommitteeRegressor(**problem.options, basis=problem.basis, **blocks).fit(*problem.data)
    expected = problem.dense(oracles.fitc, basis=model.basis_)
    rounding = problem.rounding(expected, model.basis_)
    assert model.n_blocks_ == len(problem.rows)
    assert_same_moments(model, expected, problem.new, rounding)
    assert_same_scale(model, expected, rounding)
    if np.all(expected.scale > 1e-6 * np.max(np.abs(problem.targets))):  # constant targets are infinitely likely
        assert_close(model.log_marginal_likelihood_, expected.profiled_log_likelihood, profiled(rounding, expected))


@given(problems(), booleans)
def test_statistics_of_blocks_of_one_row_are_those_of_fitc(problem, as_slices):
    n, targets = len(problem.rows), problem.targets.reshape(len(problem.rows), -1)
    features = Frame.build(problem.kernel, Basis(points=problem.basis), np.dtype(np.float64)).features(whitened=True)
    single = [slice(i, i + 1) for i in range(n)] if as_slices else [np.array([i]) for i in range(n)]
    actual, without = (
        conditional_statistics(
            ArrayTable(ArrayRows(problem.rows), targets, problem.weights), features,
            noise=problem.noise, blocks=blocks, executor=Threads(1),
        )
        for blocks in (single, None)
    )  # fmt: skip
    # Λ⁻¹ = 1/(λ/ω + k - |v|²), on the features as they are
    V = features.tile(problem.rows)
    noises = problem.noise / (np.ones(n) if problem.weights is None else problem.weights)
    variances = noises + problem.kernel.diagonal(problem.rows) - np.sum(V**2, axis=1)
    augmented = np.column_stack([V, targets, np.ones(n)]) / np.sqrt(variances)[:, np.newaxis]
    # Whitening in tiles of other sizes rounds differently: by m·eps|L⁻¹||L| of v, and as much of Λ.
    factor = np.abs(np.linalg.inv(features.lower)) @ np.abs(features.lower)
    lost = len(factor) * EPS * np.max(np.sum(factor, axis=1)) * (1 + 2 * problem.largest_kernel / np.min(noises))
    for statistics in (actual, without):
        assert_close(statistics.normal.sums, augmented.T @ augmented, lost * np.sum(augmented**2))
        assert_close(statistics.log_determinant, np.sum(np.log(variances)), n * lost)
        assert (statistics.n_blocks, statistics.n_used, statistics.n_singular) == (n, n, 0)


# -------------------------------------------------------------------------------- any blocks: definition


@given(problems())
def test_a_committee_is_its_definition(problem):
    model = CommitteeRegressor(**problem.options, basis=problem.basis, partition=problem.labels).fit(*problem.data)
    expected = problem.dense(oracles.committee, basis=model.basis_, labels=problem.labels)
    rounding = problem.rounding(expected, model.basis_)
    assert_same_moments(model, expected, problem.new, rounding)
    assert_same_scale(model, expected, rounding)
    if np.all(expected.scale > 1e-6 * np.max(np.abs(problem.targets))):  # constant targets are infinitely likely
        assert_close(model.log_marginal_likelihood_, expected.profiled_log_likelihood, profiled(rounding, expected))


@given(problems(), st.sampled_from(["random", "order"]), st.integers(1, 12), seeds)
def test_a_committee_is_the_definition_for_its_own_labels(problem, partition, block_size, seed):
    blocks = {"partition": partition, "block_size": block_size, "random_state": seed}
    model = CommitteeRegressor(**problem.options, basis=problem.basis, **blocks).fit(*problem.data)
    assert np.max(np.bincount(model.labels_)) <= block_size
    expected = problem.dense(oracles.committee, basis=model.basis_, labels=model.labels_)
    assert_same_moments(model, expected, problem.new, problem.rounding(expected, model.basis_))


# ------------------------------------------------------------------------------- Λ = λI, and nothing left


@given(problems(kernels=ROUGH))
def test_the_system_with_lambda_times_identity_is_the_subset_of_representers(problem):
    model = NystromRegressor(**{**problem.options, "intercept": False}, basis=problem.basis).fit(*problem.data)
    K_mm, K_nm = problem.kernel(model.basis_), problem.kernel(problem.rows, model.basis_)
    precisions = (np.ones(len(K_nm)) if problem.weights is None else problem.weights) / problem.noise
    # (K_mm + K_mnΛ⁻¹K_nm) w = K_mnΛ⁻¹y with Λ = λW⁻¹
    system = K_mm + K_nm.T @ (precisions[:, np.newaxis] * K_nm)
    coefficients = np.linalg.solve(system, K_nm.T @ (precisions * problem.targets.T).T)
    new = problem.kernel(problem.new, model.basis_)
    # A backward stable solution is that of a system with errors of m·eps·max|A|.
    reach = np.max(np.sum(np.abs(np.linalg.solve(system, new.T)), axis=0))
    bound = len(K_mm) * EPS * np.max(np.abs(system)) * reach * np.max(np.sum(np.abs(coefficients), axis=0))
    assert_close(model.predict(problem.new), new @ coefficients, bound)


@given(problems())
def test_the_subset_of_representers_is_its_definition(problem):
    model = NystromRegressor(**problem.options, basis=problem.basis).fit(*problem.data)
    expected = problem.dense(oracles.subset_of_representers, basis=model.basis_)
    assert_same_moments(model, expected, problem.new, problem.rounding(expected, model.basis_))


finite = st.sampled_from([Linear(), Linear(0.3) + Linear(0.2), Polynomial(degree=2, scale=0.5)])


@given(problems(kernels=finite), seeds)
def test_all_are_one_where_the_basis_spans_the_kernel(problem, seed):
    basis = np.random.default_rng(seed).normal(size=(15, problem.rows.shape[1]))  # of ten functions at most
    options, expected = {**problem.options, "basis": basis}, problem.dense(oracles.exact)
    nystrom = NystromRegressor(**options).fit(*problem.data)
    rounding = problem.rounding(expected, nystrom.basis_)
    for model in (
        nystrom,
        ReducedRankRegressor(**options).fit(*problem.data),
        CommitteeRegressor(**options, block_size=1).fit(*problem.data),
        CommitteeRegressor(**options, partition=problem.labels).fit(*problem.data),
    ):
        assert_same_moments(model, expected, problem.new, rounding)


# --------------------------------------------------------------------------- the reduced rank approximation


def weights_rounding(problem):
    """Rounding, as a share of the targets, of what is summed with weights that are residuals over the noise."""
    precision = (1.0 if problem.weights is None else np.max(problem.weights)) / problem.noise
    return len(problem.rows) * EPS * precision * problem.largest_kernel


@given(problems())
def test_the_reduced_rank_approximation_is_the_subset_of_representers_at_the_basis_points(problem):
    model = ReducedRankRegressor(**problem.options, basis=problem.basis).fit(*problem.data)
    nystrom = NystromRegressor(**problem.options, basis=problem.basis).fit(*problem.data)
    expected = problem.dense(oracles.subset_of_representers, model.basis_, basis=model.basis_)
    error = projection_rounding(problem.kernel, model.basis_, model.basis_, problem.rows)
    rounding, lost = expected.rounding(cross=error, system=error), weights_rounding(problem)
    mean, std = predict_in_units(model, model.basis_, return_std=True)
    expected_mean, expected_std = predict_in_units(nystrom, model.basis_, return_std=True)
    assert_close(mean, expected_mean, rounding.mean + lost * np.max(np.abs(problem.targets)))
    assert_close(std, expected_std, rounding.std + lost * np.max(expected_std))


def test_the_reduced_rank_approximation_differs_elsewhere():
    rows = np.linspace(-2, 2, 9)[:, np.newaxis]
    options = {"kernel": Gaussian(0.7), "basis": rows[::4], "noise": 0.1}
    reduced, nystrom = (
        cls(**options).fit(rows, np.sin(3 * rows[:, 0])) for cls in (ReducedRankRegressor, NystromRegressor)
    )
    at_basis, between = rows[::4], rows[1::4]
    np.testing.assert_allclose(reduced.predict(at_basis), nystrom.predict(at_basis), rtol=0, atol=1e-12)
    assert np.min(np.abs(reduced.predict(between) - nystrom.predict(between))) > 0.1


# ------------------------------------------------------------------------------------- all rows as basis


@given(problems(), st.sampled_from([1, 3, 100, "labels"]))
def test_all_rows_as_basis_give_the_exact_model_everywhere(problem, blocks):
    options, expected = {**problem.options, "basis": problem.rows}, problem.dense(oracles.exact)
    blocks = {"partition": problem.labels} if blocks == "labels" else {"block_size": blocks}
    nystrom = NystromRegressor(**options).fit(*problem.data)
    committee = CommitteeRegressor(**options, **blocks).fit(*problem.data)
    kept, everywhere = committee.basis_, np.vstack([problem.rows, problem.new])
    error = projection_rounding(problem.kernel, kept, problem.rows, everywhere) + weights_rounding(problem)
    cross = error + np.sqrt(problem.largest_kernel * problem.left_out(kept, problem.rows))
    rounding = expected.rounding(cross=cross, system=error + problem.left_out(kept, problem.rows))
    for model in (
        nystrom,
        ReducedRankRegressor(**options).fit(*problem.data),
        committee,
        ExactRegressor(**problem.options).fit(*problem.data),
    ):
        assert_same_moments(model, expected, problem.new, rounding)


SKLEARN = [
    (Gaussian(0.8, amplitude=2.0), ConstantKernel(2.0) * RBF(0.8)),
    (Matern(1.0, nu=0.5), SklearnMatern(1.0, nu=0.5)),
    (Matern(1.5, nu=2.5), SklearnMatern(1.5, nu=2.5)),
]


@given(problems(), st.sampled_from(SKLEARN), noises, st.sampled_from([100, 1, "labels"]))
def test_the_likelihood_with_all_rows_as_basis_is_scikit_learns(problem, kernel, noise, blocks):
    ours, theirs = kernel
    blocks = {"partition": problem.labels} if blocks == "labels" else {"block_size": blocks}
    model = CommitteeRegressor(ours, noise=noise, basis=problem.rows, **blocks).fit(problem.rows, problem.targets)
    system = oracles.exact(ours, problem.rows, problem.targets, problem.new, noise=noise)
    reference = 0.0
    for targets, variance in zip(problem.targets.reshape(len(problem.rows), -1).T, system.scale**2, strict=True):
        process = GaussianProcessRegressor(ConstantKernel(variance) * theirs, alpha=variance * noise, optimizer=None)
        reference += process.fit(problem.rows, targets).log_marginal_likelihood_value_
    # Q differs from K by roundings, and by the variance left at points that were left out.
    error = projection_rounding(ours, model.basis_, problem.rows, problem.rows)
    error += replace(problem, kernel=ours).left_out(model.basis_, problem.rows)
    rounding = profiled(system.rounding(cross=0.0, system=error), system)
    assert_close(model.log_marginal_likelihood_, reference, rounding)
