"""The sets, and how they are split."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_svmlight_file
from sklearn.preprocessing import StandardScaler

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.datasets import load_abalone, load_boston, load_forest
from mercer.datasets.public import find_file

SMALL = 2000  # rows
MIDDLE = 10_000  # rows: below it all ten folds are run, else one
FOREST_TRAIN, FOREST_TEST = 40_000, 20_000
NEVER = -1  # the fold of rows that are never test rows
RANKED = (
    "autompg", "energy", "concrete", "airfoil", "wine", "gas", "skillcraft", "sml", "parkinsons", "keggundirected"
)  # fmt: skip


@dataclass(frozen=True)
class Split:
    """Rows to train and to test; targets of the test rows are for the scores alone."""

    X: FloatArray
    y: AnyArray
    X_test: FloatArray
    y_test: AnyArray

    def standardised(self, *, targets: bool) -> "Split":
        """Inputs, and on request targets, with mean 0 and standard deviation 1 on the training rows."""
        scaler = StandardScaler().fit(self.X)
        inputs = replace(self, X=scaler.transform(self.X), X_test=scaler.transform(self.X_test))
        if not targets:
            return inputs
        mean, scale = np.mean(self.y), np.std(self.y)
        return replace(inputs, y=(self.y - mean) / scale, y_test=(self.y_test - mean) / scale)

    def first(self, n_rows: int) -> "Split":
        """At most so many training rows, drawn at random."""
        if len(self.y) <= n_rows:
            return self
        some = np.random.default_rng(0).permutation(len(self.y))[:n_rows]
        return replace(self, X=self.X[some], y=self.y[some])


@dataclass(frozen=True)
class Set:
    """Rows, and for each the fold in which it is a test row."""

    name: str
    X: FloatArray
    y: AnyArray  # numbers, or classes from 0
    fold: IntArray
    classes: bool = False

    @cached_property
    def folds(self) -> list[int]:
        """The folds that are run."""
        n_rows = len(self.y)
        most = 10 if n_rows < MIDDLE else 1
        return sorted({*self.fold.tolist()} - {NEVER})[:most]

    def split(self, fold: int) -> Split:
        """Test rows are those of the fold, training rows all others."""
        test = self.fold == fold
        if not np.any(test):
            raise ValueError(f"fold {fold} of {self.name} has no rows; its folds are {self.folds}.")
        return Split(self.X[~test], self.y[~test], self.X[test], self.y[test])


def read(name: str) -> Set:
    """The set of that name."""
    if name not in SETS:
        raise ValueError(f"there is no set {name!r}; choose from {', '.join(SETS)}.")
    return SETS[name](name)


def random_folds(n_rows: int, n_folds: int = 10) -> IntArray:
    """A fold for each row; folds differ by one row at most in size."""
    return np.random.default_rng(0).permutation(n_rows) % n_folds


def _path(file: str, source: str) -> Path:
    path = find_file(file)
    if path is None:
        raise FileNotFoundError(f"{file} is not here: put it into $MERCER_DATA. It comes from {source}.")
    return path


def _regression(name: str) -> Set:
    source = (
        "github.com/treforevans/uci_datasets, as a table with the columns fold (of its ten splits), x0, x1, … and y"
    )
    with gzip.open(_path(f"regression/{name}.csv.gz", source), "rt", encoding="utf-8") as file:
        table = np.loadtxt(file, delimiter=",", skiprows=1)
    return Set(name, np.ascontiguousarray(table[:, 1:-1]), table[:, -1], table[:, 0].astype(np.int64))


def _with_folds(load: Callable[[], tuple[AnyArray, AnyArray]], *, classes: bool = False) -> Callable[[str], Set]:
    def loaded(name: str) -> Set:
        X, y = load()
        return Set(name, np.asarray(X, dtype=np.float64), y, random_folds(len(y)), classes)

    return loaded


def _forest(name: str) -> Set:
    X, y = load_forest()
    some = np.random.default_rng(0).permutation(len(y))[: FOREST_TRAIN + FOREST_TEST]
    fold = np.repeat([NEVER, 0], [FOREST_TRAIN, FOREST_TEST])
    return Set(name, np.asarray(X[some], dtype=np.float64), y[some].astype(np.int64) - 1, fold, classes=True)


def _a9a(name: str) -> Set:
    source = "LIBSVM's page of data sets (a9a and a9a.t, as a9a_train and a9a_test)"
    parts = []
    for part in ("train", "test"):
        path = _path(f"classification/a9a_{part}.svmlight.gz", source)
        parts.append(load_svmlight_file(str(path), n_features=123))
    X = np.concatenate([part[0].toarray() for part in parts])
    y = np.concatenate([part[1] > 0 for part in parts]).astype(np.int64)
    return Set(name, X, y, np.repeat([NEVER, 0], [part[0].shape[0] for part in parts]), classes=True)


SETS: dict[str, Callable[[str], Set]] = {
    **dict.fromkeys(RANKED, _regression),
    "abalone": _with_folds(load_abalone),
    "boston": _with_folds(load_boston),
    "breast cancer": _with_folds(lambda: load_breast_cancer(return_X_y=True), classes=True),
    "digits": _with_folds(lambda: load_digits(return_X_y=True), classes=True),
    "a9a": _a9a,
    "forest": _forest,
}
