"""Run all benchmarks and write docs/benchmarks.md: `make bench`, or `python -m benchmarks --rounds 5`."""

import argparse
import os
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
import sklearn

from benchmarks import (
    approximations,
    compact,
    components,
    compression,
    dask_cluster,
    exact,
    export,
    files,
    forest,
    hebbian,
    one_row,
    online_update,
    probabilities,
    pseudo_inputs,
    sequential,
    start_up,
    stochastic,
    strategies,
    support_vectors,
)
from benchmarks.tabular import pages as tabular

TITLES: dict[str, Callable[[int], str]] = {
    "Forest cover type: a basis of few points": forest.report,
    "The full kernel matrix": exact.report,
    "The approximations": approximations.report,
    "Support vector machines": support_vectors.report,
    "Choosing the basis": strategies.report,
    "Kernel principal components": components.report,
    "Pseudo-inputs": pseudo_inputs.report,
    "Rows in files": files.report,
    "Rows one after the other": sequential.report,
    "Few rows at a time": online_update.report,
    "Principal components of a stream": hebbian.report,
    "Stochastic gradient descent": stochastic.report,
    "Kernels of compact support": compact.report,
    "Small models": compression.report,
    "Exported models": export.report,
    "Probabilities": probabilities.report,
    "Tabular data": tabular.report,
    "One row": one_row.report,
    "A cluster": dask_cluster.report,
    "Start-up": start_up.report,
}

HEAD = """# Benchmarks

Made by `make bench` (`python -m benchmarks`; one section by `--only`), all contestants of a section in the same run,
taking turns. Times on shared machines are noisy: read the ratios. The limit is the time that the machine's own rates of
dsyrk, dgemm and exp allow for the arithmetic of the method, measured in the same run on data in the cache.
"""


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each race")
    parser.add_argument("--only", help="sections whose title contains this; the others stay as they are")
    parser.add_argument("--output", type=Path, default=Path("docs/benchmarks.md"))
    arguments = parser.parse_args()
    sections = _read(arguments.output)
    for title, report in TITLES.items():
        if arguments.only and arguments.only.lower() not in title.lower():
            continue
        load = f"Load average at the start: {os.getloadavg()[0]:.1f}."
        sections[title] = f"{load}\n\n```text\n{report(arguments.rounds)}\n```"
        print(f"\n## {title}\n\n{sections[title]}", flush=True)
    text = "\n\n".join(f"## {title}\n\n{sections[title]}" for title in TITLES if title in sections)
    arguments.output.write_text(f"{HEAD}\n{_machine()}\n\n{text}\n", encoding="utf-8")


def _read(path: Path) -> dict[str, str]:
    """The sections that are there, by their titles."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return {title.strip(): body.strip() for title, _, body in (s.partition("\n") for s in text.split("\n## ")[1:])}


def _machine() -> str:
    versions = f"NumPy {np.__version__}, SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {versions}."


if __name__ == "__main__":
    main()
