"""The online estimators as river's own, for its pipelines and metrics; needs river.

They learn what ``OnlineRegressor``, ``NormaRegressor`` and so on of ``mercer`` learn by ``learn_one``. Rows come one at
a time; a kernel given by its name takes its length scale from the first 128, and starts over with each of these.
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
from mercer.estimators.norma_classifier import NormaClassifier as _NormaClassifier
from mercer.estimators.norma_novelty_detector import NormaNoveltyDetector as _NormaNoveltyDetector
from mercer.estimators.norma_regressor import NormaRegressor as _NormaRegressor
from mercer.estimators.online_classifier import OnlineClassifier as _Classifier
from mercer.estimators.online_regressor import OnlineRegressor as _Regressor


class _Wrapped(base.Estimator):
    """The model that is made when the first row is seen."""

    _estimator: ClassVar[Any]
    _model: Any

    def check_stored(self) -> None:
        """Refuse parameters, or a model, that this cannot have."""
        self._estimator(**self._get_params())._validate_params()
        need(self._model is None or is_fitted(self._model), "a model for river has learned nothing.")

    def _learn(self, *row: Any) -> None:
        model = self._estimator(**self._get_params()) if self._model is None else self._model
        model.learn_one(*row)
        self._model = model


class _Online(_Wrapped):
    """Parameters of the sequential LS-SVM."""

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
        self._learn(x, y, w)


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


@stored(name="river.NormaRegressor", alone=True)
class NormaRegressor(_Wrapped, base.Regressor):
    """``mercer.NormaRegressor`` for river, with its parameters."""

    _estimator = _NormaRegressor
    kernel: Any
    loss: str
    epsilon: Any
    nu: Any
    quantile: float
    regularization: Any
    learning_rate: Any
    schedule: str
    max_basis: int
    truncation: float
    average: bool
    intercept: bool
    _model: _NormaRegressor | None

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        loss: str = "squared_error",
        epsilon: float | None = None,
        nu: float | None = None,
        quantile: float = 0.5,
        regularization: Any = "auto",
        learning_rate: Any = "auto",
        schedule: str = "constant",
        max_basis: int = 1000,
        truncation: float = 1e-4,
        average: bool = True,
        intercept: bool = True,
    ) -> None:
        self.kernel, self.loss, self.epsilon, self.nu, self.quantile = kernel, loss, epsilon, nu, quantile
        self.regularization, self.learning_rate, self.schedule = regularization, learning_rate, schedule
        self.max_basis, self.truncation, self.average, self.intercept = max_basis, truncation, average, intercept
        self._model = None

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn one row of weight w."""
        self._learn(x, y, w)

    def predict_one(self, x: dict[Any, Any]) -> float:
        """Predict; 0 before anything was learned."""
        return 0.0 if self._model is None else self._model.predict_one(x)


@stored(name="river.NormaClassifier", alone=True)
class NormaClassifier(_Wrapped, base.Classifier):
    """``mercer.NormaClassifier`` for river, with its parameters; classes may appear at any time."""

    _estimator = _NormaClassifier
    kernel: Any
    loss: str
    nu: Any
    regularization: Any
    learning_rate: Any
    schedule: str
    max_basis: int
    truncation: float
    average: bool
    intercept: bool
    _model: _NormaClassifier | None

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        loss: str = "hinge",
        nu: float | None = None,
        regularization: Any = "auto",
        learning_rate: Any = "auto",
        schedule: str = "constant",
        max_basis: int = 1000,
        truncation: float = 1e-4,
        average: bool = True,
        intercept: bool = False,
    ) -> None:
        self.kernel, self.loss, self.nu = kernel, loss, nu
        self.regularization, self.learning_rate, self.schedule = regularization, learning_rate, schedule
        self.max_basis, self.truncation, self.average, self.intercept = max_basis, truncation, average, intercept
        self._model = None

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn one row of weight w."""
        self._learn(x, y, w)

    def predict_one(self, x: dict[Any, Any], **_options: Any) -> Any:
        """Predict the label; None before anything was learned."""
        return None if self._model is None else self._model.predict_one(x)

    @property
    def _multiclass(self) -> bool:
        return True


@stored(name="river.NormaNoveltyDetector", alone=True)
class NormaNoveltyDetector(_Wrapped, base.AnomalyDetector):
    """``mercer.NormaNoveltyDetector`` for river, with its parameters."""

    _estimator = _NormaNoveltyDetector
    kernel: Any
    nu: float
    regularization: Any
    learning_rate: Any
    schedule: str
    max_basis: int
    truncation: float
    average: bool
    _model: _NormaNoveltyDetector | None

    def __init__(
        self,
        kernel: Any = "gaussian",
        *,
        nu: float = 0.1,
        regularization: Any = "auto",
        learning_rate: Any = "auto",
        schedule: str = "constant",
        max_basis: int = 1000,
        truncation: float = 1e-4,
        average: bool = True,
    ) -> None:
        self.kernel, self.nu = kernel, nu
        self.regularization, self.learning_rate, self.schedule = regularization, learning_rate, schedule
        self.max_basis, self.truncation, self.average = max_basis, truncation, average
        self._model = None

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Learn one row."""
        self._learn(x)

    def score_one(self, x: dict[Any, Any]) -> float:
        """The threshold less the function: the more novel, the larger; 0 before anything was learned."""
        return 0.0 if self._model is None else self._model.score_one(x)
