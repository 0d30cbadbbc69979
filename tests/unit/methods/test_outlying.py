"""Which targets are outlying: none of ordinary laws, however skewed; those that are a thousand times too large."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mercer.engine import ArrayRows, ArrayTable, Threads
from mercer.methods.outlying import describe_outlying, far_from_others, outlying_targets

LAWS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "uniform": lambda rng, n: rng.uniform(size=n),
    "Laplace": lambda rng, n: rng.laplace(size=n),
    "Student, 3": lambda rng, n: rng.standard_t(3, n),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 1.5, n),
    "counts": lambda rng, n: rng.poisson(0.5, n).astype(float),
    "overdispersed counts": lambda rng, n: rng.negative_binomial(0.3, 0.05, n).astype(float),
    "zeros and exponential": lambda rng, n: np.where(rng.uniform(size=n) < 0.9, 0.0, rng.exponential(size=n)),
    "zeros and lognormal": lambda rng, n: np.where(rng.uniform(size=n) < 0.9, 0.0, rng.lognormal(0.0, 1.5, n)),
    "one class of two": lambda rng, n: (rng.uniform(size=n) < 0.02).astype(float),
    "constant": lambda _rng, n: np.full(n, 0.1),
}


def outlying(targets, rows=None):
    targets = np.reshape(targets, (len(targets), -1))
    rows = np.random.default_rng(1).normal(size=(len(targets), 2)) if rows is None else rows
    return outlying_targets(ArrayTable(ArrayRows(rows), targets), Threads(1)).tolist()


@pytest.mark.parametrize("n", [10, 80, 1000, 30_000])
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_no_target_of_an_ordinary_law_is_outlying(law, n):
    for seed in range(10):
        draws = law(np.random.default_rng(seed), n)
        assert not np.any(far_from_others(np.abs(draws - np.median(draws))[:, np.newaxis])[1])


@pytest.mark.parametrize("size", [1e3, 1e6, 1e300])
@pytest.mark.parametrize("n", [12, 80, 300, 3000])
def test_one_enormous_target_is_found(n, size):
    targets = np.random.default_rng(0).normal(size=n)
    targets[5] = -size
    assert outlying(targets) == [5]


@pytest.mark.parametrize("law", ["lognormal", "zeros and exponential", "Laplace"])
def test_it_is_found_among_skewed_ones(law):
    targets = LAWS[law](np.random.default_rng(0), 300)
    targets[[7, 70]] = 1e7, -1e9
    assert outlying(targets) == [7, 70]


@given(
    seed=st.integers(0, 100),
    factor=st.sampled_from([1.0, -1.0, 1e-290, -1e290, 1e-3]),
    offset=st.sampled_from([0.0, 1e6, -3.0]),
)
def test_units_do_not_matter(seed, factor, offset):
    targets = np.random.default_rng(seed).standard_cauchy(60)
    scaled = factor * (targets + offset)
    found = far_from_others(np.abs(targets - np.median(targets))[:, np.newaxis])[1]
    again = far_from_others(np.abs(scaled - np.median(scaled))[:, np.newaxis])[1]
    np.testing.assert_array_equal(found, again)


def test_the_order_of_rows_does_not_matter():
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(200, 2)), rng.normal(size=200)
    targets[[3, 9]] = 1e5
    order = rng.permutation(200)
    assert sorted(order[outlying(targets[order], rows[order])]) == outlying(targets, rows)


def test_the_largest_numbers_do_not_overflow():
    targets = np.random.default_rng(0).normal(size=80)
    targets[:2] = np.finfo(float).max * np.array([1.0, -1.0])
    assert outlying(targets) == [0, 1]


def test_targets_that_the_features_explain_are_kept():
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(400, 2)), rng.normal(size=400)
    rows[:8, 0], targets[:8] = 6.0, 1e5 + targets[:8]
    assert outlying(targets, rows) == []
    targets[100] = 1e6  # where the others are ordinary
    assert outlying(targets, rows) == [100]


@pytest.mark.parametrize("explained", [True, False])
def test_of_many_a_sample_decides(explained):
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(20_000, 2)), rng.normal(size=20_000)
    many = rng.choice(20_000, 600, replace=False)
    targets[many] += 1e5
    if explained:
        rows[many, 0] += 8.0
    assert outlying(targets, rows) == ([] if explained else sorted(many.tolist()))


def test_one_outlying_output_is_enough():
    targets = np.random.default_rng(0).normal(size=(50, 3))
    targets[4, 1] = 1e6
    assert outlying(targets) == [4]


def test_few_rows_tell_nothing():
    assert outlying([0.0, 1.0, 2.0, 1e9]) == []


def test_the_warning_names_the_farthest_rows():
    targets = np.random.default_rng(0).normal(size=(200, 1))
    targets[10:18, 0] = 10.0 ** np.arange(5, 13)
    message = describe_outlying(targets, np.arange(10, 18), np.arange(200) + 1000)
    assert "8 of 200 targets" in message
    assert "1017, 1016, 1015, 1014, 1013, ..." in message
