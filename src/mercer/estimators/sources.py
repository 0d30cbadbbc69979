"""What estimators make of a source that is given as X: its features, and the columns that stand for y and weights."""

from typing import Any

import numpy as np

from mercer._typing import AnyArray, FloatArray
from mercer._validation import check_labels, check_sample_weight, check_summable, check_targets
from mercer.engine import ArrayTable, Described, Executor, Rows, Source, SourceColumn, SourceRows, describe
from mercer.model import OneVsRest


def rows_of_source(estimator: Any, source: Source, *, reset: bool) -> SourceRows:
    """Remember (``reset``) or compare the features of a source; those with names may come in another order."""
    names = source.feature_names
    if reset:
        estimator.n_features_in_ = source.n_features
        vars(estimator).pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        return SourceRows(source)
    known = getattr(estimator, "feature_names_in_", None)
    if names is not None and known is not None and names != tuple(known):
        return SourceRows(source.with_features(tuple(known)))
    if source.n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {source.n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
    return SourceRows(source)


def has_labels(rows: Rows, y: Any) -> bool:
    """Whether y is a column of the source from which the rows come; one that is given twice is refused."""
    there = isinstance(rows, SourceRows) and rows.source.label_shape is not None
    if there and y is not None:
        raise ValueError("y is given twice: as an argument, and as a column of X (target=). Leave one out.")
    if isinstance(rows, SourceRows) and not there and y is None:
        raise ValueError("requires y to be passed, but the target y is None: name its column (target=), or give it.")
    return there


def read_targets(rows: Rows, y: Any) -> tuple[Any, bool]:
    """Targets, (n,) or (n, p) or a column of a source, and whether they have one dimension."""
    if has_labels(rows, y):
        source = rows.source  # type: ignore[attr-defined]
        return SourceColumn(source, "labels"), source.label_shape == ()
    targets = check_targets(y, n_rows=rows.n_rows)
    check_summable(targets)
    return targets, targets.ndim == 1


def read_weights(rows: Rows, sample_weight: Any, described: Described | None, executor: Executor) -> FloatArray | None:
    """Weights of rows, an array or a column of a source, checked."""
    source = rows.source if isinstance(rows, SourceRows) else None
    if source is None or not source.has_weights:
        return check_sample_weight(sample_weight, n_rows=rows.n_rows)
    if sample_weight is not None:
        raise ValueError("sample_weight is given twice: as an argument, and as a column of X (weight=). Leave one out.")
    found = describe(source, with_classes=False, executor=executor) if described is None else described
    check_sample_weight(np.array([found.least, found.largest]), n_rows=2)
    column: Any = SourceColumn(source, "weights", are_counts=found.are_counts)
    return column  # type: ignore[no-any-return]  # which behaves as an array where it is indexed


def described_labels(rows: Rows, y: Any, executor: Executor) -> tuple[AnyArray, Described | None]:
    """Labels of all rows or, of a source, one of each class with what else is known of them."""
    if not has_labels(rows, y):
        return check_labels(y, n_rows=rows.n_rows), None
    found = describe(rows.source, with_classes=True, executor=executor)  # type: ignore[attr-defined]
    classes = found.classes[0] if found.classes else np.empty(0)
    return check_labels(classes, n_rows=len(classes)), found


def coded_table(rows: Rows, outputs: OneVsRest, weights: Any, factors: FloatArray | None) -> ArrayTable:
    """The table of a source whose labels are classes, with weights by class where there are any."""
    source = rows.source  # type: ignore[attr-defined]
    labels: Any = SourceColumn(source, "labels", encoder=outputs)
    if factors is not None:
        weights = SourceColumn(source, "weights", encoder=outputs, factors=factors)
    return ArrayTable(rows, labels, weights, outputs, relative=factors is not None)
