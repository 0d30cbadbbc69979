"""load ∘ save is the identity on every public class, and what is loaded has the same future."""

import inspect

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier

import mercer
from mercer import (
    CommitteeRegressor,
    ExactRegressor,
    KernelExpansion,
    NystromClassifier,
    NystromRegressor,
    OnlineClassifier,
    OnlineRegressor,
)
from mercer.basis import BasisStrategy, KMeans, Leverage, PivotedCholesky
from mercer.exceptions import ArchiveError
from mercer.kernels import CompactGaussian, Function, Gaussian, Linear, Matern, Wendland
from tests.archives import answers, assert_alike, loaded, saved
from tests.kernel_cases import CASES
from tests.walks import PUBLIC, accepts, of_kind, output

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # of small searches
    pytest.mark.filterwarnings("ignore::mercer.exceptions.NegativeVarianceWarning"),  # of small bases
]

CONFIGURATIONS = [
    {},
    {"intercept": True, "n_jobs": 1},
    {"solver": "cg", "tol": 1e-10},
    {"noise": "gcv", "n_basis": 15},
    {"kernel": Gaussian(np.array([1.0, 2.0, 3.0])) + Linear(0.1), "n_basis": 10, "basis": KMeans()},
    {"kernel": Matern("median", nu=0.5), "noise": np.float32(0.5)},
    {"kernel": CompactGaussian("median", exponent=1.0), "intercept": False},
    {"kernel": Wendland(4.0), "solver": "cg", "preconditioner": "incomplete"},
    {"kernel": Wendland(4.0), "solver": "cg", "preconditioner": "two-level"},
    {"kernel": Wendland(4.0), "solver": "cg", "preconditioner": None, "noise": 1.0},
    {"ordering": "rcm", "solver": "cholesky"},
    {"robust": True},
    {"block_size": 7, "intercept": True},
    {"block_size": 1},
    {"block_size": 5, "partition": "order"},
    {"keep_rows": False},
    {"objective": "fitc", "max_iter": 3, "n_basis": 5},
    {"max_basis": 10, "record": True, "intercept": True},
    {"max_basis": 10, "forgetting": 0.99, "selection": "novelty"},
    {"n_basis": 8, "basis": PivotedCholesky(), "variance": "sor"},
    {"n_basis": 8, "basis": Leverage(), "random_state": np.random.RandomState(7)},
]
LABELS = {
    "integers": lambda y: np.where(y > 0.5, 3, np.where(y > -0.5, -1, 2)),
    "text": lambda y: np.where(y > 0, "ja", "nein"),
    "objects": lambda y: np.where(y > 0, "ja", "nein").astype(object),
    "truth": lambda y: y > 0,
    "floats": lambda y: np.where(y > 0, 1.0, -2.0),
}


def draw(seed=0, n=60, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(dtype)
    return X, X[:, 0].astype(np.float64) + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=n)


def targets(estimator, y, labels="text"):
    return LABELS[labels](y) if is_classifier(estimator()) else y


def assert_same_model(model, again, X):
    assert_alike(model, again)
    assert_alike(answers(model, X), answers(again, X))
    assert_alike(model.get_params(), again.get_params())


def assert_round_trip(model, X):
    data = saved(model)
    again = loaded(data)
    assert_same_model(model, again, X)
    assert saved(again) == saved(model)
    return again


CHOICES = [(cls, options) for cls in PUBLIC for options in CONFIGURATIONS if accepts(cls, options)]


@pytest.mark.parametrize(("estimator", "options"), CHOICES, ids=lambda v: getattr(v, "__name__", None))
def test_estimators_come_back_as_they_were(estimator, options):
    X, y = draw()
    model = clone(estimator(**options))
    assert_alike(model, loaded(saved(model)))
    assert_round_trip(model.fit(X, targets(estimator, y)), draw(1)[0])


def test_every_configuration_is_somebodys():
    assert all(any(accepts(cls, options) for cls in PUBLIC) for options in CONFIGURATIONS)


@pytest.mark.parametrize("estimator", PUBLIC)
def test_float32_rows_and_names_of_columns(estimator):
    X, y = draw(dtype=np.float32)
    frame = pd.DataFrame(X, columns=["a", "ä", "x y"])
    model = estimator().fit(frame, targets(estimator, y))
    again = assert_round_trip(model, frame)
    assert again.feature_names_in_.dtype == object
    with pytest.raises(ValueError, match="feature names should match"):
        output(again, frame[["ä", "a", "x y"]])


@pytest.mark.parametrize("estimator", of_kind(PUBLIC, "regressor"))
def test_several_outputs(estimator):
    X, y = draw()
    assert_round_trip(estimator().fit(X, np.column_stack([y, -y, y**2])), X)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("estimator", of_kind(PUBLIC, "classifier"))
def test_labels(estimator, labels):
    X, y = draw()
    again = assert_round_trip(estimator().fit(X, targets(estimator, y, labels)), X)
    assert again.classes_.dtype == np.unique(LABELS[labels](y)).dtype


def test_precomputed_kernels():
    X, y = draw()
    K = Gaussian()(X)
    assert_round_trip(ExactRegressor("precomputed", noise=0.1, intercept=False).fit(K, y), K)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels(case):
    if any(isinstance(part, Function) for part in [case.kernel, *case.kernel.get_params().values()]):
        with pytest.raises(ArchiveError, match="never runs code"):
            saved(case.kernel)
        return
    again = loaded(saved(case.kernel))
    assert_alike(case.kernel, again)
    rows, points = case.draw()
    np.testing.assert_array_equal(again(rows, points), case.kernel(rows, points))


STRATEGIES = [cls for cls in vars(mercer.basis).values() if inspect.isclass(cls) and issubclass(cls, BasisStrategy)]


@pytest.mark.parametrize("strategy", [cls for cls in STRATEGIES if cls is not BasisStrategy])
def test_basis_strategies_and_bases(strategy):
    X, y = draw()
    first = strategy()
    again = loaded(saved(first))
    assert_alike(first, again)
    bases = [each.select(X, y, Gaussian(), 6, random_state=0) for each in (first, again)]
    assert_alike(*bases)
    assert_alike(bases[0], loaded(saved(bases[0])))


def test_expansions():
    X, y = draw()
    expansion = NystromRegressor(n_basis=9, noise=0.1, intercept=False).fit(X, y).expansion_
    again = loaded(saved(expansion))
    assert isinstance(again, KernelExpansion)
    assert_alike(expansion, again)
    np.testing.assert_array_equal(expansion.variances(X), again.variances(X))
    np.testing.assert_array_equal(expansion.gradient(X), again.gradient(X))


# ----------------------------------------------------------------------------------------------- the same future


def twins(model):
    return model, loaded(saved(model))


@pytest.mark.parametrize("estimator", [NystromRegressor, NystromClassifier, CommitteeRegressor])
@pytest.mark.parametrize("intercept", [False, True])
def test_batch_learners_go_on_as_if_nothing_had_been(estimator, intercept):
    X, y = draw(0, 120)
    y, others = targets(estimator, y), draw(5)[0]
    first = estimator(n_basis=12, intercept=intercept, random_state=0)
    more = {"classes": np.unique(y)} if is_classifier(first) else {}
    model, again = twins(first.partial_fit(X[:50], y[:50], **more).partial_fit(X[50:70], y[50:70]))
    other = clone(first).set_params(basis=first.basis_, kernel=first.kernel_).fit(X[70:], y[70:])
    for each in (model, again):
        each.partial_fit(X[50:90], y[50:90])
        each.merge(other)
        if hasattr(each, "forget"):
            each.forget(X[50:70], y[50:70])
    assert_same_model(model, again, others)
    for name, args in [("noise_path", ([0.1, 1.0],)), ("loo_residuals", ())]:
        if hasattr(model, name):
            assert_alike(getattr(model, name)(*args), getattr(again, name)(*args))


@pytest.mark.parametrize("options", [{}, {"intercept": True}, {"forgetting": 0.99}, {"record": True, "max_basis": 10}])
@pytest.mark.parametrize("estimator", [OnlineRegressor, OnlineClassifier])
def test_streams_go_on_as_if_nothing_had_been(estimator, options):
    X, y = draw(0, 400)
    y, new = targets(estimator, y), draw(1)[0]
    more = {"classes": np.unique(y)} if is_classifier(estimator()) else {}
    model, again = twins(estimator(Gaussian(1.0), **options).partial_fit(X[:150], y[:150], **more))
    for each in (model, again):
        each.partial_fit(X[150:300], y[150:300])
    # Kernel values of a block are computed from another centre: the same rows are chosen, all else is so to rounding.
    np.testing.assert_array_equal(model.basis_index_, again.basis_index_)
    np.testing.assert_allclose(output(again, new), output(model, new), rtol=0, atol=1e-10)
    assert len(again.history_["n_seen"]) == len(model.history_["n_seen"])
    if "forgetting" not in options:
        model, again = twins(model)  # from here on both bind anew
        model = loaded(saved(model))
        for each in (model, again):
            each.refit(X[:300], y[:300])
            each.merge(clone(model).partial_fit(X[300:], y[300:], **more))
        assert_same_model(model, again, new)


def test_streams_of_single_rows_go_on():
    X, y = draw(0, 60)
    rows = [dict(zip("cab", map(float, row), strict=True)) for row in X]
    model = OnlineClassifier(Gaussian(1.0))
    for row, value in zip(rows[:30], y, strict=False):
        model.learn_one(row, "up" if value > 0 else "down")
    again = loaded(saved(model))
    for each in (model, again):
        for row, value in zip(rows[30:], y[30:], strict=True):
            each.learn_one(row, "high" if value > 1.5 else "up" if value > 0 else "down")
    assert list(again.classes_) == ["down", "high", "up"]
    assert [again.predict_one(row) for row in rows] == [model.predict_one(row) for row in rows]


def test_random_states_go_on():
    X, y = draw()
    model, again = twins(
        NystromRegressor(n_basis=5, random_state=np.random.RandomState(3), noise=0.1, intercept=False).fit(X, y)
    )
    np.testing.assert_array_equal(model.fit(X, y).basis_index_, again.fit(X, y).basis_index_)


def test_exact_models_keep_their_leave_one_out_residuals():
    X, y = draw()
    weights = np.where(np.arange(60) % 7, 1.0, 0.0)
    model, again = twins(ExactRegressor(intercept=True, noise=0.1).fit(X, y, weights))
    assert_alike(model.loo_residuals(), again.loo_residuals())
