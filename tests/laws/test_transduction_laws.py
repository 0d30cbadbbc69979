"""Laws of committees that are computed again at the queries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import oracles
from tests.oracles import assert_close, predict_in_units, projection_rounding
from tests.strategies import committee, problems, seeds

# Models are poor on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.GeneralisationWarning")


@given(problems())
def test_transduction_in_one_batch_is_a_new_fit_with_the_queries_as_basis(problem):
    model = committee(problem).fit(*problem.data)
    fresh = committee(problem, basis=problem.new).fit(*problem.data)
    expected = problem.dense(oracles.committee, basis=fresh.basis_, labels=problem.labels)
    rounding = problem.rounding(expected, fresh.basis_)
    mean, std = predict_in_units(model, problem.new, return_std=True, transduce=True, batch_size=len(problem.new))
    again, covariance = predict_in_units(model, problem.new, return_cov=True, transduce=True, batch_size=1)
    for moments in (expected, Moments(*predict_in_units(fresh, problem.new, return_cov=True))):
        assert_close(mean, moments.mean, rounding.mean)
        assert_close(std, moments.std, rounding.std)
        assert_close(covariance, moments.covariance, rounding.covariance)
    np.testing.assert_array_equal(again, mean)


class Moments:
    def __init__(self, mean, covariance):
        self.mean, self.covariance, self.std = mean, covariance, np.sqrt(np.diag(covariance))


@given(problems())
def test_transduction_one_by_one_is_a_fit_for_each_query(problem):
    model = committee(problem).fit(*problem.data)
    mean, std = predict_in_units(model, problem.new, return_std=True, transduce=True, batch_size=1)
    for query, one_mean, one_std in zip(problem.new[:, np.newaxis], mean, std, strict=True):
        expected = problem.dense(oracles.committee, query, basis=query, labels=problem.labels)
        rounding = problem.rounding(expected, query, query)
        assert_close(one_mean, expected.mean[0], rounding.mean)
        assert_close(one_std, expected.std[0], rounding.std)


def rounding_at_queries(problem):
    """Rounding of a committee on all queries, and what a query loses if it is left out for the others."""
    fresh = committee(problem, basis=problem.new).fit(*problem.data)
    expected = problem.dense(oracles.committee, basis=fresh.basis_, labels=problem.labels)
    cross, system = (
        projection_rounding(problem.kernel, fresh.basis_, points, problem.rows)
        for points in (problem.new, problem.rows)
    )
    lost = np.sqrt(problem.largest_kernel * problem.left_out(fresh.basis_, problem.new))
    return expected.rounding(cross=cross + lost, system=system + lost)


@given(problems(), st.integers(1, 12), seeds)
def test_transduction_does_not_depend_on_the_basis_nor_on_how_the_blocks_came(problem, batch_size, seed):
    whole = committee(problem).fit(*problem.data)
    pieces = committee(problem, partition="random", basis=problem.rows[:1])
    for label in np.random.default_rng(seed).permutation(np.unique(problem.labels)):
        pieces.partial_fit(*problem.part(problem.labels == label).data)
    rounding = rounding_at_queries(problem)
    (mean, std), (expected_mean, expected_std) = (
        predict_in_units(model, problem.new, return_std=True, transduce=True, batch_size=batch_size)
        for model in (whole, pieces)
    )
    assert_close(mean, expected_mean, rounding.mean)
    assert_close(std, expected_std, rounding.std)


@given(problems(), seeds)
def test_the_order_of_queries_does_not_matter_in_one_batch(problem, seed):
    model = committee(problem).fit(*problem.data)
    order = np.random.default_rng(seed).permutation(len(problem.new))
    rounding = rounding_at_queries(problem)
    moved, plain = (
        predict_in_units(model, X, return_std=True, transduce=True) for X in (problem.new[order], problem.new)
    )
    assert_close(moved[0], plain[0][order], rounding.mean)
    assert_close(moved[1], plain[1][order], rounding.std)


@given(problems())
def test_a_batch_that_holds_all_training_rows_is_the_exact_process(problem):
    model = committee(problem).fit(*problem.data)
    queries = np.vstack([problem.rows, problem.new])
    expected = problem.dense(oracles.exact, queries)
    fresh = committee(problem, basis=queries).fit(*problem.data)
    error = projection_rounding(problem.kernel, fresh.basis_, queries, queries)
    error += np.sqrt(problem.largest_kernel * problem.left_out(fresh.basis_, queries))
    rounding = expected.rounding(cross=error, system=error)
    mean, std = predict_in_units(model, queries, return_std=True, transduce=True)
    assert_close(mean, expected.mean, rounding.mean)
    assert_close(std, expected.std, rounding.std)
