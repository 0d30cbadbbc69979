"""Which classes an archive may hold, by short names.

A file says ``"Gaussian"``; where that class lives is told by the tables of this module and by nothing else, so that no
file can name a module to import or an object to call. The tables are strings, not imports, because most of these
classes stand in layers above this one: a module is loaded when a model, or a file, has an object of its class. A class
that is not in a table (a subclass of ours, a class of another library) is neither written nor read.

To store a new estimator, add it to ``_ESTIMATORS`` with what it has after ``fit``; to store another class, add it to
``_HOMES``: dataclasses and named tuples tell their fields themselves, others in ``schema``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from mercer.kernels import KERNELS, Function

__all__ = ["class_of", "fitted_attributes", "function_of", "is_model", "name_of", "name_of_function", "names"]

_EXACT = "n_features_in_ feature_names_in_? kernel_ jitter_ n_iter_ expansion_ _factor _eta _index _n_rows"
_COMPACT = (
    "n_features_in_ feature_names_in_? kernel_ coverage_ min_eigenvalue_ nnz_ n_iter_ solver_ fill_in_ "
    "condition_estimate_ expansion_ _sparse_kernel _eta robust_weights_?"
)
_COMPRESSED = "n_features_in_ feature_names_in_? expansion_ distances_ differences_ relative_distance_"
_NYSTROM = "n_features_in_ feature_names_in_? _summary"
_ONLINE = "n_features_in_ feature_names_in_? _features? _state"

# Name: (module, attributes after fit). One that not every fitted model has ends in "?".
_ESTIMATORS = {
    "CommitteeRegressor": ("estimators.committee_regressor", f"{_NYSTROM} _batches labels_ _flat"),
    "CompactClassifier": ("estimators.compact_classifier", f"{_COMPACT} classes_"),
    "CompactRegressor": ("estimators.compact_regressor", f"{_COMPACT} _system _flat"),
    "CompressedClassifier": (
        "compression.models",
        f"{_COMPRESSED} classes_ decision_rule_ decision_function_shape_ break_ties_",
    ),
    "CompressedOutlierDetector": ("compression.models", f"{_COMPRESSED} offset_"),
    "CompressedRegressor": ("compression.models", f"{_COMPRESSED} _flat"),
    "ExactClassifier": ("estimators.exact_classifier", f"{_EXACT} classes_"),
    "ExactRegressor": ("estimators.exact_regressor", f"{_EXACT} _flat"),
    "NystromClassifier": ("estimators.nystrom_classifier", f"{_NYSTROM} classes_"),
    "NystromRegressor": ("estimators.nystrom_regressor", f"{_NYSTROM} _flat"),
    "OnlineClassifier": ("estimators.online_classifier", f"{_ONLINE} classes_"),
    "OnlineRegressor": ("estimators.online_regressor", f"{_ONLINE} _flat"),
    "PseudoInputRegressor": (
        "estimators.pseudo_input_regressor",
        "n_features_in_ feature_names_in_? _fitted_frame noise_ n_iter_ objective_value_ expansion_ _flat",
    ),
    "ReducedRankRegressor": (
        "estimators.reduced_rank_regressor",
        "n_features_in_ feature_names_in_? expansion_ _used_frame _solution _precisions _flat",
    ),
}

# Models, kernels and strategies: what can be the whole of an archive, and has parameters only, or fields.
_MODELS = {
    "Basis": "basis.base:Basis",
    "Distribution": "basis.distribution:Distribution",
    "ForwardSelection": "basis.forward_selection:ForwardSelection",
    "KMeans": "basis.kmeans:KMeans",
    "KernelExpansion": "model.expansion:KernelExpansion",
    "Leverage": "basis.leverage:Leverage",
    "PivotedCholesky": "basis.pivoted_cholesky:PivotedCholesky",
    "Sequential": "basis.sequential:Sequential",
    "SparseGreedy": "basis.sparse_greedy:SparseGreedy",
    "SupervisedCholesky": "basis.supervised_cholesky:SupervisedCholesky",
    "Uniform": "basis.uniform:Uniform",
} | {name: f"{module}:{name}" for name, (module, _) in _ESTIMATORS.items()}
_MODELS |= {
    kernel.__name__: f"{kernel.__module__.removeprefix('mercer.')}:{kernel.__name__}"
    for kernel in KERNELS
    if kernel is not Function  # which holds code
}

# What models are made of.
_PARTS = {
    "AllPairs": "engine.all_pairs:AllPairs",
    "ArrayRows": "engine.rows:ArrayRows",
    "Batch": "estimators.committee_summary:Batch",
    "BlockRecursion": "solvers.recursive.blocks:BlockRecursion",
    "Cells": "engine.neighbours:Cells",
    "CholeskyFactor": "solvers.dense:CholeskyFactor",
    "CommitteeSummary": "estimators.committee_summary:CommitteeSummary",
    "CompactSystem": "estimators.compact_system:CompactSystem",
    "ConditionalStatistics": "engine.conditional:ConditionalStatistics",
    "Data": "estimators.shell:Data",
    "Frame": "estimators.frame:Frame",
    "Grid": "engine.neighbours:Grid",
    "Incomplete": "solvers.sparse_preconditioners:Incomplete",
    "Jacobi": "solvers.sparse_preconditioners:Jacobi",
    "NormalStatistics": "engine.statistics:NormalStatistics",
    "OnlineState": "estimators.online_machine:State",
    "Options": "estimators.compact_system:Options",
    "RidgeSolution": "solvers.ridge:RidgeSolution",
    "Rules": "solvers.recursive.rules:Rules",
    "Settings": "estimators.nystrom_summary:Settings",
    "SequentialLearner": "engine.sequential:SequentialLearner",
    "SparseFactor": "solvers.sparse_cholesky:SparseFactor",
    "SparseGram": "engine.sparse_kernel:SparseGram",
    "SparseKernel": "engine.sparse_kernel:SparseKernel",
    "Summary": "estimators.nystrom_summary:Summary",
    "Variance": "model.expansion:Variance",
}

_HOMES = _MODELS | _PARTS
_NAMES = {home: name for name, home in _HOMES.items()}

# Functions of ours that a state refers to.
_FUNCTIONS = {"unchanged": "estimators.compact_system:_unchanged"}
_FUNCTION_NAMES = {home: name for name, home in _FUNCTIONS.items()}


def names() -> list[str]:
    """All short names."""
    return sorted(_HOMES)


def is_model(name: str) -> bool:
    """Whether objects of that name can be the whole of an archive."""
    return name in _MODELS


def name_of(cls: type) -> str | None:
    """The short name of a class, or None if it is not in the tables."""
    name = _NAMES.get(_home(cls))
    return name if name is not None and class_of(name) is cls else None


def class_of(name: str) -> Any:
    """The class of a short name, or None."""
    return _resolved(_HOMES[name]) if name in _HOMES else None


def name_of_function(function: Any) -> str | None:
    """The short name of a function, or None if it is not in the table."""
    name = _FUNCTION_NAMES.get(_home(function))
    return name if name is not None and function_of(name) is function else None


def function_of(name: str) -> Any:
    """The function of a short name, or None."""
    return _resolved(_FUNCTIONS[name]) if name in _FUNCTIONS else None


def fitted_attributes(name: str) -> tuple[set[str], set[str]]:
    """What an estimator has after ``fit``, and what it may have besides."""
    given = _ESTIMATORS[name][1].split() if name in _ESTIMATORS else []
    return {each for each in given if each[-1] != "?"}, {each[:-1] for each in given if each[-1] == "?"}


def _home(member: Any) -> str:
    return f"{getattr(member, '__module__', '')}:{getattr(member, '__qualname__', '')}".removeprefix("mercer.")


@cache
def _resolved(home: str) -> Any:
    module, name = home.split(":")
    return getattr(import_module(f"mercer.{module}"), name)
