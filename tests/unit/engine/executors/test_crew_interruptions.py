"""Ctrl-C at any moment: it is raised, the workers stop, no lock is left behind, and BLAS has its threads again.

Where the moment matters the interruption is forced: a trace function raises ``KeyboardInterrupt`` in the main thread
at one after the other of the moments at which Python calls the handlers of signals: after a call, when a function
begins, when a loop begins anew.
"""

import contextlib
import dis
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from mercer.engine import Threads, blas_threads
from mercer.engine.executors import crew, threads
from tests.unit.engine.executors.test_threads import Calls, let_any_thread_set_limits, pieces

LIBRARIES = ThreadpoolController().select(user_api="blas").lib_controllers
needs_signals = pytest.mark.skipif(
    not hasattr(signal, "pthread_kill"), reason="signals cannot be sent to a thread here"
)


def limits():
    return {library.get_num_threads() for library in LIBRARIES}


@pytest.fixture(autouse=True)
def two_threads():
    """BLAS set to two threads, whatever the machine; and the usual handler, whatever the parent ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with threadpool_limits(limits=2, user_api="blas"):
            let_any_thread_set_limits()
            yield
            let_any_thread_set_limits()
    finally:
        signal.signal(signal.SIGINT, before)


@needs_signals
@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_ctrl_c_stops_the_workers(n_jobs):
    finished = []

    def function(tile):
        if tile.first == 0:
            time.sleep(0.1)  # until the main thread waits for its workers
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.01)
        finished.append(tile.first)

    with pytest.raises(KeyboardInterrupt):
        Threads(n_jobs).reduce(Calls(function), pieces(10_000))
    after = len(finished)
    time.sleep(0.1)
    assert len(finished) == after < 1000
    assert limits() == {2}


class Interruptions:
    """Raise ``KeyboardInterrupt`` in this thread at the given step inside some files."""

    def __init__(self, step, *files):
        self._step, self._files, self._count, self.raised = step, files, 0, False
        self._last = {}  # instruction of each frame

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, _event, _argument):
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = True
        return self._local

    def _local(self, frame, event, _argument):
        if event == "opcode" and not self.raised:
            before, self._last[frame] = self._last.get(frame), frame.f_code.co_code[frame.f_lasti]
            self._count += before is not None and dis.opname[before].startswith(("CALL", "JUMP_BACKWARD", "RESUME"))
            if self._count == self._step:
                self.raised = True
                raise KeyboardInterrupt
        return self._local


def interrupted_at_every_step(work, *files):
    """Do the work again and again, interrupted one step later each time, until it is not reached any more."""
    for step in range(1, 5000):
        with Interruptions(step, *files) as interruptions, contextlib.suppress(KeyboardInterrupt):
            work()
        yield step
        if not interruptions.raised:
            return
    pytest.fail("the work has no end")


def test_an_interruption_at_any_step_of_waiting_for_workers():
    def work():
        Threads(2).reduce(Calls(lambda tile: tile.first), pieces(4))

    for step in interrupted_at_every_step(work, crew.__file__):
        assert limits() == {2}, step
    assert Threads(2).reduce(Calls(lambda tile: tile.first), pieces(3)) == [0, 10, 20]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mercer")]


def test_an_interruption_at_any_step_of_holding_blas():
    def work():
        with blas_threads(1):
            pass

    for step in interrupted_at_every_step(work, threads.__file__):
        assert limits() == {2}, step
        assert not threads._lock.locked(), step
    with blas_threads(1):
        assert limits() == {1}
    assert limits() == {2}


@pytest.mark.slow
@needs_signals
def test_many_interruptions_at_moments_of_chance():
    """In a process of its own, which is killed if it hangs."""
    code = """
        import os, random, signal, sys, threading, time
        import numpy as np
        from threadpoolctl import ThreadpoolController
        from mercer.engine import Threads, normal_statistics, ArrayTable, as_rows, Features
        from mercer.kernels import Gaussian

        signal.signal(signal.SIGINT, signal.default_int_handler)
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(4000, 3))
        table, features = ArrayTable(as_rows(rows), rows[:, :1]), Features(Gaussian(), rows[:20])
        expected = normal_statistics(table, features, executor=Threads(2)).sums
        free = {p["num_threads"] for p in ThreadpoolController().select(user_api="blas").info()}
        random.seed(0)
        interrupted = 0
        for trial in range(300):
            timer = threading.Timer(random.uniform(0, 4e-3), os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                for _ in range(4):
                    normal_statistics(table, features, executor=Threads(2))
            except KeyboardInterrupt:
                interrupted += 1
            while True:
                try:
                    timer.join()
                    break
                except KeyboardInterrupt:
                    pass
        sums = normal_statistics(table, features, executor=Threads(2)).sums
        assert np.array_equal(sums, expected)
        assert {p["num_threads"] for p in ThreadpoolController().select(user_api="blas").info()} == free
        print(interrupted)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 0  # how many of the signals come in time depends on the machine
