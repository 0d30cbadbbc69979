"""The estimator that trains another one, compresses it and forgets it: what its three kinds share."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils import get_tags

from mercer._stored.checks import check_estimator, need
from mercer._typing import AnyArray, FloatArray, RandomState
from mercer._validation import Integral, Interval, Real, StrOptions, check_is_fitted, check_table
from mercer.compression.foreign import read_model
from mercer.compression.reading import Reading
from mercer.compression.reduced_set import reduce_expansion
from mercer.engine import Threads
from mercer.model import KernelExpansion, Outputs

__all__ = ["CompressedModel"]


class CompressedModel(BaseEstimator):
    """What the three kinds of compressed models share."""

    _kind: ClassVar[str]

    expansion_: KernelExpansion
    distances_: FloatArray
    differences_: FloatArray
    relative_distance_: float
    n_features_in_: int

    def check_stored(self) -> None:
        """Refuse outputs and features that are not those of the expansion."""
        need(self.estimator is None or hasattr(self.estimator, "fit"), "estimator is none.")
        check_estimator(
            self,
            n_outputs=self.expansion_.coefficients.shape[1],
            n_features=self.expansion_.points.shape[1],
            flat=getattr(self, "_flat", False),
            rule=getattr(self, "decision_rule_", None),
        )

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": "no_validation",  # by fit, which alone needs it
        "n_vectors": [Interval(Integral, 1, None, closed="left"), None],
        "refine": ["boolean"],
        "offset": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="neither"), None],
        "metric": [StrOptions({"feature", "data"})],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        estimator: Any,
        n_vectors: int | None = None,
        *,
        refine: bool = True,
        offset: bool = True,
        tol: float | None = None,
        metric: str = "feature",
        random_state: RandomState = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_vectors = n_vectors
        self.refine = refine
        self.offset = offset
        self.tol = tol
        self.metric = metric
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, **fit_params: Any) -> Self:
        """Fit a copy of the estimator to X and y, with ``fit_params``, and compress it."""
        self._check_options()
        if not hasattr(self.estimator, "fit"):
            msg = (
                f"estimator must be an estimator to be fitted, got {self.estimator!r}; a model that was compressed "
                "from an expansion has none."
            )
            raise TypeError(msg)
        if not issparse(X):  # else it is the estimator's to take or to refuse
            check_table(clone(self), X, reset=True)  # on a copy: a fit that fails leaves no traces
        fitted = clone(self.estimator).fit(X, y, **fit_params)
        return self._adopt(fitted, read_model(fitted), X)

    def predict(self, X: Any) -> AnyArray:
        """Predict as the estimator does: targets (n,) or (n, p), classes, or 1 and -1 (an outlier).

        Targets are float32 for float32 rows. Sparse rows are made dense, a batch at a time.
        """
        return self.outputs_.predict(self._values(X))

    @property
    def outputs_(self) -> Outputs:
        """What the columns of the expansion mean."""
        raise NotImplementedError

    def _check_options(self) -> None:
        """Refuse parameters that are out of range, before a large model is fitted or read."""
        self._validate_params()
        if self.n_vectors is None and self.tol is None:
            msg = "n_vectors or tol must be given: how many vectors, or how close they must come."
            raise ValueError(msg)

    def _adopt(self, model: Any, reading: Reading, inputs: Any) -> Self:
        """Become the compressed version of a fitted model, as it was read."""
        if reading.outputs.kind != self._kind:
            msg = f"{type(self).__name__} is for a {_WORDS[self._kind]}, got {model!r}."
            raise TypeError(msg)
        new = clone(self)._remember(model, reading)
        if inputs is not None:
            inputs = check_table(new, inputs.toarray() if issparse(inputs) else inputs, reset=False)
        options = {name: value for name, value in self.get_params(deep=False).items() if name != "estimator"}
        reduction = reduce_expansion(reading.expansion, inputs=inputs, **options)
        self.__dict__.pop("feature_names_in_", None)
        self._remember(model, reading)
        self.expansion_ = reduction.expansion
        self.distances_, self.differences_ = reduction.distances, reduction.differences
        self.relative_distance_ = reduction.relative_distance
        return self

    def _remember(self, model: Any, reading: Reading) -> Self:
        self.n_features_in_ = reading.expansion.points.shape[1]
        if hasattr(model, "feature_names_in_"):
            self.feature_names_in_ = model.feature_names_in_
        self._adopt_outputs(reading.outputs)
        return self

    def _adopt_outputs(self, outputs: Any) -> None:
        raise NotImplementedError

    def _values(self, X: Any) -> FloatArray:
        check_is_fitted(self, "expansion_")
        table: Any = check_table(self, X, reset=False)
        return self.expansion_.evaluate(table, executor=Threads(self.n_jobs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is not None:
            tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags


_WORDS = {"regressor": "regressor", "classifier": "classifier", "outlier_detector": "detector of outliers"}
