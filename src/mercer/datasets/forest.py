"""Forest cover type."""

import numpy as np
from sklearn.datasets import fetch_covtype

from mercer._typing import AnyArray
from mercer.datasets.sources import find_file

__all__ = ["load_forest"]


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
