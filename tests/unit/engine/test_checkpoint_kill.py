"""Processes that are killed for real, and interrupted for real: what is called again ends with the same bits."""

import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow
PATIENCE = 120.0  # seconds until a test that waits for a process gives up

# Fits a model to a source of rows that, on request, stalls at a given read for ever; prints what was fitted.
PROGRAM = """
import hashlib, sys, threading, time
import numpy as np
import mercer
from mercer.engine import Rows
from mercer.engine.checkpoint import Record
from sklearn import config_context

folder, name, stall = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 3))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=len(X))
count = {"reads": 0, "kept": 0}

class Source(Rows):
    def __init__(self):
        self.n_rows, self.n_features, self.dtype = *X.shape, X.dtype

    def read(self, start, stop):
        count["reads"] += 1
        if count["reads"] == stall:
            print("stalled", flush=True)
            time.sleep(600)
        return X[start:stop]

    def take(self, indices):
        return X[indices]

keep = Record.keep
def counted(self, *args, **options):
    count["kept"] += 1
    keep(self, *args, **options)
Record.keep = counted

fits = {
    "NystromRegressor": (dict(basis="kmeans", n_basis=30, random_state=0), y),
    "drawn anew": (dict(n_basis=30), y),
    "NystromSVC": (dict(n_basis=30, random_state=0, loss="hinge"), y > 0),
    "OnlineRegressor": (dict(max_basis=30, record=True), y),
    "NormaRegressor": (dict(max_basis=30), y),
    "PseudoInputRegressor": (dict(n_basis=10, max_iter=4, tol=1.0, random_state=0), y),
    "CommitteeRegressor": (dict(n_basis=20, block_size=100, random_state=0), y),
}
options, targets = fits[name]
if name == "drawn anew" and stall == 0:
    np.random.seed(1)
model = getattr(mercer, "NystromRegressor" if name == "drawn anew" else name)(**options)
with config_context(working_memory=1), mercer.checkpoint(folder, seconds=0):
    model.fit(Source(), targets)
found = model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)
print(hashlib.sha256(np.ascontiguousarray(found)).hexdigest(), count["reads"], count["kept"])
"""

NAMES = [
    "NystromRegressor",
    "NystromSVC",
    "OnlineRegressor",
    "NormaRegressor",
    "PseudoInputRegressor",
    "CommitteeRegressor",
]


def start(*arguments, program=PROGRAM):
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(*arguments, program=PROGRAM):
    """What a process prints until it ends: a digest, reads, and how often something was kept."""
    process = start(*arguments, program=program)
    out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    digest, n_reads, n_kept = out.split()
    return digest, int(n_reads), int(n_kept)


def stopped(folder, name, read, how):
    """Let a process stall at a read, and stop it when something is written."""
    process = start(folder, name, read)
    assert process.stdout.readline() == "stalled\n"
    deadline = time.monotonic() + PATIENCE
    while not [path for path in folder.glob("*.checkpoint") if path.stem != "begin"]:
        assert time.monotonic() < deadline, "nothing was written"
        time.sleep(0.01)
    process.send_signal(how)
    error = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode != 0
    return error


@pytest.mark.parametrize("name", NAMES)
def test_after_a_kill_the_same_call_ends_with_the_same_bits(name, tmp_path):
    whole, n_reads, n_kept = finished(tmp_path / "whole", name, -1)
    folder = tmp_path / "killed"
    stopped(folder, name, int(0.7 * n_reads), signal.SIGKILL)
    again, _, kept_again = finished(folder, name, -1)
    assert again == whole
    assert kept_again < n_kept
    assert not folder.exists()


def test_killed_again_and_again(tmp_path):
    name = "NystromSVC"
    whole, n_reads, _ = finished(tmp_path / "whole", name, -1)
    for share in (0.3, 0.2, 0.2):
        stopped(tmp_path / "killed", name, int(share * n_reads), signal.SIGKILL)
    again, reads_again, _ = finished(tmp_path / "killed", name, -1)
    assert again == whole
    assert reads_again < n_reads


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["NystromSVC", "OnlineRegressor"])
def test_ctrl_c_leaves_a_checkpoint(name, tmp_path):
    whole, n_reads, n_kept = finished(tmp_path / "whole", name, -1)
    folder = tmp_path / "interrupted"
    assert "KeyboardInterrupt" in stopped(folder, name, int(0.7 * n_reads), signal.SIGINT)
    again, _, kept_again = finished(folder, name, -1)
    assert again == whole
    assert kept_again < n_kept


def test_without_a_random_state_the_same_numbers_are_drawn_again(tmp_path):
    """The process that is killed has seeded NumPy, which the one that goes on has not."""
    program = PROGRAM.replace("stall == 0", "True")
    whole, n_reads, _ = finished(tmp_path / "whole", "drawn anew", -1, program=program)
    other, _, _ = finished(tmp_path / "other", "drawn anew", -1)
    assert other != whole
    process = start(tmp_path / "killed", "drawn anew", n_reads - 1, program=program)
    assert process.stdout.readline() == "stalled\n"
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert finished(tmp_path / "killed", "drawn anew", -1)[0] == whole
