"""Convergence of the kernel Hebbian algorithm, with three gains, and what meta-descent adds to one of them.

K. I. Kim, M. O. Franz and B. Schölkopf (2003) take a gain that is constant or annealed; S. Günter, N. N. Schraudolph
and S. V. N. Vishwanathan (2007) divide it by the eigenvalues, and let it adapt itself (``meta_descent.py``; in no
estimator, because a step takes more than three times the operations). F. J. Király's lecture on kernel methods for big
data cites both. Here each passes many times over the rows of a data set, all of which are in the dictionary, and is
compared with kernel PCA by eigenvalues after every pass:

==============  ==================================================================================================
excess error    what is left of the rows in feature space, beyond what kernel PCA leaves, as a share of the latter
angle           the largest between a component and that of kernel PCA, in radians
==============  ==================================================================================================

Gains have one to three parameters, η₀, τ and μ: each is run with those of a grid, and the one of the least excess error
after the last pass is shown; claims take the best for what they say. Data: abalone, and rows uniform in a cube;
standardised, a Gaussian kernel with the median distance as length scale.

Run it: ``python -m papers.hebbian_gains`` (``--quick`` for a small version). Results are kept in a file: a run that was
interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mercer._typing import FloatArray
from mercer.datasets import load_abalone, make_waves
from mercer.engine import ArrayRows, ArrayTable, Threads
from mercer.kernels import Gaussian
from mercer.kernels.median_distance import median_distance
from mercer.methods.hebbian import HebbianLearner, Rules, pass_over_table
from mercer.reports.table import format_table
from mercer.solvers.hebbian import ANNEALED, CONSTANT, EIGENVALUE, Gains
from papers.experiment import Claim, Kept, claims_table, command, parse, save_figure, scaled, write
from papers.meta_descent import COST, MetaDescent

__all__ = ["DATA", "FULL", "GRIDS", "QUICK", "Sizes", "Task", "converge", "main"]


@dataclass(frozen=True)
class Sizes:
    """How large the experiment is."""

    n_rows: int = 1000
    n_components: int = 8
    passes: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200)
    data: tuple[str, ...] = ("abalone", "uniform")


FULL = Sizes()
QUICK = Sizes(n_rows=150, n_components=4, passes=(1, 2, 5, 10, 20, 50), data=("uniform",))

DATA: dict[str, Callable[[], FloatArray]] = {
    "abalone": lambda: load_abalone()[0],
    "uniform": lambda: make_waves(4000, n_features=4, random_state=0)[0],
}


class Grid(NamedTuple):
    """Parameters of a gain."""

    rule: int
    rates: tuple[float, ...]  # η₀
    decays: tuple[float, ...] = (1.0,)  # τ, in passes
    meta_rates: tuple[float, ...] = (0.0,)  # μ


GRIDS = {
    "constant": Grid(CONSTANT, (0.003, 0.01, 0.03, 0.1, 0.3)),
    "annealed": Grid(ANNEALED, (0.1, 0.3, 1.0), (0.2, 1.0, 5.0)),
    "eigenvalue": Grid(EIGENVALUE, (0.03, 0.1, 0.3), (0.05, 0.2, 1.0)),
    "meta-descent": Grid(EIGENVALUE, (0.03, 0.1, 0.3), (0.05, 0.2, 1.0), (0.01, 0.03, 0.1)),
}
NEAR = 0.01  # excess error that counts as converged


@dataclass(frozen=True)
class Task:
    """Rows, their kernel, and kernel PCA by eigenvalues."""

    rows: FloatArray
    kernel: Gaussian
    n_components: int

    @classmethod
    def draw(cls, rows: FloatArray, sizes: Sizes) -> Task:
        """Some of the rows, in random order, standardised."""
        some = np.random.default_rng(0).permutation(len(rows))[: sizes.n_rows]
        used = scaled(rows[some])
        return cls(used, Gaussian(length_scale=median_distance(used)), sizes.n_components)

    def run(self, gains: Gains, passes: Sequence[int], meta_rate: float = 0.0) -> dict[str, float]:
        """Errors and angles after some of the passes; infinite if the components diverge."""
        learner = HebbianLearner.start(self.kernel, self.rows.shape[1], self.n_components)
        rules = Rules(max_basis=len(self.rows), novelty_tol=0.0, gains=gains)
        table = ArrayTable(ArrayRows(self.rows, checked=True))
        learner = pass_over_table(learner, table, rules, n_epochs=0, executor=Threads(1))
        features = learner.dictionary.features.tile(self.rows)
        centred = features - learner.centre
        values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
        exact = vectors[:, ::-1][:, : self.n_components].T
        left = float(np.sum(values[: -self.n_components]))
        steps = MetaDescent(learner, meta_rate) if meta_rate else learner
        found: dict[str, float] = {}
        for number in range(1, max(passes) + 1):
            try:
                steps.pass_over(features, rules)
            except ValueError:  # diverged
                return {f"{what} {number}": np.inf for what in ("excess", "angle") for number in passes}
            if number in passes:
                found[f"excess {number}"] = _residual(centred, learner.directions) / left - 1.0
                found[f"angle {number}"] = _largest_angle(learner.directions, exact)
        return found


def _residual(centred: FloatArray, directions: FloatArray) -> float:
    """Mean squared distance of the rows from what the components say of them, |u - WᵀWu|²."""
    return float(np.mean(np.sum((centred - centred @ directions.T @ directions) ** 2, axis=1)))


def _largest_angle(directions: FloatArray, exact: FloatArray) -> float:
    unit = directions / np.linalg.norm(directions, axis=1)[:, np.newaxis]
    cosines = np.abs(np.sum(unit * exact, axis=1))
    return float(np.max(np.arccos(np.minimum(cosines, 1.0))))


@dataclass(frozen=True)
class Curve:
    """One run: its parameters, and errors and angles after some passes."""

    parameters: tuple[float, float, float]  # η₀, τ in passes, μ
    excess: FloatArray
    angles: FloatArray

    def passes_to(self, passes: Sequence[int], error: float = NEAR) -> float:
        """The first of the passes after which the excess error stays below that; infinite if there is none."""
        above = np.flatnonzero(~(self.excess < error))
        first = 0 if not len(above) else int(above[-1]) + 1
        return float(passes[first]) if first < len(passes) else np.inf


def converge(name: str, sizes: Sizes, kept: Kept, *, verbose: bool = False) -> dict[str, list[Curve]]:
    """All runs of each gain on a data set, the one of the least excess error first."""
    task = Task.draw(DATA[name](), sizes)
    found: dict[str, list[Curve]] = {}
    for label, grid in GRIDS.items():
        curves = [
            _run(task, sizes, kept, f"{name}, {label}", grid.rule, parameters, verbose=verbose)
            for parameters in product(grid.rates, grid.decays, grid.meta_rates)
        ]
        found[label] = sorted(curves, key=lambda curve: float(curve.excess[-1]))
    return found


def _run(
    task: Task, sizes: Sizes, kept: Kept, name: str, rule: int, parameters: tuple[float, float, float], *, verbose: bool
) -> Curve:
    rate, decay, meta_rate = parameters
    numbers = kept.get(
        ", ".join([name, *(f"{number:g}" for number in parameters)]),
        lambda: task.run(Gains(rule, rate, decay * len(task.rows)), sizes.passes, meta_rate),
        verbose=verbose,
    )
    excess, angles = (np.array([numbers[f"{what} {n}"] for n in sizes.passes]) for what in ("excess", "angle"))
    return Curve(parameters, excess, angles)


def report(found: dict[str, dict[str, list[Curve]]], sizes: Sizes) -> str:
    """Tables and claims."""
    parts = [
        f"# Gains of the kernel Hebbian algorithm\n\n{sizes.n_rows} rows, all in the dictionary; {sizes.n_components} "
        "components; each gain with the best parameters of a grid.\n\n![Excess error against passes](figure.svg)"
    ]
    for name, curves in found.items():
        shown = [n for n in sizes.passes if n in (1, 10, 50, max(sizes.passes))]
        where = [sizes.passes.index(n) for n in shown]
        rows = [
            [
                label,
                ", ".join(f"{number:g}" for number in best.parameters),
                *(f"{best.excess[i]:.2g} ({best.angles[i]:.2g})" for i in where),
            ]
            for label, (best, *_) in curves.items()
        ]
        header = ["gain", "η₀, τ in passes, μ", *(f"{n} pass{'es' * (n > 1)}" for n in shown)]
        text = "Excess error (largest angle: components of nearly equal variance turn for long)."
        parts.append(f"## {name}\n\n{text}\n\n```text\n{format_table(header, rows)}\n```")
    parts.append(f"## Claims\n\n```text\n{claims_table(_claims(found, sizes), 'claim')}\n```")
    return "\n\n".join(parts) + "\n"


def _claims(found: dict[str, dict[str, list[Curve]]], sizes: Sizes) -> list[Claim]:
    claims = []
    for name, curves in found.items():
        passes = {label: min(each.passes_to(sizes.passes) for each in runs) for label, runs in curves.items()}
        said = ", ".join(f"{label} {passes[label]:g}" for label in ("constant", "annealed", "eigenvalue"))
        text = f"{name}: eigenvalues in the gain speed up convergence (passes to {NEAR:.0%} excess error)"
        claims.append(Claim(text, said, passes["eigenvalue"] < min(passes["constant"], passes["annealed"])))
        said = f"eigenvalue {passes['eigenvalue']:g}, with meta-descent {passes['meta-descent']:g}"
        text = f"{name}: meta-descent saves more passes than it adds operations ({COST:.2g} times as many)"
        claims.append(Claim(text, said, COST * passes["meta-descent"] < passes["eigenvalue"]))
        angle = min(float(each.angles[-1]) for each in curves["eigenvalue"])
        claims.append(Claim(f"{name}: components converge to those of kernel PCA", f"{angle:.2g} rad", angle < NEAR))
    return claims


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, and write the report and the figure."""
    options = parse(command("hebbian_gains", __doc__ or ""), arguments)
    sizes = QUICK if options.quick else FULL
    kept = Kept(Path(options.output) / "results.json", repr(sizes))
    found = {name: converge(name, sizes, kept, verbose=True) for name in sizes.data}
    from mercer.reports.plots import plot_curves

    panels = {
        name: {label: (np.array(sizes.passes), best.excess) for label, (best, *_) in curves.items()}
        for name, curves in found.items()
    }
    save_figure(options.output, "figure", plot_curves, panels, xlabel="passes", ylabel="excess error")
    write(options.output, report(found, sizes))


if __name__ == "__main__":
    main()
