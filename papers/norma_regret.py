"""NORMA's regret: how far below a√n + b it stays, on random rows and on rows that an adversary labels.

F. J. Király's lecture on kernel methods for big data states the theorem of Kivinen, Smola and Williamson (2004): with
rates η₀/√t, the regularised losses of stochastic gradient descent sum to at most those of any fixed function plus
a√n + b, whatever the rows. It gives no numbers. Here are some: the comparator is about the best function in hindsight.

==========  =========================================================================================
data        rows
==========  =========================================================================================
waves       uniform in a square, a smooth function with noise; ε-insensitive loss
drift       the same, but the function turns once around while the rows come
adversary   the same rows; the label of each is the sign that the model does not predict; hinge loss
==========  =========================================================================================

Run it: ``python -m papers.norma_regret`` (``--quick`` for a small version).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer.estimators.norma_classifier import NormaClassifier
from mercer.estimators.norma_regressor import NormaRegressor
from mercer.kernels import Gaussian
from mercer.reports.plots import plot_regret
from mercer.reports.regret import Regret, regret
from mercer.reports.table import format_table
from papers.experiment import Claim, claims_table, command, parse, save_figure, write

__all__ = ["DATA", "FULL", "QUICK", "SCHEDULES", "Sizes", "claims", "main", "measure", "table"]

KERNEL, WEIGHT, RATE = Gaussian(0.7), 0.02, 1.0
SCHEDULES = ("inverse_sqrt", "inverse", "constant")
DATA = ("waves", "drift", "adversary")


@dataclass(frozen=True)
class Sizes:
    """How large the experiment is."""

    rows: int = 6000
    budget: int = 500  # terms, beside as many as there are rows


FULL = Sizes()
QUICK = Sizes(rows=300, budget=50)


def measure(name: str, schedule: str, n_rows: int, budget: int) -> Regret:
    """The regret on one set of rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n_rows, 2))
    options: dict[str, Any] = {
        "regularization": WEIGHT, "learning_rate": RATE, "schedule": schedule, "max_basis": budget,
        "truncation": 0.0, "average": False, "intercept": False, "record": True,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="max_basis=.* has dropped")  # which is what is measured
        if name == "adversary":
            return _against_an_adversary(NormaClassifier(KERNEL, **options), X)
        phase = 2 * np.pi * np.arange(n_rows) / n_rows if name == "drift" else 0.0
        y = np.sin(2 * X[:, 0] + phase) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=n_rows)
        model = NormaRegressor(KERNEL, loss="epsilon_insensitive", scale_targets=False, **options)
        return regret(model.fit(X, y), X, y)


def _against_an_adversary(model: NormaClassifier, X: FloatArray) -> Regret:
    """Labels are the signs that the model does not predict: no row is classified correctly before it is learned."""
    y = np.empty(len(X), dtype=bool)
    for t, row in enumerate(X):
        y[t] = t == 0 or model.decision_function(row[np.newaxis])[0] <= 0
        model.partial_fit(row[np.newaxis], y[t : t + 1], classes=[False, True])
    return regret(model, X, y)


def exponent(found: Regret) -> float:
    """Of the growth of the regret over the later half of the rows, on logarithmic axes; NaN where it is negative."""
    n = len(found.risk)
    late = np.arange(n // 2, n)
    positive = found.regret[late]
    if np.any(positive <= 0):
        return float("nan")
    return float(np.polyfit(np.log(late + 1.0), np.log(positive), 1)[0])


def table(results: dict[tuple[str, str, int], Regret]) -> str:
    """A line for each data set, schedule and budget; sums are per row."""
    lines = []
    for (name, schedule, budget), found in results.items():
        n = len(found.risk)
        sums = (found.risk[-1], found.comparator[-1], found.regret[-1], found.bound[-1])
        lines.append([name, schedule, budget, *(float(each / n) for each in sums), exponent(found)])
    header = ["data", "rates", "terms", "risk", "of the comparator", "regret", "bound", "exponent"]
    return format_table(header, lines)


def claims(results: dict[tuple[str, str, int], Regret]) -> list[Claim]:
    """What the theorem says, and what was found."""
    worst = max(float(np.max(found.regret / found.bound)) for found in results.values())
    proven = {key: found for key, found in results.items() if key[1] == "inverse_sqrt"}
    of_root = max(
        float(np.max(found.regret / (found.a * np.sqrt(np.arange(1, len(found.risk) + 1)) + found.b)))
        for found in proven.values()
    )
    whole = [found for (_, _, budget), found in proven.items() if budget >= len(found.risk)]
    falls = [float(found.regret[-1] / len(found.risk)) < float(np.max(found.regret / np.arange(1, len(found.risk) + 1)))
             for found in whole]  # fmt: skip
    return [
        Claim("with rates η₀/√t the regret is at most a√n + b", f"at most {of_root:.3g} of it", of_root <= 1),
        Claim("with any of the rates it is at most the sum of the proof", f"at most {worst:.3g} of it", worst <= 1),
        Claim("regret per row falls, where nothing is dropped", f"{sum(falls)} of {len(falls)}", all(falls)),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment and write tables and figure."""
    options = parse(command("norma_regret", __doc__.splitlines()[0] if __doc__ else ""), arguments)
    sizes = QUICK if options.quick else FULL
    results = {}
    for name in DATA:
        for schedule in SCHEDULES:
            for budget in (sizes.rows, sizes.budget):
                results[name, schedule, budget] = measure(name, schedule, sizes.rows, budget)
                print(f"{name}, {schedule}, {budget} terms: {results[name, schedule, budget]}", flush=True)
    panels = {f"{name}, η₀/√t": results[name, "inverse_sqrt", sizes.rows] for name in DATA}
    save_figure(options.output, "regret", plot_regret, panels)
    text = f"""# The regret of stochastic gradient descent

{claims_table(claims(results), "claim of the theorem")}

{table(results)}

{sizes.rows} rows, Gaussian kernel of length scale {KERNEL.length_scale}, λ = {WEIGHT}, η₀ = {RATE}. Risk, regret and
bound are sums over the rows, divided by their number. The exponent is that of the growth of the regret over the later
half of the rows.

![Regret and bound against the number of rows](regret.svg)
"""
    write(options.output, text)


if __name__ == "__main__":
    main()
