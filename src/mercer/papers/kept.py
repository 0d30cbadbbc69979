"""Results of an experiment, kept in a file as they come: a run that was interrupted goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

__all__ = ["Kept"]


class Kept:
    """Numbers by a text that says what they are, written to a file (if one is given) at once.

    Parameters
    ----------
    path : Path or None
    size : str
        Which experiment the numbers belong to; a file of another one is refused.
    """

    def __init__(self, path: Path | None, size: str) -> None:
        self._path, self._size = path, size
        self._numbers: dict[str, dict[str, float]] = {}
        if path is not None and path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["size"] != size:
                msg = f"{path} holds results of another size of the experiment: move it away, or choose another folder."
                raise ValueError(msg)
            self._numbers = found["numbers"]

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
