"""Support vector machines on a basis: forest beside linear machines on its features, a9a beside the whole kernel."""

from functools import cache
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import SVC, LinearSVC

from benchmarks.clock import race
from benchmarks.forest import N_TRAIN, error, split
from mercer import NystromSVC
from mercer.datasets.public import find_file
from mercer.kernels import Gaussian
from mercer.reports.table import format_table

_M = 500


def ours(gamma: float, **options: Any) -> NystromSVC:
    """Gaussian kernel exp(-gamma r²) on 500 rows."""
    return NystromSVC(Gaussian(np.sqrt(0.5 / gamma)), n_basis=_M, random_state=0, **options)


def peer(gamma: float, **options: Any) -> Pipeline:
    """The same objective on the same number of rows by scikit-learn (which penalises the intercept)."""
    features = Nystroem(gamma=gamma, n_components=_M, random_state=0)
    return make_pipeline(features, LinearSVC(dual=False, **options))


def forest(n_train: int, rounds: int) -> str:
    """Class 2 against the rest; C = 1."""
    data = split(n_train)
    ours(1 / 54).fit(data.X[:1000], data.y[:1000])
    models = {"mercer": ours(1 / 54), "scikit-learn": peer(1 / 54)}
    times = race({name: lambda model=model: model.fit(data.X, data.y) for name, model in models.items()}, rounds)
    rows = [[name, times.best(name), error(model, data)] for name, model in models.items()]
    table = format_table([f"forest, n = {n_train}, m = {_M}, squared hinge", "fit s (best)", "test error %"], rows)
    found = models["mercer"]
    return (
        f"{table}\n\nscikit-learn / mercer: {times.ratio('scikit-learn', 'mercer'):.1f}; {found.n_iter_} passes, "
        f"duality gap {found.duality_gap_[0]:.1g}, {np.sum(found.n_support_)} support rows."
    )


@cache
def _adult() -> tuple[Any, Any, Any, Any]:
    """a9a: 32 561 rows to train and 16 281 to test, of 123 indicators; dense."""
    names = ("classification/a9a_train.svmlight.gz", "classification/a9a_test.svmlight.gz")
    paths = [find_file(name) for name in names]
    if None in paths:
        raise FileNotFoundError(f"a9a is not here: put {' and '.join(names)} into $MERCER_DATA.")
    parts = [load_svmlight_file(str(path), n_features=123) for path in paths]
    return tuple(each for X, y in parts for each in (X.toarray(), y))  # type: ignore[return-value]


def adult(n_train: int | None = None, *, gamma: float = 0.05) -> str:
    """The whole kernel by libsvm, and the basis with each loss; C = 1."""
    X, y, X_test, y_test = _adult()
    X, y = X[:n_train], y[:n_train]
    ours(gamma).fit(X[:1000], y[:1000])
    models = {
        "mercer, squared hinge": ours(gamma),
        "mercer, hinge": ours(gamma, loss="hinge"),
        "scikit-learn SVC": SVC(gamma=gamma, cache_size=1000),
    }
    fits = race({name: lambda model=model: model.fit(X, y) for name, model in models.items()}, 1)
    predictions = race({name: lambda model=model: model.predict(X_test) for name, model in models.items()}, 1)
    rows = [
        [name, fits.best(name), predictions.best(name), 100 * float(np.mean(model.predict(X_test) != y_test))]
        for name, model in models.items()
    ]
    head = [f"a9a, n = {len(X)}, C = 1, exp(-{gamma} r²), m = {_M}", "fit s", "predict 16 281 rows s", "test error %"]
    ratios = [
        f"{name}: fit {fits.ratio('scikit-learn SVC', name):.0f}, "
        f"predict {predictions.ratio('scikit-learn SVC', name):.0f} times as fast as SVC"
        for name in list(models)[:2]
    ]
    return f"{format_table(head, rows)}\n\n" + "; ".join(ratios) + "."


def report(rounds: int) -> str:
    """Run all and describe the results."""
    return f"{forest(N_TRAIN, min(rounds, 2))}\n\n{adult()}"
