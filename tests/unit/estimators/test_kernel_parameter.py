"""The parameter ``kernel`` of every estimator: White in it, scikit-learn's kernels, names and nested parameters."""

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.gaussian_process import kernels as gp
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mercer
from mercer import (
    AutoRegressor,
    CommitteeRegressor,
    CompactClassifier,
    CompactRegressor,
    ExactClassifier,
    ExactRegressor,
    NystromClassifier,
    NystromRegressor,
    OnlineClassifier,
    OnlineRegressor,
    PseudoInputRegressor,
    ReducedRankRegressor,
    load,
    save,
)
from mercer.kernels import Function, Gaussian, Linear, Matern, Periodic, Precomputed, Wendland, White

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 5, size=(150, 2))
Y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=150)
NEW = RNG.uniform(0, 5, size=(20, 2))

MODELS = {
    "exact": ExactRegressor(),
    "exact, cg": ExactRegressor(solver="cg", tol=1e-12, random_state=0),
    "exact classifier": ExactClassifier(),
    "nystrom": NystromRegressor(n_basis=40, random_state=0),
    "nystrom classifier": NystromClassifier(n_basis=40, random_state=0),
    "committee": CommitteeRegressor(n_basis=40, block_size=50, random_state=0),
    "reduced rank": ReducedRankRegressor(n_basis=40, random_state=0),
    "pseudo inputs": PseudoInputRegressor(n_basis=10, random_state=0, max_iter=3, tol=1.0),
    "pseudo inputs, given": PseudoInputRegressor(
        n_basis=10, random_state=0, fit_kernel=False, fit_noise=False, tol=1.0
    ),
    "compact": CompactRegressor(random_state=0),
    "compact classifier": CompactClassifier(random_state=0),
    "online": OnlineRegressor(max_basis=40),
    "online classifier": OnlineClassifier(max_basis=40),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def is_compact(model):
    return isinstance(model, (CompactRegressor, CompactClassifier))


def a_kernel(model):
    return Wendland(2.0, dimension=2) if is_compact(model) else Gaussian(1.3)


def targets(model):
    return np.median(Y) < Y if is_classifier(model) else Y


def values(model):
    if is_classifier(model):
        return model.decision_function(NEW)
    return model.predict(NEW) if getattr(model, "solver", "") == "cg" else np.stack(model.predict(NEW, return_std=True))


def with_a_kernel():
    public = (getattr(mercer, name) for name in mercer.__all__)
    classes = [each for each in public if isinstance(each, type) and hasattr(each, "_get_param_names")]
    return {each for each in classes if "kernel" in each._get_param_names() and hasattr(each, "fit")}


NOISY = {type(model) for model in MODELS.values()}


def test_every_estimator_with_a_noise_is_here():
    assert {each for each in with_a_kernel() if "noise" in each._get_param_names()} <= NOISY


@pytest.mark.parametrize("estimator", sorted(with_a_kernel() - NOISY, key=str), ids=lambda each: each.__name__)
def test_those_without_a_noise_refuse_one_in_the_kernel(estimator):
    with pytest.raises(ValueError, match="has no noise: take White out of the kernel, and choose"):
        estimator(Gaussian(1.3) + White(0.1)).fit(X, np.median(Y) < Y)


# ---------------------------------------------------------------------------------------------------------------- White


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@every_model
@pytest.mark.parametrize("noise", [0.05, 1.0])
def test_white_is_noise(model, noise):
    kernel = a_kernel(model)
    plain = clone(model).set_params(kernel=kernel, noise=noise + 0.2).fit(X, targets(model))
    split = clone(model).set_params(kernel=White(0.2) + kernel, noise=noise).fit(X, targets(model))
    assert split.kernel_.equals(plain.kernel_)
    assert split.noise_ == pytest.approx(plain.noise_, rel=1e-9)
    np.testing.assert_allclose(values(split), values(plain), rtol=1e-7, atol=1e-9)


CHOOSING = {name: model for name, model in MODELS.items() if model.noise == "auto" and name != "pseudo inputs"}


@pytest.mark.parametrize("model", CHOOSING.values(), ids=CHOOSING.keys())
def test_with_white_no_noise_is_chosen(model):
    kernel = a_kernel(model)
    split = clone(model).set_params(kernel=kernel + White(0.2)).fit(X, targets(model))
    assert split.noise_ == pytest.approx(0.2, rel=1e-15)


@every_model
def test_white_alone_is_refused(model):
    message = "must be 'wendland' or a kernel of compact support" if is_compact(model) else "is noise alone: add"
    with pytest.raises(ValueError, match=message):
        clone(model).set_params(kernel=White(), noise=0.1).fit(X, targets(model))


def test_white_takes_part_in_partial_fit_and_merge():
    kernel = Gaussian(1.3) + White(0.2)
    for make in (
        lambda **given: NystromRegressor(n_basis=30, random_state=0, **given),
        lambda **given: OnlineRegressor(max_basis=40, **given),
    ):
        whole = make(kernel=Gaussian(1.3), noise=0.3).partial_fit(X[:80], Y[:80]).partial_fit(X[80:], Y[80:])
        parts = make(kernel=kernel, noise=0.1).partial_fit(X[:80], Y[:80]).partial_fit(X[80:], Y[80:])
        np.testing.assert_allclose(parts.predict(NEW), whole.predict(NEW), rtol=1e-9)
    first = NystromRegressor(kernel, n_basis=30, noise=0.1, random_state=0).fit(X[:80], Y[:80])
    second = NystromRegressor(kernel, basis=first.basis_, noise=0.1).fit(X[80:], Y[80:])
    whole = NystromRegressor(Gaussian(1.3), basis=first.basis_, noise=0.3).fit(X, Y)
    np.testing.assert_allclose(first.merge(second).predict(NEW), whole.predict(NEW), rtol=1e-8)


def test_white_beside_a_precomputed_matrix():
    K = Gaussian(1.3)(X)
    split = ExactRegressor(Precomputed() + White(0.2), noise=0.1).fit(K, Y)
    plain = ExactRegressor("precomputed", noise=0.2 + 0.1).fit(K, Y)
    np.testing.assert_allclose(split.predict(K), plain.predict(K), rtol=1e-10)
    with pytest.raises(ValueError, match="kernel='precomputed' is for ExactRegressor"):
        NystromRegressor(Precomputed() + White(0.2)).fit(X, Y)


def test_a_model_with_white_is_saved(tmp_path):
    model = ExactRegressor(Gaussian(1.3) + White(0.2), noise=0.1).fit(X, Y)
    save(model, tmp_path / "model.mercer")
    again = load(tmp_path / "model.mercer")
    assert again.kernel.equals(model.kernel)
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))


# ---------------------------------------------------------------------------------------------- scikit-learn's kernels


@every_model
def test_kernels_of_scikit_learn_are_read(model):
    if is_compact(model):
        with pytest.raises(ValueError, match="compact support"):
            clone(model).set_params(kernel=gp.RBF()).fit(X, targets(model))
        return
    read = clone(model).set_params(kernel=gp.RBF(1.3) + gp.WhiteKernel(0.2), noise=0.1)
    plain = clone(model).set_params(kernel=Gaussian(1.3), noise=0.1 + 0.2)
    if isinstance(model, PseudoInputRegressor):
        read, plain = (each.set_params(fit_kernel=False, fit_noise=False) for each in (read, plain))
    read, plain = read.fit(X, targets(model)), plain.fit(X, targets(model))
    assert read.kernel_.equals(plain.kernel_)
    np.testing.assert_allclose(values(read), values(plain), rtol=1e-9, atol=1e-11)


def test_a_search_over_a_kernel_of_scikit_learn():
    model, scales = ExactRegressor(gp.RBF() + gp.WhiteKernel(0.1)), [0.01, 1.0]
    search = GridSearchCV(model, {"kernel__k1__length_scale": scales}, cv=2)
    assert search.fit(X, Y).best_params_ == {"kernel__k1__length_scale": 1.0}
    assert isinstance(search.best_estimator_.kernel, gp.Sum)


# --------------------------------------------------------------------------------------------------- nested parameters


@every_model
def test_a_name_becomes_an_object_when_one_of_its_parameters_is_set(model):
    model = clone(model)
    name = model.kernel
    assert isinstance(name, str)
    assert model.set_params(kernel__amplitude=2.0) is model
    assert model.kernel.equals(Wendland("auto", amplitude=2.0) if is_compact(model) else Gaussian("median", 2.0))
    assert model.get_params()["kernel__amplitude"] == 2.0
    assert clone(model).kernel.equals(model.kernel)
    assert model.set_params(**model.get_params()).kernel.amplitude == 2.0
    assert "amplitude=2.0" in repr(model)
    namespace = {type(model).__name__: type(model), **vars(mercer.kernels)}
    assert eval(repr(model), namespace).kernel.equals(model.kernel)
    assert model.set_params(kernel=name).kernel == name
    model.set_params(kernel__amplitude=1.0, noise=0.1)
    plain = clone(model).set_params(kernel=name)
    np.testing.assert_array_equal(values(model.fit(X, targets(model))), values(plain.fit(X, targets(model))))


@pytest.mark.parametrize(
    "given",
    [
        {"kernel": "matern", "kernel__nu": 2.5},
        {"kernel__nu": 2.5, "kernel": "matern"},
        {"kernel__nu": 2.5, "noise": 0.5, "kernel": "matern"},
        {"kernel__nu": 2.5, "kernel": Matern("median")},
    ],
    ids=str,
)
def test_the_kernel_and_its_parameter_in_one_call(given):
    assert ExactRegressor().set_params(**given).kernel.equals(Matern("median", nu=2.5))


@every_model
def test_an_unknown_parameter_is_refused_with_the_kernels_and_nothing_is_changed(model):
    model = clone(model)
    before = model.get_params()
    with pytest.raises(ValueError, match=r"Invalid parameter 'nu' .*Valid parameters are: \[.*'length_scale'"):
        model.set_params(noise=0.7, kernel__nu=1.5)
    assert model.get_params() == before
    with pytest.raises(ValueError, match=r"kernel must be (one of|'wendland')"):
        model.set_params(kernel="gauss", kernel__length_scale=1.5)
    assert model.get_params() == before


def test_functions_and_precomputed_matrices():
    function = ExactRegressor(gp.RBF().__call__).set_params(kernel__amplitude=2.0)
    assert isinstance(function.kernel, Function)
    with pytest.raises(ValueError, match="'precomputed' has no parameters"):
        ExactRegressor("precomputed").set_params(kernel__length_scale=1.0)


def test_an_estimator_without_a_kernel_says_so():
    with pytest.raises(ValueError, match="Invalid parameter 'kernel' for estimator AutoRegressor"):
        AutoRegressor().set_params(kernel__length_scale=1.0)


@pytest.mark.parametrize("model", [ExactRegressor(noise=0.1), MODELS["nystrom"]], ids=["exact", "nystrom"])
@pytest.mark.parametrize("in_pipeline", [False, True])
def test_searches_from_the_default_kernel(model, in_pipeline):
    prefix, searched = "", clone(model)
    if in_pipeline:
        searched, prefix = make_pipeline(StandardScaler(), clone(model)), f"{type(model).__name__.lower()}__"
    scales = [0.01, 1.0, 1000.0]
    grid = GridSearchCV(searched, {f"{prefix}kernel__length_scale": scales}, cv=3, error_score="raise").fit(X, Y)
    by_hand = [clone(model).set_params(kernel=Gaussian(scale)) for scale in scales]
    if in_pipeline:
        by_hand = [make_pipeline(StandardScaler(), each) for each in by_hand]
    expected = [
        GridSearchCV(each, {}, cv=3, error_score="raise").fit(X, Y).cv_results_["mean_test_score"][0]
        for each in by_hand
    ]
    np.testing.assert_allclose(grid.cv_results_["mean_test_score"], expected, rtol=1e-12)
    assert grid.best_params_ == {f"{prefix}kernel__length_scale": scales[int(np.argmax(expected))]}
    assert searched.get_params()[f"{prefix}kernel"] == "gaussian"  # what was given is not changed
    several = {f"{prefix}kernel": ["matern"], f"{prefix}kernel__nu": [0.5, 1.5, 2.5]}
    random = RandomizedSearchCV(searched, several, n_iter=3, cv=2, random_state=0, error_score="raise").fit(X, Y)
    best = random.best_estimator_.get_params()[f"{prefix}kernel"]
    assert best.length_scale == "median"
    assert best.nu == random.best_params_[f"{prefix}kernel__nu"]


@pytest.mark.parametrize(("name", "kernel"), [("rbf", Gaussian("median")), ("periodic", Periodic())])
def test_names(name, kernel):
    found, expected = (ExactRegressor(each, noise=0.1).fit(X, Y).predict(NEW) for each in (name, kernel))
    np.testing.assert_array_equal(found, expected)
    assert not np.allclose(found, ExactRegressor(Linear(), noise=0.1).fit(X, Y).predict(NEW))
