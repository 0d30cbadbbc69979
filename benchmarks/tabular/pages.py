"""Put tables of the results, and what they say in words, into the pages of the documentation."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.tabular.run import RAW, RESULTS, Results, load, run
from benchmarks.tabular.sets import RANKED
from benchmarks.tabular.tables import CLASSES, REGRESSION, ranked_errors, ranks, rounded, spread, table, values

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("tabular.md", "error_bars.md")
TREES = ("boosting", "boosting-1000")
NOT_RUN = "Not all of mercer and boosting has been run yet."
MARKED = re.compile(r"(<!-- begin ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write(folder: Path = RESULTS, docs: Path = DOCS) -> None:
    """Fill the marked parts of the pages."""
    results = load(folder)
    if not results:
        raise FileNotFoundError(f"{folder} holds no results: run `python -m benchmarks.tabular` first.")
    made = parts(results)
    for name in PAGES:
        path = docs / name
        path.write_text(fill(path.read_text(encoding="utf-8"), made), encoding="utf-8")


def report(rounds: int) -> str:
    """Run what is not stored of the first folds, and describe the ranks."""
    run(RESULTS, folds=range(rounds))
    return f"{ranks(load(RESULTS))}\n\nAll sets and scores: docs/tabular.md, by python -m benchmarks.tabular."


def fill(text: str, made: Mapping[str, str]) -> str:
    """Replace what stands between the comments ``begin <part>`` and ``end``."""
    return MARKED.sub(lambda found: f"{found[1]}{made[found[2]]}\n{found[3]}", text)


def parts(results: Results) -> dict[str, str]:
    """All that can be put into a page, by its name there."""
    tables = {
        "ranks": ranks(results),
        "error": table(results, REGRESSION, "error"),
        "log-density": table(results, REGRESSION, "log_density"),
        "coverage": table(results, REGRESSION, "coverage", factor=100),
        "width": table(results, REGRESSION, "width"),
        "z2": table(results, REGRESSION, "z2"),
        "seconds": table(results, REGRESSION, "processor"),
        "wrong": table(results, CLASSES, "wrong", factor=100),
        "log-loss": table(results, CLASSES, "log_loss"),
        "brier": table(results, CLASSES, "brier"),
        "class-seconds": table(results, CLASSES, "processor"),
        "spread": spread(results),
    }
    blocks = {name: f"```text\n{text}\n```" for name, text in tables.items()}
    return {**blocks, "words": against_trees(results), "spread-words": spread_range(results)}


def against_trees(results: Results) -> str:
    """On which of the ten sets trees have the least error."""
    errors = ranked_errors(results)
    if not {RAW, *TREES} <= set(errors):
        return NOT_RUN
    ours, trees = errors[RAW], np.array([errors[method] for method in TREES])
    better, best = int(np.count_nonzero(ours < trees[-1])), np.min(trees, axis=0)
    won = [f"{RANKED[i]} ({rounded(best[i])}; mercer {rounded(ours[i])})" for i in np.flatnonzero(best <= ours)]
    least = int(np.count_nonzero(ours < best))
    return (
        f"mercer's error is less than that of the 1000 trees on {better} of the ten sets, and less than those of both "
        f"boostings on {least}. Trees win on {', '.join(won) or 'none'}."
    )


def spread_range(results: Results) -> str:
    """The least and the largest coverage and z² over the sets, mercer's."""
    covered, z2 = (
        {each: float(np.mean(found)) for each in REGRESSION if len(found := values(results, each, RAW, score))}
        for score in ("coverage", "z2")
    )
    if not z2:
        return "mercer has not been run yet."
    low, high = min(covered, key=covered.__getitem__), max(covered, key=covered.__getitem__)
    least, most = min(z2, key=z2.__getitem__), max(z2, key=z2.__getitem__)
    return (
        f"Intervals of 95 % cover between {100 * covered[low]:.1f} % ({low}) and {100 * covered[high]:.1f} % ({high}) "
        f"of the test rows. The mean of z² lies between {z2[least]:.2f} ({least}) and {z2[most]:.2f} ({most})."
    )
