"""Whether the parts of a model fit each other: see ``checks``."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from mercer.exceptions import ArchiveError
from mercer.kernels import Precomputed
from mercer.model import OneVsOne, OneVsRest
from mercer.persistence.checks import PARTS, check_columns, check_index, check_kernel, check_shape, check_square, need
from mercer.persistence.registry import name_of

__all__ = ["check"]


def check(name: str, state: Mapping[str, Any]) -> None:
    """Raise ``ArchiveError`` unless the attributes of an object of that class fit together."""
    test, member = (PARTS | _MODELS).get(name), SimpleNamespace(**state)
    try:
        if test is not None:
            test(member)
        if "n_features_in_" in state:
            _estimator(member)
    except (TypeError, IndexError, AttributeError, OverflowError) as error:  # of a shape that nothing has
        msg = f"the parts of {name} do not fit together: {error}"
        raise ArchiveError(msg) from error


def _frame(frame: Any) -> None:
    points = frame.basis.points
    check_square(frame.lower, len(points), "the factor of a basis", order="F")
    check_kernel(frame.kernel, points.shape[1])
    need(frame.dtype in (np.float32, np.float64), "a basis is neither float32 nor float64.")


def _summary(summary: Any) -> None:
    statistics = getattr(summary.statistics, "normal", summary.statistics)
    m, p = len(summary.frame.lower), len(summary.target_shift)
    check_shape(summary.target_shift, (p,), "the shift of targets")
    need(statistics.n_features == m, f"sums have {statistics.n_features} features, the basis has {m} points.")
    need(len(statistics.sums) == m + p + 1, f"sums are not those of {p} outputs.")
    solved = vars(summary).get("solved")
    expansion = vars(summary).get("expansion") if solved is None else solved[0]
    if expansion is not None:
        check_shape(expansion.points, summary.frame.basis.points.shape, "points of a model")
        check_shape(expansion.coefficients, (m, p), "coefficients of a model")


def _data(data: Any) -> None:
    check_columns(data.targets, data.rows.n_rows, "kept targets")
    if data.weights is not None:
        check_shape(data.weights, (data.rows.n_rows,), "kept weights")


def _batch(batch: Any) -> None:
    for block in batch.blocks or []:
        if isinstance(block, slice):
            need(block.start is not None and block.stop is not None, "a block has no bounds.")
            need(0 <= block.start <= block.stop <= batch.data.rows.n_rows, "a block goes beyond the rows.")
        else:
            check_index(block, batch.data.rows.n_rows, "a block")


def _committee(model: Any) -> None:
    for batch in vars(model).get("_batches", ()):
        need(name_of(type(batch)) == "Batch", "a committee keeps something else than its rows.")
        need(batch.data.rows.n_features == model.n_features_in_, "a committee keeps rows of other features.")
        need(batch.data.targets.shape[1] == len(model._summary.target_shift), "a committee keeps other targets.")


def _state(state: Any) -> None:
    for name in ("mean", "expansion"):
        expansion = vars(state).get(name)
        if expansion is not None:
            check_shape(expansion.points, state.learner.points.shape, "points of a model")
            hidden = state.learner.recursion.rules.hidden
            n_outputs = state.learner.recursion.coefficients.shape[1] - hidden
            check_shape(expansion.intercept, (n_outputs,), "the intercept of a model")


def _system(system: Any) -> None:
    n = system.gram.n_points
    check_shape(system.diagonal, (n,), "noises")
    for part in (system.factor, system._precondition):
        pivots = getattr(part, "pivots", getattr(part, "diagonal", None))
        need(pivots is None or len(pivots) == n, "a factor is not of the size of its matrix.")
    need(system.factor is not None or np.all(system.diagonal > 0), "noises are not positive.")


def _exact(model: Any) -> None:
    if "expansion_" not in vars(model):
        return
    m = len(model.expansion_.points)
    need(model._factor is None or len(model._factor.lower) == m, "the factor of a model has other points.")
    check_shape(model._index, (m,), "row numbers")
    check_index(model._index, model._n_rows, "row numbers")
    need(model._eta is None or model._eta.shape == (m,), "the solution for the intercept has other points.")


def _compact(model: Any) -> None:
    if "expansion_" not in vars(model):
        return
    n, d = model.expansion_.points.shape
    grid = model._sparse_kernel._grid
    need(len(grid.order) == n and grid.n_features == d, "the grid of a model has other points.")
    need(model._eta is None or model._eta.shape == (n,), "the solution for the intercept has other points.")
    need(not hasattr(model, "_system") or model._system.gram.n_points == n, "the system of a model has other points.")


def _reduced_rank(model: Any) -> None:
    if "expansion_" not in vars(model):
        return
    check_shape(model._precisions, (len(model.expansion_.points),), "precisions")
    check_shape(model._solution.mean, (len(model._used_frame.lower),), "means of features")


def _pseudo_inputs(model: Any) -> None:
    if "expansion_" in vars(model):
        check_shape(model._fitted_frame.basis.points, model.expansion_.points.shape, "the basis")


def _estimator(model: Any) -> None:
    """What all fitted estimators have in common."""
    given, n_features, (n_outputs, kernel, width) = vars(model), model.n_features_in_, _outputs(model)
    need(n_features >= 1, "a model has no features.")
    need(isinstance(kernel, Precomputed) or width == n_features, f"a model of {n_features} features has {width}.")
    if "feature_names_in_" in given:
        names = given["feature_names_in_"]
        check_shape(names, (n_features,), "names of features")
        need(all(isinstance(each, str) for each in names.tolist()), "names of features are no text.")
    if "classes_" in given:
        classes = given["classes_"]
        check_shape(classes, (len(classes),), "classes")
        rule = given.get("decision_rule_")
        outputs = OneVsOne(classes) if rule == "pairs" else OneVsRest(classes)
        fits = n_outputs == outputs.n_columns and rule in (None, outputs.rule)
        need(fits, f"a model of {len(classes)} classes has {n_outputs} outputs.")
    if given.get("_flat"):
        need(n_outputs == 1, "a model of one-dimensional targets has several outputs.")


def _outputs(model: Any) -> tuple[int, Any, int]:
    """Number of outputs, kernel, and width of the points."""
    given = vars(model)
    if "expansion_" in given:
        expansion = given["expansion_"]
        return expansion.coefficients.shape[1], expansion.kernel, expansion.points.shape[1]
    if "_summary" in given:
        frame = given["_summary"].frame
        return len(given["_summary"].target_shift), frame.kernel, frame.basis.points.shape[1]
    learner = given["_state"].learner
    recursion = learner.recursion
    return recursion.coefficients.shape[1] - recursion.rules.hidden, learner.kernel, learner.points.shape[1]


_MODELS = {
    "Batch": _batch,
    "CommitteeRegressor": _committee,
    "CommitteeSummary": _summary,
    "CompactClassifier": _compact,
    "CompactRegressor": _compact,
    "CompactSystem": _system,
    "Data": _data,
    "ExactClassifier": _exact,
    "ExactRegressor": _exact,
    "Frame": _frame,
    "OnlineState": _state,
    "PseudoInputRegressor": _pseudo_inputs,
    "ReducedRankRegressor": _reduced_rank,
    "Summary": _summary,
}
