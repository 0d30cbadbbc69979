"""Probabilities from leave-one-out values, against scikit-learn's CalibratedClassifierCV around the same model."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from benchmarks.clock import race
from mercer import ExactClassifier, NystromClassifier
from mercer.datasets import load_forest
from mercer.reports.table import format_table

OURS, PEER = "mercer predict_proba", "CalibratedClassifierCV, cv=5"
FOREST = 12_000  # rows, half of them for the fit


def _sets() -> Iterator[tuple[str, Any, Any]]:
    yield "digits", *load_digits(return_X_y=True)
    yield "breast cancer", *load_breast_cancer(return_X_y=True)
    yield "wine", *load_wine(return_X_y=True)
    X, y = load_forest()
    some = np.random.default_rng(0).permutation(len(y))[:FOREST]
    yield "forest, 7 classes", np.asarray(X[some], dtype=np.float64), y[some]
    yield "forest, 2 classes", np.asarray(X[some], dtype=np.float64), y[some] == 2


def _model(n_rows: int) -> Any:
    return ExactClassifier(random_state=0) if n_rows < 1000 else NystromClassifier(n_basis=300, random_state=0)


def _scores(model: Any, X: Any, y: Any) -> list[float]:
    table = model.predict_proba(X)
    truth = y[:, np.newaxis] == model.classes_
    return [float(np.mean(np.sum((table - truth) ** 2, axis=1))), float(log_loss(y, table, labels=model.classes_))]


def report(rounds: int) -> str:
    """Run and describe the results."""
    lines = []
    for name, rows, labels in _sets():
        order = np.random.default_rng(1).permutation(len(labels))
        half = len(labels) // 2
        X, y = StandardScaler().fit(rows[order[:half]]).transform(rows[order]), labels[order]
        models = {OURS: _model(half), PEER: CalibratedClassifierCV(_model(half), method="sigmoid", cv=5)}

        def run(model: Any, X: Any = X, y: Any = y, half: int = half) -> Callable[[], Any]:
            return lambda: model.fit(X[:half], y[:half]).predict_proba(X[half:])

        times = race({each: run(model) for each, model in models.items()}, rounds)
        for each, model in models.items():
            lines.append([name, each, *_scores(model, X[half:], y[half:]), times.best(each)])
    return format_table(
        ["set (half of the rows)", "probabilities", "Brier", "log loss", "fit and predict s (best)"], lines
    )
