"""Run methods on folds, and keep what comes out: a line of JSON per set, fold and method."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.tabular import classification, regression
from benchmarks.tabular.scores import class_scores, scores
from benchmarks.tabular.sets import SETS, Set, read

RESULTS = Path(__file__).parents[1] / "results" / "tabular"
METHODS = tuple(regression.METHODS)
RAW = "mercer"  # the method that is given inputs and targets as they are


class Key(NamedTuple):
    """What a line is about."""

    set: str
    fold: int
    method: str


Results = dict[Key, dict[str, Any]]


def load(folder: Path) -> Results:
    """All results; of several for the same key the last."""
    found: Results = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            found[Key(record.pop("set"), record.pop("fold"), record.pop("method"))] = record
    return found


def store(folder: Path, key: Key, record: dict[str, Any]) -> None:
    """Append a line to the file of the method."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{key.method}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({**key._asdict(), **record}) + "\n")


def run(
    folder: Path = RESULTS,
    *,
    methods: Sequence[str] = METHODS,
    sets: Iterable[str] = tuple(SETS),
    folds: Sequence[int] | None = None,
    again: bool = False,
) -> None:
    """Run what is not stored yet, or all of it again."""
    for name in sets:
        data, done = read(name), set() if again else set(load(folder))
        for fold in data.folds:
            for method in methods:
                key = Key(name, fold, method)
                if key in done or (folds is not None and fold not in folds) or method not in _methods(data):
                    continue
                record = one(data, fold, method)
                store(folder, key, record)
                print(*key, *(f"{score} {value:.4g}" for score, value in record.items()), flush=True)


def one(data: Set, fold: int, method: str) -> dict[str, Any]:
    """Scores of one method on one fold, with the load of the machine when it began."""
    load_average, split = os.getloadavg()[0], data.split(fold)
    if method != RAW:
        split = split.standardised(targets=not data.classes)
    predicted = _methods(data)[method](split)
    found = (
        class_scores(predicted, split.y_test)
        if data.classes
        else scores(predicted, split.y_test, unit=float(np.std(split.y)))
    )
    return {**found, "n_train": len(split.y), "load": load_average}


def _methods(data: Set) -> dict[str, Any]:
    return dict(classification.METHODS if data.classes else regression.METHODS)
