"""A SciPy sparse matrix is a table like any other: each tile is made dense when it is read."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import mercer
from mercer.kernels import Gaussian
from tests.walks import ESTIMATORS, PUBLIC, SUPERVISED, output, over, targets_for

N = 300
RNG = np.random.default_rng(0)
DENSE = np.where(RNG.random((N, 4)) < 0.5, 0.0, RNG.normal(size=(N, 4)))


def make(estimator):
    options = {"noise": 0.1, "random_state": 0, "n_basis": 15, "kernel": Gaussian(1.5)}
    known = {*estimator().get_params(), *(["n_basis"] if "max_basis" in estimator().get_params() else [])}
    return estimator(**{name: value for name, value in options.items() if name in known})


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
@over("estimator", ESTIMATORS)
def test_a_sparse_matrix_gives_what_the_dense_one_gives(estimator, kind):
    y = targets_for(estimator, DENSE)
    dense, model = make(estimator).fit(DENSE, y), make(estimator).fit(kind(DENSE), y)
    for rows in (DENSE, kind(DENSE)):
        for found, expected in zip([output(model, rows)], [output(dense, DENSE)], strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * max(1.0, np.max(np.abs(expected))))


@over("estimator", [cls for cls in ESTIMATORS if hasattr(cls, "partial_fit")])
def test_sparse_batches(estimator):
    y = targets_for(estimator, DENSE)
    models = make(estimator), make(estimator)
    for rows, model in zip((DENSE, sparse.csr_array(DENSE)), models, strict=True):
        for start in range(0, N, 100):
            model.partial_fit(rows[start : start + 100], y[start : start + 100])
        if hasattr(model, "forget"):
            model.forget(rows[:100], y[:100])
    for found, expected in zip(*([output(model, DENSE)] for model in models), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * max(1.0, np.max(np.abs(expected))))


@over("estimator", SUPERVISED)
def test_a_pipeline_of_one_hot_columns(estimator):
    letters = RNG.choice(list("abc"), size=(N, 2))
    encoder = make_column_transformer((OneHotEncoder(sparse_output=True), [0, 1]), sparse_threshold=1.0)
    y = targets_for(estimator, DENSE)
    model = make_pipeline(encoder, make(estimator)).fit(letters, y)
    assert sparse.issparse(encoder.fit(letters).transform(letters))
    assert len(model.predict(letters)) == N


@over("estimator", PUBLIC)
def test_a_model_of_sparse_rows_is_saved(estimator, tmp_path):
    model = estimator().set_params(random_state=0).fit(sparse.csr_array(DENSE), targets_for(estimator, DENSE))
    mercer.save(model, tmp_path / "model")
    np.testing.assert_array_equal(output(mercer.load(tmp_path / "model"), DENSE), output(model, DENSE))
