"""Merging, forgetting and interruptions: what cannot be done leaves the fitted state as it was."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from mercer import CommitteeRegressor, NystromClassifier, NystromRegressor
from mercer.kernels import Gaussian, Matern
from tests.walks import (
    COMMITTEES,
    COMPACT,
    ESTIMATORS,
    LEARN,
    ON_BASIS,
    REGRESSORS,
    N,
    assert_refused,
    each_forgetful,
    output,
    over,
    targets_for,
    with_methods,
)

# -------------------------------------------------------------------------------------- merge and forget


MERGING = over("estimator", [cls for cls in ON_BASIS if cls in REGRESSORS and hasattr(cls, "merge")])


def merge_pair(first=None, second=None, *, estimator, rows, y=None, other_y=None):
    base = {"kernel": Gaussian(), "basis": rows[:10]}
    y = targets_for(estimator, rows) if y is None else y
    a = estimator(**base | (first or {})).fit(rows, y)
    b = estimator(**base | (second or {})).fit(rows, y if other_y is None else other_y)
    return a, b


@MERGING
def test_merge_of_different_kernels(estimator, rows):
    a, b = merge_pair(second={"kernel": Gaussian(2.0)}, estimator=estimator, rows=rows)
    assert_refused(a, lambda: a.merge(b), rows, ValueError, "different kernels")
    c, d = merge_pair(second={"kernel": Matern()}, estimator=estimator, rows=rows)
    assert_refused(c, lambda: c.merge(d), rows, ValueError, "different kernels")


@MERGING
def test_merge_of_different_bases(estimator, rows):
    a, b = merge_pair(second={"basis": rows[10:20]}, estimator=estimator, rows=rows)
    assert_refused(a, lambda: a.merge(b), rows, ValueError, "different bases.*basis=first.basis_")


@MERGING
def test_merge_of_different_outputs(estimator, rows):
    a, b = merge_pair(estimator=estimator, rows=rows, y=rows[:, 0], other_y=rows[:, :2])
    assert_refused(a, lambda: a.merge(b), rows, ValueError, "different numbers of outputs")


def test_merge_of_different_classes(rows):
    labels = np.arange(N) % 3
    a, b = merge_pair(estimator=NystromClassifier, rows=rows, y=labels, other_y=labels + 1)
    assert_refused(a, lambda: a.merge(b), rows, ValueError, "different classes")


@MERGING
def test_merge_of_other_things(estimator, rows):
    a, _ = merge_pair(estimator=estimator, rows=rows)
    others = [cls().fit(rows, rows[:, 0]) for cls in REGRESSORS if cls is not estimator]
    for other in (*others, None, a.statistics_):
        assert_refused(a, lambda other=other: a.merge(other), rows, ValueError, "cannot merge a")
    assert_refused(a, lambda: a.merge(clone(a)), rows, NotFittedError, "not fitted")
    with pytest.raises(NotFittedError):
        clone(a).merge(a)


@each_forgetful
def test_forget_of_more_rows_than_were_seen(estimator, rows):
    y = targets_for(estimator, rows)
    model = estimator().fit(rows[:30], y[:30])
    assert_refused(model, lambda: model.forget(rows, y), rows, ValueError, "cannot forget 40 rows of 30 seen")


@each_forgetful
def test_forget_twice(estimator, rows):
    y = targets_for(estimator, rows)
    model = estimator().fit(rows, y).forget(rows[:25], y[:25])
    assert_refused(model, lambda: model.forget(rows[:25], y[:25]), rows, ValueError, "cannot forget 25 rows of 15")


@each_forgetful
def test_forget_of_rows_with_more_weight_than_was_seen(estimator, rows):
    y = targets_for(estimator, rows)
    model = estimator(kernel=Gaussian()).fit(rows, y)
    call = lambda: model.forget(rows[:5], y[:5], np.full(5, 100.0))  # noqa: E731
    assert_refused(model, call, rows, ValueError, "were not seen")


def test_forget_of_as_many_rows_as_were_seen_but_of_others(rows):
    model = NystromRegressor(Gaussian(), noise=0.1, intercept=False).fit(rows, rows[:, 0])
    # Far rows of target zero: no sum of squares becomes negative, but what is left is not nothing.
    call = lambda: model.forget(rows + 100.0, np.zeros(N))  # noqa: E731
    assert_refused(model, call, rows, ValueError, "not seen")


# ----------------------------------------------------------------------------------------- interruptions


def assert_interruptions_change_nothing(make, method, rows, y):
    """``make(kernel)`` builds the model; its method is interrupted at every call of the kernel, one after the other."""
    calls = {"left": 10**9}

    def kernel(a, b):
        calls["left"] -= 1
        if calls["left"] < 0:
            raise KeyboardInterrupt
        return Gaussian()(a, b)

    model = make(kernel).fit(rows, y)
    before = output(model, rows)
    for allowed in range(100):
        calls["left"] = allowed
        try:
            getattr(model, method)(rows[:20], y[:20])
        except KeyboardInterrupt:
            calls["left"] = 10**9
            np.testing.assert_array_equal(output(model, rows), before)
        else:
            calls["left"] = 10**9
            break
    else:
        pytest.fail("a hundred calls of the kernel were not enough")
    assert allowed > 0, "the call was interrupted at least once"


@with_methods([cls for cls in ESTIMATORS if not issubclass(cls, COMPACT)], LEARN)  # those have a test of their own
def test_an_interrupted_call_changes_nothing(estimator, method, rows):
    assert_interruptions_change_nothing(estimator, method, rows, targets_for(estimator, rows))


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("options", [options for options in COMMITTEES if "kmeans" not in options.values()], ids=str)
def test_an_interruption_between_blocks_changes_nothing(method, options, rows):
    def make(kernel):
        return CommitteeRegressor(kernel, n_basis=10, random_state=0, **options)

    assert_interruptions_change_nothing(make, method, rows, targets_for(CommitteeRegressor, rows))
