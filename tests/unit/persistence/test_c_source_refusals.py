"""What cannot be written in C is refused by name."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.svm import SVC

from mercer import ExactRegressor
from mercer.kernels import Function, Gaussian, Linear, Precomputed
from mercer.model import KernelExpansion
from mercer.persistence import to_c
from tests.export_cases import FORMULAS, Classifier, expansion_of


def test_what_float_cannot_hold_is_refused():
    for kernel, vector, coefficient in (Gaussian(1e39), 1e39, 1.0), (Gaussian(1e39), 1.0, 1.0):
        expansion = KernelExpansion(kernel, np.full((2, 1), vector), np.full((2, 1), coefficient), np.zeros(1))
        if vector > 1e38:
            with pytest.raises(ValueError, match="vectors of the model exceed what float32 can hold"):
                to_c(expansion)
        to_c(expansion, dtype="double")


@pytest.mark.parametrize("name", ["", "1st", "a b", "a-b", "é", "_a", "a_", "a__b", "a\n", None, 3])
def test_names_that_are_none(name):
    with pytest.raises(ValueError, match="name must be an identifier"):
        to_c(expansion_of(FORMULAS[0]), name=name)


@pytest.mark.parametrize("dtype", ["float32", np.float32, float, None])
def test_other_types(dtype):
    with pytest.raises(ValueError, match="dtype must be 'float' or 'double'"):
        to_c(expansion_of(FORMULAS[0]), dtype=dtype)


@pytest.mark.parametrize("kernel", [Function(np.inner), Precomputed()], ids=["function", "precomputed"])
def test_kernels_without_a_formula(kernel):
    with pytest.raises(TypeError, match="has no closed form for C or ONNX: give"):
        to_c(KernelExpansion(kernel, np.ones((2, 2)), np.ones((2, 1)), np.zeros(1)))


def test_models_that_are_none():
    with pytest.raises(TypeError, match="got a SVC"):
        to_c(SVC().fit([[0.0], [1.0]], [0, 1]))
    with pytest.raises(NotFittedError):
        to_c(ExactRegressor(noise=0.1, intercept=False))

    class Model:
        expansion_ = "none"

        @property
        def other(self):
            raise AttributeError("a step cannot be folded")

    with pytest.raises(TypeError, match="expansion_ of the model must be a KernelExpansion, got a str"):
        to_c(Model())
    Model.expansion_ = Model.other
    with pytest.raises(TypeError, match="a step cannot be folded"):
        to_c(Model())


@pytest.mark.parametrize(
    ("classes", "rule", "message"),
    [
        ([0, 1, 2], "threshold", "'threshold', 3 classes and 1 output"),
        ([0, 1], "anything", "'anything', 2 classes"),
    ],
)
def test_rules_that_do_not_fit(classes, rule, message):
    class Model:
        classes_, decision_rule_ = np.array(classes), rule
        expansion_ = KernelExpansion(Linear(), np.ones((1, 1)), np.ones((1, 1)), np.zeros(1))

    with pytest.raises(ValueError, match=message):
        to_c(Model())


@pytest.mark.parametrize("classes", [["a", 1], [1, 2.5, "b"], [(1, 2), (3, 4)], [0, 2**63]])
def test_classes_of_several_types(classes):
    labels = np.empty(len(classes), dtype=object)
    labels[:] = classes
    with pytest.raises(TypeError, match="classes of a model"):
        to_c(Classifier(labels, "threshold" if len(classes) == 2 else "largest"))


@pytest.mark.parametrize("values", [np.nan, np.inf])
def test_models_with_numbers_that_are_none(values):
    with pytest.raises(ValueError, match="finite numbers"):
        to_c(KernelExpansion(Gaussian(), np.ones((2, 1)), np.full((2, 1), values), np.zeros(1)))


def test_models_without_vectors():
    with pytest.raises(ValueError, match="at least one vector"):
        to_c(KernelExpansion(Gaussian(), np.ones((0, 2)), np.ones((0, 1)), np.zeros(1)))
