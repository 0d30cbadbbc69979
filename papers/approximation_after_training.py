r"""T. Suttorp, C. Igel: Approximation of Gaussian process regression models after training (ESANN 2008). Fig. 1 again.

Gaussian process models of abalone (10 splits, 3000 rows to train, 1177 to test, γ = λ = 10^-1.5) and Boston housing
(100 splits, 481 and 25 rows, γ = 10^-1.2, λ = 10^-2), kernel exp(-γ r²), are replaced by few constructed vectors: by
the document's method with and without its final descent, with and without offset; by variable projection with L-BFGS,
in feature space and on the training inputs; and beside them a random subset of the training rows, on which the model
is fitted anew (Nyström). Fig. 1 has no numbers that could be read; what the text says of it is checked.

The document normalises "each continuous feature"; whether the target is one, it does not say. Ours has zero mean and
unit variance; the offset is also looked at for targets that are not centred.

Run it: ``python -m papers.approximation_after_training`` (``--quick`` for a small version). Results are kept in
a file: a run that was interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mercer._typing import FloatArray
from mercer.reports.table import format_table
from papers.approximation_splits import (
    DESCENT_SPLITS,
    DESCENT_VECTORS,
    DESCENTS,
    FULL_MODEL,
    METHODS,
    RANDOM,
    SETS,
    STEPS,
    Set,
    distances,
    errors,
    measure,
    measure_descents,
)
from papers.experiment import Claim, Kept, claims_table, command, parse, save_figure, write

__all__ = ["QUICK", "check_claims", "main", "table"]

QUICK = {name: replace(data, splits=2, sizes=data.sizes[:2]) for name, data in SETS.items()}

# Margins of the claims, fixed before the full run.
SAME = 0.02  # relative difference of mean errors that counts as the same performance
REACH, REACH_VECTORS = 0.005, 25  # our own aim on abalone

_REPORT = """# Approximation of Gaussian process models after training

Made by `python -m papers.approximation_after_training`; what is run stands at the top of that module. T. Suttorp
and C. Igel, *Approximation of Gaussian process regression models after training* (ESANN 2008), print their results as
a figure only, so that there are no numbers beside ours: what the text says of the figure is checked.

## What holds

```text
{claims}
```

Numbers of vectors are ours, since the text gives none; on Boston more than 80 may be needed for the margin. The
comparison with nonlinear pseudodiscriminants, whose results the document takes from elsewhere, is not repeated.

## Fig. 1

Mean squared test error, mean and standard deviation over the splits; all with the mean offset. "document" is resilient
approximation with the final descent; "variable projection" is L-BFGS on the vectors with the coefficients eliminated;
"on data" minimises the squared difference of predictions on the training inputs in place of the distance in feature
space; "random rows, refitted" is a Nyström model of as many training rows, which needs the targets. Vectors that are
fitted to data may follow them too closely where they have more numbers than there are rows, as 80 of 13 features have
on 481 rows.

{tables}

![Number of vectors against test error](figure.svg)

## The descent

ρ²/|f|² after some steps from the same {vectors} vectors, mean over {splits} splits of abalone, and the least and the
greatest. A step of each costs about the same.

```text
{descents}
```

## The offset

Mean test error without the mean offset and, after the arrow, with it.

{offsets}
"""


def table(name: str, data: Set, kept: Kept) -> str:
    """Errors by number of vectors and method."""
    header = ["vectors", *data.methods]
    lines = [
        [f"{size}", *(_described(errors(name, data, method, size, kept)) for method in data.methods)]
        for size in data.sizes
    ]
    full = _described(errors(name, data, FULL_MODEL, 0, kept))
    return format_table(header, [*lines, [f"{data.n_train} (full)", full, *[""] * (len(data.methods) - 1)]])


def descents(n_splits: int, kept: Kept) -> str:
    """Distances by optimiser and number of steps."""
    lines = []
    for optimiser, title in DESCENTS.items():
        found = [[distances(split, optimiser, steps, kept) for split in range(n_splits)] for steps in STEPS]
        lines.append([title, *(f"{np.mean(v):.4f} [{min(v):.4f}, {max(v):.4f}]" for v in found)])
    return format_table(["", *(f"{steps} steps" for steps in STEPS)], lines)


def offsets(name: str, data: Set, kept: Kept) -> str:
    """Errors without and with offset."""
    methods = [method for method in data.methods if method in METHODS and METHODS[method].get("metric") != "data"]
    lines = []
    for size in data.sizes:
        pairs = [[np.mean(errors(name, data, m, size, kept, r)) for r in ("plain", "offset")] for m in methods]
        lines.append([f"{size}", *(f"{plain:.4f} → {moved:.4f}" for plain, moved in pairs)])
    return format_table(["vectors", *methods], lines)


def _described(values: FloatArray) -> str:
    return f"{np.mean(values):.4f} ± {np.std(values):.4f}"


def check_claims(sets: Mapping[str, Set], kept: Kept) -> list[Claim]:
    """What the document says of its figure, and what we set out to reach; the criteria stand beside the numbers."""
    found = []
    for name, data in sets.items():
        if data.centred:
            found += [_reaches(name, data, kept, method) for method in ("document", "document, no descent")]
            found.append(_descent_helps(name, data, kept))
        found += [_offset_helps(name, data, kept, method) for method in ("document, no descent", "document")]
    for method in ("variable projection", "on data"):
        found.append(_our_reach(sets["abalone"], kept, method))
    return found


def _ratio(name: str, data: Set, kept: Kept, method: str, size: int, reading: str = "offset") -> float:
    full = np.mean(errors(name, data, FULL_MODEL, 0, kept))
    return float(np.mean(errors(name, data, method, size, kept, reading)) / full)


def _reaches(name: str, data: Set, kept: Kept, method: str) -> Claim:
    ratios = {size: _ratio(name, data, kept, method, size) for size in data.sizes}
    text = ", ".join(f"{size}: {100 * (ratio - 1):+.1f} %" for size, ratio in ratios.items())
    what = f"{name}: {method}: the full model's performance at a fraction of its cost"
    return Claim(what, f"excess error by vectors {text} (within {100 * SAME:g} %)", min(ratios.values()) < 1 + SAME)


def _descent_helps(name: str, data: Set, kept: Kept) -> Claim:
    pairs = [
        [float(np.mean(errors(name, data, method, size, kept))) for method in ("document, no descent", "document")]
        for size in data.sizes
    ]
    text = ", ".join(f"{size}: {a:.4f} → {b:.4f}" for size, (a, b) in zip(data.sizes, pairs, strict=True))
    what = f"{name}: the final descent improves the approximation (every size)"
    return Claim(what, text, all(after < before for before, after in pairs))


def _offset_helps(name: str, data: Set, kept: Kept, method: str) -> Claim:
    pairs = [
        [float(np.mean(errors(name, data, method, size, kept, reading))) for reading in ("plain", "offset")]
        for size in data.sizes
    ]
    better = sum(after < before for before, after in pairs)
    text = f"at {better} of {len(pairs)} sizes (more than half)"
    return Claim(f"{name}: {method}: an offset improves the performance", text, 2 * better > len(pairs))


def _our_reach(data: Set, kept: Kept, method: str) -> Claim:
    ratios = {size: _ratio("abalone", data, kept, method, size) for size in data.sizes if size <= REACH_VECTORS}
    text = ", ".join(f"{size}: {100 * (ratio - 1):+.2f} %" for size, ratio in ratios.items())
    what = f"ours, abalone: {method}: within {100 * REACH:g} % with at most {REACH_VECTORS} vectors"
    return Claim(what, f"excess error by vectors {text}", min(ratios.values()) < 1 + REACH)


def _curves(sets: Mapping[str, Set], kept: Kept) -> dict[str, dict[str, tuple[FloatArray, FloatArray]]]:
    panels: dict[str, dict[str, tuple[FloatArray, FloatArray]]] = {}
    for name, data in sets.items():
        x = np.array(data.sizes, dtype=np.float64)
        panel: dict[str, tuple[FloatArray, FloatArray]] = {}
        for method in (m for m in data.methods if data.centred):
            panel[method] = x, np.array([np.mean(errors(name, data, method, size, kept)) for size in data.sizes])
        if panel:
            full = errors(name, data, FULL_MODEL, 0, kept)
            panel["full model"] = x, np.full(len(x), np.mean(full))
            panel["full model + std"] = x, np.full(len(x), np.mean(full) + np.std(full))
            panels[name] = panel
    return panels


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment, print the tables and write them with the figure."""
    parser = command("approximation_after_training", "Approximation of Gaussian process models after training.")
    options = parse(parser, arguments)
    sets = QUICK if options.quick else SETS
    size = "; ".join(f"{name}: {data.splits} splits, {data.sizes}" for name, data in sets.items())
    kept = Kept(options.output / "results.json", size)
    for name, data in sets.items():
        for split in range(data.splits):
            measure(name, data, split, kept, verbose=True)
    n_splits = min(DESCENT_SPLITS, sets["abalone"].splits)
    for split in range(n_splits):
        measure_descents(sets["abalone"], split, kept, verbose=True)
    _save_figure(options.output, sets, kept)
    write(options.output, _text(sets, n_splits, kept))


def _text(sets: Mapping[str, Set], n_splits: int, kept: Kept) -> str:
    def blocks(make: Callable[[str, Set, Kept], str], names: Sequence[str]) -> str:
        texts = [f"```text\n{make(name, sets[name], kept)}\n```" for name in names]
        titles = [f"{name} ({sets[name].splits} splits):" for name in names]
        return "\n\n".join(f"{title}\n\n{text}" for title, text in zip(titles, texts, strict=True))

    return _REPORT.format(
        claims=claims_table(check_claims(sets, kept), "claim"),
        tables=blocks(table, [name for name in sets if RANDOM in sets[name].methods]),
        descents=descents(n_splits, kept),
        vectors=DESCENT_VECTORS,
        splits=n_splits,
        offsets=blocks(offsets, list(sets)),
    )


def _save_figure(folder: Path, sets: Mapping[str, Set], kept: Kept) -> None:
    from mercer.reports.plots import plot_curves

    save_figure(
        folder, "figure", plot_curves, _curves(sets, kept),
        xlabel="vectors", ylabel="mean squared test error", scale="linear",
    )  # fmt: skip


if __name__ == "__main__":
    main()
