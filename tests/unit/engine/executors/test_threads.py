import threading
import time
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn import config_context
from threadpoolctl import ThreadpoolController, threadpool_limits

from mercer.engine import Pass, RowPass, Threads, blas_threads
from mercer.engine.blocks import Spans

PATIENCE = 3.0  # seconds until a test that waits for another thread gives up


def blas_limits():
    """Number of threads of every BLAS that is loaded."""
    return [pool["num_threads"] for pool in ThreadpoolController().select(user_api="blas").info()]


@pytest.fixture(autouse=True)
def limits_are_restored():
    before = blas_limits()
    assert before, "no BLAS is visible to threadpoolctl"
    yield
    assert blas_limits() == before


def let_any_thread_set_limits():
    """Newer threadpoolctl lets one thread alone change OpenBLAS's setting, and silently ignores all others."""
    for controller in ThreadpoolController().select(internal_api="openblas").lib_controllers:
        getattr(controller, "clear_controlling_thread", lambda **_options: None)(force=True)


@pytest.fixture
def two_threads():
    """BLAS set to two threads, whatever the machine, and free to be set by any thread."""
    with threadpool_limits(limits=2, user_api="blas"):
        let_any_thread_set_limits()
        yield
        let_any_thread_set_limits()


@dataclass(frozen=True)
class Calls(Pass):
    """Call a function for every tile, and list what it returns."""

    function: Any
    state_numbers: int = 0

    name, width = "calls", 1

    def start(self):
        return []

    def add(self, state, tile):
        state.append(self.function(tile))

    def finish(self, state):
        return state


@dataclass(frozen=True)
class Numbers(RowPass):
    function: Any

    name, width, shape = "numbers", 1, ()

    def apply(self, tile, out):
        self.function(tile)
        out[...] = np.arange(tile.first, tile.first + tile.n_rows)


def pieces(number, size=10):
    """A table of so many tiles, each a partition."""
    return Spans([size * i for i in range(number + 1)])


def run(n_jobs, function, number=10, **options):
    return Threads(n_jobs, **options).reduce(Calls(function), pieces(number))


# ------------------------------------------------------------------------------------------------------- partitions


@pytest.mark.parametrize("n_jobs", [1, 2, 3, 8])
@pytest.mark.parametrize("number", [1, 2, 7, 100])
def test_results_come_in_the_order_of_partitions(n_jobs, number):
    def slow(tile):
        time.sleep(1e-3 * (tile.first % 3))
        return tile.first

    assert run(n_jobs, slow, number) == [10 * i for i in range(number)]
    np.testing.assert_array_equal(Threads(n_jobs).map(Numbers(slow), pieces(number)), np.arange(10 * number))


def test_partitions_run_at_the_same_time():
    barrier = threading.Barrier(3, timeout=PATIENCE)

    def function(_tile):
        barrier.wait()  # broken, were they run one after the other
        return threading.get_ident()

    assert len(set(run(3, function, 3))) == 3


def test_a_single_worker_is_the_calling_thread():
    for n_jobs, number in [(1, 10), (4, 1)]:
        assert set(run(n_jobs, lambda _tile: threading.get_ident(), number)) == {threading.get_ident()}


def test_few_results_are_kept_while_the_first_one_is_late():
    begun, handed_out = threading.Event(), []

    def function(tile):
        handed_out.append(tile.first)
        if tile.first == 0:
            begun.wait(0.2)
            return len(handed_out)
        return 0

    assert run(2, function, 50)[0] <= 4  # twice as many as there are workers


# ----------------------------------------------------------------------------------------------------------- n_jobs


def test_a_number_of_jobs():
    cores = joblib.cpu_count()
    assert Threads(3).n_jobs == 3
    assert Threads(-1).n_jobs == cores
    assert Threads(-2).n_jobs == max(1, cores - 1)
    assert Threads(-100).n_jobs == 1


def test_zero_jobs_are_refused():
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        Threads(0)


@pytest.mark.parametrize("number", [1, 2])
def test_the_default_is_what_blas_may_use(number):
    with threadpool_limits(limits=number, user_api="blas"):
        assert Threads().n_jobs == number


@pytest.mark.parametrize("backend", [None, "threading", "loky"])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.usefixtures("two_threads")
def test_the_default_follows_joblibs_configuration(backend, number):
    options = {} if backend is None else {"backend": backend}
    with joblib.parallel_config(n_jobs=number, **options):
        assert Threads().n_jobs == number
        assert Threads(4).n_jobs == 4


@pytest.mark.usefixtures("two_threads")
def test_a_configuration_without_a_number_of_jobs_says_nothing():
    with joblib.parallel_config(backend="threading"):
        assert Threads().n_jobs == 2


# ------------------------------------------------------------------------------------------------------ BLAS threads


@pytest.mark.parametrize(("n_jobs", "number"), [(1, 1), (1, 10), (2, 1), (2, 10), (4, 2)])
@pytest.mark.usefixtures("two_threads")
def test_blas_is_held_to_one_thread_during_the_work(n_jobs, number):
    """So that neither its threads nor their number show in the last digits."""
    results = Threads(n_jobs).reduce(Calls(lambda _tile: blas_limits()), pieces(number, 5000))
    assert {limit for limits in results for limit in limits} == {1}
    assert set(blas_limits()) == {2}


@pytest.mark.usefixtures("two_threads")
def test_where_memory_is_short_fewer_workers_have_more_threads_of_blas():
    with config_context(working_memory=2.5):  # for one sum of its own, and that of all before
        work = Calls(lambda _tile: blas_limits(), state_numbers=1 << 17)
        results = Threads(2).reduce(work, pieces(5, 5000))
    assert {limit for limits in results for limit in limits} == {2}


@pytest.mark.usefixtures("two_threads")
def test_sums_that_fit_memory_once_only_have_all_threads_of_blas():
    with config_context(working_memory=1):
        results = Threads(2).reduce(Calls(lambda _tile: blas_limits(), state_numbers=1 << 20), pieces(5))
    assert len(results) == 5
    assert {limit for limits in results for limit in limits} == {2}


@pytest.mark.usefixtures("two_threads")
def test_blas_is_restored_after_an_error():
    def function(_tile):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        run(2, function)
    assert set(blas_limits()) == {2}


@pytest.mark.usefixtures("two_threads")
def test_nested_holders_restore_at_the_last_exit():
    with blas_threads(1):
        with blas_threads(1):
            assert set(blas_limits()) == {1}
        assert set(blas_limits()) == {1}
    assert set(blas_limits()) == {2}


@pytest.mark.usefixtures("two_threads")
def test_concurrent_holders_restore_at_the_last_exit():
    """The first to come leaves before the last: the setting outlives it, and is still restored."""
    first_in, second_in, first_out, second_out = (threading.Event() for _ in range(4))
    seen = []

    def first():
        with blas_threads(1):
            seen.append(blas_limits())
            first_in.set()
            second_in.wait(PATIENCE)
        first_out.set()
        second_out.wait(PATIENCE)  # as a thread of a pool lives on

    def second():
        first_in.wait(PATIENCE)
        with blas_threads(1):
            second_in.set()
            first_out.wait(PATIENCE)
            seen.append(blas_limits())
        seen.append(blas_limits())
        second_out.set()

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [set(limits) for limits in seen] == [{1}, {1}, {2}]


@pytest.mark.usefixtures("two_threads")
def test_runs_may_nest():
    assert run(2, lambda _tile: sum(run(2, lambda tile: tile.n_rows, 5)), 2) == [50, 50]
    assert set(blas_limits()) == {2}


@pytest.mark.usefixtures("two_threads")
def test_many_runs_at_once():
    def fit(_index):
        return sum(run(2, lambda tile: float(np.sum(tile.first + np.arange(tile.n_rows)))))

    results = joblib.Parallel(n_jobs=4, backend="threading")(joblib.delayed(fit)(i) for i in range(20))
    assert results == [4950.0] * 20
    assert set(blas_limits()) == {2}


# -------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
@pytest.mark.parametrize("failing", [0, 50, 90])
def test_the_error_of_a_worker_surfaces(n_jobs, failing):
    def function(tile):
        if tile.first == failing:
            raise KeyError(f"row {failing}")

    with pytest.raises(KeyError, match=f"row {failing}"):
        run(n_jobs, function)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_in_merging_surfaces(n_jobs):
    class Unmergeable(Calls):
        def merge(self, _state, _other):
            raise ValueError("do not add")

    with pytest.raises(ValueError, match="do not add"):
        Threads(n_jobs).reduce(Unmergeable(lambda _tile: 1), pieces(5))


def test_an_error_stops_the_other_workers():
    finished, begun = [], threading.Barrier(3)

    def function(tile):
        if tile.first < 30:
            begun.wait(PATIENCE)
        if tile.first == 0:
            raise RuntimeError("first worker")
        time.sleep(0.01)
        finished.append(tile.first)

    with pytest.raises(RuntimeError, match="first worker"):
        run(3, function, 1000)
    assert len(finished) < 10


def test_no_threads_are_left_behind():
    before = threading.active_count()
    run(4, lambda _tile: None, 100)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mercer")]
    assert threading.active_count() <= before + 1  # a record of a thread that has ended, until its number is used again


# -------------------------------------------------------------------------------------------------------- progress


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("number", [1, 10])
def test_rows_are_counted_when_verbose(n_jobs, number, monkeypatch):
    counted = []
    monkeypatch.setattr("mercer.engine.progress.Progress.advance", lambda _self, rows: counted.append(rows))
    run(n_jobs, lambda _tile: None, number)
    assert counted == []
    run(n_jobs, lambda _tile: None, number, verbose=1)
    assert sum(counted) == 10 * number
