r"""F. J. Király: Kernel methods for big data (lecture, 2015). Its table of costs, measured.

The lecture gives the time of three learners as they are ("vanilla") and restricted to a basis of M rows ("Nyström"):

================  ==================  ===================  ============================================  ==============
system            vanilla             Nyström              vanilla is scikit-learn's                     Nyström is
================  ==================  ===================  ============================================  ==============
kernel PCA        O(N²m)              O(NMm)               ``KernelPCA(eigen_solver="auto")``            ``NystromPCA``
SVM               O(h(N))             O(h(M) N/M)          ``SVC``                                       ``NystromSVC``
ridge regression  O(N³)               O(NM²)               ``KernelRidge``                               our regressor
================  ==================  ===================  ============================================  ==============

m is the number of components; h lies between the square and the cube. Rows are those of ``make_waves`` in six
dimensions, a smooth random function plus noise; the SVM separates the rows above its median from those below. All use
the same Gaussian kernel. The time is that of ``fit``: of short fits the best of several. With each goes how good it is,
on rows that were not seen. Vanilla gives up where its n × n matrices do not fit into memory, or where it would take
longer than the limit, by its last time and the growth of the table.

Run it: ``python -m papers.cost_table`` (``--quick`` for a small version). Results are kept in a file: a run that was
interrupted goes on where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.decomposition import KernelPCA
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC

import mercer
from mercer._typing import FloatArray
from mercer.datasets import make_waves
from mercer.kernels import Gaussian
from mercer.reports.table import format_table
from papers.experiment import Claim, Kept, claims_table, command, parse, save_figure, write

__all__ = ["FULL", "QUICK", "SYSTEMS", "Measured", "Sizes", "check_claims", "exponent", "main", "run"]

LENGTH_SCALE, NOISE, COST = 2.0, 0.1, 1.0
COMPONENTS = 5  # so few that scikit-learn iterates, as the table's N²m assumes
N_TEST = 1000
_SHORT = 1.0  # seconds: fits that take less are repeated
_REPEATS = 3
_SHARE = 0.8  # of the memory of the machine
_NEAR = 0.25  # within which a fitted exponent is that of the table

Method = Literal["vanilla", "Nyström"]
METHODS: tuple[Method, ...] = ("vanilla", "Nyström")


@dataclass(frozen=True)
class Sizes:
    """How large the experiment is."""

    n_rows: tuple[int, ...] = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
    n_basis: int = 500
    seconds: float = 900.0  # that a fit may take


FULL = Sizes()
QUICK = Sizes(n_rows=(300, 600, 1200), n_basis=50, seconds=20.0)


@dataclass(frozen=True)
class System:
    """A learner in both forms: how to make it, how it is judged, and what the table says of its growth with N."""

    vanilla: Callable[[], Any]
    nystrom: Callable[[int], Any | None]  # None where this version of mercer does not have it
    judge: Callable[[Any, FloatArray, FloatArray], float]
    quality: str
    exponents: dict[Method, tuple[float, float]]  # from, to
    printed: dict[Method, str]
    matrices: int  # of n × n numbers that vanilla keeps
    classes: bool = False


def _ours(name: str, **options: Any) -> Callable[[int], Any | None]:
    def make(n_basis: int) -> Any | None:
        estimator = getattr(mercer, name, None)
        kernel = Gaussian(length_scale=LENGTH_SCALE)
        return None if estimator is None else estimator(kernel, n_basis=n_basis, random_state=0, **options)

    return make


def _captured(model: Any, X: FloatArray, _y: FloatArray) -> float:
    """Mean squared length of new rows' projections in feature space, where all have length 1."""
    return float(np.mean(np.sum(np.asarray(model.transform(X)) ** 2, axis=1)))


def _wrong(model: Any, X: FloatArray, y: FloatArray) -> float:
    return float(np.mean(model.predict(X) != y))


def _rms(model: Any, X: FloatArray, y: FloatArray) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


_GAMMA = 1 / (2 * LENGTH_SCALE**2)
SYSTEMS: dict[str, System] = {
    "kernel PCA": System(
        lambda: KernelPCA(COMPONENTS, kernel="rbf", gamma=_GAMMA, eigen_solver="auto", random_state=0),
        _ours("NystromPCA", n_components=COMPONENTS, inverse=None),
        _captured,
        "captured",
        {"vanilla": (2.0, 2.0), "Nyström": (1.0, 1.0)},
        {"vanilla": "N²m", "Nyström": "NMm"},
        matrices=2,
    ),
    "SVM": System(
        lambda: SVC(C=COST, gamma=_GAMMA, cache_size=1000),
        _ours("NystromSVC", C=COST),
        _wrong,
        "share wrong",
        {"vanilla": (2.0, 3.0), "Nyström": (1.0, 1.0)},
        {"vanilla": "h(N)", "Nyström": "h(M) N/M"},
        matrices=0,
        classes=True,
    ),
    "ridge": System(
        lambda: KernelRidge(alpha=NOISE, kernel="rbf", gamma=_GAMMA),
        _ours("NystromRegressor", noise=NOISE, intercept=False),
        _rms,
        "RMS error",
        {"vanilla": (3.0, 3.0), "Nyström": (1.0, 1.0)},
        {"vanilla": "N³", "Nyström": "NM²"},
        matrices=2,
    ),
}


@dataclass(frozen=True)
class Measured:
    """Of one system in one form: what was fitted, and why it went no further."""

    n_rows: FloatArray  # (k,)
    seconds: FloatArray  # (k,)
    quality: FloatArray  # (k,)
    gave_up: str  # empty if it did not

    @property
    def is_missing(self) -> bool:
        """Whether there is no such estimator."""
        return len(self.n_rows) == 0


def exponent(n_rows: FloatArray, seconds: FloatArray) -> float:
    """Slope of log time against log n over the last decade of n; NaN of fewer than two sizes."""
    last = n_rows >= np.max(n_rows, initial=0.0) / 10
    if np.sum(last) < 2:
        return float("nan")
    return float(np.polyfit(np.log(n_rows[last]), np.log(seconds[last]), 1)[0])


def run(sizes: Sizes = FULL, *, kept: Kept | None = None, verbose: bool = False) -> dict[str, dict[Method, Measured]]:
    """Measure all systems in both forms; what is kept already is not measured again."""
    kept = kept or Kept(None, repr(sizes))
    return {name: {method: _measure_all(name, method, sizes, kept, verbose) for method in METHODS} for name in SYSTEMS}


def _measure_all(name: str, method: Method, sizes: Sizes, kept: Kept, verbose: bool) -> Measured:
    found: list[tuple[int, float, float]] = []
    gave_up = ""
    for n in sizes.n_rows:
        if _make(SYSTEMS[name], method, sizes) is None:
            break
        measure = partial(_measure, SYSTEMS[name], method, n, sizes, found)
        numbers = kept.get(f"{name}, {method}, {n}", measure, verbose=verbose)
        gave_up = _reason(n, numbers)
        if gave_up:
            break
        found.append((n, numbers["seconds"], numbers["quality"]))
    n_rows, seconds, quality = np.array(found, dtype=np.float64).reshape(-1, 3).T
    return Measured(n_rows, seconds, quality, gave_up)


def _make(system: System, method: Method, sizes: Sizes) -> Any | None:
    return system.vanilla() if method == "vanilla" else system.nystrom(sizes.n_basis)


def _reason(n: int, numbers: dict[str, float]) -> str:
    if "gigabytes" in numbers:
        return f"n = {n} would need {numbers['gigabytes']:.0f} GB"
    return f"n = {n} would take {numbers['expected']:.0f} s" if "expected" in numbers else ""


def _measure(
    system: System, method: Method, n: int, sizes: Sizes, before: Sequence[tuple[int, float, float]]
) -> dict[str, float]:
    """Seconds of a fit and how good it is; or what it would need, where that is too much."""
    gigabytes = 8e-9 * system.matrices * n**2
    if method == "vanilla" and gigabytes > _SHARE * _memory():
        return {"gigabytes": gigabytes}
    if before:
        expected = before[-1][1] * (n / before[-1][0]) ** system.exponents[method][0]
        if expected > sizes.seconds:
            return {"expected": expected}
    X, y = _data(n + N_TEST, classes=system.classes)
    seconds: list[float] = []
    while not seconds or (len(seconds) < _REPEATS and seconds[-1] < _SHORT):
        model, start = _make(system, method, sizes), time.perf_counter()
        try:
            model.fit(X[:n], y[:n])  # type: ignore[union-attr]
        except MemoryError:
            return {"gigabytes": gigabytes}
        seconds.append(time.perf_counter() - start)
    return {"seconds": min(seconds), "quality": system.judge(model, X[n:], y[n:])}


def _data(n_rows: int, *, classes: bool) -> tuple[FloatArray, Any]:
    X, y = make_waves(n_rows, n_features=6, noise=0.1, random_state=0)
    y = (y - np.mean(y)) / np.std(y)
    return X, (y > np.median(y)) if classes else y


def _memory() -> float:
    """Gigabytes of this machine; without a limit where it does not say."""
    try:
        return 1e-9 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return float("inf")


def check_claims(results: dict[str, dict[Method, Measured]]) -> list[Claim]:
    """Compare with the table. The margins were fixed before the full experiment was run."""
    claims = []
    for name, methods in results.items():
        for method, measured in methods.items():
            if measured.is_missing:
                continue
            low, high = SYSTEMS[name].exponents[method]
            slope = exponent(measured.n_rows, measured.seconds)
            stated = f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"
            claims.append(
                Claim(
                    f"{name}, {method}: O({SYSTEMS[name].printed[method]})",
                    f"exponent of n {slope:.2f} ({stated} ± {_NEAR})",
                    low - _NEAR <= slope <= high + _NEAR,
                )
            )
    return claims


def report(results: dict[str, dict[Method, Measured]], sizes: Sizes) -> str:
    """The tables, as Markdown."""
    parts = [
        "# The table of costs\n",
        f"Made by `python -m papers.cost_table`: a basis of M = {sizes.n_basis} rows, {COMPONENTS} components, at most "
        f"{sizes.seconds:.0f} seconds for a fit; what is compared, and how, stands at the top of that module. "
        "Exponents are slopes over the last decade of n. A smaller one than the table's means that terms of lower "
        "order, or what does not depend on n, still count.\n",
        "![Time of fit against the number of rows](time.svg)\n",
        f"```text\n{claims_table(check_claims(results), 'cost in the table')}\n```\n",
    ]
    for name, methods in results.items():
        missing = [method for method, measured in methods.items() if measured.is_missing]
        parts += [f"## {name}\n", f"```text\n{_table(name, methods, sizes)}\n```\n"]
        parts += [f"{method}: {measured.gave_up}.\n" for method, measured in methods.items() if measured.gave_up]
        parts += [f"{method}: not in this version.\n" for method in missing]
    return "\n".join(parts)


def _table(name: str, methods: dict[Method, Measured], sizes: Sizes) -> str:
    quality = SYSTEMS[name].quality
    header = ["n", *(f"{method}, {what}" for method in methods for what in ("seconds", quality)), "vanilla / Nyström"]
    rows: list[list[Any]] = []
    for n in sizes.n_rows:
        at = {method: measured.n_rows == n for method, measured in methods.items()}
        if not any(np.any(where) for where in at.values()):
            continue
        cells = [
            float(values[at[method]][0]) if np.any(at[method]) else "-"
            for method, measured in methods.items()
            for values in (measured.seconds, measured.quality)
        ]
        both = all(np.any(where) for where in at.values())
        rows.append([n, *cells, cells[0] / cells[2] if both else "-"])  # type: ignore[operator]
    return format_table(header, rows)


def save_plot(results: dict[str, dict[Method, Measured]], folder: Path) -> None:
    """Save time against n, a panel for each system, as PNG and SVG."""
    from mercer.reports.plots import plot_curves

    panels = {
        name: {
            f"{method}, {_slope(measured)}": (measured.n_rows, measured.seconds)
            for method, measured in methods.items()
            if not measured.is_missing
        }
        for name, methods in results.items()
    }
    save_figure(folder, "time", plot_curves, panels, shared=True, xlabel="rows", ylabel="seconds of fit")


def _slope(measured: Measured) -> str:
    return f"n^{exponent(measured.n_rows, measured.seconds):.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables and write them with the plot."""
    options = parse(command("cost_table", "The table of costs of 'Kernel methods for big data', measured."), arguments)
    sizes = QUICK if options.quick else FULL
    results = run(sizes, kept=Kept(options.output / "results.json", repr(sizes)), verbose=True)
    save_plot(results, options.output)
    write(options.output, report(results, sizes))


if __name__ == "__main__":
    main()
