import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import joblib
import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from mercer.engine import Threads
from mercer.engine.executors.threads import blas_threads

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


def spans(task_result):
    return [(start, stop) for start, stop, _ in task_result]


def record(start, stop, _tick):
    return start, stop, threading.get_ident()


# ------------------------------------------------------------------------------------------------------------ spans


@pytest.mark.parametrize("n_jobs", [1, 2, 3, 8])
@pytest.mark.parametrize(("n_rows", "tile"), [(1, 10), (10, 10), (11, 10), (100, 7), (1000, 10)])
def test_spans_cover_all_rows_once_in_order_and_in_whole_tiles(n_jobs, n_rows, tile):
    result = spans(Threads(n_jobs).run(record, n_rows, tile=tile))
    assert result[0][0] == 0
    assert result[-1][1] == n_rows
    assert all(before[1] == after[0] for before, after in pairwise(result))
    assert all(start % tile == 0 and start < stop for start, stop in result)
    assert len(result) == min(n_jobs, -(-n_rows // tile))


def test_no_rows_are_one_empty_span():
    assert spans(Threads(4).run(record, 0, tile=10)) == [(0, 0)]


def test_spans_are_even():
    lengths = [stop - start for start, stop in spans(Threads(4).run(record, 1000, tile=10))]
    assert max(lengths) - min(lengths) <= 10


def test_fewer_workers_can_be_asked_for():
    assert len(Threads(4).run(record, 1000, tile=10, workers=2)) == 2


def test_spans_run_at_the_same_time():
    barrier = threading.Barrier(3, timeout=PATIENCE)

    def task(_start, _stop, _tick):
        barrier.wait()  # broken, were the spans run one after the other
        return threading.get_ident()

    assert len(set(Threads(3).run(task, 30, tile=10))) == 3


def test_a_single_span_runs_in_the_calling_thread():
    for n_jobs, n_rows in [(1, 100), (4, 5)]:
        (result,) = Threads(n_jobs).run(record, n_rows, tile=10)
        assert result[2] == threading.get_ident()


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


@pytest.mark.parametrize(("n_jobs", "workers", "expected"), [(2, None, 1), (4, None, 1), (4, 2, 2), (4, 3, 1)])
@pytest.mark.usefixtures("two_threads")
def test_blas_is_held_to_its_share_during_the_work(n_jobs, workers, expected):
    def task(_start, _stop, _tick):
        return blas_limits()

    results = Threads(n_jobs).run(task, 100, tile=10, workers=workers)
    assert {limit for limits in results for limit in limits} == {expected}
    assert set(blas_limits()) == {2}


@pytest.mark.usefixtures("two_threads")
def test_blas_is_restored_after_an_error():
    def task(_start, _stop, _tick):
        msg = "broken"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="broken"):
        Threads(2).run(task, 100, tile=10)
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
    def inner(start, stop, _tick):
        return stop - start

    def outer(_start, _stop, _tick):
        return sum(Threads(2).run(inner, 50, tile=10))

    assert Threads(2).run(outer, 100, tile=10) == [50, 50]
    assert set(blas_limits()) == {2}


@pytest.mark.usefixtures("two_threads")
def test_many_runs_at_once():
    def task(start, stop, tick):
        tick(stop - start)
        return float(np.sum(np.arange(start, stop)))

    def fit(_index):
        return sum(Threads(2).run(task, 100, tile=10))

    results = joblib.Parallel(n_jobs=4, backend="threading")(joblib.delayed(fit)(i) for i in range(20))
    assert results == [4950.0] * 20
    assert set(blas_limits()) == {2}


# ----------------------------------------------------------------------------------------- errors and interruptions


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
@pytest.mark.parametrize("failing", [0, 50, 99])
def test_the_error_of_a_worker_surfaces(n_jobs, failing):
    def task(start, stop, tick):
        for row in range(start, stop):
            if row == failing:
                msg = f"row {row}"
                raise KeyError(msg)
            tick(1)

    with pytest.raises(KeyError, match=f"row {failing}"):
        Threads(n_jobs).run(task, 100, tile=5)


def patient_task(finished, begun=None, before=lambda _start: None):
    """A task that ticks until it is stopped, or gives up after a while and says so."""

    def task(start, _stop, tick):
        if begun is not None:
            begun.wait(PATIENCE)
        before(start)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            tick(0)
            time.sleep(1e-3)
        finished.append(start)

    return task


def test_an_error_stops_the_other_workers():
    finished = []

    def fail(start):
        if start == 0:
            msg = "first worker"
            raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="first worker"):
        Threads(3).run(patient_task(finished, threading.Barrier(3), fail), 30, tile=10)
    assert finished == []


@pytest.fixture
def heeds_ctrl_c():
    """Python's own answer to SIGINT: it has none where a shell started it in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals cannot be sent to a thread here")
@pytest.mark.parametrize("n_jobs", [1, 2, 3])
@pytest.mark.usefixtures("two_threads", "heeds_ctrl_c")
def test_ctrl_c_stops_the_workers(n_jobs):
    finished = []

    def press_ctrl_c(start):
        if start == 0:
            time.sleep(0.1)  # until the main thread waits for its workers
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        Threads(n_jobs).run(patient_task(finished, threading.Barrier(n_jobs), press_ctrl_c), 30, tile=10)
    assert finished == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mercer")]
    assert set(blas_limits()) == {2}


def test_ctrl_c_while_workers_are_started_stops_those_that_run(monkeypatch):
    finished, submitted = [], []

    class InterruptedPool(ThreadPoolExecutor):
        def submit(self, *arguments, **options):
            submitted.append(1)
            if len(submitted) == 2:
                raise KeyboardInterrupt
            return super().submit(*arguments, **options)

    monkeypatch.setattr("mercer.engine.executors.threads.ThreadPoolExecutor", InterruptedPool)
    with pytest.raises(KeyboardInterrupt):
        Threads(3).run(patient_task(finished), 30, tile=10)
    assert len(submitted) == 2
    assert finished == []


def test_no_threads_are_left_behind():
    Threads(4).run(record, 1000, tile=10)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mercer")]


# -------------------------------------------------------------------------------------------------------- progress


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("n_rows", [5, 100])
def test_ticks_are_counted_when_verbose(n_jobs, n_rows, monkeypatch):
    counted = []
    monkeypatch.setattr("mercer.engine.progress.Progress.advance", lambda _self, rows: counted.append(rows))

    def task(start, stop, tick):
        tick(stop - start)

    Threads(n_jobs, verbose=0).run(task, n_rows, tile=10)
    assert counted == []
    Threads(n_jobs, verbose=1).run(task, n_rows, tile=10)
    assert sum(counted) == n_rows
