"""Cross-validation of a model on a basis for many noises at once."""

from typing import Any, Literal

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv

from mercer._validation import Integral
from mercer.engine import Rows
from mercer.estimators.nystrom import NystromClassifier, NystromRegressor, check_noises
from mercer.estimators.shell import held_blas, make_executor
from mercer.methods.cross_validation import PathScores, cross_validate
from mercer.methods.splits import Splits

_LOSSES = ("squared_error", "zero_one")


def cross_validate_path(
    estimator: NystromRegressor | NystromClassifier,
    X: Any,
    y: Any,
    *,
    noises: Any = None,
    cv: Any = 5,
    loss: Literal["squared_error", "zero_one"] = "squared_error",
    sample_weight: Any = None,
    groups: Any = None,
) -> PathScores:
    r"""Cross-validate a model on a basis for many noises, in one pass over the rows.

    The kernel and the basis are chosen once, from all rows; targets of held-out rows are not used, unless the basis is
    chosen by them. Then the errors are those of refitting with ``basis=model.basis_, kernel=model.kernel_`` on each
    training set, at each noise. But nothing is refitted: the sums of a training set are those of the folds in it, added
    and not subtracted, so that no digits cancel. One eigendecomposition per split gives the models at all noises, and
    their squared errors follow from the sums of the test set.

    Time n·m² for the pass and about 20·m³ for each split; memory m² for each group of rows that all splits treat alike:
    k for k folds, more where test sets overlap, where training sets are not all other rows, or for repetitions.

    Parameters
    ----------
    estimator : NystromRegressor or NystromClassifier
        Its ``noise`` is not used. It is not changed.
    X : array (n, d)
    y : array (n,) or (n, p)
    noises : array (g,), optional
        Values of λ; by default 57 from 1e-8 to 1e6 times the mean square of the whitened features.
    cv : int, splitter or iterable of (train, test), default=5
        As in scikit-learn: an integer is a ``KFold`` without shuffling, stratified for classifiers.
    loss : {"squared_error", "zero_one"}, default="squared_error"
        "zero_one" is the share of wrong classes, for which held-out rows are read a second time, as they are for noises
        so small that the rounding of the sums would show beside the squared error. The targets of a classifier are ±1.
    sample_weight : array (n,), optional
        Weights of the rows, in training sets as in ``fit`` and in the mean error of test sets; ``class_weight`` is
        multiplied in, with "balanced" referring to all rows.
    groups : array (n,), optional
        For splitters such as ``GroupKFold``.

    Returns
    -------
    PathScores
        ``noises``, ``errors`` (splits, noises, outputs), their ``mean`` and ``standard_error``, ``best_noise`` and
        ``one_standard_error_noise``.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import NystromRegressor, cross_validate_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, size=(10_000, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=10_000)
    >>> scores = cross_validate_path(NystromRegressor(n_basis=50, random_state=0), X, y, cv=10)
    >>> scores.errors.shape
    (10, 57, 1)
    >>> round(float(scores.mean.min()), 2)  # the variance of the noise
    0.01
    """
    if not isinstance(estimator, NystromRegressor | NystromClassifier):
        raise TypeError(
            "estimator must be a NystromRegressor or a NystromClassifier, whose fit is a sum over the rows; got "
            f"{estimator!r}. For others there is sklearn.model_selection.cross_validate."
        )
    is_classifier = isinstance(estimator, NystromClassifier)
    if loss not in _LOSSES[: 1 + is_classifier]:
        raise ValueError(f"loss must be one of {_LOSSES[: 1 + is_classifier]} for this estimator, got {loss!r}.")
    noises = None if noises is None else check_noises(noises)
    model = clone(estimator)
    model._validate_params()
    table = model._read(X, y, sample_weight, first=True)
    pairs = _splits(cv, X, y, groups, table.n_rows, is_classifier)
    with held_blas(model):
        return cross_validate(
            table, model._choose_frame(table, table.dtype), Splits.of(pairs, table.n_rows), noises,
            intercept=bool(model.intercept), coding=table.coding if loss == "zero_one" else None,
            executor=make_executor(model),
        )  # fmt: skip


def _splits(cv: Any, X: Any, y: Any, groups: Any, n_rows: int, is_classifier: bool) -> list[tuple[Any, Any]]:
    if isinstance(cv, Integral) and cv < 2:
        raise ValueError(f"cv must be at least 2 folds, a splitter or pairs (train, test), got {cv}.")
    splitter = check_cv(cv, np.asarray(y), classifier=is_classifier)
    rows = np.zeros((n_rows, 1)) if isinstance(X, Rows) else X
    pairs = list(splitter.split(rows, y, groups))
    if len(pairs) < 2:
        raise ValueError(f"cv must make at least 2 splits, got {len(pairs)}: {cv!r}.")
    return pairs
