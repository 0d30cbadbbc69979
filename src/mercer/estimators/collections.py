"""Dask collections: fits take them as sources of rows, and what is asked about them is answered lazily."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from mercer._typing import AnyArray
from mercer.engine import Threads, as_source, ask_lazily, is_collection, on_its_cluster, using

_Method = TypeVar("_Method", bound=Callable[..., Any])

# What has an answer for each row by itself.
_BY_ROWS = {
    "decision_function",
    "predict",
    "predict_interval",
    "predict_log_proba",
    "predict_proba",
    "score_samples",
    "transform",
}


def takes_collections(method: _Method) -> _Method:
    """A method that learns, which also takes collections as X, y and sample_weight, and runs on their cluster."""
    parameters = signature(method)

    @wraps(method)
    def learned(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._in_memory or not is_collection(args[0] if args else kwargs.get("X")):
            return method(self, *args, **kwargs)  # which refuses a collection by what to do
        given = parameters.bind(self, *args, **kwargs).arguments
        needs_targets = self.__sklearn_tags__().target_tags.required
        columns = [given["X"], given.get("y") if needs_targets else None, given.get("sample_weight")]
        with on_its_cluster(columns, verbose=int(getattr(self, "verbose", 0))):
            nothing = dict.fromkeys(parameters.parameters.keys() & {"y", "sample_weight"})
            return method(**given | nothing | {"X": as_source(*columns)})

    return learned  # type: ignore[return-value]


@dataclass(frozen=True)
class _Question:
    """What a model says about rows."""

    model: Any
    method: str
    options: dict[str, Any]

    def __call__(self, rows: Any) -> AnyArray:
        with using(Threads(1)):
            answer = getattr(self.model, self.method)(rows, **self.options)
        return np.stack(answer, axis=-1) if isinstance(answer, tuple) else np.asarray(answer)


def is_asked_lazily(method: str, X: Any) -> bool:
    """Whether a method answers for a collection of rows."""
    return method in _BY_ROWS and type(X) is not np.ndarray and is_collection(X)


def answered_lazily(model: Any, method: str, X: Any, *args: Any, **options: Any) -> Any:
    """The answer for a collection of rows, as a collection: each partition by itself, when it is computed."""
    options |= dict(zip(list(signature(getattr(model, method)).parameters)[1:], args, strict=False))
    if options.get("return_cov"):
        raise ValueError("return_cov=True makes a matrix of all pairs of rows: give few rows, in memory (X.compute()).")
    question = _Question(model, method, options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows that only stand for others
        example = question(_example(model, X))
    lazy = ask_lazily(question, X, example)
    is_pair = options.get("return_std", False) or method == "predict_interval"
    if not is_pair:
        return lazy
    if hasattr(lazy, "to_dask_array"):
        width = example[0].size
        parts = [list(range(i, width, 2)) for i in range(2)]
        return tuple(lazy[part if example.ndim == 3 else part[0]] for part in parts)
    if isinstance(lazy, list):
        return tuple([part[..., i] for part in lazy] for i in range(2))
    return lazy[..., 0], lazy[..., 1]


def _example(model: Any, X: Any) -> Any:
    """A few rows like those of a collection."""
    if isinstance(X, list):
        return np.zeros((2, model.n_features_in_))
    dtypes = X.dtypes if hasattr(X, "to_dask_array") else [X.dtype]
    dtype = np.float32 if all(each == np.float32 for each in dtypes) else np.float64
    zeros = np.zeros((2, X.shape[1]), dtype=dtype)
    return zeros if not hasattr(X, "to_dask_array") else type(X._meta)(zeros, columns=X.columns)


def lazily(method: _Method) -> _Method:
    """A method that predicts, and answers lazily for collections."""

    @wraps(method)
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        X = args[0] if args else kwargs.get("X")
        if is_asked_lazily(method.__name__, X):
            return answered_lazily(self, method.__name__, *args, **kwargs)
        return method(self, *args, **kwargs)

    return asked  # type: ignore[return-value]
