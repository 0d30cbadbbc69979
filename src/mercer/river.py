"""The online estimators as river's own, for its pipelines and metrics; needs river.

They learn what ``OnlineRegressor`` and ``OnlineClassifier`` of ``mercer`` learn by ``learn_one``. Rows come one at a
time; a kernel given by its name takes its length scale from the first 128 of them, and starts over with each of these.
``mercer.save`` and ``mercer.load`` keep them; a pipeline of river's is not mercer's to save, but its last step is.

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

from mercer._stored import stored
from mercer._stored.checks import need
from mercer._validation import is_fitted
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

    def check_stored(self) -> None:
        """Refuse parameters, or a model, that this cannot have."""
        self._estimator(**self._get_params())._validate_params()
        need(self._model is None or is_fitted(self._model), "a model for river has learned nothing.")

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn one row of weight w."""
        model = self._model
        if model is None:
            model = self._estimator(**self._get_params())
        model.learn_one(x, y, w)
        self._model = model


@stored(name="river.OnlineRegressor", alone=True)
class OnlineRegressor(_Online, base.Regressor):
    """``mercer.OnlineRegressor`` for river, with its parameters."""

    _estimator = _Regressor
    kernel: Any
    noise: float
    max_basis: int
    novelty_tol: float
    gain_tol: float
    selection: str
    forgetting: float
    intercept: bool
    _model: _Regressor | None

    def predict_one(self, x: dict[Any, Any], return_std: bool = False) -> Any:
        """Predict, and on request the standard deviation of the function, too; 0 before anything was learned."""
        return (_Regressor() if self._model is None else self._model).predict_one(x, return_std)


@stored(name="river.OnlineClassifier", alone=True)
class OnlineClassifier(_Online, base.Classifier):
    """``mercer.OnlineClassifier`` for river, with its parameters; classes may appear at any time."""

    _estimator = _Classifier
    kernel: Any
    noise: float
    max_basis: int
    novelty_tol: float
    gain_tol: float
    selection: str
    forgetting: float
    intercept: bool
    _model: _Classifier | None

    def predict_one(self, x: dict[Any, Any], **_options: Any) -> Any:
        """Predict the label; None before anything was learned."""
        return None if self._model is None else self._model.predict_one(x)

    def predict_proba_one(self, x: dict[Any, Any], **_options: Any) -> dict[Any, float]:
        """Probabilities of the classes seen so far; empty before anything was learned."""
        return {} if self._model is None else dict(self._model.predict_proba_one(x))

    @property
    def _multiclass(self) -> bool:
        return True
