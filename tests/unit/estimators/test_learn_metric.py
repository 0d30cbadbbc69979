"""``learn_metric``: what it takes, what it refuses, and what it returns."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from mercer import learn_metric
from mercer.kernels import Gaussian, Matern, Metric, Wendland

QUICK = {"n_basis": 30, "rounds": 1, "random_state": 0, "n_jobs": 1}


def draw(n=120, d=3):
    X = np.random.default_rng(0).normal(size=(n, d))
    return X, np.sin(2 * X[:, 0])


def test_numbers_are_labels_if_that_is_said():
    X, _ = draw()
    many = np.clip(np.round(12 * X[:, 0]), -14, 14)  # 29 values, in the order of x0
    folded = np.abs(many).astype(int) % 2  # two classes, that change with x0 many times
    as_numbers = learn_metric(X, many.astype(int), kernel=Matern(), **QUICK)
    as_labels = learn_metric(X, many.astype(int), kernel=Matern(), classification=True, **QUICK)
    assert not as_numbers.equals(as_labels)
    assert learn_metric(X, many, kernel=Matern(), classification=True, **QUICK).equals(as_labels)
    found = learn_metric(X, folded, kernel=Matern(), **QUICK)
    assert found.equals(learn_metric(X, folded.astype(str), kernel=Matern(), **QUICK))
    # two classes as ±1 are least squares on ±1
    assert found.equals(learn_metric(X, 2.0 * folded - 1, kernel=Matern(), classification=False, **QUICK))


KINDS = {"sparse": csr_array, "Fortran": np.asfortranarray, "float32": lambda X: X.astype(np.float32), "list": list}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_rows_of_other_kinds(kind):
    X, y = draw()
    X = X.astype(np.float32).astype(np.float64)
    expected = learn_metric(X, y, kernel="gaussian", **QUICK)
    found = learn_metric(kind(X), y, kernel="gaussian", **QUICK)
    np.testing.assert_allclose(found(X), expected(X), atol=1e-5)


def test_units_and_offsets_do_not_matter():
    X, y = draw()
    scale = 2.0 ** np.array([10, -10, 0])
    one, other = learn_metric(X, y, kernel=Matern(), **QUICK), learn_metric(X * scale + 64, y, kernel=Matern(), **QUICK)
    np.testing.assert_allclose(other(X * scale + 64), one(X), atol=1e-4)


def test_only_ratios_of_weights_that_are_no_counts_matter():
    X, y = draw()
    weights = np.random.default_rng(1).uniform(1.0, 10.0, size=len(X))
    y = y + 0.5 * np.random.default_rng(2).normal(size=len(X))
    one, other = (learn_metric(X, y, kernel=Matern(), sample_weight=unit * weights, **QUICK) for unit in (1e-3, 1e3))
    np.testing.assert_allclose(other(X), one(X), atol=1e-3)


def test_a_kernel_with_length_scales_is_where_it_starts():
    X, y = draw()
    start = Gaussian(np.array([1.0, 10.0, 100.0]))
    kernel = learn_metric(X, y, kernel=start, **QUICK | {"rounds": 0})
    ratios = np.linalg.norm(kernel.metric.matrix, axis=1) * start.length_scale
    np.testing.assert_allclose(ratios, ratios[0])
    one = learn_metric(X, y, kernel=Gaussian(Metric(np.diag(1 / start.length_scale))), **QUICK | {"rounds": 0})
    np.testing.assert_allclose(one(X), kernel(X))


def test_weights():
    X, y = draw()
    noise = np.where(np.arange(120) < 60, 0.0, 1.0) * np.sin(3 * X[:, 2])
    kernel = learn_metric(X, y + noise, kernel=Matern(), sample_weight=np.arange(120) < 60, **QUICK)
    assert kernel.equals(learn_metric(X[:60], y[:60], kernel=Matern(), **QUICK))


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.eye(3), np.arange(3.0)),
        (np.ones((2, 2)), np.arange(2.0)),
        (np.repeat(np.eye(4), 30, axis=0), np.repeat(np.arange(4.0), 30)),
        (np.column_stack([draw()[0], np.full(120, 7.0)]), draw()[1]),
        (draw()[0], np.full(120, 3.0)),
        (draw(60, 500)[0], draw(60, 500)[1]),
        (draw()[0][:, :1], draw()[1]),
        (draw()[0] * 1e6, np.where(np.arange(120) == 5, 1e6, draw()[1])),
        (draw()[0], np.random.default_rng(1).normal(size=(120, 150))),
    ],
    ids=["three", "equal", "duplicates", "constant column", "constant targets", "500", "one", "outlier", "outputs"],
)
def test_unusual_data_have_a_kernel(X, y):
    kernel = learn_metric(X, y, **QUICK)
    assert np.all(np.isfinite(kernel(X)))
    assert kernel.metric_importance_.shape == X.shape[1:]
    np.testing.assert_allclose(np.sum(kernel.metric_importance_), 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.full((120, 3), np.nan)}, "X contains NaN"),
        ({"y": np.full(120, np.inf)}, "y contains infinity"),
        ({"y": np.zeros(7)}, "inconsistent numbers of samples"),
        ({"y": np.random.default_rng(0).normal(size=120), "classification": True}, "Unknown label type"),
        ({"kernel": Wendland()}, "kernel must be"),
        ({"kernel": "linear"}, "kernel must be"),
        ({"kernel": Matern(np.ones(4))}, "4 values"),
        ({"n_basis": 0}, "n_basis"),
        ({"rounds": -1}, "rounds must be"),
        ({"time_limit": 0}, "time_limit must be"),
        ({"classification": "yes"}, "classification must be"),
        ({"sample_weight": -np.ones(120)}, "sample_weight"),
    ],
)
def test_bad_arguments_are_refused_by_name(change, message):
    X, y = draw()
    with pytest.raises(ValueError, match=message):
        learn_metric(**{"X": X, "y": y} | QUICK | change)


def test_a_short_time_limit_is_warned_of():
    X, y = draw()
    with pytest.warns(UserWarning, match="time_limit"):
        assert learn_metric(X, y, time_limit=1e-9, **QUICK).metric_importance_.shape == (3,)
