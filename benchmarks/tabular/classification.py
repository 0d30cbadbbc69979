"""Methods of classification: mercer without settings, and peers, which are given standardised inputs."""

from collections.abc import Callable
from typing import Any

from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from benchmarks.tabular.regression import GRID_ROWS, STRONG, SVM_ROWS, Choose, most_components, nystroem_features
from benchmarks.tabular.scores import Clock, Probabilities
from benchmarks.tabular.sets import Split
from mercer import AutoClassifier

THIRDS = StratifiedKFold(3, shuffle=True, random_state=0)  # some sets are in an order


def _of(choose: Choose, most: int | None = None) -> Callable[[Split], Probabilities]:
    """Fit to all rows, or as many as the model can take, and predict the probabilities of test rows."""

    def run(split: Split) -> Probabilities:
        clock = Clock()
        used = split if most is None else split.first(most)
        table = choose(used).fit(used.X, used.y).predict_proba(split.X_test)
        return Probabilities(table, clock.read())

    return run


def _logistic() -> LogisticRegression:
    return LogisticRegression(max_iter=300, tol=1e-3)


def _nystroem(split: Split) -> Any:
    """Choose length scale and penalty by the log loss of three folds of a part of the rows."""
    part = split.first(GRID_ROWS)
    features = [nystroem_features(part, factor, len(part.y) // 2) for factor in (0.5, 1.0)]
    grid = {"nystroem": features, "logisticregression__C": [1.0, 10.0, 100.0]}
    search = GridSearchCV(make_pipeline(features[0], _logistic()), grid, cv=THIRDS, scoring="neg_log_loss", refit=False)
    chosen = make_pipeline(features[0], _logistic()).set_params(**search.fit(part.X, part.y).best_params_)
    return chosen.set_params(nystroem__n_components=most_components(split))


def _svc(split: Split) -> Any:
    """Choose by accuracy on a part of the rows; probabilities by Platt's sigmoid on three folds."""
    part = split.first(GRID_ROWS)
    d = split.X.shape[1]
    grid = {"C": [1.0, 10.0, 100.0], "gamma": [0.2 / d, 1.0 / d, 5.0 / d]}
    search = GridSearchCV(SVC(), grid, cv=THIRDS, refit=False).fit(part.X, part.y)
    return CalibratedClassifierCV(SVC(**search.best_params_), cv=THIRDS, ensemble=False)


METHODS: dict[str, Callable[[Split], Probabilities]] = {
    "mercer": _of(lambda _: AutoClassifier(random_state=0)),
    "boosting": _of(lambda _: HistGradientBoostingClassifier(random_state=0)),
    "boosting-1000": _of(lambda _: HistGradientBoostingClassifier(**STRONG, random_state=0)),
    "nystroem": _of(_nystroem),
    "svm": _of(_svc, SVM_ROWS),
    "linear": _of(lambda _: _logistic()),
}
