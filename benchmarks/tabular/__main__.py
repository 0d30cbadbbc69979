"""Run the benchmark and fill the tables of the documentation."""

import argparse
from pathlib import Path

from benchmarks.tabular.run import METHODS, RESULTS, run
from benchmarks.tabular.sets import SETS


def main() -> None:
    """Run what is missing, then fill the pages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tabular", description=__doc__)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, metavar="METHOD")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), metavar="SET")
    parser.add_argument("--folds", nargs="+", type=int, help="some of the folds only")
    parser.add_argument("--again", action="store_true", help="also what is stored already: the code has changed")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the stored results")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--no-pages", action="store_true", help="leave the documentation as it is")
    only.add_argument("--no-run", action="store_true", help="fill the documentation with what is stored")
    given = parser.parse_args()
    if not given.no_run:
        run(given.results, methods=given.methods, sets=given.sets, folds=given.folds, again=given.again)
    if not given.no_pages:
        from benchmarks.tabular.pages import write

        write(given.results)


if __name__ == "__main__":
    main()
