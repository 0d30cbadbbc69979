"""River's own checks, and what its estimators and ours have in common."""

from unittest.mock import patch

import numpy as np
import pytest
from river import datasets, preprocessing, stream
from river.checks import yield_checks
from river.datasets import base

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


class Transactions(base.SyntheticDataset):
    """Normal rows, one in 50 of them moved: in place of the credit cards that river would download."""

    def __init__(self):
        super().__init__(n_features=5, task=base.BINARY_CLF)

    def __iter__(self):
        rng = np.random.default_rng(0)
        for _ in range(3000):
            fraud = int(rng.random() < 0.02)
            yield {f"V{i}": v + 3.0 * fraud for i, v in enumerate(rng.normal(size=5))}, fraud


def checks_of(model):
    """River's checks, without those of its data that are downloaded."""
    with patch.object(datasets, "CreditCard", Transactions):
        return list(yield_checks(model))


def marks_of(check):
    return [pytest.mark.slow] if check.__name__ == "check_bounded_memory_growth" else []


@pytest.mark.parametrize(
    ("model", "check"),
    [
        pytest.param(model, check, marks=marks_of(check), id=f"{model}-{check.__name__}-{i}")
        for model in MODELS
        for i, check in enumerate(checks_of(model))
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
