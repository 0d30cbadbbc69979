"""What all experiments share: the command line, kept results, claims, splits and how results are written."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mercer._typing import FloatArray
from mercer.reports.table import format_table

__all__ = [
    "Claim",
    "Kept",
    "claims_table",
    "command",
    "parse",
    "read_sized",
    "save_figure",
    "scaled",
    "shuffled_split",
    "write",
]


# --------------------------------------------------------------------------------------------------------- commands


def command(name: str, description: str) -> argparse.ArgumentParser:
    """The options that every experiment has; its results go to a folder of its own."""
    parser = argparse.ArgumentParser(prog=f"python -m papers.{name}", description=description)
    parser.add_argument("--quick", action="store_true", help="a small version, for a look; results go to build")
    parser.add_argument("--output", type=Path, help=f"folder; docs/papers/{name} unless quick")
    parser.set_defaults(name=name)
    return parser


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options and make the folder that results go to."""
    options = parser.parse_args(arguments)
    options.output = options.output or Path("build" if options.quick else "docs/papers") / options.name
    options.output.mkdir(parents=True, exist_ok=True)
    return options


def write(folder: Path, text: str) -> None:
    """Print the report and write it."""
    (folder / "report.md").write_text(text, encoding="utf-8")
    print(f"\n{text}\nWritten to {folder}")


def save_figure(folder: Path, name: str, plot: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """Save a figure as PNG and SVG; ``plot`` draws it into the file of its first argument."""
    for ending in ("png", "svg"):
        plot(folder / f"{name}.{ending}", *arguments, **options)


# ----------------------------------------------------------------------------------------------------- kept results


def read_sized(path: Path | None, key: str, size: object) -> dict[str, Any] | None:
    """What a file of results holds, None if there is none; a file of another size of the experiment is refused."""
    if path is None or not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found[key] != size:
        msg = f"{path} holds results of another size of the experiment: move it away, or choose another folder."
        raise ValueError(msg)
    return found


class Kept:
    """Numbers by a text that says what they are, written to a file (if one is given) at once.

    A run that was interrupted goes on where it was.

    Parameters
    ----------
    path : Path or None
    size : str
        Which experiment the numbers belong to; a file of another one is refused.
    """

    def __init__(self, path: Path | None, size: str) -> None:
        self._path, self._size = path, size
        found = read_sized(path, "size", size)
        self._numbers: dict[str, dict[str, float]] = found["numbers"] if found else {}

    def get(self, name: str, measure: Callable[[], dict[str, float]], *, verbose: bool = False) -> dict[str, float]:
        """The numbers of that name; measured if they are not known."""
        if name not in self._numbers:
            self._numbers[name] = measure()
            if verbose:
                shown = "  ".join(f"{key} {value:.4g}" for key, value in self._numbers[name].items())
                print(f"{name}: {shown}", flush=True)
            if self._path is not None:
                text = json.dumps({"size": self._size, "numbers": self._numbers}, indent=1)
                self._path.write_text(text + "\n", encoding="utf-8")
        return self._numbers[name]

    def has(self, name: str) -> bool:
        """Whether numbers of that name are known."""
        return name in self._numbers


# ----------------------------------------------------------------------------------------------------------- claims


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, what was found, and whether it holds."""

    claim: str
    found: str
    holds: bool


def claims_table(claims: Iterable[Claim], title: str = "claim of the document") -> str:
    """A line for each claim."""
    rows = [[c.claim, c.found, "holds" if c.holds else "does not hold"] for c in claims]
    return format_table([title, "found", ""], rows)


# ----------------------------------------------------------------------------------------------------------- splits


def shuffled_split(n_rows: int, n_train: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training rows and of the others, in random order."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return order[:n_train], order[n_train:]


def scaled(X: FloatArray, known: np.ndarray | slice = slice(None), *, binary: bool = True) -> FloatArray:
    """Columns of zero mean and unit variance over the ``known`` rows; constant ones are only shifted.

    With ``binary=False``, columns of two different values are left as they are.
    """
    mean, spread = X[known].mean(axis=0), X[known].std(axis=0)
    every = (X - mean) / np.where(spread > 0, spread, 1.0)
    if binary:
        return np.asarray(every)
    return np.where([len(np.unique(column)) == 2 for column in X.T], X, every)
