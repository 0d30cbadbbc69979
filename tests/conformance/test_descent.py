"""What holds for every estimator holds for those by stochastic gradient descent, which have steps and no noise."""

import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV

import mercer
from mercer.engine import Sequence, Threads, using
from mercer.kernels import Gaussian
from tests.doubles import GuardedRows
from tests.walks import DESCENDING, answers, output, over, targets_for

N = 400
ROWS = np.where(np.random.default_rng(0).random((N, 3)) < 0.3, 0.0, np.random.default_rng(1).normal(size=(N, 3)))
each_estimator = over("estimator", DESCENDING)


def same(model, expected, rows=ROWS):
    said = answers(expected, rows)
    for method, answer in answers(model, rows).items():
        if answer.dtype.kind == "f":
            np.testing.assert_allclose(answer, said[method], rtol=0, atol=1e-10 * np.max(np.abs(said[method])))
        else:
            np.testing.assert_array_equal(answer, said[method])


@each_estimator
def test_copies_and_archives_predict_the_same_and_go_on_alike(estimator, tmp_path):
    y = targets_for(estimator, ROWS)
    model = estimator(max_basis=60, random_state=0).partial_fit(ROWS[:100], y[:100])  # with its first rows
    mercer.save(model, tmp_path / "model")
    copies = pickle.loads(pickle.dumps(model)), mercer.load(tmp_path / "model")
    model.partial_fit(ROWS[100:], y[100:])
    for copy in copies:
        same(copy.partial_fit(ROWS[100:], y[100:]), model)
    mercer.save(model, tmp_path / "model")
    same(mercer.load(tmp_path / "model"), model)


@each_estimator
def test_where_rows_lie_and_who_computes_does_not_matter(estimator, tmp_path):
    y = targets_for(estimator, ROWS)
    expected = estimator(random_state=0).fit(ROWS, y)
    sources = [sparse.csr_array(ROWS), np.asfortranarray(ROWS), GuardedRows(ROWS, longest_take=2048), ROWS[::-1][::-1]]
    for rows in sources:
        same(estimator(random_state=0).fit(rows, y), expected)
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    model = estimator(random_state=0).fit(frame, pd.Series(y))
    np.testing.assert_array_equal(output(model, frame), output(expected, ROWS))
    for executor in (Threads(2), Sequence()):
        with using(executor):
            same(estimator(random_state=0).fit(ROWS, y), expected)


@each_estimator
def test_grid_search_reaches_kernel_and_steps(estimator):
    grid = {"kernel__length_scale": [0.5, 2.0], "learning_rate": [0.1, 0.4], "regularization": [0.01]}

    def score(model, X, y=None):
        return float(np.mean(output(model, X)))

    search = GridSearchCV(estimator(Gaussian()), grid, cv=2, scoring=score).fit(ROWS, targets_for(estimator, ROWS))
    assert search.best_estimator_.kernel_.length_scale == search.best_params_["kernel__length_scale"]
    assert len(np.unique(search.cv_results_["mean_test_score"])) == 4


@each_estimator
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_rows_change_nothing(estimator, bad):
    y, spoilt = targets_for(estimator, ROWS), ROWS.copy()
    spoilt[-1, 0] = bad
    model = estimator(random_state=0).fit(ROWS, y)
    before = output(model, ROWS)
    for method in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            method(spoilt, y)
        np.testing.assert_array_equal(output(model, ROWS), before)


@each_estimator
def test_memory_is_bounded(estimator):
    rows = np.random.default_rng(2).normal(size=(60_000, 3))
    y = targets_for(estimator, rows)
    model = estimator(Gaussian(2.0), max_basis=50).partial_fit(rows[:1000], y[:1000])
    tracemalloc.start()
    try:
        model.partial_fit(rows, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < rows.shape[0] * 50 * 8 // 2
