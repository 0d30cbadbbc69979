"""From a machine of scikit-learn to a graph: what `compress` makes can be exported."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, OneClassSVM

from mercer.compression import compress
from mercer.persistence import to_onnx

pytest.importorskip("onnx", reason="onnx is not installed (the extra 'onnx')")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (the extra 'onnx')")


def run(model, rows):
    graph = to_onnx(model, dtype=np.float64).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": rows})


def data(n_classes=3):
    X, y = make_classification(150, 6, n_informative=4, n_classes=n_classes, n_clusters_per_class=1, random_state=0)
    return 1e3 * X, y


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_classes(kernel, n_classes):
    X, y = data(n_classes)
    model = compress(make_pipeline(StandardScaler(), SVC(kernel=kernel)).fit(X, y), n_vectors=6, random_state=0)
    label, _ = run(model, X)
    assert label.tolist() == model.predict(X).tolist()


def test_values():
    X, y = data()
    model = compress(make_pipeline(StandardScaler(), SVR()).fit(X, y), n_vectors=6, random_state=0)
    (prediction,) = run(model, X)
    np.testing.assert_allclose(prediction[:, 0], model.predict(X), atol=1e-8)


def test_outliers():
    X, _ = data()
    model = compress(make_pipeline(StandardScaler(), OneClassSVM()).fit(X), n_vectors=6, random_state=0)
    (values,) = run(model, X)
    np.testing.assert_allclose(values[:, 0], model.decision_function(X), atol=1e-8)


def test_a_scaler_that_cannot_be_folded():
    X, y = data()
    model = compress(make_pipeline(StandardScaler(), SVC(kernel="poly")).fit(X, y), n_vectors=6, random_state=0)
    with pytest.raises(TypeError, match="this CompressedPipeline cannot be exported: the step 'standardscaler'"):
        to_onnx(model)
