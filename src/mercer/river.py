"""The online estimators as river's own, for its pipelines and metrics; needs river.

They learn what ``OnlineRegressor`` and ``OnlineClassifier`` of ``mercer`` learn by ``learn_one``. Rows come one at a
time; a kernel given by its name takes its length scale from the first 128 of them, and starts over with each of these.

Examples
--------
>>> from river import datasets, evaluate, metrics, preprocessing
>>> from mercer.river import OnlineRegressor
>>> model = preprocessing.StandardScaler() | OnlineRegressor(max_basis=50)
>>> metric = evaluate.progressive_val_score(datasets.TrumpApproval().take(300), model, metrics.MAE())
>>> metric.get() < 2
True
"""

from typing import Any, ClassVar

from river import base

from mercer.estimators.online_classifier import OnlineClassifier as _Classifier
from mercer.estimators.online_regressor import OnlineRegressor as _Regressor


class _Online(base.Estimator):
    """Parameters, and the model that is made when the first row is seen."""

    _estimator: ClassVar[type[_Regressor | _Classifier]]
    _model: Any

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        noise: float = 0.1,
        max_basis: int = 100,
        novelty_tol: float = 1e-2,
        gain_tol: float = 1e-4,
        selection: str = "supervised",
        forgetting: float = 1.0,
        intercept: bool = True,
    ) -> None:
        self.kernel = kernel
        self.noise = noise
        self.max_basis = max_basis
        self.novelty_tol = novelty_tol
        self.gain_tol = gain_tol
        self.selection = selection
        self.forgetting = forgetting
        self.intercept = intercept
        self._model = None

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn one row of weight w."""
        model = self._model
        if model is None:
            model = self._estimator(**self._get_params())
        model.learn_one(x, y, w)
        self._model = model


class OnlineRegressor(_Online, base.Regressor):
    """``mercer.OnlineRegressor`` for river, with its parameters."""

    _estimator = _Regressor

    def predict_one(self, x: dict[Any, Any]) -> float:
        """Predict; 0 before anything was learned."""
        return 0.0 if self._model is None else float(self._model.predict_one(x))


class OnlineClassifier(_Online, base.Classifier):
    """``mercer.OnlineClassifier`` for river, with its parameters; classes may appear at any time."""

    _estimator = _Classifier

    def predict_one(self, x: dict[Any, Any], **_options: Any) -> Any:
        """Predict the label; None before anything was learned."""
        return None if self._model is None else self._model.predict_one(x)

    def predict_proba_one(self, x: dict[Any, Any], **_options: Any) -> dict[Any, float]:
        """Probabilities of the classes seen so far; empty before anything was learned."""
        return {} if self._model is None else dict(self._model.predict_proba_one(x))

    @property
    def _multiclass(self) -> bool:
        return True
