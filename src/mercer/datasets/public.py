"""Public sets: read from a file in ``$MERCER_DATA`` or ``../shared/data``, or downloaded."""

import csv
import gzip
import os
from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_covtype, fetch_openml

from mercer._typing import AnyArray, FloatArray


def load_abalone() -> tuple[FloatArray, FloatArray]:
    """Age, in rings, of 4177 sea snails.

    Read from ``abalone.csv.gz`` in ``$MERCER_DATA`` or ``../shared/data``, else from OpenML.

    Returns
    -------
    X : array (4177, 10)
        Indicators of sex (M, F, I), then seven measurements.
    y : array (4177,)
    """
    table = _read("abalone.csv.gz") or _fetch("abalone")
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
    table = np.array(_read("boston_housing.csv.gz") or _fetch("boston"), dtype=np.float64)
    return table[:, :-1], table[:, -1]


def load_forest() -> tuple[AnyArray, AnyArray]:
    """Cover type of 581 012 patches of forest, in the original order of rows.

    Read from ``covtype.npz`` in ``$MERCER_DATA`` or ``../shared/data``, else by scikit-learn's ``fetch_covtype``, which
    keeps it in its data home and downloads it if necessary.

    Returns
    -------
    X : array (581012, 54), int16
        Ten measurements and 44 indicators.
    y : array (581012,)
        Classes 1 to 7. The usual task with two classes is class 2 against the rest.
    """
    path = find_file("covtype.npz")
    if path is None:
        X, y = fetch_covtype(return_X_y=True)
        return np.asarray(X, dtype=np.int16), np.asarray(y)
    with np.load(path, allow_pickle=False) as archive:
        return np.ascontiguousarray(archive["X"]), archive["y"]


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
    tables = _read("santafe_a_train.csv.gz"), _read("santafe_a_cont.csv.gz")
    if not all(tables):
        msg = "the laser series is not here: put santafe_a_train.csv.gz and santafe_a_cont.csv.gz into $MERCER_DATA."
        raise FileNotFoundError(msg)
    series, continuation = (np.array(table, dtype=np.float64)[:, 0] for table in tables)
    return series, continuation


def find_file(name: str) -> Path | None:
    """Return the path of a data file in ``$MERCER_DATA`` or in ``../shared/data``, or None if it is in neither."""
    folders = [os.environ.get("MERCER_DATA"), "../shared/data"]
    paths = (Path(folder) / name for folder in folders if folder)
    return next((path for path in paths if path.is_file()), None)


def _read(name: str) -> list[list[str]]:
    """Rows of a table, without its header; none if there is no such file."""
    path = find_file(name)
    if path is None:
        return []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def _fetch(name: str) -> list[list[str]]:
    X, y = fetch_openml(name, version=1, as_frame=False, return_X_y=True, parser="liac-arff")
    return [[*map(str, row), str(target)] for row, target in zip(X, y, strict=True)]
