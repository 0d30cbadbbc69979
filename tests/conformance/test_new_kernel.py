"""A kernel that is added as CONTRIBUTING says, one class with its formula and slope, is a kernel like any other."""

import inspect
from itertools import product

import numpy as np
import pytest

from mercer import (
    CommitteeRegressor,
    ExactClassifier,
    ExactRegressor,
    NystromRegressor,
    OnlineRegressor,
    PseudoInputRegressor,
    compress,
    save,
)
from mercer.datasets import make_waves
from mercer.exceptions import ArchiveError
from mercer.kernels import Formula, Gaussian, Stationary, elementwise
from mercer.kernels.closed_form import OfDistance
from mercer.kernels.profiles import exp
from mercer.persistence import to_c, to_onnx
from tests.conformance import test_kernel_gradients, test_kernels
from tests.kernel_cases import Case, is_stationary


@elementwise
def value(E, share):
    k = exp(E)
    return (1 - share) * k + share * k**4


@elementwise
def slope(E, share):
    k = exp(E)
    return (1 - share) * k + 4 * share * k**4


class TwoScales(Stationary):
    def __init__(self, length_scale=1.0, share=0.5, amplitude=1.0):
        self.length_scale = length_scale
        self.share = share
        self.amplitude = amplitude

    def formula(self):
        return Formula(value, slope, (self.share,))


KERNELS = [TwoScales(), TwoScales(np.array([0.5, 1.0, 3.0]), share=0.2, amplitude=2.5)]
every_new_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=["default", "other parameters"])


# ------------------------------------------------------------------------------------------- what every kernel promises


def checks():
    """The conformance tests of kernels, each with all values of its other parameters."""
    for module in (test_kernels, test_kernel_gradients):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            marks = {mark.args[0]: mark.args[1] for mark in getattr(function, "pytestmark", [])}
            if name.startswith("test_") and "case" in marks:
                yield name, function, marks


def arguments(marks):
    """All combinations of the values in the marks, but those of the kernel."""
    choices = []
    for given, values in marks.items():
        if given == "case":
            continue
        names = (given,) if isinstance(given, str) else given
        choices.append([dict(zip(names, v if len(names) > 1 else [v], strict=True)) for v in values])
    for combination in product(*choices):
        yield {name: value for chosen in combination for name, value in chosen.items()}


CHECKS = {name: (function, marks) for name, function, marks in checks()}
UNKNOWN_GRADIENT = {"test_an_unknown_gradient_is_refused"}


@every_new_kernel
@pytest.mark.parametrize("name", sorted(CHECKS.keys() - UNKNOWN_GRADIENT))
def test_conformance(name, kernel):
    function, marks = CHECKS[name]
    for chosen in arguments(marks):
        function(case=Case(kernel), **chosen)


def test_the_checks_are_found():
    assert len(CHECKS) > 30
    assert is_stationary(KERNELS[0])
    assert CHECKS.keys() >= UNKNOWN_GRADIENT


def test_an_old_kernel_is_its_own_limit():
    rows = np.random.default_rng(0).normal(size=(20, 3))
    np.testing.assert_allclose(TwoScales(share=0.0)(rows), Gaussian()(rows), rtol=1e-14)


# ------------------------------------------------------------------------------------------------------ fit and predict


@pytest.fixture(scope="module")
def waves():
    X, y = make_waves(400, n_features=2, random_state=0)
    return X[:300], y[:300], X[300:], y[300:]


def test_the_exact_model_solves_its_system(waves):
    X, y, X_test, _ = waves
    kernel = TwoScales(0.7, share=0.3, amplitude=1.5)
    define = Case(kernel).define
    expected = define(X_test, X) @ np.linalg.solve(define(X, X) + 0.1 * np.eye(len(X)), y)
    mean, spread = ExactRegressor(kernel, noise=0.1, intercept=False).fit(X, y).predict(X_test, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=1e-10)
    assert np.all((spread > 0) & np.isfinite(spread))


@pytest.mark.parametrize(
    "make",
    [
        lambda kernel: ExactRegressor(kernel, noise=1e-2),
        lambda kernel: NystromRegressor(kernel, n_basis=60, noise=1e-2, random_state=0),
        lambda kernel: CommitteeRegressor(kernel, n_basis=60, noise=1e-2, random_state=0),
        lambda kernel: PseudoInputRegressor(kernel, n_basis=20, random_state=0),
        lambda kernel: OnlineRegressor(kernel, noise=1e-2, max_basis=80),
    ],
    ids=["exact", "nystrom", "committee", "pseudo inputs", "online"],
)
def test_estimators_take_it(make, waves):
    X, y, X_test, y_test = waves
    model = make(TwoScales("median")).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)) < 0.3 * np.std(y_test)


def test_classifiers_and_compression_take_it(waves):
    X, y, X_test, y_test = waves
    model = ExactClassifier(TwoScales("median"), noise=1e-2).fit(X, y > 0)
    assert np.mean(model.predict(X_test) == (y_test > 0)) > 0.9
    small = compress(model, n_vectors=40, random_state=0)
    assert np.mean(small.predict(X_test) == model.predict(X_test)) > 0.95


# --------------------------------------------------------------------------------------------------------------- export


@pytest.mark.parametrize("export", [to_c, to_onnx])
def test_export_refuses_a_kernel_without_a_closed_form_by_name(export, waves):
    X, y, *_ = waves
    message = "the kernel TwoScales has no closed form for C or ONNX: give TwoScales a method `closed_form`"
    for kernel in (TwoScales(), Gaussian() + TwoScales()):
        model = ExactRegressor(kernel, noise=0.1).fit(X[:20], y[:20])
        with pytest.raises(TypeError, match=message):
            export(model)


class Halved(Gaussian):
    """A subclass of a kernel that can be exported, with another formula."""

    def formula(self):
        return Formula(value, slope, (0.5,))


class Declared(TwoScales):
    """The same for a closed form that is not this kernel's, to see that it is read."""

    def closed_form(self, n_features):
        return OfDistance(float(self.amplitude), self.inverse_scale(n_features), "squared")


def test_a_closed_form_is_not_inherited_and_is_read_where_it_is_declared(waves):
    X, y, *_ = waves
    with pytest.raises(TypeError, match="the kernel Halved has no closed form"):
        to_c(ExactRegressor(Halved(), noise=0.1).fit(X[:20], y[:20]))
    assert "expf(" in to_c(ExactRegressor(Declared(), noise=0.1).fit(X[:20], y[:20]))


def test_archives_refuse_it_as_every_class_that_is_not_ours(tmp_path, waves):
    X, y, *_ = waves
    with pytest.raises(ArchiveError, match="TwoScales: loading a model never runs code"):
        save(ExactRegressor(TwoScales(), noise=0.1).fit(X[:20], y[:20]), tmp_path / "model.mercer")
