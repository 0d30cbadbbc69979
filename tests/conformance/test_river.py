"""River's own checks, and what its estimators and ours have in common."""

import numpy as np
import pytest
from river import datasets, preprocessing, stream
from river.checks import yield_checks

import mercer
from mercer.river import NormaClassifier, NormaNoveltyDetector, NormaRegressor, OnlineClassifier, OnlineRegressor

MODELS = [
    OnlineRegressor(),
    OnlineRegressor(max_basis=20, forgetting=0.99),
    OnlineClassifier(),
    OnlineClassifier(max_basis=20, intercept=False),
    NormaRegressor(max_basis=50),
    NormaClassifier(max_basis=50),
    NormaNoveltyDetector(max_basis=50),
]


def marks_of(check):
    return [pytest.mark.slow] if check.__name__ == "check_bounded_memory_growth" else []


@pytest.mark.parametrize(
    ("model", "check"),
    [
        pytest.param(model, check, marks=marks_of(check), id=f"{model}-{check.__name__}-{i}")
        for model in MODELS
        for i, check in enumerate(yield_checks(model))
    ],
)
def test_contract(model, check):
    check(model.clone())


def test_rows_one_by_one_are_the_batch():
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = np.sin(X[:, 0])
    one, batch = OnlineRegressor(max_basis=30), mercer.OnlineRegressor(max_basis=30)
    batch.partial_fit(X[:128], y[:128]).partial_fit(X[128:], y[128:])  # the first 128 decide the length scale
    for x, target in stream.iter_array(X, y):
        one.learn_one(x, target)
    expected = batch.predict(X[:20])
    found = [one.predict_one(x) for x, _ in stream.iter_array(X[:20], y[:20])]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("make", [OnlineClassifier, NormaClassifier])
def test_a_pipeline_learns(make):
    model = preprocessing.StandardScaler() | make(max_basis=50)
    hits = []
    for x, y in datasets.Phishing().take(800):
        hits.append(model.predict_one(x) == y)
        model.learn_one(x, y)
    assert np.mean(hits[200:]) > 0.8
