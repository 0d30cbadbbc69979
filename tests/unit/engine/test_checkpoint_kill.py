"""Processes that are killed, and interrupted, for real: what is called again ends with the same bits."""

import signal
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")]
PATIENCE = 600.0  # seconds until a test that waits for a process gives up

# Fits models to a source of rows that, on request, stalls at a given read; prints what was fitted.
PROGRAM = """
import hashlib, signal, sys, threading, time
from pathlib import Path
import numpy as np
import mercer
from mercer.engine import Rows
from mercer.engine.checkpoint import Record
from sklearn import config_context

folder, names, stall, seed = Path(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3]), int(sys.argv[4])
rng = np.random.default_rng(0)
X = rng.normal(size=(8000, 3))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=len(X))
count, interrupted = {}, threading.Event()

class Source(Rows):
    def __init__(self):
        self.n_rows, self.n_features, self.dtype = *X.shape, X.dtype

    def read(self, start, stop):
        return self.take(slice(start, stop))

    def take(self, indices):
        count["reads"] += 1
        if count["reads"] == stall:
            print("stalled", flush=True)
            interrupted.wait()
        return X[indices]

keep = Record.keep
def counted(self, *args, **options):
    keep(self, *args, **options)
    count["kept"] += 1
Record.keep = counted

def interrupt(*_):
    interrupted.set()
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)

fits = {
    "NystromRegressor": (dict(basis="kmeans", n_basis=30, random_state=0), y),
    "NystromClassifier": (dict(n_basis=30), y > 0),  # whose basis is drawn anew each time
    "NystromSVC": (dict(n_basis=30, random_state=0, loss="hinge"), y > 0),
    "OnlineRegressor": (dict(max_basis=30, record=True), y),
    "NormaRegressor": (dict(max_basis=30), y),
    "PseudoInputRegressor": (dict(n_basis=10, max_iter=2, tol=1.0, random_state=0), y),
    "CommitteeRegressor": (dict(n_basis=20, block_size=100, random_state=0), y),
}
for name in names:
    np.random.seed(seed)
    count.update(reads=0, kept=0)
    options, targets = fits[name]
    model = getattr(mercer, name)(**options)
    with config_context(working_memory=0.2), mercer.checkpoint(folder / name, seconds=0):
        model.fit(Source(), targets)
    found = model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)
    digest = hashlib.sha256(np.ascontiguousarray(found)).hexdigest()
    print(name, digest, count["reads"], count["kept"])
"""
NAMES = [
    "NystromRegressor",
    "NystromClassifier",
    "NystromSVC",
    "OnlineRegressor",
    "NormaRegressor",
    "PseudoInputRegressor",
    "CommitteeRegressor",
]


def start(folder, names, stall=0, seed=0):
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(folder), names, str(stall), str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(folder, names, seed=0):
    """By name, what a process prints that is let alone: a digest, reads, and how often something was kept."""
    with start(folder, names, seed=seed) as process:
        out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    lines = [line.split() for line in out.splitlines()]
    return {name: (digest, int(n_reads), int(n_kept)) for name, digest, n_reads, n_kept in lines}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("whole"), ",".join(NAMES))


def stopped(folder, name, read, how):
    """Let a process stall at a read, and stop it once something is written; returns what it says."""
    with start(folder, name, read) as process:
        assert process.stdout.readline() == "stalled\n"
        deadline = time.monotonic() + PATIENCE
        while not [path for path in (folder / name).glob("*.checkpoint") if path.stem != "begin"]:
            assert time.monotonic() < deadline, "nothing was written"
            time.sleep(0.01)
        process.send_signal(how)
        error = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode != 0
    return error


def check_the_rest(folder, name, whole, seed=0):
    digest, _, n_kept = finished(folder, name, seed)[name]
    assert digest == whole[name][0]
    assert n_kept < whole[name][2]
    assert not list((folder / name).iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_after_a_kill_the_same_call_ends_with_the_same_bits(name, whole, tmp_path):
    stopped(tmp_path, name, int(0.7 * whole[name][1]), signal.SIGKILL)
    # NumPy stands elsewhere now: without a random_state, other numbers would be drawn.
    check_the_rest(tmp_path, name, whole, seed=1)


def test_killed_again_and_again(whole, tmp_path):
    for share in (0.4, 0.2):
        stopped(tmp_path, "NystromSVC", int(share * whole["NystromSVC"][1]), signal.SIGKILL)
    check_the_rest(tmp_path, "NystromSVC", whole)


@pytest.mark.parametrize("name", ["NystromSVC", "OnlineRegressor"])
def test_ctrl_c_leaves_a_checkpoint(name, whole, tmp_path):
    assert "KeyboardInterrupt" in stopped(tmp_path, name, int(0.7 * whole[name][1]), signal.SIGINT)
    check_the_rest(tmp_path, name, whole)
