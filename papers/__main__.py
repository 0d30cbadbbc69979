"""Run all experiments, or those that are named: ``python -m papers [NAME ...] [--quick]``.

Results that are kept in a file are not measured again: delete the file to start anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

__all__ = ["PAPERS", "main"]

PAPERS = (
    "scalable_kernel_systems",
    "compact_kernels",
    "approximation_after_training",
    "choosing_landmarks",
    "sequential_lssvm",
    "cost_table",
    "hebbian_gains",
    "norma_regret",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiments one after the other."""
    parser = argparse.ArgumentParser(prog="python -m papers", description="Experiments of published papers, run again.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PAPERS)}; all unless given")
    parser.add_argument("--quick", action="store_true", help="small versions, for a look; results go to build")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in PAPERS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(PAPERS)}")
    for name in options.names or PAPERS:
        import_module(f"papers.{name}").main(["--quick"] if options.quick else [])


if __name__ == "__main__":
    main()
