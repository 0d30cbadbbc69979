"""The peak of resident memory does not grow with the rows of a file, in a process of its own."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

resource = pytest.importorskip("resource", reason="the system does not report peaks of memory")
pytestmark = pytest.mark.slow

FEWER, N, D = 900_000, 2_400_000, 8  # 65 and 173 MB of numbers; neither is kept
MOST = 60  # MB beyond what fewer rows have taken
SCRIPT = """
import resource, sys
import numpy as np
from mercer import NystromRegressor, scan, write_predictions
from mercer.kernels import Gaussian

unit = 2**20 if sys.platform == "darwin" else 2**10  # of ru_maxrss, in MB
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
options = dict(basis=np.zeros((1, {d})) + np.arange(10)[:, None] / 10, noise=0.1, n_jobs=2)

def work(path, out):
    source = scan(path, target={d} if path.endswith("npy") else "y")
    model = NystromRegressor(Gaussian(3.0), **options).fit(source)
    features = source if path.endswith("npy") else path
    write_predictions(model, features, out)

work(sys.argv[1], sys.argv[3])
before = peak()
work(sys.argv[2], sys.argv[3])
print(peak() - before)
"""


def write_parquet(path, n_rows):
    rng = np.random.default_rng(0)
    schema = pa.schema([(name, pa.float64()) for name in [*(f"x{j}" for j in range(D)), "y"]])
    with parquet.ParquetWriter(path, schema) as writer:
        for _ in range(0, n_rows, 500_000):
            some = rng.normal(size=(min(n_rows, 500_000), D + 1))
            writer.write_table(pa.table(list(some.T), schema=schema))


def write_npy(path, n_rows):
    rows = np.lib.format.open_memmap(path, "w+", np.float64, (n_rows, D + 1))
    rng = np.random.default_rng(0)
    for start in range(0, n_rows, 100_000):
        rows[start : start + 100_000] = rng.normal(size=(min(n_rows - start, 100_000), D + 1))


@pytest.mark.parametrize("write", [write_parquet, write_npy], ids=["parquet", "npy"])
def test_memory_is_bounded(write, tmp_path):
    suffix = write.__name__.removeprefix("write_")
    small, large, out = (str(tmp_path / f"{name}.{suffix}") for name in ("small", "large", "out"))
    write(small, FEWER)
    write(large, N)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(d=D), small, large, out],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < MOST
