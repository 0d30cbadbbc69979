"""A model with default settings does not depend on the units of its targets and of its inputs.

Targets c·y + s give predictions c·f + s, standard deviations |c|·std; inputs a·x + t give the same predictions, for
length scales and cut-offs are found from the rows. The noise is the minimum of a function that rounding moves:
predictions are as accurate as the minimum. Searches over many parameters (``PseudoInputRegressor``,
``AutoRegressor``) stop on the way to one: rounding moves where, and a shift changes the rounding of all rows. They are
tried with powers of two, which do not round.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mercer
from tests.strategies import examples, seeds

DEFAULTS = ["ExactRegressor", "NystromRegressor", "CommitteeRegressor", "ReducedRankRegressor", "CompactRegressor"]
N_ROWS = 60

# Sixty rows are few for a kernel of compact support.
pytestmark = pytest.mark.filterwarnings("ignore::mercer.exceptions.StarvedWarning")


def draw(seed, n=N_ROWS):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-2, 2, size=(n, 2))
    return rows, np.sin(2 * rows[:, 0]) + rows[:, 1] + 0.3 * rng.normal(size=n), rng.uniform(-2, 2, size=(10, 2))


def check(name, seed, *, factor, unit, shift=0.0, offset=0.0, tolerance=1e-5):
    rows, targets, new = draw(seed)
    make = getattr(mercer, name)
    model = make(random_state=0).fit(rows, targets)
    other = make(random_state=0).fit(unit * rows + offset, factor * targets + shift)
    mean, std = model.predict(new, return_std=True)
    other_mean, other_std = other.predict(unit * new + offset, return_std=True)
    tolerance *= np.ptp(targets)
    np.testing.assert_allclose((other_mean - shift) / factor, mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(other_std / abs(factor), std, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", DEFAULTS)
@given(
    seed=seeds,
    factor=st.sampled_from([1e-6, -0.1, 1e3, -1e9]),
    shift=st.sampled_from([0.0, -100.0, 30.0]),
    unit=st.sampled_from([1e-3, 1.0, 1e4]),
    offset=st.sampled_from([0.0, 1.0, -20.0]),
)
def test_units_do_not_matter(name, seed, factor, shift, unit, offset):
    check(name, seed, factor=factor, unit=unit, shift=shift * abs(factor), offset=offset * unit)


@settings(max_examples=examples(8))
@given(seed=seeds, power=st.integers(-20, 20), unit=st.integers(-10, 10))
def test_units_that_do_not_round_do_not_matter_to_a_search(seed, power, unit):
    check("PseudoInputRegressor", seed, factor=2.0**power, unit=2.0**unit)


@pytest.mark.slow
@settings(max_examples=examples(2))
@given(seed=seeds, power=st.integers(-20, 20), unit=st.integers(-10, 10))
def test_units_that_do_not_round_do_not_matter_to_the_front_door(seed, power, unit):
    check("AutoRegressor", seed, factor=2.0**power, unit=2.0**unit)
