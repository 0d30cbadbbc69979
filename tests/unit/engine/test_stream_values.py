"""Kernel values that compiled code computes for a stream are those of the kernel."""

import numpy as np
import pytest

from mercer.datasets import make_waves
from mercer.engine.sequential import SequentialLearner
from mercer.engine.stream_values import StreamValues
from mercer.exceptions import NotPositiveDefiniteError
from mercer.kernels import Gaussian, Linear, Matern
from mercer.kernels.stationary import StationarySection
from mercer.solvers.compiled_blas import routines
from mercer.solvers.recursive import Rules
from mercer.solvers.recursive.block import PANEL
from mercer.solvers.recursive.blocks import Source, fill_values

RULES = Rules(1e-2, 200, 1e-2, 1e-6)


def filled(source, n_points, start, stop):
    """Values of some rows."""
    out = np.full((stop - start, n_points + stop - start + 3), np.nan)
    possible = fill_values(routines(), source, np.arange(n_points), out, n_points, start)
    assert np.all(np.isnan(out[:, -3:]))
    return out[:, :-3] if possible else None


def learned(X, y, kernel, rules=RULES, sizes=None):
    learner = SequentialLearner(kernel, rules, X.shape[1], 1)
    for span in np.array_split(np.arange(len(X)), sizes or 1):
        learner.learn(X[span], y[span, np.newaxis])
    return learner


def assert_same(first, second):
    np.testing.assert_array_equal(first.recursion.births, second.recursion.births)
    np.testing.assert_array_equal(first.points, second.points)
    w = first.recursion.coefficients
    np.testing.assert_allclose(second.recursion.coefficients, w, rtol=0, atol=1e-9 * np.max(np.abs(w)))


@pytest.mark.parametrize("fixed", [0, 1])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0, 30.0])
def test_factors_give_the_kernel(fixed, scale):
    """Rows far from the centre, too: their exponents are computed from differences."""
    rng = np.random.default_rng(0)
    points, rows = rng.normal(size=(30, 3)), rng.normal(size=(40, 3))
    rows[::4] *= scale
    rows[1::4] = rows[::4] + 0.3 * rng.normal(size=(10, 3))
    kernel = Gaussian([1.5, 2.0, 0.7], 1.7)
    source = StreamValues(kernel).factored(points, rows, fixed, len(points))
    assert source is not None
    values = filled(source, fixed + len(points), 10, 40)
    np.testing.assert_array_equal(values[:, :fixed], 1.0)
    expected = kernel(rows[10:], np.vstack([points, rows[10:]]))
    np.testing.assert_allclose(values[:, fixed:], expected, rtol=1e-11, atol=1e-300)


def test_values_that_are_known_are_looked_up():
    table = np.random.default_rng(0).normal(size=(20, 50))
    np.testing.assert_array_equal(filled(Source(table), 30, 8, 20), table[8:, np.r_[:30, 38:50]])


def test_rows_too_far_have_no_factors():
    def values(points, rows):
        source = StreamValues(Gaussian(1.0)).factored(points, rows, 0, 10)
        return None if source is None else filled(source, len(points), 1, len(rows))

    points, rows = np.zeros((4, 2)), np.zeros((3, 2))
    assert values(points, rows) is not None
    assert values(points, rows + 200.0) is None
    assert values(points[:0], rows + 200.0) is not None, "rows far from zero have a centre"
    assert values(np.diag([0.0, 0.0, 0.0, 200.0])[:, 2:], rows) is None, "a point may be too far as well"
    assert values(points, np.full((3, 2), 1e300)) is None
    assert StreamValues(Matern(1.0)).factored(points, points, 0, 10) is None
    assert StreamValues(Linear()).factored(points, points, 0, 10) is None


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("max_basis", [100, 2 * PANEL + 24])
def test_tables_decide_as_factors_do(intercept, max_basis, monkeypatch):
    X, y = make_waves(1500, n_features=4, noise=0.1, random_state=0)
    rules = Rules(1e-2, max_basis, 1e-2, 1e-6, intercept=intercept)
    factored = learned(X, y, Gaussian(1.0), rules)
    assert factored._values.has_factors
    assert factored.recursion.n_pruned > 100
    monkeypatch.setattr(StationarySection, "factors", lambda *_: None)
    tabulated = learned(X, y, Gaussian(1.0), rules)
    assert not tabulated._values.has_factors
    assert_same(factored, tabulated)


@pytest.mark.parametrize("distance", [20.0, 2000.0, 1e7])
def test_a_stream_may_go_far_away(distance):
    """Where factors are no longer exact, tables are made."""
    X, y = make_waves(900, n_features=3, noise=0.1, random_state=0)
    X[300:] += distance * (np.arange(600) // 300)[:, np.newaxis]
    together, pieces = learned(X, y, Gaussian(0.8)), learned(X, y, Gaussian(0.8), sizes=7)
    assert_same(together, pieces)
    gram = Gaussian(0.8)(together.points)
    np.testing.assert_allclose(together.recursion.gram, gram, rtol=0, atol=1e-8 if distance == 1e7 else 1e-11)


def count_tables(monkeypatch):
    tables, tabulated = [], StreamValues.tabulated

    def counting(self, points, rows, fixed):
        tables.append(len(rows))
        return tabulated(self, points, rows, fixed)

    monkeypatch.setattr(StreamValues, "tabulated", counting)
    return tables


def test_after_a_single_far_row_factors_are_used_again(monkeypatch):
    X, y = make_waves(6000, n_features=3, noise=0.1, random_state=0)
    X[700] += 1e4
    tables = count_tables(monkeypatch)
    learner = learned(X, y, Gaussian(0.8), rules=Rules(1e-2, 30, 1e-2, 1e-6))
    assert 700 not in learner.recursion.births
    assert 0 < sum(tables) < 3000


def test_kernels_without_factors_are_asked_once(monkeypatch):
    X, y = make_waves(3000, n_features=2, noise=0.1, random_state=0)
    asked, bind = [], StreamValues._bind
    monkeypatch.setattr(StreamValues, "_bind", lambda *arguments: asked.append(1) or bind(*arguments))
    learner = learned(X, y, Matern(1.0), sizes=30)
    assert not learner._values.has_factors
    assert len(asked) == 1


@pytest.mark.parametrize("distance", [20.0, 2000.0])
@pytest.mark.parametrize("max_basis", [80, 200, 2 * PANEL + 20])
def test_a_stream_may_go_far_away_in_the_midst_of_rows(distance, max_basis, monkeypatch):
    """Blocks before the far rows are learned by factors, from the old centre, and then from a new one or by tables."""
    tables = count_tables(monkeypatch)
    X, y = make_waves(2000, n_features=4, noise=0.1, random_state=0)
    X[1333:] += distance
    rules = Rules(1e-2, max_basis, 1e-2, 1e-6)
    factored = learned(X, y, Gaussian(0.8), rules)
    assert len(factored.points) == max_basis
    assert bool(tables) == (distance > 100)
    monkeypatch.setattr(StationarySection, "factors", lambda *_: None)
    assert_same(factored, learned(X, y, Gaussian(0.8), rules))


@pytest.mark.parametrize("intercept", [False, True])
def test_a_dictionary_may_grow_for_as_long_as_it_likes(intercept):
    """Memory is had for twice the functions there are: rows that come together need it several times."""
    X, y = make_waves(1500, n_features=4, random_state=0)
    rules = Rules(1e-2, 5000, 1e-2, None, intercept=intercept)
    together = learned(X, y, Gaussian(0.5), rules)
    assert len(together.points) > 1000
    assert_same(together, learned(X, y, Gaussian(0.5), rules, sizes=23))
    assert len(together.recursion._matrices.P) <= 2 * len(together.points) + 128, "not for 5000"


def test_a_spoilt_inverse_of_a_dictionary_that_grows():
    """What is learned after the inverse was computed anew needs room, too."""
    X, y = make_waves(1500, n_features=4, random_state=0)
    rules = Rules(1e-2, 5000, 1e-2, None)
    learner = learned(X[:300], y[:300], Gaussian(0.5), rules)
    m = len(learner.points)
    learner.recursion.K_inverse[:] += 1e-6 * np.eye(m)
    learner.learn(X[300:], y[300:, np.newaxis])
    assert learner.recursion.n_refreshed > 0
    assert learner.recursion.n_seen == 1500
    error = learner.recursion.K_inverse @ Gaussian(0.5)(learner.points) - np.eye(len(learner.points))
    assert np.max(np.abs(error)) < 1e-7


@pytest.mark.parametrize("kernel", [Matern(1.0), Gaussian(1.0) + 0.1 * Linear()])
@pytest.mark.parametrize("max_basis", [100, 2 * PANEL + 40])
def test_tables_in_batches_decide_as_one_does(kernel, max_basis):
    X, y = make_waves(1200, n_features=4, noise=0.1, random_state=2)
    rules = Rules(1e-2, max_basis, 1e-2, 1e-6)
    assert_same(learned(X, y, kernel, rules), learned(X, y, kernel, rules, sizes=11))


@pytest.mark.parametrize("m", [80, 200, 2 * PANEL + 20])
def test_a_spoilt_inverse_is_computed_anew_in_the_midst_of_rows(m):
    X, y = make_waves(2400, n_features=4, noise=0.1, random_state=0)
    learner = learned(X[:800], y[:800], Gaussian(1.0), Rules(1e-2, m, 1e-2, 1e-6))
    assert len(learner.points) == m
    noise = 1e-5 * np.random.default_rng(0).normal(size=(m, m))
    learner.recursion.K_inverse[:] += noise + noise.T
    learner.learn(X[800:], y[800:, np.newaxis])
    recursion = learner.recursion
    assert recursion.n_refreshed > 0
    assert recursion.n_seen == 2400
    np.testing.assert_allclose(recursion.K_inverse @ Gaussian(1.0)(learner.points), np.eye(m), rtol=0, atol=1e-7)


class Wavy(Gaussian):
    """A kernel with a profile of its own."""

    def profile(self, dtype):
        smooth = super().profile(dtype)

        def fill(tile):
            smooth(tile)
            tile *= tile

        return fill


def test_a_subclass_with_another_profile_has_no_factors():
    X, y = make_waves(300, n_features=2, random_state=0)
    assert Wavy(1.0).bind(X).factors() is None
    assert_same(learned(X, y, Wavy(1.0)), learned(X, y, Gaussian(np.sqrt(0.5))))


def test_tables_compute_the_prior_once():
    X, y = make_waves(1000, n_features=2, random_state=0)
    counted = []

    class Counting(Matern):
        def diagonal(self, rows):
            counted.append(len(rows))
            return super().diagonal(rows)

    learned(X, y, Counting(1.0))
    assert sum(counted) <= 1000 + 256


def test_a_far_first_row_does_not_stay_the_centre():
    X, y = make_waves(400, n_features=2, random_state=0)
    X[0] += 50.0
    learner = learned(X, y, Gaussian(0.5), sizes=400)
    assert np.max(np.abs(learner._values._source.scales[:2])) < 10.0


def test_an_overflowing_kernel_is_refused():
    rows = np.full((3, 2), 1e200)
    with pytest.raises((ValueError, NotPositiveDefiniteError), match="overflow"):
        learned(rows, np.ones(3), Linear())
