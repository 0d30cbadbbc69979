r"""V. Tresp, A. Schwaighofer: Scalable kernel systems (ICANN 2001). Figure 1, run again.

Three approximations of a Gaussian process on base points: the subset of representers (SRM, ``NystromRegressor``), the
Bayesian committee machine (BCM, ``CommitteeRegressor``) and the reduced rank approximation (RRA,
``ReducedRankRegressor``), as functions of the kernel's width.

=====  ==========================  =====================  ==============
panel  base points                 error at               noise variance
=====  ==========================  =====================  ==============
A      rows of the test set        the base points        0
B      rows of the test set        the base points        0.001
C      rows of the test set        additional test rows   0
D      rows of the training set    additional test rows   0
=====  ==========================  =====================  ==============

The paper calls its data artificial and says no more. Two sets stand in for them: ``waves``, a smooth random function of
five inputs (32 plane waves; close to a draw from a Gaussian process, so that a width exists at which the model is
right), and ``friedman``, Friedman's first function of ten inputs, five of which do not matter (no draw from any such
process). Targets have unit variance; test targets are free of noise. Blocks have as many rows as there are base points;
the paper does not tell its own. RRA does not exist without noise, so it is compared at noise variance 0.001 in C and D.

Run it: ``python -m papers.scalable_kernel_systems`` (``--quick`` for a small version).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_friedman1

from mercer._typing import FloatArray
from mercer.datasets import make_waves
from mercer.estimators.committee_regressor import CommitteeRegressor
from mercer.estimators.nystrom import NystromRegressor
from mercer.estimators.reduced_rank_regressor import ReducedRankRegressor
from mercer.exceptions import JitterWarning
from mercer.kernels import Gaussian
from mercer.kernels.median_distance import median_distance
from mercer.reports.table import format_table
from papers.experiment import Claim, claims_table, command, parse, save_figure, write

__all__ = ["DATA", "FULL", "QUICK", "Results", "Sizes", "check_claims", "main", "run"]

NOISE = 0.001
PANELS = ("A", "B", "C", "D")


@dataclass(frozen=True)
class Sizes:
    """How large the experiment is; the block size is that of the base."""

    n_train: int = 10_000
    n_base: int = 1000
    n_test: int = 1000
    n_widths: int = 15


FULL = Sizes()
QUICK = Sizes(n_train=2000, n_base=200, n_test=200, n_widths=5)


def _waves(n_rows: int, seed: int) -> tuple[FloatArray, FloatArray]:
    return make_waves(n_rows, n_features=5, noise=0.0, random_state=seed)


def _friedman(n_rows: int, seed: int) -> tuple[FloatArray, FloatArray]:
    X, y = make_friedman1(n_rows, n_features=10, noise=0.0, random_state=seed)
    return X, y


DATA: dict[str, Callable[[int, int], tuple[FloatArray, FloatArray]]] = {"waves": _waves, "friedman": _friedman}


@dataclass(frozen=True)
class Problem:
    """Base, additional test and training rows with their targets, with and without noise."""

    base: tuple[FloatArray, FloatArray]
    extra: tuple[FloatArray, FloatArray]
    rows: FloatArray
    targets: dict[float, FloatArray]  # by noise variance
    widths: FloatArray
    block_size: int
    seed: int

    @classmethod
    def draw(cls, name: str, sizes: Sizes, seed: int) -> Problem:
        """Draw a data set; widths run from a tenth to ten times the median distance of rows."""
        n, m, t = sizes.n_train, sizes.n_base, sizes.n_test
        X, y = DATA[name](n + m + t, seed)
        y = (y - np.mean(y)) / np.std(y)
        noisy = y[m + t :] + np.sqrt(NOISE) * np.random.default_rng(seed).normal(size=n)
        return cls(
            base=(X[:m], y[:m]),
            extra=(X[m : m + t], y[m : m + t]),
            rows=X[m + t :],
            targets={0.0: y[m + t :], NOISE: noisy},
            widths=np.logspace(-1, 1, sizes.n_widths) * float(np.mean(median_distance(X[: min(len(X), 1000)]))),
            block_size=m,
            seed=seed,
        )


@dataclass(frozen=True)
class Results:
    """Squared errors of a data set, by curve, as arrays (widths, test rows).

    Curves are named by panel, method and, where it is not the panel's own, noise: "A BCM", "C RRA 0.001".
    """

    name: str
    widths: FloatArray
    squares: dict[str, FloatArray]
    difference: float  # the largest between SRM and RRA at the base points, over all widths
    seconds: float

    def rmse(self, curve: str) -> FloatArray:
        """Root mean squared error at each width."""
        return np.asarray(np.sqrt(np.mean(self.squares[curve], axis=1)))

    def best(self, curve: str) -> float:
        """Least root mean squared error over the widths."""
        return float(np.min(self.rmse(curve)))

    def gain(self, better: str, worse: str) -> float:
        """By how many standard errors the first curve's best is below the second's, over the same test rows."""
        least = [self.squares[curve][np.argmin(self.rmse(curve))] for curve in (worse, better)]
        difference = least[0] - least[1]
        error = float(np.std(difference) / np.sqrt(len(difference)))
        return float(np.mean(difference)) / error if error > 0 else 0.0


def run(name: str, sizes: Sizes = FULL, *, seed: int = 0, verbose: bool = False) -> Results:
    """Sweep the widths on one data set."""
    problem, start = Problem.draw(name, sizes, seed), time.perf_counter()
    steps: list[dict[str, FloatArray]] = []
    differences = []
    for width in problem.widths:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JitterWarning)  # blocks that hold base points are singular without noise
            squares, difference = _errors(problem, float(width))
        steps.append(squares)
        differences.append(difference)
        if verbose:
            shown = "  ".join(f"{curve} {np.sqrt(np.mean(e)):.2e}" for curve, e in squares.items() if len(curve) == 5)
            print(f"{name}, width {width:8.3f}: {shown}", flush=True)
    return Results(
        name=name,
        widths=problem.widths,
        squares={curve: np.array([step[curve] for step in steps]) for curve in steps[0]},
        difference=max(differences),
        seconds=time.perf_counter() - start,
    )


def _errors(problem: Problem, width: float) -> tuple[dict[str, FloatArray], float]:
    """Squared errors of all curves at one width, and how far SRM and RRA differ at the base points."""
    kernel, base, extra = Gaussian(length_scale=width), problem.base, problem.extra
    errors: dict[str, FloatArray] = {}

    def fit(method: str, basis: Any, noise: float) -> Any:
        return _model(method, kernel, basis, noise, problem).fit(problem.rows, problem.targets[noise])

    def record(curve: str, model: Any, queries: tuple[FloatArray, FloatArray], **options: Any) -> None:
        errors[curve] = (model.predict(queries[0], **options) - queries[1]) ** 2

    for method in ("BCM", "SRM"):
        model = fit(method, base[0], 0.0)
        record(f"A {method}", model, base)
        record(f"C {method}", model, extra)
        if method == "BCM":
            record("C again", model, extra, transduce=True, batch_size=len(extra[0]))
        record(f"D {method}", fit(method, "uniform", 0.0), extra)
    at_base = {}
    for method in ("BCM", "SRM", "RRA"):
        model = fit(method, base[0], NOISE)
        at_base[method] = model.predict(base[0])
        errors[f"B {method}"] = (at_base[method] - base[1]) ** 2
        record(f"C {method} {NOISE}", model, extra)
        record(f"D {method} {NOISE}", fit(method, "uniform", NOISE), extra)
    return errors, float(np.max(np.abs(at_base["SRM"] - at_base["RRA"])))


def _model(method: str, kernel: Any, basis: Any, noise: float, problem: Problem) -> Any:
    options = {"basis": basis, "n_basis": len(problem.base[0]), "noise": noise, "random_state": problem.seed}
    if method == "BCM":
        return CommitteeRegressor(kernel, block_size=problem.block_size, **options)
    return (NystromRegressor if method == "SRM" else ReducedRankRegressor)(kernel, **options)


def check_claims(results: Results) -> list[Claim]:
    """Compare the results with what the paper says. The margins were fixed before the full experiment was run."""
    return [
        *(_better_at_base(results, panel) for panel in ("A", "B")),
        *(_better_when_narrow(results, panel) for panel in ("A", "B")),
        *(_agree_when_wide(results, panel) for panel in ("A", "B")),
        Claim(
            "SRM equals RRA at the base points (noise 0.001)",
            f"largest difference {results.difference:.0e}",
            results.difference < 1e-6,
        ),
        _slightly_better(results),
        *(_considerably_worse(results, panel) for panel in ("C", "D")),
        *(_resembles(results, method) for method in ("BCM", "SRM")),
        _better_again(results),
    ]


def _better_at_base(results: Results, panel: str) -> Claim:
    bcm, srm = f"{panel} BCM", f"{panel} SRM"
    deviations = results.gain(bcm, srm)
    found = f"{results.best(bcm):.2e} against {results.best(srm):.2e}: {deviations:.1f} standard errors"
    return Claim(f"({panel}) at the base points BCM beats SRM, each at its best width", found, deviations > 2)


def _better_when_narrow(results: Results, panel: str) -> Claim:
    bcm, srm = results.rmse(f"{panel} BCM"), results.rmse(f"{panel} SRM")
    narrow = np.arange(len(bcm)) < np.argmin(srm)
    wins = int(np.sum(bcm[narrow] < srm[narrow]))
    claim = f"({panel}) BCM beats SRM at widths smaller than the best of SRM"
    return Claim(claim, f"at {wins} of {int(np.sum(narrow))}", wins == np.sum(narrow))


def _agree_when_wide(results: Results, panel: str) -> Claim:
    ratio = float(results.rmse(f"{panel} BCM")[-1] / results.rmse(f"{panel} SRM")[-1])
    claim = f"({panel}) BCM and SRM agree at large widths"
    return Claim(claim, f"ratio of errors {ratio:.2f} at the largest (within 10 %)", 0.9 <= ratio <= 1.1)


def _slightly_better(results: Results) -> Claim:
    ratio = results.best("C BCM") / results.best("C SRM")
    claim = "(C) away from the base points SRM is slightly better than BCM"
    return Claim(claim, f"best error of BCM {ratio:.2f} times that of SRM (between 1 and 2)", 1.0 < ratio < 2.0)


def _considerably_worse(results: Results, panel: str) -> Claim:
    worst = max(results.best(f"{panel} {method} {NOISE}") for method in ("BCM", "SRM"))
    ratio = results.best(f"{panel} RRA {NOISE}") / worst
    claim = f"({panel}) away from the base points RRA is considerably worse than both (noise 0.001)"
    return Claim(claim, f"best error {ratio:.2f} times that of the worse of them (above 1.5)", ratio > 1.5)


def _resembles(results: Results, method: str) -> Claim:
    ratio = results.best(f"D {method}") / results.best(f"C {method}")
    claim = f"(D) resembles (C) for {method}"
    return Claim(claim, f"ratio of best errors {ratio:.2f} (within 25 %)", 0.8 <= ratio <= 1.25)


def _better_again(results: Results) -> Claim:
    deviations = results.gain("C again", "C BCM")
    found = f"{results.best('C again'):.2e} against {results.best('C BCM'):.2e}: {deviations:.1f} standard errors"
    return Claim("(footnote 2) BCM computed again at the additional points is better there", found, deviations > 2)


def save_plots(results: Results, folder: Path) -> None:
    """Save the four panels as PNG and SVG."""
    from mercer.reports.plots import plot_curves

    titles = {
        "A": "(A) at the base points, noise 0",
        "B": "(B) at the base points, noise 0.001",
        "C": "(C) at other test points, noise 0",
        "D": "(D) base from training rows, noise 0",
    }
    curves: dict[str, dict[str, FloatArray]] = {
        title: {method: results.rmse(f"{panel} {method}") for method in ("BCM", "SRM")}
        for panel, title in titles.items()
    }
    curves[titles["B"]]["RRA"] = results.rmse("B RRA")
    curves[titles["C"]]["BCM, computed again"] = results.rmse("C again")
    for panel in ("C", "D"):
        curves[titles[panel]][f"RRA, noise {NOISE}"] = results.rmse(f"{panel} RRA {NOISE}")
    save_figure(
        folder, results.name, plot_curves, curves, x=results.widths, shared=True,
        xlabel="width of the kernel", ylabel="test error (RMS)", highest=3.0,
    )  # fmt: skip


def report(all_results: Sequence[Results], sizes: Sizes) -> str:
    """The tables, as Markdown."""
    parts = [
        "# Scalable kernel systems\n",
        f"Made by `python -m papers.scalable_kernel_systems`: {sizes.n_train} training rows, {sizes.n_base} "
        f"base points, {sizes.n_test} additional test points, blocks of {sizes.n_base} rows, {sizes.n_widths} widths; "
        "what the data are, and why, stands at the top of that module. Errors are root mean squares; the targets have "
        "unit variance.\n",
    ]
    for results in all_results:
        best = [
            [panel, *(results.best(f"{panel} {method}") for method in ("BCM", "SRM")), _printed_rra(results, panel)]
            for panel in PANELS
        ]
        parts += [
            f"## {results.name} ({results.seconds:.0f} s)\n",
            f"![Test error against width]({results.name}.svg)\n",
            f"```text\n{claims_table(check_claims(results), 'claim of the paper')}\n```\n",
            "Best error of each curve over the widths:\n",
            f"```text\n{format_table(['panel', 'BCM', 'SRM', 'RRA (noise 0.001)'], best)}\n```\n",
        ]
    return "\n".join(parts)


def _printed_rra(results: Results, panel: str) -> str:
    curve = {"A": "", "B": "B RRA"}.get(panel, f"{panel} RRA {NOISE}")
    return f"{results.best(curve):.4g}" if curve else "-"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run on all data sets, print the tables and write them with the plots."""
    parser = command("scalable_kernel_systems", "Figure 1 of 'Scalable kernel systems', run again.")
    parser.add_argument("--seed", type=int, default=0)
    options = parse(parser, arguments)
    sizes = QUICK if options.quick else FULL
    all_results = [run(name, sizes, seed=options.seed, verbose=True) for name in DATA]
    for results in all_results:
        save_plots(results, options.output)
    write(options.output, report(all_results, sizes))


if __name__ == "__main__":
    main()
