"""Kernels with a linear map of the inputs, against the same kernel on rows that were mapped before."""

import pickle
import subprocess

import numpy as np
import pytest
from sklearn.base import clone

import mercer
from mercer import CompactRegressor, ExactRegressor, NystromRegressor, OnlineRegressor, learn_metric
from mercer.kernels import CompactGaussian, Gaussian, Matern, Metric, Wendland
from mercer.model import KernelExpansion
from mercer.persistence import to_c, to_onnx
from mercer.reports.plots import plot_importance

A = np.random.default_rng(5).normal(size=(4, 2)) / 2
UNIT = np.array([1.0, 2.0, 0.5, 3.0])
KERNELS = [
    (Gaussian(Metric(A)), Gaussian()),
    (Matern(Metric(A), nu=0.5), Matern(nu=0.5)),
    (Matern(Metric(A, UNIT), amplitude=2.0), Matern(amplitude=2.0)),
    (Wendland(Metric(A / 4)), Wendland(dimension=4)),
    (CompactGaussian(Metric(A)), CompactGaussian(exponent=5)),
]
every_kernel = pytest.mark.parametrize(("kernel", "plain"), KERNELS, ids=lambda each: repr(each)[:40])


def draw(n=40, offset=3.0):
    return np.random.default_rng(0).normal(size=(n, 4)) + offset


@every_kernel
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 5e-6)])
def test_equals_the_kernel_of_mapped_rows(kernel, plain, dtype, tolerance):
    X, matrix = draw().astype(dtype), kernel.metric.matrix
    wide = X.astype(np.float64)
    np.testing.assert_allclose(kernel(X, X[:9]), plain(wide @ matrix, wide[:9] @ matrix), atol=2 * tolerance)


@every_kernel
def test_a_large_offset_costs_no_precision(kernel, plain):
    X = draw(offset=0.0)
    np.testing.assert_allclose(
        kernel(X + 2.0**20, X[:9] + 2.0**20), kernel((X + 2.0**20) - 2.0**20, (X[:9] + 2.0**20) - 2.0**20), atol=1e-12
    )


@pytest.mark.parametrize("kind", [Gaussian, Matern, Wendland])
def test_a_diagonal_matrix_is_the_array_of_length_scales(kind):
    X, scales = draw(), np.array([1e-3, 1.0, 5.0, 1e4])
    np.testing.assert_allclose(kind(np.diag(scales))(X), kind(scales)(X), atol=1e-13)


@every_kernel
def test_gradients_against_finite_differences(kernel, plain):
    rng, X = np.random.default_rng(1), draw(offset=0.0)
    points, weights, step = rng.normal(size=(3, 4)), rng.normal(size=(40, 3)), 1e-6
    by_points, by_parameter = kernel.gradients(X, points, weights)
    for j, f in np.ndindex(3, 4):
        moved = np.zeros((3, 4))
        moved[j, f] = step
        slope = np.sum(weights * (kernel(X, points + moved) - kernel(X, points - moved))) / (2 * step)
        np.testing.assert_allclose(by_points[j, f], slope, atol=1e-7)
    logs = kernel.get_log_parameters()
    up, down = (kernel.with_log_parameters(logs | {"length_scale": logs["length_scale"] + s}) for s in (step, -step))
    slope = np.sum(weights * (up(X, points) - down(X, points))) / (2 * step)
    np.testing.assert_allclose(by_parameter["length_scale"], slope, atol=1e-7)
    assert kernel.diagonal_gradient(X, np.ones(40))["length_scale"].shape == ()


@every_kernel
def test_clone_pickle_equality_and_archives(kernel, plain, tmp_path):
    mercer.save(kernel, tmp_path / "kernel")
    for copy in (clone(kernel), pickle.loads(pickle.dumps(kernel)), mercer.load(tmp_path / "kernel")):
        assert copy.equals(kernel)
    assert not kernel.equals(clone(kernel).set_params(length_scale=Metric(2 * A)))
    assert not kernel.equals(plain)
    np.testing.assert_allclose(kernel.metric_importance_, np.sum(A**2, axis=1) / np.sum(A**2))


@pytest.mark.parametrize(
    "wrong", [np.zeros((4, 2)), np.ones((4, 2)), np.ones((2, 4)), np.full((4, 4), np.nan)], ids=str
)
def test_matrices_without_an_inverse_are_refused(wrong):
    with pytest.raises(ValueError, match="length_scale must be, as a matrix"):
        Gaussian(wrong).check(4)


def test_bad_metrics_are_refused():
    for bad in (np.zeros((2, 2)), np.ones(3), [[np.inf]]):
        with pytest.raises(ValueError, match="the map of a metric"):
            Metric(bad)
    with pytest.raises(ValueError, match="the unit of a metric"):
        Metric(np.eye(2), [1.0, 0.0])
    with pytest.raises(ValueError, match="4 features"):
        Gaussian(Metric(np.eye(3)))(draw())
    with pytest.raises(ValueError, match="cutoff"):
        CompactGaussian(Metric(A), cutoff=1.0)(draw())


@pytest.mark.parametrize(
    "model",
    [ExactRegressor(noise=0.1), NystromRegressor(n_basis=20, noise=0.1, random_state=0), OnlineRegressor(noise=0.1)],
    ids=lambda each: type(each).__name__,
)
def test_estimators_equal_those_of_mapped_rows(model):
    X = draw(200)
    y, mapped = np.sin(X[:, 0]), X @ A
    one = clone(model).set_params(kernel=Gaussian(Metric(A))).fit(X, y)
    other = clone(model).set_params(kernel=Gaussian()).fit(mapped, y)
    np.testing.assert_allclose(one.predict(X), other.predict(mapped), rtol=1e-7, atol=1e-7)


def test_compact_models_equal_those_of_mapped_rows():
    X = draw(300)
    one = CompactRegressor(Wendland(Metric(A)), noise=0.1).fit(X, np.sin(X[:, 0]))
    other = CompactRegressor(Wendland(dimension=4), noise=0.1).fit(X @ A, np.sin(X[:, 0]))
    np.testing.assert_allclose(one.predict(X), other.predict(X @ A), atol=1e-10)


@every_kernel
@pytest.mark.parametrize("outputs", [1, 3])
def test_gradient_product_is_the_mean_of_outer_products(kernel, plain, outputs):
    X, rng = draw(300), np.random.default_rng(3)
    f, weights = (
        KernelExpansion(kernel, X[:20], rng.normal(size=(20, outputs)), np.zeros(outputs)),
        rng.uniform(size=300),
    )
    gradients = f.gradient(X)
    expected = np.einsum("n,npd,npe->de", weights, gradients, gradients) / np.sum(weights)
    np.testing.assert_allclose(f.gradient_product(X, weights), expected, atol=1e-12 * np.max(np.abs(expected)))


def test_export_folds_the_map_into_the_points(tmp_path):
    X = draw(60)
    model = ExactRegressor(Matern(Metric(A, UNIT)), noise=0.1).fit(X, np.sin(X[:, 0]))
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(to_onnx(model, dtype=np.float64).SerializeToString())
    np.testing.assert_allclose(session.run(None, {"X": X})[0][:, 0], model.predict(X), atol=1e-9)
    (tmp_path / "model.h").write_text(to_c(model, dtype="double"))
    row = ", ".join(repr(float(each)) for each in X[0])
    call = f"double x[4] = {{{row}}}, y[1]; model_predict(x, y);"
    main = f'#include <stdio.h>\n#include "model.h"\nint main(void) {{ {call} printf("%.17g", y[0]); return 0; }}'
    (tmp_path / "main.c").write_text(main)
    subprocess.run(["cc", "-std=c99", "-Wall", "-Werror", "main.c", "-o", "main", "-lm"], cwd=tmp_path, check=True)
    found = subprocess.run([tmp_path / "main"], capture_output=True, check=True, text=True).stdout
    np.testing.assert_allclose(float(found), model.predict(X[:1])[0], rtol=1e-10)
    with pytest.raises(TypeError, match="metric inside"):
        to_c(KernelExpansion(Gaussian(Metric(A)) + Gaussian(), X[:2], np.ones((2, 1)), np.zeros(1)))


def test_learned_metric_finds_the_direction(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 6)) * [1, 10, 1, 1, 0.1, 1]
    y = np.sin(2 * (X[:, 0] + X[:, 1] / 10)) + 0.05 * rng.normal(size=600)
    kernel = learn_metric(X[:400], y[:400], n_basis=150, random_state=0)
    assert np.sum(kernel.metric_importance_[:2]) > 0.95
    errors = [
        np.mean(
            (NystromRegressor(each, n_basis=150, random_state=0).fit(X[:400], y[:400]).predict(X[400:]) - y[400:]) ** 2
        )
        for each in (Matern(X.std(axis=0) * 3), kernel)
    ]
    assert errors[1] < 0.2 * errors[0]
    plot_importance(tmp_path / "importance.svg", kernel.metric_importance_)
    assert (tmp_path / "importance.svg").stat().st_size > 0


def test_learned_metric_of_classes_and_its_time_limit():
    X = draw(300, offset=0.0)
    with pytest.warns(UserWarning, match="time_limit"):
        learn_metric(X, X[:, 0] > 0, n_basis=30, time_limit=1e-9, random_state=0)
    labels = np.where(X[:, 0] > 0.5, "a", np.where(X[:, 0] < -0.5, "b", "c"))
    assert np.argmax(learn_metric(X, labels, n_basis=100, random_state=0).metric_importance_) == 0
