"""Estimators that several threads of the user's change, copy or merge at once, and processes that are forked."""

import os
import signal
import threading

import numpy as np
import pytest

from mercer import CommitteeRegressor, NystromRegressor, OnlineRegressor
from mercer.estimators.shell import all_or_nothing
from mercer.kernels import Gaussian
from tests.walks import over

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 2))
Y = np.sin(X[:, 0])
MERGED = [NystromRegressor, CommitteeRegressor]


def make(estimator):
    names = estimator().get_params()
    options = {"n_basis": 10, "max_basis": 10, "noise": 0.1, "kernel": Gaussian(), "random_state": 0}
    return estimator(**{name: value for name, value in options.items() if name in names})


def at_once(*functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@over("estimator", [*MERGED, OnlineRegressor])
def test_no_rows_are_lost_between_threads(estimator):
    model = make(estimator).partial_fit(X, Y)
    at_once(*[lambda: [model.partial_fit(X[:50], Y[:50]) for _ in range(5)]] * 4)
    assert model.n_seen_ == 400 + 4 * 5 * 50


@over("estimator", MERGED)
def test_merges_and_batches_take_turns(estimator):
    model = make(estimator).partial_fit(X, Y)
    other = estimator(**(model.get_params(deep=False) | {"basis": model.basis_})).fit(X[:200], Y[:200])
    merging = [lambda: [model.merge(other) for _ in range(5)]] * 3
    at_once(*merging, lambda: [model.partial_fit(X[:50], Y[:50]) for _ in range(5)])
    assert model.n_seen_ == 400 + 3 * 5 * 200 + 5 * 50


@over("estimator", MERGED)
def test_two_models_that_are_merged_into_each_other_do_not_wait_for_ever(estimator):
    one = make(estimator).fit(X, Y)
    other = estimator(**(one.get_params(deep=False) | {"basis": one.basis_})).fit(X, Y)
    at_once(*[lambda: [one.merge(other) for _ in range(5)], lambda: [other.merge(one) for _ in range(5)]])


def test_an_estimator_that_cannot_be_hashed_can_be_fitted():
    class Own(NystromRegressor):
        __hash__ = None

        def __eq__(self, other):
            return self is other

    assert Own(n_basis=5, random_state=0).fit(X, Y).n_seen_ == 400


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_threads_of_its_parent():
    model, inside, go_on = make(NystromRegressor), threading.Event(), threading.Event()

    def fit():
        with all_or_nothing(model):
            inside.set()
            go_on.wait(30)

    thread = threading.Thread(target=fit)
    thread.start()
    inside.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        model.fit(X, Y)
        os._exit(0)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        go_on.set()
        thread.join()
