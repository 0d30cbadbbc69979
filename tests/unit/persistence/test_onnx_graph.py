import json
import sys

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.svm import SVC

import mercer
from mercer import ExactRegressor, NystromPCA
from mercer.kernels import CompactGaussian, Function, Gaussian, Linear, Matern, Periodic, Polynomial, Precomputed
from mercer.model import KernelExpansion
from mercer.persistence import to_onnx
from tests.export_cases import (
    KINK_TOLERANCE,
    STRINGS,
    TOLERANCE,
    Classifier,
    every_classifier,
    every_formula,
    expansion_of,
    expected_values,
    has_kink,
    rows_of,
)
from tests.kernel_cases import is_stationary

onnx = pytest.importorskip("onnx", reason="onnx is not installed (the extra 'onnx')")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (the extra 'onnx')")

both = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def session_of(graph):
    return onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])


def run(graph, rows):
    session = session_of(graph)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": rows}), strict=True))


# ---------------------------------------------------------------------------------------------------- values


@both
@pytest.mark.parametrize("options", [{}, {"whiten": True}], ids=["plain", "whitened"])
def test_components_are_values_of_the_graph(options, dtype):
    rows = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    model = NystromPCA(Gaussian(2.0), n_components=3, n_basis=20, random_state=0, **options).fit(rows)
    found = run(to_onnx(model, dtype=dtype), rows.astype(dtype))["prediction"]
    expected = model.expansion_.evaluate(rows.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-10)


@both
@every_formula
def test_every_kernel_as_it_is_defined(case, dtype):
    expansion, rows = expansion_of(case), rows_of(case)
    expected, bound = expected_values(case, expansion, rows)
    found = run(to_onnx(expansion, dtype=dtype), rows.astype(dtype))["prediction"]
    tolerance = KINK_TOLERANCE if has_kink(case.kernel) else TOLERANCE
    assert found.dtype == dtype
    assert np.all(np.abs(found - expected) <= tolerance[dtype] * bound)


@every_formula
def test_float64_inside_a_float32_graph_rounds_the_result_alone(case):
    expansion, rows = expansion_of(case), rows_of(case)
    expected, bound = expected_values(case, expansion, rows)
    found = run(to_onnx(expansion, arithmetic=np.float64), rows.astype(np.float32))["prediction"]
    assert found.dtype == np.float32
    tolerance = KINK_TOLERANCE if has_kink(case.kernel) else TOLERANCE
    rounded = np.finfo(np.float32).eps / 2 * np.abs(expected)
    assert np.all(np.abs(found - expected) <= rounded + tolerance[np.float64] * bound)


@both
@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_any_number_of_rows(n, dtype):
    expansion = KernelExpansion(Gaussian(), np.zeros((1, 2)), np.ones((1, 1)), np.ones(1))
    found = run(to_onnx(expansion, dtype=dtype), np.zeros((n, 2), dtype=dtype))["prediction"]
    np.testing.assert_array_equal(found, np.full((n, 1), 2.0))


@both
def test_vectors_far_from_zero(dtype):
    rng = np.random.default_rng(0)
    points = 4096.0 + rng.integers(-64, 64, size=(30, 3)) / 32
    expansion = KernelExpansion(Gaussian(), points, rng.normal(size=(30, 1)), np.zeros(1))
    found = run(to_onnx(expansion, dtype=dtype), points.astype(dtype))["prediction"]
    near = KernelExpansion(Gaussian(), points - 4096, expansion.coefficients, np.zeros(1)).evaluate(points - 4096)
    assert np.max(np.abs(found - near)) <= 20 * np.finfo(dtype).eps * np.max(np.abs(near))


@both
@every_formula
def test_nan_is_not_hidden_and_the_far_away_is_finite(case, dtype):
    graph = to_onnx(expansion_of(case), dtype=dtype)
    rows = np.zeros((2, 3), dtype=dtype)
    rows[1, 1] = np.nan
    assert np.isnan(run(graph, rows)["prediction"]).tolist() == [[False, False], [True, True]]
    if is_stationary(case.kernel):
        far = np.full((1, 3), np.finfo(dtype).max)
        values = run(graph, far)["prediction"]
        assert np.all(np.isfinite(values))
        if not isinstance(case.kernel, Periodic):
            np.testing.assert_allclose(values, [[0.5, -2.0]])


def test_powers_too_large_for_products():
    rng = np.random.default_rng(0)
    points, rows = rng.normal(size=(4, 2)), rng.normal(size=(9, 2))
    kernel = Polynomial(degree=129, scale=0.2, offset=0.5) + CompactGaussian(3.0, exponent=150.5)
    expansion = KernelExpansion(kernel, points, rng.normal(size=(4, 1)), np.zeros(1))
    found = run(to_onnx(expansion, dtype=np.float64), rows)["prediction"]
    np.testing.assert_allclose(found, expansion.evaluate(rows), atol=1e-11 * np.max(np.abs(found)))


# ---------------------------------------------------------------------------------------------------- classes


@both
@every_classifier
def test_every_rule_and_every_tie(classifier, dtype):
    rows = classifier.every_sign()
    found = run(to_onnx(classifier, dtype=dtype), rows.astype(dtype))
    np.testing.assert_array_equal(found["decision"], rows)
    assert found["label"].tolist() == classifier.classes_[classifier.expected(rows)].tolist()


def test_labels_of_no_rows():
    for classes, rule in ([1, 2], "threshold"), ([1, 2, 3], "largest"), ([1, 2, 3], "pairs"):
        classifier = Classifier(np.array(classes), rule)
        found = run(to_onnx(classifier), np.empty((0, classifier.n_outputs), dtype=np.float32))
        assert found["label"].shape == (0,)
        assert found["label"].dtype == np.int64


def test_votes_are_libsvms():
    X, y = make_classification(400, n_informative=4, n_classes=5, n_clusters_per_class=1, random_state=0)
    machine = SVC(decision_function_shape="ovo").fit(X, y)
    values = machine.decision_function(X)
    found = run(to_onnx(Classifier(machine.classes_, "pairs"), dtype=np.float64), values)
    assert found["label"].tolist() == machine.predict(X).tolist()


# ---------------------------------------------------------------------------------------------------- estimators


# The automatic estimators transform their columns, and say that they cannot be exported.
@pytest.mark.parametrize("name", [name for name in mercer.__all__ if name.endswith("Regressor") and "Auto" not in name])
@pytest.mark.parametrize("width", [1, 2])
def test_every_regressor(name, width):
    X = np.random.default_rng(0).normal(size=(80, 3))
    y = np.sin(X[:, :width])
    model = getattr(mercer, name)().fit(X, y[:, 0] if width == 1 else y)
    found = run(to_onnx(model, dtype=np.float64), X)["prediction"]
    np.testing.assert_allclose(found, np.reshape(model.predict(X), (80, width)), atol=1e-8)


@pytest.mark.filterwarnings("ignore::mercer.exceptions.StarvedWarning")  # of compact kernels in 20 dimensions
@pytest.mark.parametrize(
    "name", [name for name in mercer.__all__ if name.endswith("Classifier") and "Auto" not in name]
)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_every_classifier(name, n_classes):
    X, y = make_classification(150, n_informative=4, n_classes=n_classes, n_clusters_per_class=1, random_state=0)
    model = getattr(mercer, name)().fit(X, np.array(STRINGS)[y])
    found = run(to_onnx(model, dtype=np.float64), X)
    assert found["label"].tolist() == model.predict(X).tolist()
    decisions = np.reshape(model.decision_function(X), (150, -1))
    np.testing.assert_allclose(found["decision"], decisions, atol=1e-8)


# ------------------------------------------------------------------------------------------------- float32's limits


def alternating():
    """An interpolant of a smooth function by a wide kernel: coefficients of 1e5, a function of size 1."""
    x = np.linspace(0, 1, 12)[:, np.newaxis]
    kernel = Gaussian(0.4)
    coefficients = np.linalg.lstsq(kernel(x), np.sin(6 * x), rcond=1e-14)[0]
    assert np.max(np.abs(coefficients)) > 1e4
    return KernelExpansion(kernel, x, coefficients, np.zeros(1)), x


def test_float32_is_tried_before_it_is_promised():
    expansion, x = alternating()
    with pytest.warns(UserWarning, match=r"in float32 .*arithmetic=np.float64") as caught:
        graph = to_onnx(expansion)
    assert caught[0].filename == __file__
    error = np.max(np.abs(run(graph, x.astype(np.float32))["prediction"] - np.sin(6 * x)))
    assert error > 1e-3  # the warning is right


def test_the_remedy_remedies():
    expansion, x = alternating()
    # Inputs as a float32 graph gets them: rounding these is the caller's.
    rows = x.astype(np.float32)
    found = run(to_onnx(expansion, arithmetic=np.float64), rows)["prediction"]
    np.testing.assert_allclose(found, expansion.evaluate(rows.astype(np.float64)), rtol=1e-6, atol=1e-7)


def test_what_float32_cannot_hold_is_refused():
    expansion = KernelExpansion(Linear(), np.ones((1, 1)), np.full((1, 1), 1e39), np.zeros(1))
    with pytest.warns(UserWarning, match="in float32"), pytest.raises(ValueError, match="coefficients of the model"):
        to_onnx(expansion)
    expansion = KernelExpansion(Gaussian(1e39), np.full((2, 1), 1e39), np.ones((2, 1)), np.zeros(1))
    with pytest.raises(ValueError, match="vectors of the model exceed what float32 can hold"):
        to_onnx(expansion)
    to_onnx(expansion, dtype=np.float64)


# ---------------------------------------------------------------------------------------------------- the file


@every_formula
def test_checker_and_shape_inference(case):
    graph = to_onnx(expansion_of(case))
    onnx.checker.check_model(graph, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(graph, check_type=True, strict_mode=True, data_prop=True)
    (output,) = inferred.graph.output
    n, p = output.type.tensor_type.shape.dim
    assert (n.dim_param, p.dim_value) == ("n", 2)


def test_what_the_file_says_of_itself(tmp_path):
    path = tmp_path / "model.onnx"
    graph = to_onnx(Classifier(np.array(["no", "yes"]), "threshold"), path=path, name="decider")
    stored = onnx.load(path)
    assert stored == graph
    assert (stored.producer_name, stored.producer_version) == ("mercer", mercer.__version__)
    assert stored.graph.name == "decider"
    properties = session_of(stored).get_modelmeta().custom_metadata_map
    assert json.loads(properties["classes"]) == ["no", "yes"]
    assert (properties["decision_rule"], properties["kernel"]) == ("threshold", "Linear()")


def test_equal_length_scales_share_their_nodes():
    points = np.random.default_rng(0).normal(size=(4, 2))
    kernel = Gaussian(0.7) + Gaussian(0.7, amplitude=3.0) * Linear()
    graph = to_onnx(KernelExpansion(kernel, points, np.ones((4, 1)), np.zeros(1)))
    operators = [node.op_type for node in graph.graph.node]
    assert operators.count("ReduceSumSquare") == 1
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.graph.initializer}
    assert len({(array.shape, array.dtype.str, array.tobytes()) for array in constants.values()}) == len(constants)
    (clip,) = (node for node in graph.graph.node if node.op_type == "Clip")
    assert [constants[name].shape for name in clip.input[1:]] == [(), ()]  # the standard wants scalars


# ---------------------------------------------------------------------------------------------------- refusals


def laplacian(rows, points):
    return np.exp(-np.sum(np.abs(rows[:, np.newaxis] - points), axis=-1))


@pytest.mark.parametrize(
    "kernel",
    [Function(laplacian), Precomputed(), Gaussian() + Function(laplacian)],
    ids=["function", "precomputed", "sum"],
)
def test_kernels_without_a_formula(kernel):
    with pytest.raises(TypeError, match="has no closed form for C or ONNX: give"):
        to_onnx(KernelExpansion(kernel, np.ones((2, 2)), np.ones((2, 1)), np.zeros(1)))


def test_a_kernel_of_ones_own():
    class Warmer(Gaussian):
        """A subclass, whose formula may be another."""

    with pytest.raises(TypeError, match="the kernel Warmer has no closed form"):
        to_onnx(KernelExpansion(Warmer(), np.ones((2, 2)), np.ones((2, 1)), np.zeros(1)))


@pytest.mark.parametrize("dtype", [np.float16, "floating", int, "nothing"])
def test_other_dtypes(dtype):
    expansion = KernelExpansion(Matern(), np.ones((2, 2)), np.ones((2, 1)), np.zeros(1))
    with pytest.raises(ValueError, match="dtype must be float32 or float64"):
        to_onnx(expansion, dtype=dtype)
    with pytest.raises(ValueError, match="arithmetic must be float32 or float64"):
        to_onnx(expansion, arithmetic=dtype)
    with pytest.raises(ValueError, match="dtype must be float32 or float64, got None"):
        to_onnx(expansion, dtype=None)


def test_dtypes_in_other_words():
    expansion = KernelExpansion(Matern(), np.ones((2, 2)), np.ones((2, 1)), np.zeros(1))
    double = to_onnx(expansion, dtype=np.float64)
    assert to_onnx(expansion, dtype=np.dtype("float64")) == to_onnx(expansion, dtype="float64") == double
    inside = to_onnx(expansion, arithmetic=np.dtype(np.float64))
    assert [node.op_type for node in inside.graph.node].count("Cast") == 2


def test_models_that_are_none():
    with pytest.raises(TypeError, match="a KernelExpansion; got a SVC"):
        to_onnx(SVC().fit([[0.0], [1.0]], [0, 1]))
    with pytest.raises(TypeError, match="got a str"):
        to_onnx("model")
    with pytest.raises(NotFittedError):
        to_onnx(ExactRegressor(noise=0.1, intercept=False))


def test_without_onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install mercer\[onnx\]"):
        to_onnx(KernelExpansion(Matern(), np.ones((2, 2)), np.ones((2, 1)), np.zeros(1)))
