"""Does it matter how basis points are chosen? Every strategy on five data sets.

F. J. Király's lecture on kernel methods for big data lists the ways (uniform draws, greedy Cholesky decompositions with
and without the targets, laws that need not be the data's); leverage scores, k-means, random pivots, orthogonal least
squares, sparse greedy choice and the rule of the sequential LS-SVM are added. For each strategy and number of points m:
what the basis leaves of the trace of the kernel matrix, the test error of ridge regression on it, and the CPU time to
choose. Strategies that add one point after the other are run once, and their first m points taken.

==========  ========================================================================  ============================
data        rows (training, test)                                                     error
==========  ========================================================================  ============================
abalone     3000, 1177                                                                RMS, y of unit variance
boston      400, 106                                                                  the same
forest      50 000, 20 000; class 2 against the rest                                  share of wrong classes
clusters    10 000, 2000; 20 tight clusters of very different size, equal rows        RMS
uniform     10 000, 2000; rows uniform in a cube of six dimensions, smooth function   RMS
==========  ========================================================================  ============================

Inputs are standardised; the kernel is Gaussian with the median distance as length scale (forest: exp(-r²/54);
clusters: 0.5, a scale within them); λ is chosen once per data set by generalised cross-validation on a uniform basis.
Splits and draws differ between seeds.

Run it: ``python -m papers.choosing_landmarks`` (``--quick`` for a small version). Results are kept in a file: a
run that was interrupted goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mercer._typing import FloatArray
from mercer.basis import (
    BasisStrategy,
    Distribution,
    ForwardSelection,
    KMeans,
    Leverage,
    PivotedCholesky,
    Sequential,
    SparseGreedy,
    SupervisedCholesky,
    Uniform,
    nystrom_error,
)
from mercer.datasets import load_abalone, load_boston, load_forest, make_clusters, make_waves
from mercer.estimators.nystrom import NystromRegressor
from mercer.kernels import Gaussian, Kernel
from mercer.kernels.median_distance import median_distance
from mercer.reports.table import format_table
from papers.experiment import command, parse, save_figure, scaled, shuffled_split, write
from papers.landmark_results import Curves, Measured, Results

__all__ = ["DATA", "FULL", "QUICK", "Curves", "Sizes", "main", "run", "strategies"]


@dataclass(frozen=True)
class Sizes:
    """How large the experiment is."""

    points: tuple[int, ...] = (25, 50, 100, 200, 500, 1000)
    seeds: int = 5
    largest: int = 50_000  # training rows


FULL = Sizes()
QUICK = Sizes(points=(10, 25, 50), seeds=2, largest=1000)


@dataclass(frozen=True)
class Source:
    """A data set: how to get it, how many rows to train on, and what an error is."""

    load: Callable[[int], tuple[FloatArray, FloatArray]]
    n_train: int
    n_test: int
    classes: bool = False
    length_scale: float | None = None


def _forest(_seed: int) -> tuple[FloatArray, FloatArray]:
    X, y = load_forest()
    return X, np.where(y == 2, 1.0, -1.0)


DATA: dict[str, Source] = {
    "abalone": Source(lambda _seed: load_abalone(), 3000, 1177),
    "boston": Source(lambda _seed: load_boston(), 400, 106),
    "clusters": Source(
        lambda seed: make_clusters(12_000, n_features=6, random_state=seed), 10_000, 2000, length_scale=0.5
    ),
    "uniform": Source(lambda seed: make_waves(12_000, n_features=6, random_state=seed), 10_000, 2000),
    "forest": Source(_forest, 50_000, 20_000, classes=True, length_scale=float(np.sqrt(27.0))),
}


@dataclass(frozen=True)
class Task:
    """One split of a data set."""

    rows: FloatArray
    targets: FloatArray
    test_rows: FloatArray
    test_targets: FloatArray
    kernel: Kernel
    classes: bool

    @classmethod
    def draw(cls, source: Source, sizes: Sizes, seed: int) -> Task:
        """Split, standardise by the training rows, and choose the length scale."""
        X, y = source.load(seed)
        train, test = shuffled_split(len(y), min(source.n_train, sizes.largest), seed)
        test = test[: source.n_test]
        centre, scale = (0.0, 1.0) if source.classes else (np.mean(y[train]), np.std(y[train]))
        used = scaled(X[np.concatenate([train, test])], slice(len(train)))
        rows, others = used[: len(train)], used[len(train) :]
        length = source.length_scale or median_distance(rows[:1000])
        return cls(
            rows=rows,
            targets=(y[train] - centre) / scale,
            test_rows=others,
            test_targets=(y[test] - centre) / scale,
            kernel=Gaussian(length_scale=length),
            classes=source.classes,
        )

    def error(self, predicted: FloatArray) -> float:
        """Test error."""
        if self.classes:
            return float(np.mean((predicted > 0) != (self.test_targets > 0)))
        return float(np.sqrt(np.mean((predicted - self.test_targets) ** 2)))


def strategies(noise: float) -> dict[str, tuple[BasisStrategy, bool]]:
    """All strategies, and whether their first points are those of a smaller choice."""
    return {
        "uniform": (Uniform(), False),
        "k-means": (KMeans(), False),
        "k-means, rows": (KMeans("rows"), False),
        "Gaussian law": (Distribution("gaussian"), False),
        "KDE": (Distribution("kde"), False),
        "leverage": (Leverage(), False),
        "Cholesky, random": (PivotedCholesky("random"), True),
        "Cholesky, greedy": (PivotedCholesky("greedy"), True),
        "CSI": (SupervisedCholesky(), True),
        "OLS-59": (ForwardSelection(59), True),
        "sparse greedy": (SparseGreedy(noise), True),
        "sequential": (Sequential(noise), False),
    }


def run(name: str, sizes: Sizes = FULL, *, kept: Results | None = None, verbose: bool = False) -> Curves:
    """Run all strategies on one data set; what is kept already is not run again."""
    kept = kept or Results(None)
    for seed in range(sizes.seeds):
        task: Task | None = None
        noise = kept.noise(name)
        for strategy in strategies(1.0):
            if kept.has(name, strategy, seed):
                continue
            task = task or Task.draw(DATA[name], sizes, seed)
            noise = noise or kept.set_noise(name, _noise(task))
            choose, nested = strategies(noise)[strategy]
            measured = _measure(task, choose, nested, sizes.points, noise, seed)
            kept.add(name, strategy, seed, measured)
            if verbose:
                shown = "  ".join(f"{m}: {e:.4f}" for m, e in zip(sizes.points, measured.errors, strict=True))
                print(f"{name}, seed {seed}, {strategy:16s} {shown}  ({measured.seconds:.1f} s)", flush=True)
    return kept.curves(name, sizes.points, list(strategies(1.0)), sizes.seeds)


def _noise(task: Task) -> float:
    model = NystromRegressor(
        task.kernel, n_basis=min(200, len(task.rows) // 2), noise="gcv", random_state=0, intercept=False
    )
    return float(model.fit(task.rows, task.targets).noise_)


def _measure(
    task: Task, strategy: BasisStrategy, nested: bool, numbers: Sequence[int], noise: float, seed: int
) -> Measured:
    """Share of the trace left and test error for each number of points, and seconds to choose the most."""
    most, seconds = _select(task, strategy, max(numbers), seed)
    unexplained: list[float] = []
    errors: list[float] = []
    found: list[int] = []
    for m in numbers:
        points = most[:m] if nested or m == max(numbers) else _select(task, strategy, m, seed)[0]
        if nested and found and len(points) == found[-1]:  # there are no more
            unexplained.append(unexplained[-1])
            errors.append(errors[-1])
        else:
            unexplained.append(nystrom_error(task.rows, points, task.kernel, random_state=0).unexplained)
            model = NystromRegressor(task.kernel, basis=points, noise=noise, intercept=False).fit(
                task.rows, task.targets
            )
            errors.append(task.error(np.asarray(model.predict(task.test_rows))))
        found.append(len(points))
    return Measured(unexplained, errors, found, seconds)


def _select(task: Task, strategy: BasisStrategy, number: int, seed: int) -> tuple[FloatArray, float]:
    start = time.process_time()
    basis = strategy.select(task.rows, task.targets, task.kernel, number, random_state=seed)
    return basis.points, time.process_time() - start


def report(all_curves: Sequence[Curves], sizes: Sizes) -> str:
    """The tables, as Markdown."""
    parts = [
        "# Choosing landmarks\n",
        f"Made by `python -m papers.choosing_landmarks` with {sizes.seeds} seeds; what the data are and how the "
        "errors are taken stands at the top of that module. Means and standard deviations over the seeds; in brackets, "
        "how many points were found if they were fewer than asked for. Seconds are those of all cores together (CPU "
        "time, which other work on the machine does not change), for the largest number of points.\n",
        "## Where uniform draws are enough\n",
        "Strategies whose test error is below that of uniform draws, by at least 1 % and by three standard errors of "
        "the difference between draws with the same seed, with what they save; a dash means that uniform draws are "
        "enough. With five seeds a strategy that is no better passes this by chance in about one of fifty cases.\n",
        f"```text\n{_summary(all_curves)}\n```\n",
    ]
    for curves in all_curves:
        parts += [
            f"## {curves.name} (λ = {curves.noise:.3g})\n",
            f"![Error against the number of points]({curves.name}.svg)\n",
            f"Test error:\n\n```text\n{_table(curves, curves.errors, seconds=True)}\n```\n",
            f"Share of the trace that the basis leaves:\n\n```text\n{_table(curves, curves.unexplained)}\n```\n",
        ]
    return "\n".join(parts)


def _summary(all_curves: Sequence[Curves]) -> str:
    rows = [
        [curves.name, m, ", ".join(f"{name} {saved:.0%}" for name, saved in _sorted(curves, column)) or "-"]
        for curves in all_curves
        for column, m in enumerate(curves.points)
    ]
    return format_table(["data", "points", "better than uniform"], rows)


def _sorted(curves: Curves, column: int) -> list[tuple[str, float]]:
    return sorted(curves.better_than_uniform(column).items(), key=lambda pair: -pair[1])


def _table(curves: Curves, values: dict[str, FloatArray], *, seconds: bool = False) -> str:
    header = ["strategy", *map(str, curves.points), *(["seconds"] if seconds else [])]
    rows, digits = [], ".4f" if seconds else ".2e"
    for strategy, results in values.items():
        found = np.mean(curves.found[strategy], axis=0)
        cells = [
            f"{a:{digits}} ± {b:{digits}}" + (f" [{number:.0f}]" if number < m - 0.5 else "")
            for a, b, number, m in zip(
                np.mean(results, axis=0), np.std(results, axis=0), found, curves.points, strict=True
            )
        ]
        rows.append([strategy, *cells, *([float(np.mean(curves.seconds[strategy]))] if seconds else [])])
    return format_table(header, rows)


def save_plots(curves: Curves, folder: Path) -> None:
    """Save test error and trace error against the number of points, as PNG and SVG."""
    from mercer.reports.plots import plot_curves

    panels = {
        f"{curves.name}: test error": {name: np.mean(v, axis=0) for name, v in curves.errors.items()},
        f"{curves.name}: share of the trace left": {
            name: np.maximum(np.mean(v, axis=0), 1e-12) for name, v in curves.unexplained.items()
        },
    }
    x = np.array(curves.points, dtype=np.float64)
    save_figure(folder, curves.name, plot_curves, panels, x=x, xlabel="basis points", ylabel="error")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run on all data sets, print the tables and write them with the plots."""
    parser = command("choosing_landmarks", "All strategies for choosing basis points, compared.")
    parser.add_argument("--data", nargs="*", choices=list(DATA), default=list(DATA), help="none: only write the report")
    options = parse(parser, arguments)
    sizes = QUICK if options.quick else FULL
    kept = Results(options.output / "results.json", sizes)
    for name in options.data:
        run(name, sizes, kept=kept, verbose=True)
    complete = [name for name in DATA if kept.is_complete(name, list(strategies(1.0)), sizes.seeds)]
    all_curves = [kept.curves(name, sizes.points, list(strategies(1.0)), sizes.seeds) for name in complete]
    for curves in all_curves:
        save_plots(curves, options.output)
    write(options.output, report(all_curves, sizes))


if __name__ == "__main__":
    main()
