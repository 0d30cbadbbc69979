"""Laws of committees: blocks add up, in any order and from anywhere; weights; error bars."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone

from tests import oracles
from tests.given_noise import NystromRegressor
from tests.oracles import assert_close, predict_in_units, projection_rounding
from tests.strategies import booleans, committee, problems, seeds

# Models are poor on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")


def rounding_of(problem, model, labels=None):
    labels = problem.labels if labels is None else labels
    expected = problem.dense(oracles.committee, basis=model.basis_, labels=labels)
    return problem.rounding(expected, model.basis_)


def assert_same_model(actual, expected, problem, rounding):
    """Mean, standard deviation, σ and likelihood."""
    (mean, std), (expected_mean, expected_std) = (
        predict_in_units(m, problem.new, return_std=True) for m in (actual, expected)
    )
    assert_close(mean, expected_mean, rounding.mean)
    assert_close(std, expected_std, rounding.std)
    squares = np.atleast_1d(expected.scale_) ** 2
    # The rounding of yᵀM⁻¹y, which is σ² times the number of targets, is at most twice that of the likelihood.
    assert_close(np.atleast_1d(actual.scale_) ** 2, squares, 2 * rounding.log_likelihood)
    if np.min(squares) == 0:  # constant targets, which are infinitely likely
        return
    lost = rounding.log_likelihood * max(1.0, 1.0 / np.min(squares))
    assert_close(actual.log_marginal_likelihood_, expected.log_marginal_likelihood_, lost)


# --------------------------------------------------------------------------------------- blocks add up


def copied(model):
    """A copy that shares nothing that merge may change."""
    copy = clone(model)
    vars(copy).update(vars(model))
    return copy


@given(problems(), st.integers(0, 7))
def test_merge_of_two_committees_is_the_committee_of_all_blocks(problem, cut):
    problem.labels[0], problem.labels[-1] = 0, cut + 1  # at least one block on each side
    whole = committee(problem).fit(*problem.data)
    parts = [problem.part(problem.labels <= cut), problem.part(problem.labels > cut)]
    models = [committee(part).fit(*part.data) for part in parts]
    rounding = rounding_of(problem, whole)
    for first, second in (models, models[::-1]):
        merged = copied(first).merge(second)
        assert (merged.n_seen_, merged.n_blocks_) == (whole.n_seen_, whole.n_blocks_)
        assert_same_model(merged, whole, problem, rounding)


@given(problems(), seeds)
def test_partial_fit_block_by_block_in_any_order_is_the_fit_of_all(problem, seed):
    whole, model = committee(problem).fit(*problem.data), committee(problem, partition="random")
    for label in np.random.default_rng(seed).permutation(np.unique(problem.labels)):
        model.partial_fit(*problem.part(problem.labels == label).data)
    assert (model.n_seen_, model.n_blocks_) == (whole.n_seen_, whole.n_blocks_)
    assert_same_model(model, whole, problem, rounding_of(problem, whole))


@given(problems(), st.integers(1, 10))
def test_partial_fit_in_pieces_is_the_fit_in_order(problem, size):
    whole = committee(problem, partition="order", block_size=size).fit(*problem.data)
    model = committee(problem, partition="random", block_size=size)
    for start in range(0, len(problem.rows), size):
        model.partial_fit(*problem.part(slice(start, start + size)).data)
    np.testing.assert_array_equal(model.labels_, whole.labels_)
    assert_same_model(model, whole, problem, rounding_of(problem, whole, whole.labels_))


@given(problems(), seeds)
def test_the_order_of_blocks_and_of_rows_within_them_does_not_matter(problem, seed):
    rng = np.random.default_rng(seed)
    moved = problem.part(rng.permutation(len(problem.rows)))
    names = rng.permutation(100)
    expected = committee(problem).fit(*problem.data)
    actual = committee(moved, partition=names[moved.labels]).fit(*moved.data)
    assert_same_model(actual, expected, problem, rounding_of(problem, expected))


@given(problems(smallest=20, largest=100), st.sampled_from([1, 2, 3]), st.sampled_from([1e-3, 1024]), booleans)
def test_threads_and_working_memory_do_not_matter(problem, n_jobs, working_memory, single):
    blocks = {"partition": "order", "block_size": 1} if single else {}
    expected = committee(problem, **blocks).fit(*problem.data)
    with config_context(working_memory=working_memory):
        model = committee(problem, **blocks, n_jobs=n_jobs).fit(*problem.data)
        rounding = rounding_of(problem, model, np.arange(len(problem.rows)) if single else None)
        assert_same_model(model, expected, problem, rounding)


# -------------------------------------------------------------------------------------------- weights


@given(problems(), seeds, booleans)
def test_whole_weights_are_repetitions_in_one_block_and_weight_zero_is_absence(problem, seed, single):
    counts = np.random.default_rng(seed).integers(0, 4, size=len(problem.rows))
    counts[0] = 2
    labels = np.arange(len(problem.rows)) if single else problem.labels
    weighted = committee(problem, partition=labels).fit(problem.rows, problem.targets, counts)
    repeated = np.repeat(np.arange(len(problem.rows)), counts)
    expected = committee(problem, partition=labels[repeated]).fit(problem.rows[repeated], problem.targets[repeated])
    many = problem.part(repeated)
    dense = oracles.committee(
        problem.kernel, weighted.basis_, many.rows, many.targets, problem.new,
        labels=labels[repeated], noise=problem.noise, intercept=problem.intercept,
    )  # fmt: skip
    rounding = many.rounding(dense, weighted.basis_)
    for one, other, bound in zip(
        weighted.predict(problem.new, return_std=True),
        expected.predict(problem.new, return_std=True),
        (rounding.mean, rounding.std),
        strict=True,
    ):
        assert_close(one, other, bound)


@given(problems(smallest=3), booleans)
def test_weight_zero_is_the_row_removed(problem, single):
    weights = np.ones(len(problem.rows)) if problem.weights is None else problem.weights.copy()
    weights[1] = 0.0
    kept = problem.part(np.flatnonzero(weights))
    wild = np.where(weights > 0, problem.targets.T, 1e6).T
    blocks = {"partition": "order", "block_size": 1} if single else {}
    actual = committee(problem, **blocks).fit(problem.rows, wild, weights)
    expected = committee(kept, **blocks).fit(kept.rows, kept.targets, weights[weights > 0])
    labels = np.arange(len(kept.rows)) if single else kept.labels
    assert_same_model(actual, expected, problem, rounding_of(kept, expected, labels))
    assert (actual.n_seen_, actual.labels_[1]) == (len(problem.rows), -1)
    assert actual.n_blocks_ == expected.n_blocks_


@given(problems(), st.sampled_from([1e-3, 7.0, 1e3]))
def test_weights_and_noise_scale_together(problem, factor):
    weights = np.ones(len(problem.rows)) if problem.weights is None else problem.weights
    expected = committee(problem).fit(*problem.data)
    scaled = committee(problem, noise=factor * problem.noise).fit(problem.rows, problem.targets, factor * weights)
    rounding = rounding_of(problem, expected)
    # σ is another one: a row of weight 7 has seven targets.
    for one, other, bound in zip(
        predict_in_units(scaled, problem.new, return_std=True),
        predict_in_units(expected, problem.new, return_std=True),
        (rounding.mean, rounding.std),
        strict=True,
    ):
        assert_close(one, other, bound)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
@given(problems())
def test_kernel_noise_and_targets_scale_together(scale, problem):
    expected = committee(problem).fit(*problem.data)
    scaled = committee(problem, kernel=scale**2 * problem.kernel, noise=scale**2 * problem.noise)
    scaled.fit(problem.rows, scale * problem.targets, problem.weights)
    rounding = rounding_of(problem, expected)
    mean, std = scaled.predict(problem.new, return_std=True)
    assert_close(mean / scale, expected.predict(problem.new), rounding.mean)
    assert_close(std / scale, expected.predict(problem.new, return_std=True)[1], rounding.std)


@given(problems())
def test_several_outputs_are_the_outputs_one_by_one(problem):
    several = np.column_stack([problem.targets, np.sin(problem.rows[:, 0])])
    together = committee(problem).fit(problem.rows, several, problem.weights)
    alone = [committee(problem).fit(problem.rows, values, problem.weights) for values in several.T]
    rounding = rounding_of(problem, together)
    assert_close(together.predict(problem.new), np.column_stack([m.predict(problem.new) for m in alone]), rounding.mean)
    likelihood = sum(model.log_marginal_likelihood_ for model in alone)
    assert_close(together.log_marginal_likelihood_, likelihood, rounding.log_likelihood)


# ----------------------------------------------------------------------------------------- error bars


@given(problems())
def test_the_variance_lies_between_what_the_basis_leaves_and_the_prior(problem):
    model = committee(problem, intercept=False).fit(*problem.data)
    variances = predict_in_units(model, problem.new, return_std=True)[1] ** 2
    prior = problem.kernel.diagonal(problem.new)
    left = prior - np.sum(oracles.projector(problem.kernel, model.basis_)(problem.new) ** 2, axis=1)
    slack = max(1e-8 * np.max(prior), projection_rounding(problem.kernel, model.basis_, problem.new, problem.new))
    assert np.all(variances <= prior + slack)
    assert np.all(variances >= left - slack)


@given(problems())
def test_an_intercept_adds_to_the_variance(problem):
    models = [committee(problem, intercept=intercept).fit(*problem.data) for intercept in (False, True)]
    without, variances = (predict_in_units(model, problem.new, return_std=True)[1] ** 2 for model in models)
    assert np.all(variances >= without - 1e-8 * np.max(without))


@given(problems(), booleans)
def test_a_committee_is_never_surer_than_the_subset_of_representers(problem, single):
    # Λ ≥ λW⁻¹: what the basis leaves of the kernel is noise to the committee, and nothing to the subset.
    model = committee(problem, **({"partition": "order", "block_size": 1} if single else {})).fit(*problem.data)
    # On the same points: a committee leaves out some of a bunched basis.
    subset = NystromRegressor(**problem.options, basis=model.expansion_.points).fit(*problem.data)
    variances, least = (predict_in_units(m, problem.new, return_std=True)[1] ** 2 for m in (model, subset))
    assert np.all(variances >= least - 1e-8 * np.max(least))


@given(problems())
def test_more_blocks_never_raise_the_variance(problem):
    problem.labels[0], problem.labels[-1] = 0, 1
    first = problem.part(problem.labels == 0)
    few, many = committee(first).fit(*first.data), committee(problem).fit(*problem.data)
    after, before = (model.expansion_.variances(problem.new) for model in (many, few))  # in units of σ²
    assert np.all(after <= before + 1e-8 * np.max(before))
