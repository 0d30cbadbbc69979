"""Mean and covariance of the rows, a tile at a time."""

import numpy as np
import pytest
from sklearn import config_context

from mercer.engine import Threads, row_moments
from tests.doubles import GuardedRows


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_moments_are_those_of_numpy(n_jobs, weighted, offset):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 4)) @ rng.normal(size=(4, 4)) + offset
    weights = rng.uniform(0, 2, size=1000) if weighted else None
    guarded = GuardedRows(rows)
    with config_context(working_memory=0.02):
        mean, covariance = row_moments(guarded, weights, executor=Threads(n_jobs))
    assert guarded.largest_read < 500
    np.testing.assert_allclose(mean, np.average(rows, axis=0, weights=weights), rtol=1e-12)
    expected = np.cov(rows, rowvar=False, bias=True, aweights=weights)
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-9 * np.max(expected))


def test_a_constant_column_has_no_variance():
    rows = np.column_stack([np.full(50, 1e150), np.arange(50.0)])
    mean, covariance = row_moments(GuardedRows(rows), executor=Threads(1))
    assert mean[0] == 1e150
    np.testing.assert_array_equal(covariance[0], 0.0)
