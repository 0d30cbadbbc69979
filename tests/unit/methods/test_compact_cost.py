"""Standard deviations after a fit by conjugate gradients: with a factor where that is cheaper, and the same numbers."""

import pickle
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array

from mercer import CompactRegressor, ExactRegressor
from mercer.engine import Sequence
from mercer.kernels import Wendland
from mercer.methods import compact_cost, compact_system
from mercer.methods.compact_cost import Elimination, Request
from mercer.solvers.sparse_symbolic import canonical, elimination_tree, entries_reached
from tests.archives import loaded, saved

KERNEL = Wendland(0.4)
each_intercept = pytest.mark.parametrize("intercept", [False, True])


@pytest.fixture
def fitted(monkeypatch):
    """A model without a factor, as large ones are; ``cheap`` says whether a factor is worth its while."""
    monkeypatch.setattr(compact_system, "_FACTORED", 10)
    monkeypatch.setattr(compact_cost, "ORDERING", 0.0)
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 2))
    y = np.sin(5 * X[:, 0]) + 0.1 * rng.normal(size=150)

    def fit(*, cheap=True, **options):
        monkeypatch.setattr(Request, "is_cheaper", lambda *_: cheap)
        monkeypatch.setattr(Request, "most_entries", np.inf if cheap else 0.0)
        model = CompactRegressor(KERNEL, noise=0.1, tol=1e-12, **options).fit(X, y)
        assert model.solver_ == "cg"
        assert model.fill_in_ is None
        return model, ExactRegressor(KERNEL, noise=0.1, intercept=model.intercept).fit(X, y)

    return fit


NEW = np.random.default_rng(1).uniform(size=(20, 2))


@pytest.mark.parametrize("cheap", [False, True])
@each_intercept
def test_variances_are_those_of_dense_algebra_by_both_paths(fitted, cheap, intercept):
    model, dense = fitted(cheap=cheap, intercept=intercept)
    std, expected = model.predict(NEW, return_std=True)[1], dense.predict(NEW, return_std=True)[1]
    assert (model._system._late is not None) == cheap
    np.testing.assert_allclose(std, expected, rtol=1e-7)
    np.testing.assert_allclose(
        model.predict(NEW, return_cov=True)[1], dense.predict(NEW, return_cov=True)[1], rtol=1e-6, atol=1e-9
    )
    assert model.predict_interval(NEW)[0].shape == (20,)
    assert model.log_density(NEW, np.zeros(20)).shape == (20,)
    assert model.solver_ == "cg"


def test_a_factor_for_variances_is_made_once_and_not_stored(fitted):
    model, _ = fitted()
    before = model.predict(NEW, return_std=True)[1]
    factor = model._system._late
    model.predict(NEW[:1], return_std=True)
    assert model._system._late is factor
    for again in (loaded(saved(model)), pickle.loads(pickle.dumps(model))):
        assert again._system._late is None
        np.testing.assert_allclose(again.predict(NEW, return_std=True)[1], before, rtol=1e-7)
    assert model._system.with_diagonal(2 * model._system.diagonal)._late is None


def test_rows_that_were_asked_for_before_count(fitted):
    system = fitted(cheap=False)[0]._system
    seen = []
    system._factor_late = lambda request: seen.append(request.n_rows) or ""
    for n_rows in (10, 5, 5, 30, 10):
        assert system.factor_for(n_rows, Sequence()) is None
    assert seen == [10, 20, 50]


def test_conjugate_gradients_that_were_asked_for_are_used(fitted):
    model, dense = fitted(solver="cg")
    np.testing.assert_allclose(
        model.predict(NEW, return_std=True)[1], dense.predict(NEW, return_std=True)[1], rtol=1e-7
    )
    assert model._system._late is None


@pytest.mark.parametrize(
    ("memory", "solver", "message"),
    [
        (1000, "auto", "does not fit into the 0.0 GB"),
        (10**12, "auto", "would take longer"),
        (10**12, "cg", "solver='cg'"),
    ],
)
def test_what_takes_long_is_announced_with_the_reason(fitted, monkeypatch, memory, solver, message):
    model, _ = fitted(cheap=memory < 10**12, solver=solver)
    monkeypatch.setattr(compact_system, "available_memory", lambda: memory)
    monkeypatch.setattr(compact_cost, "_LONG", 1.0)
    with pytest.warns(UserWarning, match=message):
        model.predict(NEW, return_std=True)
    assert model._system._late is None


def test_memory_that_is_missing_after_all_leaves_conjugate_gradients(fitted, monkeypatch):
    model, dense = fitted()

    def out_of_memory(*_, **__):
        raise MemoryError

    monkeypatch.setattr(compact_system, "sparse_cholesky", out_of_memory)
    np.testing.assert_allclose(
        model.predict(NEW, return_std=True)[1], dense.predict(NEW, return_std=True)[1], rtol=1e-7
    )


def test_a_factor_is_cheaper_for_many_rows_of_the_plane_and_not_for_few():
    """As counted for 200 000 points in the plane with 50 neighbours each."""
    factor = Elimination(entries=7.4e7, work=8.1e10, row_work=1.5e7)
    request = partial(Request, n_points=200_000, nnz=10_179_732, n_iter=55, workers=1)
    assert not request(10).is_worth_a_look
    assert request(100).is_worth_a_look
    assert not request(100).is_cheaper(factor)
    assert request(1000).is_cheaper(factor)
    assert request(1000).most_entries > factor.entries
    assert request(100).warning("") is None
    assert "10 minutes" in request(1072).warning("")
    # More workers make iterations and rows faster, the factor not.
    assert not request(1000)._replace(workers=8).is_cheaper(factor)


def test_work_is_counted_from_the_elimination_tree():
    """An arrow: eliminated from its tip everything fills, from its other end nothing."""
    n = 6
    arrow = csr_array(np.eye(n) * n + (np.arange(n) == 0) + (np.arange(n)[:, np.newaxis] == 0))
    parent, counts = elimination_tree(canonical(arrow), np.arange(n))
    np.testing.assert_array_equal(counts, np.arange(n, 0, -1))
    np.testing.assert_array_equal(entries_reached(parent, counts), [21, 15, 10, 6, 3, 1])
    assert Elimination.of(parent, counts) == (21.0, 91.0, 3 * 56 / 6)
    parent, counts = elimination_tree(canonical(arrow), np.arange(n)[::-1])
    np.testing.assert_array_equal(counts, [2, 2, 2, 2, 2, 1])
    np.testing.assert_array_equal(entries_reached(parent, counts), [3, 3, 3, 3, 3, 1])
