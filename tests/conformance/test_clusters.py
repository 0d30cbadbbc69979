"""Every estimator that takes rows gives the same model on threads, on processes and on a Dask cluster."""

import inspect
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from mercer import CompactClassifier, CompactRegressor, ExactClassifier, ExactRegressor, on
from mercer.engine import Threads, using
from mercer.exceptions import GeneralisationWarning, NegativeVarianceWarning
from mercer.kernels import Gaussian
from tests.clusters import chunked, cluster
from tests.processes import Processes
from tests.walks import PUBLIC, answers, output, over, targets_for

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # of sockets that Dask closes late
]

N, LENGTHS = 700, (130, 270, 300)
RNG = np.random.default_rng(0)
ROWS, WEIGHTS = RNG.normal(size=(N, 2)), RNG.integers(1, 3, N).astype(float)
IN_MEMORY = (ExactClassifier, ExactRegressor, CompactClassifier, CompactRegressor)
# The front door chooses by the time that is left, so two fits need not choose alike.
TIMED = ("AutoRegressor", "AutoClassifier")
LEARNING = [cls for cls in PUBLIC if not issubclass(cls, IN_MEMORY) and cls.__name__ not in TIMED]


@pytest.fixture(scope="module")
def client():
    with cluster() as client:
        yield client


def make(estimator):
    known = inspect.signature(estimator).parameters
    wanted = {
        "kernel": Gaussian(1.5), "n_basis": 15, "max_basis": 15, "noise": 0.1, "random_state": 0, "max_iter": 50,
        "n_components": 3, "block_size": 200, "tol": 1e-10, "fit_points": False, "fit_kernel": False,
        "fit_noise": False, "learning_rate": 0.1, "regularization": 0.01,
    }  # fmt: skip
    return estimator(**{name: value for name, value in wanted.items() if name in known})


def fitted(estimator, rows, targets, weights):
    options = {"sample_weight": weights} if has_fit_parameter(estimator, "sample_weight") else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NegativeVarianceWarning)
        warnings.simplefilter("ignore", GeneralisationWarning)
        return make(estimator).fit(rows, targets, **options)


def assert_same(one, other):
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.nanmax(np.abs(other)))


def coefficients(model):
    return model.expansion_.coefficients if hasattr(model, "expansion_") else model.coefficients_


@over("estimator", LEARNING)
def test_threads_processes_and_dask_give_the_same_coefficients(estimator, client):
    targets = targets_for(estimator, ROWS)
    X, y, w = (chunked(each, LENGTHS) for each in (ROWS, targets, WEIGHTS))
    with using(Threads(2)):
        expected = fitted(estimator, X, y, w)
    model = fitted(estimator, X, y, w)
    assert_same(coefficients(model), coefficients(expected))
    assert_same(output(model, ROWS), output(expected, ROWS))
    for executor in (using(Processes()), on(client)):
        with executor:
            in_memory = fitted(estimator, ROWS, targets, WEIGHTS)
        assert_same(coefficients(in_memory), coefficients(fitted(estimator, ROWS, targets, WEIGHTS)))
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(output(loaded, ROWS), output(model, ROWS))


@over("estimator", LEARNING)
def test_what_is_asked_about_a_collection_is_answered_lazily(estimator, client):
    model = fitted(estimator, ROWS, targets_for(estimator, ROWS), None)
    X = chunked(ROWS, LENGTHS)
    for method, expected in answers(model, ROWS).items():
        lazy = getattr(model, method)(X)
        assert lazy.shape == expected.shape
        assert lazy.dtype == expected.dtype
        assert lazy.chunks[0] == LENGTHS
        answer = lazy.compute()
        if answer.dtype.kind == "f":
            assert_same(answer, expected)
        else:
            np.testing.assert_array_equal(answer, expected)
    if "return_std" in inspect.signature(getattr(model, "predict", print)).parameters:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NegativeVarianceWarning)
            for lazy, expected in zip(
                model.predict(X, return_std=True), model.predict(ROWS, return_std=True), strict=True
            ):
                assert_same(lazy.compute(), expected)


@over("estimator", IN_MEMORY)
def test_who_needs_all_rows_together_says_what_to_do(estimator, client):
    model = make(clone(estimator()).__class__)
    with pytest.raises(TypeError, match=r"X is a Dask Array.* call X.compute\(\)"):
        model.fit(chunked(ROWS, LENGTHS), targets_for(estimator, ROWS))
