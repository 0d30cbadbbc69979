"""Rows that come one at a time, as mappings from features to numbers, as river has them."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from mercer._stored import Sometimes
from mercer._typing import FloatArray
from mercer._validation import parameters


@parameters
class MappedRows:
    """An estimator whose features the first mapping names."""

    _features: Sometimes[tuple[Any, ...]] = field(init=False)

    def _name_features(self, x: Mapping[Any, Any]) -> int:
        """Take the features of a mapping for those of the model; returns their number."""
        if not x:
            raise ValueError("x must have at least one feature.")
        try:  # an order that does not depend on the mapping's: their own, if they have one
            self._features = tuple(sorted(x))
        except TypeError:
            self._features = tuple(sorted(x, key=str))
        self.n_features_in_ = len(self._features)
        if all(
            isinstance(name, str) for name in self._features
        ):  # scikit-learn compares them with those of data frames
            self.feature_names_in_ = np.array(self._features, dtype=object)
        return self.n_features_in_

    def _one(self, x: Mapping[Any, Any]) -> FloatArray:
        """A row from a mapping of features: those of the first row, 0 where one is missing; others are ignored."""
        names = self._features if hasattr(self, "_features") else getattr(self, "feature_names_in_", None)
        if names is None:
            raise ValueError("the model was fitted to arrays, which have no feature names.")
        return np.array([[_number(x.get(name, 0.0), name) for name in names]])


def has_no_weight(sample_weight: Any, y: Any) -> bool:
    """Whether there is a weight for each target, and all are zero: scikit-learn's own check refuses them."""
    if sample_weight is None:
        return False
    weights = np.asarray(sample_weight)
    return weights.shape == np.shape(y)[:1] and weights.dtype.kind in "biuf" and not np.any(weights)


def _number(value: Any, name: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"feature {name!r} is {value!r}, which is not a number.") from None
