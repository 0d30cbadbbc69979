"""Expansions without a model, and what compress refuses."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, OutlierMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from mercer import (
    ExactRegressor,
    KernelExpansion,
)
from mercer.compression import (
    CompressedOutlierDetector,
    CompressedTransformer,
    as_expansion,
    compress,
)
from mercer.kernels import Gaussian
from mercer.model import Components, Novelty
from mercer.persistence import to_c
from tests.compression_cases import features, make_rows, values_of


def test_an_expansion_becomes_a_regressor_that_cannot_be_fitted(rows):
    points = make_rows(50, 3)
    expansion = KernelExpansion(Gaussian(2.0), points, np.ones((50, 1)), np.zeros(1))
    small = compress(expansion, 5, random_state=0)
    np.testing.assert_allclose(small.predict(rows), expansion.evaluate(rows)[:, 0], rtol=0.05)
    with pytest.raises(TypeError, match="a model that was compressed from an expansion has none"):
        small.fit(rows, values_of(rows))


def test_a_model_without_support_vectors_is_a_constant(rows):
    model = SVR().fit(rows, np.full(len(rows), 3.0))
    assert len(model.support_) == 0
    small = compress(model, 5)
    np.testing.assert_allclose(small.predict(rows), model.predict(rows))


def test_kernels_without_a_gradient_are_refused_or_not_moved(rows, queries):
    model = KernelRidge(kernel="laplacian", alpha=0.1).fit(rows, values_of(rows))
    with pytest.raises(ValueError, match="no gradient, so vectors cannot be moved: pass refine=False"):
        compress(model, 5)
    small = compress(model, 40, refine=False)
    assert np.corrcoef(small.predict(queries), model.predict(queries))[0, 1] > 0.95


def test_models_on_a_kernel_matrix_are_refused(rows):
    model = ExactRegressor("precomputed", noise=0.1, intercept=False).fit(Gaussian()(rows), values_of(rows))
    with pytest.raises(ValueError, match="precomputed"):
        compress(model, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "n_vectors or tol must be given"),
        ({"n_vectors": 0}, "'n_vectors' parameter .* must be an int in the range"),
        ({"n_vectors": 2.5}, "'n_vectors' parameter"),
        ({"n_vectors": True}, "n_vectors must be a whole number of at least 1, got True"),
        ({"n_vectors": 5, "metric": "kernel"}, "'metric' parameter .* must be a str among"),
        ({"tol": -1.0}, "'tol' parameter"),
        ({"tol": 0.0}, "'tol' parameter"),
        ({"tol": np.inf}, "'tol' parameter"),
        ({"tol": "small"}, "'tol' parameter"),
        ({"n_vectors": 5, "refine": "yes"}, "'refine' parameter"),
        ({"n_vectors": 5, "X": np.zeros((4, 3))}, "X has 3 features, but CompressedRegressor is expecting 2"),
        ({"n_vectors": 5, "X": np.zeros((0, 2))}, "0 sample"),
        ({"n_vectors": 5, "X": np.full((4, 2), np.nan), "metric": "data"}, "NaN"),
    ],
)  # fmt: skip
def test_arguments_are_refused_by_name(options, message, rows):
    with pytest.raises(ValueError, match=message):
        compress(SVR().fit(rows, values_of(rows)), **options)


@pytest.mark.parametrize("model", [SVR(), make_pipeline(StandardScaler(), SVR()), make_pipeline(features(), Ridge())])
def test_models_that_are_not_fitted_are_refused(model):
    with pytest.raises(NotFittedError):
        compress(model, 5)


def test_other_models_are_refused(rows):
    with pytest.raises(TypeError, match="a LinearRegression is not a kernel expansion that is known here"):
        compress(LinearRegression().fit(rows, rows[:, 0]), 5)


# ----------------------------------------------------------------------------------- transformers and detectors of ours


class _Fitted(BaseEstimator):
    """What an estimator of mercer's has after a fit: an expansion, and what its columns mean."""

    def fit(self, X, y=None):
        columns = 1 if isinstance(self.outputs_, Novelty) else 2
        coefficients = np.random.default_rng(0).normal(size=(len(X), columns))
        self.expansion_ = KernelExpansion(Gaussian(), np.asarray(X), coefficients, np.zeros(columns))
        return self


class ToyTransformer(TransformerMixin, _Fitted):
    outputs_ = Components()

    def transform(self, X):
        return self.outputs_.predict(self.expansion_.evaluate(X))


class ToyDetector(OutlierMixin, _Fitted):
    outputs_, offset_ = Novelty(0.5), 0.5

    def predict(self, X):
        return self.outputs_.predict(self.expansion_.evaluate(X))


def test_a_transformer_is_an_expansion_that_is_exported_as_values(rows):
    model = ToyTransformer().fit(rows[:30])
    np.testing.assert_array_equal(as_expansion(model).evaluate(rows), model.transform(rows))
    assert "_predict(const double *x, double *out)" in to_c(model, dtype="double")


def test_a_transformer_stays_one(rows):
    model = ToyTransformer().fit(rows[:30])
    small = compress(model, 30)
    assert isinstance(small, CompressedTransformer)
    np.testing.assert_array_equal(small.transform(rows), model.transform(rows))
    assert list(small.get_feature_names_out()) == ["compressedtransformer0", "compressedtransformer1"]
    assert small.set_output(transform="pandas").transform(rows).shape == (len(rows), 2)
    assert not hasattr(small, "predict")


def test_a_detector_stays_one(rows):
    model = ToyDetector().fit(rows[:30])
    small = compress(model, 30)
    assert isinstance(small, CompressedOutlierDetector)
    np.testing.assert_array_equal(small.predict(rows), model.predict(rows))
    np.testing.assert_allclose(small.score_samples(rows), small.decision_function(rows) + 0.5)
