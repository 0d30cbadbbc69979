"""What each class of an archive has for attributes, of which type, and how it is put together again.

Types are those that the code itself declares: fields of dataclasses and named tuples, and what cached properties
return. For other classes, and for what estimators have after ``fit``, they stand in the tables below. Whoever writes an
archive is held to them as whoever reads one, so that a model that can be saved can be loaded.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy.sparse import csc_array
from sklearn.base import BaseEstimator

from mercer._typing import AnyArray, FloatArray, IntArray
from mercer.exceptions import ArchiveError
from mercer.expansion import KernelExpansion
from mercer.kernels import Compact, Kernel
from mercer.persistence import registry

__all__ = ["build", "check_attributes", "state_of"]

# Cached properties that are stored, so that a model predicts the same to the bit wherever it is loaded.
_CACHES = ("solved", "expansion", "mean", "_float32_is_safe")

_TOLD = re.compile(r"[a-zA-Z]\w*[a-zA-Z0-9]_", re.ASCII)

# A string is the short name of a class, a tuple are alternatives.
_FITTED: dict[str, Any] = {
    "_batches": tuple,
    "_eta": (FloatArray, None),
    "_factor": ("CholeskyFactor", None),
    "_features": tuple,
    "_fitted_frame": "Frame",
    "_flat": bool,
    "_index": IntArray,
    "_n_rows": int,
    "_precisions": FloatArray,
    "_solution": "RidgeSolution",
    "_sparse_kernel": "SparseKernel",
    "_state": "OnlineState",
    "_summary": ("Summary", "CommitteeSummary"),
    "_system": "CompactSystem",
    "_used_frame": "Frame",
    "break_ties_": bool,
    "classes_": AnyArray,
    "condition_estimate_": float,
    "coverage_": float,
    "decision_function_shape_": str,
    "decision_rule_": str,
    "differences_": FloatArray,
    "distances_": FloatArray,
    "expansion_": KernelExpansion,
    "feature_names_in_": AnyArray,
    "fill_in_": (float, None),
    "jitter_": float,
    "kernel_": Kernel,
    "labels_": IntArray,
    "min_eigenvalue_": (float, None),
    "n_features_in_": int,
    "n_iter_": int,
    "nnz_": int,
    "noise_": float,
    "objective_value_": float,
    "offset_": (float, FloatArray),
    "relative_distance_": float,
    "robust_weights_": FloatArray,
    "solver_": str,
}

# As above; what not every object has ends in "?".
_PLAIN: dict[str, dict[str, Any]] = {
    "AllPairs": {
        "_points": FloatArray,
        "_centre": FloatArray,
        "_folded": FloatArray,
        "_far": float,
        "_error": float,
    },
    "ArrayRows": {"_array": AnyArray, "_checked": bool, "n_rows": int, "n_features": int, "dtype": np.dtype},
    "BlockRecursion": {
        "rules": "Rules",
        "P_inverse": FloatArray,
        "K_inverse": FloatArray,
        "gram": FloatArray,
        "coefficients": FloatArray,
        "births": IntArray,
        "cost": float,
        "hidden_cost": float,
        "n_seen": int,
        "n_grown": int,
        "n_pruned": int,
        "n_refreshed": int,
        "n_changed": int,
        "drift": float,
    },
    "CompactSystem": {
        "gram": "SparseGram",
        "diagonal": FloatArray,
        "options": "Options",
        "n_iter": int,
        "factor": ("SparseFactor", None),
        "_precondition": ("Incomplete", "Jacobi", "unchanged", None),
    },
    "Grid": {
        "n_features": int,
        "_centre": FloatArray,
        "_axes": FloatArray,
        "_columns": IntArray,
        "order": IntArray,
        "cells": "Cells",
        "_all_pairs": ("AllPairs", None),
        "share_looked_at?": (float, None),
    },
    "Incomplete": {"pivots": FloatArray, "shift": float, "lower": csc_array},
    "SequentialLearner": {
        "kernel": Kernel,
        "recursion": "BlockRecursion",
        "points": FloatArray,
        "_values": None,
    },
    "SparseKernel": {
        "_kernel": Compact,
        "_dtype": np.dtype,
        "_n_features": int,
        "_support": float,
        "_unit": FloatArray,
        "_centre": FloatArray,
        "_grid": "Grid",
    },
}


def state_of(member: Any) -> dict[str, Any]:
    """The attributes of an object that an archive keeps."""
    if isinstance(member, tuple):
        return dict(member._asdict())  # type: ignore[attr-defined]
    state = dict(member.__getstate__() or {})
    dropped = _cached_properties(str(registry.name_of(type(member)))) - set(_CACHES)
    return _without_foreign({name: value for name, value in state.items() if name not in dropped})


def _without_foreign(state: dict[str, Any]) -> dict[str, Any]:
    """A compressed model does not need the estimator that was compressed, unless it is to be fitted again."""
    estimator = state.get("estimator")
    if estimator is None or registry.name_of(type(estimator)) is not None:
        return state
    warnings.warn(
        f"estimator is {type(estimator).__name__}, of another library, which an archive does not hold: the model that "
        "is loaded predicts the same, but has estimator=None and cannot be fitted again. (set_params(estimator=None) "
        "says that this is meant.)",
        UserWarning,
        stacklevel=2,
    )
    return state | {"estimator": None}


def check_attributes(name: str, state: Mapping[str, Any]) -> None:
    """Raise ``ArchiveError`` unless these are the attributes of a class, each of its type."""
    parameters, fitted, optional = _attributes(name)
    unknown = state.keys() - parameters.keys() - fitted.keys() - optional.keys()
    told = {each for each in unknown if _is_told(name, each)}
    unknown -= told
    if unknown:
        msg = f"{name} has an attribute {min(unknown)!r}, which an archive does not know."
        raise ArchiveError(msg)
    needed = parameters.keys() | (fitted.keys() if state.keys() - parameters.keys() else set())
    if needed - state.keys():
        msg = f"{name} lacks the attribute {min(needed - state.keys())!r}."
        raise ArchiveError(msg)
    hints = parameters | fitted | optional | dict.fromkeys(told, Any)
    for attribute, value in state.items():
        if not _fits(value, hints[attribute]):
            msg = f"{name}.{attribute} is {_described(value)}, where an archive has {_expected(hints[attribute])}."
            raise ArchiveError(msg)


def _is_told(name: str, attribute: str) -> bool:
    """Whether it is what an estimator tells of its fit besides, which nothing depends on: scikit-learn's ``name_``."""
    cls = registry.class_of(name)
    return issubclass(cls, BaseEstimator) and bool(_TOLD.fullmatch(attribute)) and not hasattr(cls, attribute)


def build(name: str, state: Mapping[str, Any]) -> Any:
    """An object of a class, by no more code than its own ``__post_init__`` or ``__setstate__``."""
    cls: Any = registry.class_of(name)
    state = dict(state)
    if issubclass(cls, tuple):
        return cls(**state)
    given = {each: state.pop(each) for each in _fields(name)}
    member = cls(**given) if given else object.__new__(cls)
    if hasattr(cls, "__setstate__") and not isinstance(member, BaseEstimator):
        member.__setstate__(state)
    else:
        vars(member).update(state)
    return member


@cache
def _attributes(name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Attributes that an object always has, has after ``fit``, and may have; with their types."""
    cls: Any = registry.class_of(name)
    if name in _PLAIN:
        optional = {each[:-1]: hint for each, hint in _PLAIN[name].items() if each[-1] == "?"}
        return {each: hint for each, hint in _PLAIN[name].items() if each[-1] != "?"}, {}, optional
    if issubclass(cls, BaseEstimator):
        parameters = dict.fromkeys(cls._get_param_names(), Any)
        fitted, besides = ({each: _FITTED[each] for each in part} for part in registry.fitted_attributes(name))
        return parameters, fitted, besides
    hints = get_type_hints(cls)
    if issubclass(cls, tuple):
        return hints, {}, {}
    kept = _cached_properties(name) & set(_CACHES)
    caches = {each: get_type_hints(inspect.getattr_static(cls, each).func)["return"] for each in kept}
    return {each: hints[each] for each in _fields(name)}, {}, caches


@cache
def _fields(name: str) -> tuple[str, ...]:
    """Fields of a dataclass, none if it is something else."""
    cls: Any = registry.class_of(name)
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else ()


@cache
def _cached_properties(name: str) -> set[str]:
    bases = registry.class_of(name).__mro__
    return {each for base in bases for each, member in vars(base).items() if isinstance(member, cached_property)}


def _fits(value: Any, hint: Any) -> bool:  # noqa: PLR0911  one line per kind of type
    """Whether a value is of a declared type."""
    if hint is Any:
        return True
    if hint is None or hint is NoneType:
        return value is None
    if isinstance(hint, str):
        return hint in (registry.name_of(type(value)), registry.name_of_function(value))
    if isinstance(hint, tuple):
        return any(_fits(value, each) for each in hint)
    if get_origin(hint) is not None:
        return _fits_generic(value, get_origin(hint), get_args(hint))
    if hint in (float, int):
        kinds = (int, np.integer) if hint is int else (int, float, np.integer, np.floating)
        return isinstance(value, kinds) and not isinstance(value, bool)
    return isinstance(value, (bool, np.bool_) if hint is bool else hint)


def _fits_generic(value: Any, origin: Any, given: tuple[Any, ...]) -> bool:
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in given)
    if origin is Literal:
        return isinstance(value, str) and value in given
    if origin is np.ndarray:  # numpy.ndarray[shape, numpy.dtype[number]]
        kind = get_args(given[1])[0]
        number = get_origin(kind) or kind
        return isinstance(value, np.ndarray) and (
            number is Any or (issubclass(value.dtype.type, number) and value.dtype.isnative)
        )
    if origin is list:
        return isinstance(value, list) and all(_fits(each, given[0]) for each in value)
    if origin is tuple:
        given = given[:1] * len(value) if given[1:] == (...,) and isinstance(value, tuple) else given
        return isinstance(value, tuple) and len(value) == len(given) and all(map(_fits, value, given))
    return isinstance(value, origin)


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    return "None" if value is None else f"of type {type(value).__name__}"


def _expected(hint: Any) -> str:
    alternatives = hint if isinstance(hint, tuple) else (hint,)
    return " or ".join(each.__name__ if inspect.isclass(each) else str(each) for each in alternatives)
