"""Small public sets: abalone, Boston housing, the Santa Fe laser."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_openml

from mercer._typing import FloatArray
from mercer.datasets.sources import find_file

__all__ = ["load_abalone", "load_boston", "load_laser"]


def load_abalone() -> tuple[FloatArray, FloatArray]:
    """Age, in rings, of 4177 sea snails.

    Read from ``abalone.csv.gz`` in ``$MERCER_DATA`` or ``../shared/data``, else from OpenML.

    Returns
    -------
    X : array (4177, 10)
        Indicators of sex (M, F, I), then seven measurements.
    y : array (4177,)
    """
    path = find_file("abalone.csv.gz")
    table = _read(path) if path is not None else _fetch("abalone", 1)
    sex = np.array([row[0] for row in table])
    numbers = np.array([row[1:] for row in table], dtype=np.float64)
    return np.column_stack([*(sex == value for value in "MFI"), numbers[:, :-1]]).astype(np.float64), numbers[:, -1]


def load_boston() -> tuple[FloatArray, FloatArray]:
    """Median value of homes, in thousands of dollars, in 506 districts of Boston.

    A numerical benchmark only: one column encodes a quantity based on race, for which scikit-learn has removed the set.
    Read from ``boston_housing.csv.gz`` in ``$MERCER_DATA`` or ``../shared/data``, else from OpenML.

    Returns
    -------
    X : array (506, 13)
    y : array (506,)
    """
    path = find_file("boston_housing.csv.gz")
    table = np.array(_read(path) if path is not None else _fetch("boston", 1), dtype=np.float64)
    return table[:, :-1], table[:, -1]


def load_laser() -> tuple[FloatArray, FloatArray]:
    """Intensity of a far-infrared laser in chaos: set A of the Santa Fe time series competition.

    Read from ``santafe_a_train.csv.gz`` and ``santafe_a_cont.csv.gz`` in ``$MERCER_DATA`` or ``../shared/data``.

    Returns
    -------
    series : array (1000,)
        What was given to the competitors.
    continuation : array (9093,)
        What follows; the first 100 values were to be predicted.
    """
    paths = find_file("santafe_a_train.csv.gz"), find_file("santafe_a_cont.csv.gz")
    if paths[0] is None or paths[1] is None:
        msg = "the laser series is not here: put santafe_a_train.csv.gz and santafe_a_cont.csv.gz into $MERCER_DATA."
        raise FileNotFoundError(msg)
    series, continuation = (np.array(_read(path), dtype=np.float64)[:, 0] for path in paths if path is not None)
    return series, continuation


def _read(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def _fetch(name: str, version: int) -> list[list[str]]:
    X, y = fetch_openml(name, version=version, as_frame=False, return_X_y=True, parser="liac-arff")
    return [[*map(str, row), str(target)] for row, target in zip(X, y, strict=True)]
