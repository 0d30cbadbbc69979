"""Exported models: the latency of one row in C, the speed of a batch in onnxruntime."""

import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clock import race
from mercer import NystromRegressor
from mercer.kernels import Gaussian, Kernel, Matern, Polynomial, Wendland
from mercer.model import KernelExpansion
from mercer.persistence import to_c, to_onnx
from mercer.reports.table import format_table

N_VECTORS, N_FEATURES = 50, 10
KERNELS: dict[str, Kernel] = {
    "Gaussian": Gaussian(3.0),
    "Gaussian, a length scale per feature": Gaussian(np.linspace(2.0, 4.0, N_FEATURES)),
    "Matérn 5/2": Matern(3.0, nu=2.5),
    "Wendland": Wendland(6.0),
}
N_CALLS = 2000
MODELS: list[tuple[Kernel, float]] = [
    (Gaussian(3.0), 1e-1),
    (Gaussian(3.0), 1e-4),
    (Gaussian(10.0), 1e-4),
    (Gaussian(10.0), 1e-8),
    (Matern(3.0, nu=2.5), 1e-2),
    (Matern(3.0, nu=0.5), 1e-2),
    (Wendland(6.0, smoothness=0), 1e-2),
    (Polynomial(3, scale=0.1), 1e-2),
]
TYPES = [(np.float32, np.float32), (np.float32, np.float64), (np.float64, np.float64)]

# Other rows in every call: the same row again would be predicted by the branch predictor.
MAIN = """
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <time.h>
#include "model.h"

static REAL rows[CALLS * model_n_features];

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(void) {
    unsigned state = 1u;
    volatile REAL result;
    REAL out[1];
    double start;
    for (size_t i = 0; i < CALLS * model_n_features; ++i) {
        state = state * 1664525u + 1013904223u;
        rows[i] = (REAL)((double)state / 1073741824.0 - 2.0);
    }
    start = seconds();
    for (size_t i = 0; i < CALLS; ++i) {
        model_predict(rows + i * model_n_features, out);
        result = out[0];
    }
    printf("%.9g", (seconds() - start) / CALLS);
    (void)result;
    return 0;
}
"""


def report(rounds: int) -> str:
    """Run and describe the results."""
    return "\n\n".join([_latency(rounds), _batch(rounds), _errors()])


def _expansion(kernel: Kernel, n_vectors: int, n_features: int) -> KernelExpansion:
    rng = np.random.default_rng(0)
    vectors, coefficients = rng.normal(size=(n_vectors, n_features)), rng.normal(size=(n_vectors, 1))
    return KernelExpansion(kernel, vectors, coefficients, np.zeros(1))


# ------------------------------------------------------------------------------------------------------- one row in C


def _latency(rounds: int) -> str:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return "no C compiler was found: the latency in C was not measured."
    rows = []
    for name, kernel in KERNELS.items():
        expansion = _expansion(kernel, N_VECTORS, N_FEATURES)
        times = [f"{_microseconds(expansion, kind, compiler, rounds):.2f}" for kind in ("float", "double")]
        rows.append([name, *times])
    head = f"one row in C, µs: {N_VECTORS} vectors, d = {N_FEATURES}, {Path(compiler).name} -O2"
    return format_table([head, "float (best)", "double (best)"], rows)


def _microseconds(expansion: KernelExpansion, kind: Any, compiler: str, rounds: int) -> float:
    """Least time of a call, averaged over some thousand."""
    with tempfile.TemporaryDirectory() as folder:
        to_c(expansion, dtype=kind, path=Path(folder) / "model.h")
        Path(folder, "main.c").write_text(MAIN, encoding="ascii")
        defined = [f"-DREAL={kind}", f"-DCALLS={N_CALLS}"]
        command = [compiler, "-std=c99", "-O2", *defined, "main.c", "-o", "main", "-lm"]
        subprocess.run(command, cwd=folder, check=True)
        run = [str(Path(folder) / "main")]
        runs = [subprocess.run(run, check=True, capture_output=True, text=True).stdout for _ in range(10 * rounds)]
    return 1e6 * min(map(float, runs))


# ------------------------------------------------------------------------------------------- a batch in onnxruntime


def _batch(rounds: int) -> str:
    try:
        import onnxruntime
    except ImportError:
        return "onnxruntime is not installed (the extra 'onnx'): the speed of a batch was not measured."
    rows = []
    for n_vectors, n_features, n_rows in (50, 10, 20_000), (200, 54, 10_000), (1000, 54, 4000):
        for dtype in (np.float32, np.float64):
            expansion = _expansion(Gaussian(np.sqrt(n_features)), n_vectors, n_features)
            X = np.random.default_rng(1).normal(size=(n_rows, n_features)).astype(dtype)
            graph = to_onnx(expansion, dtype=dtype).SerializeToString()
            session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
            contestants: dict[str, Any] = {
                "onnxruntime": lambda session=session, X=X: session.run(None, {"X": X})[0],
                "numpy": lambda expansion=expansion, X=X: _by_numpy(expansion, X),
                "mercer": lambda expansion=expansion, X=X: expansion.evaluate(X),
            }
            _check_agreement(contestants)
            times = race(contestants, 5 * rounds)
            best = [1e3 * times.best(name) for name in contestants]
            rows.append(
                [f"{n_rows} rows, {n_vectors} vectors, d = {n_features}, {np.dtype(dtype)}", *best,
                 times.ratio("onnxruntime", "numpy")]
            )  # fmt: skip
    head = ["a batch, ms (best)", "onnxruntime", "numpy", "mercer", "onnxruntime/numpy (median)"]
    return format_table(head, rows)


def _errors() -> str:
    """What float32 costs, on trained models, at rows they have not seen and at their own vectors."""
    try:
        import onnxruntime
    except ImportError:
        return "onnxruntime is not installed (the extra 'onnx'): errors were not measured."
    rng = np.random.default_rng(0)
    X, unseen = rng.normal(size=(2000, N_FEATURES)), rng.normal(size=(2000, N_FEATURES))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=len(X))
    rows = []
    for kernel, noise in MODELS:
        model = NystromRegressor(kernel, n_basis=200, noise=noise, random_state=0, intercept=False).fit(X, y)
        errors = [_error(onnxruntime, model, np.vstack([unseen, model.basis_]), *types) for types in TYPES]
        largest = np.max(np.abs(model.coefficients_))
        rows.append([f"{kernel}, noise {noise:g}", f"{largest:.0e}", *(f"{e:.0e}" for e in errors), _warned(model)])
    columns = ["float32", "float64 inside", "float64", "warned"]
    return format_table(["ONNX, largest error / size of the function", "largest coefficient", *columns], rows)


def _error(onnxruntime: Any, model: Any, rows: Any, dtype: Any, arithmetic: Any) -> float:
    with warnings.catch_warnings(action="ignore"):
        graph = to_onnx(model, dtype=dtype, arithmetic=arithmetic).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    rows = rows.astype(dtype)  # rounding the inputs is not counted
    exact = model.predict(rows.astype(np.float64))
    found = session.run(None, {"X": rows})[0][:, 0]
    return float(np.max(np.abs(found - exact)) / np.max(np.abs(exact - model.intercept_)))


def _warned(model: Any) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        to_onnx(model)
    return "yes" if caught else "no"


def _by_numpy(expansion: KernelExpansion, X: Any) -> Any:
    """The formula of the graph: one product, the exponential in place, one product."""
    scale = X.dtype.type(expansion.kernel.length_scale)  # type: ignore[attr-defined]
    x, z = X / scale, expansion.points.astype(X.dtype) / scale
    exponents = x @ z.T
    exponents -= np.einsum("ij,ij->i", x, x)[:, np.newaxis] / 2
    exponents -= np.einsum("ij,ij->i", z, z) / 2
    np.minimum(exponents, 0, out=exponents)
    np.exp(exponents, out=exponents)
    return exponents @ expansion.coefficients.astype(X.dtype) + expansion.intercept.astype(X.dtype)


def _check_agreement(contestants: dict[str, Any]) -> None:
    values = [run() for run in contestants.values()]
    for other in values[1:]:
        np.testing.assert_allclose(other, values[0], atol=1e-4 * np.max(np.abs(values[0])))


if __name__ == "__main__":
    print(report(5))
