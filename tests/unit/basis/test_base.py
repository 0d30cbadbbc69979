"""From an estimator's ``basis`` argument to points."""

import inspect

import numpy as np
import pytest
from scipy import sparse

from mercer import NystromRegressor
from mercer import basis as strategies
from mercer.basis import Basis, BasisStrategy, Uniform, choose_basis, nystrom_error
from mercer.engine import Threads
from mercer.kernels import Gaussian
from tests.doubles import GuardedRows


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(40, 2))


def choose(basis, rows, n_basis=5, weights=None):
    source = GuardedRows(rows, longest_read=0, longest_take=n_basis)
    return choose_basis(
        basis, source, np.zeros((len(rows), 1)), Gaussian(), n_basis,
        weights=weights, random_state=np.random.RandomState(0), executor=Threads(1),
    )  # fmt: skip


def test_a_name_means_its_strategy(rows):
    by_name, by_object = choose("uniform", rows), choose(Uniform(), rows)
    np.testing.assert_array_equal(by_name.index, by_object.index)
    assert by_name.points.shape == (5, 2)


def test_every_strategy_goes_by_the_name_of_its_file(rows, monkeypatch):
    names = {"distribution", "forward_selection", "kmeans", "leverage", "pivoted_cholesky", "sequential"}
    names |= {"sparse_greedy", "supervised_cholesky", "uniform"}
    public = [member for _, member in inspect.getmembers(strategies, inspect.isclass)]
    public = [member for member in public if issubclass(member, BasisStrategy) and member is not BasisStrategy]
    assert {member.__module__ for member in public} == {f"mercer.basis.{name}" for name in names}
    monkeypatch.setattr(BasisStrategy, "select", lambda self, *_, **__: type(self))
    assert {choose(name, rows) for name in names} == set(public)


def test_a_strategy_of_ones_own_is_asked(rows):
    class Corners(BasisStrategy):
        def choose(self, task):
            return Basis(points=np.full((task.n_basis, task.rows.n_features), 7.0))

    np.testing.assert_array_equal(choose(Corners(), rows, n_basis=3).points, np.full((3, 2), 7.0))


@pytest.mark.parametrize("given", [[[0, 1], [2, 3]], np.array([[0, 1], [2, 3]], dtype=np.int16, order="F")])
def test_points_given_are_taken_whatever_n_basis_says(rows, given):
    basis = choose(given, rows, n_basis=1)
    assert basis.index is None
    assert basis.points.dtype == np.float64
    assert basis.points.flags.c_contiguous
    np.testing.assert_array_equal(basis.points, [[0.0, 1.0], [2.0, 3.0]])


def test_points_given_are_copied(rows):
    given = np.zeros((3, 2))
    basis = choose(given, rows)
    given[:] = 9.0
    np.testing.assert_array_equal(basis.points, 0.0)


@pytest.mark.parametrize("unknown", ["random", "", None])
def test_an_unknown_name_is_refused_with_the_names_there_are(rows, unknown):
    with pytest.raises(
        ValueError, match=r"basis must be one of 'uniform', .*'kmeans', .*, a strategy of mercer\.basis, or an array"
    ):
        choose(unknown, rows)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((3, 3)), r"basis.*shape \(m, 2\).*\(3, 3\)"),
        (np.zeros(3), r"basis.*shape \(m, 2\)"),
        (np.zeros((0, 2)), r"basis.*at least 1"),
        (np.zeros((2, 2, 2)), r"basis.*shape \(m, 2\)"),
        ([[0.0, np.nan]], "basis.*NaN or infinity"),
        ([[0.0, np.inf]], "basis.*NaN or infinity"),
        ([["a", "b"]], "basis.*must hold numbers"),
        ([[1.0, 2.0], [3.0]], "basis.*must hold numbers"),
        (Uniform, "basis"),
        (5, "basis"),
    ],
    ids=["width", "1-d", "empty", "3-d", "nan", "infinity", "strings", "ragged", "class", "number"],
)
def test_bad_points_are_refused(rows, bad, message):
    with pytest.raises(ValueError, match=message):
        choose(bad, rows)
    with pytest.raises(ValueError, match=message):
        nystrom_error(rows, bad, Gaussian())


def test_points_may_be_sparse():
    X, y = np.eye(6), np.arange(6.0)
    dense = NystromRegressor(basis=X[:3], noise=0.1, intercept=False).fit(X, y)
    given = NystromRegressor(basis=sparse.csr_array(X[:3]), noise=0.1, intercept=False).fit(X, y)
    assert np.array_equal(given.predict(X), dense.predict(X))


def test_points_of_a_model_cannot_be_changed():
    model = NystromRegressor(n_basis=3, random_state=0, noise=0.1, intercept=False).fit(np.eye(6), np.arange(6.0))
    with pytest.raises(ValueError, match="read-only"):
        model.basis_[0] = 1.0
