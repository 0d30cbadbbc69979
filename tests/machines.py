"""Run the tests that can differ between machines as other machines would: `make test-machines`.

BLAS, and the compiler of the loops, choose their code by the processor, and so the last digits of all results; signals
and cores differ, too. Arguments are passed to pytest.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
NUMBERS = [f"tests/unit/{part}" for part in ("basis", "compression", "engine", "estimators", "kernels", "solvers")]
NUMBERS += ["tests/laws", "tests/conformance"]
THREADS = ["tests/unit/engine", "tests/unit/solvers"]
# Compiled for any processor; a folder of its own, so that code for this processor stays where it is.
GENERIC = {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(ROOT / ".numba_generic")}
ARCHITECTURE = """
import numpy, scipy.linalg, threadpoolctl
scipy.linalg.cholesky(numpy.eye(300) @ numpy.eye(300))
print(*{library["architecture"] for library in threadpoolctl.threadpool_info() if "architecture" in library})
"""


def architecture(environment=None):
    """The processor that BLAS takes this machine for; None where that makes it crash."""
    done = subprocess.run(
        [sys.executable, "-c", ARCHITECTURE],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def blas_of(name):
    """Settings under which BLAS takes this machine for another one, if it is another and can do what that does."""
    environment = {"OPENBLAS_CORETYPE": name}
    found = architecture(environment)
    return environment if found == name != architecture() else None


@contextmanager
def busy():
    """As many other processes as twice the cores compute all the time."""
    others = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(2 * (os.cpu_count() or 1))]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()


def _spin():
    while True:
        pass


def run(name, parts, arguments, environment, *, ignore_interrupts=False):
    if environment is None:
        print(f"==> {name}: is this machine, or cannot be had on it", flush=True)
        return True
    print(f"==> {name}", flush=True)
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-r", "fE", *arguments, *parts]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignore_interrupts else None  # children inherit it
    try:
        done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=False)
    finally:
        if ignore_interrupts:
            signal.signal(signal.SIGINT, before)
    print(f"{name}: {'passed' if done.returncode == 0 else 'FAILED'} in {time.monotonic() - start:.0f} s", flush=True)
    return done.returncode == 0


def main(arguments):
    passed = [run(f"BLAS for {name}", NUMBERS, arguments, blas_of(name)) for name in ("SkylakeX", "Haswell", "Nehalem")]
    passed.append(run("loops compiled for any processor", NUMBERS, arguments, GENERIC))
    passed.append(run("one thread", NUMBERS, arguments, {"OMP_NUM_THREADS": "1"}))
    passed.append(run("in the background", THREADS, arguments, {}, ignore_interrupts=True))
    with busy():
        passed.append(run("a busy machine", THREADS, arguments, {}))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
