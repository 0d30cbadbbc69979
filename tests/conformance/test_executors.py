"""Every estimator is fitted and predicts through every executor: threads, a sequence, and processes elsewhere."""

import inspect
import warnings

import numpy as np
import pytest

from mercer.engine import Sequence, Threads, using
from mercer.engine import rows as engine_rows
from mercer.exceptions import NegativeVarianceWarning
from mercer.kernels import Gaussian
from tests.processes import Processes
from tests.walks import CLASSIFIERS, ESTIMATORS, output, over, targets_for

pytestmark = pytest.mark.slow  # processes are spawned, and each imports and loads all anew

N, N_NEW = 1200, 700
RNG = np.random.default_rng(0)
ROWS, NEW = RNG.normal(size=(N, 2)), RNG.normal(size=(N_NEW, 2))


@pytest.fixture(autouse=True)
def _several_partitions(monkeypatch):
    monkeypatch.setattr(engine_rows, "_FEWEST_ROWS", 256)


def make(estimator, **options):
    known = inspect.signature(estimator).parameters
    wanted = {"kernel": Gaussian(1.5), "n_basis": 20, "noise": 0.1, "random_state": 0, "max_iter": 200, "tol": 1e-10}
    return estimator(**{name: value for name, value in wanted.items() if name in known} | options)


def fitted(estimator, executor, rows=ROWS, **options):
    """Predictions, and standard deviations where there are some, by an executor."""
    with using(executor), warnings.catch_warnings():
        warnings.simplefilter("ignore", NegativeVarianceWarning)  # of the reduced rank approximation
        model = make(estimator, **options).fit(rows, targets_for(estimator, ROWS))
        if hasattr(model, "predict") and "return_std" in inspect.signature(model.predict).parameters:
            return model.predict(NEW, return_std=True)
        return (output(model, NEW),)


def assert_same(actual, expected, tolerance):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.nanmax(np.abs(other)))


@over("estimator", ESTIMATORS)
def test_processes_that_share_nothing_give_what_threads_give(estimator):
    executor = Processes()
    actual = fitted(estimator, executor)
    assert executor.sent > 0
    assert_same(actual, fitted(estimator, Threads(2)), 1e-12)


@over("estimator", ESTIMATORS)
def test_one_worker_and_ten_give_the_same_bits(estimator):
    for one, other in zip(fitted(estimator, Threads(1)), fitted(estimator, Threads(10)), strict=True):
        np.testing.assert_array_equal(one, other)


@over("estimator", ESTIMATORS)
def test_rows_in_their_order_give_what_threads_give(estimator):
    assert_same(fitted(estimator, Sequence()), fitted(estimator, Threads(2)), 1e-10)


@over("estimator", CLASSIFIERS)
def test_labels_of_several_classes_travel_as_codes(estimator):
    labels = np.array(["a", "b", "c"])[np.digitize(ROWS[:, 0], [-0.5, 0.5])]
    decisions = []
    for executor in (Processes(), Threads(2)):
        with using(executor):
            decisions.append(make(estimator).fit(ROWS, labels).decision_function(NEW))
    assert_same([decisions[0]], [decisions[1]], 1e-12)
